//! Parses and validates GeoJSON and legacy pairs.

use std::collections::HashSet;

use mayfly_base::{Error, Result};
use mayfly_value::shell::{Shell, ShellValue};
use mayfly_value::{Number, RawDoc, RawValue};
use mayfly_work::current::spend;

use crate::geometry::Crs;
use crate::point::{Pair, Point, bits};
use crate::polygon::{Loop, Polygon};
use crate::shape::{GeoJsonType, Shape};
use crate::validity::{fault_of_ring, fault_of_rings, is_hole_of};

/// Most points of one geometry.
const MAX_POINTS: usize = 250_000;

/// The coordinate reference system in which the inside of a ring is to its left.
const STRICT_WINDING: &str = "urn:x-mongodb:crs:strictwinding:EPSG:4326";

fn bad<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::bad_value(text))
}

fn type_of(value: Option<RawValue<'_>>) -> &'static str {
    value.map_or("missing", RawValue::type_name)
}

fn number(value: Option<RawValue<'_>>) -> Option<f64> {
    value.and_then(Number::from_value).map(Number::to_f64)
}

/// Parses a legacy pair: the first two numbers of an array or document.
///
/// # Errors
/// 2 BadValue for other values and for infinite numbers.
pub fn legacy_pair(value: RawValue<'_>) -> Result<Pair> {
    let (RawValue::Array(items) | RawValue::Document(items)) = value else {
        let kind = value.type_name();
        return bad(format!("Point must be an array or object, instead got type {kind}"));
    };
    let mut items = items.iter().map(|item| item.value());
    let mut next = || {
        let item = items.next();
        number(item).ok_or_else(|| {
            let kind = type_of(item);
            Error::bad_value(format!(
                "Point must only contain numeric elements, instead got type {kind}"
            ))
        })
    };
    let pair = Pair { x: next()?, y: next()? };
    if !pair.x.is_finite() || !pair.y.is_finite() {
        return bad("Point coordinates must be finite numbers");
    }
    Ok(pair)
}

fn on_earth(pair: Pair) -> Result<Pair> {
    match pair.is_on_earth() {
        true => Ok(pair),
        false => {
            let Pair { x, y } = pair;
            bad(format!("Longitude/latitude is out of bounds, lng: {x} lat: {y}"))
        }
    }
}

/// The coordinate reference system of a GeoJSON object.
///
/// # Errors
/// 2 BadValue for an unknown system.
pub fn crs_of(doc: RawDoc<'_>) -> Result<Crs> {
    let Some(crs) = doc.get("crs") else { return Ok(Crs::Sphere) };
    let RawValue::Document(crs) = crs else { return bad("GeoJSON CRS must be an object") };
    if crs.get("type") != Some(RawValue::String("name")) {
        return bad("GeoJSON CRS must have field \"type\": \"name\"");
    }
    let Some(RawValue::Document(properties)) = crs.get("properties") else {
        let kind = type_of(crs.get("properties"));
        return bad(format!(
            "CRS must have field \"properties\" which is an object, instead got type {kind}"
        ));
    };
    match properties.get("name") {
        Some(RawValue::String("urn:ogc:def:crs:OGC:1.3:CRS84" | "EPSG:4326")) => Ok(Crs::Sphere),
        Some(RawValue::String(STRICT_WINDING)) => Ok(Crs::StrictSphere),
        Some(RawValue::String(name)) => bad(format!("Unknown CRS name: {name}")),
        other => {
            let kind = type_of(other);
            bad(format!("In CRS, \"properties.name\" must be a string, instead got type {kind}"))
        }
    }
}

/// Parses a GeoJSON object.
///
/// # Errors
/// 2 BadValue for an invalid object.
pub(crate) fn geo_json(doc: RawDoc<'_>) -> Result<(Shape, Crs)> {
    let kind = match doc.get("type") {
        Some(RawValue::String(name)) => GeoJsonType::of_name(name),
        _ => None,
    };
    let Some(kind) = kind else {
        return bad(format!("unknown GeoJSON type: {}", Shell(doc)));
    };
    let crs = crs_of(doc)?;
    if crs == Crs::StrictSphere && kind != GeoJsonType::Polygon {
        return bad("Strict winding order is only supported by polygon");
    }
    let mut budget = MAX_POINTS;
    let shape = match kind {
        GeoJsonType::GeometryCollection => collection(doc, &mut budget)?,
        kind => simple(kind, doc.get("coordinates"), crs, &mut budget)?,
    };
    Ok((shape, crs))
}

/// Parses the same in the plane: exactly two numbers.
///
/// # Errors
/// 2 BadValue for other values and for infinite numbers.
pub fn flat_point(value: RawValue<'_>) -> Result<Pair> {
    let pair = legacy_pair(value)?;
    match value.as_array().or(value.as_document()).map_or(0, |items| items.iter().count()) {
        2 => Ok(pair),
        _ => bad("Point must only contain two numeric elements"),
    }
}

/// Parses the operand of `$geometry`: GeoJSON, where coordinates without a type are a point, or a
/// legacy pair.
///
/// # Errors
/// 2 BadValue for an invalid operand.
pub fn query_geometry(operand: RawValue<'_>) -> Result<(Shape, Crs, GeoJsonType)> {
    let point = |coordinates: RawValue<'_>, crs: Crs| {
        let shape = Shape::of_pair(on_earth(legacy_pair(coordinates)?)?);
        Ok((shape, crs, GeoJsonType::Point))
    };
    match operand {
        RawValue::Document(doc) if doc.get("type").is_some() => {
            let (shape, crs) = geo_json(doc)?;
            let kind = doc.get("type").and_then(RawValue::as_str).and_then(GeoJsonType::of_name);
            Ok((shape, crs, kind.unwrap_or(GeoJsonType::GeometryCollection)))
        }
        RawValue::Document(doc) => match doc.get("coordinates") {
            Some(coordinates) => point(coordinates, crs_of(doc)?),
            None => point(operand, Crs::Sphere),
        },
        RawValue::Array(_) => point(operand, Crs::Sphere),
        other => bad(format!("geometry must be an object, instead got type {}", other.type_name())),
    }
}

