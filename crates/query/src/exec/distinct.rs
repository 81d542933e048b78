//! The different values of a field from the keys of an index, without its documents.
//!
//! Entries with the same first value stand together: the scan reads the value once and goes past the others, by seeking when
//! they are many. A key of null may stand for a field that is missing, so there the documents are asked. An index with
//! arrays cannot say which values belong to the field itself; sparse and partial ones do not have every document.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use mayfly_base::{OpCtx, Result};
use mayfly_storage::{
    Collection, Direction, Entry, Index, KeyRange, ScanLimit, Scanned, Store, whole_range,
};
use mayfly_value::keys::{self, TypeBitsReader};
use mayfly_value::paths::array_index;
use mayfly_value::{RawDoc, RawValue, ValueBuf};

/// Entries of one value that are passed over one by one before a seek is cheaper.
const FEW_ENTRIES: usize = 32;
/// Entries looked at between two checks of the deadline.
const CHUNK_ENTRIES: u64 = 256;

/// What an index says about the field.
pub enum Found<'a> {
    /// This is one of its values.
    Value(RawValue<'a>),
    /// Whatever this document has there.
    Document(RawDoc<'a>),
}

/// The index whose keys have every value of the field, if there is one.
pub fn index_for_distinct(collection: &Collection, path: &str) -> Option<Arc<Index>> {
    // Entries do not say which documents are due and hidden.
    if collection.hides_expired() || path.split('.').any(|part| array_index(part).is_some()) {
        return None;
    }
    let serves = |index: &Arc<Index>| {
        let spec = &index.spec;
        // The keys of a collation cannot be read.
        let complete = spec.kind().is_ordered()
            && !spec.hidden()
            && !spec.sparse()
            && !index.is_partial()
            && spec.collation().is_none();
        let first = spec.fields().first();
        complete && !index.is_multikey() && first.is_some_and(|field| field.path == path)
    };
    collection.plannable_indexes().into_iter().find(serves)
}

/// Shows what the index knows, in its order; false, before anything is shown, when an array has come into it meanwhile.
/// The visitor says whether it has seen enough of the present value.
///
/// # Errors
/// Those of the visitor, the store, and the operation's deadline.
pub fn distinct_by_index(
    store: &Store,
    op: &OpCtx,
    collection: &Arc<Collection>,
    index: &Arc<Index>,
    visit: &mut dyn FnMut(Found<'_>) -> Result<bool>,
) -> Result<bool> {
    let snapshot = store.snapshot()?;
    // Asked behind the snapshot: an index says that it has become multikey before anybody sees the keys.
    if index.is_multikey() {
        return Ok(false);
    }
    let Some(field) = index.spec.fields().first() else { return Ok(false) };
    let mut range = whole_range();
    let (mut present, mut settled) = (Vec::new(), false);
    loop {
        op.check()?;
        let (mut looked, mut passed, mut fetched) = (0, 0, 0);
        let scanned = snapshot.scan_index(
            index,
            &range,
            Direction::Forward,
            ScanLimit::NONE,
            &mut |entry| {
                looked += 1;
                if looked % CHUNK_ENTRIES == 0 {
                    op.check()?;
                }
                let same = !present.is_empty() && entry.values.starts_with(&present);
                if same && settled {
                    passed += 1;
                    return Ok(match passed > FEW_ENTRIES {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    });
                }
                if !same {
                    passed = 0;
                    let value;
                    (present, value) = first_value(&entry, field.descending);
                    let value = value.as_ref().map(ValueBuf::as_raw);
                    if let Some(value) = value.filter(|value| says_it_is_there(*value)) {
                        settled = visit(Found::Value(value))?;
                        return Ok(ControlFlow::Continue(()));
                    }
                }
                settled = false;
                snapshot.record(collection, entry.record_key, &mut |document| {
                    fetched += 1;
                    settled = visit(Found::Document(document))?;
                    Ok(())
                })?;
                Ok(ControlFlow::Continue(()))
            },
        )?;
        op.keys_examined.fetch_add(looked, Relaxed);
        op.docs_examined.fetch_add(fetched, Relaxed);
        collection.check_alive()?;
        index.check_alive()?;
        match scanned {
            Scanned::Exhausted => return Ok(true),
            Scanned::Paused(_) if settled => {
                let behind = KeyRange::prefix(&present).end;
                if behind.is_empty() {
                    return Ok(true);
                }
                range.start = behind;
            }
            Scanned::Paused(last) => range = range.after(&last, Direction::Forward),
        }
    }
}

/// The bytes of an entry's first value, and the value when they can be read.
fn first_value(entry: &Entry<'_>, descending: bool) -> (Vec<u8>, Option<ValueBuf>) {
    let end = keys::skip_value(entry.values, descending).unwrap_or(entry.values.len());
    let mut bits = TypeBitsReader::new(entry.type_bits);
    let value = keys::decode_value(entry.values, descending, &mut bits);
    (entry.values[..end].to_vec(), value.map(|(value, _)| value))
}

/// Whether a key with this value belongs to documents that have the field.
fn says_it_is_there(value: RawValue<'_>) -> bool {
    !matches!(value, RawValue::Null | RawValue::Undefined)
}
