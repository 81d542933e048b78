//! Overlapping transactions: what they see of each other and when they conflict.

use super::{Make, RECORD, all, begin, conflicts, fill, get, now, put, whole};
use crate::{
    Direction, Guard, InsertCheck, Keyspace, KvError, KvResult, NamedKey, Txn, TxnOptions,
};

pub(super) fn snapshot_is_stable(make: &Make<'_>) {
    let engine = &*make();
    fill(engine, &[(b"a", b"1"), (b"b", b"1")]);
    // A reader sees the state at its beginning, a writer the state at its first read.
    let reader = engine.begin(TxnOptions::READ_ONLY).unwrap();
    let old = begin(engine);
    assert_eq!(get(&*old, b"a"), Some(b"1".to_vec()));
    let mut writer = begin(engine);
    put(&mut *writer, b"a", b"2").unwrap();
    writer.delete(RECORD, b"b", Guard::Checked).unwrap();
    put(&mut *writer, b"c", b"2").unwrap();
    writer.commit().unwrap();
    for view in [&*reader, &*old] {
        assert_eq!(get(view, b"a"), Some(b"1".to_vec()));
        assert_eq!(get(view, b"b"), Some(b"1".to_vec()));
        assert_eq!(get(view, b"c"), None);
        assert_eq!(all(view, &whole(), Direction::Forward).len(), 2);
    }
    assert_eq!(now(engine, b"a"), Some(b"2".to_vec()));
    assert_eq!(now(engine, b"b"), None);
}

/// The snapshot of an export keeps what is swept, where it is the only way to copy the store.
pub(super) fn snapshot_for_export(make: &Make<'_>) {
    let engine = &*make();
    if engine.scratch(0).unwrap().is_some() {
        return;
    }
    fill(engine, &[(b"a", b"1"), (b"b", b"1")]);
    let held = engine.hold_for_export().unwrap();
    fill(engine, &[(b"a", b"2")]);
    while engine.sweep_range(RECORD, &whole(), 10).unwrap() == crate::SweepEnd::More {}
    for _ in 0..40 {
        // Other snapshots do not end it.
        drop(engine.hold().unwrap());
    }
    let reader = held.begin().unwrap();
    assert_eq!(get(&*reader, b"a"), Some(b"1".to_vec()));
    assert_eq!(all(&*reader, &whole(), Direction::Forward).len(), 2);
}

pub(super) fn held_snapshot(make: &Make<'_>) {
    let engine = &*make();
    fill(engine, &[(b"a", b"1"), (b"b", b"1")]);
    let first = engine.hold().unwrap();
    let mut writer = begin(engine);
    put(&mut *writer, b"a", b"2").unwrap();
    writer.delete(RECORD, b"b", Guard::Checked).unwrap();
    writer.commit().unwrap();
    let second = engine.hold().unwrap();
    fill(engine, &[(b"a", b"3")]);
    // Each returns the state at which it was taken, to any number of readers.
    for _ in 0..2 {
        let (old, newer) = (first.begin().unwrap(), second.begin().unwrap());
        assert_eq!(get(&*old, b"a"), Some(b"1".to_vec()));
        assert_eq!(all(&*old, &whole(), Direction::Forward).len(), 2);
        assert_eq!(get(&*newer, b"a"), Some(b"2".to_vec()));
        assert_eq!(get(&*newer, b"b"), None);
        assert_eq!(all(&*newer, &whole(), Direction::Backward).len(), 1);
    }
    // A transaction outlives the held snapshot.
    let reader = first.begin().unwrap();
    drop(first);
    assert_eq!(get(&*reader, b"b"), Some(b"1".to_vec()));
    // It only reads, and conflicts with no writer.
    let mut reader = second.begin().unwrap();
    let refused = put(&mut *reader, b"a", b"4");
    assert!(matches!(refused, Err(crate::KvError::Invalid(_))), "{refused:?}");
    fill(engine, &[(b"a", b"5"), (b"b", b"5")]);
    assert_eq!(now(engine, b"a"), Some(b"5".to_vec()));
}

