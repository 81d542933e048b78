//! One transaction at a time: reading, writing, sizes, sweeping, closing.

use std::ops::ControlFlow;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{Make, RECORD, all, begin, fill, get, now, put, whole};
use crate::{
    Direction, Expected, Gap, Guard, KeyRange, Keyspace, KvError, KvResult, LogEntries, NamedKey,
    RETIRED, ScanLimit, SweepEnd, ThroughVisitor, Txn, TxnOptions, Which,
};

pub(super) fn get_put_delete(make: &Make<'_>) {
    let engine = &*make();
    assert_eq!(now(engine, b"k"), None);
    fill(engine, &[(b"k", b"1")]);
    assert_eq!(now(engine, b"k"), Some(b"1".to_vec()));
    fill(engine, &[(b"k", b"22")]);
    assert_eq!(now(engine, b"k"), Some(b"22".to_vec()));
    let mut txn = begin(engine);
    txn.delete(RECORD, b"k", Guard::Checked).unwrap();
    txn.commit().unwrap();
    assert_eq!(now(engine, b"k"), None);
    engine.sync().unwrap();
}

pub(super) fn own_writes(make: &Make<'_>) {
    let engine = &*make();
    fill(engine, &[(b"a", b"old"), (b"b", b"old")]);
    let mut txn = begin(engine);
    assert_eq!(txn.size(), (0, 0));
    put(&mut *txn, b"a", b"new").unwrap();
    txn.delete(RECORD, b"b", Guard::Checked).unwrap();
    put(&mut *txn, b"c", b"1").unwrap();
    put(&mut *txn, b"c", b"2").unwrap();
    assert_eq!(get(&*txn, b"a"), Some(b"new".to_vec()));
    assert_eq!(get(&*txn, b"b"), None, "an own delete hides the stored value");
    assert_eq!(get(&*txn, b"c"), Some(b"2".to_vec()), "the last put counts");
    put(&mut *txn, b"b", b"again").unwrap();
    txn.delete(RECORD, b"c", Guard::Checked).unwrap();
    assert_eq!(get(&*txn, b"b"), Some(b"again".to_vec()));
    assert_eq!(get(&*txn, b"c"), None);
    let (bytes, keys) = txn.size();
    assert!(bytes >= 10 && keys >= 3, "size counts what was written: {bytes} bytes, {keys} keys");
    assert_eq!(now(engine, b"a"), Some(b"old".to_vec()), "nothing shows before the commit");
    txn.commit().unwrap();
    assert_eq!(now(engine, b"a"), Some(b"new".to_vec()));
    assert_eq!(now(engine, b"b"), Some(b"again".to_vec()), "delete and put: the put stays");
    assert_eq!(now(engine, b"c"), None, "put and delete: the delete stays");
}

pub(super) fn many_own_writes(make: &Make<'_>) {
    let engine = &*make();
    let mut txn = begin(engine);
    for n in 0..1_000_u32 {
        put(&mut *txn, &n.to_be_bytes(), &[n as u8 & 0x7F]).unwrap();
        assert_eq!(get(&*txn, &n.to_be_bytes()), Some(vec![n as u8 & 0x7F]));
        assert_eq!(get(&*txn, &(n + 1).to_be_bytes()), None);
        if n % 100 == 0 {
            assert_eq!(all(&*txn, &whole(), Direction::Forward).len(), n as usize + 1);
        }
    }
    txn.commit().unwrap();
    assert_eq!(all(&*begin(engine), &whole(), Direction::Backward).len(), 1_000);
}

