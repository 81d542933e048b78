//! Scans: order, bounds, pauses, continuation, own writes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{Entries, Make, RECORD, all, begin, fill, page, put, whole};
use crate::{Direction, Guard, KeyRange, ScanEnd, ScanLimit};

const BOTH: [Direction; 2] = [Direction::Forward, Direction::Backward];

fn keys(entries: &Entries) -> String {
    entries.iter().map(|(key, _)| String::from_utf8_lossy(key)).collect()
}

fn letters(range: &str) -> KeyRange {
    let (start, end) = range.split_once('-').expect("a range is start-end");
    KeyRange { start: start.into(), end: end.into() }
}

fn fill_letters(engine: &dyn crate::Engine, text: &str) {
    let entries: Vec<(&[u8], &[u8])> =
        text.as_bytes().chunks(1).map(|key| (key, &b"stored"[..])).collect();
    fill(engine, &entries);
}

pub(super) fn both_directions(make: &Make<'_>) {
    let engine = &*make();
    fill_letters(engine, "badce");
    let txn = begin(engine);
    assert_eq!(keys(&all(&*txn, &whole(), Direction::Forward)), "abcde");
    assert_eq!(keys(&all(&*txn, &whole(), Direction::Backward)), "edcba");
}

pub(super) fn bounds(make: &Make<'_>) {
    let engine = &*make();
    fill_letters(engine, "bdf");
    let txn = begin(engine);
    let cases = [
        ("b-f", "bd"),
        ("a-g", "bdf"),
        ("c-e", "d"),
        ("c-d", ""),
        ("g-z", ""),
        ("a-b", ""),
        ("d-d", ""),
        ("f-b", ""),
    ];
    for (range, expected) in cases {
        assert_eq!(keys(&all(&*txn, &letters(range), Direction::Forward)), expected, "{range}");
        let backward: String = expected.chars().rev().collect();
        assert_eq!(keys(&all(&*txn, &letters(range), Direction::Backward)), backward, "{range}");
    }
}

