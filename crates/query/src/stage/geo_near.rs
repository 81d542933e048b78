//! `$geoNear`: documents by their distance from a point, which is added to each. Manual: "$geoNear
//! (aggregation stage)".
//!
//! The search is a query by distance at the start of the pipeline. The running stage adds the
//! distance to each document.

use mayfly_storage::ReadView;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::{Expression, Frame, Scope};
use mayfly_geo::{Crs, Pair, legacy_pair, query_geometry};
use mayfly_mql::matcher::{DistanceUnit, NearSearch};
use mayfly_mql::{Matcher, SortPattern};
use mayfly_storage::kinds::FieldKind;
use mayfly_storage::{Collection, Index};
use mayfly_value::arguments::{Argument, Fields, OwnCodes, error};
use mayfly_value::paths::check_field_path;
use mayfly_value::shell::ShellValue;
use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawValue, ValueBuf};

use super::sort::Sort;
use super::unwind::{parts, replaced};
use super::{Next, PipelineContext, Running, Stage, StageContext, Step};
use crate::exec::Flow;
use crate::exec::{near_metadata, nearest};
use crate::language::metadata;
use crate::language::metadata::{GEO_NEAR_DISTANCE, GEO_NEAR_POINT};

/// A parsed `$geoNear`.
#[derive(Debug)]
pub(crate) struct GeoNear {
    near: NearSearch,
    /// The geo field; by default that of the collection's only geo index.
    key: Option<String>,
    matcher: Matcher,
    multiplier: f64,
    /// The path that gets the distance.
    distance: Option<Vec<String>>,
    place: Option<Vec<String>>,
}

fn fault<T>(code: i32, text: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorCode(code), text))
}

/// The arguments. The reference checks `query` with the stage's other types, and `near` and the
/// distances by their values.
pub(crate) const ARGUMENTS: &[Argument] = &[
    Argument::any("near").required(),
    Argument::string("distanceField")
        .null_is_value()
        .refused_with(16606, "$geoNear requires a 'distanceField' option as a String"),
    Argument::string("includeLocs")
        .null_is_value()
        .refused_with(16607, "$geoNear requires that 'includeLocs' option is a String"),
    Argument::any("maxDistance"),
    Argument::any("minDistance"),
    Argument::any("distanceMultiplier"),
    Argument::document("query").null_is_value().mistyped("query must be an object"),
    Argument::any("spherical"),
    Argument::string("key")
        .null_is_value()
        .mistyped("$geoNear parameter 'key' must be of type string but found type: {}"),
    Argument::any("uniqueDocs"),
    Argument::any("$_requestReshardingResumeToken"),
    Argument::any("limit").removed(
        50858,
        "$geoNear no longer supports the 'limit' parameter. Use a $limit stage instead.",
    ),
    Argument::any("num").removed(
        50857,
        "$geoNear no longer supports the 'num' parameter. Use a $limit stage instead.",
    ),
    Argument::any("start").removed(50856, "$geoNear no longer supports the 'start' argument."),
];

pub(crate) const CODES: OwnCodes = OwnCodes {
    unknown: (2, "Unknown argument to $geoNear: {}"),
    missing: Some((5_860_400, "$geoNear requires a 'near' argument")),
};

/// Whether the stage with this operand adds no fields.
pub(crate) fn selects(operand: RawValue<'_>) -> bool {
    let adds = |options: RawDoc<'_>| {
        options.get("distanceField").is_some() || options.get("includeLocs").is_some()
    };
    !operand.as_document().is_some_and(adds)
}

pub(crate) fn parse(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    let RawValue::Document(options) = value else {
        return fault(10065, "invalid parameter: expected an object ($geoNear)");
    };
    let fields = Fields::read_with(options, "$geoNear", ARGUMENTS, CODES)?;
    let scope = context.scope;
    let distance =
        |name: &str| options.get(name).map(|value| distance(name, value, scope)).transpose();
    let path = |name: &str| fields.string(name)?.map(parts).transpose();
    let (from, unit) = point(options.get("near").unwrap_or(RawValue::Null), scope)?;
    let unit = match unit {
        DistanceUnit::Flat if options.get("spherical").is_some_and(is_true) => {
            DistanceUnit::Radians
        }
        unit => unit,
    };
    if unit == DistanceUnit::Radians && !from.is_on_earth() {
        return Err(Error::bad_value("Legacy point is out of bounds for spherical query"));
    }
    let min = distance("minDistance")?.unwrap_or(0.0);
    let max = distance("maxDistance")?.unwrap_or(f64::INFINITY);
    let query = fields.document("query")?.unwrap_or(RawDoc::EMPTY);
    Ok(Box::new(GeoNear {
        near: NearSearch { from, unit, min, max },
        key: fields.string("key")?.map(key).transpose()?,
        matcher: Matcher::parse_in(query, scope)?,
        multiplier: distance("distanceMultiplier")?.unwrap_or(1.0),
        distance: path("distanceField")?,
        place: path("includeLocs")?,
    }))
}