pub(super) fn locked_reads(make: &Make<'_>) {
    let engine = &*make();
    fill(engine, &[(b"a", b"1")]);
    let locked = |txn: &mut dyn Txn| {
        let mut found = None;
        txn.get_locked(RECORD, b"a", &mut |value| found = Some(value.to_vec())).map(|_| found)
    };
    // It reads the newest commit, or it conflicts.
    let (mut first, mut second) = (begin(engine), begin(engine));
    put(&mut *second, b"a", b"2").unwrap();
    second.commit().unwrap();
    match locked(&mut *first) {
        Ok(found) => assert_eq!(found, Some(b"2".to_vec())),
        Err(error) => assert_eq!(error, crate::KvError::Conflict),
    }
    drop(first);
    // Own writes are visible, and no other transaction gets the key meanwhile.
    let mut owner = begin(engine);
    assert_eq!(locked(&mut *owner).unwrap(), Some(b"2".to_vec()));
    let mut other = begin(engine);
    let early = locked(&mut *other).is_err();
    put(&mut *owner, b"a", b"3").unwrap();
    assert_eq!(locked(&mut *owner).unwrap(), Some(b"3".to_vec()));
    owner.commit().unwrap();
    assert!(early || put(&mut *other, b"a", b"4").and_then(|()| other.commit()).is_err());
    assert_eq!(now(engine, b"a"), Some(b"3".to_vec()));
}

pub(super) fn locked_reads_through(make: &Make<'_>) {
    let engine = &*make();
    fill(engine, &[(b"k1", b"1"), (b"other", b"1")]);
    let mut txn = begin(engine);
    txn.put(Keyspace::Index, b"a", b"1", Guard::Checked).unwrap();
    txn.commit().unwrap();
    let named = NamedKey { keyspace: RECORD, prefix: b"k", part: 0..1 };
    let locked = |txn: &mut dyn Txn| {
        let mut found = None;
        let see = &mut |_: &[u8], value: Option<&[u8]>| found = value.map(<[u8]>::to_vec);
        txn.get_through_locked(Keyspace::Index, b"a", &named, see).map(|_| found)
    };
    // It conflicts with a commit since the snapshot, and with a later writer.
    let old = begin(engine);
    assert!(get(&*old, b"other").is_some());
    fill(engine, &[(b"k1", b"2")]);
    assert!(conflicts(old, |txn| locked(txn).and_then(|_| put(txn, b"k1", b"lost"))));
    let (mut owner, other) = (begin(engine), begin(engine));
    assert_eq!(locked(&mut *owner).unwrap(), Some(b"2".to_vec()));
    let other_failed = conflicts(other, |txn| put(txn, b"k1", b"other"));
    let owner_failed = put(&mut *owner, b"k1", b"owner").and_then(|()| owner.commit()).is_err();
    assert!(owner_failed != other_failed, "exactly one of two writers fails");
}

pub(super) fn write_write(make: &Make<'_>) {
    for stored in [true, false] {
        let engine = &*make();
        if stored {
            fill(engine, &[(b"k", b"0")]);
        }
        let (mut first, second) = (begin(engine), begin(engine));
        put(&mut *first, b"k", b"first").unwrap();
        // An engine that reports conflicts at the commit lets the second one win; then the first
        // one must fail.
        let second_failed = conflicts(second, |txn| put(txn, b"k", b"second"));
        let first_failed = first.commit().is_err();
        assert!(first_failed != second_failed, "exactly one of two writers fails");
        let winner: &[u8] = if first_failed { b"second" } else { b"first" };
        assert_eq!(now(engine, b"k"), Some(winner.to_vec()));
    }
}

pub(super) fn later_commit(make: &Make<'_>) {
    let engine = &*make();
    fill(engine, &[(b"k", b"0")]);
    let old = begin(engine);
    fill(engine, &[(b"k", b"1")]);
    assert!(conflicts(old, |txn| put(txn, b"k", b"2")), "the key changed after the snapshot");
    assert!(!conflicts(begin(engine), |txn| put(txn, b"k", b"3")), "a new transaction may write");
    assert_eq!(now(engine, b"k"), Some(b"3".to_vec()));
}

pub(super) fn insert_insert(make: &Make<'_>) {
    let engine = &*make();
    let old = begin(engine);
    fill(engine, &[(b"k", b"1")]);
    fill(engine, &[(b"other", b"1")]);
    assert!(conflicts(old, |txn| put(txn, b"k", b"2")), "both inserted the key");
    assert_eq!(now(engine, b"k"), Some(b"1".to_vec()));
}

