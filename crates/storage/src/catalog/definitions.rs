//! Recent changes of definitions, by name. Reads as of an earlier time check them.
//!
//! Collections, indexes and options are not part of a snapshot: a reader finds their present state.
//! A read as of one time therefore notes the names that it looks up, and checks at its end whether
//! one of them has changed since that time. If so, the read fails; reads of other collections do
//! not.
//!
//! 1. A change is noted before it becomes visible ([`Definitions::changing`]), and is under way
//!    until it is visible everywhere.
//! 2. A reader reads the [`Definitions::edition`] first and takes its snapshot second. A change
//!    that had ended by then is in the snapshot; one that was under way, or came later, invalidates
//!    its name for this reader.
//! 3. The creation of a collection under a free name invalidates nothing: the snapshot correctly
//!    has none of its documents.
//! 4. An open transaction does not use an index that was published after it began
//!    ([`Definitions::edition`] against [`IndexRuntime::visible_since`](super::IndexRuntime)), so
//!    that new indexes do not invalidate it. Its commit writes their keys.

use std::collections::VecDeque;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use parking_lot::Mutex;

use super::open::OpenTransactions;
use crate::record::signal::Signal;

/// The number of changes that are remembered. A read as of a time before them finds all names
/// invalid.
const REMEMBERED: usize = 4096;

/// The sort of change of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Definition {
    /// The name was free, and a new collection gets it.
    Created,
    /// The collection of this name gets other indexes or options, or loses the name.
    Changed,
    /// A collection with another name gets it.
    Renamed,
    /// The collection gets or loses indexes that are being built: readers do not use them, writers
    /// leave notes for their build.
    Building,
    /// The collection gets an index that is built.
    IndexAdded,
}

/// The latest changes, and the open transactions that they may concern.
#[derive(Default)]
pub(crate) struct Definitions {
    changes: Mutex<Changes>,
    pub(crate) open: Arc<OpenTransactions>,
    /// Notified when a change has ended.
    ended: Signal,
}

#[derive(Default)]
struct Changes {
    edition: u64,
    /// Changes up to this edition are not remembered.
    forgotten: u64,
    list: VecDeque<Change>,
}

struct Change {
    name: Namespace,
    what: Definition,
    /// Identifies this change while it is under way.
    number: u64,
    /// The edition that contains it; `None` while it is under way.
    edition: Option<u64>,
}

/// A change under way; it ends when this is dropped.
pub(crate) struct ChangeUnderWay<'d> {
    definitions: &'d Definitions,
    number: u64,
}

impl Definitions {
    /// The number of changes that have ended. A reader reads it before it takes its snapshot.
    pub(crate) fn edition(&self) -> u64 {
        self.changes.lock().edition
    }

    /// Waits until a change has ended after this edition.
    pub(crate) async fn wait_past(&self, edition: u64) {
        self.ended.until(|| self.edition() > edition).await;
    }

    /// Begins a change of a name. The caller keeps the result until the change is visible
    /// everywhere.
    pub(crate) fn changing(&self, name: &Namespace, what: Definition) -> ChangeUnderWay<'_> {
        let mut changes = self.changes.lock();
        while changes.list.len() >= REMEMBERED
            && let Some(edition) = changes.list.front().and_then(|oldest| oldest.edition)
        {
            changes.list.pop_front();
            changes.forgotten = changes.forgotten.max(edition);
        }
        changes.edition += 1;
        let number = changes.edition;
        changes.list.push_back(Change { name: name.clone(), what, number, edition: None });
        ChangeUnderWay { definitions: self, number }
    }

    /// Whether one of the names may have another meaning for this reader than in this edition.
    fn changed_since(&self, edition: u64, names: &[Namespace], reader: Reader) -> bool {
        let changes = self.changes.lock();
        if changes.edition == edition || names.is_empty() {
            return false;
        }
        let concern = |name| changes.concern(name, edition, reader);
        edition < changes.forgotten || names.iter().any(concern)
    }

    /// Checks that none of the names has changed since this edition.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable.
    pub(crate) fn check_since(
        &self,
        edition: u64,
        names: &[Namespace],
        reader: Reader,
    ) -> Result<()> {
        match self.changed_since(edition, names, reader) {
            false => Ok(()),
            true => Err(changed("")),
        }
    }

    /// Whether writes to the collection of this name may differ from those in this edition, apart
    /// from keys of new indexes. The caller holds the collection's state shared; a change takes it
    /// exclusively, so the answer stays true.
    pub(crate) fn written_otherwise_since(&self, edition: u64, name: &Namespace) -> bool {
        let changes = self.changes.lock();
        let adds_keys = |what| matches!(what, Definition::Building | Definition::IndexAdded);
        changes.edition != edition
            && (edition < changes.forgotten
                || changes.later(name, edition).any(|change| !adds_keys(change.what)))
    }
}

/// The sort of reader that reads as of an earlier edition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A read of a snapshot, which uses all present indexes.
    Snapshot,
    /// An open transaction, which uses the indexes that existed when it began.
    Transaction,
}

/// The error of such a reader; `what` names the change.
pub(crate) fn changed(what: &str) -> Error {
    Error::new(
        ErrorCode::SnapshotUnavailable,
        format!(
            "Unable to read from a snapshot due to pending collection catalog changes{what}; please retry the operation."
        ),
    )
}

