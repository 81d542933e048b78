//! Geometry on the sphere and in the plane, for geospatial queries and indexes.
//!
//! The earth is a sphere: edges are the shortest arcs between their ends, distances are angles, and
//! the inside of a ring is its smaller side (unless a strict winding specifies it). Cells of the
//! sphere come from the `s2` crate. Orientation is computed exactly ([`predicate`]), so that
//! relations between shapes are symmetric. The plane is for legacy pairs of numbers.
//!
//! The crate parses geometry from single values and computes ranges of cells. It does no IO and
//! does not know collections, index definitions or query operators: `storage` converts cells to
//! keys, `mql` parses operators, `query` plans ranges. An invalid geometry is an error, never a
//! panic. Cells are stored in indexes: another version of `s2` needs a new version of the index.
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
pub use parse::{crs_of, flat_point, legacy_pair, query_geometry};
pub use plane::{FlatShape, flat_distance};
pub use point::{Pair, Point, angle};
pub use search::{Origin, RegionRange, SearchRegion};
pub use shape::{GeoJsonType, Shape};

/// The earth's radius in metres, which converts angles to distances.
pub const EARTH_RADIUS_M: f64 = 6_378_100.0;
