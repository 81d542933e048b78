//! Conditions on places: within an area, in touch with a shape, by their distance from a point.

use mayfly_base::Result;
use mayfly_geo::{Area, EARTH_RADIUS_M, Geometry, Pair};
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use super::{Expr, Predicate};

/// A condition on a geometry.
#[derive(Clone, Debug)]
pub enum GeoTest {
    /// All of it lies in the area.
    Within(Area),
    /// It has something in common with the area.
    Intersects(Area),
    /// It is sought by its distance. Only an index gives that order, so the test itself holds for everything.
    Near(Near),
}

impl GeoTest {
    /// Whether it holds for a value.
    ///
    /// # Errors
    /// Those of an operation that must end.
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

    /// The area, when there is one.
    pub fn area(&self) -> Option<&Area> {
        match self {
            GeoTest::Within(area) | GeoTest::Intersects(area) => Some(area),
            GeoTest::Near(_) => None,
        }
    }

    /// As explanations and errors name it.
    pub fn name(&self) -> &'static str {
        match self {
            GeoTest::Within(_) => "$geoWithin",
            GeoTest::Intersects(_) => "$geoIntersects",
            GeoTest::Near(_) => "$near",
        }
    }
}

/// In which unit distances are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Metres on the earth: the point was given as GeoJSON.
    Metres,
    /// Angles on the earth.
    Radians,
    /// Whatever the plane has.
    Flat,
}

/// What is asked by distance.
#[derive(Clone, Copy, Debug)]
pub struct Near {
    /// Where distances are measured from.
    pub from: Pair,
    /// How they are told.
    pub unit: Unit,
    /// The nearest that counts.
    pub min: f64,
    /// The farthest that counts.
    pub max: f64,
}

impl Near {
    /// The question as an operator of a filter.
    pub fn written(&self) -> DocBuf {
        let Near { from, unit, min, max } = *self;
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
            Unit::Metres => {
                out.start_document("$nearSphere").start_document("$geometry");
                out.append("type", "Point").start_array("coordinates").push(from.x).push(from.y);
                out.end().end();
                limits(&mut out);
                out.end();
            }
            Unit::Radians | Unit::Flat => {
                let name = if unit == Unit::Flat { "$near" } else { "$nearSphere" };
                out.start_array(name).push(from.x).push(from.y);
                out.end();
                limits(&mut out);
            }
        }
        out.finish()
    }

    /// Whether distances are measured on the earth.
    pub fn is_spherical(&self) -> bool {
        self.unit != Unit::Flat
    }

    /// The distance that an angle is told as.
    pub fn distance_of_angle(&self, angle: f64) -> f64 {
        match self.unit {
            Unit::Metres => angle * EARTH_RADIUS_M,
            Unit::Radians | Unit::Flat => angle,
        }
    }

    /// The angle (or the distance in the plane) that a distance stands for.
    pub fn angle_of_distance(&self, distance: f64) -> f64 {
        match self.unit {
            Unit::Metres => distance / EARTH_RADIUS_M,
            Unit::Radians | Unit::Flat => distance,
        }
    }

    /// The distance of a geometry in the unit of the question; nothing when it has none.
    pub fn distance_to(&self, geometry: &Geometry) -> Option<f64> {
        match self.is_spherical() {
            true => geometry.angle_to(&self.from.to_point()).map(|a| self.distance_of_angle(a)),
            false => geometry.flat_distance_to(self.from),
        }
    }
}

/// How often the outermost conjunction asks for an order by distance.
pub(super) fn count_near(expr: &Expr) -> usize {
    match expr {
        Expr::And(parts) => parts.iter().map(count_near).sum(),
        Expr::Path { predicate: Predicate::Geo(test, _), .. } => {
            usize::from(matches!(**test, GeoTest::Near(_)))
        }
        Expr::Path { .. } | Expr::Or(_) | Expr::Nor(_) | Expr::Document(_) | Expr::Always(_) => 0,
    }
}
