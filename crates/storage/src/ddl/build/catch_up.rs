//! Applies the notes of writers.
//!
//! A record is read in a snapshot that was taken after its note was made; if it changes again,
//! there is another note. Its present keys are written, and the noted keys that it no longer has
//! are removed; in a unique index only if the entry belongs to the record.

use std::collections::HashSet;
use std::ops::ControlFlow;

use mayfly_base::Result;
use mayfly_kv::{Guard, Keyspace, Txn};

use super::{Build, Dispute, Writers};
use crate::catalog::Index;
use crate::index::building::parse_note;
use crate::index::keygen::KeySet;
use crate::index::sorter::Sorter;
use crate::record::RecordKey;
use crate::record::error::from_kv;
use crate::record::layout::{decode_stored, decode_unique_value, encode_unique_value, prefixed};
use crate::write::covered_keys;

/// At most this many notes are applied with writers locked out.
const FEW_NOTES: u64 = if cfg!(test) { 3 } else { 1_000 };
/// The same for notes that have come since the last check.
const FEW_MORE: u64 = 10 * FEW_NOTES;
/// After this many rounds writers wait until the build ends, however many notes are left.
const MOST_ROUNDS: u32 = if cfg!(test) { 8 } else { 20 };
/// The most records, and bytes of notes, in one transaction.
const UNIT_RECORDS: usize = if cfg!(test) { 5 } else { 256 };
const UNIT_BYTES: usize = 1 << 20;
/// The shortest wait of writers for each note.
const LEAST_DELAY_NANOS: u64 = 1_000;
const CATCHING_UP: &str = "Index Build: draining writes received during build";

/// A record with its notes.
struct NotedRecord {
    record_key: RecordKey,
    /// For each index: the keys that it had.
    had: Vec<(usize, Vec<Vec<u8>>)>,
}

