//! Calls that read several keys or ranges, as several calls that read one: for engines that gain
//! nothing from the former.

use crate::contract::{NamedKey, RangesVisitor, ShortBytes, ThroughVisitor, Txn};
use crate::{Direction, KeyRange, Keyspace, KvResult, ScanEnd, ScanLimit};

pub(crate) type ReadOne<'r> = dyn Fn(Keyspace, &[u8], &mut dyn FnMut(&[u8])) -> KvResult<bool> + 'r;

/// Reads a key and the key that its value names with two reads.
pub(crate) fn read_through(
    read: &ReadOne<'_>,
    (keyspace, key): (Keyspace, &[u8]),
    named: &NamedKey<'_>,
    see: &mut ThroughVisitor<'_>,
) -> KvResult<bool> {
    let mut first = ShortBytes::new();
    if !read(keyspace, key, &mut |value| first.extend_from_slice(value))? {
        return Ok(false);
    }
    let found = match named.of(&first) {
        Some(key) => read(named.keyspace, &key, &mut |second| see(&first, Some(second)))?,
        None => false,
    };
    if !found {
        see(&first, None);
    }
    Ok(true)
}

/// Visits the entries of several ranges with one scan for each, as [`Txn::scan_ranges`].
///
/// # Errors
/// As [`Txn::scan`].
pub fn scan_each(
    txn: &(impl Txn + ?Sized),
    keyspace: Keyspace,
    ranges: &[KeyRange],
    (direction, page): (Direction, usize),
    visit: &mut RangesVisitor<'_>,
) -> KvResult<(usize, ScanEnd)> {
    for (at, range) in ranges.iter().enumerate() {
        let visit = &mut |key: &[u8], value: &[u8]| visit(at, key, value);
        let end = txn.scan(keyspace, range, direction, ScanLimit::page(page), visit)?;
        if end != ScanEnd::Exhausted {
            return Ok((at, end));
        }
    }
    Ok((ranges.len().saturating_sub(1), ScanEnd::Exhausted))
}
