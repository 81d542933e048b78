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

const RANGE: &[Argument] = &[
    Argument::number("step").required(),
    Argument::any("bounds").required(),
    Argument::string("unit"),
];

/// Parses the option `range`.
///
/// # Errors
/// 40414, 40415, 14, and errors for bounds that are not a range.
pub(crate) fn parse_range(range: RawDoc<'_>) -> Result<Range> {
    let fields = Fields::read(range, "$densify.range", RANGE)?;
    let number = fields.get("step").unwrap_or(RawValue::Null);
    let step = Number::from_value(number).unwrap_or(Number::Int32(0));
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
            step.moved(RawValue::Date(0), 1)?;
            step
        }
    };
    let bounds = parse_bounds(bounds, number, &step)?;
    Ok(Range { step, bounds })
}

fn parse_bounds(bounds: RawValue<'_>, number: RawValue<'_>, step: &Step) -> Result<Bounds> {
    match bounds {
        RawValue::String("full") => Ok(Bounds::Full),
        RawValue::String("partition") => Ok(Bounds::Partition),
        RawValue::String(_) => {
            Err(fault(5946802, "Bounds string must either be 'full' or 'partition'"))
        }
        RawValue::Array(items) => {
            let items: Vec<RawValue<'_>> = items.iter().map(|item| item.value()).collect();
            let [low, high] = items[..] else {
                let text = "A bounding array in a range statement must have exactly two elements";
                return Err(fault(5733403, text));
            };
            check_between(low, high, number, step)?;
            Ok(Bounds::Between(low.to_owned(), high.to_owned()))
        }
        _ => Err(fault(
            5733404,
            "The bounds in a range statement must be the string 'full', 'partition', or an ascending array of two numbers \
             or two dates",
        )),
    }
}

/// Checks both values of an array of bounds against each other and the step.
fn check_between(
    low: RawValue<'_>,
    high: RawValue<'_>,
    number: RawValue<'_>,
    step: &Step,
) -> Result<()> {
    const MIXED: &str = "A bounding array must contain either both dates or both numeric types";
    let by_time = matches!(step, Step::Time(..));
    if compare_values(low, high).is_gt() {
        let text = "A bounding array must be an ascending array of either two dates or two numbers";
        return Err(fault(5733402, text));
    }
    if low.is_number() {
        if by_time {
            return Err(fault(5733409, "Numeric bounds may not have unit parameter"));
        }
        if !high.is_number() {
            return Err(fault(5733406, MIXED));
        }
        let kind = low.type_name();
        if kind != high.type_name() || kind != number.type_name() {
            let text = "Upper bound, lower bound, and step must all have the same type";
            return Err(fault(5876900, text));
        }
        return Ok(());
    }
    match (low, high) {
        (RawValue::Date(_), RawValue::Date(_)) if by_time => Ok(()),
        (RawValue::Date(_), RawValue::Date(_)) => {
            Err(fault(5733410, "A bounding array of dates must specify a unit"))
        }
        (RawValue::Date(_), _) => Err(fault(5733405, MIXED)),
        _ => Err(fault(5946800, "Explicit bounds must be numeric or dates")),
    }
}

impl Step {
    /// The value one step after another.
    pub(super) fn after(&self, value: RawValue<'_>) -> Result<ValueBuf> {
        self.moved(value, 1)
    }

    /// The value one step before another.
    pub(super) fn before(&self, value: RawValue<'_>) -> Result<ValueBuf> {
        self.moved(value, -1)
    }

    fn moved(&self, value: RawValue<'_>, sign: i64) -> Result<ValueBuf> {
        match self {
            Step::Number(step) => {
                let value = Number::from_value(value).unwrap_or(Number::Int32(0));
                let moved = if sign < 0 { value.minus(*step) } else { value.plus(*step) };
                Ok(moved.to_value().to_owned())
            }
            Step::Time(amount, add) => {
                let mut input = DocBuilder::new();
                input.append("d", value).append("n", amount.saturating_mul(sign));
                let input = input.finish();
                let value = add.evaluate(Frame::new(input.as_doc()))?;
                Ok(value.as_raw().unwrap_or(RawValue::Null).to_owned())
            }
        }
    }
}
