//! Points: pairs of numbers, and unit vectors on the sphere.

use std::f64::consts::PI;

/// A point on the sphere: a unit vector.
pub use s2::point::Point;

/// A pair of coordinates: longitude and latitude in degrees, or coordinates in a plane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The longitude in degrees, or the first coordinate in a plane.
    pub x: f64,
    /// The latitude in degrees, or the second coordinate in a plane.
    pub y: f64,
}

impl Pair {
    /// Whether longitude and latitude are in range.
    pub fn is_on_earth(self) -> bool {
        self.x.abs() <= 180.0 && self.y.abs() <= 90.0
    }

    /// The point on the sphere.
    pub fn to_point(self) -> Point {
        let (theta, phi) = (self.x * (PI / 180.0), self.y * (PI / 180.0));
        let flat = phi.cos();
        Point(vector(theta.cos() * flat, theta.sin() * flat, phi.sin()))
    }
}

pub(crate) fn vector(x: f64, y: f64, z: f64) -> s2::r3::vector::Vector {
    s2::r3::vector::Vector { x, y, z }
}

/// The angle between two points, in radians.
pub fn angle(a: &Point, b: &Point) -> f64 {
    let cross = a.0.cross(&b.0);
    let length = (cross.x * cross.x + cross.y * cross.y + cross.z * cross.z).sqrt();
    length.atan2(a.0.dot(&b.0))
}

/// The antipode of a point.
pub(crate) fn antipode(point: &Point) -> Point {
    Point(vector(-point.0.x, -point.0.y, -point.0.z))
}

/// The point's coordinates as bits, for use as a key.
pub(crate) fn bits(point: &Point) -> [u64; 3] {
    // Normalizes negative zero.
    [point.0.x, point.0.y, point.0.z].map(|value| (value + 0.0).to_bits())
}
