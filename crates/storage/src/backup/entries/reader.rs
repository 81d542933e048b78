//! Reading all entries of a snapshot as runs.

use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_kv::{
    Direction, Engine, HeldSnapshot, KeyRange, Keyspace, MAX_PAGE, ScanEnd, ScanLimit,
};

use super::{RUN_BYTES, all_keys, append_entry};
use crate::backup::EntriesPosition;
use crate::record::error::from_kv;

/// From this size on a run ends at a key whose hash says so.
const FEWEST_BYTES: usize = 2 << 20;
/// One key in so many ends a run.
const KEYS_PER_END: u64 = 2048;

/// Reads all entries of a snapshot, one run after the other.
pub struct EntriesReader {
    snapshot: Arc<dyn HeldSnapshot>,
    /// The rest of the keyspace that is being read, and the ones after it.
    rest: Option<(Keyspace, KeyRange)>,
    later: std::vec::IntoIter<Keyspace>,
}

impl EntriesReader {
    /// A reader of a snapshot.
    pub fn new(snapshot: Arc<dyn HeldSnapshot>) -> EntriesReader {
        let mut reader =
            EntriesReader { snapshot, rest: None, later: Keyspace::ALL.to_vec().into_iter() };
        reader.go_to_next_keyspace();
        reader
    }

    /// A reader of the entries of a snapshot after a position.
    pub fn after(
        snapshot: Arc<dyn HeldSnapshot>,
        position: Option<&EntriesPosition>,
    ) -> EntriesReader {
        let mut reader = EntriesReader::new(snapshot);
        let Some(EntriesPosition { keyspace, key }) = position else { return reader };
        while reader.rest.as_ref().is_some_and(|(at, _)| at != keyspace) {
            reader.go_to_next_keyspace();
        }
        if let Some((_, range)) = &mut reader.rest {
            *range = range.after(key, Direction::Forward);
        }
        reader
    }

    /// A reader of all entries of an engine, as they are now.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn of_engine(engine: &dyn Engine) -> Result<EntriesReader> {
        Ok(EntriesReader::new(engine.hold_for_export().map_err(from_kv)?))
    }

    fn go_to_next_keyspace(&mut self) {
        self.rest = self.later.next().map(|keyspace| (keyspace, all_keys()));
    }

    /// The keyspace of the next run, and the run; `None` after the last one.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn next_run(&mut self) -> Result<Option<(Keyspace, Vec<u8>)>> {
        while let Some((keyspace, range)) = &self.rest {
            let (keyspace, range) = (*keyspace, range.clone());
            let (run, rest) = self.read(keyspace, range)?;
            match rest {
                Some(rest) => self.rest = Some((keyspace, rest)),
                None => self.go_to_next_keyspace(),
            }
            // One byte names the keyspace.
            if run.len() > 1 {
                return Ok(Some((keyspace, run)));
            }
        }
        Ok(None)
    }

    /// Reads a run from the beginning of this range; also returns the rest of the range.
    fn read(&self, keyspace: Keyspace, mut range: KeyRange) -> Result<(Vec<u8>, Option<KeyRange>)> {
        let txn = self.snapshot.begin().map_err(from_kv)?;
        let mut run = vec![keyspace as u8];
        loop {
            let mut is_end = false;
            let limit = ScanLimit { page: MAX_PAGE, ..ScanLimit::NONE }.passing();
            let end = txn.scan_retired(keyspace, &range, limit, &mut |key, value| {
                append_entry(&mut run, key, value);
                is_end = run.len() >= RUN_BYTES || (run.len() >= FEWEST_BYTES && ends_run(key));
                match is_end {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            match end.map_err(from_kv)? {
                ScanEnd::Exhausted => return Ok((run, None)),
                ScanEnd::More { last_key } => range = range.after(&last_key, Direction::Forward),
            }
            if is_end {
                return Ok((run, Some(range)));
            }
        }
    }
}

/// Whether a run that is long enough ends with this key (FNV-1a).
fn ends_run(key: &[u8]) -> bool {
    let hash = key.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    // The low bits depend on the last bytes only.
    (hash ^ (hash >> 32)).is_multiple_of(KEYS_PER_END)
}
