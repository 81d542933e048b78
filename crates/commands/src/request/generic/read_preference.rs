//! Read preferences: from which members a client wants to read. Manual: "Read Preference".
//!
//! A server alone and a primary answer all of them. They are checked all the same, so that a client
//! gets the error that every member of a cluster would return.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::arguments::error::wrong_type;
use mayfly_value::arguments::{Argument, convert::whole_number};
use mayfly_value::{Number, RawDoc, RawValue};

use crate::request::Fields;

const PRIMARY: &str = "primary";
const MODES: &[&str] = &[PRIMARY, "primaryPreferred", "secondary", "secondaryPreferred", "nearest"];
/// The least `maxStalenessSeconds`.
const MIN_STALENESS_SECS: i64 = 90;

/// The fields. Others are ignored.
const DECLARED: &[Argument] = &[
    Argument::any("mode"),
    Argument::document("hedge").mistyped("hedge field must be of type object if provided"),
    Argument::any("tags"),
    Argument::any("maxStalenessSeconds"),
];
/// The fields of `hedge`, which has no effect.
const HEDGE: &[Argument] = &[Argument::flag("enabled"), Argument::flag("delay")];

/// Parses `$readPreference`; returns whether a secondary may answer. Null counts as absent.
///
/// # Errors
/// 14 TypeMismatch, 4 NoSuchKey without a mode, 2 BadValue for an unknown mode and what `primary`
/// excludes, 160 MaxStalenessOutOfRange, 72 InvalidOptions for `hedge` with `primary`.
pub(super) fn parse(value: RawValue<'_>) -> Result<bool> {
    let RawValue::Document(doc) = value else {
        return match value {
            RawValue::Null | RawValue::Undefined => Ok(false),
            other => Err(wrong_type("$readPreference", other, "object")),
        };
    };
    // The form that drivers send.
    let mut parts = doc.iter();
    if let (Some(only), None) = (parts.next(), parts.next())
        && only.name_bytes() == b"mode"
        && let RawValue::String(mode) = only.value()
        && MODES.contains(&mode)
    {
        return Ok(mode != PRIMARY);
    }
    parse_all(doc)
}

#[cold]
fn parse_all(doc: RawDoc<'_>) -> Result<bool> {
    let fields = Fields::read_lenient(doc, "$readPreference", DECLARED)?;
    let mode = match doc.get("mode") {
        Some(RawValue::String(mode)) => mode,
        Some(other) => return Err(mistyped("mode", "string", other)),
        None => {
            return Err(Error::new(ErrorCode::NoSuchKey, "Missing expected field \"mode\""));
        }
    };
    if !MODES.contains(&mode) {
        return Err(Error::bad_value(format!(
            "Could not parse $readPreference mode '{mode}'. Only the modes 'primary', 'primaryPreferred', 'secondary', 'secondaryPreferred', and 'nearest' are supported."
        )));
    }
    let is_primary = mode == PRIMARY;
    if let Some(hedge) = fields.document("hedge")? {
        let hedge = Fields::read(hedge, "hedge", HEDGE)?;
        if is_primary && hedge.bool("enabled")? != Some(false) {
            let text = "cannot enable hedging for $readPreference mode \"primaryOnly\"";
            return Err(Error::new(ErrorCode::InvalidOptions, text));
        }
    }
    match doc.get("tags") {
        None => {}
        Some(RawValue::Array(tags)) => {
            let restrict = tags
                .iter()
                .any(|tags| tags.value().as_document().is_none_or(|tags| !tags.is_empty()));
            if is_primary && restrict {
                let text = "Only empty tags are allowed with primary read preference";
                return Err(Error::bad_value(text));
            }
        }
        Some(other) => return Err(mistyped("tags", "array", other)),
    }
    check_staleness(doc.get("maxStalenessSeconds"), is_primary)?;
    Ok(!is_primary)
}

fn check_staleness(value: Option<RawValue<'_>>, is_primary: bool) -> Result<()> {
    let Some(value) = value else { return Ok(()) };
    let Some(number) = Number::from_value(value) else {
        return Err(mistyped("maxStalenessSeconds", "a number", value));
    };
    if number.to_i64_exact().is_none() {
        return Err(Error::bad_value("Expected field \"maxStalenessSeconds\" to have an integer"));
    }
    let secs = whole_number(value).unwrap_or(0);
    if secs == 0 {
        return Ok(());
    }
    if secs < 0 {
        return Err(Error::bad_value("maxStalenessSeconds must be a non-negative integer"));
    }
    if secs == i64::MAX {
        let text = format!("maxStalenessSeconds value can not exceed {}", i64::MAX);
        return Err(Error::bad_value(text));
    }
    if secs < MIN_STALENESS_SECS {
        let text = format!("maxStalenessSeconds value can not be less than {MIN_STALENESS_SECS}");
        return Err(Error::new(ErrorCode::MaxStalenessOutOfRange, text));
    }
    if is_primary {
        let text = "maxStalenessSeconds can not be set for the primary mode";
        return Err(Error::bad_value(text));
    }
    Ok(())
}

fn mistyped(name: &str, expected: &str, value: RawValue<'_>) -> Error {
    let text =
        format!("\"{name}\" had the wrong type. Expected {expected}, found {}", value.type_name());
    Error::new(ErrorCode::TypeMismatch, text)
}
