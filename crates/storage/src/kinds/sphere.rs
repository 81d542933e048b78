//! Indexes of the kind `2dsphere`: not written yet.

use mayfly_base::{Error, Result};
use mayfly_value::RawDoc;

use super::Requested;
use crate::index_spec::IndexSpec;
use crate::keygen::KeySet;

/// Options that it lists itself.
pub(super) const OPTIONS: &[&str] = &[];

/// Its definition, compiled.
#[derive(Clone, Debug)]
pub struct SphereIndex {}

/// Checks a request.
///
/// # Errors
/// 238 NotImplemented.
pub(super) fn request(_raw: RawDoc<'_>, _key: RawDoc<'_>) -> Result<Requested> {
    Err(Error::not_implemented("index type '2dsphere'"))
}

impl SphereIndex {
    /// The definition in the catalog.
    pub(super) fn from_catalog(_spec: RawDoc<'_>) -> Result<SphereIndex> {
        Ok(SphereIndex {})
    }

    /// Fills `out` with the keys of a document.
    pub(super) fn keys(
        &self,
        _spec: &IndexSpec,
        _document: RawDoc<'_>,
        _out: &mut KeySet,
    ) -> Result<()> {
        Err(Error::not_implemented("index type '2dsphere'"))
    }
}
