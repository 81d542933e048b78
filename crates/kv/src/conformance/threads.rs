//! Many threads with retries: no lost updates, no partially visible commits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{Make, begin, get, now, put, retry};
use crate::{Engine, Guard, Keyspace};

fn number(value: Option<Vec<u8>>) -> i64 {
    value.map_or(0, |bytes| i64::from_be_bytes(bytes.try_into().expect("eight bytes")))
}

pub(super) fn no_lost_increments(make: &Make<'_>) {
    const THREADS: i64 = 4;
    const EACH: i64 = 200;
    let engine = &*make();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for n in 0..EACH {
                    let key = [(n % 3) as u8];
                    retry(engine, |txn| {
                        let next = number(get(txn, &key)) + 1;
                        put(txn, &key, &next.to_be_bytes())
                    });
                }
            });
        }
    });
    let sum: i64 = (0..3_u8).map(|key| number(now(engine, &[key]))).sum();
    assert_eq!(sum, THREADS * EACH, "every increment counts once");
}

/// Two keys always change together. A snapshot never shows them apart, and a transaction that read
/// them before they changed never overwrites them.
pub(super) fn begin_races_with_commit(make: &Make<'_>) {
    let engine = &*make();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..400 {
                    retry(engine, |txn| {
                        let next = number(get(txn, b"left")) + 1;
                        put(txn, b"left", &next.to_be_bytes())?;
                        txn.put(Keyspace::Record, b"right", &next.to_be_bytes(), Guard::Derived)
                    });
                }
                done.store(true, Ordering::Release);
            });
        }
        scope.spawn(|| {
            let mut last = 0;
            while !done.load(Ordering::Acquire) {
                let txn = begin(engine);
                let (left, right) = (number(get(&*txn, b"left")), number(get(&*txn, b"right")));
                assert_eq!(left, right, "a commit shows as a whole");
                assert!(left >= last, "a later snapshot is not older");
                last = left;
            }
        });
    });
    assert_eq!(number(now(engine, b"left")), 800);
}

/// Transfers between accounts. Holds for the chaos engine too: a transfer that is run again keeps
/// the sum.
pub(super) fn transfers_keep_the_sum(make: &Make<'_>) {
    transfers(&*make());
}

/// The body of the last case, for an engine that may answer
/// [`CommitUnknown`](crate::KvError::CommitUnknown).
pub fn transfers(engine: &dyn Engine) {
    const ACCOUNTS: u8 = 5;
    const START: i64 = 1_000;
    retry(engine, |txn| {
        (0..ACCOUNTS).try_for_each(|account| put(txn, &[account], &START.to_be_bytes()))
    });
    thread::scope(|scope| {
        for worker in 0..3_u8 {
            scope.spawn(move || {
                for n in 0..150_u8 {
                    let from = [n.wrapping_mul(7).wrapping_add(worker) % ACCOUNTS];
                    let to = [(from[0] + 1 + n % (ACCOUNTS - 1)) % ACCOUNTS];
                    retry(engine, |txn| {
                        let (a, b) = (number(get(txn, &from)), number(get(txn, &to)));
                        put(txn, &from, &(a - 1).to_be_bytes())?;
                        put(txn, &to, &(b + 1).to_be_bytes())
                    });
                    let txn = begin(engine);
                    let sum: i64 =
                        (0..ACCOUNTS).map(|account| number(get(&*txn, &[account]))).sum();
                    assert_eq!(sum, i64::from(ACCOUNTS) * START, "the sum in every snapshot");
                }
            });
        }
    });
}

/// Several threads read one held snapshot while others write: all of them read the same values.
pub(super) fn held_snapshot(make: &Make<'_>) {
    let engine = &*make();
    retry(engine, |txn| put(txn, b"k", &7_i64.to_be_bytes()));
    let held = engine.hold().expect("hold answers");
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 100..300_i64 {
                retry(engine, |txn| put(txn, b"k", &n.to_be_bytes()));
            }
        });
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let txn = held.begin().expect("a held snapshot begins");
                    assert_eq!(number(get(&*txn, b"k")), 7);
                }
            });
        }
    });
    assert_eq!(number(now(engine, b"k")), 299);
}
