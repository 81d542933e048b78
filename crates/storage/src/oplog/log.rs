//! The log as a whole: the clock that hands out its timestamps, and what is kept of it.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use mayfly_base::Result;
use mayfly_kv::{
    Direction, Engine, Guard, KeyRange, Keyspace, KvError, KvResult, ScanEnd, ScanLimit, Txn,
    TxnOptions,
};
use mayfly_value::RawValue;
use parking_lot::Mutex;

use super::read::unreadable;
use super::window::{LogLimits, Segment, Window};
use super::{OplogClock, decode};
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;

/// How often segments are written again after a conflict.
const MAX_TRIES: u32 = 1000;

/// The operation log of a store.
pub struct Oplog {
    pub(super) engine: Arc<dyn Engine>,
    pub(crate) clock: OplogClock,
    /// Entries up to this timestamp are not kept any more.
    pub(super) cut: AtomicU64,
    /// What was cut and is not in the byte store any more, as far as this run knows.
    swept: AtomicU64,
    /// Its limits were changed: the space of what they cut is given back at once.
    resized: AtomicBool,
    /// Held while the whole log is cut.
    pub(crate) cutting: Mutex<()>,
    /// How often it was cut because the disk was nearly full.
    pub(crate) cuts_for_room: AtomicU64,
    /// When that was said last.
    pub(crate) warned_of_cut_micros: AtomicI64,
    /// Entries that those were shown who follow changes.
    pub(super) followed: AtomicU64,
    /// Held by who writes segments into the catalog.
    storing: Mutex<()>,
    /// Trims the log soon.
    trimmer: OnceLock<Box<dyn Fn() + Send + Sync>>,
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
    /// The log in this engine, with what is to be kept of it; and when its newest entry was written, in milliseconds since 1970.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn open(
        engine: Arc<dyn Engine>,
        now_ms: i64,
        limits: LogLimits,
    ) -> Result<(Oplog, Option<i64>)> {
        let last = last_entry(&*engine)?;
        let cut = load_cut(&*engine)?;
        let window = load_window(&*engine, cut, limits)?;
        // Clients may have been told of timestamps whose commits a crash took back: none of them is handed out again.
        let last_known = match last.timestamp.max(cut) {
            0 => 0,
            timestamp => timestamp.max(OplogClock::second_behind(now_ms)),
        };
        let clock = OplogClock::after(last_known, window);
        let oplog = Oplog {
            engine,
            clock,
            cut: AtomicU64::new(cut),
            swept: AtomicU64::new(0),
            resized: AtomicBool::new(false),
            cutting: Mutex::new(()),
            cuts_for_room: AtomicU64::new(0),
            warned_of_cut_micros: AtomicI64::new(i64::MIN / 2),
            followed: AtomicU64::new(0),
            storing: Mutex::new(()),
            trimmer: OnceLock::new(),
        };
        Ok((oplog, last.wall_ms))
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

    /// How many entries those were shown who follow changes, all together.
    pub fn entries_followed(&self) -> u64 {
        self.followed.load(Ordering::Relaxed)
    }

    /// What is kept of it.
    pub fn limits(&self) -> LogLimits {
        self.clock.limits()
    }

    /// Keeps this much from now on; the space of what is too much is given back by the next trim.
    pub(crate) fn set_limits(&self, limits: LogLimits) {
        self.clock.set_limits(limits);
        self.resized.store(true, Ordering::Release);
    }

    /// Whether its limits were changed since this was asked last.
    pub(crate) fn take_resized(&self) -> bool {
        self.resized.swap(false, Ordering::AcqRel)
    }

    /// How often it was cut because the disk was nearly full.
    pub fn cuts_for_room(&self) -> u64 {
        self.cuts_for_room.load(Ordering::Relaxed)
    }

    /// Up to where the log is to be cut to be within its limits; nothing when it is.
    pub(crate) fn due_cut(&self, now_ms: i64) -> Option<u64> {
        self.clock.cut(now_ms)
    }

    /// The last timestamp, to cut the whole log there, when no commit is under way; nothing when nothing was logged.
    pub(crate) fn whole_cut(&self) -> Option<u64> {
        self.clock.whole_cut()
    }

    /// Bytes of its entries, as readers see them.
    pub(crate) fn logged_bytes(&self) -> u64 {
        self.clock.logged().0
    }

    /// Up to where the byte store was cleared of what was cut.
    pub(crate) fn swept(&self) -> u64 {
        self.swept.load(Ordering::Acquire)
    }

    /// The byte store was cleared up to here.
    pub(crate) fn set_swept(&self, cut: u64) {
        self.swept.fetch_max(cut, Ordering::AcqRel);
    }

    /// Makes the log be trimmed soon.
    pub(crate) fn trim(&self) {
        if let Some(trim) = self.trimmer.get() {
            trim();
        }
    }

    /// The segments up to this timestamp, which the catalog has: they go when the log is cut there.
    pub(crate) fn forget_segments(&self, cut: u64) {
        self.clock.forget(cut);
    }

    /// To be called behind a commit: segments that ended go into the catalog. Nothing depends on it but the time that a start takes
    /// after a crash.
    #[inline]
    pub(crate) fn note_commit(&self) {
        if self.clock.has_segments() {
            self.note_segments();
        }
    }

    #[cold]
    fn note_segments(&self) {
        if let Err(error) = self.store_segments(false) {
            tracing::warn!(%error, "how much was logged is not on record");
        }
        // What is removed while the log is too long would be kept for nothing.
        if self.clock.is_overfull() {
            self.trim();
        }
    }

    /// Names who is told when the log is longer than it may be.
    pub(crate) fn trim_by(&self, trimmer: Box<dyn Fn() + Send + Sync>) {
        // There is one store over a log, which does so when it is opened.
        let _ = self.trimmer.set(trimmer);
    }

    /// Writes the segments into the catalog that it does not have yet; with `all` that at the end, too.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn store_segments(&self, all: bool) -> Result<()> {
        let Some(_one_stores) = self.storing.try_lock() else { return Ok(()) };
        let segments = self.clock.segments(all);
        let Some(last) = segments.last() else { return Ok(()) };
        let mut tries = 0;
        loop {
            match put_segments(&*self.engine, &segments) {
                Err(KvError::Conflict) if tries < MAX_TRIES => tries += 1,
                other => break other.map_err(from_kv)?,
            }
        }
        self.clock.note_stored(last.end);
        Ok(())
    }
}

