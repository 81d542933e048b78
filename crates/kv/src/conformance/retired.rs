//! Retired records: no read but one shows them, and they stay until they are deleted.

use std::ops::ControlFlow;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{Entries, Make, RECORD, all, begin, fill, get, now, put, whole};
use crate::{
    Direction, Engine, Guard, KeyRange, KvResult, RETIRED, ScanLimit, SweepEnd, Txn, is_retired,
};

const FORWARD: Direction = Direction::Forward;

fn retire(engine: &dyn Engine, keys: &[&[u8]]) {
    let mut txn = begin(engine);
    for key in keys {
        txn.retire(RECORD, key, Guard::Checked).expect("there is no other writer");
    }
    txn.commit().expect("there is no other writer");
}

/// Everything that is stored in a range.
fn stored(txn: &dyn Txn, range: &KeyRange, limit: ScanLimit) -> Entries {
    let (mut entries, mut range) = (Vec::new(), range.clone());
    loop {
        let end = txn.scan_retired(RECORD, &range, limit, &mut |key, value| {
            entries.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        });
        match end.expect("the scan answers") {
            crate::ScanEnd::Exhausted => return entries,
            crate::ScanEnd::More { last_key } => range = range.after(&last_key, FORWARD),
        }
    }
}

/// The keys that every kind of read shows among these.
fn shown(txn: &mut dyn Txn, keys: &[&[u8]]) -> KvResult<Vec<usize>> {
    let mut ways: Vec<Vec<usize>> = Vec::new();
    ways.push((0..keys.len()).filter(|at| get(txn, keys[*at]).is_some()).collect());
    let mut found = Vec::new();
    txn.multi_get(RECORD, keys, &mut |at, _| {
        found.push(at);
        ControlFlow::Continue(())
    })?;
    ways.push(std::mem::take(&mut found));
    let ranges: Vec<KeyRange> = keys
        .iter()
        .map(|key| KeyRange { start: key.to_vec(), end: [key, &[0][..]].concat() })
        .collect();
    let mut rest = 0;
    while rest < ranges.len() {
        let (ended, _) =
            txn.scan_ranges(RECORD, &ranges[rest..], (FORWARD, 16), &mut |at, _, _| {
                found.push(rest + at);
                ControlFlow::Continue(())
            })?;
        rest += ended + 1;
    }
    ways.push(std::mem::take(&mut found));
    for direction in [FORWARD, Direction::Backward] {
        let entries = all(txn, &whole(), direction);
        let at = |key: &[u8]| keys.iter().position(|other| *other == key);
        found.extend(entries.iter().filter_map(|(key, _)| at(key)));
        found.sort_unstable();
        ways.push(std::mem::take(&mut found));
    }
    ways.push((0..keys.len()).try_fold(Vec::new(), |mut found, at| {
        if txn.get_locked(RECORD, keys[at], &mut |_| {})? {
            found.push(at);
        }
        Ok(found)
    })?);
    txn.multi_get_locked(RECORD, keys, &mut |at, _| found.push(at))?;
    found.sort_unstable();
    ways.push(found);
    assert!(ways.iter().all(|way| *way == ways[0]), "all reads agree: {ways:?}");
    Ok(ways.swap_remove(0))
}

pub(super) fn hidden_from_reads(make: &Make<'_>) {
    let engine = &*make();
    let keys: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];
    fill(engine, &keys.map(|key| (key, &b"v"[..])));
    // A record cache, where there is one, has them.
    for _ in 0..3 {
        assert_eq!(shown(&mut *begin(engine), &keys), Ok(vec![0, 1, 2, 3, 4]));
    }
    let before = engine.hold().unwrap();
    let mut txn = begin(engine);
    put(&mut *txn, b"d", b"w").unwrap();
    for key in [&b"a"[..], b"c"] {
        txn.retire(RECORD, key, Guard::Checked).unwrap();
    }
    assert_eq!(shown(&mut *txn, &keys), Ok(vec![1, 3, 4]), "own retirements count");
    assert_eq!(txn.written_keys(RECORD, &whole()), [b"a".to_vec(), b"c".to_vec(), b"d".to_vec()]);
    assert_eq!(now(engine, b"a"), Some(b"v".to_vec()), "nothing shows before the commit");
    txn.commit().unwrap();
    for _ in 0..3 {
        assert_eq!(shown(&mut *begin(engine), &keys), Ok(vec![1, 3, 4]));
    }
    assert_eq!((now(engine, b"a"), now(engine, b"d")), (None, Some(b"w".to_vec())));
    let mut txn = begin(engine);
    put(&mut *txn, b"bb", b"own").unwrap();
    assert_eq!(shown(&mut *txn, &keys), Ok(vec![1, 3, 4]), "beside own writes");
    drop(txn);
    // A snapshot from before shows what it has shown.
    let old = &*before.begin().unwrap();
    assert_eq!(all(old, &whole(), FORWARD).len(), 5);
    assert!(stored(old, &whole(), ScanLimit::NONE).iter().all(|(_, value)| value == b"v"));
    for limit in [ScanLimit::NONE, ScanLimit::rows(2)] {
        let entries = stored(&*begin(engine), &whole(), limit);
        let values: Vec<Vec<u8>> = entries.into_iter().map(|(_, value)| value).collect();
        let retired = vec![b'v' | RETIRED];
        let expected = [retired.clone(), b"v".to_vec(), retired, b"w".to_vec(), b"v".to_vec()];
        assert_eq!(values, expected);
    }
    // A rolled back retirement leaves the record.
    let mut txn = begin(engine);
    txn.retire(RECORD, b"b", Guard::Checked).unwrap();
    drop(txn);
    assert_eq!(now(engine, b"b"), Some(b"v".to_vec()));
    // Deleting removes it; a second retirement and one of an absent key change nothing.
    retire(engine, &[b"a", b"absent"]);
    let mut txn = begin(engine);
    txn.delete(RECORD, b"a", Guard::Checked).unwrap();
    txn.delete(RECORD, b"absent", Guard::Checked).unwrap();
    txn.commit().unwrap();
    assert_eq!(stored(&*begin(engine), &whole(), ScanLimit::NONE).len(), 4);
    // A sweep clears retired records, too.
    while engine.sweep_range(RECORD, &whole(), 10).unwrap() == SweepEnd::More {}
    assert_eq!(stored(&*begin(engine), &whole(), ScanLimit::NONE), []);
}

