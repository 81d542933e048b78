//! Polygons on the sphere, as sets of rings with the even-odd rule.

use std::f64::consts::PI;
use std::sync::OnceLock;

use mayfly_work::current::spend;

use crate::distance::Bounds;
use crate::point::{Point, angle, vector};
use crate::predicate::{changes_side, fixed_direction, ordered, sign};
use crate::relation::Prepared;

/// A closed ring; its last vertex is connected with its first one. The inside is to its left.
#[derive(Clone, Debug)]
pub struct Loop {
    vertices: Vec<Point>,
    /// Whether the reference point of all containment tests is inside.
    reference_inside: bool,
    /// A circle that contains the inside: centre and angle. `None` when it would exceed half of the
    /// sphere.
    circle: Option<(Point, f64)>,
}

/// The start of the arc to every tested point; unlikely to be on an edge.
fn reference() -> Point {
    Point(vector(-0.009_999_466_435_025_02, 0.002_592_454_260_932_412, 0.999_946_643_502_502))
}

impl Loop {
    /// A ring of at least three different vertices.
    pub(crate) fn new(vertices: Vec<Point>) -> Loop {
        let mut ring = Loop { vertices, reference_inside: false, circle: None };
        ring.find_sides();
        ring
    }

    /// Determines whether the reference point is inside, from the wedge at one vertex, which is
    /// known to be to the left.
    fn find_sides(&mut self) {
        let count = self.vertices.len();
        if count < 3 {
            return;
        }
        let (before, corner, after) = (&self.vertices[0], &self.vertices[1], &self.vertices[2]);
        let inside = before != corner
            && after != corner
            && ordered(&fixed_direction(corner), before, after, corner);
        self.reference_inside = false;
        if inside != self.contains_slowly(corner) {
            self.reference_inside = true;
        }
        self.circle = self.bounding_circle();
    }

    /// The vertices in order.
    pub fn vertices(&self) -> &[Point] {
        &self.vertices
    }

    /// The edges in order.
    pub fn edges(&self) -> impl Iterator<Item = (&Point, &Point)> {
        let next = self.vertices.iter().skip(1).chain(self.vertices.first());
        self.vertices.iter().zip(next)
    }

    /// The total angle by which the ring turns left: 2 pi less the area inside.
    fn turning(&self) -> f64 {
        let count = self.vertices.len();
        (0..count)
            .map(|at| {
                let a = &self.vertices[at];
                let b = &self.vertices[(at + 1) % count];
                let c = &self.vertices[(at + 2) % count];
                let (first, second) = (Point(a.0.cross(&b.0)), Point(b.0.cross(&c.0)));
                f64::from(sign(a, b, c)) * angle(&first, &second)
            })
            .sum()
    }

    /// Reverses the ring if its inside is the larger side.
    pub(crate) fn normalize(&mut self) {
        if self.turning() < -1e-14 {
            self.vertices.reverse();
            self.find_sides();
        }
    }

    /// A circle around all vertices. If the inside is the smaller side, the circle contains it: the
    /// complement of the circle is on one side of the ring, and that is the larger one.
    fn bounding_circle(&self) -> Option<(Point, f64)> {
        if self.turning() < 0.0 {
            return None;
        }
        let mut sum = vector(0.0, 0.0, 0.0);
        for vertex in &self.vertices {
            sum = sum + vertex.0;
        }
        if sum.norm() < 1e-9 {
            return None;
        }
        let centre = Point(sum.normalize());
        let radius = self.vertices.iter().map(|v| angle(&centre, v)).fold(0.0, f64::max) + 1e-12;
        (radius < PI / 2.0 - 1e-6).then_some((centre, radius))
    }

    /// Whether a point is inside.
    pub(crate) fn contains(&self, point: &Point) -> bool {
        match &self.circle {
            Some((centre, radius)) if angle(centre, point) > *radius => false,
            _ => self.contains_slowly(point),
        }
    }

    fn contains_slowly(&self, point: &Point) -> bool {
        let from = reference();
        let mut inside = self.reference_inside;
        let mut before: Option<(&Point, i32)> = None;
        for vertex in self.vertices.last().into_iter().chain(&self.vertices) {
            let side = sign(&from, point, vertex);
            if let Some((previous, previous_side)) = before
                && (side != previous_side || side == 0)
            {
                inside ^= changes_side(&from, point, previous, vertex);
            }
            before = Some((vertex, side));
        }
        inside
    }
}

