//! Parts of the sphere and of the plane in which an index is searched from a point, the nearest part first.

use std::f64::consts::PI;

use s2::cell::Cell;
use s2::cellid::CellID;

use crate::cells::{CellRange, FINEST_LEVEL, Ring, range_of};
use crate::distance::to_arc;
use crate::grid::{Grid, GridRange, Square};
use crate::plane::flat_distance;
use crate::point::{Pair, Point};

/// What is lost in the sums that tell distances: parts may count as nearer than they are, and never as farther.
const SLACK: f64 = 1e-12;

/// Where distances are measured from.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    pair: Pair,
    point: Point,
    on_earth: bool,
}

impl Origin {
    /// A point of which distances are angles on the earth.
    pub fn on_earth(pair: Pair) -> Origin {
        Origin { pair, point: pair.to_point(), on_earth: true }
    }

    /// A point of the plane.
    pub fn in_plane(pair: Pair) -> Origin {
        Origin { pair, point: pair.to_point(), on_earth: false }
    }
}

/// A cell of the sphere or a square of the plane.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// A cell.
    Cell(CellID),
    /// A square.
    Square(Grid, Square),
}

/// Where an index has what lies in a part.
#[derive(Clone, Copy, Debug)]
pub enum PartRange {
    /// Numbers of cells.
    Cells(CellRange),
    /// Numbers of squares.
    Squares(GridRange),
}

impl Part {
    /// All of the sphere.
    pub fn sphere() -> Vec<Part> {
        (0..6).map(|face| Part::Cell(CellID::from_face(face))).collect()
    }

    /// All of a grid.
    pub fn plane(grid: Grid) -> Vec<Part> {
        vec![Part::Square(grid, Square::ALL)]
    }

    /// Where an index has what lies in it.
    pub fn range(&self) -> PartRange {
        match self {
            Part::Cell(id) => PartRange::Cells(range_of(*id)),
            Part::Square(grid, square) => PartRange::Squares(grid.range(*square)),
        }
    }

    /// Where an index has what belongs to it and to none of its parts.
    pub fn own(&self) -> Option<PartRange> {
        match self {
            Part::Cell(id) => {
                let number = id.0 as i64;
                Some(PartRange::Cells(CellRange { first: number, last: number }))
            }
            Part::Square(..) => None,
        }
    }

    /// Its four parts; none of the smallest ones.
    pub fn parts(&self) -> Vec<Part> {
        match self {
            Part::Cell(id) if id.level() < FINEST_LEVEL => {
                id.children().into_iter().map(Part::Cell).collect()
            }
            Part::Square(grid, square) if square.level < grid.bits => {
                square.parts().into_iter().map(|part| Part::Square(*grid, part)).collect()
            }
            Part::Cell(_) | Part::Square(..) => Vec::new(),
        }
    }

    /// How near anything in it may be, and how far.
    pub fn distances(&self, from: &Origin) -> (f64, f64) {
        match self {
            Part::Cell(id) => {
                let cell = Cell::from(id);
                let ring = Ring { centre: from.point, inner: 0.0, outer: PI };
                (ring.nearest(&cell) - SLACK, ring.farthest(&cell) + SLACK)
            }
            Part::Square(grid, square) => {
                let (low, high) = grid.corners(*square);
                match from.on_earth {
                    true => (angle_to_box(from, low, high) - SLACK, PI),
                    false => flat_distances(from.pair, low, high),
                }
            }
        }
    }
}

fn flat_distances(from: Pair, low: Pair, high: Pair) -> (f64, f64) {
    let nearest = Pair { x: from.x.clamp(low.x, high.x), y: from.y.clamp(low.y, high.y) };
    let far = |at: f64, low: f64, high: f64| (at - low).abs().max((at - high).abs());
    let farthest = far(from.x, low.x, high.x).hypot(far(from.y, low.y, high.y));
    (flat_distance(from, nearest) * (1.0 - SLACK), farthest * (1.0 + SLACK))
}

/// The angle to the nearest point between two longitudes and two latitudes.
fn angle_to_box(from: &Origin, low: Pair, high: Pair) -> f64 {
    let (west, east) = (low.x.clamp(-180.0, 180.0), high.x.clamp(-180.0, 180.0));
    let (south, north) = (low.y.clamp(-90.0, 90.0), high.y.clamp(-90.0, 90.0));
    let Pair { x, y } = from.pair;
    if west <= x && x <= east {
        // Straight to the north or to the south.
        return (y - y.clamp(south, north)).abs().to_radians();
    }
    let to_side = |x: f64| {
        let end = |y: f64| Pair { x, y }.to_point();
        to_arc(&from.point, &end(south), &end(north))
    };
    to_side(west).min(to_side(east))
}
