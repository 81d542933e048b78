//! The search areas of `$geoWithin` and `$geoIntersects`.

use std::f64::consts::PI;

use crate::cells::{CellRange, Covered, Ring, covering, ranges};
use crate::distance::to_shape;
use crate::geometry::Geometry;
use crate::grid::{Grid, GridRange};
use crate::plane::FlatShape;
use crate::point::{Pair, Point, antipode};
use crate::relation;
use crate::shape::Shape;

/// Most cells in the covering of a query.
const MAX_QUERY_CELLS: usize = 32;

/// A circle on the sphere.
#[derive(Clone, Copy, Debug)]
pub struct Cap {
    /// The centre, as longitude and latitude in degrees.
    pub centre: Pair,
    /// Its radius as an angle in radians; not negative.
    pub radius: f64,
}

impl Cap {
    fn contains_point(&self, point: &Point) -> bool {
        if self.radius >= PI {
            return true;
        }
        let centre = self.centre.to_point();
        let half = (self.radius / 2.0).sin();
        (centre.0 - point.0).norm2() <= 4.0 * half * half
    }

    fn contains(&self, shape: &Shape) -> bool {
        if !shape.vertices().all(|vertex| self.contains_point(vertex)) {
            return false;
        }
        if self.radius >= PI || shape.lines().is_empty() && shape.polygons().is_empty() {
            return true;
        }
        // The shape must not meet the complement, which is a circle around the antipode.
        let other_side = antipode(&self.centre.to_point());
        to_shape(&other_side, shape) >= PI - self.radius
    }

    /// Its bounding box in longitudes and latitudes.
    pub fn flat_bounds(&self) -> (Pair, Pair) {
        let reach = self.radius.to_degrees() + 1e-9;
        let (low, high) = (self.centre.y - reach, self.centre.y + reach);
        let everywhere =
            (Pair { x: f64::NEG_INFINITY, y: low }, Pair { x: f64::INFINITY, y: high });
        if low <= -90.0 || high >= 90.0 {
            return everywhere;
        }
        let ratio = self.radius.sin() / self.centre.y.to_radians().cos();
        if !(0.0..1.0).contains(&ratio) {
            return everywhere;
        }
        let across = ratio.asin().to_degrees() + 1e-9;
        let (west, east) = (self.centre.x - across, self.centre.x + across);
        match west < -180.0 || east > 180.0 {
            true => everywhere,
            false => (Pair { x: west, y: low }, Pair { x: east, y: high }),
        }
    }
}

/// The search area of a query.
#[derive(Clone, Debug)]
pub enum Area {
    /// GeoJSON on the sphere.
    Shape(Shape),
    /// A circle on the sphere.
    Cap(Cap),
    /// A shape in the plane.
    Flat(FlatShape),
}

impl Area {
    /// Whether a geometry is completely within the area.
    pub fn contains(&self, geometry: &Geometry) -> bool {
        match self {
            Area::Shape(outer) => {
                geometry.shape().is_some_and(|inner| relation::contains(outer, inner))
            }
            Area::Cap(cap) => geometry.shape().is_some_and(|inner| cap.contains(inner)),
            Area::Flat(flat) => geometry.pair().is_some_and(|pair| flat.contains(pair)),
        }
    }

    /// Whether a geometry intersects the area.
    pub fn meets(&self, geometry: &Geometry) -> bool {
        match self {
            Area::Shape(own) => geometry.shape().is_some_and(|other| relation::meet(own, other)),
            Area::Cap(_) | Area::Flat(_) => self.contains(geometry),
        }
    }

    /// Ranges of a cell index with all geometries that may intersect the area; `None` for shapes in
    /// the plane.
    pub fn cell_ranges(&self) -> Option<Vec<CellRange>> {
        let cells = match self {
            Area::Shape(shape) => covering(&Covered::new(shape), MAX_QUERY_CELLS),
            Area::Cap(cap) => {
                let centre = cap.centre.to_point();
                let outer = cap.radius.min(PI) * (1.0 + 1e-12);
                covering(&Ring { centre, inner: 0.0, outer }, MAX_QUERY_CELLS)
            }
            Area::Flat(_) => return None,
        };
        Some(ranges(&cells))
    }

    /// Ranges of a `2d` index with all points in the area; `None` for GeoJSON.
    pub fn grid_ranges(&self, grid: &Grid) -> Option<Vec<GridRange>> {
        match self {
            Area::Shape(_) => None,
            Area::Cap(cap) => {
                let (low, high) = cap.flat_bounds();
                Some(grid.covering(&FlatShape::Box { low, high }))
            }
            Area::Flat(flat) => Some(grid.covering(flat)),
        }
    }
}
