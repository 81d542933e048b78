//! How shapes lie to each other: one within the other, or with something in common.
//!
//! Borders that cross inside of their edges decide at once. Where they only share corners, the wedges at those corners decide. Where
//! they do not meet at all, one corner of each stands for all.

use std::collections::HashMap;

use super::cells::{leaf_meets_arc, leaf_of};
use super::distance::Bounds;
use super::point::{Point, bits};
use super::polygon::Polygon;
use super::predicate::{Crossing, Wedge, crossing, ordered};
use super::shape::Shape;

/// An arc and the box around it.
pub(super) struct Arc<'a> {
    pub(super) a: &'a Point,
    pub(super) b: &'a Point,
    pub(super) bounds: Bounds,
}

impl<'a> Arc<'a> {
    pub(super) fn new((a, b): (&'a Point, &'a Point)) -> Arc<'a> {
        Arc { a, b, bounds: Bounds::of_arc(a, b) }
    }

    fn crosses(&self, other: &Arc<'_>) -> Crossing {
        crossing(self.a, self.b, other.a, other.b)
    }
}

/// Visits pairs of arcs, by their places, whose boxes meet, until a visit says that it has seen enough.
pub(super) fn any_pair(
    left: &[Arc<'_>],
    right: &[Arc<'_>],
    visit: &mut dyn FnMut(usize, usize) -> bool,
) -> bool {
    let order = |arcs: &[Arc<'_>]| {
        let mut places: Vec<usize> = (0..arcs.len()).collect();
        places.sort_by(|x, y| arcs[*x].bounds.first().total_cmp(&arcs[*y].bounds.first()));
        places
    };
    let (left_order, right_order) = (order(left), order(right));
    let (mut left_open, mut right_open) = (Vec::<usize>::new(), Vec::<usize>::new());
    let (mut next_left, mut next_right) = (0, 0);
    loop {
        let left_at = left_order.get(next_left).copied();
        let right_at = right_order.get(next_right).copied();
        let take_left = match (left_at, right_at) {
            (Some(l), Some(r)) => left[l].bounds.first() <= right[r].bounds.first(),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return false,
        };
        if let (true, Some(l)) = (take_left, left_at) {
            next_left += 1;
            let from = left[l].bounds.first();
            right_open.retain(|r| right[*r].bounds.last() >= from);
            let mut meeting =
                right_open.iter().filter(|r| right[**r].bounds.meets(&left[l].bounds));
            if meeting.any(|r| visit(l, *r)) {
                return true;
            }
            left_open.push(l);
        } else if let Some(r) = right_at {
            next_right += 1;
            let from = right[r].bounds.first();
            left_open.retain(|l| left[*l].bounds.last() >= from);
            let mut meeting = left_open.iter().filter(|l| left[**l].bounds.meets(&right[r].bounds));
            if meeting.any(|l| visit(*l, r)) {
                return true;
            }
            right_open.push(r);
        }
    }
}

fn arcs_of(polygon: &Polygon) -> Vec<Arc<'_>> {
    polygon.edges().map(Arc::new).collect()
}

fn arcs_of_line(line: &[Point]) -> Vec<Arc<'_>> {
    line.windows(2).map(|pair| Arc::new((&pair[0], &pair[1]))).collect()
}

fn cross_inside(left: &[Arc<'_>], right: &[Arc<'_>]) -> bool {
    any_pair(left, right, &mut |l, r| left[l].crosses(&right[r]) == Crossing::Inside)
}

/// The wedges at each corner of a polygon.
type Corners<'a> = HashMap<[u64; 3], Vec<Wedge<'a>>>;

fn corners_of(polygon: &Polygon) -> Corners<'_> {
    let mut corners = Corners::new();
    for [before, corner, after] in polygon.corners() {
        corners.entry(bits(corner)).or_default().push(Wedge { before, after });
    }
    corners
}

fn boxes_meet(a: &Polygon, b: &Polygon) -> bool {
    // Only the borders have boxes: two polygons may be one within the other, so this decides about crossings alone.
    matches!((a.bounds(), b.bounds()), (Some(a), Some(b)) if a.meets(b))
}

/// Whether all of b lies in a.
pub(super) fn polygon_contains(a: &Polygon, b: &Polygon) -> bool {
    if boxes_meet(a, b) && cross_inside(&arcs_of(a), &arcs_of(b)) {
        return false;
    }
    let (own, others) = (corners_of(a), corners_of(b));
    for [before, corner, after] in b.corners() {
        let wedge = Wedge { before, after };
        let inside = match own.get(&bits(corner)) {
            Some(wedges) => wedges.iter().any(|own| own.contains(&wedge, corner)),
            None => a.contains(corner),
        };
        if !inside {
            return false;
        }
    }
    // A hole of a must not lie in b, nor may b go around all of a.
    a.corners().all(|[_, corner, _]| others.contains_key(&bits(corner)) || !b.contains(corner))
}

