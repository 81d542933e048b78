//! The executed statements of a session, within a memory limit for all sessions.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use mayfly_storage::ExecutedStatements;

/// Executed statements, by the first statement id of each record.
#[derive(Default)]
pub(super) struct Statements {
    records: BTreeMap<i32, ExecutedStatements>,
    /// Bytes of the records' results.
    bytes: usize,
}

/// The most bytes of results that a session caches: one statement with its document, and many
/// others. Results beyond it are read from the store again.
const MOST_REMEMBERED: usize = 1 << 20;
/// The most bytes of results that all sessions cache.
const ALL_REMEMBERED: usize = 64 << 20;

/// The bytes of results that all sessions cache.
static REMEMBERED: AtomicUsize = AtomicUsize::new(0);

impl Statements {
    pub(super) fn add(&mut self, executed: ExecutedStatements) {
        let bytes = executed.result.as_bytes().len();
        self.bytes += bytes;
        REMEMBERED.fetch_add(bytes, Ordering::Relaxed);
        self.records.insert(executed.id, executed);
    }

    pub(super) fn clear(&mut self) {
        self.records = BTreeMap::new();
        REMEMBERED.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }

    pub(super) fn is_too_much(&self) -> bool {
        self.bytes > MOST_REMEMBERED
            || self.bytes > 0 && REMEMBERED.load(Ordering::Relaxed) > ALL_REMEMBERED
    }

    pub(super) fn of(&self, id: i32) -> Option<&ExecutedStatements> {
        let (_, before) = self.records.range(..=id).next_back()?;
        (i64::from(id) < i64::from(before.id) + i64::from(before.count)).then_some(before)
    }
}

impl Drop for Statements {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use mayfly_value::DocBuf;

    use super::*;

    impl Statements {
        pub(in crate::sessions) fn len(&self) -> usize {
            self.records.len()
        }
    }

    #[test]
    fn statements_are_found_by_any_id_that_a_record_stands_for() {
        let mut executed = Statements::default();
        for (id, count) in [(7, 2), (0, 3), (i32::MAX, 2)] {
            executed.add(ExecutedStatements { id, count, result: DocBuf::empty() });
        }
        let found = |id| executed.of(id).map(|found| found.id);
        assert_eq!(
            [0, 2, 3, 7, 8, 9, i32::MAX].map(found),
            [Some(0), Some(0), None, Some(7), Some(7), None, Some(i32::MAX)]
        );
    }
}
