//! Which changes of definitions wait for open transactions: those that would invalidate what a
//! transaction has read or written. They wait for the transactions that have looked the name up, as
//! the file `open` of [`crate::catalog`] describes.
//!
//! | change | effect on an open transaction |
//! |---|---|
//! | a new index | none: the transaction does not see it, and its commit writes the keys |
//! | `hidden` of an index, a time to live, a pace | none: its reads are the same |
//! | a policy that hides, holds or archives, before or after the change | its reads show other documents: the change waits |
//! | other options, `prepareUnique` | its writes would differ: the change waits |
//! | drop, rename, replacement, `dropIndexes`, `reIndex`, conversion of an index to a unique one | its reads lose their data: the change waits |

use std::sync::Arc;

use mayfly_base::{Error, Namespace, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc};

use crate::Store;
use crate::catalog::{CatalogLock, CollectionState, Index, Policy};
use crate::index::spec::IndexSpec;

/// Whether a change must not invalidate open transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenTransactions {
    /// A change that would invalidate them is not made yet.
    Spare,
    /// They have ended, or there are none.
    Ended,
}

impl Store {
    /// Takes the catalog's lock after the end of the transactions that have looked one of the names
    /// up.
    ///
    /// # Errors
    /// Errors of the operation's deadline.
    pub(crate) fn lock_catalog_sparing(&self, names: &[Namespace]) -> Result<CatalogLock<'_>> {
        self.definitions.open.await_end(names)?;
        self.catalog.lock()
    }

    /// Makes a change. If `change` returns `None`, because it would invalidate open transactions,
    /// it is called again after they have ended.
    ///
    /// # Errors
    /// Errors of the change and of the operation's deadline.
    pub(super) fn change_sparing<T>(
        &self,
        ns: &Namespace,
        mut change: impl FnMut(OpenTransactions) -> Result<Option<T>>,
    ) -> Result<T> {
        let names = std::slice::from_ref(ns);
        if self.definitions.open.concern(names) {
            if let Some(changed) = change(OpenTransactions::Spare)? {
                return Ok(changed);
            }
            self.definitions.open.await_end(names)?;
        }
        let never = || Error::internal("a change spares transactions that have ended");
        change(OpenTransactions::Ended)?.ok_or_else(never)
    }
}

/// Whether reads depend on the policy.
fn shows_other_documents(policy: &Policy) -> bool {
    policy.hides() || policy.holds_documents() || policy.archives()
}

/// Whether reads depend on the policy of this index.
pub(super) fn index_shows_other_documents(index: &Arc<Index>) -> bool {
    spec_shows_other_documents(&index.spec)
}

/// Whether reads depend on the policy of this definition.
pub(super) fn spec_shows_other_documents(spec: &IndexSpec) -> bool {
    let options = spec.ttl_options();
    spec.expire_after().is_some()
        && (spec.hides_expired() || options.hold_field.is_some() || options.archive.is_some())
}

/// Whether a change of options would invalidate an open transaction.
pub(super) fn options_endanger(before: &CollectionState, after: &CollectionState) -> bool {
    let own = [before.own_policy(), after.own_policy()];
    without_expiry(before.options.as_doc()) != without_expiry(after.options.as_doc())
        || own.into_iter().flatten().any(|policy| shows_other_documents(policy))
}

/// Whether a change of an index's definition would invalidate an open transaction.
pub(super) fn index_change_endangers(before: &Arc<Index>, after: &Arc<Index>) -> bool {
    let shows = [before, after].into_iter().any(index_shows_other_documents);
    before.spec.prepare_unique() != after.spec.prepare_unique()
        || (shows && !before.spec.same_policy(&after.spec))
}

fn without_expiry(options: RawDoc<'_>) -> DocBuf {
    let mut out = DocBuilder::new();
    for element in options.iter().filter(|it| !["expireAfterSeconds", "ttl"].contains(&it.name())) {
        out.append_element(element);
    }
    out.finish()
}
