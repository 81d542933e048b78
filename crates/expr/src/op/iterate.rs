//! `$map`, `$filter`, `$reduce`: an expression evaluated for each item of an array, with variables
//! of its own. Nested they can run practically endlessly, so each step counts as work of the
//! operation.

use mayfly_base::Result;
use mayfly_value::{DocBuilder, RawDoc, RawValue, check_size};
use mayfly_work::current::spend;

use super::Positions;
use super::growing::{Growing, Growth};
use super::operand::{array, fault, long_integer, parts, required};
use super::{OpRow, own};
use crate::expression::Locals;
use crate::parse::Parser;
use crate::scope::check_variable_name;
use crate::{Expression, Frame, Value};

pub(super) const ROWS: &[OpRow] = &[
    own("$map", "2.6", "The value of an expression for each item.", parse_map),
    own("$filter", "3.2", "The items that satisfy a condition.", parse_filter),
    own("$reduce", "3.4", "A value accumulated over all items.", parse_reduce),
];

/// An expression evaluated for each item of an array.
#[derive(Clone, Debug)]
pub struct Each {
    kind: IterationKind,
    /// The index of the first variable.
    first: usize,
    input: Expression,
    body: Expression,
    /// The limit of `$filter`; the initial value of `$reduce`.
    further: Expression,
    /// How the value of `$reduce` accumulates, if the expression has that form.
    growth: Option<Growth>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IterationKind {
    Map,
    Filter,
    Reduce,
}

impl Each {
    /// The subexpressions.
    pub(crate) fn children(&self) -> Vec<&Expression> {
        vec![&self.input, &self.body, &self.further]
    }

    /// Evaluates the operator.
    pub(crate) fn evaluate<'a>(&'a self, frame: Frame<'a>) -> Result<Value<'a>> {
        let input = self.input.evaluate(frame)?;
        if input.is_nullish() {
            return Ok(Value::NULL);
        }
        let RawValue::Array(items) = input.or_undefined() else {
            let found = input.type_name();
            return Err(match self.kind {
                IterationKind::Map => {
                    fault(16883, format!("input to $map must be an array not {found}"))
                }
                IterationKind::Filter => {
                    fault(28651, format!("input to $filter must be an array not {found}"))
                }
                IterationKind::Reduce => fault(
                    40080,
                    format!("$reduce requires that 'input' be an array, found: {found}"),
                ),
            });
        };
        match self.kind {
            IterationKind::Map => self.map(items, frame),
            IterationKind::Filter => self.filter(items, frame),
            IterationKind::Reduce => self.reduce(items, frame),
        }
    }

    /// The variables of one step.
    fn locals<'a>(
        &self,
        values: &'a [Value<'a>],
        frame: Frame<'a>,
        positions: &'a Positions,
    ) -> Locals<'a> {
        let (first, outer) = (self.first, frame.locals());
        Locals { first, values, outer, positions: Some(positions) }
    }

    fn map(&self, items: RawDoc<'_>, frame: Frame<'_>) -> Result<Value<'static>> {
        let positions = Positions::default();
        let mut out = DocBuilder::new_array();
        for item in items {
            spend(1)?;
            let values = [Value::Borrowed(item.value())];
            let locals = self.locals(&values, frame, &positions);
            let result = self.body.evaluate(frame.within(&locals))?;
            out.push(result.as_raw().unwrap_or(RawValue::Null));
            check_size(out.len())?;
        }
        array(out)
    }

    fn filter(&self, items: RawDoc<'_>, frame: Frame<'_>) -> Result<Value<'static>> {
        // The limit is not evaluated for an empty array.
        if items.into_iter().next().is_none() {
            return array(DocBuilder::new_array());
        }
        let limit = self.further.evaluate(frame)?;
        let mut left = usize::MAX;
        if !limit.is_nullish() {
            left = self.limit(&limit)?;
        }
        let positions = Positions::default();
        let mut out = DocBuilder::new_array();
        for item in items {
            if left == 0 {
                break;
            }
            spend(1)?;
            let values = [Value::Borrowed(item.value())];
            let locals = self.locals(&values, frame, &positions);
            if self.body.evaluate(frame.within(&locals))?.is_true() {
                out.push(item.value());
                left -= 1;
            }
        }
        array(out)
    }

    fn limit(&self, limit: &Value<'_>) -> Result<usize> {
        let shown = mayfly_value::shell::ShellValue(limit.or_undefined());
        match super::operand::small_integer(limit.or_undefined()) {
            None => Err(fault(
                327_391,
                format!("$filter: limit must be represented as a 32-bit integral value: {shown}"),
            )),
            Some(small) if small <= 0 => {
                Err(fault(327_392, format!("$filter: limit must be greater than 0: {shown}")))
            }
            Some(_) => Ok(long_integer(limit.or_undefined())
                .and_then(|limit| usize::try_from(limit).ok())
                .unwrap_or(usize::MAX)),
        }
    }

    fn reduce(&self, items: RawDoc<'_>, frame: Frame<'_>) -> Result<Value<'static>> {
        let mut sum = self.further.evaluate(frame)?.detached();
        let mut growing = None;
        let positions = Positions::default();
        for item in items {
            spend(1)?;
            if let (Some(growth), None) = (self.growth, &growing) {
                growing = Growing::begin(growth, &sum, frame.collation())?;
            }
            if let Some(value) = &mut growing {
                // The expression does not use the value itself.
                let values = [Value::Missing, Value::Borrowed(item.value())];
                let locals = self.locals(&values, frame, &positions);
                if !value.add(&self.body, frame.within(&locals))? {
                    (growing, sum) = (None, Value::NULL);
                }
                continue;
            }
            let values = [sum, Value::Borrowed(item.value())];
            let locals = self.locals(&values, frame, &positions);
            sum = self.body.evaluate(frame.within(&locals))?.detached();
            if let Value::Owned(value) = &sum {
                check_size(value.data().len())?;
            }
        }
        growing.map_or(Ok(sum), Growing::finish)
    }
}

