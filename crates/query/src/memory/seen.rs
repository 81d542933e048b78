//! A set of record keys, used to remove duplicates.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_runs::KeySet;
use mayfly_work::OpCtx;
use mayfly_work::spill::Operator;

use super::{Budget, Share};

/// The record keys that were seen.
#[derive(Debug)]
pub(crate) struct SeenRecords {
    keys: KeySet,
    share: Share,
    /// Whether the memory is limited, which it is if a command has set the budget.
    limited: bool,
}

impl SeenRecords {
    /// An empty set.
    pub(crate) fn new(budget: &Budget) -> SeenRecords {
        let share = budget.share(Operator::IndexScan);
        SeenRecords { keys: KeySet::new(), share, limited: budget.is_set() }
    }

    /// Adds a record key. Returns false if it was present.
    ///
    /// # Errors
    /// 146 ExceededMemoryLimit if the set exceeds the memory and may not spill; errors of files and
    /// of the operation's deadline.
    pub(crate) fn insert(&mut self, record_key: &[u8], op: &OpCtx) -> Result<bool> {
        let new = self.keys.insert(record_key)?;
        if new && self.share.is_over(self.keys.memory_bytes()) && self.limited {
            self.make_room(op)?;
        }
        Ok(new)
    }

    /// The memory of the set.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes()
    }

    fn make_room(&mut self, op: &OpCtx) -> Result<()> {
        let Some(folder) = self.share.folder()? else { return Err(self.share.failure(too_many)) };
        let before = self.keys.spilled();
        self.keys.spill(folder, &|| op.check())?;
        self.share.count(op, self.keys.spilled().since(before));
        self.share.set(0);
        Ok(())
    }
}

fn too_many(limit: usize) -> Error {
    let text = format!(
        "an index showed more records than {limit} bytes of memory tell apart, and allowDiskUse is false"
    );
    Error::new(ErrorCode::ExceededMemoryLimit, text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mayfly_base::ManualClock;

    use super::*;
    use crate::memory::MemoryLimits;

    #[test]
    fn records_are_distinguished_in_files_too() {
        let op = OpCtx::detached(Arc::new(ManualClock::at_ms(0)));
        let limits = MemoryLimits::default().with_all(1000);
        let folder = Some(std::env::temp_dir());
        let budget = Budget::new(limits, folder);
        let mut seen = SeenRecords::new(&budget);
        for round in 0..2 {
            for n in 0..500u64 {
                assert_eq!(seen.insert(&n.to_be_bytes(), &op).unwrap(), round == 0);
            }
        }
        assert_eq!(op.spills.of(Operator::IndexScan), budget.spilled(Operator::IndexScan));
        assert!(op.spills.of(Operator::IndexScan).spills > 10);
        let mut seen = SeenRecords::new(&Budget::new(limits, None));
        let failed = (0..500u64).find_map(|n| seen.insert(&n.to_be_bytes(), &op).err());
        assert_eq!(failed.unwrap().code(), ErrorCode::ExceededMemoryLimit);
        // Writes have no limit.
        let mut seen = SeenRecords::new(&Budget::default());
        assert!((0..5000u64).all(|n| seen.insert(&n.to_be_bytes(), &op).unwrap()));
    }
}
