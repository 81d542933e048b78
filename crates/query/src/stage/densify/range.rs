//! The range of a `$densify`: the step between documents, and the bounds within which documents are
//! added.

use mayfly_base::Result;
use mayfly_expr::{Expression, Frame};
use mayfly_value::arguments::{Argument, Fields};
use mayfly_value::{DocBuilder, Number, RawDoc, RawValue, ValueBuf, compare_values};

use super::fault;

/// Step and bounds.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) step: Step,
    pub(super) bounds: Bounds,
}

#[derive(Clone, Debug)]
pub(super) enum Bounds {
    /// From the least to the greatest value of all partitions.
    Full,
    /// From the least to the greatest value of each partition.
    Partition,
    /// From the first value, inclusive, to the second, exclusive.
    Between(ValueBuf, ValueBuf),
}

/// The step between two documents.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Number(Number),
    /// A number of units, and a `$dateAdd` of the fields `d` and `n`.
    Time(i64, Box<Expression>),
}

fn is_date(value: RawValue<'_>) -> bool {
    matches!(value, RawValue::Date(_))
}

const RANGE: &[Argument] = &[
    Argument::number("step").required(),
    Argument::any("bounds").required(),
    Argument::string("unit"),
];

/// Parses the option `range` of a stage that partitions by these fields.
///
/// # Errors
/// 40414, 40415, 14, and errors for bounds that are not a range.
pub(crate) fn parse_range(range: RawDoc<'_>, partition: &[String]) -> Result<Range> {
    let fields = Fields::read(range, "$densify.range", RANGE)?;
    let step = fields.get("step").and_then(Number::from_value).unwrap_or(Number::Int32(0));
    let (unit, bounds) = (fields.string("unit")?, fields.required("bounds")?);
    if step.is_nan() || step.compare(Number::Int32(0)).is_le() {
        return Err(fault(
            5733401,
            "The step parameter in a range statement must be a strictly positive numeric value",
        ));
    }
    let step = match unit {
        None => Step::Number(step),
        Some(unit) => {
            let Some(amount) = step.to_i64_exact() else {
                let text = "The step parameter in a range satement must be a whole number when densifying a date range";
                return Err(fault(6586400, text));
            };
            let mut add = DocBuilder::new();
            add.start_document("$dateAdd").append("startDate", "$d").append("unit", unit);
            add.append("amount", "$n").end();
            let add = add.finish();
            let expression = Expression::parse(RawValue::Document(add.as_doc()))?;
            let step = Step::Time(amount, Box::new(expression));
            // Reports an unknown unit when the stage is parsed.
            step.after(RawValue::Date(0), 1)?;
            step
        }
    };
    let bounds = parse_bounds(bounds, partition, &step)?;
    Ok(Range { step, bounds })
}

fn parse_bounds(bounds: RawValue<'_>, partition: &[String], step: &Step) -> Result<Bounds> {
    match bounds {
        RawValue::String("full") => Ok(Bounds::Full),
        RawValue::String("partition") if !partition.is_empty() => Ok(Bounds::Partition),
        RawValue::String("partition") => Err(fault(
            5733408,
            "One may not specify the bounds as 'partition' without specifying a non-empty array of partitionByFields. You \
             may have meant to specify 'full' bounds.",
        )),
        RawValue::String(other) => Err(fault(
            5946802,
            format!("Bounds string must either be 'full' or 'partition', not '{other}'"),
        )),
        RawValue::Array(items) => {
            let items: Vec<RawValue<'_>> = items.iter().map(|item| item.value()).collect();
            let [low, high] = items[..] else {
                let text = "a bounding array in a range statement must have exactly two elements";
                return Err(fault(5733403, text));
            };
            if compare_values(low, high).is_gt() {
                let text = "the bounds in a range statement must be the string 'full', 'partition', or an ascending array";
                return Err(fault(5733402, text));
            }
            match step {
                Step::Time(..) if is_date(low) && is_date(high) => {}
                Step::Time(..) => {
                    let text =
                        "a bounding array must contain either both dates or both numeric types";
                    return Err(fault(5733402, text));
                }
                Step::Number(_) if low.is_number() && high.is_number() => {}
                Step::Number(_) if is_date(low) && is_date(high) => {
                    return Err(fault(6586401, "a bounding array of dates requires a unit"));
                }
                Step::Number(_) => {
                    let text =
                        "a bounding array must contain either both dates or both numeric types";
                    return Err(fault(5733402, text));
                }
            }
            Ok(Bounds::Between(low.to_owned(), high.to_owned()))
        }
        other => Err(fault(
            5946802,
            format!(
                "the bounds in a range statement must be the string 'full', 'partition', or an array, found {}",
                other.type_name()
            ),
        )),
    }
}

impl Step {
    /// The value after `steps` steps from a base.
    pub(super) fn after(&self, base: RawValue<'_>, steps: i64) -> Result<ValueBuf> {
        let steps_number = Number::Int64(steps);
        match self {
            Step::Number(step) => {
                let base = Number::from_value(base).unwrap_or(Number::Int32(0));
                // The result has the narrowest type that can represent it, as for sums.
                let way = match steps_number.to_i64_exact().and_then(|it| i32::try_from(it).ok()) {
                    Some(steps) => Number::Int32(steps).times(*step),
                    None => steps_number.times(*step),
                };
                Ok(base.plus(way).to_value().to_owned())
            }
            Step::Time(amount, add) => {
                let mut input = DocBuilder::new();
                input.append("d", base).append("n", amount.saturating_mul(steps));
                let input = input.finish();
                let value = add.evaluate(Frame::new(input.as_doc()))?;
                Ok(value.as_raw().unwrap_or(RawValue::Null).to_owned())
            }
        }
    }
}
