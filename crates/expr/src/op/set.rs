//! Arrays as sets: `$setUnion`, `$setIntersection`, `$setDifference`, `$setEquals`, `$setIsSubset`,
//! `$anyElementTrue`, `$allElementsTrue`. Nested arrays are ordinary items. Where the order of the
//! result is unspecified, it is ascending; `$setDifference` keeps the order of the first array.

use std::cmp::Ordering;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_value::{Collation, DocBuilder, RawDoc, RawValue, ValueBuf, compare_values_in};

use super::operand::{array, fault};
use super::{ANY, OpRow, Prepared, list, own, searched};
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(super) const ROWS: &[OpRow] = &[
    list("$setUnion", "2.6", "The union of the arrays.", ANY, union),
    list("$setIntersection", "2.6", "The intersection of the arrays.", ANY, intersection),
    list("$setDifference", "2.6", "The items in the first array only.", (2, 2), difference),
    own("$setEquals", "2.6", "Whether arrays have the same items.", parse_equals),
    searched(
        "$setIsSubset",
        "2.6",
        "Whether the second array contains all items of the first.",
        subset,
        subset_of_constant,
    ),
    list("$anyElementTrue", "2.6", "Whether any item is true.", (1, 1), |args, frame| {
        truths("$anyElementTrue", 17041, args, frame)
    }),
    list("$allElementsTrue", "2.6", "Whether all items are true.", (1, 1), |args, frame| {
        truths("$allElementsTrue", 17040, args, frame)
    }),
];

/// Distinct values in ascending order.
pub(crate) struct SortedValues<'v> {
    items: Vec<RawValue<'v>>,
    collation: Option<&'v Collation>,
}

impl<'v> SortedValues<'v> {
    /// The distinct items of an array.
    pub(crate) fn of(items: RawDoc<'v>, collation: Option<&'v Collation>) -> SortedValues<'v> {
        SortedValues::from_values(items.iter().map(|item| item.value()).collect(), collation)
    }

    fn from_values(
        mut items: Vec<RawValue<'v>>,
        collation: Option<&'v Collation>,
    ) -> SortedValues<'v> {
        items.sort_by(|a, b| compare_values_in(*a, *b, collation));
        items.dedup_by(|a, b| compare_values_in(*a, *b, collation).is_eq());
        SortedValues { items, collation }
    }

    pub(crate) fn contains(&self, value: RawValue<'_>) -> bool {
        let order =
            |have: &RawValue<'_>| -> Ordering { compare_values_in(*have, value, self.collation) };
        self.items.binary_search_by(order).is_ok()
    }

    fn into_array(self) -> Result<Value<'static>> {
        let mut out = DocBuilder::new_array();
        for item in self.items {
            out.push(item);
        }
        array(out)
    }
}

/// The items of a constant array, sorted by the parser.
#[derive(Debug)]
pub struct ConstantItems {
    items: Vec<ValueBuf>,
    collation: Option<Arc<Collation>>,
}

impl ConstantItems {
    /// Sorts this array, with strings compared by this collation.
    pub(crate) fn of(items: RawDoc<'_>, collation: Option<Arc<Collation>>) -> ConstantItems {
        let sorted = SortedValues::of(items, collation.as_deref());
        let items = sorted.items.into_iter().map(RawValue::to_owned).collect();
        ConstantItems { items, collation }
    }

    /// Whether an item compares as equal to the value.
    pub(crate) fn contains(&self, value: RawValue<'_>) -> bool {
        let order =
            |have: &ValueBuf| compare_values_in(have.as_raw(), value, self.collation.as_deref());
        self.items.binary_search_by(order).is_ok()
    }
}

fn evaluated<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Vec<Value<'a>>> {
    arguments.iter().map(|argument| argument.evaluate(frame)).collect()
}

/// The arrays among evaluated arguments; `None` when the first other argument is null or missing.
fn set_of<'v>(name: &str, code: i32, values: &'v [Value<'_>]) -> Result<Option<Vec<RawDoc<'v>>>> {
    let mut found = Vec::with_capacity(values.len());
    for value in values {
        match value.or_undefined() {
            RawValue::Array(items) => found.push(items),
            RawValue::Null | RawValue::Undefined => return Ok(None),
            _ => {
                let kind = value.type_name();
                return Err(fault(
                    code,
                    format!(
                        "All operands of {name} must be arrays. One argument is of type: {kind}"
                    ),
                ));
            }
        }
    }
    Ok(Some(found))
}

/// The operands of `$setUnion`; `None` when any of them is null or missing.
pub(super) fn united<'v>(values: &'v [Value<'_>]) -> Result<Option<Vec<RawDoc<'v>>>> {
    match values.iter().any(Value::is_nullish) {
        true => Ok(None),
        false => set_of("$setUnion", 17043, values),
    }
}

fn union<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let values = evaluated(arguments, frame)?;
    let Some(arrays) = united(&values)? else { return Ok(Value::NULL) };
    let items = arrays.iter().flat_map(|items| items.iter().map(|item| item.value())).collect();
    SortedValues::from_values(items, frame.collation()).into_array()
}

fn intersection<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let values = evaluated(arguments, frame)?;
    let found = set_of("$setIntersection", 17047, &values)?;
    let Some(arrays) = found else { return Ok(Value::NULL) };
    let mut arrays = arrays.into_iter();
    let first = arrays.next().unwrap_or(RawDoc::EMPTY);
    let mut both = SortedValues::of(first, frame.collation());
    for items in arrays {
        let other = SortedValues::of(items, frame.collation());
        both.items.retain(|item| other.contains(*item));
    }
    both.into_array()
}

