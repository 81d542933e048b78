//! Checks of the types of options. They hold for indexes of every kind, also where an option of
//! another kind has no effect.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::arguments::error::mistyped;
use mayfly_value::shell::Shell;
use mayfly_value::{RawDoc, RawElement, RawValue};

use super::checks::boolean;
use crate::index::kinds::{self, OptionForm};

/// The fields that may stand next to `clustered`.
const OF_CLUSTERED: &[&str] = &["v", "key", "name", "unique", "clustered", "expireAfterSeconds"];

/// Checks the types of options.
///
/// # Errors
/// 14 TypeMismatch.
pub(super) fn check_types(raw: RawDoc<'_>) -> Result<()> {
    raw.iter().try_for_each(check_type)
}

fn check_type(element: RawElement<'_>) -> Result<()> {
    let value = element.value();
    let form = match element.name() {
        "background" | "unique" | "sparse" | "dropDups" | "prepareUnique" | "clustered" => {
            return boolean(element).map(|_| ());
        }
        // Of haystack indexes, which are no longer supported.
        "bucketSize" => Some(OptionForm::Number),
        name => kinds::option_form(name),
    };
    let (fits, wanted) = match form {
        Some(OptionForm::Number) => (value.is_number(), "a number"),
        Some(OptionForm::String) => (matches!(value, RawValue::String(_)), "a string"),
        Some(OptionForm::Weights) => {
            let fits =
                matches!(value, RawValue::Document(_) | RawValue::Array(_) | RawValue::String(_));
            (fits, "an object")
        }
        Some(OptionForm::Own) | None => return Ok(()),
    };
    if fits {
        return Ok(());
    }
    let (name, found) = (element.name(), value.type_name());
    Err(mistyped(format!("The field '{name}' must be {wanted}, but got {found}")))
}

/// Checks the fields of a definition with `clustered`, which is that of a clustered collection.
///
/// # Errors
/// 197 InvalidIndexSpecificationOption for other fields, 14 for a value that is no flag, 6492800
/// for false, 67 CannotCreateIndex without `unique`.
pub(super) fn check_clustered(raw: RawDoc<'_>) -> Result<()> {
    let Some(clustered) = raw.get_element("clustered") else { return Ok(()) };
    if let Some(other) = raw.iter().find(|field| !OF_CLUSTERED.contains(&field.name())) {
        let name = other.name();
        return Err(Error::new(
            ErrorCode::InvalidIndexSpecificationOption,
            format!(
                "The field '{name}' is not valid for a clustered index specification. Specification: {}",
                Shell(raw)
            ),
        ));
    }
    if !boolean(clustered)? {
        let text = "Value 'false' for field 'clustered' is invalid";
        return Err(Error::new(ErrorCode(6_492_800), text));
    }
    match raw.get_element("unique").map(boolean).transpose()? {
        Some(true) => Ok(()),
        _ => Err(Error::new(
            ErrorCode::CannotCreateIndex,
            "The 'unique' field is required when 'clustered' is specified",
        )),
    }
}

/// An index is either unique or prepared to become so.
///
/// # Errors
/// 67 CannotCreateIndex.
pub(super) fn check_combinations(raw: RawDoc<'_>) -> Result<()> {
    for name in ["unique", "prepareUnique"] {
        if !raw.get_element(name).map(boolean).transpose()?.unwrap_or(false) {
            return Ok(());
        }
    }
    let text = format!(
        "Invalid index specification {}; cannot create an index with the 'unique' option and the \
         'prepareUnique' option",
        Shell(raw)
    );
    Err(Error::new(ErrorCode::CannotCreateIndex, text))
}
