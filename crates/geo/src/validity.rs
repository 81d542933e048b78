//! Validity of rings and polygons. The results are meaningless when the operation must end.

use std::collections::HashMap;

use mayfly_base::Result;
use mayfly_work::current::spend;

use crate::point::{Point, bits};
use crate::polygon::{Loop, Polygon};
use crate::predicate::Crossing;
use crate::relation::{Arc, any_pair, polygon_contains, sorted_arcs};

/// The fault of a ring, if any: a duplicate vertex, or edges that cross.
///
/// # Errors
/// Errors that end the operation: in the worst case all pairs of edges are compared.
pub(crate) fn fault_of_ring(vertices: &[Point]) -> Result<Option<String>> {
    let mut known: HashMap<[u64; 3], usize> = HashMap::new();
    for (at, vertex) in vertices.iter().enumerate() {
        if let Some(first) = known.insert(bits(vertex), at) {
            return Ok(Some(format!("Duplicate vertices: {first} and {at}")));
        }
    }
    let arcs = sorted_arcs(edges(vertices));
    let mut found: Option<(&Arc, &Arc)> = None;
    let mut may_go_on = Ok(());
    any_pair(&arcs, &arcs, &mut |x, y| {
        may_go_on = spend(1);
        if may_go_on.is_err() {
            return true;
        }
        let crosses = x.at < y.at && x.crosses(y) == Crossing::Inside;
        if crosses && found.is_none_or(|(a, b)| (x.at, y.at) < (a.at, b.at)) {
            found = Some((x, y));
        }
        false
    });
    may_go_on?;
    Ok(found.map(|(x, y)| {
        let shown = |arc: &Arc| format!("{}-{}", in_degrees(&arc.a), in_degrees(&arc.b));
        format!(
            "Edges {} and {} cross. Edge locations in degrees: {} and {}",
            x.at,
            y.at,
            shown(x),
            shown(y)
        )
    }))
}

fn edges(vertices: &[Point]) -> impl Iterator<Item = (&Point, &Point)> {
    let next = vertices.iter().skip(1).chain(vertices.first());
    vertices.iter().zip(next)
}

/// Formats latitude and longitude.
fn in_degrees(point: &Point) -> String {
    let v = &point.0;
    let latitude = v.z.atan2((v.x * v.x + v.y * v.y).sqrt()).to_degrees();
    format!("[{latitude:.7}, {:.7}]", v.y.atan2(v.x).to_degrees())
}

/// Whether a further ring is inside the first one.
pub(crate) fn is_hole_of(first: &Loop, ring: &Loop) -> bool {
    let alone = |ring: &Loop| Polygon::new(vec![ring.clone()]);
    polygon_contains(&alone(first), &alone(ring))
}

/// The fault of the rings of a polygon, if any: a shared edge, or edges that cross.
///
/// # Errors
/// Errors that end the operation.
pub(crate) fn fault_of_rings(loops: &[Loop]) -> Result<Option<String>> {
    if loops.len() < 2 {
        return Ok(None);
    }
    let mut known: HashMap<([u64; 3], [u64; 3]), (usize, usize)> = HashMap::new();
    for (at, ring) in loops.iter().enumerate() {
        for (edge, (a, b)) in ring.edges().enumerate() {
            let (a, b) = (bits(a), bits(b));
            let key = if a < b { (a, b) } else { (b, a) };
            if let Some((other, first)) = known.insert(key, (at, edge)) {
                return Ok(Some(format!(
                    "Duplicate edge: loop {other}, edge {first} and loop {at}, edge {edge}"
                )));
            }
        }
    }
    let arcs: Vec<Vec<Arc>> = loops.iter().map(|ring| sorted_arcs(ring.edges())).collect();
    for (at, edges) in arcs.iter().enumerate() {
        for (other, others) in arcs.iter().enumerate().take(at) {
            let mut may_go_on = spend(1);
            let crosses = any_pair(edges, others, &mut |x, y| {
                may_go_on = spend(1);
                may_go_on.is_err() || x.crosses(y) == Crossing::Inside
            });
            may_go_on?;
            if crosses {
                return Ok(Some(format!("Loop {other} crosses loop {at}")));
            }
        }
    }
    Ok(None)
}
