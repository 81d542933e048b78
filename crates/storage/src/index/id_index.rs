//! The definition of the index on `_id`, which exists in every collection that is not clustered.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::shell::Shell;
use mayfly_value::{Collation, RawDoc};

use super::spec::{collation_option, key_pattern, name, version};
use crate::policy::value::as_f64;

/// The options that it may have.
const KNOWN: &[&str] = &["v", "key", "name", "ns", "_id", "collation"];

/// Checks a definition whose key is `{ _id: 1 }` or `{ _id: -1 }`, and returns its collation if it
/// names one.
///
/// # Errors
/// 197 for an option that it cannot have, 2 BadValue for the descending order.
pub(super) fn collation_of(
    raw: RawDoc<'_>,
    key: RawDoc<'_>,
) -> Result<Option<Option<Arc<Collation>>>> {
    if let Some(bad) = raw.iter().find(|element| !KNOWN.contains(&element.name())) {
        return Err(Error::new(
            ErrorCode::InvalidIndexSpecificationOption,
            format!(
                "The field '{}' is not valid for an _id index specification. Specification: {}",
                bad.name(),
                Shell(raw)
            ),
        ));
    }
    if key.get("_id").and_then(as_f64) == Some(-1.0) {
        return Err(wrong_key(key));
    }
    raw.get_element("collation").map(collation_option).transpose()
}

/// Checks the option `idIndex` of `create`; the collection has this collation. Manual: "create".
///
/// # Errors
/// 9 FailedToParse for a missing key or name, 14, 67 for an invalid version or name, 197 for an
/// option that it cannot have, 2 BadValue for another key or collation.
pub fn check_id_index(raw: RawDoc<'_>, collation: Option<&Arc<Collation>>) -> Result<()> {
    let key = key_pattern(raw)?;
    name(raw, key)?;
    let mut fields = key.iter();
    let is_id = fields
        .next()
        .is_some_and(|field| field.name_bytes() == b"_id" && as_f64(field.value()) == Some(1.0));
    if !is_id || fields.next().is_some() {
        return Err(wrong_key(key));
    }
    let own = collation_of(raw, key)?;
    version(raw)?;
    if own.is_some_and(|own| !mayfly_value::same_collation(own.as_ref(), collation)) {
        return Err(Error::bad_value("'idIndex' must have the same collation as the collection."));
    }
    Ok(())
}

fn wrong_key(key: RawDoc<'_>) -> Error {
    Error::bad_value(format!(
        "The field 'key' for an _id index must be {{_id: 1}}, but got {}",
        Shell(key)
    ))
}
