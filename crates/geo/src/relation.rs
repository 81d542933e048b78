//! Relations between shapes: containment and intersection.
//!
//! Borders that cross at interior points of edges decide immediately. If they only share corners,
//! the wedges at those corners decide. If they do not meet at all, one corner of each decides.
//!
//! Comparing large shapes counts as work of the operation. When the operation must end, the results
//! here are meaningless: the caller checks [`spend`] once more before using one.

use std::collections::HashMap;

use mayfly_work::current::spend;

use crate::cells::{leaf_meets_arc, leaf_of};
use crate::distance::Bounds;
use crate::point::{Point, angle, bits};
use crate::polygon::Polygon;
use crate::predicate::{Crossing, Wedge, crossing, ordered};
use crate::shape::Shape;

/// Edges that count as one unit of work.
const EDGES_PER_UNIT: usize = 32;

/// An arc with its bounding box.
#[derive(Clone, Debug)]
pub(crate) struct Arc {
    pub(crate) a: Point,
    pub(crate) b: Point,
    pub(crate) bounds: Bounds,
    /// Its index among the edges it was taken from.
    pub(crate) at: usize,
}

impl Arc {
    pub(crate) fn new(at: usize, (a, b): (&Point, &Point)) -> Arc {
        Arc { a: *a, b: *b, bounds: Bounds::of_arc(a, b), at }
    }

    pub(crate) fn crosses(&self, other: &Arc) -> Crossing {
        crossing(&self.a, &self.b, &other.a, &other.b)
    }
}

/// Arcs sorted for [`any_pair`].
pub(crate) fn sorted_arcs<'a>(edges: impl Iterator<Item = (&'a Point, &'a Point)>) -> Vec<Arc> {
    let mut arcs: Vec<Arc> = edges.enumerate().map(|(at, edge)| Arc::new(at, edge)).collect();
    arcs.sort_by(|x, y| x.bounds.first().total_cmp(&y.bounds.first()));
    arcs
}

/// A polygon, prepared for relations.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    arcs: Vec<Arc>,
    /// The neighbours of each corner.
    corners: HashMap<[u64; 3], Vec<(Point, Point)>>,
}

impl Prepared {
    pub(crate) fn new(polygon: &Polygon) -> Prepared {
        let mut corners: HashMap<[u64; 3], Vec<(Point, Point)>> = HashMap::new();
        for [before, corner, after] in polygon.corners() {
            corners.entry(bits(corner)).or_default().push((*before, *after));
        }
        Prepared { arcs: sorted_arcs(polygon.edges()), corners }
    }

    /// The wedges at a corner; `None` at other points.
    fn wedges(&self, corner: &Point) -> Option<impl Iterator<Item = Wedge<'_>>> {
        let found = self.corners.get(&bits(corner))?;
        Some(found.iter().map(|(before, after)| Wedge { before, after }))
    }

    fn has_corner(&self, corner: &Point) -> bool {
        self.corners.contains_key(&bits(corner))
    }
}

/// Visits pairs of arcs whose boxes intersect, both lists sorted, until a visit returns true.
pub(crate) fn any_pair<'a>(
    left: &'a [Arc],
    right: &'a [Arc],
    visit: &mut dyn FnMut(&'a Arc, &'a Arc) -> bool,
) -> bool {
    let (mut left_open, mut right_open) = (Vec::<&Arc>::new(), Vec::<&Arc>::new());
    let (mut rest_left, mut rest_right) = (left, right);
    loop {
        let take_left = match (rest_left.first(), rest_right.first()) {
            (Some(l), Some(r)) => l.bounds.first() <= r.bounds.first(),
            // One list is exhausted and has no open arc left.
            (Some(_), None) if right_open.is_empty() => return false,
            (None, Some(_)) if left_open.is_empty() => return false,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return false,
        };
        let (rest, own, others) = match take_left {
            true => (&mut rest_left, &mut left_open, &mut right_open),
            false => (&mut rest_right, &mut right_open, &mut left_open),
        };
        let Some((next, after)) = rest.split_first() else { return false };
        *rest = after;
        if must_end(others.len()) {
            return false;
        }
        others.retain(|other| other.bounds.last() >= next.bounds.first());
        let mut meeting = others.iter().filter(|other| other.bounds.meets(&next.bounds));
        let found = match take_left {
            true => meeting.any(|other| visit(next, other)),
            false => meeting.any(|other| visit(other, next)),
        };
        if found {
            return true;
        }
        own.push(next);
    }
}

/// Counts the visit of this many edges. Returns whether the operation must end.
fn must_end(edges: usize) -> bool {
    spend(1 + edges / EDGES_PER_UNIT).is_err()
}

/// Whether a point is inside a polygon.
fn is_inside(polygon: &Polygon, point: &Point) -> bool {
    let edges = polygon.loops().iter().map(|ring| ring.vertices().len()).sum();
    !must_end(edges) && polygon.contains(point)
}

fn arcs_of_line(line: &[Point]) -> Vec<Arc> {
    sorted_arcs(line.windows(2).map(|pair| (&pair[0], &pair[1])))
}

fn cross_inside(left: &[Arc], right: &[Arc]) -> bool {
    any_pair(left, right, &mut |l, r| l.crosses(r) == Crossing::Inside)
}

fn touch(left: &[Arc], right: &[Arc]) -> bool {
    any_pair(left, right, &mut |l, r| l.crosses(r) != Crossing::None)
}

