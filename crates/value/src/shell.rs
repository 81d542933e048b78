//! Values as the shell prints them (`{ a: 1, b: "x" }`), for error texts, plan summaries and logs.

use std::fmt;

use crate::raw::{RawDoc, RawValue};

/// Writes one value in shell syntax.
pub fn write_value(f: &mut fmt::Formatter<'_>, value: RawValue<'_>) -> fmt::Result {
    match value {
        RawValue::MinKey => f.write_str("MinKey"),
        RawValue::Undefined => f.write_str("undefined"),
        RawValue::Null => f.write_str("null"),
        RawValue::Double(v) => {
            let digits = general(v, 16);
            let point = if digits.contains(['.', 'e', 'n']) { "" } else { ".0" };
            write!(f, "{digits}{point}")
        }
        RawValue::Int32(v) => write!(f, "{v}"),
        RawValue::Int64(v) => write!(f, "{v}"),
        RawValue::Decimal128(v) => write!(f, "{}", bson::Decimal128::from_bytes(v)),
        RawValue::String(v) | RawValue::Symbol(v) => write!(f, "\"{v}\""),
        RawValue::Document(v) => write_document(f, v),
        RawValue::Array(v) if v.is_empty() => f.write_str("[]"),
        RawValue::Array(v) => {
            f.write_str("[")?;
            for (at, element) in v.iter().enumerate() {
                f.write_str(if at == 0 { " " } else { ", " })?;
                write_value(f, element.value())?;
            }
            f.write_str(" ]")
        }
        RawValue::Binary { subtype, bytes } => {
            write!(f, "BinData({subtype}, ")?;
            bytes.iter().try_for_each(|byte| write!(f, "{byte:02X}"))?;
            f.write_str(")")
        }
        RawValue::ObjectId(v) => {
            f.write_str("ObjectId('")?;
            v.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            f.write_str("')")
        }
        RawValue::Bool(v) => write!(f, "{v}"),
        RawValue::Date(v) => write!(f, "new Date({v})"),
        RawValue::Timestamp(v) => write!(f, "Timestamp({}, {})", v >> 32, v & 0xFFFF_FFFF),
        RawValue::Regex { pattern, options } => write!(f, "/{pattern}/{options}"),
        RawValue::DbPointer { ns, .. } => write!(f, "DBPointer(\"{ns}\")"),
        RawValue::Code(v) => f.write_str(v),
        RawValue::CodeWithScope { code, scope } => {
            write!(f, "CodeWScope({code}, ")?;
            write_document(f, scope)?;
            f.write_str(")")
        }
        RawValue::MaxKey => f.write_str("MaxKey"),
    }
}

fn write_document(f: &mut fmt::Formatter<'_>, document: RawDoc<'_>) -> fmt::Result {
    if document.is_empty() {
        return f.write_str("{}");
    }
    for (at, element) in document.iter().enumerate() {
        f.write_str(if at == 0 { "{ " } else { ", " })?;
        write!(f, "{}: ", element.name())?;
        write_value(f, element.value())?;
    }
    f.write_str(" }")
}

/// Displays a document on one line.
pub struct Shell<'a>(pub RawDoc<'a>);

impl fmt::Display for Shell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_document(f, self.0)
    }
}

/// Displays a value on one line.
pub struct ShellValue<'a>(pub RawValue<'a>);

impl fmt::Display for ShellValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_value(f, self.0)
    }
}

/// A value as errors of expressions print it: a double with six digits.
pub struct Brief<'a>(pub RawValue<'a>);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            RawValue::Double(v) => f.write_str(&general(v, 6)),
            value => write_value(f, value),
        }
    }
}

/// A double as `%g` of C prints it, with this many significant digits.
fn general(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let places = (digits as i32 - 1 - exponent).max(0) as usize;
    trimmed(&format!("{value:.places$}"))
}
