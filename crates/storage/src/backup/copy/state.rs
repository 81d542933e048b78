//! The state of a copy, in the catalog of its target.

use mayfly_kv::Keyspace;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

/// How far a copy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyState {
    /// The id of the copy.
    pub copy: [u8; 16],
    /// The identity of the source.
    pub store: [u8; 16],
    /// The time of the source's log that the base contains.
    pub time: u64,
    /// What is being done.
    pub phase: CopyPhase,
    /// The entries up to this one were written; `None` before the first one.
    pub position: Option<EntriesPosition>,
}

/// A part of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyPhase {
    /// The entries of the base are written.
    Base,
    /// Entries of the log are applied.
    Log,
    /// The target has all of the source, whose server is about to end.
    Complete,
}

/// An entry in the order of keyspaces and keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntriesPosition {
    /// The keyspace of the entry.
    pub keyspace: Keyspace,
    /// The key of the entry.
    pub key: Vec<u8>,
}

impl CopyPhase {
    const ALL: [CopyPhase; 3] = [CopyPhase::Base, CopyPhase::Log, CopyPhase::Complete];

    fn name(self) -> &'static str {
        match self {
            CopyPhase::Base => "base",
            CopyPhase::Log => "log",
            CopyPhase::Complete => "complete",
        }
    }
}

impl EntriesPosition {
    /// The position of this key in the keyspace with this number.
    pub fn new(number: i64, key: Vec<u8>) -> Option<EntriesPosition> {
        let keyspace = Keyspace::ALL.into_iter().find(|it| *it as i64 == number)?;
        Some(EntriesPosition { keyspace, key })
    }
}

impl CopyState {
    pub(crate) fn to_document(&self) -> DocBuf {
        let mut row = DocBuilder::new();
        for (name, id) in [("copy", &self.copy), ("store", &self.store)] {
            row.append(name, RawValue::uuid(id));
        }
        row.append("time", RawValue::Timestamp(self.time)).append("phase", self.phase.name());
        if let Some(EntriesPosition { keyspace, key }) = &self.position {
            row.append("keyspace", *keyspace as i64);
            row.append("key", RawValue::Binary { subtype: 0, bytes: key });
        }
        row.finish()
    }

    /// Parses the row; `None` if it is not that of a copy.
    pub(crate) fn from_row(row: &[u8]) -> Option<CopyState> {
        let row = RawDoc::new(row)?;
        let id = |name| match row.get(name) {
            Some(RawValue::Binary { bytes, .. }) => bytes.try_into().ok(),
            _ => None,
        };
        let Some(RawValue::Timestamp(time)) = row.get("time") else { return None };
        let phase = row.get("phase").and_then(RawValue::as_str)?;
        let phase = CopyPhase::ALL.into_iter().find(|it| it.name() == phase)?;
        let position = match (row.get("keyspace"), row.get("key")) {
            (Some(RawValue::Int64(number)), Some(RawValue::Binary { bytes, .. })) => {
                Some(EntriesPosition::new(number, bytes.to_vec())?)
            }
            (None, None) => None,
            _ => return None,
        };
        Some(CopyState { copy: id("copy")?, store: id("store")?, time, phase, position })
    }
}
