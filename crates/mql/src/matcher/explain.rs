//! Explains why a document does not satisfy a filter, for `errInfo` of a failed validation.
//!
//! Uses the original filter: each clause is evaluated individually, which is slow and done only for
//! a document that has failed. Manual: "Specify Validation With Query Operators".

use mayfly_base::Result;
use mayfly_expr::{Expression, Frame, Value};
use mayfly_pattern::UnfinishedSearch;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawElement, RawValue};

use super::considered::Considered;
use super::link::is_link_field;
use super::schema::explain as explain_schema;
use super::{Matcher, ParseContext, is_operator_document};

/// The conditions of a valid filter that a document does not satisfy. The filter was parsed in this
/// context.
pub fn explain_failure(filter: RawDoc<'_>, document: RawDoc<'_>, context: &ParseContext) -> DocBuf {
    let mut out = DocBuilder::new();
    filter_fields(filter, Case { document, context }, ExpectedOutcome::Match, &mut out);
    out.finish()
}

/// A document, and the context in which conditions on it are parsed.
#[derive(Clone, Copy)]
struct Case<'a> {
    document: RawDoc<'a>,
    context: &'a ParseContext,
}

impl Case<'_> {
    /// The value of an expression.
    fn result(self, expression: RawValue<'_>) -> Result<Value<'static>> {
        let expression = Expression::parse_in(expression, &self.context.scope())?;
        expression.evaluate(Frame::new(self.document)).map(Value::detached)
    }
}

/// The outcome that a clause should have had.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExpectedOutcome {
    Match,
    NoMatch,
}

impl ExpectedOutcome {
    fn negated(self) -> ExpectedOutcome {
        match self {
            ExpectedOutcome::Match => ExpectedOutcome::NoMatch,
            ExpectedOutcome::NoMatch => ExpectedOutcome::Match,
        }
    }

    /// The field with the list of clauses.
    fn list(self) -> &'static str {
        match self {
            ExpectedOutcome::Match => "clausesNotSatisfied",
            ExpectedOutcome::NoMatch => "clausesSatisfied",
        }
    }

    /// Whether a clause had the wrong outcome, or an expression in it failed. A search that was not
    /// finished has no outcome.
    fn is_violated_by(self, clause: RawDoc<'_>, case: Case<'_>) -> bool {
        let parsed = Matcher::parse(clause, case.context);
        match parsed.and_then(|parsed| parsed.matches(case.document)) {
            Ok(matched) => matched != (self == ExpectedOutcome::Match),
            Err(error) => error.code() != UnfinishedSearch::CODE,
        }
    }
}

/// Splits a filter into filters with one condition each.
fn clauses(filter: RawDoc<'_>) -> Vec<DocBuf> {
    let mut clauses = Vec::new();
    let mut add = |element: RawElement<'_>| {
        let mut clause = DocBuilder::new();
        clause.append_element(element);
        clauses.push(clause.finish());
    };
    for element in filter {
        match element.value() {
            _ if element.name() == "$comment" => {}
            RawValue::Document(operators)
                if !element.name().starts_with('$') && is_operator_document(operators) =>
            {
                for operator in operators.iter().filter(|operator| operator.name() != "$options") {
                    let mut clause = DocBuilder::new();
                    clause.start_document(element.name()).append_element(operator);
                    if let ("$regex", Some(options)) =
                        (operator.name(), operators.get_element("$options"))
                    {
                        clause.append_element(options);
                    }
                    clause.end();
                    clause.finish().as_doc().iter().for_each(&mut add);
                }
            }
            _ => add(element),
        }
    }
    clauses
}

fn filter_fields(
    filter: RawDoc<'_>,
    case: Case<'_>,
    expected: ExpectedOutcome,
    out: &mut DocBuilder,
) {
    let clauses = clauses(filter);
    match clauses.as_slice() {
        [only] => clause_fields(only.as_doc(), case, expected, out),
        several => {
            out.append("operatorName", "$and");
            list(several.iter().map(DocBuf::as_doc), case, expected, out);
        }
    }
}

/// Lists the clauses with the wrong outcome.
fn list<'c>(
    clauses: impl Iterator<Item = RawDoc<'c>>,
    case: Case<'_>,
    expected: ExpectedOutcome,
    out: &mut DocBuilder,
) {
    out.start_array(expected.list());
    for (at, clause) in clauses.enumerate() {
        if expected.is_violated_by(clause, case) {
            out.push_document().append("index", at as i32).start_document("details");
            filter_fields(clause, case, expected, out);
            out.end().end();
        }
    }
    out.end();
}

fn clause_fields(
    clause: RawDoc<'_>,
    case: Case<'_>,
    expected: ExpectedOutcome,
    out: &mut DocBuilder,
) {
    let Some(element) = clause.iter().next() else { return };
    match (element.name(), element.value()) {
        (name @ ("$and" | "$or" | "$nor"), RawValue::Array(items)) => {
            let expected = if name == "$nor" { expected.negated() } else { expected };
            out.append("operatorName", name);
            let items = items.iter().filter_map(|item| item.value().as_document());
            list(items, case, expected, out);
        }
        ("$jsonSchema", RawValue::Document(schema)) if expected == ExpectedOutcome::Match => {
            explain_schema::explain(schema, case.document, out);
        }
        ("$jsonSchema", RawValue::Document(schema)) => explain_schema::explain_match(schema, out),
        (name, _) if is_link_field(name) => field(name, "$eq", clause, case, expected, out),
        (name, _) if name.starts_with('$') => whole(element, case, expected, out),
        (path, RawValue::Document(operators)) if is_operator_document(operators) => {
            let Some(operator) = operators.iter().next() else { return };
            if operator.name() == "$not" {
                out.append("operatorName", "$not").start_document("details");
                let mut inner = DocBuilder::new();
                inner.append_renamed(path.as_bytes(), operator);
                filter_fields(inner.finish().as_doc(), case, expected.negated(), out);
                out.end();
                return;
            }
            field(path, operator.name(), clause, case, expected, out);
        }
        (path, RawValue::Regex { .. }) => field(path, "$regex", clause, case, expected, out),
        (path, _) => field(path, "$eq", clause, case, expected, out),
    }
}