impl Changes {
    /// The changes of a name that are not in this edition.
    fn later(&self, name: &Namespace, edition: u64) -> impl Iterator<Item = &Change> {
        self.list
            .iter()
            .filter(move |change| change.name == *name)
            .filter(move |change| change.edition.is_none_or(|ended| ended > edition))
    }

    fn concern(&self, name: &Namespace, edition: u64, reader: Reader) -> bool {
        let read_otherwise = |change: &&Change| match change.what {
            Definition::Building => false,
            Definition::IndexAdded => reader == Reader::Snapshot,
            Definition::Created | Definition::Changed | Definition::Renamed => true,
        };
        let mut later = self.later(name, edition).filter(read_otherwise);
        match later.next().map(|first| first.what) {
            None | Some(Definition::Building) => false,
            // The reader must find no documents under this name. That holds unless a collection was
            // renamed to it.
            Some(Definition::Created) => later.any(|change| change.what == Definition::Renamed),
            Some(Definition::Changed | Definition::Renamed | Definition::IndexAdded) => true,
        }
    }
}

impl ChangeUnderWay<'_> {
    /// Ends the change; returns an edition that contains it.
    pub(crate) fn end(self) -> u64 {
        let definitions = self.definitions;
        drop(self);
        definitions.edition()
    }
}

impl Drop for ChangeUnderWay<'_> {
    fn drop(&mut self) {
        let mut changes = self.definitions.changes.lock();
        changes.edition += 1;
        let edition = changes.edition;
        let mut latest_first = changes.list.iter_mut().rev();
        if let Some(change) = latest_first.find(|change| change.number == self.number) {
            change.edition = Some(edition);
        }
        drop(changes);
        self.definitions.ended.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(of: &str) -> Namespace {
        Namespace::new("test", of).unwrap()
    }

    fn change(definitions: &Definitions, of: &str, what: Definition) {
        drop(definitions.changing(&name(of), what));
    }

    fn changed_since(definitions: &Definitions, edition: u64, names: &[Namespace]) -> bool {
        definitions.changed_since(edition, names, Reader::Snapshot)
    }

    #[test]
    fn new_indexes_concern_reads_of_a_snapshot_only() {
        let definitions = Definitions::default();
        let edition = definitions.edition();
        let names = [name("a")];
        change(&definitions, "a", Definition::Building);
        assert!(!changed_since(&definitions, edition, &names));
        let added = definitions.changing(&names[0], Definition::IndexAdded);
        assert!(changed_since(&definitions, edition, &names));
        assert_eq!(added.end(), definitions.edition());
        assert!(!definitions.changed_since(edition, &names, Reader::Transaction));
        assert!(!definitions.written_otherwise_since(edition, &names[0]));
        change(&definitions, "a", Definition::Changed);
        assert!(definitions.changed_since(edition, &names, Reader::Transaction));
        assert!(definitions.written_otherwise_since(edition, &names[0]));
    }

    #[test]
    fn only_names_that_changed_later_are_void() {
        let definitions = Definitions::default();
        change(&definitions, "a", Definition::Changed);
        let edition = definitions.edition();
        assert!(!changed_since(&definitions, edition, &[name("a"), name("b")]));
        change(&definitions, "b", Definition::Changed);
        assert!(changed_since(&definitions, edition, &[name("a"), name("b")]));
        assert!(!changed_since(&definitions, edition, &[name("a")]));
        assert!(!changed_since(&definitions, edition, &[]));
    }

    #[test]
    fn a_change_under_way_is_a_change() {
        let definitions = Definitions::default();
        let under_way = definitions.changing(&name("a"), Definition::Changed);
        let edition = definitions.edition();
        assert!(changed_since(&definitions, edition + 1, &[name("a")]));
        drop(under_way);
        assert!(changed_since(&definitions, edition, &[name("a")]));
        assert!(!changed_since(&definitions, definitions.edition(), &[name("a")]));
    }

    #[test]
    fn a_new_collection_is_empty_in_the_past_whatever_becomes_of_it() {
        let definitions = Definitions::default();
        let edition = definitions.edition();
        change(&definitions, "a", Definition::Created);
        change(&definitions, "a", Definition::Changed);
        assert!(!changed_since(&definitions, edition, &[name("a")]));
        change(&definitions, "a", Definition::Renamed);
        assert!(changed_since(&definitions, edition, &[name("a")]));
        let edition = definitions.edition();
        change(&definitions, "a", Definition::Changed);
        change(&definitions, "a", Definition::Created);
        assert!(changed_since(&definitions, edition, &[name("a")]));
    }

    #[test]
    fn what_is_forgotten_voids_everything() {
        let definitions = Definitions::default();
        let edition = definitions.edition();
        for _ in 0..=REMEMBERED {
            change(&definitions, "a", Definition::Changed);
        }
        assert!(changed_since(&definitions, edition, &[name("b")]));
        assert!(!changed_since(&definitions, definitions.edition(), &[name("b")]));
        assert_eq!(definitions.changes.lock().list.len(), REMEMBERED);
    }
}
