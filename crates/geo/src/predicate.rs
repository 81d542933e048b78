//! Exact predicates on the sphere: the side of an arc that a point is on, whether two arcs cross,
//! and the order of wedges at a common corner.
//!
//! The sign of a determinant of three points is exact (adaptive precision). Three points on one
//! great circle are treated as if each had been moved by an infinitesimal amount that depends only
//! on its coordinates (Edelsbrunner and Mücke, "Simulation of Simplicity"), in the order that S2
//! uses. Therefore no three different points are collinear, and all results are consistent.

use std::cmp::Ordering;

use robust::{Coord, Coord3D, orient2d, orient3d};

use crate::point::{Point, vector};

/// Below this a determinant of unit vectors may have the wrong sign.
const CERTAIN: f64 = 8e-16;

/// 1 when a, b, c are in counter-clockwise order, -1 when clockwise; 0 only when two of them are
/// the same.
pub(crate) fn sign(a: &Point, b: &Point, c: &Point) -> i32 {
    let determinant = a.0.cross(&b.0).dot(&c.0);
    if determinant > CERTAIN {
        return 1;
    }
    if determinant < -CERTAIN {
        return -1;
    }
    if a == b || b == c || c == a {
        return 0;
    }
    exact_sign(a, b, c)
}

fn exact_sign(a: &Point, b: &Point, c: &Point) -> i32 {
    let coord = |p: &Point| Coord3D { x: p.0.x, y: p.0.y, z: p.0.z };
    let origin = Coord3D { x: 0.0, y: 0.0, z: 0.0 };
    let determinant = of(orient3d(coord(a), coord(b), coord(c), origin));
    if determinant != 0 {
        return determinant;
    }
    let (mut a, mut b, mut c, mut permutation) = (a, b, c, 1);
    if compare(a, b).is_gt() {
        std::mem::swap(&mut a, &mut b);
        permutation = -permutation;
    }
    if compare(b, c).is_gt() {
        std::mem::swap(&mut b, &mut c);
        permutation = -permutation;
    }
    if compare(a, b).is_gt() {
        std::mem::swap(&mut a, &mut b);
        permutation = -permutation;
    }
    permutation * perturbed_sign(a, b, c)
}

/// The sign for three different points in ascending order whose determinant is zero.
fn perturbed_sign(a: &Point, b: &Point, c: &Point) -> i32 {
    let (a, b, c) = (&a.0, &b.0, &c.0);
    let terms = [
        minor(b.x, c.y, b.y, c.x),
        minor(b.z, c.x, b.x, c.z),
        minor(b.y, c.z, b.z, c.y),
        minor(c.x, a.y, c.y, a.x),
        of(c.x),
        -of(c.y),
        minor(c.z, a.x, c.x, a.z),
        of(c.z),
        minor(a.x, b.y, a.y, b.x),
        -of(b.x),
        of(b.y),
        of(a.x),
    ];
    terms.into_iter().find(|term| *term != 0).unwrap_or(1)
}

/// The sign of `p * q - r * s`, exactly.
fn minor(p: f64, q: f64, r: f64, s: f64) -> i32 {
    let origin = Coord { x: 0.0, y: 0.0 };
    of(orient2d(Coord { x: p, y: r }, Coord { x: s, y: q }, origin))
}

fn of(value: f64) -> i32 {
    i32::from(value > 0.0) - i32::from(value < 0.0)
}

fn compare(a: &Point, b: &Point) -> Ordering {
    let order = |x: f64, y: f64| x.partial_cmp(&y).unwrap_or(Ordering::Equal);
    order(a.0.x, b.0.x).then(order(a.0.y, b.0.y)).then(order(a.0.z, b.0.z))
}

/// Whether a counter-clockwise turn around `o` that begins at a meets a, b, c in this order.
pub(crate) fn ordered(a: &Point, b: &Point, c: &Point, o: &Point) -> bool {
    let votes = i32::from(sign(b, o, a) >= 0)
        + i32::from(sign(c, o, b) >= 0)
        + i32::from(sign(a, o, c) > 0);
    votes >= 2
}

/// How two arcs intersect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crossing {
    /// At an interior point of both.
    Inside,
    /// They share an end point.
    SharedEnd,
    /// They do not intersect.
    None,
}

/// How the arcs ab and cd intersect.
pub(crate) fn crossing(a: &Point, b: &Point, c: &Point, d: &Point) -> Crossing {
    if a == c || a == d || b == c || b == d {
        return Crossing::SharedEnd;
    }
    if a == b || c == d {
        return Crossing::None;
    }
    let (c_side, d_side) = (sign(a, b, c), sign(a, b, d));
    if c_side == d_side {
        return Crossing::None;
    }
    // All four triangles around the crossing have the same orientation.
    let side = -c_side;
    if -sign(c, d, b) == side && sign(c, d, a) == side { Crossing::Inside } else { Crossing::None }
}

/// Whether moving along ab changes sides at cd: a crossing does, and touches at a corner do so
/// consistently, so that a ring around a point is crossed once.
pub(crate) fn changes_side(a: &Point, b: &Point, c: &Point, d: &Point) -> bool {
    match crossing(a, b, c, d) {
        Crossing::Inside => true,
        Crossing::None => false,
        Crossing::SharedEnd => corner_changes_side(a, b, c, d),
    }
}

fn corner_changes_side(a: &Point, b: &Point, c: &Point, d: &Point) -> bool {
    if a == b || c == d {
        return false;
    }
    if a == d {
        return ordered(&fixed_direction(a), c, b, a);
    }
    if b == c {
        return ordered(&fixed_direction(b), d, a, b);
    }
    if a == c {
        return ordered(&fixed_direction(a), d, b, a);
    }
    if b == d {
        return ordered(&fixed_direction(b), c, a, b);
    }
    false
}

/// A fixed direction at a point.
pub(crate) fn fixed_direction(point: &Point) -> Point {
    let v = &point.0;
    let (x, y, z) = (v.x.abs(), v.y.abs(), v.z.abs());
    // Based on the axis before the one that the point is nearest to.
    let other = if x > y && x > z {
        vector(0.0053, 0.00457, 1.0)
    } else if y > z {
        vector(1.0, 0.00457, 0.0053)
    } else {
        vector(0.012, 1.0, 0.00457)
    };
    Point(v.cross(&other).normalize())
}

/// The wedge between two arcs that meet at a corner; the inside is to the left of `before`,
/// `corner`, `after`.
#[derive(Clone, Copy)]
pub(crate) struct Wedge<'a> {
    pub(crate) before: &'a Point,
    pub(crate) after: &'a Point,
}

impl Wedge<'_> {
    /// Whether it contains the other wedge at the same corner.
    pub(crate) fn contains(&self, other: &Wedge<'_>, corner: &Point) -> bool {
        ordered(self.after, other.after, other.before, corner)
            && ordered(other.before, self.before, self.after, corner)
    }

    /// Whether the interiors of both wedges intersect.
    pub(crate) fn intersects(&self, other: &Wedge<'_>, corner: &Point) -> bool {
        !(ordered(self.before, other.after, other.before, corner)
            && ordered(other.before, self.after, self.before, corner))
    }
}
