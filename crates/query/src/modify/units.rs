//! Several writes in one write unit: one commit, and one log entry, for hundreds of documents.
//!
//! A unit is atomic, but a statement keeps the documents that it wrote before an error. A unit that
//! fails is therefore rolled back, and its writes run one by one, which also determines the failing
//! one. A unit conflicts if any of its documents is written by others, so it is retried only a few
//! times.

use std::cell::{Cell, RefCell};

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::{
    Collection, OtherCollection, RecordKey, StoreSession, WriteOptions, WriteUnit,
};

use super::scan::Found;

/// Limit on the writes of one unit.
pub const UNIT_WRITES: usize = 256;
/// Limit on the document bytes of one unit, except for a single larger document. It also keeps the
/// unit's log entry below 16 MiB, the limit for readers of the log.
const UNIT_BYTES: usize = 1 << 20;
/// Time after which a unit takes no further write, in microseconds, because the unit holds the lock
/// on the collection's state.
const UNIT_MICROS: i64 = 20_000;
/// Number of retries of a conflicting unit.
const UNIT_RETRIES: u32 = 2;

/// The result of one write in a unit.
pub(super) enum UnitWrite<T> {
    /// The write is done. `bytes` is the size of its documents, before and after.
    Done { outcome: T, bytes: usize },
    /// The documents exceed the remaining size of the unit. Nothing is written.
    NoRoom,
    /// The unit has to be rolled back.
    GiveUp,
}

impl<T> UnitWrite<T> {
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> UnitWrite<U> {
        match self {
            UnitWrite::Done { outcome, bytes } => {
                UnitWrite::Done { outcome: change(outcome), bytes }
            }
            UnitWrite::NoRoom => UnitWrite::NoRoom,
            UnitWrite::GiveUp => UnitWrite::GiveUp,
        }
    }
}

/// The remaining size of a unit.
#[derive(Clone, Copy)]
pub(super) struct Room(usize);

impl Room {
    /// The size of a unit without writes, which takes a document of any size.
    pub(super) const ALL: Room = Room(usize::MAX);

    pub(super) fn takes(self, bytes: usize) -> bool {
        bytes <= self.0
    }
}

/// What a unit writes to.
#[derive(Clone, Copy)]
pub(super) struct UnitTarget<'t> {
    pub(super) collection: &'t Collection,
    /// The other collections that it writes to in the same transaction.
    pub(super) others: &'t [OtherCollection],
}

