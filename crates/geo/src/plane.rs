//! Shapes in the plane, which legacy pairs are tested against.

use robust::{Coord, orient2d};

use crate::point::Pair;

/// The distance of two points in the plane.
pub fn flat_distance(a: Pair, b: Pair) -> f64 {
    let (x, y) = (a.x - b.x, a.y - b.y);
    // Exact along an axis.
    if x == 0.0 {
        return y.abs();
    }
    if y == 0.0 {
        return x.abs();
    }
    (x * x + y * y).sqrt()
}

/// A shape in the plane, including its border.
#[derive(Clone, Debug)]
pub enum FlatShape {
    /// An axis-aligned rectangle.
    Box {
        /// The lower left corner.
        low: Pair,
        /// The upper right corner.
        high: Pair,
    },
    /// A circle.
    Disc {
        /// Its centre.
        centre: Pair,
        /// The radius; not negative, may be infinite.
        radius: f64,
    },
    /// A polygon with at least three corners.
    Polygon(Vec<Pair>),
}

impl FlatShape {
    /// The rectangle with these opposite corners.
    pub fn between(a: Pair, b: Pair) -> FlatShape {
        let low = Pair { x: a.x.min(b.x), y: a.y.min(b.y) };
        let high = Pair { x: a.x.max(b.x), y: a.y.max(b.y) };
        FlatShape::Box { low, high }
    }

    /// Whether a point is inside or on the border.
    pub fn contains(&self, point: Pair) -> bool {
        match self {
            FlatShape::Box { low, high } => {
                low.x <= point.x && point.x <= high.x && low.y <= point.y && point.y <= high.y
            }
            FlatShape::Disc { centre, radius } => {
                let (x, y) = (point.x - centre.x, point.y - centre.y);
                match (x == 0.0, y == 0.0) {
                    // The larger coordinate is compared with a sum, as in the reference: the end of
                    // a radius that is no binary fraction belongs to the disc.
                    (true, _) => within_sum(point.y, centre.y, *radius),
                    (_, true) => within_sum(point.x, centre.x, *radius),
                    _ => x * x + y * y <= radius * radius,
                }
            }
            FlatShape::Polygon(corners) => polygon_contains(corners, point),
        }
    }

    /// Its bounding box: the lower left and the upper right corner.
    pub fn bounds(&self) -> (Pair, Pair) {
        match self {
            FlatShape::Box { low, high } => (*low, *high),
            FlatShape::Disc { centre: Pair { x, y }, radius } => {
                // Extended by the rounding error.
                let reach = radius + (x.abs() + y.abs() + radius) * 1e-15;
                (Pair { x: x - reach, y: y - reach }, Pair { x: x + reach, y: y + reach })
            }
            FlatShape::Polygon(corners) => {
                let mut low = Pair { x: f64::INFINITY, y: f64::INFINITY };
                let mut high = Pair { x: f64::NEG_INFINITY, y: f64::NEG_INFINITY };
                for corner in corners {
                    low = Pair { x: low.x.min(corner.x), y: low.y.min(corner.y) };
                    high = Pair { x: high.x.max(corner.x), y: high.y.max(corner.y) };
                }
                (low, high)
            }
        }
    }

    /// Whether it intersects a rectangle. May return true for a near miss.
    pub fn may_meet(&self, low: Pair, high: Pair) -> bool {
        let (own_low, own_high) = self.bounds();
        let apart =
            own_high.x < low.x || high.x < own_low.x || own_high.y < low.y || high.y < own_low.y;
        if apart {
            return false;
        }
        match self {
            FlatShape::Box { .. } => true,
            FlatShape::Disc { centre, radius } => {
                let nearest =
                    Pair { x: centre.x.clamp(low.x, high.x), y: centre.y.clamp(low.y, high.y) };
                flat_distance(nearest, *centre) <= radius * (1.0 + 1e-12) + f64::MIN_POSITIVE
            }
            FlatShape::Polygon(corners) => {
                let inside =
                    |c: &Pair| low.x <= c.x && c.x <= high.x && low.y <= c.y && c.y <= high.y;
                corners.iter().any(inside)
                    || box_corners(low, high).into_iter().any(|c| polygon_contains(corners, c))
                    || edges(corners).any(|(a, b)| edge_meets_box(a, b, low, high))
            }
        }
    }
}

/// Whether two coordinates are at most this far apart.
fn within_sum(a: f64, b: f64, distance: f64) -> bool {
    a.max(b) <= a.min(b) + distance
}

fn box_corners(low: Pair, high: Pair) -> [Pair; 4] {
    [low, Pair { x: high.x, y: low.y }, high, Pair { x: low.x, y: high.y }]
}

fn edges(corners: &[Pair]) -> impl Iterator<Item = (Pair, Pair)> {
    let next = corners.iter().skip(1).chain(corners.first());
    corners.iter().copied().zip(next.copied())
}

/// The side of the line from a to b that a point is on, computed exactly.
fn side(a: Pair, b: Pair, point: Pair) -> f64 {
    let coord = |p: Pair| Coord { x: p.x, y: p.y };
    orient2d(coord(a), coord(b), coord(point))
}

fn edge_meets_box(a: Pair, b: Pair, low: Pair, high: Pair) -> bool {
    let apart = a.x.max(b.x) < low.x
        || high.x < a.x.min(b.x)
        || a.y.max(b.y) < low.y
        || high.y < a.y.min(b.y);
    if apart {
        return false;
    }
    let sides = box_corners(low, high).map(|corner| side(a, b, corner));
    !(sides.iter().all(|side| *side > 0.0) || sides.iter().all(|side| *side < 0.0))
}

fn polygon_contains(corners: &[Pair], point: Pair) -> bool {
    let mut inside = false;
    for (a, b) in edges(corners) {
        let side = side(a, b, point);
        let between =
            |low: f64, high: f64, value: f64| low.min(high) <= value && value <= low.max(high);
        if side == 0.0 && between(a.x, b.x, point.x) && between(a.y, b.y, point.y) {
            return true;
        }
        // Each edge includes its lower end and excludes its upper one.
        let upward = a.y <= point.y && point.y < b.y;
        let downward = b.y <= point.y && point.y < a.y;
        if upward && side > 0.0 || downward && side < 0.0 {
            inside = !inside;
        }
    }
    inside
}
