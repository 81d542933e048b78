//! `$geoWithin`, `$within`, `$geoIntersects`, `$near`, `$nearSphere`.
//!
//! Manual: "Geospatial Query Operators". The specifiers of a shape (`$geometry`, `$box`, ...) are
//! not operators.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_geo::{
    Area, Cap, Crs, FlatShape, GeoJsonType, Pair, flat_point, legacy_pair, query_geometry,
};
use mayfly_value::shell::{Shell, ShellValue};
use mayfly_value::{Number, RawDoc, RawElement, RawValue};

use super::Operand;
use crate::matcher::parse::NearPosition;
use crate::matcher::{DistanceUnit, GeoTest, NearSearch, OriginalOperator, Predicate};

const NOT_HERE: &str = "$geoNear, $near, and $nearSphere are not allowed in this context, as these operators require sorting \
     geospatial data. If you do not need sort, consider using $geoWithin instead. Check out \
     https://dochub.mongodb.org/core/near-sort-operation and \
     https://dochub.mongodb.org/core/nearSphere-sort-operationfor more details.";

fn bad<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::bad_value(text))
}

fn predicate(test: GeoTest, written: OriginalOperator) -> Result<Option<Predicate>> {
    Ok(Some(Predicate::Geo(Arc::new(test), written)))
}

/// The operator in error messages: `{ $op: value }`.
fn shown(operand: &Operand<'_>) -> String {
    format!("{{ {}: {} }}", operand.name, ShellValue(operand.value))
}

fn check_alone(operand: &Operand<'_>) -> Result<()> {
    let areas = ["$geoWithin", "$within", "$geoIntersects"];
    let several = operand.siblings.iter().filter(|e| areas.contains(&e.name())).count() > 1;
    if several || operand.siblings.get("$eq").is_some() {
        let shown = Shell(operand.siblings);
        return bad(format!("geo query doesn't support multiple operators on a field: {shown}"));
    }
    let mut others = operand.siblings.iter().skip_while(|e| e.name() != operand.name).skip(1);
    match others.find(|other| matches!(other.name(), "$maxDistance" | "$minDistance")) {
        Some(extra) => bad(format!("unknown operator: {}", extra.name())),
        None => Ok(()),
    }
}

pub(super) fn within(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    check_alone(operand)?;
    let area = area(operand)?;
    let encloses = match &area {
        Area::Shape(shape) => !shape.polygons().is_empty(),
        Area::Cap(_) | Area::Flat(_) => true,
    };
    if !encloses {
        return bad(format!("$within not supported with provided geometry: {}", shown(operand)));
    }
    predicate(GeoTest::Within(area), operand.written())
}

pub(super) fn intersects(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    check_alone(operand)?;
    let area = area(operand)?;
    match area {
        Area::Shape(_) => predicate(GeoTest::Intersects(area), operand.written()),
        Area::Cap(_) | Area::Flat(_) => {
            bad(format!("$geoIntersect not supported with provided geometry: {}", shown(operand)))
        }
    }
}

/// Parses the specifier of an area.
fn area(operand: &Operand<'_>) -> Result<Area> {
    let RawValue::Document(specifiers) = operand.value else {
        return bad("geometry must be an object");
    };
    let mut found = None;
    for element in specifiers {
        // Of several shapes, the other operators use the last one.
        if found.is_some() && operand.name == "$geoWithin" {
            return bad(format!("$geoWithin doesn't accept multiple shapes {}", shown(operand)));
        }
        if element.name() != "$uniqueDocs" {
            found = Some(specified(element)?);
        }
    }
    found.ok_or_else(|| Error::bad_value("geo query doesn't have any geometry"))
}

