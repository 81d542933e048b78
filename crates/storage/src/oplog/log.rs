//! The log as a whole: the clock that assigns its timestamps, its limits, and its cut.

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

use super::archive::ArchiveProgress;
use super::read::unreadable;
use super::window::{LogLimits, Segment, SegmentsToStore, Window};
use super::{LostTimes, OplogClock, StoreIdentity, decode};
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;

/// How often writing segments is retried after a conflict.
const MAX_TRIES: u32 = 1000;

/// The operation log of a store.
pub struct Oplog {
    pub(super) engine: Arc<dyn Engine>,
    pub(crate) clock: OplogClock,
    /// Entries up to this timestamp have been cut.
    pub(super) cut: AtomicU64,
    /// The times that restores have lost.
    pub(super) lost: Vec<LostTimes>,
    /// The cut up to which this process has removed entries from the byte store.
    swept: AtomicU64,
    /// Whether the limits were changed: the sweeper then frees the space of cut entries
    /// immediately.
    resized: AtomicBool,
    /// Held while the whole log is cut.
    pub(crate) cutting: Mutex<()>,
    /// The number of cuts because the disk was nearly full.
    pub(crate) cuts_for_room: AtomicU64,
    /// The number of times that cut entries were removed, and the time that this took.
    pub(crate) truncations: (AtomicU64, AtomicU64),
    /// When such a cut was last logged.
    pub(crate) warned_of_cut_micros: AtomicI64,
    /// The number of entries that change streams and log-fed indexes have read.
    pub(super) followed: AtomicU64,
    /// After how many seconds change streams take no images from an entry; negative for never.
    image_expiry_secs: AtomicI64,
    /// How far the log is archived.
    pub(super) archive: ArchiveProgress,
    /// How far a copy of the store has the log.
    pub(super) copied: ArchiveProgress,
    /// Held while segments are written into the catalog.
    storing: Mutex<()>,
    /// Starts trimming the log soon.
    trimmer: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// The newest entry.
#[derive(Default)]
struct LastEntry {
    /// The timestamp of the entry; 0 when there is none.
    timestamp: u64,
    /// Wall time of the entry, in milliseconds since 1970.
    wall_ms: Option<i64>,
}

impl Oplog {
    /// Opens the log in this engine. `settled` is the timestamp up to which it is complete if
    /// another process writes it. Also returns when its newest entry was written, in milliseconds
    /// since 1970.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn open(
        engine: Arc<dyn Engine>,
        now_ms: i64,
        limits: LogLimits,
        settled: Option<u64>,
    ) -> Result<(Oplog, Option<i64>)> {
        let last = last_entry(&*engine)?;
        let cut = load_cut(&*engine)?;
        let lost = StoreIdentity::load(&*engine)?.map_or_else(Vec::new, |it| it.lost);
        let window = load_window(&*engine, cut, limits)?;
        // Clients may have seen timestamps whose commits a crash undid. None of them is assigned
        // again.
        let last_known = match last.timestamp.max(cut) {
            0 => 0,
            timestamp => timestamp.max(OplogClock::second_after(now_ms)),
        };
        let continues = settled.unwrap_or(last_known);
        let clock = OplogClock::over(engine.log().clone(), continues, window);
        let oplog = Oplog {
            engine,
            clock,
            cut: AtomicU64::new(cut),
            lost,
            swept: AtomicU64::new(0),
            resized: AtomicBool::new(false),
            cutting: Mutex::new(()),
            cuts_for_room: AtomicU64::new(0),
            truncations: Default::default(),
            warned_of_cut_micros: AtomicI64::new(i64::MIN / 2),
            followed: AtomicU64::new(0),
            image_expiry_secs: AtomicI64::new(-1),
            archive: ArchiveProgress::default(),
            copied: ArchiveProgress::default(),
            storing: Mutex::new(()),
            trimmer: OnceLock::new(),
        };
        Ok((oplog, last.wall_ms))
    }

    /// The timestamp up to which the log is complete.
    pub fn settled(&self) -> u64 {
        self.clock.settled()
    }

    /// Waits until the log is complete past this timestamp.
    pub async fn wait_past(&self, seen: u64) {
        self.clock.wait_past(seen).await;
    }