/// `$expr` and other operators on the whole document.
fn whole(element: RawElement<'_>, case: Case<'_>, expected: ExpectedOutcome, out: &mut DocBuilder) {
    out.append("operatorName", element.name());
    out.start_document("specifiedAs").append_element(element).end();
    let matched = expected == ExpectedOutcome::NoMatch;
    let reason = match (element.name(), matched) {
        ("$expr" | "$sampleRate", false) => "expression did not match",
        ("$expr" | "$sampleRate", true) => "expression did match",
        (_, false) => "expression always evaluates to false",
        (_, true) => "expression always evaluates to true",
    };
    match (element.name(), case.result(element.value())) {
        ("$expr", Err(error)) => {
            out.append("reason", "failed to evaluate aggregation expression");
            out.start_document("details").append("code", error.code().0);
            out.append("codeName", error.code().name().as_ref());
            out.append("errmsg", error.message()).end();
        }
        ("$expr", Ok(result)) => {
            out.append("reason", reason);
            if let Some(result) = result.as_raw() {
                out.append("expressionResult", result);
            }
        }
        ("$sampleRate", _) => {
            out.append("reason", reason).append("expressionResult", matched);
        }
        _ => {
            out.append("reason", reason);
        }
    }
}

fn field(
    path: &str,
    operator: &str,
    clause: RawDoc<'_>,
    case: Case<'_>,
    expected: ExpectedOutcome,
    out: &mut DocBuilder,
) {
    out.append("operatorName", operator).append("specifiedAs", clause);
    if operator == "$exists" {
        out.append("reason", reason(operator, clause, path, expected));
        return;
    }
    if operator == "$all" && is_empty_array(clause, path, operator) {
        out.append("reason", "expression always evaluates to false");
        return;
    }
    match Considered::at(path, operator, case.document) {
        None => {
            out.append("reason", "field was missing");
        }
        Some(considered) => {
            if !considered.append_mismatch(operator, out) {
                let unplaced = is_area(operator) && !considered.has_geometry(path, case.document);
                let reason = match unplaced {
                    true => "could not find a valid geometry at the given path",
                    false => reason(operator, clause, path, expected),
                };
                out.append("reason", reason);
            }
            considered.append(operator, out);
        }
    }
}

fn is_empty_array(clause: RawDoc<'_>, path: &str, operator: &str) -> bool {
    let operators = clause.get(path).and_then(RawValue::as_document);
    let operand = operators.and_then(|operators| operators.get(operator));
    operand.and_then(RawValue::as_array).is_some_and(RawDoc::is_empty)
}

fn is_area(operator: &str) -> bool {
    matches!(operator, "$geoWithin" | "$within" | "$geoIntersects")
}

fn reason(
    operator: &str,
    clause: RawDoc<'_>,
    path: &str,
    expected: ExpectedOutcome,
) -> &'static str {
    let negative = matches!(operator, "$ne" | "$nin")
        || operator == "$exists" && {
            let operators = clause.get(path).and_then(RawValue::as_document);
            let operand = operators.and_then(|operators| operators.get("$exists"));
            matches!(operand, Some(RawValue::Bool(false) | RawValue::Int32(0) | RawValue::Int64(0)))
                || operand == Some(RawValue::Double(0.0))
        };
    let matched = (expected == ExpectedOutcome::NoMatch) != negative;
    let (failed, succeeded) = match operator {
        "$in" | "$nin" => ("no matching value found in array", "matching value found in array"),
        "$exists" => ("path does not exist", "path does exist"),
        "$type" => ("type did not match", "type did match"),
        "$mod" => (
            "$mod did not evaluate to expected remainder",
            "$mod did evaluate to expected remainder",
        ),
        "$regex" => ("regular expression did not match", "regular expression did match"),
        "$size" => {
            ("array length was not equal to given size", "array length was equal to given size")
        }
        "$elemMatch" => {
            ("array did not satisfy the child predicate", "array did satisfy the child predicate")
        }
        "$all" => {
            ("array did not contain all specified values", "array did contain all specified values")
        }
        "$geoWithin" | "$within" => (
            "none of the considered geometries were contained within the expression’s geometry",
            "at least one of considered geometries was contained within the expression’s geometry",
        ),
        "$geoIntersects" => (
            "none of the considered geometries intersected the expression’s geometry",
            "at least one of considered geometries intersected the expression’s geometry",
        ),
        "$bitsAllSet" | "$bitsAllClear" | "$bitsAnySet" | "$bitsAnyClear" => {
            ("bitwise operator failed to match", "bitwise operator matched successfully")
        }
        _ => ("comparison failed", "comparison succeeded"),
    };
    if matched { succeeded } else { failed }
}
