//! The use of each collection and of the whole server, by kind of operation: `top` and
//! `opLatencies`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

use crate::counters::histogram::{Histogram, LatencyHistogram, Range, SharedHistogram};

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the fields of top")]
pub enum Use {
    Queries,
    GetMore,
    Insert,
    Update,
    Remove,
    Commands,
}

impl Use {
    /// All kinds, in the order of `top`.
    pub const ALL: [Use; 6] =
        [Use::Queries, Use::GetMore, Use::Insert, Use::Update, Use::Remove, Use::Commands];

    /// The name in `top`.
    pub fn name(self) -> &'static str {
        match self {
            Use::Queries => "queries",
            Use::GetMore => "getmore",
            Use::Insert => "insert",
            Use::Update => "update",
            Use::Remove => "remove",
            Use::Commands => "commands",
        }
    }

    fn writes(self) -> bool {
        matches!(self, Use::Insert | Use::Update | Use::Remove)
    }
}

/// A number of operations and their total time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The total time in microseconds.
    pub micros: i64,
    /// The number of operations.
    pub count: i64,
}

impl Usage {
    fn add(&mut self, other: Usage) {
        self.micros += other.micros;
        self.count += other.count;
    }
}

/// The use of one namespace, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct NamespaceUse([Usage; 6]);

impl NamespaceUse {
    /// The use of one kind.
    pub fn of(&self, kind: Use) -> Usage {
        self.0[kind as usize]
    }

    /// The sums of all operations, of reads, and of writes.
    pub fn sums(&self) -> [Usage; 3] {
        let mut sums = [Usage::default(); 3];
        for kind in Use::ALL {
            sums[0].add(self.of(kind));
            sums[if kind.writes() { 2 } else { 1 }].add(self.of(kind));
        }
        sums
    }
}

/// The counts of one namespace.
#[derive(Default)]
struct Namespace {
    used: NamespaceUse,
    latencies: Box<Latencies>,
}

/// Latencies of the operations on one namespace, and its collection scans.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// Time and number of reads, of writes, and of all other commands.
    pub sums: [Usage; 3],
    /// Histograms, in the order of `sums`.
    pub histograms: [Histogram; 3],
    /// The number of collection scans, with those of tailable cursors.
    pub scans: i64,
    /// Collection scans without a tailable cursor.
    pub ending_scans: i64,
}

/// The collection scan of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// No collection scan.
    None,
    /// A scan that ends at the last document.
    Ending,
    /// A scan by a tailable cursor, which waits for more documents.
    Tailing,
}

/// A finished operation.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// The row of `top` that the operation counts in.
    pub kind: Use,
    /// Whether it is a command that only reads documents: it counts as a read.
    pub reads: bool,
    /// Its duration in microseconds.
    pub micros: i64,
    /// Its collection scan.
    pub scan: Scan,
}

impl Namespace {
    fn add(&mut self, done: Done, range: Range) {
        let used = Usage { micros: done.micros, count: 1 };
        self.used.0[done.kind as usize].add(used);
        let at = match done.kind {
            Use::Queries | Use::GetMore => 0,
            Use::Commands if done.reads => 0,
            Use::Insert | Use::Update | Use::Remove => 1,
            Use::Commands => 2,
        };
        self.latencies.sums[at].add(used);
        self.latencies.histograms[at].add(range);
        self.latencies.scans += i64::from(done.scan != Scan::None);
        self.latencies.ending_scans += i64::from(done.scan == Scan::Ending);
    }
}

/// The latency of one kind of operations on the whole server.
#[derive(Default)]
pub struct Latency {
    micros: AtomicI64,
    histogram: SharedHistogram,
}

impl Latency {
    fn add(&self, micros: i64, range: Range) {
        self.micros.fetch_add(micros, Ordering::Relaxed);
        self.histogram.add(range);
    }

    /// The present histogram.
    pub fn histogram(&self) -> LatencyHistogram {
        self.histogram.get(self.micros.load(Ordering::Relaxed))
    }

    /// The current count and time.
    pub fn get(&self) -> Usage {
        Usage {
            micros: self.micros.load(Ordering::Relaxed),
            count: i64::try_from(self.histogram().count()).unwrap_or(i64::MAX),
        }
    }
}

