//! The conformance suite: cases that an engine's tests run against fresh stores.
//!
//! [`run`] runs all of [`CASES`]. An engine passes when nothing panics; the messages name the case.
//! Cases use the contract only, and accept a conflict at the write or at the commit.

mod isolation;
mod plain;
mod retired;
mod scans;
mod threads;

use std::ops::ControlFlow;
use std::sync::Arc;

pub use threads::transfers;

use crate::{
    Direction, Engine, Guard, KeyRange, Keyspace, KvError, KvResult, ScanEnd, ScanLimit, Txn,
    TxnOptions,
};

/// Creates a fresh, empty store.
pub type Make<'m> = dyn Fn() -> Arc<dyn Engine> + 'm;

/// A name and a case.
pub type Case = (&'static str, fn(&Make<'_>));

/// All cases, in the order in which they run.
pub const CASES: &[Case] = &[
    ("get put delete", plain::get_put_delete),
    ("own writes", plain::own_writes),
    ("many own writes", plain::many_own_writes),
    ("multi get", plain::multi_get),
    ("multi get in any order", plain::multi_get_in_any_order),
    ("get through", plain::get_through),
    ("gaps", plain::gaps),
    ("keyspaces are apart", plain::keyspaces_are_apart),
    ("extreme sizes", plain::extreme_sizes),
    ("read only", plain::read_only),
    ("sweep", plain::sweep),
    ("ingest", plain::ingest),
    ("close", plain::close),
    ("retired records are hidden", retired::hidden_from_reads),
    ("a scan pauses among retired records", retired::pauses),
    ("retirements conflict", retired::conflicts),
    ("retired runs against a model", retired::against_a_model),
    ("scan both directions", scans::both_directions),
    ("scan bounds", scans::bounds),
    ("scan limits", scans::limits),
    ("scan continues in a later snapshot", scans::continues_later),
    ("scan merges own writes", scans::merges_own_writes),
    ("scan against a model", scans::against_a_model),
    ("counts", scans::counts),
    ("ranges between deleted entries", scans::ranges_between_deleted_entries),
    ("snapshot is stable", isolation::snapshot_is_stable),
    ("a held snapshot serves many", isolation::held_snapshot),
    ("a snapshot for an export", isolation::snapshot_for_export),
    ("a held snapshot on other threads", threads::held_snapshot),
    ("write-write conflict", isolation::write_write),
    ("conflict with a later commit", isolation::later_commit),
    ("insert-insert conflict", isolation::insert_insert),
    ("delete conflicts", isolation::delete_conflicts),
    ("lock conflicts", isolation::lock_conflicts),
    ("locked reads", isolation::locked_reads),
    ("locked reads through an index", isolation::locked_reads_through),
    ("inserts find nothing", isolation::inserts),
    ("drop rolls back", isolation::drop_rolls_back),
    ("derived keys", isolation::derived_keys),
    ("derived writes replace newer ones", isolation::derived_writes_replace),
    ("disjoint writers", isolation::disjoint_writers),
    ("no lost increments", threads::no_lost_increments),
    ("begin races with commit", threads::begin_races_with_commit),
    ("transfers keep the sum", threads::transfers_keep_the_sum),
];

/// Runs every case.
pub fn run(make: &Make<'_>) {
    for (name, case) in CASES {
        println!("conformance: {name}");
        case(make);
    }
}

const RECORD: Keyspace = Keyspace::Record;

fn begin(engine: &dyn Engine) -> Box<dyn Txn> {
    engine.begin(TxnOptions::default()).expect("begin answers")
}

fn put(txn: &mut dyn Txn, key: &[u8], value: &[u8]) -> KvResult<()> {
    txn.put(RECORD, key, value, Guard::Checked)
}

/// Commits these entries.
fn fill(engine: &dyn Engine, entries: &[(&[u8], &[u8])]) {
    let mut txn = begin(engine);
    for (key, value) in entries {
        put(&mut *txn, key, value).expect("there is no other writer");
    }
    txn.commit().expect("there is no other writer");
}

fn get(txn: &dyn Txn, key: &[u8]) -> Option<Vec<u8>> {
    let mut seen = None;
    let found =
        txn.get(RECORD, key, &mut |value| seen = Some(value.to_vec())).expect("get answers");
    assert_eq!(found, seen.is_some(), "get says whether the closure saw a value");
    seen
}

/// The value that a new transaction reads.
fn now(engine: &dyn Engine, key: &[u8]) -> Option<Vec<u8>> {
    let value = get(&*begin(engine), key);
    let mut once = None;
    engine
        .get_once(RECORD, key, &mut |value| once = Some(value.to_vec()))
        .expect("get_once answers");
    assert_eq!(once, value, "get_once and a new transaction agree");
    value
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn page(
    txn: &dyn Txn,
    range: &KeyRange,
    direction: Direction,
    limit: ScanLimit,
) -> (Entries, ScanEnd) {
    let mut entries = Vec::new();
    let end = txn
        .scan(RECORD, range, direction, limit, &mut |key, value| {
            entries.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })
        .expect("scan answers");
    (entries, end)
}

/// All entries of a range, read page by page.
fn all(txn: &dyn Txn, range: &KeyRange, direction: Direction) -> Entries {
    let (mut entries, mut end) = page(txn, range, direction, ScanLimit::NONE);
    while let ScanEnd::More { last_key } = end {
        let (more, next_end) =
            page(txn, &range.after(&last_key, direction), direction, ScanLimit::NONE);
        entries.extend(more);
        end = next_end;
    }
    entries
}

fn whole() -> KeyRange {
    KeyRange { start: Vec::new(), end: vec![0xFF; 300] }
}

/// Whether a write and the commit after it end in a conflict, wherever the engine reports it.
fn conflicts(mut txn: Box<dyn Txn>, write: impl FnOnce(&mut dyn Txn) -> KvResult<()>) -> bool {
    match write(&mut *txn).and_then(|()| txn.commit()) {
        Ok(()) => false,
        Err(KvError::Conflict | KvError::TooOld) => true,
        Err(other) => panic!("expected success or a conflict, got: {other}"),
    }
}

/// Runs a body until it commits. The body must handle an unknown outcome itself, because it is run
/// again then.
fn retry(engine: &dyn Engine, mut body: impl FnMut(&mut dyn Txn) -> KvResult<()>) {
    loop {
        let mut txn = begin(engine);
        match body(&mut *txn).and_then(|()| txn.commit()) {
            Ok(()) => return,
            Err(KvError::Conflict | KvError::TooOld | KvError::CommitUnknown(_)) => {
                std::thread::yield_now();
            }
            Err(other) => panic!("expected success or a conflict, got: {other}"),
        }
    }
}
