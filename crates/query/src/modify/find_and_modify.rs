//! `findAndModify`: one document, changed or removed, and how it was or is.

use mayfly_storage::StoreSession;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_storage::Collection;
use mayfly_value::{DocBuf, ValueBuf};

use super::shown::Shown;
use super::{DeleteSpec, Image, UpdateSpec, Versions, delete_with, update_with};

/// What to do with the first document of a query.
pub enum FindAndModifySpec {
    /// Remove it.
    Remove(DeleteSpec),
    /// Change it, or insert it.
    Update(UpdateSpec),
}

/// What was done. The write unit that did it read the document itself, so nobody else changed it in between.
#[derive(Debug, Default)]
pub struct FoundAndModified {
    /// The document as it was; nothing when there was none.
    pub before: Option<DocBuf>,
    /// The document as it is; nothing when there is none or it stayed as it was.
    pub after: Option<DocBuf>,
    /// `_id` of the document that was inserted instead.
    pub upserted: Option<ValueBuf>,
}

/// Finds a document and changes or removes it. The collection must exist for an upsert. The version that is to be shown is
/// tried with the query's projection before anything is committed.
///
/// # Errors
/// As [`super::update`] and [`super::delete`], and those of the projection.
pub fn find_and_modify(
    session: StoreSession<'_>,
    collection: &Arc<Collection>,
    spec: &FindAndModifySpec,
    image: Image,
) -> Result<FoundAndModified> {
    let mut found = FoundAndModified::default();
    match spec {
        FindAndModifySpec::Remove(spec) => {
            let shown = Shown::of(&spec.query, image);
            delete_with(session, collection, spec, shown, &mut |gone| found.before = Some(gone))?;
        }
        FindAndModifySpec::Update(spec) => {
            let mut seen = |Versions { before, after }| {
                found.before = before;
                found.after = after;
            };
            let shown = Shown::of(&spec.query, image);
            let outcome = update_with(session, collection, spec, shown, &mut seen)?;
            found.upserted = outcome.upserted;
        }
    }
    Ok(found)
}