/// Checks that both operands of an operator are arrays.
fn two(name: &str, codes: (i32, i32), values: &[Value<'_>]) -> Result<()> {
    let wrong = |which: &str, code: i32, value: &Value<'_>| {
        let kind = value.type_name();
        let text =
            format!("both operands of {name} must be arrays. {which} argument is of type: {kind}");
        fault(code, text)
    };
    if values[0].or_undefined().as_array().is_none() {
        return Err(wrong("First", codes.0, &values[0]));
    }
    if values[1].or_undefined().as_array().is_none() {
        return Err(wrong("Second", codes.1, &values[1]));
    }
    Ok(())
}

fn items_of<'v>(value: &'v Value<'_>) -> RawDoc<'v> {
    value.or_undefined().as_array().unwrap_or(RawDoc::EMPTY)
}

fn difference<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let values = evaluated(arguments, frame)?;
    if values.iter().any(Value::is_nullish) {
        return Ok(Value::NULL);
    }
    two("$setDifference", (17048, 17049), &values)?;
    let without = SortedValues::of(items_of(&values[1]), frame.collation());
    let items: Vec<_> = items_of(&values[0]).iter().map(|item| item.value()).collect();
    // Of equal items the first one stays at its position.
    let mut places: Vec<usize> = (0..items.len()).collect();
    let compare = |a: usize, b: usize| compare_values_in(items[a], items[b], frame.collation());
    places.sort_by(|a, b| compare(*a, *b));
    places.dedup_by(|later, first| compare(*later, *first).is_eq());
    places.sort_unstable();
    let mut out = DocBuilder::new_array();
    for item in places.into_iter().map(|place| items[place]) {
        if !without.contains(item) {
            out.push(item);
        }
    }
    array(out)
}

fn equals<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let evaluated = |at: usize| {
        let value = arguments[at].evaluate(frame)?;
        if value.or_undefined().as_array().is_some() {
            return Ok(value);
        }
        let (nth, kind) = (at + 1, value.type_name());
        let text = format!(
            "All operands of $setEquals must be arrays. {nth}-th argument is of type: {kind}"
        );
        let constant = matches!(arguments[at], Expression::Constant(_));
        Err(fault(if constant { 5_887_502 } else { 17044 }, text))
    };
    // The others are compared with a constant, if there is one; the first that differs decides.
    let constant = arguments.iter().position(|it| matches!(it, Expression::Constant(_)));
    let first_at = constant.unwrap_or(0);
    let first_value = evaluated(first_at)?;
    let first = SortedValues::of(items_of(&first_value), frame.collation());
    for at in (0..arguments.len()).filter(|at| *at != first_at) {
        let value = evaluated(at)?;
        let other = SortedValues::of(items_of(&value), frame.collation());
        let same = other.items.len() == first.items.len()
            && other.items.iter().all(|item| first.contains(*item));
        if !same {
            return Ok(false.into());
        }
    }
    Ok(true.into())
}

/// Parses `$setEquals`, which has its own error for too few operands.
fn parse_equals(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let arguments = parser.arguments(operand)?;
    if arguments.len() < 2 {
        let given = arguments.len();
        let text = format!("$setEquals needs at least two arguments had: {given}");
        return Err(fault(17045, text));
    }
    parser.call(row, equals, arguments)
}

fn subset<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let values = evaluated(arguments, frame)?;
    // The reference has another code where only the second operand is constant.
    let second = match arguments {
        [first, Expression::Constant(_)] if first.as_constant().is_none() => 17311,
        _ => 17042,
    };
    two("$setIsSubset", (17046, second), &values)?;
    let all = SortedValues::of(items_of(&values[1]), frame.collation());
    Ok(items_of(&values[0]).iter().all(|item| all.contains(item.value())).into())
}

fn subset_of_constant<'a>(
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let Prepared::Items(all) = prepared else { return subset(arguments, frame) };
    let value = arguments[0].evaluate(frame)?;
    match value.as_raw().and_then(RawValue::as_array) {
        Some(items) => Ok(items.iter().all(|item| all.contains(item.value())).into()),
        None => subset(arguments, frame),
    }
}

fn truths<'a>(
    name: &str,
    code: i32,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let value = arguments[0].evaluate(frame)?;
    let RawValue::Array(items) = value.or_undefined() else {
        let kind = value.type_name();
        return Err(fault(code, format!("{name}'s argument must be an array, but is {kind}")));
    };
    let mut truths = items.iter().map(|item| Value::Borrowed(item.value()).is_true());
    Ok(if code == 17041 { truths.any(|truth| truth) } else { truths.all(|truth| truth) }.into())
}
