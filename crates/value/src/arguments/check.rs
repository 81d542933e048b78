//! Checks of the fields of a document against their declarations.

use mayfly_base::Error;

use super::declaration::{Argument, Form, Null, Path};
use super::{NameSet, error};
use crate::{RawDoc, RawValue};

/// Accepts further names of fields, for example those of generic arguments.
pub type Also = fn(&[u8]) -> bool;

/// Checks the fields of a document in their order, except the first `skipped` ones: each must be
/// declared, or `also` accepts it, and none may be repeated. Returns the names.
#[inline]
pub(super) fn check_fields(
    document: RawDoc<'_>,
    path: &Path<'_>,
    declared: &[Argument],
    (skipped, also): (usize, Also),
) -> Result<NameSet, Error> {
    let mut names = NameSet::default();
    for (at, element) in document.iter().enumerate() {
        let name = element.name_bytes();
        let may_be_repeated = names.insert(name);
        if at < skipped {
            continue;
        }
        let is_repeated = || document.iter().take(at).any(|other| other.name_bytes() == name);
        if may_be_repeated && is_repeated() {
            return Err(error::duplicate(path.field(element.name())));
        }
        // Most generic arguments, without a search of the table.
        if (name.first() == Some(&b'$') || name == b"lsid") && also(name) {
            continue;
        }
        match declared.iter().find(|argument| argument.is_named(name)) {
            Some(argument) => argument.check(path, element)?,
            None if also(name) => {}
            None => return Err(error::unknown(path.field(element.name()))),
        }
    }
    Ok(names)
}

/// Checks a document that has declared fields only.
pub(super) fn check_document(
    document: RawDoc<'_>,
    path: &Path<'_>,
    fields: &[Argument],
) -> Result<(), Error> {
    check_fields(document, path, fields, (0, |_| false))?;
    check_present(document, path, fields, |_| false)
}

/// Checks that the fields of a document are in the stable API, also those of documents in it.
///
/// # Errors
/// 323 APIStrictError.
#[cold]
pub(super) fn check_stable(
    document: RawDoc<'_>,
    path: &Path<'_>,
    declared: &[Argument],
) -> Result<(), Error> {
    for element in document {
        let found = declared.iter().find(|argument| argument.is_named(element.name_bytes()));
        let Some(argument) = found else { continue };
        let path = path.field(argument.name);
        if !argument.is_stable {
            return Err(error::unstable(path));
        }
        if let (Form::Fields(fields), RawValue::Document(inner)) = (argument.form, element.value())
        {
            check_stable(inner, &path, fields)?;
        }
    }
    Ok(())
}

/// Checks that the required fields are present, in the document or `elsewhere`. They are the first
/// ones of the table ([`Argument::required`]).
#[inline]
pub(super) fn check_present(
    document: RawDoc<'_>,
    path: &Path<'_>,
    fields: &[Argument],
    elsewhere: impl Fn(&str) -> bool,
) -> Result<(), Error> {
    let is_absent = |field: &&Argument| match document.get(field.name) {
        None => !elsewhere(field.name),
        Some(RawValue::Null | RawValue::Undefined) => field.null == Null::Absent,
        Some(_) => false,
    };
    debug_assert!(
        fields.iter().skip_while(|field| field.is_required).all(|field| !field.is_required),
        "required arguments come first: {path}"
    );
    let missing = fields.iter().take_while(|field| field.is_required).find(is_absent);
    missing.map_or(Ok(()), |field| Err(error::missing(path.field(field.name))))
}