/// The use of all namespaces since the start.
#[derive(Default)]
pub struct Top {
    namespaces: Mutex<HashMap<Box<str>, Namespace>>,
    /// Reads on the whole server.
    pub reads: Latency,
    /// Writes on the whole server.
    pub writes: Latency,
    /// All other commands on the whole server.
    pub commands: Latency,
}

impl Top {
    /// Counts an operation; without a namespace, for the server only. `exists` reports whether a
    /// collection or view of this name exists; other namespaces are not counted.
    pub fn record(
        &self,
        namespace: Option<(&str, &str)>,
        done: Done,
        exists: impl Fn(&str) -> bool,
    ) {
        let range = Range::of(done.micros);
        let latency = match done.kind {
            Use::Queries | Use::GetMore => &self.reads,
            Use::Commands if done.reads => &self.reads,
            Use::Insert | Use::Update | Use::Remove => &self.writes,
            Use::Commands => &self.commands,
        };
        latency.add(done.micros, range);
        let Some((db, collection)) = namespace else { return };
        // Joined on the stack: names are short, and a known namespace needs no allocation.
        let mut joined = [0u8; mayfly_base::limits::MAX_NAMESPACE_BYTES];
        let len = db.len() + 1 + collection.len();
        let Some(text) = joined.get_mut(..len) else { return };
        text[..db.len()].copy_from_slice(db.as_bytes());
        text[db.len()] = b'.';
        text[db.len() + 1..].copy_from_slice(collection.as_bytes());
        let Ok(text) = std::str::from_utf8(text) else { return };
        let mut namespaces = self.namespaces.lock();
        if let Some(entry) = namespaces.get_mut(text) {
            entry.add(done, range);
        } else if exists(text) {
            namespaces.entry(text.into()).or_default().add(done, range);
        }
    }

    /// Drops the counts of a dropped or renamed namespace, so that a new one of the same name
    /// begins at zero.
    pub fn forget(&self, namespace: &str) {
        self.namespaces.lock().remove(namespace);
    }

    /// Drops the counts of all namespaces for which `exists` is false.
    pub fn forget_others(&self, exists: impl Fn(&str) -> bool) {
        self.namespaces.lock().retain(|name, _| exists(name));
    }

    /// The latencies of the operations on a namespace.
    pub fn latencies(&self, namespace: &str) -> Latencies {
        let namespaces = self.namespaces.lock();
        namespaces.get(namespace).map(|it| (*it.latencies).clone()).unwrap_or_default()
    }

    /// The use of all namespaces, ascending by name.
    pub fn list(&self) -> Vec<(Box<str>, NamespaceUse)> {
        let mut list: Vec<_> =
            self.namespaces.lock().iter().map(|(name, it)| (name.clone(), it.used)).collect();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_reads_and_writes_apart() {
        let top = Top::default();
        let done = |kind, micros| Done { kind, reads: false, micros, scan: Scan::None };
        let all = |_: &str| true;
        let queried = Done { scan: Scan::Tailing, ..done(Use::Queries, 5) };
        top.record(Some(("db", "c")), queried, all);
        top.record(Some(("db", "c")), done(Use::Insert, 7), all);
        top.record(Some(("db", &"x".repeat(300))), done(Use::Insert, 1), all);
        top.record(None, done(Use::Commands, 3), all);
        top.record(Some(("db", "not there")), done(Use::Commands, 0), |_| false);
        let latencies = top.latencies("db.c");
        assert_eq!(latencies.sums[1], Usage { micros: 7, count: 1 });
        assert_eq!(latencies.histograms[0].ranges().collect::<Vec<_>>(), [(4, 1)]);
        assert_eq!((latencies.scans, latencies.ending_scans), (1, 0));
        let list = top.list();
        assert_eq!((list.len(), &*list[0].0), (1, "db.c"));
        let sums = list[0].1.sums();
        assert_eq!(sums.map(|sum| (sum.micros, sum.count)), [(12, 2), (5, 1), (7, 1)]);
        assert_eq!(top.writes.get(), Usage { micros: 8, count: 2 });
        assert_eq!(top.commands.get(), Usage { micros: 3, count: 2 });
        top.forget_others(|name| name != "db.c");
        assert!(top.list().is_empty());
    }
}