fn put_segments(engine: &dyn Engine, segments: &[Segment]) -> KvResult<()> {
    let mut txn = engine.begin(TxnOptions::default())?;
    for segment in segments {
        // Nobody else writes it.
        let key = catalog_key::segment(segment.end);
        txn.put(Keyspace::Catalog, &key, &segment.encode(), Guard::Derived)?;
    }
    txn.commit()
}

fn last_entry(engine: &dyn Engine) -> Result<LastEntry> {
    let txn = engine.begin(TxnOptions { read_only: true }).map_err(from_kv)?;
    let mut last = LastEntry::default();
    let range = KeyRange { start: Vec::new(), end: vec![0xFF; 9] };
    let limit = ScanLimit::rows(1);
    txn.scan(Keyspace::Oplog, &range, Direction::Backward, limit, &mut |key, value| {
        last.timestamp = key.try_into().map_or(0, u64::from_be_bytes);
        last.wall_ms = match decode(value).and_then(|entry| entry.fields.get("wall")) {
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

/// What the catalog says of the log, and what stands behind that.
fn load_window(engine: &dyn Engine, cut: u64, limits: LogLimits) -> Result<Window> {
    let txn = engine.begin(TxnOptions { read_only: true }).map_err(from_kv)?;
    let mut segments = Vec::new();
    visit_all(&*txn, Keyspace::Catalog, KeyRange::prefix(b"l"), &mut |key, value| {
        let end = catalog_key::id_of(key).filter(|end| *end > cut);
        segments.extend(end.and_then(|end| Segment::decode(end, value)));
        Ok(())
    })?;
    let counted = segments.last().map_or(cut, |segment| segment.end);
    let start = counted.saturating_add(1).to_be_bytes().to_vec();
    let (mut bytes, mut entries) = (0, 0);
    let rest = KeyRange { start, end: vec![0xFF; 9] };
    visit_all(&*txn, Keyspace::Oplog, rest, &mut |_, value| {
        bytes += decode(value).ok_or_else(unreadable)?.logical;
        entries += 1;
        Ok(())
    })?;
    Ok(Window::new(limits, segments, (bytes, entries)))
}

/// Sees keys and values.
type RowVisitor<'v> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'v;

/// Shows a range from its first key to its last.
pub(crate) fn visit_all(
    txn: &dyn Txn,
    keyspace: Keyspace,
    mut range: KeyRange,
    visit: &mut RowVisitor<'_>,
) -> Result<()> {
    loop {
        let mut failed = None;
        let see = &mut |key: &[u8], value: &[u8]| match visit(key, value) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        };
        let scanned = txn
            .scan(keyspace, &range, Direction::Forward, ScanLimit::NONE, see)
            .map_err(from_kv)?;
        if let Some(error) = failed {
            return Err(error);
        }
        // An engine may end a page early.
        match scanned {
            ScanEnd::Exhausted => return Ok(()),
            ScanEnd::More { last_key } => range = range.after(&last_key, Direction::Forward),
        }
    }
}
