//! Regions of the sphere and of the plane for a nearest-first search of an index.

use std::f64::consts::PI;

use s2::cell::Cell;
use s2::cellid::CellID;

use crate::cells::{CellRange, FINEST_LEVEL, Ring, range_of};
use crate::distance::to_arc;
use crate::grid::{Grid, GridRange, Square};
use crate::plane::flat_distance;
use crate::point::{Pair, Point};

/// Rounding error of distances: a region may count as nearer than it is, but never as farther.
const SLACK: f64 = 1e-12;

/// The point that distances are measured from.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    pair: Pair,
    point: Point,
    on_earth: bool,
}

impl Origin {
    /// A point on the sphere, with angles as distances.
    pub fn on_earth(pair: Pair) -> Origin {
        Origin { pair, point: pair.to_point(), on_earth: true }
    }

    /// A point in the plane.
    pub fn in_plane(pair: Pair) -> Origin {
        Origin { pair, point: pair.to_point(), on_earth: false }
    }
}

/// A cell of the sphere or a square of the plane.
#[derive(Clone, Copy, Debug)]
pub enum SearchRegion {
    /// A cell of the sphere.
    Cell(CellID),
    /// A square of the grid.
    Square(Grid, Square),
}

/// The range of index keys of a region.
#[derive(Clone, Copy, Debug)]
pub enum RegionRange {
    /// A range of cell numbers.
    Cells(CellRange),
    /// A range of grid numbers.
    Squares(GridRange),
}

impl SearchRegion {
    /// The whole sphere.
    pub fn sphere() -> Vec<SearchRegion> {
        (0..6).map(|face| SearchRegion::Cell(CellID::from_face(face))).collect()
    }

    /// The whole grid.
    pub fn plane(grid: Grid) -> Vec<SearchRegion> {
        vec![SearchRegion::Square(grid, Square::ALL)]
    }

    /// The index range of all keys in the region.
    pub fn range(&self) -> RegionRange {
        match self {
            SearchRegion::Cell(id) => RegionRange::Cells(range_of(*id)),
            SearchRegion::Square(grid, square) => RegionRange::Squares(grid.range(*square)),
        }
    }

    /// The index range of keys that belong to the region but to none of its parts.
    pub fn own(&self) -> Option<RegionRange> {
        match self {
            SearchRegion::Cell(id) => {
                let number = id.0 as i64;
                Some(RegionRange::Cells(CellRange { first: number, last: number }))
            }
            SearchRegion::Square(..) => None,
        }
    }

    /// Its four parts; empty for the smallest regions.
    pub fn parts(&self) -> Vec<SearchRegion> {
        match self {
            SearchRegion::Cell(id) if id.level() < FINEST_LEVEL => {
                id.children().into_iter().map(SearchRegion::Cell).collect()
            }
            SearchRegion::Square(grid, square) if square.level < grid.bits => {
                square.parts().into_iter().map(|part| SearchRegion::Square(*grid, part)).collect()
            }
            SearchRegion::Cell(_) | SearchRegion::Square(..) => Vec::new(),
        }
    }

    /// Lower and upper bound of the distance to any point in it.
    pub fn distances(&self, from: &Origin) -> (f64, f64) {
        match self {
            SearchRegion::Cell(id) => {
                let cell = Cell::from(id);
                let ring = Ring { centre: from.point, inner: 0.0, outer: PI };
                (ring.nearest(&cell) - SLACK, ring.farthest(&cell) + SLACK)
            }
            SearchRegion::Square(grid, square) => {
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

/// The angle to the nearest point of a rectangle in longitudes and latitudes.
fn angle_to_box(from: &Origin, low: Pair, high: Pair) -> f64 {
    let (west, east) = (low.x.clamp(-180.0, 180.0), high.x.clamp(-180.0, 180.0));
    let (south, north) = (low.y.clamp(-90.0, 90.0), high.y.clamp(-90.0, 90.0));
    let Pair { x, y } = from.pair;
    if west <= x && x <= east {
        // Directly to the north or south.
        return (y - y.clamp(south, north)).abs().to_radians();
    }
    let to_side = |x: f64| {
        let end = |y: f64| Pair { x, y }.to_point();
        to_arc(&from.point, &end(south), &end(north))
    };
    to_side(west).min(to_side(east))
}
