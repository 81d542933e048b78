//! The geometry in a field of a document: GeoJSON, or a legacy pair, which is a point in the plane
//! and on the sphere.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::shell::ShellValue;
use mayfly_value::{RawElement, RawValue};

use crate::distance;
use crate::parse;
use crate::plane::flat_distance;
use crate::point::{Pair, Point};
use crate::shape::Shape;

/// The coordinate reference system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crs {
    /// Coordinates in a plane.
    Flat,
    /// Longitude and latitude; the inside of a ring is its smaller side.
    Sphere,
    /// Longitude and latitude; the inside of a ring is to its left.
    StrictSphere,
}

/// A parsed geometry.
#[derive(Clone, Debug)]
pub struct Geometry {
    crs: Crs,
    /// Its shape on the sphere; `None` for a pair with out-of-range coordinates.
    shape: Option<Shape>,
    /// Its coordinates in the plane; only points have them.
    pair: Option<Pair>,
}

/// Whether the error is a fault of the value, not the end of the operation that reads it.
pub fn is_bad(error: &Error) -> bool {
    error.code() == ErrorCode::BadValue
}

impl Geometry {
    /// Parses the value of a field.
    ///
    /// # Errors
    /// 2 BadValue for an invalid geometry.
    pub fn parse(element: RawElement<'_>) -> Result<Geometry> {
        Geometry::parse_named(element.name(), element.value())
    }

    /// Parses a value of a field with this name.
    ///
    /// # Errors
    /// 2 BadValue for an invalid geometry.
    pub fn parse_named(name: &str, value: RawValue<'_>) -> Result<Geometry> {
        match value {
            RawValue::Array(_) => parse::legacy_pair(value).map(Geometry::of_pair),
            RawValue::Document(doc) => {
                let starts_with_number =
                    || doc.iter().next().is_some_and(|e| e.value().is_number());
                match parse::geo_json(doc) {
                    Ok((shape, crs)) => {
                        Ok(Geometry { crs, pair: shape.pair(), shape: Some(shape) })
                    }
                    Err(error) if is_bad(&error) && starts_with_number() => {
                        parse::legacy_pair(value).map(Geometry::of_pair)
                    }
                    Err(error) => Err(error),
                }
            }
            other => Err(Error::bad_value(format!(
                "geo element must be an array or object: {name}: {}",
                ShellValue(other)
            ))),
        }
    }

    /// Parses a value; `None` for an invalid geometry.
    ///
    /// # Errors
    /// Errors that end the operation, which leave the validity unknown.
    pub fn of_value(value: RawValue<'_>) -> Result<Option<Geometry>> {
        match value {
            RawValue::Array(_) | RawValue::Document(_) => match Geometry::parse_named("", value) {
                Err(error) if is_bad(&error) => Ok(None),
                parsed => parsed.map(Some),
            },
            _ => Ok(None),
        }
    }

    /// The geometry of a legacy pair.
    pub fn of_pair(pair: Pair) -> Geometry {
        let shape = pair.is_on_earth().then(|| Shape::of_pair(pair));
        Geometry { crs: Crs::Flat, shape, pair: Some(pair) }
    }

    /// Its coordinate reference system.
    pub fn crs(&self) -> Crs {
        self.crs
    }

    /// Its shape on the sphere; `None` for a pair with out-of-range coordinates, and for a polygon
    /// with a strict winding.
    pub fn shape(&self) -> Option<&Shape> {
        self.shape.as_ref().filter(|_| self.crs != Crs::StrictSphere)
    }

    /// Its coordinates in the plane; `None` unless it is a point.
    pub fn pair(&self) -> Option<Pair> {
        self.pair
    }

    /// The angle to a point, in radians.
    pub fn angle_to(&self, point: &Point) -> Option<f64> {
        self.shape().map(|shape| distance::to_shape(point, shape))
    }

    /// The distance to a point in the plane.
    pub fn flat_distance_to(&self, pair: Pair) -> Option<f64> {
        self.pair.map(|own| flat_distance(own, pair))
    }
}
