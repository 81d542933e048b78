//! Top-level names that begin with `$`: inserted documents may contain them, updates must not add
//! them.
//!
//! Manual: "Field Names with Periods and Dollar Signs". Below the top level any name may begin with
//! `$`. The fields of a DBRef are rejected only if they do not form one.

use std::collections::HashSet;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{Finder, RawDoc, RawElement, RawValue};

use super::{Action, Operators};

/// Rejects a replacement with such a name.
pub(super) fn check_replacement(replacement: RawDoc<'_>) -> Result<()> {
    check_names(replacement, |_| true)
}

/// Rejects such a field if operators have added it or replaced its value. Changes below it are
/// allowed.
pub(super) fn check_modified(
    before: RawDoc<'_>,
    after: RawDoc<'_>,
    operators: &Operators,
) -> Result<()> {
    if !operators.modifications.iter().any(|one| one.path.as_str().starts_with('$')) {
        return Ok(());
    }
    let paths = operators.modifications.iter().filter(|one| match &one.action {
        Action::Modify(_) | Action::RenameFrom(_) => true,
        Action::ModifyOnInsert(_) => false,
    });
    let named: HashSet<&str> = paths.filter_map(|one| one.path.as_single()).collect();
    let fields = Finder::new(before);
    check_names(after, |element| match fields.get_element(before, element.name()) {
        None => true,
        Some(old) => {
            let same = old.type_byte() == element.type_byte() && old.data() == element.data();
            !same && named.contains(element.name())
        }
    })
}

fn check_names(doc: RawDoc<'_>, is_new: impl Fn(RawElement<'_>) -> bool) -> Result<()> {
    let mut before: Option<RawElement<'_>> = None;
    let mut fields = doc.iter().peekable();
    while let Some(element) = fields.next() {
        if element.name_bytes().starts_with(b"$") && is_new(element) {
            let place = Neighbours { before, after: fields.peek().copied() };
            place.check(element)?;
        }
        before = Some(element);
    }
    Ok(())
}

/// The neighbours of a field.
struct Neighbours<'a> {
    before: Option<RawElement<'a>>,
    after: Option<RawElement<'a>>,
}

impl Neighbours<'_> {
    /// Checks that DBRef fields are `$ref`, `$id` and optionally `$db`, in this order.
    fn check(&self, element: RawElement<'_>) -> Result<()> {
        let is_named = |neighbour: Option<RawElement<'_>>, name: &str| {
            neighbour.is_some_and(|neighbour| neighbour.name() == name)
        };
        let is_string = matches!(element.value(), RawValue::String(_));
        match element.name() {
            name @ ("$ref" | "$db") if !is_string => {
                let found = element.value().type_name();
                invalid(format!("The DBRef {name} field must be a String, not a {found}"))
            }
            "$ref" if !is_named(self.after, "$id") => {
                invalid("The DBRef $ref field must be followed by a $id field".to_owned())
            }
            "$id" if !is_named(self.before, "$ref") => {
                invalid("Found $id field without a $ref before it, which is invalid.".to_owned())
            }
            "$db" if !is_named(self.before, "$id") => {
                invalid("Found $db field without a $id before it, which is invalid.".to_owned())
            }
            "$ref" | "$id" | "$db" => Ok(()),
            name => Err(Error::new(
                ErrorCode::DollarPrefixedFieldName,
                format!(
                    "The dollar ($) prefixed field '{name}' in '{name}' is not allowed in the context of an update's replacement document. Consider using an aggregation pipeline with $replaceWith."
                ),
            )),
        }
    }
}

fn invalid(text: String) -> Result<()> {
    Err(Error::new(ErrorCode::InvalidDBRef, text))
}
