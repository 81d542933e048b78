//! Parsing of window functions.

use mayfly_base::{Error, Result};
use mayfly_value::{Number, RawDoc, RawValue};

use super::bounds::Bounds;
use super::calculus::Alpha;
use super::{Function, WindowFunction, rank, scale, takes_accumulator};
use crate::accum::{Accumulator, Population};
use crate::op::{Unit, fault};
use crate::{Expression, Order, Scope};

/// Parses `{ $sum: ..., window: { ... } }`.
pub(super) fn function(
    spec: RawDoc<'_>,
    order: Option<&Order>,
    scope: &Scope,
) -> Result<WindowFunction> {
    let (mut operator, mut window, mut strange) = (None, None, None);
    for part in spec {
        match part.name() {
            "window" => window = Some(part.value()),
            name if name.starts_with('$') => {
                if operator.replace((name, part.value())).is_some() {
                    let text = "Cannot specify two functions in window function spec";
                    return Err(Error::failed_to_parse(text));
                }
            }
            other => strange = strange.or(Some(other)),
        }
    }
    let Some((name, operand)) = operator else {
        let text = "Expected a $-prefixed window function";
        return Err(Error::failed_to_parse(text));
    };
    if let Some(strange) = strange {
        if matches!(name, "$rank" | "$denseRank" | "$documentNumber") {
            return Err(fault(5_371_601, "Rank style window functions take no other arguments"));
        }
        let text = format!("Window function found an unknown argument: {strange}");
        return Err(Error::failed_to_parse(text));
    }
    let function = match operator_of(name, operand, window, order, scope)? {
        Some(function) => function,
        None => {
            let accumulator = match takes_accumulator(name) {
                true => Accumulator::parse_in_window(name, operand, scope)?,
                false => None,
            };
            let Some(accumulator) = accumulator else {
                let text = format!("Unrecognized window function, {name}");
                return Err(Error::failed_to_parse(text));
            };
            Function::Accumulate(Box::new(accumulator))
        }
    };
    let bounds = match window {
        Some(window) => Bounds::parse(window, order, scope)?,
        None => match &function {
            Function::Rank(_) | Function::Locf(_) | Function::Fading { .. } => Bounds::SO_FAR,
            Function::Shift { by, .. } => Bounds::at(*by),
            _ => Bounds::ALL,
        },
    };
    if let Function::Scale { .. } = function {
        scale::check_bounds(bounds)?;
    }
    let collation = scope.collation().cloned();
    Ok(WindowFunction { function, bounds, order: order.cloned(), collation })
}

/// Parses functions other than accumulators; `None` for another name.
fn operator_of(
    name: &str,
    operand: RawValue<'_>,
    window: Option<RawValue<'_>>,
    order: Option<&Order>,
    scope: &Scope,
) -> Result<Option<Function>> {
    let without_window = || match window {
        None => Ok(()),
        Some(_) => Err(Error::failed_to_parse(format!("'window' field is not allowed in {name}"))),
    };
    Ok(Some(match name {
        "$rank" => ranking(rank::RankKind::Rank, name, operand, window, order)?,
        "$denseRank" => ranking(rank::RankKind::Dense, name, operand, window, order)?,
        "$documentNumber" => ranking(rank::RankKind::Number, name, operand, window, order)?,
        "$shift" => {
            without_window()?;
            shift(operand, order, scope)?
        }
        "$derivative" => {
            if window.is_none() {
                let text = "$derivative requires explicit window bounds";
                return Err(Error::failed_to_parse(text));
            }
            let (input, unit) = input_and_unit(name, operand, order, scope)?;
            Function::Derivative { input, unit }
        }
        "$integral" => {
            let (input, unit) = input_and_unit(name, operand, order, scope)?;
            Function::Integral { input, unit }
        }
        "$expMovingAvg" => {
            without_window()?;
            fading(operand, order, scope)?
        }
        "$covariancePop" => covariance(Population::Whole, operand, scope)?,
        "$covarianceSamp" => covariance(Population::Sample, operand, scope)?,
        "$minMaxScaler" => scale::parse(operand, scope)?,
        "$linearFill" => {
            without_window()?;
            if !matches!(order.map(Order::directions).as_deref(), Some([_])) {
                let text = "$linearFill must be specified with a top level sortBy expression with exactly one element";
                return Err(fault(605_001, text));
            }
            Function::LinearFill(Expression::parse_in(operand, scope)?)
        }
        "$locf" => {
            without_window()?;
            Function::Locf(Expression::parse_in(operand, scope)?)
        }
        _ => return Ok(None),
    }))
}

fn ranking(
    which: rank::RankKind,
    name: &str,
    operand: RawValue<'_>,
    window: Option<RawValue<'_>>,
    order: Option<&Order>,
) -> Result<Function> {
    if !operand.as_document().is_some_and(RawDoc::is_empty) {
        let text = format!("{name} must be specified with '{{}}' as the value");
        return Err(fault(5_371_603, text));
    }
    if window.is_some() {
        return Err(fault(5_371_601, "Rank style window functions take no other arguments"));
    }
    let fields = order.map_or(0, |order| order.directions().len());
    if fields != 1 {
        let text = format!(
            "{name} must be specified with a top level sortBy expression with exactly one element"
        );
        return Err(fault(5_371_602, text));
    }
    Ok(Function::Rank(which))
}

