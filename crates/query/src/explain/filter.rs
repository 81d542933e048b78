//! A filter in the form in which plans are explained: every condition spelled out, conjunctions flat and in a fixed
//! order.
//!
//! Works on the filter as it was sent, after it was parsed and found good, so that it knows nothing of most operators.

use mayfly_mql::matcher::is_operator_document;
use mayfly_value::paths::{LINK_FIELDS, is_dollar_name};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, compare_values};

/// The conditions of the outermost conjunction: `{a: {$eq: 1}}`, `{$or: [...]}`.
pub(super) fn conditions(filter: RawDoc<'_>) -> Vec<DocBuf> {
    let mut out = Vec::new();
    collect(filter, &mut out);
    out.sort_by(|a, b| rank(a.as_doc()).cmp(&rank(b.as_doc())));
    out
}

/// Conditions as one document.
pub(super) fn joined(conditions: &[DocBuf]) -> DocBuf {
    match conditions {
        [] => DocBuf::empty(),
        [only] => only.clone(),
        many => {
            let mut doc = DocBuilder::new();
            doc.start_array("$and");
            for condition in many {
                doc.push(condition);
            }
            doc.end();
            doc.finish()
        }
    }
}

/// The whole filter in that form.
pub(super) fn normalized(filter: RawDoc<'_>) -> DocBuf {
    joined(&conditions(filter))
}

fn collect(filter: RawDoc<'_>, out: &mut Vec<DocBuf>) {
    for element in filter.iter() {
        match (element.name(), element.value()) {
            ("$comment", _) => {}
            ("$and", RawValue::Array(parts)) => {
                parts.iter().filter_map(|part| part.value().as_document()).for_each(|part| {
                    collect(part, out);
                });
            }
            (name @ ("$or" | "$nor"), RawValue::Array(parts)) => {
                let parts: Vec<DocBuf> = parts
                    .iter()
                    .filter_map(|part| part.value().as_document())
                    .map(normalized)
                    .collect();
                if let ("$or", [only]) = (name, parts.as_slice()) {
                    collect(only.as_doc(), out);
                    continue;
                }
                let mut doc = DocBuilder::new();
                doc.start_array(name);
                for part in &parts {
                    doc.push(part);
                }
                doc.end();
                out.push(doc.finish());
            }
            // A script is shown as code, however it was sent.
            (name @ "$where", RawValue::String(source)) => {
                let mut doc = DocBuilder::new();
                doc.append(name, RawValue::Code(source));
                out.push(doc.finish());
            }
            (name, value) if LINK_FIELDS.contains(&name) => out.push(single(name, "$eq", value)),
            (name, value) if name.starts_with('$') => {
                let mut doc = DocBuilder::new();
                doc.append(name, value);
                out.push(doc.finish());
            }
            (path, RawValue::Document(operators)) if is_operator_document(operators) => {
                for operator in operators.iter() {
                    predicates(path, operator.name(), operator.value(), operators, out);
                }
            }
            (path, RawValue::Regex { pattern, options }) => {
                out.push(of(path, &regex(pattern, options)));
            }
            (path, value) => out.push(single(path, "$eq", value)),
        }
    }
}

/// `{path: inner}`.
fn of(path: &str, inner: &DocBuf) -> DocBuf {
    let mut doc = DocBuilder::new();
    doc.append(path, inner);
    doc.finish()
}

/// `{path: {operator: value}}`.
fn single<'v>(path: &str, operator: &str, value: impl Into<RawValue<'v>>) -> DocBuf {
    let mut doc = DocBuilder::new();
    doc.start_document(path).append(operator, value).end();
    doc.finish()
}

/// `{path: {$not: {operator: value}}}`.
fn negated<'v>(path: &str, operator: &str, value: impl Into<RawValue<'v>>) -> DocBuf {
    let mut doc = DocBuilder::new();
    doc.start_document(path).start_document("$not").append(operator, value).end().end();
    doc.finish()
}

fn regex(pattern: &str, options: &str) -> DocBuf {
    let mut doc = DocBuilder::new();
    doc.append("$regex", pattern);
    if !options.is_empty() {
        doc.append("$options", options);
    }
    doc.finish()
}

