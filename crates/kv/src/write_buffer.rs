//! The uncommitted writes of a transaction.
//!
//! ```text
//! arena:  key value key value key ...          one growing buffer, so a write costs no allocation of its own
//! ops:    (keyspace, offset, lengths) ...      in the order of the calls; the last one for a key counts
//! hashed: key hash -> last op, op -> previous op with that hash      built when a get needs it
//! ordered: key -> last op, for each keyspace                          built when a scan needs it
//! ```
//!
//! Most transactions put many keys and read few of them back, so both indexes are built lazily: a
//! get catches up the hashes, a scan catches up the order of its own keyspace.

use std::cell::{OnceCell, Ref, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use crate::key_hash::{HashedKeys, key_hash};
use crate::{
    Direction, GAP_BYTES, Gap, KeyRange, Keyspace, KvError, KvResult, LogClock, LogEntries,
    LogPlace, Which, is_retired,
};

/// Gaps of an insert: of the record, of the entry's key, and of its timestamp; and one more.
const FEW_GAPS: usize = 4;
/// Up to this many operations a linear search replaces the index.
const SEARCHED: usize = 8;
/// Upper bound of a reservation.
const RESERVED_MAX: usize = 8 << 20;
const NONE: u32 = u32::MAX;

/// The operations of one transaction. Holds at most 4 GB; engines check their smaller limit before
/// they add.
#[derive(Default)]
pub struct WriteBuffer {
    arena: Vec<u8>,
    ops: Vec<Op>,
    gaps: OpenGaps,
    /// The number of retirements.
    retired: usize,
    /// Operations by keyspace.
    counts: [usize; Keyspace::ALL.len()],
    /// Most transactions need none, and would pay for empty ones.
    indexes: OnceCell<Box<Indexes>>,
}

/// Indexes of the operations.
#[derive(Default)]
struct Indexes {
    hashed: RefCell<Hashed>,
    ordered: [RefCell<Ordered>; Keyspace::ALL.len()],
}

/// The last operation of the transaction on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnWrite<'b> {
    /// Put this value.
    Put(&'b [u8]),
    /// Removed the key.
    Deleted,
    /// Retired the key's stored value.
    Retired,
}

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Put,
    Delete,
    Retire,
}

struct Op {
    keyspace: Keyspace,
    kind: Kind,
    at: u32,
    key_len: u32,
    value_len: u32,
}

/// A gap of a key or a value.
#[derive(Clone, Copy, Default)]
struct OpenGap {
    /// Its offset in the arena.
    at: u32,
    is_in_key: bool,
    /// The index of the entry; [`NONE`] for the last one.
    entry: u32,
}

/// The gaps. Most transactions have few, which need no allocation.
#[derive(Default)]
struct OpenGaps {
    count: usize,
    few: [OpenGap; FEW_GAPS],
    others: Vec<OpenGap>,
}

impl OpenGaps {
    fn push(&mut self, gap: OpenGap) {
        match self.few.get_mut(self.count) {
            Some(place) => *place = gap,
            None => self.others.push(gap),
        }
        self.count += 1;
    }

    fn truncate(&mut self, count: usize) {
        self.count = count;
        self.others.truncate(count.saturating_sub(FEW_GAPS));
    }

    fn iter(&self) -> impl Iterator<Item = &OpenGap> {
        self.few.iter().take(self.count).chain(&self.others)
    }
}

/// A key for sorting: its first bytes as numbers, and the index of the operation.
type KeyPlace = (u64, u64, u32);

#[derive(Default)]
struct Hashed {
    latest: HashMap<u64, u32, HashedKeys>,
    /// By operation: the previous one with the same hash. Its length is the number of indexed
    /// operations.
    previous: Vec<u32>,
}

/// Written keys of one keyspace in order.
#[derive(Default)]
pub(crate) struct Ordered {
    latest: BTreeMap<Box<[u8]>, u32>,
    /// How many of all operations are indexed.
    upto: usize,
}

impl WriteBuffer {
    /// An empty buffer; allocates nothing.
    pub fn new() -> WriteBuffer {
        WriteBuffer::default()
    }

    /// Reserves room for this many bytes of keys and values.
    pub fn reserve(&mut self, bytes: usize) {
        self.arena.reserve(bytes.min(RESERVED_MAX));
    }