/// Whether two borders cross.
fn borders_cross(a: &Polygon, b: &Polygon) -> bool {
    // The boxes cover only the borders: one polygon may be inside the other.
    let near = matches!((a.bounds(), b.bounds()), (Some(a), Some(b)) if a.meets(b));
    near && cross_inside(&a.prepared().arcs, &b.prepared().arcs)
}

/// Whether their bounding circles are disjoint.
fn far_apart(a: &Polygon, b: &Polygon) -> bool {
    match (a.circle(), b.circle()) {
        (Some((x, r)), Some((y, s))) => angle(&x, &y) > r + s,
        _ => false,
    }
}

/// Whether a contains b.
pub(crate) fn polygon_contains(a: &Polygon, b: &Polygon) -> bool {
    if far_apart(a, b) || borders_cross(a, b) {
        return false;
    }
    let (own, others) = (a.prepared(), b.prepared());
    for [before, corner, after] in b.corners() {
        let wedge = Wedge { before, after };
        let inside = match own.wedges(corner) {
            Some(mut wedges) => wedges.any(|own| own.contains(&wedge, corner)),
            None => is_inside(a, corner),
        };
        if !inside {
            return false;
        }
    }
    // b must not contain a hole of a, nor surround a.
    a.corners().all(|[_, corner, _]| others.has_corner(corner) || !is_inside(b, corner))
}

/// Whether the interiors intersect; a common border alone does not count, as in the reference.
pub(crate) fn polygons_meet(a: &Polygon, b: &Polygon) -> bool {
    if far_apart(a, b) {
        return false;
    }
    if borders_cross(a, b) {
        return true;
    }
    let meets = |polygon: &Polygon, [before, corner, after]: [&Point; 3]| {
        let wedge = Wedge { before, after };
        match polygon.prepared().wedges(corner) {
            Some(mut wedges) => wedges.any(|own| own.intersects(&wedge, corner)),
            None => is_inside(polygon, corner),
        }
    };
    b.corners().any(|corner| meets(a, corner)) || a.corners().any(|corner| meets(b, corner))
}

/// Whether a polygon, including its border, contains a line.
pub(crate) fn polygon_contains_line(polygon: &Polygon, line: &[Point]) -> bool {
    let prepared = polygon.prepared();
    let into = |corner: &Point, next: &Point| match prepared.wedges(corner) {
        Some(mut wedges) => wedges.any(|wedge| {
            next == wedge.before
                || next == wedge.after
                || ordered(wedge.after, next, wedge.before, corner)
        }),
        None => is_inside(polygon, corner),
    };
    let all_inside =
        line.windows(2).all(|pair| into(&pair[0], &pair[1]) && into(&pair[1], &pair[0]));
    all_inside && !cross_inside(&prepared.arcs, &arcs_of_line(line))
}

fn polygon_meets_line(polygon: &Polygon, line: &[Point]) -> bool {
    line.iter().any(|point| is_inside(polygon, point))
        || touch(&polygon.prepared().arcs, &arcs_of_line(line))
}

fn lines_meet(a: &[Point], b: &[Point]) -> bool {
    touch(&arcs_of_line(a), &arcs_of_line(b))
}

/// Wider than the smallest cell, as an angle.
const LEAF: f64 = 1e-7;

/// Whether a polygon, including its border, contains a point. The point counts as large as the
/// smallest cell, about a centimetre.
fn polygon_meets_point(polygon: &Polygon, point: &Point) -> bool {
    if polygon.circle().is_some_and(|(centre, radius)| angle(&centre, point) > radius + LEAF) {
        return false;
    }
    is_inside(polygon, point) || {
        let leaf = leaf_of(point);
        polygon.edges().any(|(a, b)| leaf_meets_arc(&leaf, a, b))
    }
}

fn line_meets_point(line: &[Point], point: &Point) -> bool {
    let leaf = leaf_of(point);
    !must_end(line.len()) && line.windows(2).any(|pair| leaf_meets_arc(&leaf, &pair[0], &pair[1]))
}

/// Whether the polygons of `outer` contain all parts of `inner`, each part in one polygon.
pub(crate) fn contains(outer: &Shape, inner: &Shape) -> bool {
    let polygons = outer.polygons();
    let any = |test: &dyn Fn(&Polygon) -> bool| polygons.iter().any(test);
    let holds = |polygon: &Polygon, point: &Point| match polygon.has_border() {
        true => polygon_meets_point(polygon, point),
        false => is_inside(polygon, point),
    };
    inner.points().iter().all(|point| any(&|polygon| holds(polygon, point)))
        && inner.lines().iter().all(|line| any(&|polygon| polygon_contains_line(polygon, line)))
        && inner.polygons().iter().all(|other| any(&|polygon| polygon_contains(polygon, other)))
}

/// Whether the shapes intersect.
pub(crate) fn meet(a: &Shape, b: &Shape) -> bool {
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
        !must_end(b.points().len()) && b.points().iter().any(|y| leaf_of(y).id == leaf.id)
    };
    a.points().iter().any(same_leaf)
        || points_on(a, b)
        || points_on(b, a)
        || lines_on(a, b)
        || lines_on(b, a)
        || a.lines().iter().any(|x| b.lines().iter().any(|y| lines_meet(x, y)))
        || a.polygons().iter().any(|x| b.polygons().iter().any(|y| polygons_meet(x, y)))
}
