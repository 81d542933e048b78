//! What a field of a document holds: GeoJSON, or a legacy pair, which is a point in the plane and on the sphere.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::shell::ShellValue;
use mayfly_value::{RawElement, RawValue};

use crate::distance;
use crate::parse;
use crate::plane::flat_distance;
use crate::point::{Pair, Point};
use crate::shape::Shape;

/// What coordinates mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crs {
    /// Numbers in a plane.
    Flat,
    /// Longitude and latitude; inside of a ring is its smaller side.
    Sphere,
    /// Longitude and latitude; inside of a ring is what lies to its left.
    StrictSphere,
}

/// What a field holds.
#[derive(Clone, Debug)]
pub struct Geometry {
    crs: Crs,
    /// On the sphere; nothing for a pair outside of it.
    shape: Option<Shape>,
    /// In the plane; only points are in both.
    pair: Option<Pair>,
}

/// Whether the error says something of the value, and not of the operation that reads it.
pub fn is_bad(error: &Error) -> bool {
    error.code() == ErrorCode::BadValue
}

impl Geometry {
    /// Reads the value of a field.
    ///
    /// # Errors
    /// 2 BadValue for what is no geometry.
    pub fn parse(element: RawElement<'_>) -> Result<Geometry> {
        Geometry::parse_named(element.name(), element.value())
    }

    /// Reads a value that stands under this name.
    ///
    /// # Errors
    /// 2 BadValue for what is no geometry.
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

    /// Reads a value, for those who do not want to know why it is none.
    ///
    /// # Errors
    /// Those of an operation that must end: whether it is one is not known then.
    pub fn of_value(value: RawValue<'_>) -> Result<Option<Geometry>> {
        match value {
            RawValue::Array(_) | RawValue::Document(_) => match Geometry::parse_named("", value) {
                Err(error) if is_bad(&error) => Ok(None),
                parsed => parsed.map(Some),
            },
            _ => Ok(None),
        }
    }

    /// A legacy pair.
    pub fn of_pair(pair: Pair) -> Geometry {
        let shape = pair.is_on_earth().then(|| Shape::of_pair(pair));
        Geometry { crs: Crs::Flat, shape, pair: Some(pair) }
    }

    /// What its coordinates mean.
    pub fn crs(&self) -> Crs {
        self.crs
    }

    /// On the sphere; nothing for a pair outside of it, and for a ring that is to be taken strictly.
    pub fn shape(&self) -> Option<&Shape> {
        self.shape.as_ref().filter(|_| self.crs != Crs::StrictSphere)
    }

    /// In the plane, which only points are in.
    pub fn pair(&self) -> Option<Pair> {
        self.pair
    }

    /// The angle to a point.
    pub fn angle_to(&self, point: &Point) -> Option<f64> {
        self.shape().map(|shape| distance::to_shape(point, shape))
    }

    /// The distance to a point in the plane.
    pub fn flat_distance_to(&self, pair: Pair) -> Option<f64> {
        self.pair.map(|own| flat_distance(own, pair))
    }
}