fn collection(doc: RawDoc<'_>, budget: &mut usize) -> Result<Shape> {
    let parts = match doc.get("geometries") {
        Some(RawValue::Array(parts)) => parts,
        other => {
            let kind = type_of(other);
            return bad(format!(
                "GeometryCollection geometries must be an array, instead got type {kind}"
            ));
        }
    };
    if parts.is_empty() {
        return bad("GeometryCollection geometries must have at least 1 element");
    }
    let mut shape = Shape::default();
    for (at, part) in parts.iter().enumerate() {
        let RawValue::Document(part) = part.value() else {
            let (kind, shown) = (part.value().type_name(), ShellValue(part.value()));
            return bad(format!(
                "Element {at} of \"geometries\" must be an object, instead got type {kind}: {shown}"
            ));
        };
        let kind = match part.get("type") {
            Some(RawValue::String(name)) => GeoJsonType::of_name(name),
            _ => None,
        };
        match kind {
            None => return bad(format!("Unknown or unsupported GeoJSON type: {}", Shell(part))),
            Some(GeoJsonType::GeometryCollection) => {
                return bad(format!("GeometryCollections cannot be nested: {}", Shell(part)));
            }
            Some(kind) => {
                if crs_of(part)? == Crs::StrictSphere {
                    return bad("Strict winding order is only supported by polygon");
                }
                shape.add(simple(kind, part.get("coordinates"), Crs::Sphere, budget)?);
            }
        }
    }
    Ok(shape)
}