impl<'t> UnitTarget<'t> {
    /// One collection.
    pub(super) fn only(collection: &'t Collection) -> UnitTarget<'t> {
        UnitTarget { collection, others: &[] }
    }

    /// Runs a unit.
    ///
    /// # Errors
    /// As [`StoreSession::write`].
    pub(super) fn write<T>(
        self,
        session: StoreSession<'_>,
        body: impl FnMut(&mut WriteUnit<'_>) -> Result<T>,
    ) -> Result<T> {
        session.store.write_with(self.options(session), body)
    }

    fn options<'o>(self, session: StoreSession<'o>) -> WriteOptions<'o>
    where
        't: 'o,
    {
        WriteOptions::new(session.op, session.view, self.collection).with_others(self.others)
    }
}

/// Changes a record in a unit with this remaining size.
pub(super) type ChangeRecord<'c, T> =
    dyn Fn(&mut WriteUnit<'_>, &RecordKey, Room) -> Result<UnitWrite<T>> + 'c;

/// Runs the write at an index in a unit with this remaining size.
pub(super) type RunWrite<'w, T> =
    dyn Fn(&mut WriteUnit<'_>, usize, Room) -> Result<UnitWrite<T>> + 'w;

/// Changes the records in order. `done` gets the outcome of each after its unit is committed.
///
/// # Errors
/// Errors of `change`, of commits and of the operation's deadline. Changes before the failing
/// record persist.
pub(super) fn change_all<T>(
    session: StoreSession<'_>,
    target: UnitTarget<'_>,
    found: Found<'_>,
    change: &ChangeRecord<'_, T>,
    done: &mut dyn FnMut(T),
) -> Result<()> {
    let keys = match found {
        Found::Keys(keys) => keys,
        Found::Id(id) => {
            let written = target.write(session, |unit| match unit.locate_with_record(id)? {
                Some(key) => change(unit, &key, Room::ALL),
                None => Ok(UnitWrite::GiveUp),
            })?;
            if let UnitWrite::Done { outcome, .. } = written {
                done(outcome);
            }
            return Ok(());
        }
    };
    let alone = |key: &RecordKey| -> Result<Option<T>> {
        match target.write(session, |unit| change(unit, key, Room::ALL))? {
            UnitWrite::Done { outcome, .. } => Ok(Some(outcome)),
            UnitWrite::NoRoom | UnitWrite::GiveUp => Ok(None),
        }
    };
    // The caller has just checked the operation, and most updates concern one record.
    if let [key] = keys {
        alone(key)?.into_iter().for_each(done);
        return Ok(());
    }
    let mut rest = keys;
    while !rest.is_empty() {
        session.op.check()?;
        let front = &rest[..rest.len().min(UNIT_WRITES)];
        let write = |unit: &mut WriteUnit<'_>, at: usize, room| {
            unit.expect_reads(front, at)?;
            change(unit, &front[at], room)
        };
        let count = match in_one_unit(session, target, front.len(), &write)? {
            Some(outcomes) => {
                let count = outcomes.len();
                outcomes.into_iter().for_each(&mut *done);
                count
            }
            None => {
                for key in front {
                    session.op.check()?;
                    alone(key)?.into_iter().for_each(&mut *done);
                }
                front.len()
            }
        };
        rest = &rest[count..];
    }
    Ok(())
}

/// Runs as many of `count` writes as fit in one unit. Returns their outcomes, or `None`, with
/// nothing written, if the writes have to be run one by one.
///
/// # Errors
/// Errors of the commit and of the operation's deadline. In an open transaction also those of
/// `write`: the unit's writes stay in the transaction, which then cannot be committed.
pub(super) fn in_one_unit<T>(
    session: StoreSession<'_>,
    target: UnitTarget<'_>,
    count: usize,
    write: &RunWrite<'_, T>,
) -> Result<Option<Vec<T>>> {
    // After a failed commit the writes may run again only if it is known that nothing was
    // committed.
    let has_failed = Cell::new(false);
    let outcomes = RefCell::new(Vec::with_capacity(count));
    let options = target.options(session);
    let written = session.store.write_with(options.with_retries(UNIT_RETRIES), |unit| {
        let (mut outcomes, mut room) = (outcomes.borrow_mut(), Room::ALL);
        outcomes.clear();
        let (mut bytes, began) = (0, session.op.monotonic_micros());
        for at in 0..count {
            let written = session.op.check().and_then(|()| write(unit, at, room));
            has_failed.set(!matches!(written, Ok(UnitWrite::Done { .. } | UnitWrite::NoRoom)));
            match written? {
                UnitWrite::Done { outcome, bytes: more } => {
                    outcomes.push(outcome);
                    bytes += more;
                }
                UnitWrite::NoRoom => break,
                UnitWrite::GiveUp => {
                    return Err(Error::internal("a unit of several writes was given up"));
                }
            }
            if bytes >= UNIT_BYTES || session.op.monotonic_micros() - began >= UNIT_MICROS {
                break;
            }
            room = Room(UNIT_BYTES - bytes);
        }
        Ok(())
    });
    match written {
        Ok(()) => Ok(Some(outcomes.into_inner())),
        // The unit's writes stay in the transaction, which cannot be committed.
        Err(error) if session.in_transaction() => Err(error),
        Err(error) if has_failed.get() || error.code() == ErrorCode::WriteConflict => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mayfly_base::{Error, ManualClock, Namespace};
    use mayfly_value::{DocBuilder, RawValue};
    use mayfly_work::OpCtx;

    use super::*;
    use crate::fixture::Fixture;

    fn filled(documents: i32, text: &str) -> (Fixture, Arc<Collection>, Vec<RecordKey>) {
        let fixture = Fixture::at(Arc::new(ManualClock::at_ms(0)));
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

    fn delete(unit: &mut WriteUnit<'_>, key: &RecordKey, room: Room) -> Result<UnitWrite<bool>> {
        let Some(document) = unit.read(key)? else {
            return Ok(UnitWrite::Done { outcome: false, bytes: 0 });
        };
        let bytes = document.as_doc().as_bytes().len();
        if !room.takes(bytes) {
            return Ok(UnitWrite::NoRoom);
        }
        unit.delete(key, &document)?;
        Ok(UnitWrite::Done { outcome: true, bytes })
    }

    fn logged(fixture: &Fixture) -> i64 {
        fixture.store().oplog().sizes().unwrap().entries
    }

    #[test]
    fn many_records_share_units_of_limited_size() {
        for (documents, text, units) in [(600, "x".to_owned(), 3), (12, "x".repeat(300_000), 4)] {
            let (fixture, collection, keys) = filled(documents, &text);
            let (before, mut deleted) = (logged(&fixture), 0);
            let done = &mut |gone| deleted += i32::from(gone);
            change_all(
                fixture.session(),
                UnitTarget::only(&collection),
                Found::Keys(&keys),
                &delete,
                done,
            )
            .unwrap();
            assert_eq!((deleted, logged(&fixture) - before), (documents, units));
        }
    }

    #[test]
    fn what_stands_before_an_error_stays_changed() {
        let (fixture, collection, keys) = filled(20, "");
        let change = |unit: &mut WriteUnit<'_>, key: &RecordKey, room| match *key == keys[7] {
            true => Err(Error::bad_value("not this one")),
            false => delete(unit, key, room),
        };
        let mut deleted = 0;
        let done = &mut |gone| deleted += i32::from(gone);
        let ended = change_all(
            fixture.session(),
            UnitTarget::only(&collection),
            Found::Keys(&keys),
            &change,
            done,
        );
        assert!(ended.is_err());
        let left = fixture.store().count_documents(fixture.op(), &collection).unwrap();
        assert_eq!((deleted, left), (7, 13));
    }

    #[test]
    fn it_ends_with_its_operation() {
        let (fixture, collection, keys) = filled(20, "");
        let change = |unit: &mut WriteUnit<'_>, key: &RecordKey, room| {
            fixture.op().kill(ErrorCode::Interrupted);
            delete(unit, key, room)
        };
        let ended = change_all(
            fixture.session(),
            UnitTarget::only(&collection),
            Found::Keys(&keys),
            &change,
            &mut drop,
        );
        assert_eq!(ended.unwrap_err().code(), ErrorCode::Interrupted);
        assert_eq!(fixture.store().count_documents(fixture.op(), &collection).unwrap(), 20);
    }

    #[test]
    fn a_unit_ends_after_its_time() {
        let (fixture, collection, keys) = filled(20, "");
        let clock = Arc::new(ManualClock::at_ms(0));
        let op = OpCtx::detached(clock.clone());
        let session = StoreSession { op: &op, ..fixture.session() };
        let change = |unit: &mut WriteUnit<'_>, key: &RecordKey, room| {
            clock.advance_ms(6);
            delete(unit, key, room)
        };
        let before = logged(&fixture);
        change_all(session, UnitTarget::only(&collection), Found::Keys(&keys), &change, &mut drop)
            .unwrap();
        assert_eq!(logged(&fixture) - before, 5, "units of four deletions");
    }
}
