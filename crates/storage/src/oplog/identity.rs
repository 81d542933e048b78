//! The identity of a store, and the timelines of its log.
//!
//! A store has an identity for its whole life: backups name it. A timeline is a part of the history
//! without a restore in it. A store that was restored from a backup has another identity and the
//! next timeline: the store that was backed up may have continued, with other entries at the same
//! times.
//!
//! ```text
//! timeline 1   ───────●───────────▶      the backup is of the time ●
//! timeline 2          └╌╌╌╌╌╌╌╌╌╌├────▶  no entry of timeline 2 has a time of the dotted part
//! ```
//!
//! Clients may know times of the dotted part from the first timeline. Such times are *lost* in the
//! second one: a change stream that resumes there ends with 286 ChangeStreamHistoryLost.
//!
//! ```text
//! catalog  | 'i' |    {store: UUID, timeline: int64, lost: [{after: timestamp, before: timestamp}]}
//! ```
//!
//! The row is written by the first backup, or by a restore.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Engine, Guard, Keyspace, Txn};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::record::error::from_kv;
use crate::record::layout::catalog_key;
use crate::record::new_uuid;

/// The identity of a store, and the history of its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreIdentity {
    /// The UUID of the store.
    pub store: [u8; 16],
    /// The number of the timeline, from 1.
    pub timeline: i64,
    /// The times that restores have lost, the oldest first.
    pub lost: Vec<LostTimes>,
}

/// Times of an earlier timeline whose entries a restore has lost. Both bounds are exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostTimes {
    /// The time of the backup.
    pub after: u64,
    /// The time at which the new timeline begins.
    pub before: u64,
}

impl LostTimes {
    /// Whether a time of an earlier timeline is lost.
    pub(super) fn contains(&self, time: u64) -> bool {
        self.after < time && time < self.before
    }
}

impl StoreIdentity {
    /// The identity of a store that was never backed up or restored.
    pub(crate) fn new() -> StoreIdentity {
        StoreIdentity { store: new_uuid(), timeline: 1, lost: Vec::new() }
    }

    /// The identity of a store that is restored from a backup of this one.
    pub(crate) fn restored(self, lost: LostTimes) -> StoreIdentity {
        let timeline = self.timeline + 1;
        let lost = self.lost.into_iter().chain([lost]).collect();
        StoreIdentity { store: new_uuid(), timeline, lost }
    }

    /// Reads the row; `None` if there is none.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected; errors of the engine.
    pub(crate) fn load(engine: &dyn Engine) -> Result<Option<StoreIdentity>> {
        let mut found = None;
        engine
            .get_once(Keyspace::Catalog, catalog_key::IDENTITY, &mut |value| {
                let row = RawDoc::new(value).and_then(StoreIdentity::from_document);
                found = Some(row.ok_or_else(damaged));
            })
            .map_err(from_kv)?;
        found.transpose()
    }

    /// Writes the row.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn put(&self, txn: &mut dyn Txn) -> Result<()> {
        let row = self.to_document();
        txn.put(Keyspace::Catalog, catalog_key::IDENTITY, row.as_bytes(), Guard::Checked)
            .map_err(from_kv)
    }

    fn to_document(&self) -> DocBuf {
        let mut row = DocBuilder::new();
        let store = RawValue::uuid(&self.store);
        row.append("store", store).append("timeline", self.timeline).start_array("lost");
        for LostTimes { after, before } in &self.lost {
            row.push_document();
            row.append("after", RawValue::Timestamp(*after));
            row.append("before", RawValue::Timestamp(*before)).end();
        }
        row.end();
        row.finish()
    }

    fn from_document(row: RawDoc<'_>) -> Option<StoreIdentity> {
        let Some(RawValue::Binary { bytes, .. }) = row.get("store") else { return None };
        let Some(RawValue::Int64(timeline)) = row.get("timeline") else { return None };
        let lost = row.get("lost").and_then(RawValue::as_array)?.iter().map(|times| {
            let times = times.value().as_document()?;
            match (times.get("after"), times.get("before")) {
                (Some(RawValue::Timestamp(after)), Some(RawValue::Timestamp(before))) => {
                    Some(LostTimes { after, before })
                }
                _ => None,
            }
        });
        let lost = lost.collect::<Option<_>>()?;
        Some(StoreIdentity { store: bytes.try_into().ok()?, timeline, lost })
    }
}

fn damaged() -> Error {
    let text = "the identity of the store in the catalog cannot be read";
    Error::new(ErrorCode::DataCorruptionDetected, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_round_trip() {
        let first = StoreIdentity::new();
        let lost = LostTimes { after: 5 << 32, before: 9 << 32 };
        let second = first.clone().restored(lost);
        for identity in [&first, &second] {
            let row = identity.to_document();
            assert_eq!(StoreIdentity::from_document(row.as_doc()).as_ref(), Some(identity));
        }
        assert_eq!((second.timeline, second.lost), (2, vec![lost]));
        assert_ne!(second.store, first.store);
        assert_eq!(StoreIdentity::from_document(RawDoc::EMPTY), None);
        let inside = |time: u64| lost.contains(time);
        assert!(inside((5 << 32) + 1) && !inside(5 << 32) && !inside(9 << 32));
    }
}