fn is_true(value: RawValue<'_>) -> bool {
    match value {
        RawValue::Bool(flag) => flag,
        RawValue::Null | RawValue::Undefined => false,
        value => Number::from_value(value).is_none_or(|number| number.to_f64() != 0.0),
    }
}

fn key(path: &str) -> Result<String> {
    if path.is_empty() {
        return Err(Error::bad_value("$geoNear parameter 'key' cannot be the empty string"));
    }
    check_field_path(path).map(|()| path.to_owned())
}

/// A distance: a number, or an expression that is constant.
fn distance(name: &str, value: RawValue<'_>, scope: &Scope) -> Result<f64> {
    let computed = match value {
        RawValue::Document(_) | RawValue::String(_) => {
            let expression = Expression::parse_in(value, scope)?;
            if !expression.dependencies().is_empty() {
                let text = format!("{name} must be constant");
                return Err(match name {
                    "minDistance" => Error::new(ErrorCode(7_555_701), text),
                    "maxDistance" => Error::new(ErrorCode(7_555_702), text),
                    _ => error::mistyped(text),
                });
            }
            expression.evaluate(Frame::new(RawDoc::EMPTY))?.or_undefined().to_owned()
        }
        value => value.to_owned(),
    };
    match Number::from_value(computed.as_raw()).map(Number::to_f64) {
        Some(number) if number >= 0.0 => Ok(number),
        Some(_) => Err(Error::bad_value(format!("{name} must be nonnegative"))),
        None => Err(error::mistyped(format!("{name} must be a number"))),
    }
}

/// The point: GeoJSON or a pair, as a constant or in a variable.
fn point(value: RawValue<'_>, scope: &Scope) -> Result<(Pair, DistanceUnit)> {
    let computed: ValueBuf = match value {
        RawValue::String(text) if text.starts_with("$$") => {
            let expression = Expression::parse_in(value, scope)?;
            expression.evaluate(Frame::new(RawDoc::EMPTY))?.or_undefined().to_owned()
        }
        value => value.to_owned(),
    };
    let value = computed.as_raw();
    match value {
        // GeoJSON; without a type it is a point.
        RawValue::Document(doc)
            if doc.get("type").is_some() || doc.get("coordinates").is_some() =>
        {
            let (shape, crs, _) = query_geometry(RawValue::Document(doc))?;
            match shape.pair().filter(|_| crs == Crs::Sphere) {
                Some(pair) => Ok((pair, DistanceUnit::Metres)),
                None => {
                    let shown = ShellValue(value);
                    Err(Error::bad_value(format!(
                        "invalid point provided to geo near query: {shown}"
                    )))
                }
            }
        }
        RawValue::Array(items) if items.iter().count() > 2 => {
            let shown = ShellValue(value);
            Err(Error::bad_value(format!("invalid point provided to geo near query: {shown}")))
        }
        RawValue::Document(_) | RawValue::Array(_) => Ok((legacy_pair(value)?, DistanceUnit::Flat)),
        other => {
            let kind = other.type_name();
            fault(
                5_860_401,
                format!("$geoNear requires an object or an array as 'near', but found {kind}"),
            )
        }
    }
}

impl GeoNear {
    /// Determines the geo field, and returns the query that finds the documents in their order.
    ///
    /// # Errors
    /// 27 IndexNotFound if no field was given and there is not exactly one geo index.
    pub(crate) fn query_over(
        &mut self,
        view: &ReadView,
        collection: &Collection,
    ) -> Result<Arc<Matcher>> {
        let key = match self.key.take() {
            Some(key) => key,
            None => only_place(view, collection)?,
        };
        let matcher = self.matcher.clone().by_distance(&key, self.near)?;
        self.key = Some(key);
        Ok(Arc::new(matcher))
    }
}

