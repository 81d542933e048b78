//! Cells of the sphere, each divided into four, which an index uses to find shapes.
//!
//! A cell's number begins with its face of a cube, followed by two bits for each division, so that
//! the numbers of all cells within a cell form one range. A shape is indexed by the few cells that
//! cover it. For each cell of its own covering, a query scans the range of the cells within it, and
//! looks up its ancestors individually.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::f64::consts::PI;

use s2::cell::Cell;
use s2::cellid::CellID;

use crate::distance::{Bounds, to_arc, to_corners};
use crate::point::{Point, angle, antipode};
use crate::predicate::{Crossing, crossing};
use crate::relation::Arc;
use crate::shape::Shape;

/// The level of the smallest cells in an index: about a metre.
pub(crate) const FINEST_LEVEL: u64 = 23;

/// Most cells of one geometry in an index.
const MAX_INDEX_CELLS: usize = 20;

/// A shape within this distance of a cell counts as touching it: coverings may be larger than
/// needed, but never smaller.
const CLOSE: f64 = 1e-13;

/// A region that cells can cover.
pub(crate) trait Region {
    /// Whether it intersects a cell. May return true for a near miss.
    fn may_meet(&self, cell: &Cell) -> bool;

    /// Whether it contains a cell completely. May return false if unsure.
    fn holds(&self, cell: &Cell) -> bool;
}

/// A range of cell numbers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellRange {
    /// The first cell number.
    pub first: i64,
    /// The last cell number.
    pub last: i64,
}

/// A covering of a region by about `max_cells` cells at most, none finer than [`FINEST_LEVEL`].
pub(crate) fn covering(region: &dyn Region, max_cells: usize) -> Vec<CellID> {
    let mut done = Vec::new();
    let mut open: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
    for face in 0..6 {
        let id = CellID::from_face(face);
        if region.may_meet(&Cell::from(id)) {
            open.push(Reverse((0, id.0)));
        }
    }
    while let Some(Reverse((level, id))) = open.pop() {
        let id = CellID(id);
        if level >= FINEST_LEVEL || region.holds(&Cell::from(id)) {
            done.push(id);
            continue;
        }
        let mut children = id.children().to_vec();
        children.retain(|child| region.may_meet(&Cell::from(child)));
        let all = done.len() + open.len() + children.len();
        if children.len() > 1 && all > max_cells {
            done.push(id);
        } else {
            open.extend(children.iter().map(|child| Reverse((level + 1, child.0))));
        }
    }
    done.sort_by_key(|id| id.0);
    done
}

/// The cells by which a shape is indexed.
pub fn index_cells(shape: &Shape) -> Vec<i64> {
    let only_points = shape.lines().is_empty() && shape.polygons().is_empty();
    let mut cells: Vec<CellID> = match (only_points, shape.points()) {
        (true, points) if points.len() <= MAX_INDEX_CELLS => {
            points.iter().map(|point| CellID::from(point).parent(FINEST_LEVEL)).collect()
        }
        _ => covering(&Covered::new(shape), MAX_INDEX_CELLS),
    };
    cells.sort_by_key(|id| id.0);
    cells.dedup();
    cells.into_iter().map(|id| id.0 as i64).collect()
}

/// The numbers of all cells within a cell.
pub(crate) fn range_of(id: CellID) -> CellRange {
    CellRange { first: id.range_min().0 as i64, last: id.range_max().0 as i64 }
}

/// The ranges of an index with all shapes that may intersect a covering: ascending, none within
/// another.
pub(crate) fn ranges(cells: &[CellID]) -> Vec<CellRange> {
    let mut ranges: Vec<CellRange> = cells.iter().map(|id| range_of(*id)).collect();
    ranges.extend(ancestors(cells).into_iter().map(|id| CellRange { first: id, last: id }));
    ranges.sort();
    let mut joined: Vec<CellRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            // Cell numbers are odd at the finest level: an adjacent range begins two after the end
            // of the last one.
            Some(last) if range.first <= last.last.saturating_add(2) => {
                last.last = last.last.max(range.last);
            }
            _ => joined.push(range),
        }
    }
    joined
}

/// The ancestors of these cells, each once.
fn ancestors(cells: &[CellID]) -> Vec<i64> {
    let mut found: Vec<u64> =
        cells.iter().flat_map(|id| (0..id.level()).map(|level| id.parent(level).0)).collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(|id| id as i64).collect()
}