/// A polygon: rings with the even-odd rule.
#[derive(Clone, Debug)]
pub struct Polygon {
    loops: Vec<Loop>,
    /// Whether each ring is a hole: its inside is to its right.
    holes: Vec<bool>,
    /// Whether a ring is inside of a hole.
    nested: bool,
    bounds: Option<Bounds>,
    /// Whether points on its border are inside.
    has_border: bool,
    prepared: OnceLock<Prepared>,
}

impl Polygon {
    pub(crate) fn new(loops: Vec<Loop>) -> Polygon {
        let around = |at: usize| {
            let others = loops.iter().enumerate().filter(|(other, _)| *other != at);
            // May stop early when the operation must end; the parser then reports that.
            let others =
                others.take_while(|(_, other)| spend(1 + other.vertices.len() / 32).is_ok());
            others.filter(|(_, other)| other.holds_ring(&loops[at])).count()
        };
        let depths: Vec<usize> = (0..loops.len()).map(around).collect();
        let holes = depths.iter().map(|depth| depth % 2 == 1).collect();
        let nested = depths.iter().any(|depth| *depth > 1);
        let edges = loops.iter().flat_map(Loop::edges).map(|(a, b)| Bounds::of_arc(a, b));
        let bounds = edges.reduce(|all, one| all.joined(&one));
        Polygon { loops, holes, nested, bounds, has_border: true, prepared: OnceLock::new() }
    }

    /// Whether a ring is inside of a hole.
    pub(crate) fn is_nested(&self) -> bool {
        self.nested
    }

    /// The same, where points on its border are not inside.
    pub(crate) fn without_border(self) -> Polygon {
        Polygon { has_border: false, ..self }
    }

    /// Whether points on its border are inside.
    pub(crate) fn has_border(&self) -> bool {
        self.has_border
    }

    /// The rings, the outer one first.
    pub fn loops(&self) -> &[Loop] {
        &self.loops
    }

    /// The bounding box of its border.
    pub(crate) fn bounds(&self) -> Option<&Bounds> {
        self.bounds.as_ref()
    }

    /// Its prepared form for relations.
    pub(crate) fn prepared(&self) -> &Prepared {
        self.prepared.get_or_init(|| Prepared::new(self))
    }

    /// A circle that contains it: centre and angle; `None` when it may be larger than half of the
    /// sphere.
    pub(crate) fn circle(&self) -> Option<(Point, f64)> {
        self.loops.first().and_then(|ring| ring.circle)
    }

    /// Whether a point is inside.
    pub fn contains(&self, point: &Point) -> bool {
        self.loops.iter().fold(false, |inside, ring| inside ^ ring.contains(point))
    }

    /// All edges, each with the inside to its left.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (&Point, &Point)> {
        self.loops.iter().zip(&self.holes).flat_map(|(ring, hole)| {
            ring.edges().map(move |(a, b)| if *hole { (b, a) } else { (a, b) })
        })
    }

    /// All corners: the previous vertex, the vertex, the next one, with the inside to the left.
    pub(crate) fn corners(&self) -> impl Iterator<Item = [&Point; 3]> {
        self.loops.iter().zip(&self.holes).flat_map(|(ring, hole)| {
            let vertices = &ring.vertices;
            let count = vertices.len();
            (0..count).map(move |at| {
                let (before, after) =
                    (&vertices[(at + count - 1) % count], &vertices[(at + 1) % count]);
                let corner = &vertices[at];
                if *hole { [after, corner, before] } else { [before, corner, after] }
            })
        })
    }
}

impl Loop {
    /// Whether another ring, which does not cross this one, is inside.
    pub(crate) fn holds_ring(&self, other: &Loop) -> bool {
        let own = |vertex: &Point| self.vertices.contains(vertex);
        let free = other.vertices.iter().find(|vertex| !own(vertex));
        match free {
            Some(vertex) => self.contains(vertex),
            // All vertices are shared: the ring with fewer is inside.
            None => other.vertices.len() < self.vertices.len(),
        }
    }
}