pub(super) fn get_through(make: &Make<'_>) {
    let engine = &*make();
    let index = |txn: &mut dyn Txn, key: &[u8], value: &[u8]| {
        txn.put(Keyspace::Index, key, value, Guard::Checked).unwrap();
    };
    let mut txn = begin(engine);
    index(&mut *txn, b"a", b"-12-");
    index(&mut *txn, b"dangling", b"-99-");
    index(&mut *txn, b"short", b"-1");
    put(&mut *txn, b"key12", b"twelve").unwrap();
    txn.commit().unwrap();
    let named = NamedKey { keyspace: RECORD, prefix: b"key", part: 1..3 };
    type Seen = Option<(Vec<u8>, Option<Vec<u8>>)>;
    let seen = |read: &dyn Fn(&mut ThroughVisitor<'_>) -> KvResult<bool>| -> Seen {
        let mut seen = None;
        let found = read(&mut |first, second| {
            assert!(seen.is_none(), "the values are passed once");
            seen = Some((first.to_vec(), second.map(<[u8]>::to_vec)));
        });
        assert_eq!(found, Ok(seen.is_some()));
        seen
    };
    let of =
        |txn: &dyn Txn, key: &[u8]| seen(&|see| txn.get_through(Keyspace::Index, key, &named, see));
    let expected: [(&[u8], Seen); 4] = [
        (b"a", Some((b"-12-".to_vec(), Some(b"twelve".to_vec())))),
        (b"dangling", Some((b"-99-".to_vec(), None))),
        (b"short", Some((b"-1".to_vec(), None))),
        (b"missing", None),
    ];
    for (key, expected) in &expected {
        assert_eq!(of(&*begin(engine), key), *expected);
        let once = seen(&|see| engine.get_through_once(Keyspace::Index, key, &named, see));
        assert_eq!(once, *expected);
        for (marker, value, holds) in
            [("short", "-1", true), ("short", "-2", false), ("missing", "", false)]
        {
            let (marker, value) = (marker.as_bytes(), value.as_bytes());
            let condition = Expected { keyspace: Keyspace::Index, key: marker, value };
            let mut through = None;
            let mut see = |first: &[u8], second: Option<&[u8]>| {
                through = Some((first.to_vec(), second.map(<[u8]>::to_vec)));
            };
            let from = (Keyspace::Index, *key);
            let mut alone = None;
            let answer = engine.get_if(&condition, from, &mut |value| alone = Some(value.to_vec()));
            assert_eq!(answer, Ok(holds.then_some(expected.is_some())));
            let first = expected.as_ref().map(|(first, _)| first.clone());
            assert_eq!(alone, if holds { first } else { None });
            let mut read = None;
            let begun = engine.begin_if(&condition).and_then(|txn| {
                txn.get(Keyspace::Index, key, &mut |value| read = Some(value.to_vec()))
            });
            assert_eq!(begun, if holds { Ok(expected.is_some()) } else { Err(KvError::Changed) });
            assert_eq!(read, alone);
            let answer = engine.get_through_if(&condition, from, &named, &mut see).unwrap();
            assert_eq!(answer, holds.then_some(expected.is_some()));
            assert_eq!(through, if holds { expected.clone() } else { None });
        }
    }
    // Own writes are visible.
    let mut txn = begin(engine);
    put(&mut *txn, b"key99", b"own").unwrap();
    index(&mut *txn, b"a", b"-99-");
    let own = Some(b"own".to_vec());
    assert_eq!(of(&*txn, b"a"), Some((b"-99-".to_vec(), own.clone())));
    assert_eq!(of(&*txn, b"dangling"), Some((b"-99-".to_vec(), own)));
    txn.delete(RECORD, b"key99", Guard::Checked).unwrap();
    assert_eq!(of(&*txn, b"a"), Some((b"-99-".to_vec(), None)));
}

