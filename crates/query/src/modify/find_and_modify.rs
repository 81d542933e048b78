//! `findAndModify`: updates or removes one document, and returns one of its versions.

use mayfly_storage::StoreSession;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_storage::Collection;
use mayfly_value::{DocBuf, ValueBuf};

use super::shown::ReturnedVersion;
use super::{DeleteSpec, Image, UpdateSpec, Versions, delete_with, update_with};

/// The change to the first document of a query.
pub enum FindAndModifySpec {
    /// Remove it.
    Remove(DeleteSpec),
    /// Update it, or insert one.
    Update(UpdateSpec),
}

/// The outcome. The write unit itself has read the document, so no other write lies in between.
#[derive(Debug, Default)]
pub struct FoundAndModified {
    /// The document before the change; `None` if there was none.
    pub before: Option<DocBuf>,
    /// The document after the change; `None` if there is none or it is unchanged.
    pub after: Option<DocBuf>,
    /// `_id` of the document that was inserted.
    pub upserted: Option<ValueBuf>,
}

/// Finds a document and updates or removes it. The collection must exist for an upsert. The
/// projection is applied to the returned version before the commit, so that a failing projection
/// has no effect.
///
/// # Errors
/// Errors of [`super::update`] and [`super::delete`], and those of the projection.
pub fn find_and_modify(
    session: StoreSession<'_>,
    collection: &Arc<Collection>,
    spec: &FindAndModifySpec,
    image: Image,
) -> Result<FoundAndModified> {
    let mut found = FoundAndModified::default();
    match spec {
        FindAndModifySpec::Remove(spec) => {
            let shown = ReturnedVersion::of(&spec.query, image);
            delete_with(session, collection, spec, shown, &mut |gone| found.before = Some(gone))?;
        }
        FindAndModifySpec::Update(spec) => {
            let mut seen = |Versions { before, after }| {
                found.before = before;
                found.after = after;
            };
            let shown = ReturnedVersion::of(&spec.query, image);
            let outcome = update_with(session, collection, spec, shown, &mut seen)?;
            found.upserted = outcome.upserted;
        }
    }
    Ok(found)
}