fn simple(
    kind: GeoJsonType,
    coordinates: Option<RawValue<'_>>,
    crs: Crs,
    budget: &mut usize,
) -> Result<Shape> {
    let of_parts = Shape::of_parts;
    Ok(match kind {
        GeoJsonType::Point => {
            let value = coordinates.unwrap_or(RawValue::Undefined);
            if coordinates.is_none() {
                return bad("Point must be an array or object, instead got type missing");
            }
            Shape::of_pair(on_earth(legacy_pair(value)?)?)
        }
        GeoJsonType::MultiPoint => {
            let points = list(kind, coordinates, budget, &mut |item, budget| {
                position(item.unwrap_or(RawValue::Undefined), budget)
            })?;
            of_parts(points, Vec::new(), Vec::new())
        }
        GeoJsonType::LineString => {
            of_parts(Vec::new(), vec![line(coordinates, budget)?], Vec::new())
        }
        GeoJsonType::MultiLineString => {
            let lines = list(kind, coordinates, budget, &mut |item, budget| line(item, budget))?;
            of_parts(Vec::new(), lines, Vec::new())
        }
        GeoJsonType::Polygon => {
            of_parts(Vec::new(), Vec::new(), vec![polygon(coordinates, crs, budget)?])
        }
        GeoJsonType::MultiPolygon => {
            let polygons = list(kind, coordinates, budget, &mut |item, budget| {
                polygon(item, Crs::Sphere, budget)
            })?;
            of_parts(Vec::new(), Vec::new(), polygons)
        }
        GeoJsonType::GeometryCollection => return bad("GeometryCollections cannot be nested"),
    })
}

