//! Converts filters to documents in the form of explain output: all conditions are explicit,
//! conjunctions are flat and in a fixed order.

use mayfly_value::paths::is_dollar_name;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::{CmpOp, Expr, InList, Predicate};

/// The order of operators within a conjunction.
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

impl Expr {
    /// The conditions of the outermost conjunction, one document each: `{a: {$eq: 1}}`, `{$or:
    /// [...]}`.
    pub fn conditions(&self) -> Vec<DocBuf> {
        let mut out = Vec::new();
        collect(self, &mut out);
        out.sort_by(|a, b| rank(a.as_doc()).cmp(&rank(b.as_doc())));
        out
    }

    /// The filter as one document.
    pub fn to_document(&self) -> DocBuf {
        joined(&self.conditions())
    }
}

/// Joins conditions into one document.
pub fn joined(conditions: &[DocBuf]) -> DocBuf {
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

/// The sort rank of a condition: by operator, then by path.
fn rank(condition: RawDoc<'_>) -> (usize, &str) {
    let Some((path, operator, _)) = condition_parts(condition) else { return (ORDER.len(), "") };
    let place = ORDER.iter().position(|known| *known == operator).unwrap_or(ORDER.len());
    (place, path)
}

/// Path, operator and operand of a condition; the path is empty for a top-level operator.
pub fn condition_parts(condition: RawDoc<'_>) -> Option<(&str, &str, RawValue<'_>)> {
    let first = condition.iter().next()?;
    if is_dollar_name(first.name()) {
        return Some(("", first.name(), first.value()));
    }
    let operator = first.value().as_document()?.iter().next()?;
    Some((first.name(), operator.name(), operator.value()))
}

fn collect(expr: &Expr, out: &mut Vec<DocBuf>) {
    match expr {
        Expr::And(parts) => parts.iter().for_each(|part| collect(part, out)),
        Expr::Path { path, predicate: Predicate::All(parts) } => {
            for predicate in parts {
                collect(&Expr::Path { path: path.clone(), predicate: predicate.clone() }, out);
            }
        }
        other => {
            let mut doc = DocBuilder::new();
            append(other, &mut doc);
            out.push(doc.finish());
        }
    }
}

/// Appends one condition.
fn append(expr: &Expr, out: &mut DocBuilder) {
    match expr {
        Expr::And(_) => {
            out.append_all(expr.to_document().as_doc());
        }
        Expr::Or(parts) | Expr::Nor(parts) => {
            out.start_array(if matches!(expr, Expr::Or(_)) { "$or" } else { "$nor" });
            for part in parts {
                out.push(&part.to_document());
            }
            out.end();
        }
        Expr::Path { path, predicate } => {
            append_operators(predicate, out.start_document(path.as_str()));
            out.end();
        }
        Expr::Document(test) => test.append_to(out),
        Expr::Always(holds) => {
            out.append(if *holds { "$alwaysTrue" } else { "$alwaysFalse" }, 1);
        }
    }
}

/// Appends the operators of a predicate, without the path.
fn append_operators(predicate: &Predicate, out: &mut DocBuilder) {
    match predicate {
        Predicate::Cmp { op, value, .. } => {
            out.append(op.name(), value);
        }
        Predicate::In(list) => match (list.values(), list.regexes()) {
            ([only], []) => {
                out.append("$eq", only);
            }
            _ => append_list(list, out),
        },
        Predicate::Exists => {
            out.append("$exists", true);
        }
        Predicate::Type(_, written) | Predicate::Bits(_, written) | Predicate::Geo(_, written) => {
            out.append_all(written.as_doc());
        }
        Predicate::Mod { divisor, remainder } => {
            out.start_array("$mod").push(short(*divisor)).push(short(*remainder)).end();
        }
        Predicate::Regex(regex) => {
            out.append("$regex", regex.pattern());
            if !regex.options().is_empty() {
                out.append("$options", regex.options());
            }
        }
        Predicate::Size(size) => {
            out.append("$size", short(*size));
        }
        Predicate::ElemMatchDocument(inner) => {
            out.append("$elemMatch", &inner.to_document());
        }
        Predicate::ElemMatchValue(parts) => {
            out.start_document("$elemMatch");
            parts.iter().for_each(|part| append_operators(part, out));
            out.end();
        }
        Predicate::Not(inner) => {
            out.start_document("$not");
            match &**inner {
                // The negated list of `$nin`.
                Predicate::In(list) => append_list(list, out),
                other => append_operators(other, out),
            }
            out.end();
        }
        Predicate::All(parts) => parts.iter().for_each(|part| append_operators(part, out)),
    }
}

fn append_list(list: &InList, out: &mut DocBuilder) {
    out.start_array("$in");
    for value in list.values() {
        out.push(value);
    }
    for regex in list.regexes() {
        out.push(RawValue::Regex { pattern: regex.pattern(), options: regex.options() });
    }
    out.end();
}

/// A whole number as an int if it fits.
fn short(number: i64) -> RawValue<'static> {
    i32::try_from(number).map_or(RawValue::Int64(number), RawValue::Int32)
}

impl CmpOp {
    /// The operator's name.
    pub fn name(self) -> &'static str {
        match self {
            CmpOp::Eq => "$eq",
            CmpOp::Lt => "$lt",
            CmpOp::Lte => "$lte",
            CmpOp::Gt => "$gt",
            CmpOp::Gte => "$gte",
        }
    }
}
