//! A transaction: a session of PostgreSQL from the first read on, a write buffer, and claims.

use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_kv::conflict::{self, Claims};
use mayfly_kv::scan::{ScanRequest, merged_scan, stored_scan};
use mayfly_kv::write_buffer::{OwnWrite, WriteBuffer};
use mayfly_kv::{
    Caps, Direction, EachValue, Guard, InsertCheck, KeyRange, Keyspace, KvError, KvResult,
    LogEntries, LoggedCommit, NamedKey, RangesVisitor, ScanEnd, ScanLimit, ThroughVisitor, Txn,
    Visitor, scan_each,
};
use tokio_postgres::Row;

use crate::commit;
use crate::connection::Params;
use crate::cursor::{PageCursor, column, number, optional_column};
use crate::engine::Store;
use crate::held::MAX_AGE;
use crate::many::{MANY_KEYS, StoredMany};
use crate::ranges;
use crate::session::TxnSession;
use crate::sql::Sql;

pub(crate) const CAPS: Caps = Caps {
    // An entry of a B-tree has at most a third of a page of 8192 bytes.
    max_key_bytes: 2_600,
    max_value_bytes: 64 << 20,
    max_txn_bytes: 256 << 20,
    max_txn_keys: 4 << 20,
    max_txn_age_ms: MAX_AGE.as_millis() as u64,
    // Half of the connections.
    max_open_txns: 0,
    durable: true,
    clusters_records: false,
    is_remote: true,
    late_inserts: true,
};

pub(crate) struct PostgresTxn {
    pub(crate) store: Arc<Store>,
    session: TxnSession,
    pub(crate) buffer: WriteBuffer,
    /// None when read-only.
    claims: Option<Claims>,
    /// Keys that were inserted without a look-up.
    pub(crate) late: Vec<(Keyspace, Vec<u8>)>,
}

impl PostgresTxn {
    /// A transaction without claims only reads.
    pub(crate) fn new(session: TxnSession, claims: Option<Claims>) -> PostgresTxn {
        let (store, buffer) = (session.store.clone(), WriteBuffer::new());
        PostgresTxn { store, session, buffer, claims, late: Vec::new() }
    }

    /// [`TxnSession::query`].
    pub(crate) fn query(&self, sql: Sql, params: Params<'_>) -> KvResult<Vec<Row>> {
        self.session.query(sql, params)
    }

    /// As [`Txn::get_through`], with a statement of [`TxnSession::query`] or of
    /// [`TxnSession::query_locked`].
    fn get_through_with(
        &self,
        query: impl Fn(Sql, Params<'_>) -> KvResult<Vec<Row>>,
        (keyspace, key): (Keyspace, &[u8]),
        named: &NamedKey<'_>,
        see: &mut ThroughVisitor<'_>,
    ) -> KvResult<bool> {
        if let Some(own) = self.buffer.get(keyspace, key) {
            let OwnWrite::Put(value) = own else { return Ok(false) };
            let found = match named.of(value) {
                Some(key) => {
                    self.get(named.keyspace, &key, &mut |second| see(value, Some(second)))?
                }
                None => false,
            };
            if !found {
                see(value, None);
            }
            return Ok(true);
        }
        let (offset, length) = part_of(named)?;
        let sql = Sql::GetThrough(keyspace, named.keyspace);
        let rows = query(sql, &[&key, &named.prefix, &offset, &length])?;
        let Some(row) = rows.first() else { return Ok(false) };
        let (first, mut second) = (column(row, 0)?, optional_column(row, 1)?);
        if self.buffer.touches(named.keyspace)
            && let Some(key) = named.of(first)
            && let Some(own) = self.buffer.get(named.keyspace, &key)
        {
            second = match own {
                OwnWrite::Put(value) => Some(value),
                OwnWrite::Deleted | OwnWrite::Retired => None,
            };
        }
        see(first, second);
        Ok(true)
    }

    /// The value of a stored key.
    fn get_stored(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        let rows = self.query(Sql::Get(keyspace), &[&key])?;
        show(rows.first(), see)
    }
}

/// Passes the value of a row, if there is one.
pub(crate) fn show(row: Option<&Row>, see: &mut dyn FnMut(&[u8])) -> KvResult<bool> {
    let Some(row) = row else { return Ok(false) };
    see(column(row, 0)?);
    Ok(true)
}

/// The parameters of [`Sql::GetThrough`] for a part of the value: its offset and its length.
pub(crate) fn part_of(named: &NamedKey<'_>) -> KvResult<(i32, i32)> {
    let offset = i32::try_from(named.part.start);
    let length = i32::try_from(named.part.len());
    match (offset, length) {
        (Ok(offset), Ok(length)) => Ok((offset, length)),
        _ => Err(KvError::Invalid("a part beyond the largest value".into())),
    }
}

impl Txn for PostgresTxn {
    fn get(&self, keyspace: Keyspace, key: &[u8], see: &mut dyn FnMut(&[u8])) -> KvResult<bool> {
        match self.buffer.get(keyspace, key) {
            Some(OwnWrite::Put(value)) => {
                see(value);
                Ok(true)
            }
            Some(OwnWrite::Deleted | OwnWrite::Retired) => Ok(false),
            None => self.get_stored(keyspace, key, see),
        }
    }

