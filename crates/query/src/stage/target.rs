//! The target of `$out` and `$merge`.

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_value::arguments::{Argument, Fields};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, new_object_id};

use super::{PipelineContext, StageContext};

/// Parses the name of a collection, or a document with `db` and `coll`, which are declared in
/// `declared`; an empty or absent `db` is that of the command.
///
/// # Errors
/// 73 InvalidNamespace, the errors of the declarations.
pub(super) fn target(
    value: RawValue<'_>,
    context: &PipelineContext<'_>,
    (path, declared): (&'static str, &'static [Argument]),
) -> Result<Namespace> {
    let RawValue::Document(spec) = value else {
        return Namespace::new(context.db, value.as_str().unwrap_or_default());
    };
    let fields = Fields::read(spec, path, declared)?;
    let db = fields.string("db")?.filter(|db| !db.is_empty()).unwrap_or(context.db);
    Namespace::new(db, fields.string("coll")?.unwrap_or_default())
}

/// Refuses collections that pipelines must not write to.
///
/// # Errors
/// `codes`: the first for system collections, the second for internal databases.
pub(super) fn check_target(ns: &Namespace, stage: &str, codes: (i32, i32)) -> Result<()> {
    if ns.collection().starts_with("system.") {
        let text = format!("Can't {stage} to special collection: {}", ns.collection());
        return Err(Error::new(ErrorCode(codes.0), text));
    }
    if matches!(ns.db(), "admin" | "config" | "local") {
        let text = format!("Can't {stage} to internal database: {}", ns.db());
        return Err(Error::new(ErrorCode(codes.1), text));
    }
    Ok(())
}

/// Prepares a document for writing: fills empty timestamps in, unless the command keeps them.
pub(super) fn filled(context: &StageContext<'_>, document: DocBuf) -> DocBuf {
    if context.settings.keep_empty_timestamps {
        return document;
    }
    context.session.store.fill_empty_timestamps(document.as_doc()).unwrap_or(document)
}

/// Moves `_id` to the front, or generates one.
pub(super) fn with_id(context: &StageContext<'_>, document: RawDoc<'_>) -> DocBuf {
    if document.iter().next().is_some_and(|first| first.name() == "_id") {
        return document.to_owned();
    }
    let mut out = DocBuilder::new();
    match document.get_element("_id") {
        Some(id) => out.append_element(id),
        None => out.append("_id", RawValue::ObjectId(new_object_id(context.session.op.now_ms()))),
    };
    for element in document.iter().filter(|element| element.name() != "_id") {
        out.append_element(element);
    }
    out.finish()
}
