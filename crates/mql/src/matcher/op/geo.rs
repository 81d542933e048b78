//! `$geoWithin`, `$within`, `$geoIntersects`, `$near`, `$nearSphere`.
//!
//! Manual: "Geospatial Query Operators". The specifiers of a shape (`$geometry`, `$box`, ...) are no operators of their own.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::geo::{Area, Cap, Crs, FlatShape, Kind, Pair, legacy_pair, query_geometry};
use mayfly_value::shell::{Shell, ShellValue};
use mayfly_value::{Number, RawDoc, RawElement, RawValue};

use super::Operand;
use crate::matcher::parse::NearPlace;
use crate::matcher::{GeoTest, Near, Predicate, Unit};

const NOT_HERE: &str = "$geoNear, $near, and $nearSphere are not allowed in this context, as these operators require sorting \
     geospatial data. If you do not need sort, consider using $geoWithin instead. Check out \
     https://dochub.mongodb.org/core/near-sort-operation and \
     https://dochub.mongodb.org/core/nearSphere-sort-operationfor more details.";

fn bad<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::bad_value(text))
}

fn predicate(test: GeoTest) -> Result<Option<Predicate>> {
    Ok(Some(Predicate::Geo(Arc::new(test))))
}

/// An operator as it was sent: `{ $op: value }`.
fn shown(operand: &Operand<'_>) -> String {
    format!("{{ {}: {} }}", operand.name, ShellValue(operand.value))
}

fn check_alone(operand: &Operand<'_>) -> Result<()> {
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
        return bad(format!("$geoWithin not supported with provided geometry: {}", shown(operand)));
    }
    predicate(GeoTest::Within(area))
}

pub(super) fn intersects(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    check_alone(operand)?;
    let area = area(operand)?;
    match area {
        Area::Shape(_) => predicate(GeoTest::Intersects(area)),
        Area::Cap(_) | Area::Flat(_) => {
            bad(format!("$geoIntersect not supported with provided geometry: {}", shown(operand)))
        }
    }
}

/// The shape that an operator names; the last one when it names several, as in the reference.
fn area(operand: &Operand<'_>) -> Result<Area> {
    let RawValue::Document(specifiers) = operand.value else {
        return bad("geometry must be an object");
    };
    let mut found = None;
    for element in specifiers {
        if element.name() != "$uniqueDocs" {
            found = Some(specified(element)?);
        }
    }
    found.ok_or_else(|| Error::bad_value("geo query doesn't have any geometry"))
}