/// A scan returns from time to time while it passes retired records, so that its caller can end it.
/// A database in another process passes them itself, and ends a statement that is cancelled.
pub(super) fn pauses(make: &Make<'_>) {
    let engine = &*make();
    let key = |number: u32| (7 * number).to_be_bytes();
    let number = 40_000;
    for first in (0..number).step_by(1000) {
        let keys: Vec<[u8; 4]> = (first..first + 1000).map(key).collect();
        let entries: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &b"v"[..])).collect();
        fill(engine, &entries);
        let dead: Vec<&[u8]> =
            keys.iter().map(|key| &key[..]).filter(|dead| **dead != key(number / 2)).collect();
        retire(engine, &dead);
    }
    let (middle, own) = (key(number / 2), key(number - 1));
    for writes in [false, true] {
        for direction in [FORWARD, Direction::Backward] {
            let mut txn = begin(engine);
            if writes {
                put(&mut *txn, &own, b"own").unwrap();
            }
            let (mut found, mut pages, mut range) = (Vec::new(), 1, whole());
            while let crate::ScanEnd::More { last_key } = txn
                .scan(RECORD, &range, direction, ScanLimit::NONE, &mut |key, _| {
                    found.push(key.to_vec());
                    ControlFlow::Continue(())
                })
                .unwrap()
            {
                (range, pages) = (range.after(&last_key, direction), pages + 1);
            }
            found.sort_unstable();
            let expected =
                if writes { vec![middle.to_vec(), own.to_vec()] } else { vec![middle.to_vec()] };
            assert_eq!(found, expected);
            // Later scans may know where the retired records are.
            let knows = writes || direction == Direction::Backward || engine.caps().is_remote;
            assert!(pages > 1 || knows, "{pages} pages");
        }
    }
}

pub(super) fn conflicts(make: &Make<'_>) {
    let engine = &*make();
    type Write = fn(&mut dyn Txn) -> KvResult<()>;
    let retire: Write = |txn| txn.retire(RECORD, b"k", Guard::Checked);
    let others: [Write; 3] =
        [retire, |txn| put(txn, b"k", b"x"), |txn| txn.delete(RECORD, b"k", Guard::Checked)];
    for other in others {
        for (first, second) in [(retire, other), (other, retire)] {
            fill(engine, &[(b"k", b"v")]);
            let (mut a, mut b) = (begin(engine), begin(engine));
            assert!(get(&*a, b"k").is_some() && get(&*b, b"k").is_some());
            first(&mut *a).unwrap();
            let wrote = second(&mut *b);
            a.commit().unwrap();
            assert!(wrote.and_then(|()| b.commit()).is_err(), "the second writer conflicts");
            let mut txn = begin(engine);
            txn.delete(RECORD, b"k", Guard::Checked).unwrap();
            txn.commit().unwrap();
        }
    }
}

/// Numbered keys, of which long and short runs are retired, read by old and new snapshots.
pub(super) fn against_a_model(make: &Make<'_>) {
    const KEYS: u64 = 600;
    let engine = &*make();
    let mut random = SmallRng::seed_from_u64(7);
    let key = |number: u64| [3u64.to_be_bytes(), number.to_be_bytes()].concat();
    let mut live: Vec<bool> = vec![true; KEYS as usize];
    let mut txn = begin(engine);
    (0..KEYS).for_each(|number| put(&mut *txn, &key(number), b"v").unwrap());
    txn.commit().unwrap();
    let mut held = Vec::new();
    for _ in 0..60 {
        held.push((engine.hold().unwrap(), live.clone()));
        let (first, length) = (random.random_range(0..KEYS), random.random_range(1..120));
        let run: Vec<u64> =
            (first..KEYS.min(first + length)).filter(|n| live[*n as usize]).collect();
        let mut txn = begin(engine);
        for number in run {
            live[number as usize] = false;
            txn.retire(RECORD, &key(number), Guard::Checked).unwrap();
        }
        txn.commit().unwrap();
        let (old, was_live) = &held[random.random_range(0..held.len())];
        for (reader, live) in [(old.begin().unwrap(), was_live), (begin(engine), &live)] {
            let (from, to) = (random.random_range(0..KEYS), random.random_range(0..=KEYS));
            let range = KeyRange { start: key(from.min(to)), end: key(from.max(to)) };
            let expected: Vec<Vec<u8>> =
                (from.min(to)..from.max(to)).filter(|n| live[*n as usize]).map(key).collect();
            for direction in [FORWARD, Direction::Backward] {
                let mut keys: Vec<Vec<u8>> =
                    all(&*reader, &range, direction).into_iter().map(|(key, _)| key).collect();
                if direction == Direction::Backward {
                    keys.reverse();
                }
                assert_eq!(keys, expected);
            }
            let shown = stored(&*reader, &whole(), ScanLimit::NONE);
            assert_eq!(shown.len() as u64, KEYS);
            let is_live = |(_, value): &&(Vec<u8>, Vec<u8>)| !is_retired(RECORD, value);
            assert_eq!(shown.iter().filter(is_live).count(), live.iter().filter(|l| **l).count());
        }
    }
}
