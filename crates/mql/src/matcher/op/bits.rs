//! `$bitsAllSet`, `$bitsAllClear`, `$bitsAnySet`, `$bitsAnyClear`, with a number, a binary mask, or
//! a list of positions.

use mayfly_base::{Error, Result};
use mayfly_value::shell::{Shell, ShellValue};
use mayfly_value::{DocBuilder, Number, RawDoc, RawValue};

use super::Operand;
use crate::matcher::{BitTest, Bits, Positions, Predicate};

pub(super) fn all_set(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    test(operand, Bits::AllSet)
}

pub(super) fn all_clear(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    test(operand, Bits::AllClear)
}

pub(super) fn any_set(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    test(operand, Bits::AnySet)
}

pub(super) fn any_clear(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    test(operand, Bits::AnyClear)
}

fn test(operand: &Operand<'_>, asked: Bits) -> Result<Option<Predicate>> {
    let positions = match operand.value {
        RawValue::Array(items) => Positions::List(positions(items)?),
        RawValue::Binary { bytes, .. } => Positions::Mask(bytes.to_vec()),
        value if value.is_number() => Positions::Mask(mask(operand)?.to_le_bytes().to_vec()),
        _ => {
            let text = format!(
                "{} takes an Array, a number, or a BinData but received: {}",
                operand.path,
                shown(operand)
            );
            return Err(Error::bad_value(text));
        }
    };
    Ok(Some(Predicate::Bits(BitTest::new(asked, positions), operand.written())))
}

/// The operator in error messages.
fn shown(operand: &Operand<'_>) -> String {
    format!("{}: {}", operand.name, ShellValue(operand.value))
}

fn mask(operand: &Operand<'_>) -> Result<i64> {
    let fault = |text: &str| Err(Error::failed_to_parse(format!("{text} {}", shown(operand))));
    let number = Number::from_value(operand.value);
    match number.and_then(Number::to_i64_exact) {
        Some(mask) if mask >= 0 => Ok(mask),
        Some(_) => fault("Expected a non-negative number in:"),
        None if number.is_some_and(Number::is_nan) => {
            fault("Expected an integer, but found NaN in:")
        }
        None if number.is_some_and(|number| number.to_i64_truncated().is_none()) => {
            fault("Cannot represent as a 64-bit integer:")
        }
        None => fault("Expected an integer:"),
    }
}

fn positions(items: RawDoc<'_>) -> Result<Vec<u32>> {
    let mut positions = Vec::new();
    for item in items {
        let mut one = DocBuilder::new();
        one.append_element(item);
        let shown = one.finish();
        // In the form of the reference: `0: "x"`.
        let shown = Shell(shown.as_doc()).to_string();
        let shown = shown.trim_start_matches("{ ").trim_end_matches(" }").to_owned();
        let Some(number) = Number::from_value(item.value()) else {
            let text = format!("bit positions must be an integer but got: {shown}");
            return Err(Error::bad_value(text));
        };
        let position = number.to_i64_exact().ok_or_else(|| {
            Error::bad_value(match number.to_f64() {
                out if !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&out) => format!(
                    "bit positions cannot be represented as a 32-bit signed integer: {shown}"
                ),
                _ => format!("bit positions must be an integer but got: {shown}"),
            })
        })?;
        if position < 0 {
            let text = format!("bit positions must be >= 0 but got: {shown}");
            return Err(Error::bad_value(text));
        }
        let position = i32::try_from(position).map_err(|_| {
            let text =
                format!("bit positions cannot be represented as a 32-bit signed integer: {shown}");
            Error::bad_value(text)
        })?;
        positions.push(position.unsigned_abs());
    }
    Ok(positions)
}