pub(super) fn delete_conflicts(make: &Make<'_>) {
    let engine = &*make();
    fill(engine, &[(b"k", b"0")]);
    let (old_put, old_delete) = (begin(engine), begin(engine));
    let mut writer = begin(engine);
    writer.delete(RECORD, b"k", Guard::Checked).unwrap();
    writer.commit().unwrap();
    assert!(conflicts(old_put, |txn| put(txn, b"k", b"2")), "put after a delete by another");
    assert!(conflicts(old_delete, |txn| txn.delete(RECORD, b"k", Guard::Checked)));
    // Deleting and inserting a key again counts as a change.
    fill(engine, &[(b"k", b"0")]);
    let old = begin(engine);
    let mut writer = begin(engine);
    writer.delete(RECORD, b"k", Guard::Checked).unwrap();
    put(&mut *writer, b"k", b"0").unwrap();
    writer.commit().unwrap();
    assert!(conflicts(old, |txn| txn.delete(RECORD, b"k", Guard::Checked)));
    assert_eq!(now(engine, b"k"), Some(b"0".to_vec()));
}

pub(super) fn lock_conflicts(make: &Make<'_>) {
    let engine = &*make();
    fill(engine, &[(b"k", b"0"), (b"l", b"0")]);
    let old = begin(engine);
    fill(engine, &[(b"k", b"1")]);
    let locks_stale = conflicts(old, |txn| {
        txn.lock(RECORD, b"k")?;
        put(txn, b"other", b"1")
    });
    assert!(locks_stale, "a lock of a key that changed after the snapshot");
    assert_eq!(now(engine, b"other"), None);

    let (mut locker, writer) = (begin(engine), begin(engine));
    locker.lock(RECORD, b"l").unwrap();
    put(&mut *locker, b"by locker", b"1").unwrap();
    let writer_failed = conflicts(writer, |txn| put(txn, b"l", b"1"));
    let locker_failed = locker.commit().is_err();
    assert!(writer_failed || locker_failed, "a lock and a put of one key conflict");

    let mut own = begin(engine);
    own.lock(RECORD, b"k").unwrap();
    put(&mut *own, b"k", b"2").unwrap();
    own.lock(RECORD, b"k").unwrap();
    own.commit().unwrap();
    assert_eq!(now(engine, b"k"), Some(b"2".to_vec()), "one's own lock is no obstacle");
}

/// An insert of a present key is refused, at once or by the commit, and writes nothing.
pub(super) fn inserts(make: &Make<'_>) {
    let engine = &*make();
    fill(engine, &[(b"a", b"1")]);
    for check in [InsertCheck::AtOnce, InsertCheck::AtCommit] {
        let insert = |txn: &mut dyn Txn, key: &[u8]| {
            let mut present = None;
            let see = &mut |value: &[u8]| present = Some(value.to_vec());
            let inserted = txn.insert(RECORD, key, b"2", check, see);
            inserted.map(|inserted| (inserted, present))
        };
        let mut txn = begin(engine);
        put(&mut *txn, b"beside", b"2").unwrap();
        match insert(&mut *txn, b"a").unwrap() {
            (true, _) => {
                assert!(engine.caps().late_inserts && check == InsertCheck::AtCommit);
                assert_eq!(txn.commit(), Err(KvError::Conflict));
                assert_eq!(now(engine, b"beside"), None, "a refused commit writes nothing");
            }
            (false, present) => {
                assert_eq!(present, Some(b"1".to_vec()), "the present value");
                txn.commit().unwrap();
            }
        }
        assert_eq!(now(engine, b"a"), Some(b"1".to_vec()));
        let mut txn = begin(engine);
        assert_eq!(insert(&mut *txn, b"new").unwrap(), (true, None));
        assert_eq!(get(&*txn, b"new"), Some(b"2".to_vec()), "own inserts are visible");
        txn.commit().unwrap();
        assert_eq!(now(engine, b"new"), Some(b"2".to_vec()));
        // A key that the transaction has deleted is free.
        let mut txn = begin(engine);
        txn.delete(RECORD, b"new", Guard::Checked).unwrap();
        assert_eq!(insert(&mut *txn, b"new").unwrap(), (true, None));
        txn.delete(RECORD, b"new", Guard::Checked).unwrap();
        txn.commit().unwrap();
        // Of two transactions that insert a key, one fails.
        let (mut first, second) = (begin(engine), begin(engine));
        let early = insert(&mut *first, b"new").is_err();
        let second = conflicts(second, |txn| insert(txn, b"new").map(|_| ()));
        assert!(early || first.commit().is_err() || second);
        let mut txn = begin(engine);
        txn.delete(RECORD, b"new", Guard::Checked).unwrap();
        txn.delete(RECORD, b"beside", Guard::Checked).unwrap();
        txn.commit().unwrap();
    }
}

