//! Geometry on the earth and in the plane, for geospatial queries and indexes.
//!
//! The earth is a sphere: edges are the shortest arcs between their ends, distances are angles, and the inside of a ring is
//! its smaller side (unless a strict winding says which). Cells of the sphere come from the `s2` crate. Orientation is
//! decided exactly ([`predicate`]), so that two shapes touch or do not touch from whichever side the question is asked. The plane is
//! for legacy pairs of numbers.
//!
//! The crate reads geometry from single values and gives ranges of cells. It does no IO and knows neither collections nor index
//! definitions nor operators of queries: `storage` turns cells into keys, `mql` reads operators, `query` plans ranges. A value that
//! is no geometry is an error, never a panic. Cells are stored in indexes: another version of `s2` needs a new version of the index.
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
