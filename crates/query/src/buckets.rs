//! What a query on measurements says about their buckets.
//!
//! ```text
//! measurement                        bucket
//! meta.x: anything                   meta.x: the same
//! time >= a                          control.max.time >= a, control.min.time > a - span
//! time <= b                          control.min.time <= b
//! value <= v                         control.min.value not > v
//! value >= v                         control.max.value not < v
//! ```
//!
//! The order of smallest and largest goes across types, comparisons of the language do not: hence the negations, which hold for
//! other types, too. A closer look than theirs is taken at each bucket ([`BoundTest`]).
//!
//! All of it may let buckets through that hold nothing; it never holds one back that does. The whole filter is evaluated on
//! every measurement.

use std::collections::HashSet;

use mayfly_storage::{BucketView, MeasurementFields};
use mayfly_value::{
    DocBuf, DocBuilder, RawDoc, RawValue, ValueBuf, canonical_type, compare_values,
};

/// Filters are looked into so deep; what is deeper says nothing.
const MAX_DEPTH: usize = 16;

/// A comparison that a measurement must pass, for a look at the bounds of its bucket.
#[derive(Clone, Debug)]
pub(crate) struct BoundTest {
    field: String,
    comparison: Comparison,
    value: ValueBuf,
}

#[derive(Clone, Copy, Debug)]
enum Comparison {
    Equal,
    Less { equal: bool },
    Greater { equal: bool },
}

impl BoundTest {
    /// Whether some measurement of the bucket may pass.
    pub(crate) fn may_hold(&self, bucket: BucketView<'_>) -> bool {
        let Some((min, max)) = bucket.bounds(&self.field) else { return false };
        let value = self.value.as_raw();
        let alike = |bound: RawValue<'_>| {
            canonical_type(bound.type_byte()) == canonical_type(value.type_byte())
        };
        // Values of other types lie between: arrays match by their elements, NaN compares in its own way.
        if !alike(min) || !alike(max) {
            return true;
        }
        let (low, high) = (compare_values(min, value), compare_values(max, value));
        match self.comparison {
            Comparison::Equal => low.is_le() && high.is_ge(),
            Comparison::Less { equal } => low.is_lt() || equal && low.is_le(),
            Comparison::Greater { equal } => high.is_gt() || equal && high.is_ge(),
        }
    }
}

/// What a filter on measurements says.
#[derive(Default)]
pub(crate) struct OnBuckets {
    /// Filters on buckets, all of which hold.
    clauses: Vec<DocBuf>,
    /// Looks at bounds.
    pub(crate) tests: Vec<BoundTest>,
}

impl OnBuckets {
    /// Reads a filter that the parser has accepted.
    pub(crate) fn of(filter: RawDoc<'_>, fields: &MeasurementFields, span_ms: i64) -> OnBuckets {
        let mut found = OnBuckets::default();
        found.read(filter, fields, span_ms, 0);
        found
    }

    /// The filter on buckets; nothing when all may hold something.
    pub(crate) fn filter(&self) -> Option<DocBuf> {
        if self.clauses.is_empty() {
            return None;
        }
        let mut out = DocBuilder::new();
        out.start_array("$and");
        for clause in &self.clauses {
            out.push(clause);
        }
        out.end();
        Some(out.finish())
    }

