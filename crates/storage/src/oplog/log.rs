//! The log as a whole: the clock that hands out its timestamps, and what is kept of it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_base::Result;
use mayfly_kv::{Direction, Engine, KeyRange, Keyspace, ScanLimit, TxnOptions};
use mayfly_value::{RawDoc, RawValue};

use super::OplogClock;
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;

/// The operation log of a store.
pub struct Oplog {
    pub(super) engine: Arc<dyn Engine>,
    pub(crate) clock: OplogClock,
    /// Entries up to this timestamp are not kept any more.
    cut: AtomicU64,
    limit: u64,
}

/// The newest entry.
#[derive(Default)]
struct LastEntry {
    /// 0 when there is none.
    timestamp: u64,
    /// When it was written.
    wall_ms: Option<i64>,
}

impl Oplog {
    /// The log in this engine, to be trimmed to about `limit` bytes; and when its newest entry was written, in milliseconds since
    /// 1970.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn open(
        engine: Arc<dyn Engine>,
        now_ms: i64,
        limit: u64,
    ) -> Result<(Oplog, Option<i64>)> {
        let last = last_entry(&*engine)?;
        // Clients may have been told of timestamps whose commits a crash took back: none of them is handed out again.
        let clock = OplogClock::after(match last.timestamp {
            0 => 0,
            timestamp => timestamp.max(OplogClock::second_behind(now_ms)),
        });
        let cut = AtomicU64::new(load_cut(&*engine)?);
        Ok((Oplog { engine, clock, cut, limit }, last.wall_ms))
    }

    /// The timestamp up to which the log is complete now.
    pub fn settled(&self) -> u64 {
        self.clock.settled()
    }

    /// Waits until it is complete beyond this timestamp.
    pub async fn beyond(&self, seen: u64) {
        self.clock.beyond(seen).await;
    }

    /// The timestamp up to which entries are not kept any more.
    pub fn cut(&self) -> u64 {
        self.cut.load(Ordering::Acquire)
    }

    /// Entries up to this timestamp go; the catalog has it already.
    pub(crate) fn set_cut(&self, last: u64) {
        self.cut.fetch_max(last, Ordering::AcqRel);
    }

    /// The size that the log is trimmed to, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The timestamp of the first entry in this direction.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn edge(&self, direction: Direction) -> Result<Option<u64>> {
        let txn = self.engine.begin(TxnOptions { read_only: true }).map_err(from_kv)?;
        let whole = KeyRange { start: vec![0], end: vec![0xFF; 9] };
        let mut edge = None;
        txn.scan(Keyspace::Oplog, &whole, direction, ScanLimit::rows(1), &mut |key, _| {
            edge = key.try_into().ok().map(u64::from_be_bytes);
            ControlFlow::Break(())
        })
        .map_err(from_kv)?;
        Ok(edge)
    }
}

fn last_entry(engine: &dyn Engine) -> Result<LastEntry> {
    let txn = engine.begin(TxnOptions { read_only: true }).map_err(from_kv)?;
    let mut last = LastEntry::default();
    let range = KeyRange { start: Vec::new(), end: vec![0xFF; 9] };
    let limit = ScanLimit::rows(1);
    txn.scan(Keyspace::Oplog, &range, Direction::Backward, limit, &mut |key, value| {
        last.timestamp = key.try_into().map_or(0, u64::from_be_bytes);
        last.wall_ms = match RawDoc::new(value).and_then(|entry| entry.get("wall")) {
            Some(RawValue::Date(wall_ms)) => Some(wall_ms),
            _ => None,
        };
        ControlFlow::Break(())
    })
    .map_err(from_kv)?;
    Ok(last)
}

/// The timestamp up to which entries are not kept any more; 0 when all are.
fn load_cut(engine: &dyn Engine) -> Result<u64> {
    let txn = engine.begin(TxnOptions { read_only: true }).map_err(from_kv)?;
    let mut cut = 0;
    txn.get(Keyspace::Catalog, catalog_key::OPLOG_CUT, &mut |value| {
        cut = value.try_into().ok().map_or(0, u64::from_be_bytes);
    })
    .map_err(from_kv)?;
    Ok(cut)
}