    fn get_through(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        named: &NamedKey<'_>,
        see: &mut ThroughVisitor<'_>,
    ) -> KvResult<bool> {
        self.get_through_with(|sql, params| self.query(sql, params), (keyspace, key), named, see)
    }

    fn get_locked(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        self.lock(keyspace, key)?;
        match self.buffer.get(keyspace, key) {
            Some(_) => self.get(keyspace, key, see),
            None => show(self.session.query_locked(Sql::Get(keyspace), &[&key])?.first(), see),
        }
    }

    fn get_through_locked(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
        named: &NamedKey<'_>,
        see: &mut ThroughVisitor<'_>,
    ) -> KvResult<bool> {
        let (mut named_key, query) =
            (None, |sql, params: Params<'_>| self.session.query_locked(sql, params));
        let found =
            self.get_through_with(query, (keyspace, key), named, &mut |first, second| {
                named_key = named.of(first);
                see(first, second);
            })?;
        if let Some(key) = named_key {
            self.lock(named.keyspace, &key)?;
        }
        Ok(found)
    }

    fn count(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        max: usize,
    ) -> KvResult<(usize, ScanEnd)> {
        if range.is_empty() {
            return Ok((0, ScanEnd::Exhausted));
        }
        if self.buffer.touches(keyspace) {
            let (mut entries, limit) = (0, ScanLimit::rows(max));
            let end = self.scan(keyspace, range, Direction::Forward, limit, &mut |_, _| {
                entries += 1;
                ControlFlow::Continue(())
            })?;
            return Ok((entries, end));
        }
        let max = i64::try_from(max.max(1)).unwrap_or(i64::MAX);
        let rows = self.query(Sql::Count(keyspace), &[&range.start, &range.end, &max])?;
        let entries = rows.first().map_or(Ok(0), |row| number(row, 0))?;
        let mut end = ScanEnd::Exhausted;
        if entries >= max {
            let last = [&range.start as _, &range.end as _, &(max - 1) as _];
            if let Some(row) = self.query(Sql::KeyAt(keyspace), &last)?.first() {
                end = ScanEnd::More { last_key: column(row, 0)?.to_vec() };
            }
        }
        Ok((usize::try_from(entries).unwrap_or(0), end))
    }

    fn multi_get(
        &self,
        keyspace: Keyspace,
        keys: &[&[u8]],
        see: &mut EachValue<'_>,
    ) -> KvResult<()> {
        for (chunk, first) in keys.chunks(MANY_KEYS).zip((0..).step_by(MANY_KEYS)) {
            let own: Vec<_> = chunk.iter().map(|key| self.buffer.get(keyspace, key)).collect();
            let stored = chunk.iter().zip(&own).filter(|(_, own)| own.is_none());
            let mut stored = StoredMany::new(self, keyspace, stored.map(|(key, _)| *key).collect());
            for (at, own) in (first..).zip(own) {
                let flow = match own {
                    Some(OwnWrite::Put(value)) => see(at, value),
                    Some(OwnWrite::Deleted | OwnWrite::Retired) => continue,
                    None => match stored.next()? {
                        Some(value) => see(at, value),
                        None => continue,
                    },
                };
                if flow.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn scan(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        direction: Direction,
        limit: ScanLimit,
        visit: &mut Visitor<'_>,
    ) -> KvResult<ScanEnd> {
        if range.is_empty() {
            return Ok(ScanEnd::Exhausted);
        }
        let request = ScanRequest { keyspace, range, direction, limit };
        merged_scan(&mut PageCursor::hiding(self, request), &self.buffer, request, visit)
    }

    fn scan_retired(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        limit: ScanLimit,
        visit: &mut Visitor<'_>,
    ) -> KvResult<ScanEnd> {
        if range.is_empty() {
            return Ok(ScanEnd::Exhausted);
        }
        let rows = limit.page.min(limit.rows);
        stored_scan(&mut PageCursor::showing(self, keyspace, range, rows), limit, visit)
    }

    fn scan_ranges(
        &self,
        keyspace: Keyspace,
        ranges: &[KeyRange],
        (direction, page): (Direction, usize),
        visit: &mut RangesVisitor<'_>,
    ) -> KvResult<(usize, ScanEnd)> {
        match self.buffer.touches(keyspace) {
            true => scan_each(self, keyspace, ranges, (direction, page), visit),
            false => ranges::visit(self, keyspace, ranges, (direction, page), visit),
        }
    }

    fn reserve(&mut self, bytes: usize) {
        self.buffer.reserve(bytes);
    }

    mayfly_kv::buffered_writes!(CAPS);

    fn insert(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
        value: &[u8],
        check: InsertCheck,
        taken: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        if check == InsertCheck::AtOnce {
            if self.get_locked(keyspace, key, taken)? {
                return Ok(false);
            }
            self.put(keyspace, key, value, Guard::Derived)?;
            return Ok(true);
        }
        CAPS.check_write(key, value, self.buffer.size())?;
        conflict::claim(&mut self.claims, keyspace, key, Guard::Checked)?;
        match self.buffer.get(keyspace, key) {
            Some(OwnWrite::Put(present)) => {
                taken(present);
                return Ok(false);
            }
            Some(OwnWrite::Deleted | OwnWrite::Retired) => {}
            None => self.late.push((keyspace, key.to_vec())),
        }
        self.buffer.put(keyspace, key, value);
        Ok(true)
    }

    fn commit_logged(mut self: Box<Self>, entries: LogEntries) -> LoggedCommit {
        if !self.buffer.is_empty()
            && let Err(too_old) = self.session.check_age()
        {
            return LoggedCommit::failed(too_old);
        }
        // Before the commit takes its place in the log: later ones wait for that place.
        let leased = match self.buffer.is_empty() {
            true => Ok(None),
            false => self.session.commit_lease().map(Some),
        };
        let log = self.store.log.clone();
        let placed =
            leased.and_then(|lease| Ok((lease, self.buffer.take_place(Some(&log), entries)?)));
        let (lease, place) = match placed {
            Ok(placed) => placed,
            Err(error) => return LoggedCommit::failed(error),
        };
        let result = lease.map_or(Ok(()), |lease| commit::commit(&self, lease));
        match (self.claims.take(), &result) {
            (Some(claims), Ok(()) | Err(KvError::CommitUnknown(_))) => claims.publish(),
            (rolled_back, _) => drop(rolled_back),
        }
        LoggedCommit { result, place }
    }
}
