//! Geospatial predicates: within an area, intersecting a shape, by distance from a point.

use mayfly_base::Result;
use mayfly_geo::{Area, EARTH_RADIUS_M, Geometry, Pair};
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use super::{Expr, Predicate};

/// A predicate on a geometry.
#[derive(Clone, Debug)]
pub enum GeoTest {
    /// It is completely within the area.
    Within(Area),
    /// It intersects the area.
    Intersects(Area),
    /// It is searched by distance. Only an index provides that order, so the predicate itself is
    /// always true.
    Near(NearSearch),
}

impl GeoTest {
    /// Whether a value satisfies the predicate.
    ///
    /// # Errors
    /// Errors that end the operation.
    pub fn holds(&self, value: RawValue<'_>) -> Result<bool> {
        if !matches!(value, RawValue::Document(_) | RawValue::Array(_)) {
            return Ok(false);
        }
        let geometry = || Geometry::of_value(value);
        Ok(match self {
            GeoTest::Within(area) => geometry()?.is_some_and(|found| area.contains(&found)),
            GeoTest::Intersects(area) => geometry()?.is_some_and(|found| area.meets(&found)),
            GeoTest::Near(_) => true,
        })
    }

    /// The area; `None` for a search by distance.
    pub fn area(&self) -> Option<&Area> {
        match self {
            GeoTest::Within(area) | GeoTest::Intersects(area) => Some(area),
            GeoTest::Near(_) => None,
        }
    }

    /// The operator, for explain output and errors.
    pub fn name(&self) -> &'static str {
        match self {
            GeoTest::Within(_) => "$geoWithin",
            GeoTest::Intersects(_) => "$geoIntersects",
            GeoTest::Near(_) => "$near",
        }
    }
}

/// The unit of distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DistanceUnit {
    /// Metres on the sphere: the point is GeoJSON.
    Metres,
    /// Radians on the sphere.
    Radians,
    /// Units of the plane.
    Flat,
}

/// A search by distance.
#[derive(Clone, Copy, Debug)]
pub struct NearSearch {
    /// The point that distances are measured from.
    pub from: Pair,
    /// The unit of distances.
    pub unit: DistanceUnit,
    /// The minimum distance, inclusive.
    pub min: f64,
    /// The maximum distance, inclusive.
    pub max: f64,
}

impl NearSearch {
    /// The search as an operator of a filter.
    pub fn written(&self) -> DocBuf {
        let NearSearch { from, unit, min, max } = *self;
        let limits = |out: &mut DocBuilder| {
            if min > 0.0 {
                out.append("$minDistance", min);
            }
            if max.is_finite() {
                out.append("$maxDistance", max);
            }
        };
        let mut out = DocBuilder::new();
        match unit {
            DistanceUnit::Metres => {
                out.start_document("$nearSphere").start_document("$geometry");
                out.append("type", "Point").start_array("coordinates").push(from.x).push(from.y);
                out.end().end();
                limits(&mut out);
                out.end();
            }
            DistanceUnit::Radians | DistanceUnit::Flat => {
                let name = if unit == DistanceUnit::Flat { "$near" } else { "$nearSphere" };
                out.start_array(name).push(from.x).push(from.y);
                out.end();
                limits(&mut out);
            }
        }
        out.finish()
    }

    /// Whether distances are measured on the sphere.
    pub fn is_spherical(&self) -> bool {
        self.unit != DistanceUnit::Flat
    }

    /// Converts an angle to a distance.
    pub fn distance_of_angle(&self, angle: f64) -> f64 {
        match self.unit {
            DistanceUnit::Metres => angle * EARTH_RADIUS_M,
            DistanceUnit::Radians | DistanceUnit::Flat => angle,
        }
    }

    /// Converts a distance to an angle (on the plane: to the same distance).
    pub fn angle_of_distance(&self, distance: f64) -> f64 {
        match self.unit {
            DistanceUnit::Metres => distance / EARTH_RADIUS_M,
            DistanceUnit::Radians | DistanceUnit::Flat => distance,
        }
    }

    /// The distance of a geometry in the unit of the search; `None` when it is undefined.
    pub fn distance_to(&self, geometry: &Geometry) -> Option<f64> {
        match self.is_spherical() {
            true => geometry.angle_to(&self.from.to_point()).map(|a| self.distance_of_angle(a)),
            false => geometry.flat_distance_to(self.from),
        }
    }
}

/// The number of searches by distance in the outermost conjunction.
pub(super) fn count_near(expr: &Expr) -> usize {
    match expr {
        Expr::And(parts) => parts.iter().map(count_near).sum(),
        Expr::Path { predicate: Predicate::Geo(test, _), .. } => {
            usize::from(matches!(**test, GeoTest::Near(_)))
        }
        Expr::Path { .. } | Expr::Or(_) | Expr::Nor(_) | Expr::Document(_) | Expr::Always(_) => 0,
    }
}
