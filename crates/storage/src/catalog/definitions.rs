//! Which names have changed their meaning lately: what a read as of an earlier time asks.
//!
//! Collections, indexes and options are not part of a snapshot: a reader finds them as they are now. So a read as of one time
//! notes the names that it looks up, and in the end asks whether one of them has changed since that time. It is void then,
//! and reads of other collections are not.
//!
//! 1. A change is noted before anybody can see it ([`Definitions::changing`]), and is under way until everybody does.
//! 2. A reader takes the [`Definitions::edition`] first and its snapshot second. A change that had ended by then is in the
//!    snapshot; one that was under way, or came later, makes its name void for this reader.
//! 3. That a collection came into being under a name that was free changes nothing: the snapshot has none of its documents,
//!    as it should.
//! 4. An open transaction does not use an index that was published after it began ([`Definitions::edition`] against
//!    [`IndexRuntime::visible_since`](super::IndexRuntime)), so that new indexes are no change for it. Its commit writes their keys.

use std::collections::VecDeque;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use parking_lot::Mutex;

use super::open::OpenTransactions;

/// So many changes are remembered. Reads as of a time before those void every name.
const REMEMBERED: usize = 4096;

/// What happens to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Definition {
    /// It was free, and a new collection gets it.
    Created,
    /// What has it gets other indexes or options, or loses it.
    Changed,
    /// A collection that had another name gets it.
    Renamed,
    /// What has it gets indexes that are not built yet, or loses such: readers do not use them, writers leave notes for their build.
    Building,
    /// What has it gets an index that is built.
    IndexAdded,
}

/// The latest changes, and the transactions that they may concern.
#[derive(Default)]
pub(crate) struct Definitions {
    changes: Mutex<Changes>,
    pub(crate) open: Arc<OpenTransactions>,
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
    /// Names this change while it is under way.
    number: u64,
    /// The edition that has it; nothing while it is under way.
    edition: Option<u64>,
}

/// A change that is under way until this goes.
pub(crate) struct Changing<'d> {
    definitions: &'d Definitions,
    number: u64,
}

impl Definitions {
    /// How many changes have ended. A reader asks before it takes its snapshot.
    pub(crate) fn edition(&self) -> u64 {
        self.changes.lock().edition
    }

    /// A name changes its meaning; to be kept until everybody sees that.
    pub(crate) fn changing(&self, name: &Namespace, what: Definition) -> Changing<'_> {
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
        Changing { definitions: self, number }
    }

    /// Whether one of the names may mean something else to this reader than it did in this edition.
    fn changed_since(&self, edition: u64, names: &[Namespace], reader: Reader) -> bool {
        let changes = self.changes.lock();
        if changes.edition == edition || names.is_empty() {
            return false;
        }
        let concern = |name| changes.concern(name, edition, reader);
        edition < changes.forgotten || names.iter().any(concern)
    }

    /// That none of the names may.
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

    /// Whether what has the name may have to be written otherwise than in this edition, apart from keys of new indexes. The
    /// collection's state, held shared, keeps the answer true: a change takes it exclusively.
    pub(crate) fn written_otherwise_since(&self, edition: u64, name: &Namespace) -> bool {
        let changes = self.changes.lock();
        let adds_keys = |what| matches!(what, Definition::Building | Definition::IndexAdded);
        changes.edition != edition
            && (edition < changes.forgotten
                || changes.later(name, edition).any(|change| !adds_keys(change.what)))
    }
}

/// Who reads as of an earlier edition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A read of a snapshot, which uses all indexes that there are.
    Snapshot,
    /// An open transaction, which uses the indexes that were there when it began.
    Transaction,
}

/// What a reader of an earlier time is told; `what` names what has changed.
pub(crate) fn changed(what: &str) -> Error {
    Error::new(
        ErrorCode::SnapshotUnavailable,
        format!(
            "Unable to read from a snapshot due to pending collection catalog changes{what}; please retry the operation."
        ),
    )
}

impl Changes {
    /// The changes of a name that this edition does not have.
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
            // The reader must see nothing under this name, and does unless documents of another name came along.
            Some(Definition::Created) => later.any(|change| change.what == Definition::Renamed),
            Some(Definition::Changed | Definition::Renamed | Definition::IndexAdded) => true,
        }
    }
}

impl Changing<'_> {
    /// The change is over and everybody sees it; gives an edition that has it.
    pub(crate) fn end(self) -> u64 {
        let definitions = self.definitions;
        drop(self);
        definitions.edition()
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut changes = self.definitions.changes.lock();
        changes.edition += 1;
        let edition = changes.edition;
        let mut latest_first = changes.list.iter_mut().rev();
        if let Some(change) = latest_first.find(|change| change.number == self.number) {
            change.edition = Some(edition);
        }
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
