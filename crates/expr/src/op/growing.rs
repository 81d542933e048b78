//! `$reduce` with an accumulating value: array items, fields of a document, or text are added to
//! it. Such a value is kept in a mutable buffer, because building a new value at each step would
//! take quadratic time.
//!
//! The parser detects it by the form of the expression: `$concatArrays`, `$mergeObjects`, `$concat`
//! or `$setUnion` with `$$value` as the first operand, or for `$concatArrays` as the last, possibly
//! inside `$cond`. Any other use of `$$value` needs the value itself.

use std::collections::BTreeMap;

use mayfly_base::Result;
use mayfly_value::{
    Collation, DocBuf, DocBuilder, RawDoc, RawValue, SortOrder, ValueBuf, check_size,
};

use super::array::sequence::push_items;
use super::object::take_document;
use super::operand::{array, document, text};
use super::set::united;
use super::string::push_text;
use crate::accum::{Merged, encoded};
use crate::{Expression, Frame, Value};

/// How a value accumulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// Items are appended: `{ $concatArrays: ['$$value', ...] }`.
    Append,
    /// Items are prepended: `{ $concatArrays: [..., '$$value'] }`.
    Prepend,
    /// Fields are merged: `{ $mergeObjects: ['$$value', ...] }`.
    Fields,
    /// Text is appended: `{ $concat: ['$$value', ...] }`.
    Text,
    /// Items are added to a set: `{ $setUnion: ['$$value', ...] }`.
    Set,
}

impl Growth {
    /// How the expression accumulates into the variable with this index.
    pub(super) fn of(body: &Expression, place: usize) -> Option<Growth> {
        Growth::find(body, place)?
    }

    /// `Some(None)` where the expression returns the variable unchanged.
    fn find(body: &Expression, place: usize) -> Option<Option<Growth>> {
        if is_variable(body, place) {
            return Some(None);
        }
        let Expression::Call { row, arguments, .. } = body else { return None };
        if let ("$cond", [condition, then, otherwise]) = (row.name, &arguments[..]) {
            let (then, otherwise) = (Growth::find(then, place)?, Growth::find(otherwise, place)?);
            let one = then.is_none() || otherwise.is_none() || then == otherwise;
            return (one && !names(condition, place)).then_some(then.or(otherwise));
        }
        let (growth, others) = match (row.name, &arguments[..]) {
            ("$concatArrays", [first, others @ ..]) if is_variable(first, place) => {
                (Growth::Append, others)
            }
            ("$concatArrays", [others @ .., last]) if is_variable(last, place) => {
                (Growth::Prepend, others)
            }
            ("$mergeObjects", [first, others @ ..]) if is_variable(first, place) => {
                (Growth::Fields, others)
            }
            ("$concat", [first, others @ ..]) if is_variable(first, place) => {
                (Growth::Text, others)
            }
            ("$setUnion", [first, others @ ..]) if is_variable(first, place) => {
                (Growth::Set, others)
            }
            _ => return None,
        };
        let plain = !others.is_empty() && !others.iter().any(|other| names(other, place));
        plain.then_some(Some(growth))
    }
}

fn is_variable(expression: &Expression, variable: usize) -> bool {
    matches!(expression, Expression::Variable { place, parts } if *place == variable && parts.is_empty())
}

/// Whether an expression uses the variable; the depth was limited by the parser.
fn names(expression: &Expression, variable: usize) -> bool {
    match expression {
        Expression::Variable { place, .. } => *place == variable,
        other => other.children().into_iter().any(|child| names(child, variable)),
    }
}

/// An accumulating value.
pub(super) enum Growing {
    Append(DocBuilder),
    /// The initial array, the arrays prepended so far, and the total of bytes.
    Prepend(ValueBuf, Vec<DocBuf>, usize),
    Fields(Merged),
    Text(String),
    /// The items by their keys, and their bytes.
    Set(BTreeMap<Vec<u8>, ValueBuf>, usize),
}

