//! What a ring and rings together must be to be a polygon.

use std::collections::HashMap;

use super::point::{Point, bits};
use super::polygon::{Loop, Polygon};
use super::predicate::{Crossing, crossing};
use super::relation::{Arc, any_pair, polygon_contains};

/// Why a ring is none: a vertex that occurs twice, or edges that cross.
pub(super) fn fault_of_ring(vertices: &[Point]) -> Option<String> {
    let mut known: HashMap<[u64; 3], usize> = HashMap::new();
    for (at, vertex) in vertices.iter().enumerate() {
        if let Some(first) = known.insert(bits(vertex), at) {
            return Some(format!("Duplicate vertices: {first} and {at}"));
        }
    }
    let arcs = edges(vertices);
    let mut found: Option<(usize, usize)> = None;
    any_pair(&arcs, &arcs, &mut |x, y| {
        let crosses =
            x < y && crossing(arcs[x].a, arcs[x].b, arcs[y].a, arcs[y].b) == Crossing::Inside;
        if crosses && found.is_none_or(|before| (x, y) < before) {
            found = Some((x, y));
        }
        false
    });
    found.map(|(x, y)| {
        let shown = |arc: &Arc<'_>| format!("{}-{}", in_degrees(arc.a), in_degrees(arc.b));
        format!(
            "Edges {x} and {y} cross. Edge locations in degrees: {} and {}",
            shown(&arcs[x]),
            shown(&arcs[y])
        )
    })
}

fn edges(vertices: &[Point]) -> Vec<Arc<'_>> {
    let next = vertices.iter().skip(1).chain(vertices.first());
    vertices.iter().zip(next).map(Arc::new).collect()
}

/// Latitude and longitude.
fn in_degrees(point: &Point) -> String {
    let v = &point.0;
    let latitude = v.z.atan2((v.x * v.x + v.y * v.y).sqrt()).to_degrees();
    format!("[{latitude:.7}, {:.7}]", v.y.atan2(v.x).to_degrees())
}

/// Whether a further ring lies in the first one.
pub(super) fn is_hole_of(first: &Loop, ring: &Loop) -> bool {
    let alone = |ring: &Loop| Polygon::new(vec![ring.clone()]);
    polygon_contains(&alone(first), &alone(ring))
}

/// Why rings are no polygon: an edge that two have, or edges that cross.
pub(super) fn fault_of_rings(loops: &[Loop]) -> Option<String> {
    let arcs: Vec<Vec<Arc<'_>>> =
        loops.iter().map(|ring| ring.edges().map(Arc::new).collect()).collect();
    let mut known: HashMap<([u64; 3], [u64; 3]), (usize, usize)> = HashMap::new();
    for (at, edges) in arcs.iter().enumerate() {
        for (edge, arc) in edges.iter().enumerate() {
            let (a, b) = (bits(arc.a), bits(arc.b));
            let key = if a < b { (a, b) } else { (b, a) };
            if let Some((other, first)) = known.insert(key, (at, edge)) {
                return Some(format!(
                    "Duplicate edge: loop {other}, edge {first} and loop {at}, edge {edge}"
                ));
            }
        }
    }
    for (at, edges) in arcs.iter().enumerate() {
        for (other, others) in arcs.iter().enumerate().take(at) {
            let crosses = any_pair(edges, others, &mut |x, y| {
                let (x, y) = (&edges[x], &others[y]);
                crossing(x.a, x.b, y.a, y.b) == Crossing::Inside
            });
            if crosses {
                return Some(format!("Loop {other} crosses loop {at}"));
            }
        }
    }
    None
}