fn specified(element: RawElement<'_>) -> Result<Area> {
    let value = element.value();
    match element.name() {
        "$geometry" => Ok(Area::Shape(query_geometry(value)?.0)),
        "$box" => {
            let corners = items(value, "$box")?;
            let mut corners = corners.iter().map(|item| item.value());
            let mut corner = || flat_point(corners.next().unwrap_or(RawValue::Undefined));
            let (a, b) = (corner()?, corner()?);
            Ok(Area::Flat(FlatShape::between(a, b)))
        }
        "$polygon" => {
            let corners = items(value, "$polygon")?;
            let corners: Vec<Pair> =
                corners.iter().map(|item| flat_point(item.value())).collect::<Result<_>>()?;
            match corners.len() {
                ..3 => bad("Polygon must have at least 3 points"),
                _ => Ok(Area::Flat(FlatShape::Polygon(corners))),
            }
        }
        "$center" => {
            let (centre, radius) = circle(value, "$center")?;
            Ok(Area::Flat(FlatShape::Disc { centre, radius }))
        }
        "$centerSphere" => {
            let (centre, radius) = circle(value, "$centerSphere")?;
            match centre.is_on_earth() {
                true => Ok(Area::Cap(Cap { centre, radius })),
                false => bad("Spherical circle center must be valid lng/lat"),
            }
        }
        _ => bad(format!("unknown geo specifier: {}: {}", element.name(), ShellValue(value))),
    }
}

fn items<'a>(value: RawValue<'a>, name: &str) -> Result<RawDoc<'a>> {
    match value {
        RawValue::Array(items) | RawValue::Document(items) => Ok(items),
        other => bad(format!(
            "Point must be an array or object, instead got type {} for {name}",
            other.type_name()
        )),
    }
}

fn circle(value: RawValue<'_>, name: &str) -> Result<(Pair, f64)> {
    let items = items(value, name)?;
    let mut items = items.iter().map(|item| item.value());
    let centre = flat_point(items.next().unwrap_or(RawValue::Undefined))?;
    let radius = items.next().and_then(Number::from_value).map(Number::to_f64);
    let radius = match radius {
        Some(radius) if radius >= 0.0 => radius,
        _ => return bad("radius must be a non-negative number"),
    };
    match items.next() {
        Some(_) => bad("Only 2 fields allowed for circular region"),
        None => Ok((centre, radius)),
    }
}

/// `$maxDistance` and `$minDistance` after a `$near` have been parsed by it.
pub(super) fn limit(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    let first = operand.siblings.iter().next();
    match first.is_some_and(|first| matches!(first.name(), "$near" | "$nearSphere" | "$geoNear")) {
        true => Ok(None),
        false => bad(format!("unknown operator: {}", operand.name)),
    }
}

pub(super) fn near(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    match operand.context.near {
        NearPosition::Nowhere => return Err(Error::new(ErrorCode(5_626_500), NOT_HERE)),
        NearPosition::Nested => return bad("geoNear must be top-level expr"),
        NearPosition::Here => {}
    }
    let first = operand.siblings.iter().next().is_some_and(|first| first.name() == operand.name);
    let (true, RawValue::Document(question) | RawValue::Array(question)) = (first, operand.value)
    else {
        return bad(format!("near must be first in: {}", Shell(operand.siblings)));
    };
    let limits = Limits::after_operator(operand)?;
    let near = match operand.value {
        RawValue::Document(_) if question.get("$geometry").is_some() => {
            by_geometry(operand, question)?
        }
        _ => by_point(operand, question, limits)?,
    };
    // Includes the limits after the operator.
    predicate(GeoTest::Near(near), Arc::new(operand.siblings.to_owned()))
}

/// The minimum and maximum distance.
struct Limits {
    min: f64,
    max: f64,
}

impl Limits {
    /// The limits after the operator.
    fn after_operator(operand: &Operand<'_>) -> Result<Limits> {
        let mut limits = Limits { min: 0.0, max: f64::INFINITY };
        for element in operand.siblings.iter().skip(1) {
            let name = element.name();
            let (target, code) = match name {
                "$minDistance" => (&mut limits.min, 16893),
                "$maxDistance" => (&mut limits.max, 16895),
                "$uniqueDocs" => continue,
                "$near" | "$nearSphere" | "$geoNear" => {
                    let shown = Shell(operand.siblings);
                    return bad(format!("a field accepts one near query only: {shown}"));
                }
                _ => {
                    let text = format!("invalid argument in geo near query: {name}");
                    return Err(Error::new(ErrorCode(34413), text));
                }
            };
            *target = match Number::from_value(element.value()).map(Number::to_f64) {
                Some(distance) if distance >= 0.0 => distance,
                Some(_) => {
                    let text = format!("{name} must be non-negative");
                    return Err(Error::new(ErrorCode(code + 1), text));
                }
                None => {
                    return Err(Error::new(ErrorCode(code), format!("{name} must be a number")));
                }
            };
        }
        Ok(limits)
    }
}