pub(super) fn drop_rolls_back(make: &Make<'_>) {
    let engine = &*make();
    fill(engine, &[(b"k", b"0")]);
    let waiting = begin(engine);
    let mut dropped = begin(engine);
    put(&mut *dropped, b"k", b"1").unwrap();
    dropped.lock(RECORD, b"l").unwrap();
    drop(dropped);
    assert_eq!(now(engine, b"k"), Some(b"0".to_vec()));
    let failed = conflicts(waiting, |txn| {
        put(txn, b"l", b"2")?;
        put(txn, b"k", b"2")
    });
    assert!(!failed, "a dropped transaction conflicts with no other");
    assert_eq!(now(engine, b"k"), Some(b"2".to_vec()));
}

pub(super) fn derived_keys(make: &Make<'_>) {
    let engine = &*make();
    let (mut a, mut b) = (begin(engine), begin(engine));
    for n in 0..50_u8 {
        a.put(Keyspace::Index, &[0, n], b"a", Guard::Derived).unwrap();
        b.put(Keyspace::Index, &[1, n], b"b", Guard::Derived).unwrap();
    }
    a.delete(Keyspace::Index, &[0, 9], Guard::Derived).unwrap();
    a.commit().unwrap();
    b.commit().unwrap();
    let mut found = 0;
    for n in 0..50_u8 {
        for first in [0, 1] {
            found +=
                usize::from(engine.get_once(Keyspace::Index, &[first, n], &mut |_| ()).unwrap());
        }
    }
    assert_eq!(found, 99);
}

/// A derived write replaces what other transactions have committed since the snapshot, unless it
/// conflicts: it is never ignored.
pub(super) fn derived_writes_replace(make: &Make<'_>) {
    type Write = fn(&mut dyn Txn) -> KvResult<()>;
    let writes: [Write; 3] = [
        |txn| txn.delete(RECORD, b"k", Guard::Derived),
        |txn| txn.put(RECORD, b"k", b"own", Guard::Derived),
        |txn| txn.retire(RECORD, b"k", Guard::Derived),
    ];
    for (write, expected) in writes.into_iter().zip([None, Some(b"own".to_vec()), None]) {
        for stored in [true, false] {
            let engine = &*make();
            fill(engine, &[(b"read", b"1")]);
            if stored {
                fill(engine, &[(b"k", b"0")]);
            }
            let old = begin(engine);
            assert!(get(&*old, b"read").is_some());
            let mut newer = begin(engine);
            newer.put(RECORD, b"k", b"newer", Guard::Derived).unwrap();
            newer.commit().unwrap();
            if !conflicts(old, write) {
                assert_eq!(now(engine, b"k"), expected);
            }
        }
    }
}

pub(super) fn disjoint_writers(make: &Make<'_>) {
    let engine = &*make();
    fill(engine, &[(b"a", b"0"), (b"b", b"0")]);
    let (mut first, mut second) = (begin(engine), begin(engine));
    assert_eq!(get(&*second, b"a"), Some(b"0".to_vec()));
    put(&mut *first, b"a", b"1").unwrap();
    put(&mut *second, b"b", b"1").unwrap();
    second.commit().expect("reading what another writes is no conflict");
    first.commit().expect("different keys do not conflict");
    assert_eq!(now(engine, b"a"), Some(b"1".to_vec()));
    assert_eq!(now(engine, b"b"), Some(b"1".to_vec()));
}