pub(super) fn limits(make: &Make<'_>) {
    let engine = &*make();
    fill_letters(engine, "abcde");
    let txn = begin(engine);
    let (entries, end) = page(&*txn, &whole(), Direction::Forward, ScanLimit::rows(2));
    assert_eq!(keys(&entries), "ab");
    assert_eq!(end, ScanEnd::More { last_key: b"b".to_vec() });
    let (entries, end) = page(&*txn, &whole(), Direction::Backward, ScanLimit::rows(2));
    assert_eq!(keys(&entries), "ed");
    assert_eq!(end, ScanEnd::More { last_key: b"d".to_vec() });
    let one_byte = ScanLimit::NONE.bytes(1);
    let (entries, end) = page(&*txn, &whole(), Direction::Forward, one_byte);
    assert_eq!(keys(&entries), "a", "a scan visits at least one entry");
    assert_eq!(end, ScanEnd::More { last_key: b"a".to_vec() });
    let two_entries = ScanLimit::NONE.bytes(14);
    assert_eq!(keys(&page(&*txn, &whole(), Direction::Forward, two_entries).0), "ab");
    let (entries, end) = page(&*txn, &whole(), Direction::Forward, ScanLimit::rows(6));
    assert_eq!((keys(&entries).as_str(), end), ("abcde", ScanEnd::Exhausted));

    let mut seen = 0;
    let end = txn.scan(RECORD, &whole(), Direction::Forward, ScanLimit::NONE, &mut |_, _| {
        seen += 1;
        if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(
        end,
        Ok(ScanEnd::More { last_key: b"c".to_vec() }),
        "the entry that broke off counts"
    );
    assert_eq!(seen, 3);
}

pub(super) fn counts(make: &Make<'_>) {
    let engine = &*make();
    fill_letters(engine, "abcdefgh");
    let mut txn = begin(engine);
    // In pages, as an engine may end one early.
    let count = |txn: &dyn crate::Txn, range: &str, max: usize| {
        let (mut rest, mut counted) = (letters(range), 0);
        loop {
            let (entries, end) = txn.count(RECORD, &rest, max).unwrap();
            assert!(entries <= max);
            counted += entries;
            match end {
                ScanEnd::Exhausted => return counted,
                ScanEnd::More { last_key } => rest = rest.after(&last_key, Direction::Forward),
            }
        }
    };
    for max in [1, 2, 3, 8, 100] {
        assert_eq!(count(&*txn, "a-i", max), 8);
        assert_eq!(count(&*txn, "b-e", max), 3);
        assert_eq!(count(&*txn, "c-c", max), 0);
        assert_eq!(count(&*txn, "x-z", max), 0);
    }
    txn.delete(RECORD, b"c", Guard::Checked).unwrap();
    put(&mut *txn, b"d", b"own").unwrap();
    put(&mut *txn, b"dd", b"own").unwrap();
    put(&mut *txn, b"z", b"own").unwrap();
    for max in [1, 2, 100] {
        assert_eq!(count(&*txn, "a-i", max), 8);
        assert_eq!(count(&*txn, "c-e", max), 2);
        assert_eq!(count(&*txn, "x-zz", max), 1);
    }
}

pub(super) fn continues_later(make: &Make<'_>) {
    let engine = &*make();
    fill_letters(engine, "abcde");
    for (direction, expected) in [(Direction::Forward, "abce"), (Direction::Backward, "edcb")] {
        let mut range = whole();
        let mut found = String::new();
        for step in 0..9 {
            if step == 2 && direction == Direction::Forward {
                let mut txn = begin(engine);
                txn.delete(RECORD, b"d", Guard::Checked).unwrap();
                txn.commit().unwrap();
            }
            if step == 2 && direction == Direction::Backward {
                let mut txn = begin(engine);
                txn.delete(RECORD, b"a", Guard::Checked).unwrap();
                txn.commit().unwrap();
            }
            let (entries, end) = page(&*begin(engine), &range, direction, ScanLimit::rows(1));
            found += &keys(&entries);
            match end {
                ScanEnd::Exhausted => break,
                ScanEnd::More { last_key } => range = range.after(&last_key, direction),
            }
        }
        assert_eq!(found, expected);
        fill_letters(engine, "d");
    }
}

pub(super) fn merges_own_writes(make: &Make<'_>) {
    let engine = &*make();
    fill_letters(engine, "bdfh");
    let mut txn = begin(engine);
    for key in ["a", "d", "e", "i"] {
        put(&mut *txn, key.as_bytes(), b"own").unwrap();
    }
    for key in ["b", "h", "x"] {
        txn.delete(RECORD, key.as_bytes(), Guard::Checked).unwrap();
    }
    let forward = all(&*txn, &whole(), Direction::Forward);
    assert_eq!(keys(&forward), "adefi");
    let own: String =
        forward.iter().map(|(_, value)| if value == b"own" { 'o' } else { 's' }).collect();
    assert_eq!(own, "oooso", "an own put replaces the stored value");
    assert_eq!(keys(&all(&*txn, &whole(), Direction::Backward)), "ifeda");
    assert_eq!(keys(&all(&*txn, &letters("b-f"), Direction::Forward)), "de");
    assert_eq!(keys(&all(&*txn, &letters("b-f"), Direction::Backward)), "ed");
    // A visitor may read, and scan, in the same transaction.
    txn.scan(RECORD, &whole(), Direction::Forward, ScanLimit::NONE, &mut |key, _| {
        assert!(txn.get(RECORD, key, &mut |_| ()).unwrap());
        assert_eq!(keys(&all(&*txn, &letters("e-g"), Direction::Forward)), "ef");
        ControlFlow::Continue(())
    })
    .unwrap();
    put(&mut *txn, b"b", b"own").unwrap();
    txn.delete(RECORD, b"f", Guard::Checked).unwrap();
    let (entries, end) = page(&*txn, &whole(), Direction::Forward, ScanLimit::rows(2));
    assert_eq!((keys(&entries).as_str(), end), ("ab", ScanEnd::More { last_key: b"b".to_vec() }));
    assert_eq!(keys(&all(&*txn, &whole(), Direction::Forward)), "abdei");
    txn.commit().unwrap();
    assert_eq!(keys(&all(&*begin(engine), &whole(), Direction::Forward)), "abdei");
}

/// Random writes over a small set of keys; each scan must agree with an ordered map.
pub(super) fn against_a_model(make: &Make<'_>) {
    let engine = &*make();
    let mut random = SmallRng::seed_from_u64(1);
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for round in 0..60_u8 {
        let mut txn = begin(engine);
        let before = model.clone();
        for _ in 0..random.random_range(0..40) {
            let key: Vec<u8> =
                (0..random.random_range(1..3)).map(|_| random.random_range(0..12)).collect();
            if random.random_bool(0.4) {
                txn.delete(RECORD, &key, Guard::Checked).unwrap();
                model.remove(&key);
            } else {
                put(&mut *txn, &key, &[round]).unwrap();
                model.insert(key, vec![round]);
            }
            if random.random_bool(0.3) {
                check(&*txn, &model, &mut random);
            }
        }
        if random.random_bool(0.8) {
            txn.commit().unwrap();
        } else {
            model = before;
        }
        check(&*begin(engine), &model, &mut random);
    }
}

fn check(txn: &dyn crate::Txn, model: &BTreeMap<Vec<u8>, Vec<u8>>, random: &mut SmallRng) {
    let (a, b) = (random.random_range(0..13_u8), random.random_range(0..13_u8));
    let range = KeyRange { start: vec![a.min(b)], end: vec![a.max(b)] };
    for direction in BOTH {
        let mut expected: Entries = model
            .range(range.start.clone()..range.end.clone())
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        assert_eq!(all(txn, &range, direction), expected, "{range:?} {direction:?}");
        let mut paged = Entries::new();
        let mut rest = range.clone();
        while let (entries, ScanEnd::More { last_key }) =
            page(txn, &rest, direction, ScanLimit::rows(3))
        {
            paged.extend(entries);
            rest = rest.after(&last_key, direction);
        }
        paged.extend(page(txn, &rest, direction, ScanLimit::rows(3)).0);
        assert_eq!(paged, expected, "in pages of three");
        check_ranges(txn, model, direction, random);
    }
}

/// A scan of several ranges visits the same entries as one scan for each, until the visitor stops.
fn check_ranges(
    txn: &dyn crate::Txn,
    model: &BTreeMap<Vec<u8>, Vec<u8>>,
    direction: Direction,
    random: &mut SmallRng,
) {
    let mut bounds: Vec<Vec<u8>> = (0..2 * random.random_range(0..5))
        .map(|_| (0..random.random_range(1..3)).map(|_| random.random_range(0..12)).collect())
        .collect();
    bounds.sort();
    // A bound may close one range and open the next, and a range may be empty.
    let mut ranges: Vec<KeyRange> = bounds
        .chunks_exact(2)
        .map(|pair| KeyRange { start: pair[0].clone(), end: pair[1].clone() })
        .collect();
    if direction == Direction::Backward {
        ranges.reverse();
    }
    let mut expected = Vec::new();
    for (at, range) in ranges.iter().enumerate() {
        let found = all(txn, range, direction).into_iter();
        expected.extend(found.map(|(key, value)| (at, key, value)));
    }
    assert!(expected.iter().all(|(_, key, value)| model.get(key) == Some(value)));
    let most = random.random_range(1..10);
    let mut seen = Vec::new();
    let end = txn.scan_ranges(RECORD, &ranges, (direction, 16), &mut |at, key, value| {
        seen.push((at, key.to_vec(), value.to_vec()));
        if seen.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let (at, end) = end.expect("a scan of ranges");
    assert_eq!(seen[..], expected[..most.min(expected.len())], "{ranges:?} {direction:?}");
    match seen.last() {
        Some((last_at, last_key, _)) if seen.len() == most => {
            assert_eq!((at, end), (*last_at, ScanEnd::More { last_key: last_key.clone() }));
        }
        _ => assert_eq!((at, end), (ranges.len().saturating_sub(1), ScanEnd::Exhausted)),
    }
}

/// Several ranges with many deleted entries between and inside them.
pub(super) fn ranges_between_deleted_entries(make: &Make<'_>) {
    let engine = &*make();
    let keys: Vec<[u8; 4]> = (0..6_000_u32).map(u32::to_be_bytes).collect();
    let entries: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &b"v"[..])).collect();
    fill(engine, &entries);
    // An engine with files has all keys in one file then.
    engine.compact_range(RECORD, &KeyRange { start: vec![0], end: vec![1] }).unwrap();
    let mut txn = begin(engine);
    for (n, key) in keys.iter().enumerate().filter(|(n, _)| n % 500 > 2) {
        // One range loses all of its entries, another one none.
        if !(3_000..3_500).contains(&n) {
            txn.delete(RECORD, key, Guard::Checked).unwrap();
        }
    }
    for key in &keys[1_000..1_003] {
        txn.delete(RECORD, key, Guard::Checked).unwrap();
    }
    txn.commit().unwrap();
    let txn = begin(engine);
    for direction in BOTH {
        let mut ranges: Vec<KeyRange> = keys
            .chunks(500)
            .map(|chunk| KeyRange { start: chunk[0].to_vec(), end: chunk[450].to_vec() })
            .collect();
        if direction == Direction::Backward {
            ranges.reverse();
        }
        let mut expected = Vec::new();
        for (at, range) in ranges.iter().enumerate() {
            expected.extend(all(&*txn, range, direction).into_iter().map(|(key, _)| (at, key)));
        }
        assert_eq!(expected.len(), 450 + 10 * 3);
        let mut seen = Vec::new();
        let end = txn.scan_ranges(RECORD, &ranges, (direction, 16), &mut |at, key, _| {
            seen.push((at, key.to_vec()));
            ControlFlow::Continue(())
        });
        assert_eq!(end, Ok((ranges.len() - 1, ScanEnd::Exhausted)));
        assert_eq!(seen, expected, "{direction:?}");
    }
}