/// Parses a limit inside the operator.
fn distance(element: RawElement<'_>) -> Result<f64> {
    let name = element.name();
    match Number::from_value(element.value()).map(Number::to_f64) {
        None => bad(format!("{name} must be a number")),
        Some(distance) if distance >= 0.0 && distance.is_finite() => Ok(distance),
        Some(_) => bad(format!("{name} must be non-negative")),
    }
}

/// Parses a GeoJSON point; `None` for another shape or reference system.
fn json_point(doc: RawDoc<'_>) -> Result<Option<Pair>> {
    let (shape, crs, kind) = query_geometry(RawValue::Document(doc))?;
    Ok(shape.pair().filter(|_| kind == GeoJsonType::Point && crs == Crs::Sphere))
}

/// Parses `{ $near: { $geometry: { type: "Point", coordinates: [...] }, $minDistance: m,
/// $maxDistance: m } }`.
fn by_geometry(operand: &Operand<'_>, question: RawDoc<'_>) -> Result<NearSearch> {
    if let Some(extra) = operand.siblings.iter().nth(1) {
        return bad(format!(
            "geo near accepts just one argument when querying for a GeoJSON point. Extra field found: {}: {}",
            extra.name(),
            ShellValue(extra.value())
        ));
    }
    let (mut min, mut max, mut from) = (0.0, f64::INFINITY, None);
    for element in question {
        match (element.name(), element.value()) {
            // Coordinates without a type are a point.
            ("$geometry", RawValue::Document(geometry))
                if geometry.get("type").or(geometry.get("coordinates")).is_some() =>
            {
                let fault = |text: &str| {
                    let shown = Shell(geometry);
                    Error::bad_value(format!(
                        "invalid point in geo near query $geometry argument: {shown}  {text}"
                    ))
                };
                let point = json_point(geometry).map_err(|error| fault(error.message()))?;
                from = Some(point.ok_or_else(|| fault("not a point"))?);
            }
            ("$geometry", pair @ (RawValue::Document(_) | RawValue::Array(_))) => {
                return bad(format!("$near requires geojson point, given {}", ShellValue(pair)));
            }
            ("$geometry", _) => {}
            ("$minDistance", _) => min = distance(element)?,
            ("$maxDistance", _) => max = distance(element)?,
            (other, _) => return bad(format!("invalid argument in geo near query: {other}")),
        }
    }
    let from = from.ok_or_else(|| Error::bad_value("$geometry is required for geo near query"))?;
    Ok(NearSearch { from, unit: DistanceUnit::Metres, min, max })
}

/// Parses `{ $near: <point>, $minDistance: d, $maxDistance: d }`, where the point is GeoJSON or a
/// pair; and the old form `{ $near: [x, y, maxDistance] }`.
fn by_point(operand: &Operand<'_>, question: RawDoc<'_>, limits: Limits) -> Result<NearSearch> {
    let invalid = || {
        let shown = ShellValue(operand.value);
        Error::bad_value(format!("invalid point provided to geo near query: {shown}"))
    };
    let Limits { min, mut max } = limits;
    if matches!(operand.value, RawValue::Document(_)) && question.get("type").is_some() {
        let from = json_point(question).ok().flatten().ok_or_else(invalid)?;
        return Ok(NearSearch { from, unit: DistanceUnit::Metres, min, max });
    }
    let from = legacy_pair(operand.value).map_err(|_| invalid())?;
    let mut further = question.iter().skip(2).map(|item| item.value());
    if let Some(third) = further.next() {
        max = Number::from_value(third).map(Number::to_f64).ok_or_else(invalid)?;
        if further.next().is_some() {
            return Err(invalid());
        }
        if max.is_nan() || max < 0.0 {
            return Err(Error::new(ErrorCode(18522), "max distance must be non-negative"));
        }
    }
    let spherical = operand.name == "$nearSphere";
    if spherical && !from.is_on_earth() {
        return bad("Legacy point is out of bounds for spherical query");
    }
    let unit = if spherical { DistanceUnit::Radians } else { DistanceUnit::Flat };
    Ok(NearSearch { from, unit, min, max })
}