    /// Adds a put.
    pub fn put(&mut self, keyspace: Keyspace, key: &[u8], value: &[u8]) {
        debug_assert!(!is_retired(keyspace, value), "the contract reserves this bit");
        self.push(keyspace, key, value, Kind::Put);
    }

    /// Adds a put with gaps.
    ///
    /// # Errors
    /// [`KvError::Invalid`] when a gap is not within the key or the value.
    pub fn put_with_gaps(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
        value: &[u8],
        gaps: &[Gap],
    ) -> KvResult<()> {
        let (begin, before) = (self.arena.len(), self.gaps.count);
        for gap in gaps {
            let (at, which, is_in_key) = match *gap {
                Gap::Key(at, which) => (at, which, true),
                Gap::Value(at, which) => (at, which, false),
            };
            let length = if is_in_key { key.len() } else { value.len() };
            if at.checked_add(GAP_BYTES).is_none_or(|end| end > length) {
                self.gaps.truncate(before);
                return Err(KvError::Invalid("a gap that is not within its key or value".into()));
            }
            let part = if is_in_key { begin } else { begin + key.len() };
            let entry = match which {
                // A transaction has far fewer entries.
                Which::Entry(index) => u32::try_from(index).unwrap_or(NONE - 1),
                Which::Last => NONE,
            };
            self.gaps.push(OpenGap { at: (part + at) as u32, is_in_key, entry });
        }
        self.push(keyspace, key, value, Kind::Put);
        Ok(())
    }

    /// Takes the place of a commit in the log, if it has entries, and fills all gaps with its
    /// timestamps. Nothing may be read afterwards: keys have changed.
    ///
    /// # Errors
    /// [`KvError::Invalid`] for gaps without an entry.
    pub fn take_place(
        &mut self,
        log: Option<&Arc<LogClock>>,
        entries: LogEntries,
    ) -> KvResult<Option<LogPlace>> {
        let Some(log) = log.filter(|_| entries.count > 0) else {
            return match self.gaps.count {
                0 => Ok(None),
                _ => Err(KvError::Invalid("a commit with gaps and without entries".into())),
            };
        };
        let place = log.take(entries);
        for gap in self.gaps.iter() {
            let timestamp = match gap.entry {
                NONE => place.timestamp(Which::Last),
                index => place.timestamp(Which::Entry(index.into())),
            };
            let bytes =
                if gap.is_in_key { timestamp.to_be_bytes() } else { timestamp.to_le_bytes() };
            self.arena[gap.at as usize..][..GAP_BYTES].copy_from_slice(&bytes);
        }
        self.gaps.truncate(0);
        Ok(Some(place))
    }

    /// Adds a delete.
    pub fn delete(&mut self, keyspace: Keyspace, key: &[u8]) {
        self.push(keyspace, key, &[], Kind::Delete);
    }

    /// Adds a retirement.
    pub fn retire(&mut self, keyspace: Keyspace, key: &[u8]) {
        self.retired += 1;
        self.push(keyspace, key, &[], Kind::Retire);
    }

    /// Bytes and operations so far.
    pub fn size(&self) -> (usize, usize) {
        (self.arena.len(), self.ops.len())
    }