/// The smallest cell that contains a point.
pub(crate) fn leaf_of(point: &Point) -> Cell {
    Cell::from(CellID::from(point))
}

/// Whether an arc intersects a smallest cell.
pub(crate) fn leaf_meets_arc(leaf: &Cell, a: &Point, b: &Point) -> bool {
    // A fast test for the usual case.
    let far = to_arc(&leaf.center(), a, b) > 1e-8;
    !far && cell_meets_arc(leaf, &leaf.vertices(), a, b)
}

fn in_cell(cell: &Cell, point: &Point) -> bool {
    cell.contains_point(point)
}

fn cell_meets_arc(cell: &Cell, corners: &[Point; 4], a: &Point, b: &Point) -> bool {
    in_cell(cell, a)
        || in_cell(cell, b)
        || (0..4).any(|k| {
            let (c, d) = (&corners[k], &corners[(k + 1) % 4]);
            crossing(a, b, c, d) != Crossing::None
                || to_arc(c, a, b) < CLOSE
                || to_arc(a, c, d) < CLOSE
                || to_arc(b, c, d) < CLOSE
        })
}

/// The bounding box of a cell.
fn bounds_of(cell: &Cell, corners: &[Point; 4]) -> Bounds {
    let centre = cell.center();
    let radius = corners.iter().map(|corner| angle(&centre, corner)).fold(0.0, f64::max);
    Bounds::of_ball(&centre, 2.0 * (radius / 2.0).sin() + CLOSE)
}

/// A shape, prepared for tests against many cells.
pub(crate) struct Covered<'a> {
    shape: &'a Shape,
    arcs: Vec<Arc>,
}

impl<'a> Covered<'a> {
    pub(crate) fn new(shape: &'a Shape) -> Covered<'a> {
        let lines = shape.lines().iter().flat_map(|line| line.windows(2));
        let lines = lines.map(|pair| (&pair[0], &pair[1]));
        let borders = shape.polygons().iter().flat_map(|polygon| polygon.edges());
        let edges = lines.chain(borders).enumerate();
        Covered { shape, arcs: edges.map(|(at, edge)| Arc::new(at, edge)).collect() }
    }

    fn arc_meets(&self, cell: &Cell, corners: &[Point; 4]) -> bool {
        let around = bounds_of(cell, corners);
        let near = self.arcs.iter().filter(|arc| arc.bounds.meets(&around));
        near.into_iter().any(|arc| cell_meets_arc(cell, corners, &arc.a, &arc.b))
    }
}

impl Region for Covered<'_> {
    fn may_meet(&self, cell: &Cell) -> bool {
        let corners = cell.vertices();
        let near_corner = |point: &Point| to_corners(point, &corners) < CLOSE;
        self.shape.points().iter().any(|point| in_cell(cell, point) || near_corner(point))
            || self.arc_meets(cell, &corners)
            || self.shape.polygons().iter().any(|polygon| polygon.contains(&corners[0]))
    }

    fn holds(&self, cell: &Cell) -> bool {
        let corners = cell.vertices();
        self.shape
            .polygons()
            .iter()
            .any(|polygon| corners.iter().all(|corner| polygon.contains(corner)))
            && !self.arc_meets(cell, &corners)
            && self.shape.polygons().iter().any(|polygon| polygon.contains(&cell.center()))
    }
}

/// The region between two distances from a point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    /// The centre.
    pub(crate) centre: Point,
    /// The smaller distance, as an angle.
    pub(crate) inner: f64,
    /// The larger distance, as an angle.
    pub(crate) outer: f64,
}

impl Ring {
    pub(crate) fn nearest(&self, cell: &Cell) -> f64 {
        if in_cell(cell, &self.centre) {
            return 0.0;
        }
        to_corners(&self.centre, &cell.vertices())
    }

    pub(crate) fn farthest(&self, cell: &Cell) -> f64 {
        let opposite = Ring { centre: antipode(&self.centre), ..*self };
        PI - opposite.nearest(cell)
    }
}

impl Region for Ring {
    fn may_meet(&self, cell: &Cell) -> bool {
        self.nearest(cell) <= self.outer + CLOSE && self.farthest(cell) >= self.inner - CLOSE
    }

    fn holds(&self, cell: &Cell) -> bool {
        self.nearest(cell) > self.inner + CLOSE && self.farthest(cell) < self.outer - CLOSE
            || self.inner <= 0.0 && self.farthest(cell) < self.outer - CLOSE
    }
}