/// Whether both have some of the sphere in common; a common border alone is nothing, as in the reference.
pub(super) fn polygons_meet(a: &Polygon, b: &Polygon) -> bool {
    if boxes_meet(a, b) && cross_inside(&arcs_of(a), &arcs_of(b)) {
        return true;
    }
    let (own, others) = (corners_of(a), corners_of(b));
    let meets = |known: &Corners<'_>, polygon: &Polygon, [before, corner, after]: [&Point; 3]| {
        let wedge = Wedge { before, after };
        match known.get(&bits(corner)) {
            Some(wedges) => wedges.iter().any(|own| own.intersects(&wedge, corner)),
            None => polygon.contains(corner),
        }
    };
    b.corners().any(|corner| meets(&own, a, corner))
        || a.corners().any(|corner| meets(&others, b, corner))
}

/// Whether all of a line lies in a polygon or on its border.
pub(super) fn polygon_contains_line(polygon: &Polygon, line: &[Point]) -> bool {
    let corners = corners_of(polygon);
    let into = |corner: &Point, next: &Point| match corners.get(&bits(corner)) {
        Some(wedges) => wedges.iter().any(|wedge| {
            next == wedge.before
                || next == wedge.after
                || ordered(wedge.after, next, wedge.before, corner)
        }),
        None => polygon.contains(corner),
    };
    let all_inside = line.windows(2).all(|pair| {
        pair[0] == pair[1] && (corners.contains_key(&bits(&pair[0])) || polygon.contains(&pair[0]))
            || into(&pair[0], &pair[1]) && into(&pair[1], &pair[0])
    });
    all_inside && !cross_inside(&arcs_of(polygon), &arcs_of_line(line))
}

fn polygon_meets_line(polygon: &Polygon, line: &[Point]) -> bool {
    let (own, others) = (arcs_of(polygon), arcs_of_line(line));
    line.iter().any(|point| polygon.contains(point))
        || any_pair(&own, &others, &mut |l, r| own[l].crosses(&others[r]) != Crossing::None)
}

fn lines_meet(a: &[Point], b: &[Point]) -> bool {
    let (own, others) = (arcs_of_line(a), arcs_of_line(b));
    any_pair(&own, &others, &mut |l, r| own[l].crosses(&others[r]) != Crossing::None)
}

/// A point is as large as the smallest cell, about a centimetre.
fn polygon_meets_point(polygon: &Polygon, point: &Point) -> bool {
    polygon.contains(point) || {
        let leaf = leaf_of(point);
        polygon.edges().any(|(a, b)| leaf_meets_arc(&leaf, a, b))
    }
}

fn line_meets_point(line: &[Point], point: &Point) -> bool {
    let leaf = leaf_of(point);
    line.windows(2).any(|pair| leaf_meets_arc(&leaf, &pair[0], &pair[1]))
}

/// Whether all of `inner` lies in the polygons of `outer`, each of its parts in one of them.
pub(super) fn contains(outer: &Shape, inner: &Shape) -> bool {
    let polygons = outer.polygons();
    let any = |test: &dyn Fn(&Polygon) -> bool| polygons.iter().any(test);
    inner.points().iter().all(|point| any(&|polygon| polygon.contains(point)))
        && inner.lines().iter().all(|line| any(&|polygon| polygon_contains_line(polygon, line)))
        && inner.polygons().iter().all(|other| any(&|polygon| polygon_contains(polygon, other)))
}

/// Whether both have something in common.
pub(super) fn meet(a: &Shape, b: &Shape) -> bool {
    let points_on = |x: &Shape, y: &Shape| {
        x.points().iter().any(|point| {
            y.lines().iter().any(|line| line_meets_point(line, point))
                || y.polygons().iter().any(|polygon| polygon_meets_point(polygon, point))
        })
    };
    let lines_on = |x: &Shape, y: &Shape| {
        let polygons = y.polygons();
        x.lines().iter().any(|line| polygons.iter().any(|p| polygon_meets_line(p, line)))
    };
    let same_leaf = |x: &Point| {
        let leaf = leaf_of(x);
        b.points().iter().any(|y| leaf_of(y).id == leaf.id)
    };
    a.points().iter().any(same_leaf)
        || points_on(a, b)
        || points_on(b, a)
        || lines_on(a, b)
        || lines_on(b, a)
        || a.lines().iter().any(|x| b.lines().iter().any(|y| lines_meet(x, y)))
        || a.polygons().iter().any(|x| b.polygons().iter().any(|y| polygons_meet(x, y)))
}
