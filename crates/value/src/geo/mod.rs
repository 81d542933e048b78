//! Geometry on the earth and in the plane, as geospatial queries and indexes know it.
//!
//! The earth is a sphere: edges are the shortest arcs between their ends, distances are angles, and what lies inside of a ring is
//! its smaller side (unless a strict winding says which). Cells of the sphere come from the `s2` crate; orientation is
//! decided exactly ([`predicate`]), so that what touches is answered the same way from every side. The plane is for legacy
//! pairs of numbers. Nothing here reads documents of a collection or knows an index; a value that is no geometry is an
//! error, never a panic.
//!
//! Manual: "GeoJSON Objects", "Geospatial Queries".

mod area;
mod cells;
mod distance;
mod geometry;
mod grid;
mod parse;
mod plane;
mod point;
mod polygon;
mod predicate;
mod relation;
mod search;
mod shape;
#[cfg(test)]
mod tests;
mod validity;

pub use area::{Area, Cap};
pub use cells::{CellRange, index_cells};
pub use geometry::{Crs, Geometry, is_bad};
pub use grid::{Grid, GridRange};
pub use parse::{crs_of, legacy_pair, query_geometry};
pub use plane::{FlatShape, flat_distance};
pub use point::{Pair, Point, angle};
pub use search::{Origin, Part, PartRange};
pub use shape::{Kind, Shape};

/// The earth's radius in metres that turns angles into distances.
pub const EARTH_RADIUS_M: f64 = 6_378_100.0;
