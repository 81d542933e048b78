//! Checks of a collection: every record is readable, every key of a document is in its index, and
//! no other key is.
//!
//! The check reads one snapshot. It is taken while no unit is under way, so that the stored count
//! belongs to it; afterwards writers continue.
//!
//! 1. Each record is decoded, and checked as BSON and against its key; its index keys are generated
//!    and looked up.
//! 2. The entries of each index are counted. If their number is as expected and none is missing,
//!    there are no others.
//! 3. Only if the numbers differ, each entry is compared with the keys of its document.
//!
//! The index on `_id` is checked like others. If records are clustered by `_id`, there is no such
//! index.

mod bson;
mod expected;
mod log_fed;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{ClientData, Result};
use mayfly_kv::{Direction, Keyspace, ScanEnd, ScanLimit};
use mayfly_value::keys::{TypeBitsReader, decode_value};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use mayfly_work::OpCtx;

use self::bson::{is_conformant, is_readable};
use self::expected::Expected;
use crate::catalog::{Collection, Core, Index, SearchVersion};
use crate::index::keygen::KeySet;
use crate::index::kinds::entry_keys;
use crate::read::{Snapshot, entry};
use crate::record::Record;
use crate::record::RecordKey;
use crate::record::error::from_kv;
use crate::record::layout::{decode_stored, object_range};

/// The number of records or entries between two checks of the deadline.
const CHECK_EVERY: u64 = 128;
/// The most findings that are listed.
const MAX_LISTED: usize = 1000;

/// The options of a check.
#[derive(Clone, Copy, Debug, Default)]
pub struct ValidateOptions {
    /// Whether to check also for repeated names, and for arrays whose items are not numbered
    /// consecutively.
    pub bson_conformance: bool,
}

/// A missing or superfluous index entry.
#[derive(Debug)]
pub struct EntryFinding {
    /// The index in [`ValidationResult::indexes`].
    pub index: usize,
    /// The key of the record.
    pub record_key: RecordKey,
    /// The `_id` of the document, if it is known.
    pub id: Option<DocBuf>,
    /// The values of the key; empty when they cannot be decoded.
    pub key: DocBuf,
}

/// The findings in one index.
pub struct ValidatedIndex {
    /// The index that was checked.
    pub index: Arc<Index>,
    /// The number of entries.
    pub entries: u64,
    /// The number of entries that there should be.
    pub expected: u64,
    /// The number of missing entries.
    pub missing: u64,
    /// The number of entries without a document.
    pub extra: u64,
    /// Other errors, as messages.
    pub errors: Vec<String>,
}

impl ValidatedIndex {
    /// Whether the index has no errors.
    pub fn is_valid(&self) -> bool {
        self.missing == 0 && self.extra == 0 && self.errors.is_empty()
    }
}

/// The result of a check.
#[derive(Default)]
pub struct ValidationResult {
    /// The number of records.
    pub records: i64,
    /// The stored number of documents.
    pub kept_records: i64,
    /// Whether record keys are numbers.
    pub numbered: bool,
    /// The keys of unreadable records.
    pub corrupt: Vec<RecordKey>,
    /// The number of documents that violate the rules of BSON.
    pub not_conformant: i64,
    /// The number of damaged buckets of a time series.
    pub unsound_buckets: i64,
    /// The findings of each index; the one on `_id` is first.
    pub indexes: Vec<ValidatedIndex>,
    /// Missing entries, up to a limit.
    pub missing: Vec<EntryFinding>,
    /// Entries without a document, up to a limit.
    pub extra: Vec<EntryFinding>,
}

/// Compares the documents of a collection with files of a higher layer, such as those of search
/// indexes.
pub trait FilesCheck {
    /// The versions of search indexes that are to be compared.
    fn versions(&self) -> &[Arc<SearchVersion>];

    /// Keeps the state of these versions, which have all writes of the collection. No write is
    /// under way.
    fn keep(&mut self, current: &[Arc<SearchVersion>]);