pub(super) fn gaps(make: &Make<'_>) {
    let engine = &*make();
    let last = |at| Gap::Value(at, Which::Last);
    let put = |txn: &mut dyn Txn, key: &[u8], value: &[u8], gap| {
        txn.put_with_gaps(RECORD, key, value, Guard::Checked, &[gap])
    };
    let mut txn = begin(engine);
    put(&mut *txn, b"a", b"-........-", last(1)).unwrap();
    assert_eq!(get(&*txn, b"a"), Some(b"-........-".to_vec()), "until the commit it is as given");
    put(&mut *txn, b"b", b"00000000", last(0)).unwrap();
    txn.put(RECORD, b"c", b"........", Guard::Checked).unwrap();
    // A gap that is overwritten or deleted.
    put(&mut *txn, b"d", b"........", last(0)).unwrap();
    txn.put(RECORD, b"d", b"........", Guard::Checked).unwrap();
    put(&mut *txn, b"e", b"........", last(0)).unwrap();
    txn.delete(RECORD, b"e", Guard::Checked).unwrap();
    assert!(matches!(put(&mut *txn, b"f", b"short", last(0)), Err(KvError::Invalid(_))));
    for entry in [Which::Entry(0), Which::Entry(1)] {
        let gaps = [Gap::Key(1, entry), Gap::Value(0, entry)];
        txn.put_with_gaps(Keyspace::Oplog, b"k        k", b"        v", Guard::Derived, &gaps)
            .unwrap();
    }
    let before = engine.log().settled();
    let logged = txn.commit_logged(LogEntries { count: 2, now_ms: 7_000 });
    logged.result.unwrap();
    let place = logged.place.unwrap();
    let (first, second) = (place.first(), place.last());
    assert_eq!((second, engine.log().last()), (first + 1, second));
    assert!(first > (7 << 32) && first > before && engine.log().settled() < first);
    place.release(|settled| assert_eq!(settled, second));
    assert_eq!(engine.log().settled(), second);
    let value = [&b"-"[..], &second.to_le_bytes(), b"-"].concat();
    let stored = [now(engine, b"a"), now(engine, b"b"), now(engine, b"c"), now(engine, b"d")];
    let expected = [&value[..], &second.to_le_bytes(), b"........", b"........"];
    assert_eq!(stored, expected.map(|value| Some(value.to_vec())));
    assert_eq!([now(engine, b"e"), now(engine, b"f")], [None, None]);
    for timestamp in [first, second] {
        let key = [&b"k"[..], &timestamp.to_be_bytes(), b"k"].concat();
        let mut found = Vec::new();
        engine.get_once(Keyspace::Oplog, &key, &mut |value| found = value.to_vec()).unwrap();
        assert_eq!(found, [&timestamp.to_le_bytes()[..], b"v"].concat());
    }
    let mut txn = begin(engine);
    put(&mut *txn, b"a", b"........", last(0)).unwrap();
    assert!(matches!(txn.commit(), Err(KvError::Invalid(_))), "a gap is left");
    assert_eq!(now(engine, b"a"), Some(value));
    assert_eq!(engine.log().last(), second);
    fill(engine, &[(b"a", b"later")]);
}

/// Engines without bulk loading return `None`; then there is nothing to check.
pub(super) fn ingest(make: &Make<'_>) {
    let engine = &*make();
    let key = |object: u8, n: u32| [&[object], &n.to_be_bytes()[..]].concat();
    fill(engine, &[(&key(1, 7), b"before"), (&key(3, 7), b"behind")]);
    let before = engine.begin(TxnOptions::READ_ONLY).unwrap();
    let begun = || engine.begin_ingest(RECORD).unwrap();
    let Some(mut given_up) = begun() else { return };
    given_up.add(&key(4, 0), b"given up").unwrap();
    drop(given_up);
    let mut ingest = begun().expect("as before");
    for n in 0..20_000 {
        ingest.add(&key(2, n), &n.to_be_bytes().repeat(n as usize % 7)).unwrap();
    }
    assert!(matches!(ingest.add(&key(2, 19_999), b""), Err(KvError::Invalid(_))));
    ingest.finish().unwrap();
    assert_eq!(get(&*before, &key(2, 1)), None, "an older snapshot does not change");
    let found = all(&*begin(engine), &KeyRange::prefix(&[2]), Direction::Forward);
    assert_eq!(found.len(), 20_000);
    for (n, (found, value)) in (0..20_000_u32).zip(found) {
        assert_eq!((found, value), (key(2, n), n.to_be_bytes().repeat(n as usize % 7)));
    }
    assert_eq!(all(&*begin(engine), &whole(), Direction::Backward).len(), 20_002);
    // Later writes win, and an ingested range can be swept.
    fill(engine, &[(&key(2, 5), b"later")]);
    assert_eq!(now(engine, &key(2, 5)), Some(b"later".to_vec()));
    let mut txn = begin(engine);
    txn.delete(RECORD, &key(2, 6), Guard::Checked).unwrap();
    txn.commit().unwrap();
    assert_eq!(now(engine, &key(2, 6)), None);
    while engine.sweep_range(RECORD, &KeyRange::prefix(&[2]), 1_000).unwrap() == SweepEnd::More {}
    assert_eq!(all(&*begin(engine), &whole(), Direction::Forward).len(), 2);
    // A retired record stays so.
    let mut retired = begun().expect("as before");
    retired.add(&key(5, 1), &[b'v' | RETIRED]).unwrap();
    retired.add(&key(5, 2), b"v").unwrap();
    retired.finish().unwrap();
    assert_eq!(now(engine, &key(5, 1)), None);
    assert_eq!(now(engine, &key(5, 2)), Some(b"v".to_vec()));
    let (mut stored, five) = (Vec::new(), KeyRange::prefix(&[5]));
    let mut see = |_: &[u8], value: &[u8]| {
        stored.push(value.to_vec());
        ControlFlow::Continue(())
    };
    begin(engine).scan_retired(RECORD, &five, ScanLimit::ALL, &mut see).unwrap();
    assert_eq!(stored, [vec![b'v' | RETIRED], b"v".to_vec()]);
    // An empty load is allowed.
    begun().expect("as before").finish().unwrap();
}

