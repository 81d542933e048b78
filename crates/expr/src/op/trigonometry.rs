//! Trigonometry: the result is a double, or a decimal for a decimal argument. NaN gives NaN, and a
//! value outside the domain is an error.

use mayfly_base::Result;
use mayfly_value::Number;
use mayfly_value::decimal::Decimal;
use mayfly_value::shell::ShellValue;

use super::arithmetic::rounding::single;
use super::operand::{double, fault, number};
use super::{OpRow, list};
use crate::decimal::{Function, atan2, trigonometric};
use crate::{Expression, Frame, Value};

macro_rules! functions {
    ($(($name:literal, $help:literal, $function:ident, $double:expr, $domain:expr),)*) => {
        pub(super) const ROWS: &[OpRow] = &[
            $(list($name, "4.2", $help, (1, 1), |args, frame| {
                apply($name, Function::$function, $double, $domain, args, frame)
            }),)*
            list("$atan2", "4.2", "The angle of a point.", (2, 2), angle),
        ];
    };
}

functions! {
    ("$sin", "The sine of radians.", Sin, f64::sin, FINITE),
    ("$cos", "The cosine of radians.", Cos, f64::cos, FINITE),
    ("$tan", "The tangent of radians.", Tan, f64::tan, FINITE),
    ("$asin", "The radians of a sine.", Asin, f64::asin, UNIT),
    ("$acos", "The radians of a cosine.", Acos, f64::acos, UNIT),
    ("$atan", "The radians of a tangent.", Atan, f64::atan, ALL),
    ("$sinh", "The hyperbolic sine.", Sinh, f64::sinh, ALL),
    ("$cosh", "The hyperbolic cosine.", Cosh, f64::cosh, ALL),
    ("$tanh", "The hyperbolic tangent.", Tanh, f64::tanh, ALL),
    ("$asinh", "The inverse of the hyperbolic sine.", Asinh, f64::asinh, ALL),
    ("$acosh", "The inverse of the hyperbolic cosine.", Acosh, f64::acosh, FROM_ONE),
    ("$atanh", "The inverse of the hyperbolic tangent.", Atanh, f64::atanh, UNIT),
    ("$degreesToRadians", "Degrees as radians.", ToRadians, f64::to_radians, ALL),
    ("$radiansToDegrees", "Radians as degrees.", ToDegrees, f64::to_degrees, ALL),
}

/// The domain of a function.
struct Domain {
    least: f64,
    most: f64,
    shown: &'static str,
    open: bool,
}

const ALL: &Domain =
    &Domain { least: f64::NEG_INFINITY, most: f64::INFINITY, shown: "[-inf,inf]", open: false };
const FINITE: &Domain =
    &Domain { least: f64::NEG_INFINITY, most: f64::INFINITY, shown: "(-inf,inf)", open: true };
const UNIT: &Domain = &Domain { least: -1.0, most: 1.0, shown: "[-1,1]", open: false };
const FROM_ONE: &Domain =
    &Domain { least: 1.0, most: f64::INFINITY, shown: "[1,inf]", open: false };

impl Domain {
    fn contains(&self, value: Number) -> bool {
        let (least, most) = (Number::Double(self.least), Number::Double(self.most));
        let (low, high) = (value.compare(least), value.compare(most));
        if self.open { low.is_gt() && high.is_lt() } else { low.is_ge() && high.is_le() }
    }
}

fn apply<'a>(
    name: &str,
    function: Function,
    of_double: fn(f64) -> f64,
    domain: &Domain,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let Some(value) = single(name, &arguments[0], frame)? else { return Ok(Value::NULL) };
    if value.is_nan() {
        return Ok(match value {
            Number::Decimal(_) => number(value),
            _ => double(f64::NAN),
        });
    }
    if !domain.contains(value) {
        let shown = match value.to_f64() {
            infinite if infinite.is_infinite() && infinite < 0.0 => "-inf".to_owned(),
            infinite if infinite.is_infinite() => "inf".to_owned(),
            _ => ShellValue(value.to_value()).to_string(),
        };
        let range = domain.shown;
        return Err(fault(
            50989,
            format!("cannot apply {name} to {shown}, value must be in {range}"),
        ));
    }
    Ok(match value {
        Number::Decimal(finite @ Decimal::Finite { .. }) => {
            number(Number::Decimal(trigonometric(function, finite)))
        }
        Number::Decimal(infinite) => {
            number(Number::Decimal(Number::Double(of_double(infinite.to_f64())).to_decimal()))
        }
        value => double(of_double(value.to_f64())),
    })
}

fn angle<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    // The first argument decides before the second one is evaluated.
    let numeric = |argument: &'a Expression, code: i32| {
        let value = argument.evaluate(frame)?;
        if value.is_nullish() {
            return Ok(None);
        }
        let number = Number::from_value(value.or_undefined());
        number.map(Some).ok_or_else(|| {
            let found = value.type_name();
            fault(code, format!("$atan2 only supports numeric types, not {found}"))
        })
    };
    let Some(y) = numeric(&arguments[0], 51044)? else { return Ok(Value::NULL) };
    let Some(x) = numeric(&arguments[1], 51045)? else { return Ok(Value::NULL) };
    Ok(match (y, x) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            number(Number::Decimal(atan2(y.to_decimal(), x.to_decimal())))
        }
        _ => double(y.to_f64().atan2(x.to_f64())),
    })
}