    fn read(&mut self, filter: RawDoc<'_>, fields: &MeasurementFields, span_ms: i64, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        for element in filter {
            let (name, value) = (element.name(), element.value());
            match value {
                RawValue::Array(parts) if name == "$and" => {
                    for part in parts.iter().filter_map(|part| part.value().as_document()) {
                        self.read(part, fields, span_ms, depth + 1);
                    }
                }
                RawValue::Array(parts) if name == "$or" => {
                    self.read_or(parts, fields, span_ms, depth);
                }
                RawValue::Array(parts) if name == "$nor" && only_meta(parts, fields, depth) => {
                    let mut whole = DocBuilder::new();
                    whole.append_element(element);
                    let whole = whole.finish();
                    self.clauses.push(fields.filter_on_bucket_meta(whole.as_doc()));
                }
                _ if name.starts_with('$') => {}
                _ if name == fields.time => self.read_time(value, fields, span_ms),
                _ => match fields.on_bucket_meta(name) {
                    Some(path) => {
                        let mut clause = DocBuilder::new();
                        clause.append_renamed(path.as_bytes(), element);
                        self.clauses.push(clause.finish());
                    }
                    None if !name.contains('.') => self.read_value(name, value),
                    None => {}
                },
            }
        }
    }

    /// One of several: something only when each says something.
    fn read_or(
        &mut self,
        parts: RawDoc<'_>,
        fields: &MeasurementFields,
        span_ms: i64,
        depth: usize,
    ) {
        let mut out = DocBuilder::new();
        out.start_array("$or");
        for part in parts {
            let mut found = OnBuckets::default();
            if let Some(part) = part.value().as_document() {
                found.read(part, fields, span_ms, depth + 1);
            }
            let Some(filter) = found.filter() else { return };
            out.push(&filter);
        }
        out.end();
        self.clauses.push(out.finish());
    }

    fn read_time(&mut self, value: RawValue<'_>, fields: &MeasurementFields, span_ms: i64) {
        let mut add = |operator: &str, date: i64| {
            let mut clause = DocBuilder::new();
            let side = |side| format!("control.{side}.{}", fields.time);
            if matches!(operator, "$gt" | "$gte" | "$eq") {
                let greater = if operator == "$gt" { "$gt" } else { "$gte" };
                clause.start_document(&side("max")).append(greater, RawValue::Date(date)).end();
            }
            clause.start_document(&side("min"));
            if let ("$gt" | "$gte" | "$eq", Some(first)) = (operator, date.checked_sub(span_ms)) {
                clause.append("$gt", RawValue::Date(first));
            } else if !matches!(operator, "$eq" | "$lt" | "$lte") {
                clause.append("$exists", true);
            }
            if matches!(operator, "$lt" | "$lte" | "$eq") {
                let less = if operator == "$lt" { "$lt" } else { "$lte" };
                clause.append(less, RawValue::Date(date));
            }
            clause.end();
            self.clauses.push(clause.finish());
        };
        match value {
            RawValue::Date(date) => add("$eq", date),
            RawValue::Document(operators) => {
                for operator in operators {
                    let RawValue::Date(date) = operator.value() else { continue };
                    if let name @ ("$eq" | "$gt" | "$gte" | "$lt" | "$lte") = operator.name() {
                        add(name, date);
                    }
                }
            }
            _ => {}
        }
    }

    fn read_value(&mut self, field: &str, value: RawValue<'_>) {
        let mut add = |comparison, value: RawValue<'_>| {
            if is_plain(value) {
                self.clauses.extend(clause_on_bounds(field, comparison, value));
                let value = value.to_owned();
                self.tests.push(BoundTest { field: field.to_owned(), comparison, value });
            }
        };
        match value {
            RawValue::Document(operators) => {
                for operator in operators {
                    let comparison = match operator.name() {
                        "$eq" => Comparison::Equal,
                        "$lt" => Comparison::Less { equal: false },
                        "$lte" => Comparison::Less { equal: true },
                        "$gt" => Comparison::Greater { equal: false },
                        "$gte" => Comparison::Greater { equal: true },
                        _ => continue,
                    };
                    add(comparison, operator.value());
                }
            }
            other => add(Comparison::Equal, other),
        }
    }
}

/// A comparison as a filter on the bounds of buckets.
fn clause_on_bounds(field: &str, comparison: Comparison, value: RawValue<'_>) -> Option<DocBuf> {
    if field.is_empty() {
        return None;
    }
    // What rules a bucket out: its smallest value, its largest one.
    let (smallest, largest) = match comparison {
        Comparison::Equal => (Some("$gt"), Some("$lt")),
        Comparison::Less { equal } => (Some(if equal { "$gt" } else { "$gte" }), None),
        Comparison::Greater { equal } => (None, Some(if equal { "$lt" } else { "$lte" })),
    };
    let mut clause = DocBuilder::new();
    for (side, outside) in [("min", smallest), ("max", largest)] {
        let Some(outside) = outside else { continue };
        clause.start_document(&format!("control.{side}.{field}")).start_document("$not");
        clause.append(outside, value).end().end();
    }
    Some(clause.finish())
}

/// Values whose order is all that matters: no collation, no elements, no NaN.
fn is_plain(value: RawValue<'_>) -> bool {
    match value {
        RawValue::Double(number) => !number.is_nan(),
        RawValue::Int32(_) | RawValue::Int64(_) | RawValue::Date(_) | RawValue::ObjectId(_) => true,
        _ => false,
    }
}

/// Whether filters ask about nothing but the meta field.
fn only_meta(filters: RawDoc<'_>, fields: &MeasurementFields, depth: usize) -> bool {
    depth <= MAX_DEPTH
        && filters.iter().all(|filter| {
            filter.value().as_document().is_some_and(|filter| {
                filter.iter().all(|element| match (element.name(), element.value()) {
                    ("$and" | "$or" | "$nor", RawValue::Array(parts)) => {
                        only_meta(parts, fields, depth + 1)
                    }
                    (name, _) => fields.on_bucket_meta(name).is_some(),
                })
            })
        })
}