pub(super) fn multi_get(make: &Make<'_>) {
    let engine = &*make();
    let keys: Vec<[u8; 4]> = (0..40_u32).map(u32::to_be_bytes).collect();
    let even: Vec<(&[u8], &[u8])> =
        keys.iter().step_by(2).map(|key| (&key[..], &key[..])).collect();
    fill(engine, &even);
    let mut txn = begin(engine);
    put(&mut *txn, &keys[1], b"own").unwrap();
    txn.delete(RECORD, &keys[2], Guard::Checked).unwrap();
    let asked: Vec<&[u8]> = keys.iter().rev().map(|key| &key[..]).collect();
    let mut seen = vec![None; 40];
    txn.multi_get(RECORD, &asked, &mut |at, value| {
        seen[39 - at] = Some(value.to_vec());
        ControlFlow::Continue(())
    })
    .unwrap();
    for (n, value) in seen.into_iter().enumerate() {
        let expected = match n {
            1 => Some(b"own".to_vec()),
            2 => None,
            _ => (n % 2 == 0).then(|| keys[n].to_vec()),
        };
        assert_eq!(value, expected, "key {n}");
    }
    txn.multi_get(RECORD, &[], &mut |_, _| panic!("nothing was asked")).unwrap();
}

/// Runs, gaps, absent keys, repeated keys, forward, backward and mixed, values small and large:
/// visited in the order of the request, until the closure stops.
pub(super) fn multi_get_in_any_order(make: &Make<'_>) {
    let engine = &*make();
    let key = |n: u64| [7_u64.to_be_bytes(), n.to_be_bytes()].concat();
    let value = |n: u64| {
        vec![n as u8 & 0x7F; if n.is_multiple_of(97) { 200_000 } else { 1 + n as usize % 50 }]
    };
    let is_there = |n: u64| n % 10 != 3 && !(400..450).contains(&n);
    let there: Vec<_> = (0..1000).filter(|n| is_there(*n)).map(|n| (key(n), value(n))).collect();
    let there: Vec<_> = there.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    fill(engine, &there);
    // An engine with files has all keys in one file then.
    engine.compact_range(RECORD, &whole()).unwrap();
    let mut random = SmallRng::seed_from_u64(3);
    for round in 0..200 {
        let (first, step) = (random.random_range(0..990), random.random_range(1..30));
        let mut asked: Vec<u64> = match round % 4 {
            0 => (first..(first + 60).min(1010)).collect(),
            1 => (0..1010).step_by(step).collect(),
            2 => (0..300).map(|_| random.random_range(0..1010)).collect(),
            _ => (0..8).flat_map(|n| n * 120..n * 120 + random.random_range(0..20)).collect(),
        };
        if round % 3 == 1 {
            asked.reverse();
        }
        let keys: Vec<_> = asked.iter().map(|n| key(*n)).collect();
        let keys: Vec<_> = keys.iter().map(|key| &key[..]).collect();
        let most = if round % 5 == 0 { random.random_range(1..50) } else { usize::MAX };
        let expected =
            asked.iter().enumerate().filter(|(_, n)| **n < 1000 && is_there(**n)).take(most);
        let txn = begin(engine);
        let mut seen = Vec::new();
        txn.multi_get(RECORD, &keys, &mut |at, found| {
            assert!(found == value(asked[at]), "the value of another key than {}", asked[at]);
            seen.push(at);
            if seen.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
        assert_eq!(seen, expected.map(|(at, _)| at).collect::<Vec<_>>(), "{asked:?}");
    }
}

pub(super) fn keyspaces_are_apart(make: &Make<'_>) {
    let engine = &*make();
    let mut txn = begin(engine);
    for keyspace in Keyspace::ALL {
        txn.put(keyspace, b"k", keyspace.name().as_bytes(), Guard::Checked).unwrap();
    }
    txn.commit().unwrap();
    for keyspace in Keyspace::ALL {
        let mut seen = Vec::new();
        engine.get_once(keyspace, b"k", &mut |value| seen = value.to_vec()).unwrap();
        assert_eq!(seen, keyspace.name().as_bytes());
    }
}

pub(super) fn extreme_sizes(make: &Make<'_>) {
    let engine = &*make();
    let caps = engine.caps();
    let large = vec![7_u8; caps.max_value_bytes.min(1 << 20)];
    let long = vec![0xFE_u8; 255];
    fill(engine, &[(b"", b"of the empty key"), (b"empty", b""), (&long, &large)]);
    assert_eq!(now(engine, b""), Some(b"of the empty key".to_vec()));
    assert_eq!(now(engine, b"empty"), Some(Vec::new()));
    assert_eq!(now(engine, &long).map(|value| value == large), Some(true));
    assert_eq!(all(&*begin(engine), &whole(), Direction::Forward).len(), 3);
    if caps.max_key_bytes < 1 << 26 {
        let over = vec![1; caps.max_key_bytes + 1];
        let refused = put(&mut *begin(engine), &over, b"");
        assert!(matches!(refused, Err(KvError::TooLarge(_))), "{refused:?}");
    }
}

pub(super) fn read_only(make: &Make<'_>) {
    let engine = &*make();
    fill(engine, &[(b"k", b"1")]);
    let mut txn = engine.begin(TxnOptions::READ_ONLY).unwrap();
    fill(engine, &[(b"k", b"2")]);
    assert_eq!(get(&*txn, b"k"), Some(b"1".to_vec()), "a read-only transaction has a snapshot");
    let refused = put(&mut *txn, b"k", b"3");
    assert!(matches!(refused, Err(KvError::Invalid(_))), "{refused:?}");
    txn.commit().unwrap();
}

pub(super) fn sweep(make: &Make<'_>) {
    let engine = &*make();
    let keys: Vec<[u8; 2]> = (0..3_u8).flat_map(|a| (0..200).map(move |b| [a, b])).collect();
    let mut entries: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &b"v"[..])).collect();
    // The range's own end key must stay.
    entries.push((&[2], b"end"));
    fill(engine, &entries);
    let range = KeyRange::prefix(&[1]);
    let mut calls = 0;
    while engine.sweep_range(RECORD, &range, 50).unwrap() == SweepEnd::More {
        calls += 1;
        assert!(calls < 10, "a sweep comes to an end");
    }
    let txn = begin(engine);
    assert_eq!(all(&*txn, &range, Direction::Forward).len(), 0);
    assert_eq!(all(&*txn, &whole(), Direction::Forward).len(), 401);
    assert_eq!(get(&*txn, &[2]), Some(b"end".to_vec()));
    assert_eq!(engine.sweep_range(RECORD, &range, 50).unwrap(), SweepEnd::Done);
    let nothing = KeyRange { start: vec![3], end: vec![3] };
    assert_eq!(engine.sweep_range(RECORD, &nothing, 50).unwrap(), SweepEnd::Done);
    fill(engine, &[(&[1, 1], b"later")]);
    assert_eq!(now(engine, &[1, 1]), Some(b"later".to_vec()), "a swept range can be used again");
    engine.approximate_bytes(RECORD, &whole()).unwrap();
    let records = engine.stats().keyspaces.expect("all engines know their keyspaces")[0];
    assert!(records.files.bytes + records.memtable_bytes > 0, "{records:?}");
}

pub(super) fn close(make: &Make<'_>) {
    let engine = &*make();
    fill(engine, &[(b"k", b"1")]);
    engine.close().unwrap();
    let answers = [
        engine.begin(TxnOptions::default()).err(),
        engine.get_once(RECORD, b"k", &mut |_| ()).err(),
        engine.sync().err(),
    ];
    for answer in answers {
        assert!(matches!(answer, Some(KvError::Unavailable(_))), "{answer:?}");
    }
}
