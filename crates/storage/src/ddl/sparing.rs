//! How changes of definitions spare open transactions: which of them make wrong what a transaction has read or written, and waiting
//! for those that have looked the name up. The file `open` of [`crate::catalog`] describes that wait.
//!
//! | change | what it does to an open transaction |
//! |---|---|
//! | a new index | nothing: the transaction does not see it, and its commit writes the keys |
//! | `hidden` of an index, a time to live, a pace | nothing: its reads are the same |
//! | a policy that hides, holds or archives, before or after the change | its reads show other documents: it is waited for |
//! | other options, `prepareUnique` | its writes would be other ones: it is waited for |
//! | drop, rename, replacement, `dropIndexes`, `reIndex` | what it reads goes: it is waited for |

use std::sync::Arc;

use mayfly_base::{Error, Namespace, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc};

use crate::Store;
use crate::catalog::{CatalogLock, CollectionState, Index, Policy};
use crate::index::spec::IndexSpec;

/// Whether a change must leave open transactions alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenTransactions {
    /// A change that endangers them is not made yet.
    Spare,
    /// They have ended, or there are none.
    Ended,
}

impl Store {
    /// The catalog's lock, after the end of the transactions that have looked one of the names up.
    ///
    /// # Errors
    /// Those of the operation's deadline.
    pub(crate) fn lock_catalog_sparing(&self, names: &[Namespace]) -> Result<CatalogLock<'_>> {
        self.definitions.open.await_end(names)?;
        self.catalog.lock()
    }

    /// Makes a change. Where it gives nothing, because it would endanger open transactions, it is made after they have ended.
    ///
    /// # Errors
    /// Those of the change and of the operation's deadline.
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

/// Whether reads show other documents because of the policy.
fn shows_other_documents(policy: &Policy) -> bool {
    policy.hides() || policy.holds_documents() || policy.archives()
}

/// The same for an index, if it is a policy.
pub(super) fn index_shows_other_documents(index: &Arc<Index>) -> bool {
    spec_shows_other_documents(&index.spec)
}

/// The same for the definition of one.
pub(super) fn spec_shows_other_documents(spec: &IndexSpec) -> bool {
    let options = spec.ttl_options();
    spec.expire_after().is_some()
        && (spec.hides_expired() || options.hold_field.is_some() || options.archive.is_some())
}

/// Whether new options in place of old ones would make an open transaction wrong.
pub(super) fn options_endanger(before: &CollectionState, after: &CollectionState) -> bool {
    let own = [before.own_policy(), after.own_policy()];
    without_expiry(before.options.as_doc()) != without_expiry(after.options.as_doc())
        || own.into_iter().flatten().any(|policy| shows_other_documents(policy))
}

/// Whether a changed definition of an index in place of the old one would.
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