    /// A document of the collection at that moment: the ordered key of its `_id`, and the time of
    /// its last change, in milliseconds since 1970.
    fn document(&mut self, id_key: &[u8], modified_ms: i64, document: RawDoc<'_>);
}

/// There are no files to compare.
struct NoFiles;

impl FilesCheck for NoFiles {
    fn versions(&self) -> &[Arc<SearchVersion>] {
        &[]
    }

    fn keep(&mut self, _: &[Arc<SearchVersion>]) {}

    fn document(&mut self, _: &[u8], _: i64, _: RawDoc<'_>) {}
}

impl Core {
    /// Checks a collection, and corrects its stored count.
    ///
    /// # Errors
    /// 175 QueryPlanKilled when the collection is dropped meanwhile; errors of the engine and of
    /// the operation's deadline. Damaged data is not an error but a finding.
    pub fn validate(
        &self,
        op: &OpCtx,
        collection: &Collection,
        options: ValidateOptions,
    ) -> Result<ValidationResult> {
        self.validate_with(op, collection, options, &mut NoFiles)
    }

    /// The same, and compares the documents with files of a higher layer.
    ///
    /// # Errors
    /// Those of [`Core::validate`].
    pub fn validate_with(
        &self,
        op: &OpCtx,
        collection: &Collection,
        options: ValidateOptions,
        files: &mut dyn FilesCheck,
    ) -> Result<ValidationResult> {
        // Makes the stored count exact.
        self.count_documents(op, collection)?;
        let indexes = collection.ready_indexes();
        let mut found = ValidationResult::default();
        let (snapshot, kept_bytes, lagging) = {
            let at_rest = self.lock_log_fed(op, collection, files.versions())?;
            files.keep(&at_rest.current);
            found.numbered = collection.is_numbered();
            found.kept_records = collection.counts.documents.load(Ordering::Acquire);
            let kept_bytes = collection.counts.bytes.load(Ordering::Acquire);
            (self.latest()?, kept_bytes, at_rest.lagging)
        };
        found.indexes = indexes.into_iter().map(ValidatedIndex::new).collect();
        let mut run = ValidationRun {
            op,
            collection,
            snapshot: &snapshot,
            options,
            found,
            files,
            bytes: 0,
            steps: 0,
            expected: Expected::default(),
        };
        run.records()?;
        run.look_up_expected()?;
        run.count_entries()?;
        for index in 0..run.found.indexes.len() {
            let of = &run.found.indexes[index];
            if of.entries != of.expected - of.missing.min(of.expected) {
                run.extra_entries(index)?;
            }
        }
        collection.check_alive()?;
        let ValidationRun { mut found, bytes, .. } = run;
        // The range of a dropped index is cleared under open snapshots, and an index that lags
        // lacks entries, so their findings are meaningless.
        let meaningless = |index: &Index| index.is_dropped() || lagging.contains(&index.id());
        let gone: Vec<bool> = found.indexes.iter().map(|of| meaningless(&of.index)).collect();
        found.missing.retain(|finding| !gone[finding.index]);
        found.extra.retain(|finding| !gone[finding.index]);
        for of in found.indexes.iter_mut().filter(|of| meaningless(&of.index)) {
            *of = ValidatedIndex::new(of.index.clone());
        }
        let wrong_by = found.records - found.kept_records;
        if wrong_by != 0 {
            collection.counts.documents.fetch_add(wrong_by, Ordering::AcqRel);
            collection.counts.bytes.fetch_add(bytes - kept_bytes, Ordering::AcqRel);
        }
        Ok(found)
    }
}

impl ValidatedIndex {
    fn new(index: Arc<Index>) -> ValidatedIndex {
        ValidatedIndex { index, entries: 0, expected: 0, missing: 0, extra: 0, errors: Vec::new() }
    }
}

/// Visits a key, relative to its object, and its value.
type Visit<'v, R> = dyn FnMut(&mut R, &[u8], &[u8]) -> Result<()> + 'v;

/// A check in progress.
struct ValidationRun<'r> {
    op: &'r OpCtx,
    collection: &'r Collection,
    snapshot: &'r Snapshot,
    options: ValidateOptions,
    found: ValidationResult,
    files: &'r mut dyn FilesCheck,
    bytes: i64,
    steps: u64,
    expected: Expected,
}

impl ValidationRun<'_> {
    fn step(&mut self) -> Result<()> {
        self.steps += 1;
        if self.steps.is_multiple_of(CHECK_EVERY) {
            self.op.check()?;
        }
        Ok(())
    }