impl Growing {
    /// The initial value in accumulating form; `None` if its type does not allow that.
    pub(super) fn begin(
        growth: Growth,
        value: &Value<'_>,
        collation: Option<&Collation>,
    ) -> Result<Option<Growing>> {
        Ok(Some(match (growth, value.or_undefined()) {
            (Growth::Append, RawValue::Array(items)) => {
                let mut out = DocBuilder::new_array();
                push_items(&mut out, items)?;
                Growing::Append(out)
            }
            (Growth::Prepend, whole @ RawValue::Array(items)) => {
                Growing::Prepend(whole.to_owned(), Vec::new(), items.as_bytes().len())
            }
            (Growth::Fields, RawValue::Document(fields)) => {
                let mut merged = Merged::default();
                merged.set_all(fields);
                Growing::Fields(merged)
            }
            (Growth::Text, RawValue::String(text)) => Growing::Text(text.to_owned()),
            (Growth::Set, RawValue::Array(items)) => {
                let mut set = Growing::Set(BTreeMap::new(), 0);
                set.unite(items, collation)?;
                set
            }
            _ => return Ok(None),
        }))
    }

    /// Performs one step; returns false when the value becomes null.
    ///
    /// # Errors
    /// Errors of the expression.
    pub(super) fn add(&mut self, body: &Expression, frame: Frame<'_>) -> Result<bool> {
        let Expression::Call { row, arguments, .. } = body else { return Ok(true) };
        if let ("$cond", [condition, then, otherwise]) = (row.name, &arguments[..]) {
            let holds = condition.evaluate(frame)?.is_true();
            return self.add(if holds { then } else { otherwise }, frame);
        }
        match self {
            Growing::Append(out) => {
                super::array::sequence::concat_into(out, &arguments[1..], frame)
            }
            Growing::Prepend(_, fronts, bytes) => {
                let mut out = DocBuilder::new_array();
                let own = &arguments[..arguments.len() - 1];
                let grows = super::array::sequence::concat_into(&mut out, own, frame)?;
                *bytes += out.len();
                check_size(*bytes)?;
                fronts.push(out.finish());
                Ok(grows)
            }
            Growing::Fields(merged) => {
                let values = evaluated(&arguments[1..], frame)?;
                for value in &values {
                    if let Some(fields) = take_document(value.or_undefined())? {
                        merged.set_all(fields);
                    }
                }
                check_size(merged.encoded_len())?;
                Ok(true)
            }
            Growing::Text(out) => {
                for argument in &arguments[1..] {
                    if !push_text(out, &argument.evaluate(frame)?)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Growing::Set(..) => {
                let values = evaluated(&arguments[1..], frame)?;
                let Some(arrays) = united(&values)? else { return Ok(false) };
                for items in arrays {
                    self.unite(items, frame.collation())?;
                }
                Ok(true)
            }
        }
    }

    fn unite(&mut self, items: RawDoc<'_>, collation: Option<&Collation>) -> Result<()> {
        let Growing::Set(set, bytes) = self else { return Ok(()) };
        for item in items.iter().map(|item| item.value()) {
            set.entry(encoded(item, SortOrder::Ascending, collation)).or_insert_with(|| {
                let value = item.to_owned();
                *bytes += value.data().len() + 2;
                value
            });
        }
        check_size(*bytes)
    }

    /// The final value.
    ///
    /// # Errors
    /// 10334 when it is too large, 16493 for a string that is.
    pub(super) fn finish(self) -> Result<Value<'static>> {
        match self {
            Growing::Append(out) => array(out),
            Growing::Prepend(beginning, fronts, _) => {
                let mut out = DocBuilder::new_array();
                for items in fronts.iter().rev() {
                    push_items(&mut out, items.as_doc())?;
                }
                let beginning = beginning.as_raw().as_array().unwrap_or(RawDoc::EMPTY);
                push_items(&mut out, beginning)?;
                array(out)
            }
            Growing::Fields(merged) => document(merged.build()),
            Growing::Text(out) => text(&out),
            Growing::Set(set, _) => {
                let mut out = DocBuilder::new_array();
                for item in set.values() {
                    out.push(item);
                }
                array(out)
            }
        }
    }
}

fn evaluated<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Vec<Value<'a>>> {
    arguments.iter().map(|argument| argument.evaluate(frame)).collect()
}