    /// A timestamp that none of the commits of another process which are visible now is later than:
    /// that of the newest entry, or of the cut if all entries were cut. Earlier commits may still
    /// be under way.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn newest_visible(&self) -> Result<u64> {
        let newest = last_entry(&*self.engine)?.timestamp;
        // The snapshot of before has brought the cut up to date.
        Ok(newest.max(self.cut()))
    }

    /// The timestamp up to which entries have been cut.
    pub fn cut(&self) -> u64 {
        self.cut.load(Ordering::Acquire)
    }

    /// Cuts entries up to this timestamp, which the catalog has already.
    pub(crate) fn set_cut(&self, last: u64) {
        self.cut.fetch_max(last, Ordering::AcqRel);
    }

    /// The number of entries that change streams and log-fed indexes have read.
    pub fn entries_followed(&self) -> u64 {
        self.followed.load(Ordering::Relaxed)
    }

    /// Sets after how many seconds the images of documents in entries expire; `None` for never.
    pub fn set_image_expiry(&self, seconds: Option<i64>) {
        self.image_expiry_secs.store(seconds.map_or(-1, |it| it.max(0)), Ordering::Relaxed);
    }

    /// Whether the images of an entry of this time have expired. Both times are in milliseconds
    /// since 1970.
    pub fn images_expired(&self, wall_ms: i64, now_ms: i64) -> bool {
        match self.image_expiry_secs.load(Ordering::Relaxed) {
            seconds @ 0.. => wall_ms < now_ms.saturating_sub(seconds.saturating_mul(1000)),
            _ => false,
        }
    }

    /// The limits of the log.
    pub fn limits(&self) -> LogLimits {
        self.clock.limits()
    }

    /// Changes the limits. The next trim frees the space of excess entries.
    pub(crate) fn set_limits(&self, limits: LogLimits) {
        self.clock.set_limits(limits);
        self.resized.store(true, Ordering::Release);
    }

    /// Whether the limits were changed since the last call.
    pub(crate) fn take_resized(&self) -> bool {
        self.resized.swap(false, Ordering::AcqRel)
    }

    /// The number of cuts because the disk was nearly full.
    pub fn cuts_for_room(&self) -> u64 {
        self.cuts_for_room.load(Ordering::Relaxed)
    }

    /// How often cut entries were removed since the start, and the microseconds that this took.
    pub fn truncations(&self) -> (u64, u64) {
        let (count, micros) = &self.truncations;
        (count.load(Ordering::Relaxed), micros.load(Ordering::Relaxed))
    }

    /// The timestamp, at most `up_to`, at which the log must be cut to be within its limits; `None`
    /// when it is.
    pub(crate) fn due_cut(&self, now_ms: i64, up_to: u64) -> Option<u64> {
        self.clock.cut(now_ms, up_to)
    }

    /// The last timestamp, at which the whole log can be cut, taken while no commit is under way;
    /// `None` for an empty log.
    pub(crate) fn whole_cut(&self) -> Option<u64> {
        self.clock.whole_cut()
    }

    /// The size of the entries as readers see them, in bytes.
    pub(crate) fn logged_bytes(&self) -> u64 {
        self.clock.logged().0
    }

    /// The cut up to which the byte store was cleared.
    pub(crate) fn swept(&self) -> u64 {
        self.swept.load(Ordering::Acquire)
    }

    /// Notes that the byte store was cleared up to this cut.
    pub(crate) fn set_swept(&self, cut: u64) {
        self.swept.fetch_max(cut, Ordering::AcqRel);
    }

    /// Starts trimming the log soon.
    pub(crate) fn trim(&self) {
        if let Some(trim) = self.trimmer.get() {
            trim();
        }
    }

    /// Forgets the segments up to this timestamp, because the log was cut there.
    pub(crate) fn forget_segments(&self, cut: u64) {
        self.clock.forget(cut);
    }

    /// Must be called after each commit: writes ended segments into the catalog. They only shorten
    /// a start after a crash.
    #[inline]
    pub(crate) fn note_commit(&self) {
        if self.clock.has_segments() {
            self.note_segments();
        }
    }

    #[cold]
    fn note_segments(&self) {
        if let Err(error) = self.store_segments(SegmentsToStore::Ended) {
            tracing::warn!(%error, "the size of the operation log could not be stored");
        }
        // Documents that are removed while the log is too long would be kept for nothing.
        if self.clock.is_overfull() {
            self.trim();
        }
    }

    /// Sets the function that starts trimming when the log exceeds its limit.
    pub(crate) fn trim_by(&self, trimmer: Box<dyn Fn() + Send + Sync>) {
        // Each log has one store, which sets it at opening.
        let _ = self.trimmer.set(trimmer);
    }

    /// Writes these segments to the catalog, unless it has them.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn store_segments(&self, which: SegmentsToStore) -> Result<()> {
        let Some(_one_stores) = self.storing.try_lock() else { return Ok(()) };
        let segments = self.clock.segments(which);
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
        // No other thread writes these keys.
        let key = catalog_key::segment(segment.end);
        txn.put(Keyspace::Catalog, &key, &segment.encode(), Guard::Derived)?;
    }
    txn.commit()
}

fn last_entry(engine: &dyn Engine) -> Result<LastEntry> {
    let txn = engine.begin(TxnOptions::READ_ONLY).map_err(from_kv)?;
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

/// Reads the timestamp up to which entries were cut; 0 without a cut.
fn load_cut(engine: &dyn Engine) -> Result<u64> {
    let txn = engine.begin(TxnOptions::READ_ONLY).map_err(from_kv)?;
    let mut cut = 0;
    txn.get(Keyspace::Catalog, catalog_key::OPLOG_CUT, &mut |value| {
        cut = value.try_into().ok().map_or(0, u64::from_be_bytes);
    })
    .map_err(from_kv)?;
    Ok(cut)
}

/// Reads the segments of the catalog, and counts the entries after them.
fn load_window(engine: &dyn Engine, cut: u64, limits: LogLimits) -> Result<Window> {
    let txn = engine.begin(TxnOptions::READ_ONLY).map_err(from_kv)?;
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

/// Visits keys and values.
type RowVisitor<'v> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'v;

/// Visits the stored entries of a range in the order of their keys, retired records included.
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
        let scanned = txn.scan_retired(keyspace, &range, ScanLimit::ALL, see).map_err(from_kv)?;
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