    /// The number of retirements so far.
    pub fn retired(&self) -> usize {
        self.retired
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Whether the transaction wrote in this keyspace.
    pub fn touches(&self, keyspace: Keyspace) -> bool {
        self.counts[keyspace as usize] > 0
    }

    /// The operations in the order of the calls.
    pub fn ops(&self) -> impl Iterator<Item = (Keyspace, &[u8], OwnWrite<'_>)> {
        self.ops.iter().map(|op| (op.keyspace, self.key(op), self.write(op)))
    }

    /// The operations by keyspace and key, those of one key in the order of the calls. Adjacent
    /// keys are cheap to insert one after the other into a sorted structure. A few operations come
    /// in the order of the calls.
    pub fn ops_by_key(&self) -> impl Iterator<Item = (Keyspace, &[u8], OwnWrite<'_>)> {
        let order = if self.ops.len() > SEARCHED { self.order() } else { Vec::new() };
        self.ops.iter().enumerate().map(move |(at, op)| {
            let op = order.get(at).map_or(op, |(.., at)| &self.ops[*at as usize]);
            (op.keyspace, self.key(op), self.write(op))
        })
    }

    /// The operations by keyspace and key. Most comparisons need only the first bytes of a key: the
    /// object's id, and the beginning of the values.
    fn order(&self) -> Vec<KeyPlace> {
        let number = |key: &[u8], at: usize| {
            let rest = key.get(at..).unwrap_or_default();
            let mut bytes = [0; 8];
            let len = rest.len().min(bytes.len());
            bytes[..len].copy_from_slice(&rest[..len]);
            u64::from_be_bytes(bytes)
        };
        let mut order: Vec<KeyPlace> = Vec::with_capacity(self.ops.len());
        for keyspace in Keyspace::ALL.into_iter().filter(|keyspace| self.touches(*keyspace)) {
            let begin = order.len();
            let ops = self.ops.iter().zip(0..).filter(|(op, _)| op.keyspace == keyspace);
            order.extend(ops.map(|(op, at)| {
                let key = self.key(op);
                (number(key, 0), number(key, 8), at)
            }));
            // Usually they are sorted already.
            let key = |place: &KeyPlace| self.key(&self.ops[place.2 as usize]);
            order[begin..].sort_unstable_by(|a, b| {
                let by_key = (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| key(a).cmp(key(b)));
                by_key.then(a.2.cmp(&b.2))
            });
        }
        order
    }

    /// The last write to this key, if any.
    pub fn get(&self, keyspace: Keyspace, key: &[u8]) -> Option<OwnWrite<'_>> {
        if !self.touches(keyspace) {
            return None;
        }
        if self.ops.len() <= SEARCHED {
            return self
                .ops
                .iter()
                .rev()
                .find(|op| self.is(op, keyspace, key))
                .map(|op| self.write(op));
        }
        self.catch_up_hashed();
        let hashed = self.indexes().hashed.borrow();
        let mut at = *hashed.latest.get(&key_hash(keyspace, key))?;
        while at != NONE {
            let op = &self.ops[at as usize];
            if self.is(op, keyspace, key) {
                return Some(self.write(op));
            }
            at = hashed.previous[at as usize];
        }
        None
    }

    fn indexes(&self) -> &Indexes {
        self.indexes.get_or_init(Box::default)
    }

    /// The index of the written keys of a keyspace, caught up with all operations.
    pub(crate) fn ordered(&self, keyspace: Keyspace) -> Ref<'_, Ordered> {
        let cell = &self.indexes().ordered[keyspace as usize];
        // A visitor may scan again while an outer scan holds the borrow; then the index is complete
        // already.
        if cell.borrow().upto < self.ops.len() {
            let mut ordered = cell.borrow_mut();
            for at in ordered.upto..self.ops.len() {
                let op = &self.ops[at];
                if op.keyspace == keyspace {
                    ordered.latest.insert(self.key(op).into(), at as u32);
                }
            }
            ordered.upto = self.ops.len();
        }
        cell.borrow()
    }

    /// Own writes of a range in the order of a scan. The range must not be empty.
    pub(crate) fn range<'o>(
        &'o self,
        ordered: &'o Ordered,
        range: &KeyRange,
        direction: Direction,
    ) -> Box<dyn Iterator<Item = (&'o [u8], OwnWrite<'o>)> + 'o> {
        let bounds = (Bound::Included(&range.start[..]), Bound::Excluded(&range.end[..]));
        let entries = ordered
            .latest
            .range::<[u8], _>(bounds)
            .map(|(key, at)| (&**key, self.write(&self.ops[*at as usize])));
        match direction {
            Direction::Forward => Box::new(entries),
            Direction::Backward => Box::new(entries.rev()),
        }
    }

    /// The written keys of a range, each once and in order.
    pub fn keys_within(&self, keyspace: Keyspace, range: &KeyRange) -> Vec<Vec<u8>> {
        if range.is_empty() || !self.touches(keyspace) {
            return Vec::new();
        }
        let ordered = self.ordered(keyspace);
        self.range(&ordered, range, Direction::Forward).map(|(key, _)| key.to_vec()).collect()
    }

    fn push(&mut self, keyspace: Keyspace, key: &[u8], value: &[u8], kind: Kind) {
        assert!(
            self.arena.len() + key.len() + value.len() < u32::MAX as usize,
            "engines refuse a transaction long before 4 GB"
        );
        self.ops.push(Op {
            keyspace,
            kind,
            at: self.arena.len() as u32,
            key_len: key.len() as u32,
            value_len: value.len() as u32,
        });
        self.arena.extend_from_slice(key);
        self.arena.extend_from_slice(value);
        self.counts[keyspace as usize] += 1;
    }

    fn catch_up_hashed(&self) {
        let indexes = self.indexes();
        if indexes.hashed.borrow().previous.len() == self.ops.len() {
            return;
        }
        let mut hashed = indexes.hashed.borrow_mut();
        let done = hashed.previous.len();
        for (at, op) in self.ops.iter().enumerate().skip(done) {
            let hash = key_hash(op.keyspace, self.key(op));
            let previous = hashed.latest.insert(hash, at as u32).unwrap_or(NONE);
            hashed.previous.push(previous);
        }
    }

    fn is(&self, op: &Op, keyspace: Keyspace, key: &[u8]) -> bool {
        op.keyspace == keyspace && self.key(op) == key
    }

    fn key(&self, op: &Op) -> &[u8] {
        &self.arena[op.at as usize..][..op.key_len as usize]
    }

    fn write(&self, op: &Op) -> OwnWrite<'_> {
        let value = op.at as usize + op.key_len as usize;
        match op.kind {
            Kind::Put => OwnWrite::Put(&self.arena[value..][..op.value_len as usize]),
            Kind::Delete => OwnWrite::Deleted,
            Kind::Retire => OwnWrite::Retired,
        }
    }
}