fn variable_name(part: Option<RawValue<'_>>) -> Result<String> {
    let name = match part {
        None => "this",
        Some(RawValue::String(name)) => name,
        Some(other) => {
            let text = format!("'as' must be a string, found: {}", other.type_name());
            return Err(mayfly_base::Error::failed_to_parse(text));
        }
    };
    check_variable_name(name)?;
    Ok(name.to_owned())
}

fn each(kind: IterationKind, first: usize, parts: [Expression; 3]) -> Expression {
    let [input, body, further] = parts;
    let growth = if kind == IterationKind::Reduce { Growth::of(&body, first) } else { None };
    Expression::Each(Box::new(Each { kind, first, input, body, further, growth }))
}

fn parse_map(
    parser: &mut Parser<'_>,
    _: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let [input, name, body] = parts(
        operand,
        ["input", "as", "in"],
        |_| fault(16878, "$map only supports an object as its argument"),
        |name| fault(16879, format!("Unrecognized parameter to $map: {name}")),
    )?;
    let input = required(parser, input, || fault(16880, "Missing 'input' parameter to $map"))?;
    let body = body.ok_or_else(|| fault(16882, "Missing 'in' parameter to $map"))?;
    let (first, body) = parser.with_locals(vec![variable_name(name)?], body)?;
    Ok(each(IterationKind::Map, first, [input, body, Expression::Absent]))
}

fn parse_filter(
    parser: &mut Parser<'_>,
    _: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let [input, name, body, limit] = parts(
        operand,
        ["input", "as", "cond", "limit"],
        |_| fault(28646, "$filter only supports an object as its argument"),
        |name| fault(28647, format!("Unrecognized parameter to $filter: {name}")),
    )?;
    let input = required(parser, input, || fault(28648, "Missing 'input' parameter to $filter"))?;
    let body = body.ok_or_else(|| fault(28650, "Missing 'cond' parameter to $filter"))?;
    let limit = super::operand::optional(parser, limit)?;
    let (first, body) = parser.with_locals(vec![variable_name(name)?], body)?;
    Ok(each(IterationKind::Filter, first, [input, body, limit]))
}

fn parse_reduce(
    parser: &mut Parser<'_>,
    _: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let [input, initial, body] = parts(
        operand,
        ["input", "initialValue", "in"],
        |found| fault(40075, format!("$reduce requires an object as an argument, found: {found}")),
        |name| fault(40076, format!("$reduce found an unknown argument: {name}")),
    )?;
    let input =
        required(parser, input, || fault(40077, "$reduce requires 'input' to be specified"))?;
    let initial = required(parser, initial, || {
        fault(40078, "$reduce requires 'initialValue' to be specified")
    })?;
    let body = body.ok_or_else(|| fault(40079, "$reduce requires 'in' to be specified"))?;
    let names = vec!["value".to_owned(), "this".to_owned()];
    let (first, body) = parser.with_locals(names, body)?;
    Ok(each(IterationKind::Reduce, first, [input, body, initial]))
}
