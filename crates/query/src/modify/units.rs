//! Changes of many records in write units of several: a commit, and an entry of the log, for hundreds of documents.
//!
//! A unit is all or nothing, while a statement keeps what it did before an error. So a unit of several that fails is run again
//! record by record, which also finds the record that fails. Documents that others write meanwhile are contended: such units are
//! not tried often, because each of them would have to lose no race.

use std::cell::{Cell, RefCell};

use mayfly_base::{ErrorCode, Result};
use mayfly_storage::{Collection, RecordKey, StoreSession, WriteOptions, WriteUnit};

/// Records of one unit at most.
const UNIT_RECORDS: usize = 256;
/// Bytes of documents after which a unit takes no further record.
const UNIT_BYTES: usize = 1 << 20;
/// How often a unit of several is tried again when it conflicts.
const UNIT_RETRIES: u32 = 2;

/// What became of a record, and the bytes of its documents.
pub(super) struct Changed<T> {
    pub(super) outcome: T,
    pub(super) bytes: usize,
}

/// Changes the records in their order; `done` is given what became of each after its unit is committed.
///
/// # Errors
/// Those of `change`, of commits and of the operation's deadline. Records before the one that failed stay changed.
pub(super) fn change_all<T>(
    session: StoreSession<'_>,
    collection: &Collection,
    keys: &[RecordKey],
    change: &dyn Fn(&mut WriteUnit<'_>, &RecordKey) -> Result<Changed<T>>,
    done: &mut dyn FnMut(T),
) -> Result<()> {
    let mut rest = keys;
    // The caller has just checked the operation: most updates are of one record.
    if let [key] = keys {
        done(session.write(collection, |unit| change(unit, key))?.outcome);
        return Ok(());
    }
    while !rest.is_empty() {
        session.op.check()?;
        let front = &rest[..rest.len().min(UNIT_RECORDS)];
        let count = match change_together(session, collection, front, change)? {
            Some(outcomes) => {
                let count = outcomes.len();
                outcomes.into_iter().for_each(&mut *done);
                count
            }
            None => {
                for key in front {
                    session.op.check()?;
                    done(session.write(collection, |unit| change(unit, key))?.outcome);
                }
                front.len()
            }
        };
        rest = &rest[count..];
    }
    Ok(())
}

/// Changes records at the front of the list in one unit, as many as go into it; nothing, with nothing written, when they have to
/// be changed one by one.
fn change_together<T>(
    session: StoreSession<'_>,
    collection: &Collection,
    keys: &[RecordKey],
    change: &dyn Fn(&mut WriteUnit<'_>, &RecordKey) -> Result<Changed<T>>,
) -> Result<Option<Vec<T>>> {
    // A failed commit must not lead to a second run, unless it is known that nothing was committed.
    let has_failed = Cell::new(false);
    let outcomes = RefCell::new(Vec::with_capacity(keys.len()));
    let options = WriteOptions::new(session.op, session.view, collection);
    let written = session.store.write_with(options.with_retries(UNIT_RETRIES), |unit| {
        let (mut outcomes, mut bytes) = (outcomes.borrow_mut(), 0);
        outcomes.clear();
        for key in keys {
            let changed = session.op.check().and_then(|()| change(unit, key));
            has_failed.set(changed.is_err());
            let changed = changed?;
            outcomes.push(changed.outcome);
            bytes += changed.bytes;
            if bytes >= UNIT_BYTES {
                break;
            }
        }
        Ok(())
    });
    match written {
        Ok(()) => Ok(Some(outcomes.into_inner())),
        // What the unit wrote stays in the transaction, which cannot be committed any more.
        Err(error) if session.in_transaction() => Err(error),
        Err(error) if has_failed.get() || error.code() == ErrorCode::WriteConflict => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mayfly_base::{Error, Namespace};
    use mayfly_value::{DocBuilder, RawValue};

    use super::*;
    use crate::fixture::Fixture;

    fn filled(documents: i32, text: &str) -> (Fixture, Arc<Collection>, Vec<RecordKey>) {
        let fixture = Fixture::new();
        let document =
            |id: i32| DocBuilder::new().append("_id", id).append("text", text).closed_copy();
        fixture.insert("c", &(0..documents).map(document).collect::<Vec<_>>());
        let collection = fixture.collection(&Namespace::new("test", "c").unwrap());
        let key = |id| {
            let session = fixture.session();
            let key = session.store.locate(session.view, &collection, RawValue::Int32(id));
            key.unwrap().unwrap()
        };
        let keys = (0..documents).map(key).collect();
        (fixture, collection, keys)
    }

    fn delete(unit: &mut WriteUnit<'_>, key: &RecordKey) -> Result<Changed<bool>> {
        let Some(document) = unit.read(key)? else {
            return Ok(Changed { outcome: false, bytes: 0 });
        };
        unit.delete(key, &document)?;
        Ok(Changed { outcome: true, bytes: document.as_doc().as_bytes().len() })
    }

    fn logged(fixture: &Fixture) -> i64 {
        fixture.store().oplog().sizes().unwrap().entries
    }

    #[test]
    fn many_records_share_units_of_limited_size() {
        for (documents, text, units) in [(600, "x".to_owned(), 3), (12, "x".repeat(300_000), 3)] {
            let (fixture, collection, keys) = filled(documents, &text);
            let (before, mut deleted) = (logged(&fixture), 0);
            let done = &mut |gone| deleted += i32::from(gone);
            change_all(fixture.session(), &collection, &keys, &delete, done).unwrap();
            assert_eq!((deleted, logged(&fixture) - before), (documents, units));
        }
    }

    #[test]
    fn what_stands_before_an_error_stays_changed() {
        let (fixture, collection, keys) = filled(20, "");
        let change = |unit: &mut WriteUnit<'_>, key: &RecordKey| match *key == keys[7] {
            true => Err(Error::bad_value("not this one")),
            false => delete(unit, key),
        };
        let mut deleted = 0;
        let done = &mut |gone| deleted += i32::from(gone);
        let ended = change_all(fixture.session(), &collection, &keys, &change, done);
        assert!(ended.is_err());
        let left = fixture.store().count_documents(fixture.op(), &collection).unwrap();
        assert_eq!((deleted, left), (7, 13));
    }

    #[test]
    fn it_ends_with_its_operation() {
        let (fixture, collection, keys) = filled(20, "");
        let change = |unit: &mut WriteUnit<'_>, key: &RecordKey| {
            fixture.op().kill(ErrorCode::Interrupted);
            delete(unit, key)
        };
        let ended = change_all(fixture.session(), &collection, &keys, &change, &mut drop);
        assert_eq!(ended.unwrap_err().code(), ErrorCode::Interrupted);
        assert_eq!(fixture.store().count_documents(fixture.op(), &collection).unwrap(), 20);
    }
}
