//! How many times the server's main paths allocate, compared with the counts kept in
//! `crates/bench/allocations.txt`. The paths are those of `scripts/instructions`
//! (`examples/paths`).
//!
//! Only the allocations of Rust code on the thread that runs the commands are counted, not those of
//! RocksDB's own code. A count is an average: a buffer that doubles now and then adds a fraction.
//! A path that allocates more often than the kept count fails, as does one that allocates more
//! often than its limit. `ALLOCATIONS=write` writes the file.

#[path = "../examples/paths/documents.rs"]
mod documents;
#[path = "../examples/paths/path.rs"]
mod path;
#[path = "../examples/paths/server.rs"]
mod server;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use mayfly_base::testing::crate_folder;
use mayfly_testkit::environment;
use path::{Path, Work};
use server::Server;

/// Counts the calls that allocate, and forwards all calls to the system's allocator.
struct CountingCalls;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count_call() {
    CALLS.with(|calls| calls.set(calls.get() + 1));
}

#[allow(
    unsafe_code,
    reason = "an allocator is an unsafe trait; counting neither allocates nor looks at the memory"
)]
// SAFETY: the system's guarantees hold, because its results are returned unchanged.
unsafe impl GlobalAlloc for CountingCalls {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_call();
        // SAFETY: the caller's guarantees are the preconditions of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_call();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_call();
        // SAFETY: as above.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingCalls = CountingCalls;

/// The most allocations of an operation, whatever the kept counts are. Each command has four: its
/// context in the registry of operations, and for `currentOp` its namespace, its text and its
/// session.
const LIMITS: &[(&str, f64)] = &[("ping", 4.0), ("find-id", 16.0), ("update-inc", 30.0)];

/// How far a count may be above the kept one: less than one allocation in ten operations.
const TOLERANCE: f64 = 0.1;

#[test]
fn no_path_allocates_more_often_than_before() {
    let file = crate_folder().join("allocations.txt");
    let selected = environment::selected("PATHS", path::ALL.iter().collect(), |it| it.name.into());
    let counts: Vec<(&Path, f64)> = selected.into_iter().map(|it| (it, count(it))).collect();
    let table = table(&counts);
    println!("{table}");
    for (path, count) in &counts {
        if let Some((_, limit)) = LIMITS.iter().find(|(name, _)| *name == path.name) {
            assert!(count <= limit, "{}: {count:.1} allocations, at most {limit}", path.name);
        }
    }
    if environment::text("ALLOCATIONS").as_deref() == Some("write") {
        fs::write(&file, table).expect("the file can be written");
        return;
    }
    let kept = fs::read_to_string(&file).expect("the counts are kept");
    let kept = read(&kept);
    for (path, count) in &counts {
        let kept = kept.get(path.name).unwrap_or_else(|| panic!("{} is not kept", path.name));
        assert!(
            *count <= kept + TOLERANCE,
            "{}: {count:.1} allocations, {kept:.1} before; ALLOCATIONS=write writes {}",
            path.name,
            file.display()
        );
    }
}

/// Allocations of each unit of a path.
fn count(path: &Path) -> f64 {
    let mut server = Server::new();
    let calls = match (path.prepare)(&mut server, path.iterations) {
        Work::Messages { messages, check } => {
            // The first message fills caches.
            let (first, messages) = messages.split_first().expect("a path has messages");
            server.serve(first);
            let before = CALLS.get();
            messages.iter().for_each(|message| server.serve(message));
            let calls = CALLS.get() - before;
            check(&server.last_reply());
            calls as f64 / messages.len() as f64
        }
        Work::TtlPass => {
            let before = CALLS.get();
            server.ttl_pass();
            let calls = CALLS.get() - before;
            server.expect_expired(path.iterations);
            calls as f64 / f64::from(path.iterations)
        }
    };
    calls / f64::from(path.units)
}

fn table(counts: &[(&Path, f64)]) -> String {
    let mut out = String::from(
        "# Allocations per operation or document, written by the test of crates/bench/tests.\n",
    );
    for (path, count) in counts {
        let _ = writeln!(out, "{:<14} {count:>10.1}   {}", path.name, path.title);
    }
    out
}

fn read(table: &str) -> BTreeMap<&str, f64> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?.parse().ok()?))
        })
        .collect()
}