/// The field of the only geo index: of a 2d index, else of a 2dsphere index.
fn only_place(view: &ReadView, collection: &Collection) -> Result<String> {
    let indexes = collection.plannable_indexes(view.visible_indexes());
    let fail = |text: String| Err(Error::new(ErrorCode::IndexNotFound, text));
    let place = |index: &Arc<Index>, kind: FieldKind| {
        let field = index.spec.fields().iter().find(|field| field.kind == kind)?;
        Some(field.path.clone())
    };
    for (kind, name) in [(FieldKind::Plane, "2d"), (FieldKind::Sphere, "2dsphere")] {
        let shown = indexes.iter().filter(|index| !index.spec.hidden());
        let mut paths = shown.filter_map(|index| place(index, kind));
        match (paths.next(), paths.next()) {
            (Some(only), None) => return Ok(only),
            (Some(_), Some(_)) => {
                let ns = collection.namespace();
                return fail(format!(
                    "There is more than one {name} index on {}; unsure which to use for $geoNear",
                    ns.as_str()
                ));
            }
            (None, _) => {}
        }
    }
    fail("$geoNear requires a 2d or 2dsphere index, but none were found".to_owned())
}

/// The stages over a time series, where no geo index on measurements exists: one computes
/// distances, the other sorts by them.
///
/// # Errors
/// 5860206 without the option `key`.
pub(crate) fn over_measurements(stage: GeoNear, spec: RawDoc<'_>) -> Result<Vec<Step>> {
    if stage.key.is_none() {
        let text = "Must specify 'key' option for $geoNear on a time-series collection";
        return fault(5_860_206, text);
    }
    let Some(distance) = &stage.distance else {
        let text = "$geoNear over a time-series collection requires a 'distanceField'";
        return fault(16606, text);
    };
    let mut order = DocBuilder::new();
    order.append(&distance.join("."), 1);
    let order = Sort::by(SortPattern::parse(order.finish().as_doc())?);
    Ok(vec![Step::sent(Box::new(Distances(stage)), spec), Step::hidden(order)])
}

/// Computes the distance of each document, and drops documents outside of the limits.
struct RunningDistances(GeoNear);

/// The distance stage over a time series.
#[derive(Debug)]
pub(crate) struct Distances(GeoNear);

impl Stage for Distances {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningDistances(self.0))
    }

    fn gives_metadata(&self) -> &'static [&'static str] {
        metadata::GEO_NEAR
    }
}

impl Running for RunningDistances {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        let GeoNear { near, key, matcher, .. } = &self.0;
        let path = key.as_deref().unwrap_or_default();
        if !matcher.matches(document)? {
            return Ok(Flow::More);
        }
        match nearest(near, path, document)? {
            Some((found, at)) if near.min <= found && found <= near.max => {
                context.metadata.set(&near_metadata(found, at));
                self.0.show(document, found, at, next)
            }
            _ => Ok(Flow::More),
        }
    }
}

impl GeoNear {
    /// Passes on a document with its distance.
    fn show(
        &self,
        document: RawDoc<'_>,
        found: f64,
        at: RawValue<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        let distance = RawValue::Double(found * self.multiplier);
        let added = [(&self.distance, distance), (&self.place, at)];
        let mut out: Option<DocBuf> = None;
        for (path, value) in added {
            if let Some(path) = path {
                let before = out.as_ref().map_or(document, DocBuf::as_doc);
                out = Some(replaced(before, path, Some(value)));
            }
        }
        next(out.as_ref().map_or(document, DocBuf::as_doc))
    }
}

/// Adds the distance to each document.
struct RunningGeoNear(GeoNear);

impl Stage for GeoNear {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningGeoNear(*self))
    }

    fn gives_metadata(&self) -> &'static [&'static str] {
        metadata::GEO_NEAR
    }
}

impl Running for RunningGeoNear {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        // The search returned the distance as metadata.
        let noted = context.metadata.get();
        let of = |name| noted.as_doc().and_then(|noted| noted.get(name));
        let (Some(RawValue::Double(found)), Some(at)) = (of(GEO_NEAR_DISTANCE), of(GEO_NEAR_POINT))
        else {
            return Ok(Flow::More);
        };
        self.0.show(document, found, at, next)
    }
}