fn specified(element: RawElement<'_>) -> Result<Area> {
    let value = element.value();
    match element.name() {
        "$geometry" => match value {
            RawValue::Document(geometry) => {
                let (shape, ..) = query_geometry(geometry)?;
                Ok(Area::Shape(shape))
            }
            other => {
                bad(format!("geometry must be an object, instead got type {}", other.type_name()))
            }
        },
        "$box" => {
            let corners = items(value, "$box")?;
            let mut corners = corners.iter().map(|item| item.value());
            let mut corner = || legacy_pair(corners.next().unwrap_or(RawValue::Undefined));
            let (a, b) = (corner()?, corner()?);
            Ok(Area::Flat(FlatShape::between(a, b)))
        }
        "$polygon" => {
            let corners = items(value, "$polygon")?;
            let corners: Vec<Pair> =
                corners.iter().map(|item| legacy_pair(item.value())).collect::<Result<_>>()?;
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
    let centre = legacy_pair(items.next().unwrap_or(RawValue::Undefined))?;
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

/// `$maxDistance` and `$minDistance` belong to the `$near` that they stand behind, which has read them.
pub(super) fn limit(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    let first = operand.siblings.iter().next();
    match first.is_some_and(|first| matches!(first.name(), "$near" | "$nearSphere" | "$geoNear")) {
        true => Ok(None),
        false => bad(format!("unknown operator: {}", operand.name)),
    }
}

pub(super) fn near(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    match operand.around.near {
        NearPlace::Nowhere => return Err(Error::new(ErrorCode(5_626_500), NOT_HERE)),
        NearPlace::Nested => return bad("geoNear must be top-level expr"),
        NearPlace::Here => {}
    }
    if operand.siblings.iter().next().is_none_or(|first| first.name() != operand.name) {
        return bad(format!("near must be first in: {}", Shell(operand.siblings)));
    }
    let (RawValue::Document(question) | RawValue::Array(question)) = operand.value else {
        return bad("near must be specified as an object or array");
    };
    let near = match question.get("$geometry") {
        Some(geometry) if matches!(operand.value, RawValue::Document(_)) => {
            by_geometry(operand, question, geometry)?
        }
        _ => by_pair(operand)?,
    };
    predicate(GeoTest::Near(near))
}

fn distance(element: RawElement<'_>) -> Result<f64> {
    let name = element.name();
    match Number::from_value(element.value()).map(Number::to_f64) {
        None => bad(format!("{name} must be a number")),
        Some(distance) if distance >= 0.0 => Ok(distance),
        Some(_) => bad(format!("{name} must be non-negative")),
    }
}

/// `{ $near: { $geometry: { type: "Point", coordinates: [...] }, $minDistance: m, $maxDistance: m } }`.
fn by_geometry(
    operand: &Operand<'_>,
    question: RawDoc<'_>,
    geometry: RawValue<'_>,
) -> Result<Near> {
    if let Some(extra) = operand.siblings.iter().nth(1) {
        return bad(format!(
            "geo near accepts just one argument when querying for a GeoJSON point. Extra field found: {}: {}",
            extra.name(),
            ShellValue(extra.value())
        ));
    }
    let (mut min, mut max) = (0.0, f64::INFINITY);
    for element in question {
        match element.name() {
            "$geometry" => {}
            "$minDistance" => min = distance(element)?,
            "$maxDistance" => max = distance(element)?,
            other => return bad(format!("invalid argument in geo near query: {other}")),
        }
    }
    let not_a_point = || {
        let shown = ShellValue(RawValue::Document(question));
        Error::bad_value(format!("$near requires geojson point, given {shown}"))
    };
    let from = match geometry {
        RawValue::Document(geometry) if geometry.get("type").is_some() => {
            let (shape, crs, kind) = query_geometry(geometry)?;
            let pair = shape.pair().filter(|_| kind == Kind::Point && crs == Crs::Sphere);
            pair.ok_or_else(not_a_point)?
        }
        _ => return Err(not_a_point()),
    };
    Ok(Near { from, unit: Unit::Metres, min, max })
}

/// `{ $near: [x, y], $minDistance: d, $maxDistance: d }`, and the old `[x, y, maxDistance]`.
fn by_pair(operand: &Operand<'_>) -> Result<Near> {
    let spherical = operand.name == "$nearSphere";
    let from = legacy_pair(operand.value).map_err(|error| {
        let (text, shown) = (error.message(), ShellValue(operand.value));
        Error::bad_value(format!(
            "invalid point in geo near query $geometry argument: {shown}  {text}"
        ))
    })?;
    let (mut min, mut max) = (0.0, f64::INFINITY);
    if let RawValue::Array(items) | RawValue::Document(items) = operand.value
        && let Some(third) = items.iter().nth(2)
    {
        match (third.name(), operand.value) {
            (_, RawValue::Array(_)) => {
                max = Number::from_value(third.value()).map_or(max, Number::to_f64);
                if max.is_nan() || max < 0.0 {
                    return bad("$maxDistance must be non-negative");
                }
            }
            (other, _) => return bad(format!("invalid argument in geo near query: {other}")),
        }
    }
    for element in operand.siblings.iter().skip(1) {
        match element.name() {
            "$minDistance" => min = distance(element)?,
            "$maxDistance" => max = distance(element)?,
            "$uniqueDocs" => {}
            other => return bad(format!("invalid argument in geo near query: {other}")),
        }
    }
    if spherical && !from.is_on_earth() {
        return bad("Legacy point is out of bounds for spherical query");
    }
    let unit = if spherical { Unit::Radians } else { Unit::Flat };
    Ok(Near { from, unit, min, max })
}
