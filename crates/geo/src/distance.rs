//! Angles between points, arcs and shapes.

use std::f64::consts::PI;

use crate::point::{Point, angle, vector};
use crate::shape::Shape;

/// The angle between a point and the nearest point of an arc.
pub(crate) fn to_arc(x: &Point, a: &Point, b: &Point) -> f64 {
    let ends = angle(x, a).min(angle(x, b));
    let normal = a.0.cross(&b.0);
    let length = normal.norm();
    if length < 1e-15 {
        return ends;
    }
    // The nearest point is inside the arc when x is between the planes through the normal and each
    // end.
    let from_a = normal.cross(&a.0).dot(&x.0);
    let from_b = b.0.cross(&normal).dot(&x.0);
    if from_a <= 0.0 || from_b <= 0.0 {
        return ends;
    }
    let height = (x.0.dot(&normal) / length).abs().min(1.0);
    height.asin().min(ends)
}

/// The angle between a point and the nearest point of a shape; 0 inside a polygon.
pub(crate) fn to_shape(x: &Point, shape: &Shape) -> f64 {
    let mut nearest = PI;
    for point in shape.points() {
        nearest = nearest.min(angle(x, point));
    }
    for line in shape.lines() {
        for pair in line.windows(2) {
            nearest = nearest.min(to_arc(x, &pair[0], &pair[1]));
        }
    }
    for polygon in shape.polygons() {
        if polygon.contains(x) {
            return 0.0;
        }
        for (a, b) in polygon.edges() {
            nearest = nearest.min(to_arc(x, a, b));
        }
    }
    nearest
}

/// The angle between a point and the nearest point of a cell with these corners, for a point
/// outside.
pub(crate) fn to_corners(x: &Point, corners: &[Point; 4]) -> f64 {
    (0..4).map(|k| to_arc(x, &corners[k], &corners[(k + 1) % 4])).fold(PI, f64::min)
}

/// An axis-aligned bounding box in space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    low: [f64; 3],
    high: [f64; 3],
}

impl Bounds {
    /// The bounding box of an arc, which extends beyond the chord between its ends.
    pub(crate) fn of_arc(a: &Point, b: &Point) -> Bounds {
        let middle = vector((a.0.x + b.0.x) / 2.0, (a.0.y + b.0.y) / 2.0, (a.0.z + b.0.z) / 2.0);
        let bulge = (1.0 - middle.norm()).max(0.0) + 1e-15;
        let (a, b) = ([a.0.x, a.0.y, a.0.z], [b.0.x, b.0.y, b.0.z]);
        let mut bounds = Bounds { low: [0.0; 3], high: [0.0; 3] };
        for axis in 0..3 {
            bounds.low[axis] = a[axis].min(b[axis]) - bulge;
            bounds.high[axis] = a[axis].max(b[axis]) + bulge;
        }
        bounds
    }

    /// The bounding box of all points within this straight-line distance of a point.
    pub(crate) fn of_ball(centre: &Point, radius: f64) -> Bounds {
        let centre = [centre.0.x, centre.0.y, centre.0.z];
        let (low, high) = (centre.map(|value| value - radius), centre.map(|value| value + radius));
        Bounds { low, high }
    }

    /// The bounding box of both.
    pub(crate) fn joined(mut self, other: &Bounds) -> Bounds {
        for axis in 0..3 {
            self.low[axis] = self.low[axis].min(other.low[axis]);
            self.high[axis] = self.high[axis].max(other.high[axis]);
        }
        self
    }

    pub(crate) fn meets(&self, other: &Bounds) -> bool {
        (0..3).all(|axis| self.low[axis] <= other.high[axis] && other.low[axis] <= self.high[axis])
    }

    /// Its lower bound on the axis that arcs are sorted by.
    pub(crate) fn first(&self) -> f64 {
        self.low[0]
    }

    /// Its upper bound on that axis.
    pub(crate) fn last(&self) -> f64 {
        self.high[0]
    }
}