/// The top-level fields that stages look at; nothing when that may be any.
pub(crate) fn wanted_fields<'p>(
    stages: impl Iterator<Item = RawDoc<'p>>,
) -> Option<HashSet<String>> {
    let mut wanted = HashSet::new();
    for stage in stages {
        let operator = stage.iter().next()?;
        match (operator.name(), operator.value()) {
            ("$match", RawValue::Document(filter)) => match_fields(filter, &mut wanted, 0)?,
            ("$sort", RawValue::Document(sort)) => {
                for field in sort {
                    if !field.value().is_number() {
                        return None;
                    }
                    wanted.insert(top(field.name()).to_owned());
                }
            }
            ("$limit" | "$skip" | "$unset", _) => {}
            ("$unwind", RawValue::String(path)) => {
                wanted.insert(top(path.strip_prefix('$')?).to_owned());
            }
            ("$unwind", RawValue::Document(spec)) => {
                let path = spec.get("path")?.as_str()?.strip_prefix('$')?;
                wanted.insert(top(path).to_owned());
            }
            ("$addFields" | "$set", RawValue::Document(fields)) => {
                for field in fields {
                    // A path below it goes through what is there.
                    wanted.insert(top(field.name()).to_owned());
                    expression_fields(field.value(), &mut wanted, 0)?;
                }
            }
            ("$lookup", RawValue::Document(spec)) => {
                for name in ["localField", "as"] {
                    wanted.extend(
                        spec.get(name).and_then(RawValue::as_str).map(top).map(str::to_owned),
                    );
                }
                // Its pipeline knows this document by these only.
                if let Some(variables) = spec.get("let") {
                    expression_fields(variables, &mut wanted, 0)?;
                }
            }
            ("$setWindowFields", RawValue::Document(spec)) => {
                for option in spec {
                    match (option.name(), option.value()) {
                        ("sortBy", RawValue::Document(sort)) => {
                            if !sort.iter().all(|by| by.value().is_number()) {
                                return None;
                            }
                            wanted.extend(sort.iter().map(|by| top(by.name()).to_owned()));
                        }
                        ("output", RawValue::Document(fields)) => {
                            for field in fields {
                                wanted.insert(top(field.name()).to_owned());
                                expression_fields(field.value(), &mut wanted, 0)?;
                            }
                        }
                        (_, value) => expression_fields(value, &mut wanted, 0)?,
                    }
                }
            }
            ("$count", _) => return Some(wanted),
            ("$group" | "$sortByCount", spec) => {
                expression_fields(spec, &mut wanted, 0)?;
                return Some(wanted);
            }
            ("$project", RawValue::Document(spec)) => {
                project_fields(spec, &mut wanted)?;
                return Some(wanted);
            }
            _ => return None,
        }
    }
    None
}

fn top(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

fn match_fields(filter: RawDoc<'_>, wanted: &mut HashSet<String>, depth: usize) -> Option<()> {
    for element in filter {
        match (element.name(), element.value()) {
            ("$and" | "$or" | "$nor", RawValue::Array(parts)) if depth < MAX_DEPTH => {
                for part in parts {
                    match_fields(part.value().as_document()?, wanted, depth + 1)?;
                }
            }
            (name, _) if name.starts_with('$') => return None,
            (name, _) => {
                wanted.insert(top(name).to_owned());
            }
        }
    }
    Some(())
}

/// Fields that an expression names. Operators that name them in other ways than by `$path` end the search.
fn expression_fields(
    value: RawValue<'_>,
    wanted: &mut HashSet<String>,
    depth: usize,
) -> Option<()> {
    match value {
        _ if depth > MAX_DEPTH => None,
        RawValue::String(text) if text.starts_with("$$") => None,
        RawValue::String(text) => {
            if let Some(path) = text.strip_prefix('$') {
                wanted.insert(top(path).to_owned());
            }
            Some(())
        }
        RawValue::Document(inner) | RawValue::Array(inner) => {
            inner.iter().try_for_each(|element| {
                let elsewhere = [
                    "$getField",
                    "$setField",
                    "$unsetField",
                    "$function",
                    "$accumulator",
                    "$meta",
                    "sortBy",
                ];
                if elsewhere.contains(&element.name()) {
                    return None;
                }
                expression_fields(element.value(), wanted, depth + 1)
            })
        }
        _ => Some(()),
    }
}

/// Fields of a projection that includes.
fn project_fields(spec: RawDoc<'_>, wanted: &mut HashSet<String>) -> Option<()> {
    let mut id = true;
    for field in spec {
        let (name, value) = (field.name(), field.value());
        let included = match value {
            RawValue::Bool(included) => included,
            RawValue::Int32(number) => number != 0,
            RawValue::Double(number) => number != 0.0,
            RawValue::String(_) => {
                expression_fields(value, wanted, 0)?;
                true
            }
            _ => return None,
        };
        match (name, included) {
            ("_id", false) => id = false,
            (_, false) => return None,
            (name, true) => {
                wanted.insert(top(name).to_owned());
            }
        }
    }
    if id {
        wanted.insert("_id".to_owned());
    }
    // With nothing but `_id: 0` everything else stays.
    (spec.iter().any(|field| field.name() != "_id") || id).then_some(())
}