fn object<'v>(name: &str, operand: RawValue<'v>) -> Result<RawDoc<'v>> {
    operand
        .as_document()
        .ok_or_else(|| Error::failed_to_parse(format!("Argument to {name} must be an object")))
}

fn unknown(name: &str, part: &str) -> Error {
    Error::failed_to_parse(format!("Unknown argument in {name}: {part}"))
}

fn shift(operand: RawValue<'_>, order: Option<&Order>, scope: &Scope) -> Result<Function> {
    const NAME: &str = "$shift";
    let (mut output, mut by, mut default) = (None, None, None);
    for part in object(NAME, operand)? {
        match part.name() {
            "output" => output = Some(Expression::parse_in(part.value(), scope)?),
            "by" => {
                let whole = Number::from_value(part.value()).and_then(Number::to_i64_exact);
                by = Some(whole.filter(|by| i32::try_from(*by).is_ok()).ok_or_else(|| {
                    Error::failed_to_parse("'$shift:by' field must be an integer")
                })?);
            }
            "default" => {
                let parsed = Expression::parse_in(part.value(), scope)?;
                default = match &parsed {
                    Expression::Constant(value) => Some((**value).clone()),
                    Expression::Missing => None,
                    _ => {
                        let text = "'$shift:default' expression must yield a constant value.";
                        return Err(Error::failed_to_parse(text));
                    }
                };
            }
            other => return Err(unknown(NAME, other)),
        }
    }
    if order.is_none() {
        return Err(Error::failed_to_parse("'$shift' requires a sortBy"));
    }
    let output =
        output.ok_or_else(|| Error::failed_to_parse("$shift requires an 'output' expression."))?;
    let by =
        by.ok_or_else(|| Error::failed_to_parse("'$shift' requires 'by' as an integer value."))?;
    Ok(Function::Shift { output, by, default })
}

fn input_and_unit(
    name: &str,
    operand: RawValue<'_>,
    order: Option<&Order>,
    scope: &Scope,
) -> Result<(Expression, Option<Unit>)> {
    let (mut input, mut unit) = (None, None);
    for part in object(name, operand)? {
        match (part.name(), part.value()) {
            ("input", value) => input = Some(Expression::parse_in(value, scope)?),
            ("unit", RawValue::String(text)) => unit = Some(Unit::parse(text)?),
            ("unit", _) => return Err(Error::failed_to_parse("'unit' must be a string")),
            (other, _) => return Err(unknown(name, other)),
        }
    }
    if unit.is_some_and(|unit| unit.fixed_ms().is_none()) {
        return Err(fault(5_490_710, "unit must be 'week' or smaller"));
    }
    let input = input
        .ok_or_else(|| Error::failed_to_parse(format!("{name} requires an 'input' expression")))?;
    if !matches!(order.map(Order::directions).as_deref(), Some([_])) {
        return Err(Error::failed_to_parse(format!(
            "{name} requires a sortBy with exactly one field"
        )));
    }
    Ok((input, unit))
}

fn fading(operand: RawValue<'_>, order: Option<&Order>, scope: &Scope) -> Result<Function> {
    const NAME: &str = "$expMovingAvg";
    let (mut input, mut n, mut alpha) = (None, None, None);
    for part in object(NAME, operand)? {
        match part.name() {
            "input" => input = Some(Expression::parse_in(part.value(), scope)?),
            "N" => {
                let whole = Number::from_value(part.value()).and_then(Number::to_i64_exact);
                n = Some(whole.filter(|n| *n > 0).ok_or_else(|| {
                    Error::failed_to_parse("'N' field must be an integer greater than 0")
                })?);
            }
            "alpha" => {
                let share = Number::from_value(part.value()).filter(|share| {
                    let share = share.to_f64();
                    share > 0.0 && share < 1.0
                });
                let text = "'alpha' must be between 0 and 1 (exclusive)";
                alpha = Some(share.ok_or_else(|| Error::failed_to_parse(text))?);
            }
            other => return Err(unknown(NAME, other)),
        }
    }
    if order.is_none() {
        return Err(Error::failed_to_parse("$expMovingAvg requires an explicit 'sortBy'"));
    }
    let input =
        input.ok_or_else(|| Error::failed_to_parse("$expMovingAvg requires an 'input' field"))?;
    let alpha = match (n, alpha) {
        (Some(n), None) => Number::Double(2.0 / (n as f64 + 1.0)),
        (None, Some(alpha)) => alpha,
        _ => {
            let text = "$expMovingAvg sub object must have exactly two fields: An 'input' field, and either an 'N' field or an 'alpha' field";
            return Err(Error::failed_to_parse(text));
        }
    };
    Ok(Function::Fading { input, alpha: Alpha(alpha) })
}

/// The operand is an array of two expressions; any other gives null for every document.
fn covariance(of: Population, operand: RawValue<'_>, scope: &Scope) -> Result<Function> {
    Ok(Function::Covariance { input: Expression::parse_in(operand, scope)?, of })
}
