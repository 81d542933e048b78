//! `idIndex` and `clusteredIndex` of `create`: the order of documents by `_id`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::check_id_index;
use mayfly_value::arguments::convert::truth;
use mayfly_value::arguments::{Argument, Form};
use mayfly_value::{Collation, DocBuilder, Number, RawDoc, RawValue};

use super::options::invalid;
use crate::request::Fields;

/// `clusteredIndex` of `create`. A document, or a value that is false.
pub(super) const CLUSTERED_INDEX: Argument = Argument::one_of(
    "clusteredIndex",
    &[
        Form::Flag,
        Form::Fields(&[
            Argument::document("key").required(),
            Argument::flag("unique").required(),
            Argument::whole("v"),
            Argument::string("name"),
        ]),
    ],
)
.null_is_value()
.since("5.3");

/// The document `clusteredIndex`, if the collection is to be clustered.
pub(super) fn clustered_index<'a>(fields: &Fields<'a>) -> Option<RawDoc<'a>> {
    fields.get("clusteredIndex").and_then(RawValue::as_document)
}

/// Checks options that a clustered collection cannot have.
///
/// # Errors
/// 5979703 for `true`, 6049200 with `capped`, 6026500 with `viewOn`, 6049204 with `max`, 72 with
/// `idIndex`.
pub(super) fn check_with_others(fields: &Fields<'_>) -> Result<()> {
    let Some(index) = fields.get("clusteredIndex") else { return Ok(()) };
    let fail = |code: i32, text: &str| Err(Error::new(ErrorCode(code), text));
    if truth(index) == Some(true) {
        let text = "'clusteredIndex' must be a document with the key {_id: 1} and unique: true";
        return fail(5_979_703, text);
    }
    if fields.bool("capped")? == Some(true) {
        return fail(6_049_200, "A capped collection cannot be clustered");
    }
    if clustered_index(fields).is_none() {
        return Ok(());
    }
    if fields.get("viewOn").is_some() {
        return fail(6_026_500, "'clusteredIndex' cannot be used with 'viewOn'");
    }
    if fields.get("max").is_some() {
        return fail(6_049_204, "'max' cannot be used with 'clusteredIndex'");
    }
    if fields.get("idIndex").is_some() {
        return Err(invalid("'idIndex' cannot be used with 'clusteredIndex'"));
    }
    Ok(())
}

/// `clusteredIndex`: records are in the order of `_id`. Manual: "Clustered Collections".
///
/// # Errors
/// 197 for another key, 5979700 when it is not unique, 5979704 for another version, 67 for an
/// invalid name.
pub(super) fn clustered(fields: &Fields<'_>, options: &mut DocBuilder) -> Result<()> {
    let Some(index) = clustered_index(fields) else { return Ok(()) };
    let inner = Fields::new(index, "create.clusteredIndex");
    let key = inner.document("key")?.unwrap_or(RawDoc::EMPTY);
    let one = |value| Number::from_value(value).map(Number::to_f64) == Some(1.0);
    if key.iter().count() != 1 || !key.get("_id").is_some_and(one) {
        return Err(Error::new(
            ErrorCode::InvalidIndexSpecificationOption,
            "The clusteredIndex option is only supported for collections clustered by _id: the key must be {_id: 1}",
        ));
    }
    if inner.bool("unique")? != Some(true) {
        let text = "The clusteredIndex option requires unique: true to be specified";
        return Err(Error::new(ErrorCode(5_979_700), text));
    }
    let version = inner.long("v")?.unwrap_or(2);
    if version != 2 {
        let text = format!("The clusteredIndex option supports v: 2 alone, not v: {version}");
        return Err(Error::new(ErrorCode(5_979_704), text));
    }
    let name = inner.string("name")?.unwrap_or("_id_");
    if name.contains('\0') {
        let text = "index name cannot contain NUL bytes";
        return Err(Error::new(ErrorCode::CannotCreateIndex, text));
    }
    options.start_document("clusteredIndex").append("v", 2).append("key", key);
    options.append("name", name).append("unique", true).end();
    Ok(())
}

/// Checks `idIndex`, the definition of the index on `_id`. It changes nothing: the index has the
/// collation of the collection.
///
/// # Errors
/// Those of [`check_id_index`].
pub(super) fn id_index(fields: &Fields<'_>) -> Result<()> {
    let Some(index) = fields.document("idIndex")? else { return Ok(()) };
    let collation = match fields.document("collation")? {
        Some(collation) => Collation::parse(collation, "create.collation")?,
        None => None,
    };
    check_id_index(index, collation.as_ref())
}