/// Parses the parts of a geometry that has several.
fn list<T>(
    kind: GeoJsonType,
    coordinates: Option<RawValue<'_>>,
    budget: &mut usize,
    part: &mut dyn FnMut(Option<RawValue<'_>>, &mut usize) -> Result<T>,
) -> Result<Vec<T>> {
    let name = kind.name();
    let items = match (kind, coordinates) {
        (_, Some(RawValue::Array(items))) => items,
        (GeoJsonType::MultiPoint, other) => return Err(no_coordinates(other)),
        (_, other) => {
            let found = type_of(other);
            return bad(format!("{name} coordinates must be an array, instead got type {found}"));
        }
    };
    let parts =
        items.iter().map(|item| part(Some(item.value()), budget)).collect::<Result<Vec<T>>>()?;
    match parts.is_empty() {
        true => bad(format!("{name} coordinates must have at least 1 element")),
        false => Ok(parts),
    }
}

fn no_coordinates(found: Option<RawValue<'_>>) -> Error {
    let kind = type_of(found);
    Error::bad_value(format!(
        "GeoJSON coordinates must be an array of coordinates, instead got type {kind}"
    ))
}

fn position(value: RawValue<'_>, budget: &mut usize) -> Result<Point> {
    if !matches!(value, RawValue::Array(_)) {
        let kind = value.type_name();
        return bad(format!("GeoJSON coordinates must be an array, instead got type {kind}"));
    }
    let pair = on_earth(legacy_pair(value)?)?;
    match budget.checked_sub(1) {
        Some(rest) => *budget = rest,
        None => return bad(format!("a geometry may have at most {MAX_POINTS} points")),
    }
    Ok(pair.to_point())
}

fn positions(value: Option<RawValue<'_>>, budget: &mut usize) -> Result<Vec<Point>> {
    let Some(RawValue::Array(items)) = value else { return Err(no_coordinates(value)) };
    items.iter().map(|item| position(item.value(), budget)).collect()
}

fn shown(value: Option<RawValue<'_>>) -> String {
    ShellValue(value.unwrap_or(RawValue::Undefined)).to_string()
}

fn line(value: Option<RawValue<'_>>, budget: &mut usize) -> Result<Vec<Point>> {
    let mut points = positions(value, budget)?;
    points.dedup();
    if points.len() < 2 {
        let shown = shown(value);
        return bad(format!("GeoJSON LineString must have at least 2 vertices: {shown}"));
    }
    Ok(points)
}

/// Parses a closed ring and removes its last point.
fn ring(value: Option<RawValue<'_>>, budget: &mut usize) -> Result<Vec<Point>> {
    let mut points = positions(value, budget)?;
    match (points.first(), points.last()) {
        (Some(first), Some(last)) if first != last => {
            let shown = shown(value);
            return bad(format!(
                "Loop is not closed, first vertex does not equal last vertex: {shown}"
            ));
        }
        (None, _) => return bad(format!("Loop has no vertices: {}", shown(value))),
        _ => {}
    }
    points.dedup();
    points.pop();
    if points.len() < 3 {
        let (count, shown) = (points.len(), shown(value));
        return bad(format!(
            "Loop must have at least 3 different vertices, {count} unique vertices were provided: {shown}"
        ));
    }
    match fault_of_ring(&points)? {
        Some(fault) => bad(format!("Loop is not valid: {} {fault}", shown(value))),
        None => Ok(points),
    }
}

/// Whether a hole has two corners of the outer ring, so that it may divide the polygon.
fn shares_corners(shell: &Loop, hole: &Loop) -> bool {
    let corners: HashSet<[u64; 3]> = shell.vertices().iter().map(bits).collect();
    hole.vertices().iter().filter(|corner| corners.contains(&bits(corner))).count() > 1
}

fn polygon(coordinates: Option<RawValue<'_>>, crs: Crs, budget: &mut usize) -> Result<Polygon> {
    let Some(RawValue::Array(rings)) = coordinates else {
        let kind = type_of(coordinates);
        let subject = match crs {
            Crs::StrictSphere => "Coordinates of polygon",
            _ => "Polygon coordinates",
        };
        return bad(format!("{subject} must be an array, instead got type {kind}"));
    };
    if crs == Crs::StrictSphere {
        let count = rings.iter().count();
        if count != 1 {
            return bad(format!(
                "Only one simple loop is allowed in a big polygon, instead provided {count} loops at {}",
                shown(coordinates)
            ));
        }
    }
    let mut loops: Vec<Loop> = Vec::new();
    for element in rings.iter() {
        let mut next = Loop::new(ring(Some(element.value()), budget)?);
        if crs != Crs::StrictSphere {
            next.normalize();
        }
        // Each loop is compared with all edges of the first.
        spend(1 + loops.first().map_or(0, |first| first.edges().count() >> 6))?;
        if let Some(first) = loops.first()
            && !is_hole_of(first, &next)
        {
            // The comparison may have stopped early because the operation must end; report that
            // instead.
            spend(usize::MAX)?;
            return bad(format!(
                "Secondary loops not contained by first exterior loop - secondary loops must be holes: {} first loop: {}",
                ShellValue(element.value()),
                rings.iter().next().map_or(String::new(), |e| shown(Some(e.value())))
            ));
        }
        loops.push(next);
    }
    if loops.is_empty() {
        return bad("Polygon has no loops.");
    }
    if let Some(hole) = loops.iter().skip(1).position(|hole| shares_corners(&loops[0], hole)) {
        let at = hole + 1;
        let shown = shown(coordinates);
        return bad(format!(
            "Loop 0 shares more than one vertex with its child loop {at}: {shown}"
        ));
    }
    if let Some(fault) = fault_of_rings(&loops)? {
        return bad(format!("Polygon isn't valid: {fault} {}", shown(coordinates)));
    }
    let several = loops.len() > 1;
    let polygon = Polygon::new(loops);
    if several {
        // The constructor compares all pairs of loops, and may have stopped early.
        spend(usize::MAX)?;
    }
    if polygon.is_nested() {
        return bad(format!("Polygon interior loops cannot be nested: {}", shown(coordinates)));
    }
    // As in the reference, a polygon that may exceed half of the earth has no border.
    Ok(if crs == Crs::StrictSphere { polygon.without_border() } else { polygon })
}