/// One operator of `{path: {op: value, ...}}`.
fn predicates(
    path: &str,
    operator: &str,
    value: RawValue<'_>,
    all: RawDoc<'_>,
    out: &mut Vec<DocBuf>,
) {
    match (operator, value) {
        ("$options" | "$maxDistance" | "$minDistance", _) => {}
        // With the limits that stand behind it.
        ("$near" | "$nearSphere", _) => {
            let mut doc = DocBuilder::new();
            doc.append(path, all);
            out.push(doc.finish());
        }
        ("$ne", value) => out.push(negated(path, "$eq", value)),
        ("$nin", RawValue::Array(list)) => {
            out.push(negated(path, "$in", RawValue::Array(sorted(list).as_doc())));
        }
        ("$in", RawValue::Array(list)) => {
            let list = sorted(list);
            let mut items = list.as_doc().iter();
            match (items.next(), items.next()) {
                (Some(only), None) if !matches!(only.value(), RawValue::Regex { .. }) => {
                    out.push(single(path, "$eq", only.value()));
                }
                _ => out.push(single(path, "$in", RawValue::Array(list.as_doc()))),
            }
        }
        ("$all", RawValue::Array(list)) => {
            for item in list.iter() {
                let mut one = DocBuilder::new();
                one.append(path, item.value());
                collect(one.finish().as_doc(), out);
            }
        }
        ("$exists", value) => {
            let wanted = match value {
                RawValue::Bool(flag) => flag,
                RawValue::Null => false,
                number => !matches!(
                    number,
                    RawValue::Int32(0) | RawValue::Int64(0) | RawValue::Double(0.0)
                ),
            };
            out.push(match wanted {
                true => single(path, "$exists", true),
                false => negated(path, "$exists", true),
            });
        }
        ("$regex", RawValue::String(pattern)) => {
            let options = all.get("$options").and_then(RawValue::as_str).unwrap_or_default();
            out.push(of(path, &regex(pattern, options)));
        }
        ("$regex", RawValue::Regex { pattern, options }) => {
            let options = all.get("$options").and_then(RawValue::as_str).unwrap_or(options);
            out.push(of(path, &regex(pattern, options)));
        }
        ("$not", RawValue::Regex { pattern, options }) => {
            out.push(single(path, "$not", &regex(pattern, options)));
        }
        (operator, value) => out.push(single(path, operator, value)),
    }
}

/// The items in comparison order, each once.
fn sorted(list: RawDoc<'_>) -> DocBuf {
    let mut items: Vec<RawValue<'_>> = list.iter().map(|item| item.value()).collect();
    items.sort_by(|a, b| compare_values(*a, *b));
    items.dedup_by(|a, b| compare_values(*a, *b).is_eq());
    let mut out = DocBuilder::new_array();
    for item in items {
        out.push(item);
    }
    out.finish()
}

/// Operators in the order in which a conjunction lists its parts.
const ORDER: &[&str] = &[
    "$and",
    "$or",
    "$elemMatch",
    "$size",
    "$eq",
    "$lte",
    "$lt",
    "$gt",
    "$gte",
    "$regex",
    "$mod",
    "$exists",
    "$in",
    "$bitsAllSet",
    "$bitsAllClear",
    "$bitsAnySet",
    "$bitsAnyClear",
    "$not",
    "$nor",
    "$type",
];

/// Where a condition stands: by operator, then by path.
fn rank(condition: RawDoc<'_>) -> (usize, &str) {
    let Some((path, operator, _)) = parts(condition) else { return (ORDER.len(), "") };
    let place = ORDER.iter().position(|known| *known == operator).unwrap_or(ORDER.len());
    (place, path)
}

/// Path, operator and operand of a condition; the path is empty where the operator stands at the top.
pub(super) fn parts(condition: RawDoc<'_>) -> Option<(&str, &str, RawValue<'_>)> {
    let first = condition.iter().next()?;
    if is_dollar_name(first.name()) {
        return Some(("", first.name(), first.value()));
    }
    let operator = first.value().as_document()?.iter().next()?;
    Some((first.name(), operator.name(), operator.value()))
}

/// A filter without its values: queries of one shape differ in nothing else.
pub(super) fn shape(conditions: &[DocBuf]) -> String {
    let mut out = String::new();
    for condition in conditions {
        append_shape(condition.as_doc(), &mut out);
    }
    out
}

fn append_shape(doc: RawDoc<'_>, out: &mut String) {
    for element in doc.iter() {
        out.push_str(element.name());
        out.push(' ');
        match (element.name(), element.value()) {
            ("$or" | "$nor" | "$and", RawValue::Array(parts)) => {
                for part in parts.iter().filter_map(|part| part.value().as_document()) {
                    out.push('(');
                    append_shape(part, out);
                    out.push(')');
                }
            }
            (name, RawValue::Document(inner)) if !is_dollar_name(name) || name == "$not" => {
                append_shape(inner, out);
            }
            _ => {}
        }
    }
}
