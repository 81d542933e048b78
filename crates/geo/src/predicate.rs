//! Exact answers to the questions that geometry on the sphere is made of: on which side of an arc a point lies, whether two
//! arcs cross, and how wedges at a common corner lie.
//!
//! The sign of a determinant of three points is exact (adaptive precision). Three points on one great circle are told apart as if each
//! had been moved by an infinitely small amount that only depends on its coordinates (Edelsbrunner and Mücke,
//! "Simulation of Simplicity"), in the order that S2 uses: so no three different points are collinear, and every answer
//! agrees with every other.

use std::cmp::Ordering;

use robust::{Coord, Coord3D, orient2d, orient3d};

use crate::point::{Point, vector};

/// Below this a determinant of unit vectors may have the wrong sign.
const CERTAIN: f64 = 8e-16;

/// 1 when a, b, c are in counter-clockwise order, -1 when clockwise; 0 only when two of them are the same.
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

/// Whether a, b, c are met in this order on a turn around `o` to the left that begins at a.
pub(crate) fn ordered(a: &Point, b: &Point, c: &Point, o: &Point) -> bool {
    let votes = i32::from(sign(b, o, a) >= 0)
        + i32::from(sign(c, o, b) >= 0)
        + i32::from(sign(a, o, c) > 0);
    votes >= 2
}

/// How two arcs meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crossing {
    /// At a point inside of both.
    Inside,
    /// They have an end in common.
    SharedEnd,
    /// Not at all.
    None,
}

/// How the arcs ab and cd meet.
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
    // All four triangles around the crossing turn the same way.
    let wanted = -c_side;
    if -sign(c, d, b) == wanted && sign(c, d, a) == wanted {
        Crossing::Inside
    } else {
        Crossing::None
    }
}

/// Whether passing along ab changes sides at cd: a crossing counts, and of the touches at a corner just so many that a ring
/// around a point is crossed once.
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
        return ordered(&aside(a), c, b, a);
    }
    if b == c {
        return ordered(&aside(b), d, a, b);
    }
    if a == c {
        return ordered(&aside(a), d, b, a);
    }
    if b == d {
        return ordered(&aside(b), c, a, b);
    }
    false
}

/// Some fixed direction at a point.
pub(crate) fn aside(point: &Point) -> Point {
    let v = &point.0;
    let (x, y, z) = (v.x.abs(), v.y.abs(), v.z.abs());
    // Away from the axis before the one that the point is nearest to.
    let other = if x > y && x > z {
        vector(0.0053, 0.00457, 1.0)
    } else if y > z {
        vector(1.0, 0.00457, 0.0053)
    } else {
        vector(0.012, 1.0, 0.00457)
    };
    Point(v.cross(&other).normalize())
}

/// Two arcs that meet at a corner, with the inside to the left of the way `before`, `corner`, `after`.
#[derive(Clone, Copy)]
pub(crate) struct Wedge<'a> {
    pub(crate) before: &'a Point,
    pub(crate) after: &'a Point,
}

impl Wedge<'_> {
    /// Whether the other wedge at the same corner lies within this one.
    pub(crate) fn contains(&self, other: &Wedge<'_>, corner: &Point) -> bool {
        ordered(self.after, other.after, other.before, corner)
            && ordered(other.before, self.before, self.after, corner)
    }

    /// Whether both wedges have room in common.
    pub(crate) fn intersects(&self, other: &Wedge<'_>, corner: &Point) -> bool {
        !(ordered(self.before, other.after, other.before, corner)
            && ordered(other.before, self.after, self.before, corner))
    }
}
