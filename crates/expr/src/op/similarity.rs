//! `$similarityCosine`, `$similarityDotProduct`, `$similarityEuclidean`: the similarity of two
//! vectors, which are arrays of numbers or binary vectors.
//!
//! ```text
//! binary vector, subtype 9: type (3 signed bytes, 0x27 floats), padding, numbers in little endian
//! ```

use mayfly_base::{Error, Result};
use mayfly_value::arguments::error::{missing, unknown, wrong_type};
use mayfly_value::{Number, RawDoc, RawValue};

use super::operand::{double, fault};
use super::{OpRow, Prepared, own};
use crate::parse::{Parser, check_arity};
use crate::{Expression, Frame, Value};

pub(super) const ROWS: &[OpRow] = &[
    own("$similarityCosine", "8.2", "The cosine of the angle between two vectors.", parse),
    own("$similarityDotProduct", "8.2", "The dot product of two vectors.", parse),
    own("$similarityEuclidean", "8.2", "The distance between two vectors.", parse),
];

/// The subtype of binary vectors.
const VECTOR: u8 = 9;
const SIGNED_BYTES: u8 = 0x03;
const FLOATS: u8 = 0x27;

/// Parses `[v, w]`, or `{ vectors: [v, w], score: bool }`.
fn parse(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let name = row.name;
    let named = match operand {
        RawValue::Document(fields) => fields,
        _ => RawDoc::EMPTY,
    };
    let mut score = false;
    let vectors = if named.iter().next().is_none_or(|first| first.name().starts_with('$')) {
        operand
    } else {
        let mut vectors = None;
        for field in named {
            match (field.name(), field.value()) {
                ("vectors", value) => vectors = Some(value),
                ("score", RawValue::Bool(wanted)) => score = wanted,
                ("score", other) => {
                    return Err(wrong_type(format!("{name}.score"), other, "bool"));
                }
                (other, _) => return Err(unknown(format!("{name}.{other}"))),
            }
        }
        vectors.ok_or_else(|| missing(format!("{name}.vectors")))?
    };
    let arguments = parser.arguments(vectors)?;
    check_arity(row, arguments.len(), 2, 2)?;
    parser.ready(row, run, Prepared::Similarity(name, score), arguments)
}

fn run<'a>(
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let Prepared::Similarity(name, score) = *prepared else {
        return Err(Error::internal("a similarity without its name"));
    };
    let (left, right) = (arguments[0].evaluate(frame)?, arguments[1].evaluate(frame)?);
    if left.is_nullish() || right.is_nullish() {
        return Ok(Value::NULL);
    }
    let not_a_vector = |code: i32, value: &Value<'_>| {
        let found = value.type_name();
        fault(code, format!("{name} requires arrays of numbers or binary vectors, found: {found}"))
    };
    let left_items = items(left.or_undefined()).ok_or_else(|| not_a_vector(10_413_200, &left))?;
    let right_items =
        items(right.or_undefined()).ok_or_else(|| not_a_vector(10_413_201, &right))?;
    if left_items.len() != right_items.len() {
        let text = format!("{name} requires vectors of the same length");
        return Err(fault(10_413_202, text));
    }
    let numbers = |code: i32, items: Vec<Option<f64>>| -> Result<Vec<f64>> {
        let all = items.into_iter().collect::<Option<Vec<f64>>>();
        all.ok_or_else(|| fault(code, format!("{name} requires vectors of numbers")))
    };
    let (left, right) = (numbers(10_413_203, left_items)?, numbers(10_413_204, right_items)?);
    Ok(double(similarity(name, score, &left, &right)))
}

/// The items of a vector, `None` for one that is no number; `None` for another value.
fn items(value: RawValue<'_>) -> Option<Vec<Option<f64>>> {
    match value {
        RawValue::Array(items) => Some(
            items.iter().map(|item| Number::from_value(item.value()).map(Number::to_f64)).collect(),
        ),
        RawValue::Binary { subtype: VECTOR, bytes: [SIGNED_BYTES, 0, numbers @ ..] } => {
            Some(numbers.iter().map(|byte| Some(f64::from(byte.cast_signed()))).collect())
        }
        RawValue::Binary { subtype: VECTOR, bytes: [FLOATS, 0, numbers @ ..] } => {
            let (floats, rest) = numbers.as_chunks::<4>();
            let values = floats.iter().map(|bytes| Some(f64::from(f32::from_le_bytes(*bytes))));
            rest.is_empty().then(|| values.collect())
        }
        _ => None,
    }
}

/// The similarity, or a score between 0 and 1 that is higher for more similar vectors.
fn similarity(name: &str, score: bool, left: &[f64], right: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let value = match name {
        "$similarityDotProduct" => dot(left, right) + 0.0,
        "$similarityEuclidean" => {
            // The sum of no numbers is -0.0.
            (left.iter().zip(right).map(|(x, y)| (x - y) * (x - y)).sum::<f64>() + 0.0).sqrt()
        }
        _ => {
            let lengths = (dot(left, left) * dot(right, right)).sqrt();
            if lengths == 0.0 { 0.0 } else { dot(left, right) / lengths }
        }
    };
    match (score, name) {
        (false, _) => value,
        (true, "$similarityEuclidean") => 1.0 / (1.0 + value),
        (true, _) => (1.0 + value) / 2.0,
    }
}