#[cfg(test)]
mod tests {
    use mayfly_value::extjson::{Style, parse_document, to_string};

    use crate::{Expression, Frame};

    /// The result of an expression, or its error.
    fn value(expression: &str) -> String {
        let spec = parse_document(&format!("{{e: {expression}}}")).unwrap();
        let parsed = Expression::parse(spec.as_doc().get("e").unwrap());
        let root = parse_document("{a: [3, 1, 2, 3, 1.0], n: null}").unwrap();
        let found = parsed.and_then(|parsed| {
            let value = parsed.evaluate(Frame::new(root.as_doc()))?.detached();
            let mut out = mayfly_value::DocBuilder::new();
            if let Some(value) = value.as_raw() {
                out.append("v", value);
            }
            Ok(to_string(out.finish().as_doc(), Style::Canonical))
        });
        found.unwrap_or_else(|error| format!("{} {}", error.code().0, error.message()))
    }

    /// The accumulating form gives the same result as the general one, which a `$let` around
    /// `$$value` forces.
    #[test]
    fn accumulated_values_equal_recomputed_ones() {
        let bodies = [
            "{$concatArrays: ['$$value', ['$$this']]}",
            "{$concatArrays: ['$$value', ['$$this'], ['x', '$$this']]}",
            "{$concatArrays: [['$$this'], '$$value']}",
            "{$concatArrays: [['$$this', 0], ['x'], '$$value']}",
            "{$concatArrays: ['$$value', '$n', ['$$this']]}",
            "{$concatArrays: [{$cond: [{$eq: ['$$this', 2]}, null, ['$$this']]}, '$$value']}",
            "{$concatArrays: ['$$value', {$cond: [{$eq: ['$$this', 2]}, null, ['$$this']]}]}",
            "{$concatArrays: ['$$value', '$$this']}",
            "{$concatArrays: ['$$value', '$$value']}",
            "{$concatArrays: ['$$value', ['$$value']]}",
            "{$cond: [{$eq: ['$$this', 3]}, {$concatArrays: ['$$value', ['$$this']]}, '$$value']}",
            "{$cond: [{$eq: ['$$this', 3]}, {$concatArrays: ['$$value', ['$$this']]}, {$concatArrays: [[0], '$$value']}]}",
            "{$cond: [{$in: ['$$this', '$$value']}, '$$value', {$concatArrays: ['$$value', ['$$this']]}]}",
            "{$mergeObjects: ['$$value', {$arrayToObject: [[['k', '$$this']]]}]}",
            "{$mergeObjects: ['$$value', {$arrayToObject: [[[{$toString: '$$this'}, '$$this']]]}, '$n']}",
            "{$mergeObjects: ['$$value', '$$this']}",
            "{$concat: ['$$value', {$toString: '$$this'}, '-']}",
            "{$concat: ['$$value', {$cond: [{$eq: ['$$this', 2]}, '$n', 'x']}]}",
            "{$concat: ['$$value', '$$this']}",
            "{$setUnion: ['$$value', ['$$this', 7.0, 7]]}",
            "{$setUnion: ['$$value', '$n']}",
            "{$setUnion: ['$$value', 5]}",
            "{$map: {input: ['$$this'], in: '$$value'}}",
        ];
        let beginnings =
            ["[]", "[2, 1]", "{}", "{k: 1, b: 2}", "''", "'x'", "null", "5", "'$missing'"];
        for body in bodies {
            for beginning in beginnings {
                for input in ["'$a'", "[]", "[[1], [2, 3], null, [4]]", "[{a: 1}, {b: 2, a: 3}]"] {
                    let reduce = |body: &str| {
                        value(&format!(
                            "{{$reduce: {{input: {input}, initialValue: {beginning}, in: {body}}}}}"
                        ))
                    };
                    let hidden = format!("{{$let: {{vars: {{}}, in: {body}}}}}");
                    assert_eq!(reduce(body), reduce(&hidden), "{body} of {beginning} over {input}");
                }
            }
        }
    }
}