/// The writing methods of a [`Txn`](crate::Txn) with the fields `buffer`, a [`WriteBuffer`], and
/// `claims`, which is `None` for a transaction that only reads.
#[macro_export]
macro_rules! buffered_writes {
    ($caps:ident) => {
        fn put(
            &mut self,
            keyspace: $crate::Keyspace,
            key: &[u8],
            value: &[u8],
            guard: $crate::Guard,
        ) -> $crate::KvResult<()> {
            $caps.check_write(key, value, self.buffer.size())?;
            $crate::conflict::claim(&mut self.claims, keyspace, key, guard)?;
            self.buffer.put(keyspace, key, value);
            Ok(())
        }

        fn put_with_gaps(
            &mut self,
            keyspace: $crate::Keyspace,
            key: &[u8],
            value: &[u8],
            guard: $crate::Guard,
            gaps: &[$crate::Gap],
        ) -> $crate::KvResult<()> {
            $caps.check_write(key, value, self.buffer.size())?;
            $crate::conflict::claim(&mut self.claims, keyspace, key, guard)?;
            self.buffer.put_with_gaps(keyspace, key, value, gaps)
        }

        fn delete(
            &mut self,
            keyspace: $crate::Keyspace,
            key: &[u8],
            guard: $crate::Guard,
        ) -> $crate::KvResult<()> {
            $caps.check_write(key, &[], self.buffer.size())?;
            $crate::conflict::claim(&mut self.claims, keyspace, key, guard)?;
            self.buffer.delete(keyspace, key);
            Ok(())
        }

        fn retire(
            &mut self,
            keyspace: $crate::Keyspace,
            key: &[u8],
            guard: $crate::Guard,
        ) -> $crate::KvResult<()> {
            $caps.check_write(key, &[], self.buffer.size())?;
            $crate::conflict::claim(&mut self.claims, keyspace, key, guard)?;
            self.buffer.retire(keyspace, key);
            Ok(())
        }

        fn lock(&mut self, keyspace: $crate::Keyspace, key: &[u8]) -> $crate::KvResult<()> {
            $crate::conflict::claim(&mut self.claims, keyspace, key, $crate::Guard::Checked)
        }

        fn size(&self) -> (usize, usize) {
            self.buffer.size()
        }

        fn written_keys(
            &self,
            keyspace: $crate::Keyspace,
            range: &$crate::KeyRange,
        ) -> Vec<Vec<u8>> {
            self.buffer.keys_within(keyspace, range)
        }
    };
}

#[cfg(test)]
mod tests;