    /// Visits all keys of an object; positions are relative to it.
    fn walk(&mut self, keyspace: Keyspace, id: u64, visit: &mut Visit<'_, Self>) -> Result<()> {
        let snapshot = self.snapshot;
        let mut range = object_range(id);
        loop {
            let mut failed = Ok(());
            let (forward, all) = (Direction::Forward, ScanLimit::ALL.passing());
            let end = snapshot.txn.scan(keyspace, &range, forward, all, &mut |key, value| {
                failed = self.step().and_then(|()| visit(self, &key[8..], value));
                if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            let end = end.map_err(from_kv)?;
            failed?;
            match end {
                ScanEnd::Exhausted => return Ok(()),
                // An engine may end a page early.
                ScanEnd::More { last_key } => range = range.after(&last_key, forward),
            }
        }
    }

    fn records(&mut self) -> Result<()> {
        let mut keys = KeySet::default();
        let clustered = self.collection.id_index().is_none();
        let series = self.collection.time_series();
        let compares = !self.files.versions().is_empty();
        self.walk(Keyspace::Record, self.collection.id(), &mut |run, key, value| {
            run.found.records += 1;
            let readable = decode_stored(value).ok().filter(|stored| is_readable(stored.document));
            let id = readable.and_then(|stored| stored.document.get("_id"));
            let (Some(stored), Some(id)) = (readable, id) else {
                run.corrupt(key);
                return Ok(());
            };
            let misnamed = match clustered {
                true => run.collection.id_key(id) != key,
                false => run.collection.is_numbered() && key.len() != 8,
            };
            if misnamed {
                run.corrupt(key);
                return Ok(());
            }
            let document = stored.document;
            run.bytes += document.as_bytes().len() as i64;
            if run.options.bson_conformance && !is_conformant(document) {
                run.found.not_conformant += 1;
            }
            if let Some(Err(why)) = series.as_ref().map(|it| it.check_bucket(key, document)) {
                run.unsound_bucket(id, &why);
            }
            if compares {
                run.files.document(&run.collection.id_key(id), stored.modified_ms, document);
            }
            run.expected.begin_record(key, document);
            for index in 0..run.found.indexes.len() {
                run.keys_of(index, stored, &mut keys)?;
            }
            match run.expected.is_full() {
                true => run.look_up_expected(),
                false => Ok(()),
            }
        })
    }

    fn unsound_bucket(&mut self, id: RawValue<'_>, why: &str) {
        self.found.unsound_buckets += 1;
        if self.found.unsound_buckets <= MAX_LISTED as i64 {
            let namespace = self.collection.namespace();
            let bucket = ClientData(format!("{id:?}"));
            // The reply of `validate` names this number.
            tracing::warn!(id = 6_698_300, %namespace, %bucket, why, "a bucket of a time series is damaged");
        }
    }

    fn corrupt(&mut self, key: &[u8]) {
        self.found.corrupt.push(key.to_vec());
    }

    /// Notes the entries of a document in one index.
    fn keys_of(&mut self, at: usize, stored: Record<'_>, keys: &mut KeySet) -> Result<()> {
        let document = stored.document;
        let index = self.found.indexes[at].index.clone();
        let made = match index.covers(document) {
            Ok(false) => return Ok(()),
            Ok(true) => entry_keys(&index.spec, stored, keys),
            Err(error) => Err(error),
        };
        if let Err(error) = made {
            // A log-fed index has no entries of such a document.
            if index.feed().is_some() {
                return Ok(());
            }
            let of = &mut self.found.indexes[at];
            if of.errors.len() < MAX_LISTED {
                of.errors.push(format!("a document has no keys: {}", error.message()));
            }
            return Ok(());
        }
        // Read after the snapshot was taken: an index is marked as multikey before its keys become
        // visible.
        if keys.multikey & !index.multikey_mask() != 0 {
            let of = &mut self.found.indexes[at];
            let text = format!(
                "Index {} is not multikey, but a multikey document was found in the collection",
                index.spec.name()
            );
            if !of.errors.contains(&text) {
                of.errors.push(text);
            }
        }
        self.found.indexes[at].expected += keys.len() as u64;
        for (values, bits) in keys.iter() {
            self.expected.push((at, &index), values, bits);
        }
        Ok(())
    }

    /// Looks the expected entries up.
    fn look_up_expected(&mut self) -> Result<()> {
        self.op.check()?;
        let (expected, found) = (std::mem::take(&mut self.expected), &mut self.found);
        expected.each_missing(self.snapshot, |missing| {
            let of = &mut found.indexes[missing.index];
            of.missing += 1;
            if found.missing.len() < MAX_LISTED {
                let about = (missing.index, &*of.index);
                let mut finding = finding(about, missing.record_key, missing.values, missing.bits);
                finding.id = Some(missing.id.clone());
                found.missing.push(finding);
            }
        })
    }

    fn count_entries(&mut self) -> Result<()> {
        for at in 0..self.found.indexes.len() {
            let id = self.found.indexes[at].index.id();
            self.walk(Keyspace::Index, id, &mut |run, _, _| {
                run.found.indexes[at].entries += 1;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Checks for each entry of an index that its document has such a key.
    fn extra_entries(&mut self, at: usize) -> Result<()> {
        let index = self.found.indexes[at].index.clone();
        let (snapshot, collection) = (self.snapshot, self.collection);
        let mut keys = KeySet::default();
        self.walk(Keyspace::Index, index.id(), &mut |run, position, value| {
            let Some(entry) = entry(&index, position, value) else {
                run.extra(at, &index, &[], position, &[]);
                return Ok(());
            };
            let mut is_expected = false;
            // An unreadable record is reported as such, and has no keys.
            let _ = snapshot.stored_record(collection, entry.record_key, &mut |stored| {
                is_expected = match index.covers(stored.document) {
                    Ok(covered) => {
                        covered
                            && entry_keys(&index.spec, stored, &mut keys).is_ok()
                            && keys.iter().any(|(values, _)| values == entry.values)
                    }
                    // It is unknown whether the index covers the document; the search for missing
                    // keys reports that.
                    Err(_) => true,
                };
                Ok(())
            });
            if !is_expected {
                run.extra(at, &index, entry.record_key, entry.values, entry.type_bits);
            }
            Ok(())
        })
    }

    fn extra(&mut self, at: usize, index: &Index, record_key: &[u8], values: &[u8], bits: &[u8]) {
        self.found.indexes[at].extra += 1;
        if self.found.extra.len() < MAX_LISTED {
            self.found.extra.push(finding((at, index), record_key, values, bits));
        }
    }
}

/// What is wrong with an entry; the `_id` is unknown.
fn finding(
    (at, index): (usize, &Index),
    record_key: &[u8],
    values: &[u8],
    bits: &[u8],
) -> EntryFinding {
    let mut key = DocBuilder::new();
    let (mut rest, mut reader) = (values, TypeBitsReader::new(bits));
    for field in index.spec.fields() {
        let Some((value, len)) = decode_value(rest, field.order, &mut reader) else { break };
        key.append(&field.path, &value);
        rest = rest.get(len..).unwrap_or(&[]);
    }
    EntryFinding { index: at, record_key: record_key.to_vec(), id: None, key: key.finish() }
}