impl Build<'_> {
    /// Applies notes until few are left.
    pub(super) fn catch_up(&mut self) -> Result<()> {
        loop {
            self.check()?;
            let noted = self.notes.len();
            if noted <= FEW_NOTES || self.rounds == MOST_ROUNDS {
                return Ok(());
            }
            let taken = {
                let _no_writers = self.collection.change_state()?;
                self.notes.take()?
            };
            let began = self.store.clock.monotonic_micros();
            self.step("round");
            let disputes = self.do_all(taken, Writers::Run)?;
            self.settle(&disputes)?;
            if noted > self.last_round / 2 {
                let took = self.store.clock.monotonic_micros() - began;
                let each = u64::try_from(took).unwrap_or(0) * 1_000 / noted;
                self.delay_nanos =
                    self.delay_nanos.saturating_mul(2).max(each).max(LEAST_DELAY_NANOS);
                self.notes.delay(self.delay_nanos);
            }
            self.last_round = noted;
            self.rounds += 1;
        }
    }

    /// Applies the last notes with the state held exclusively; returns the disputed keys, or `None`
    /// when there are too many notes.
    pub(super) fn catch_up_alone(&mut self) -> Result<Option<Vec<Dispute>>> {
        if self.notes.len() > FEW_MORE && self.rounds < MOST_ROUNDS {
            return Ok(None);
        }
        let taken = self.notes.take()?;
        let disputes = self.do_all(taken, Writers::Wait)?;
        // Outdated entries are gone now, so keys that are still disputed belong to two documents.
        let again: Vec<_> = disputes.iter().map(NotedRecord::disputed).collect();
        self.do_some(&again, Writers::Wait).map(Some)
    }

    fn do_all(&mut self, taken: Sorter, writers: Writers) -> Result<Vec<Dispute>> {
        let total = taken.len();
        let mut merge = taken.merge(&|| self.check())?;
        let (mut done, mut disputes) = (0, Vec::new());
        let (mut unit, mut bytes): (Vec<NotedRecord>, usize) = (Vec::new(), 0);
        while let Some((record_key, what)) = merge.next()? {
            done += 1;
            let same = unit.last().is_some_and(|last| last.record_key == record_key);
            if !same {
                if unit.len() == UNIT_RECORDS || bytes > UNIT_BYTES {
                    self.show_progress(CATCHING_UP, done, total);
                    disputes.extend(self.do_some(&unit, writers)?);
                    unit.clear();
                    bytes = 0;
                }
                unit.push(NotedRecord { record_key: record_key.to_vec(), had: Vec::new() });
            }
            bytes += record_key.len() + what.len();
            if let Some(touched) = unit.last_mut() {
                touched.add(what);
            }
        }
        disputes.extend(self.do_some(&unit, writers)?);
        Ok(disputes)
    }

    fn do_some(&mut self, unit: &[NotedRecord], writers: Writers) -> Result<Vec<Dispute>> {
        if unit.is_empty() {
            return Ok(Vec::new());
        }
        let (multikey, disputes) = self.transact(writers, |txn| {
            let mut multikey = vec![0; self.indexes.len()];
            let mut disputes = Vec::new();
            let present = self.present_keys(txn, unit)?;
            for (touched, now) in unit.iter().zip(&present) {
                self.do_one(txn, (touched, now), &mut multikey, &mut disputes)?;
            }
            Ok((multikey, disputes))
        })?;
        for (all, more) in self.multikey.iter_mut().zip(multikey) {
            *all |= more;
        }
        Ok(disputes)
    }

    /// For each record the keys that it has now in each of its noted indexes. The records are read
    /// together: with little memory, a look-up of each reads the tables' indexes again.
    fn present_keys(&self, txn: &dyn Txn, unit: &[NotedRecord]) -> Result<Vec<Vec<KeySet>>> {
        let empty = |touched: &NotedRecord| touched.had.iter().map(|_| KeySet::default()).collect();
        let mut present: Vec<Vec<KeySet>> = unit.iter().map(empty).collect();
        let id = self.collection.id();
        let keys: Vec<_> = unit.iter().map(|touched| prefixed(id, &touched.record_key)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut made = Ok(());
        txn.multi_get(Keyspace::Record, &keys, &mut |at, value| {
            made = decode_stored(value).and_then(|record| {
                let mut each = unit[at].had.iter().zip(&mut present[at]);
                each.try_for_each(|((number, _), keys)| {
                    covered_keys(&self.indexes[*number], record, keys)
                })
            });
            if made.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .map_err(from_kv)?;
        made.map(|()| present)
    }

    fn do_one(
        &self,
        txn: &mut dyn Txn,
        (touched, now): (&NotedRecord, &[KeySet]),
        multikey: &mut [u32],
        disputes: &mut Vec<Dispute>,
    ) -> Result<()> {
        let record_key = &touched.record_key;
        for ((number, had), keys) in touched.had.iter().zip(now) {
            let index = &*self.indexes[*number];
            if index.is_dropped() {
                continue;
            }
            multikey[*number] |= keys.multikey;
            let has: HashSet<&[u8]> = keys.iter().map(|(values, _)| values).collect();
            for values in had.iter().filter(|values| !has.contains(values.as_slice())) {
                remove(txn, index, values, record_key)?;
            }
            for (values, bits) in keys.iter() {
                if let Some(owner) = add(txn, index, values, bits, record_key)? {
                    let (values, record_key) = (values.to_vec(), record_key.clone());
                    disputes.push(Dispute { number: *number, values, record_key, owner });
                }
            }
        }
        Ok(())
    }
}

impl NotedRecord {
    /// The record of a dispute that has no entry.
    fn disputed(dispute: &Dispute) -> NotedRecord {
        let record_key = dispute.record_key.clone();
        NotedRecord { record_key, had: vec![(dispute.number, Vec::new())] }
    }

    fn add(&mut self, what: &[u8]) {
        let (number, values) = parse_note(what);
        let number = usize::from(number);
        let at = self.had.iter().position(|(other, _)| *other == number).unwrap_or_else(|| {
            self.had.push((number, Vec::new()));
            self.had.len() - 1
        });
        self.had[at].1.extend(values.map(<[u8]>::to_vec));
    }
}

/// The record that has this key of a unique index.
fn owner_of(txn: &dyn Txn, key: &[u8]) -> Result<Option<RecordKey>> {
    let mut owner = None;
    txn.get(Keyspace::Index, key, &mut |value| {
        owner = Some(decode_unique_value(value).map_or(Vec::new(), |(owner, _)| owner.to_vec()));
    })
    .map_err(from_kv)?;
    Ok(owner)
}

fn remove(txn: &mut dyn Txn, index: &Index, values: &[u8], record_key: &[u8]) -> Result<()> {
    let mut key = prefixed(index.id(), values);
    if !index.spec.unique() {
        key.extend_from_slice(record_key);
    } else if owner_of(txn, &key)?.is_none_or(|owner| owner != record_key) {
        return Ok(());
    }
    txn.delete(Keyspace::Index, &key, Guard::Derived).map_err(from_kv)
}

/// Adds an entry. Returns another record that has the key already.
fn add(
    txn: &mut dyn Txn,
    index: &Index,
    values: &[u8],
    bits: &[u8],
    record_key: &[u8],
) -> Result<Option<RecordKey>> {
    let mut key = prefixed(index.id(), values);
    if !index.spec.unique() {
        key.extend_from_slice(record_key);
        txn.put(Keyspace::Index, &key, bits, Guard::Derived).map_err(from_kv)?;
        return Ok(None);
    }
    if let Some(owner) = owner_of(txn, &key)?.filter(|owner| owner != record_key) {
        return Ok(Some(owner));
    }
    let mut value = Vec::new();
    encode_unique_value(&mut value, record_key, bits);
    txn.put(Keyspace::Index, &key, &value, Guard::Derived).map_err(from_kv)?;
    Ok(None)
}
