//! A list of the record keys that a scan still has at the end of a batch; it replaces the scan in
//! later batches.
//!
//! An insert into a time series changes the smallest and the largest values of a bucket, and with
//! them the bucket's entries in indexes on measured fields or on the time. A scan that continued
//! after its last entry would miss a bucket whose entry moved before that position, and would
//! return a bucket again whose entry moved after it, although most of its measurements did not
//! change. Record keys of buckets never change. The rest of the scan is therefore read at the end
//! of the first batch, over the snapshot of that batch.

use std::ops::ControlFlow;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_runs::{Spool, SpoolWriter};
use mayfly_work::spill::Operator;

use super::{Batch, Counters, Node, Progress, Row, Rows};
use crate::memory::Share;

/// Collects record keys.
pub(super) struct KeyCollector {
    keys: Vec<u8>,
    share: Share,
    file: Option<SpoolWriter>,
}

impl KeyCollector {
    pub(super) fn new(batch: &Batch<'_>) -> KeyCollector {
        KeyCollector {
            keys: Vec::new(),
            share: batch.budget.share(Operator::IndexScan),
            file: None,
        }
    }

    /// Adds a key.
    ///
    /// # Errors
    /// 146 ExceededMemoryLimit if the keys exceed the memory and files are not allowed; errors of
    /// files.
    pub(super) fn push(&mut self, key: &[u8]) -> Result<()> {
        if let Some(file) = &mut self.file {
            return file.push(key);
        }
        self.keys.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.keys.extend_from_slice(key);
        if !self.share.is_over(self.keys.capacity()) {
            return Ok(());
        }
        let Some(folder) = self.share.folder()? else { return Err(self.share.failure(too_many)) };
        let mut file = SpoolWriter::new(folder)?;
        let mut at = 0;
        while let Some(key) = next_key(&self.keys, &mut at) {
            file.push(key)?;
        }
        self.keys = Vec::new();
        self.share.set(0);
        self.file = Some(file);
        Ok(())
    }

    /// Returns the collected keys as a node that replaces `scan`.
    ///
    /// # Errors
    /// Errors of files.
    pub(super) fn finish(mut self, scan: Box<dyn Node>, batch: &Batch<'_>) -> Result<KeyList> {
        let keys = match self.file {
            None => Keys::InMemory { keys: self.keys, at: 0, _share: self.share },
            Some(file) => {
                self.share.count(batch.session.op, file.spilled());
                Keys::InFile(file.finish()?)
            }
        };
        Ok(KeyList { keys, scan })
    }
}

fn too_many(limit: usize) -> Error {
    let text = format!(
        "a cursor over a time series keeps the keys of its buckets, which take more than {limit} bytes, and allowDiskUse is false"
    );
    Error::new(ErrorCode::ExceededMemoryLimit, text)
}

fn next_key<'k>(keys: &'k [u8], at: &mut usize) -> Option<&'k [u8]> {
    let (length, rest) = keys.get(*at..)?.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    *at += 4 + length;
    rest.get(..length)
}

enum Keys {
    InMemory { keys: Vec<u8>, at: usize, _share: Share },
    InFile(Spool),
}

impl Keys {
    fn next(&mut self) -> Result<Option<&[u8]>> {
        match self {
            Keys::InMemory { keys, at, .. } => Ok(next_key(keys, at)),
            Keys::InFile(file) => file.next(),
        }
    }
}

/// Returns the collected keys in the order of the scan.
pub(super) struct KeyList {
    keys: Keys,
    /// The finished scan, for its counters and the check that its index exists.
    scan: Box<dyn Node>,
}

impl Node for KeyList {
    fn run(&mut self, _: &Batch<'_>, rows: &mut Rows<'_>) -> Result<Progress> {
        while let Some(key) = self.keys.next()? {
            if rows(&Row::key(key, 0))? == ControlFlow::Break(()) {
                return Ok(Progress::Stopped);
            }
        }
        Ok(Progress::Over)
    }

    fn counters(&self) -> Counters {
        self.scan.counters()
    }

    fn each_input(&self, see: &mut dyn FnMut(&dyn Node)) {
        self.scan.each_input(see);
    }

    fn check_alive(&self) -> Result<()> {
        self.scan.check_alive()
    }
}
