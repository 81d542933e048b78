//! Scans that merge stored entries with the transaction's own writes into one ordered sequence.
//!
//! An engine provides its ordered entries as a [`Cursor`], positioned on the first entry of the
//! range in the direction of the scan. Merging, limits and early termination are the same for all
//! engines.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use crate::write_buffer::{OwnWrite, WriteBuffer};
use crate::{Direction, KeyRange, Keyspace, KvResult, ScanEnd, ScanLimit, Visitor, is_retired};

/// How many retired entries in a row a scan passes before it pauses, so that its caller can check
/// whether the operation should end. With an engine that skips retired runs, these are steps.
const RETIRED_STEPS: usize = 16 << 10;

/// An iterator over the stored entries of one range.
pub trait Cursor {
    /// The current entry; `None` at the end. A database in another process may leave out retired
    /// entries itself.
    fn entry(&self) -> KvResult<Option<(&[u8], &[u8])>>;

    /// Moves to the next entry in its direction.
    fn advance(&mut self);

    /// Moves on from a retired entry. An engine may skip others that are retired, too.
    fn advance_retired(&mut self) {
        self.advance();
    }
}

/// The parameters of a scan.
#[derive(Clone, Copy)]
pub struct ScanRequest<'r> {
    /// The keyspace to scan.
    pub keyspace: Keyspace,
    /// The keys to visit; not empty.
    pub range: &'r KeyRange,
    /// The order of the visits.
    pub direction: Direction,
    /// When the scan pauses.
    pub limit: ScanLimit,
}

/// Visits stored entries and own writes; an own write hides the stored entry of its key.
pub fn merged_scan(
    stored: &mut impl Cursor,
    own: &WriteBuffer,
    request: ScanRequest<'_>,
    visit: &mut Visitor<'_>,
) -> KvResult<ScanEnd> {
    let mut pace = Pace { limit: request.limit, retired: RETIRED_STEPS, visit };
    if !own.touches(request.keyspace) {
        return scan_without_own(stored, request.keyspace, pace);
    }

    let ordered = own.ordered(request.keyspace);
    let mut writes = own.range(&ordered, request.range, request.direction).peekable();
    loop {
        if let Some((key, value)) = stored.entry()?
            && is_retired(request.keyspace, value)
        {
            // Own writes before this key have not been visited, so the scan does not pause here.
            let is_later = |own_key: &[u8]| is_after(own_key, key, request.direction);
            if writes.peek().is_none_or(|(own_key, _)| is_later(own_key))
                && pace.pass_retired().is_break()
            {
                return Ok(ScanEnd::More { last_key: key.to_vec() });
            }
            stored.advance_retired();
            continue;
        }
        let next = match (stored.entry()?, writes.peek()) {
            (None, None) => return Ok(ScanEnd::Exhausted),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((stored_key, _)), Some((own_key, _))) => match request.direction {
                Direction::Forward => stored_key.cmp(own_key),
                Direction::Backward => own_key.cmp(&stored_key),
            },
        };
        let seen = match next {
            Ordering::Less => {
                let seen = stored.entry()?.map(|(key, value)| (pace.see(key, value), key));
                if let Some((ControlFlow::Break(()), key)) = seen {
                    return Ok(ScanEnd::More { last_key: key.to_vec() });
                }
                stored.advance();
                continue;
            }
            Ordering::Equal => {
                stored.advance();
                writes.next()
            }
            Ordering::Greater => writes.next(),
        };
        if let Some((key, OwnWrite::Put(value))) = seen
            && pace.see(key, value).is_break()
        {
            return Ok(ScanEnd::More { last_key: key.to_vec() });
        }
    }
}

/// As [`merged_scan`], where the transaction has written nothing.
fn scan_without_own(
    stored: &mut impl Cursor,
    keyspace: Keyspace,
    mut pace: Pace<'_, '_>,
) -> KvResult<ScanEnd> {
    while let Some((key, value)) = stored.entry()? {
        if is_retired(keyspace, value) {
            if pace.pass_retired().is_break() {
                return Ok(ScanEnd::More { last_key: key.to_vec() });
            }
            stored.advance_retired();
            continue;
        }
        if pace.see(key, value).is_break() {
            return Ok(ScanEnd::More { last_key: key.to_vec() });
        }
        stored.advance();
    }
    Ok(ScanEnd::Exhausted)
}

/// Whether a scan in this direction comes to `a` after `b`.
fn is_after(a: &[u8], b: &[u8], direction: Direction) -> bool {
    match direction {
        Direction::Forward => a > b,
        Direction::Backward => a < b,
    }
}

/// Visits stored entries, retired ones included.
pub fn stored_scan(
    stored: &mut impl Cursor,
    limit: ScanLimit,
    visit: &mut Visitor<'_>,
) -> KvResult<ScanEnd> {
    let mut pace = Pace { limit, retired: RETIRED_STEPS, visit };
    while let Some((key, value)) = stored.entry()? {
        if pace.see(key, value).is_break() {
            return Ok(ScanEnd::More { last_key: key.to_vec() });
        }
        stored.advance();
    }
    Ok(ScanEnd::Exhausted)
}

/// Counts down the limits.
struct Pace<'p, 'v> {
    limit: ScanLimit,
    /// How many more retired entries in a row may be passed.
    retired: usize,
    visit: &'p mut Visitor<'v>,
}

impl Pace<'_, '_> {
    /// Counts a retired entry.
    fn pass_retired(&mut self) -> ControlFlow<()> {
        self.retired -= 1;
        if self.retired == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn see(&mut self, key: &[u8], value: &[u8]) -> ControlFlow<()> {
        self.retired = RETIRED_STEPS;
        (self.visit)(key, value)?;
        self.limit.rows = self.limit.rows.saturating_sub(1);
        self.limit.bytes = self.limit.bytes.saturating_sub(key.len() + value.len());
        if self.limit.rows == 0 || self.limit.bytes == 0 {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}
