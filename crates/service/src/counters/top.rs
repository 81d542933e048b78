//! How often and how long each collection is used, and the whole server by kind of work: `top` and `opLatencies`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

use crate::counters::histogram::Histogram;

/// Most namespaces that are kept apart.
const MOST_NAMESPACES: usize = 10_000;

/// What an operation does.
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
    /// All, in the order in which they are shown.
    pub const ALL: [Use; 6] =
        [Use::Queries, Use::GetMore, Use::Insert, Use::Update, Use::Remove, Use::Commands];

    /// As `top` calls it.
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

/// Operations and the time that they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Microseconds.
    pub micros: i64,
    /// Operations.
    pub count: i64,
}

impl Usage {
    fn add(&mut self, other: Usage) {
        self.micros += other.micros;
        self.count += other.count;
    }
}

/// The use of one namespace.
#[derive(Clone, Copy, Debug, Default)]
pub struct NamespaceUse([Usage; 6]);

impl NamespaceUse {
    /// One kind.
    pub fn of(&self, kind: Use) -> Usage {
        self.0[kind as usize]
    }

    /// Everything, only what reads, only what writes.
    pub fn sums(&self) -> [Usage; 3] {
        let mut sums = [Usage::default(); 3];
        for kind in Use::ALL {
            sums[0].add(self.of(kind));
            sums[if kind.writes() { 2 } else { 1 }].add(self.of(kind));
        }
        sums
    }
}

/// What is known of one namespace.
#[derive(Default)]
struct Namespace {
    used: NamespaceUse,
    latencies: Box<Latencies>,
}

/// How long operations on one namespace took, and how often all of it was scanned.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// Those that read, those that write, all others: time and number.
    pub sums: [Usage; 3],
    /// The same by ranges.
    pub histograms: [Histogram; 3],
    /// Scans of the whole collection.
    pub scans: i64,
    /// Those that did not wait at its end.
    pub ending_scans: i64,
}

/// A scan of a whole collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// There was none.
    None,
    /// To the end.
    Ending,
    /// That waits there.
    Tailing,
}

/// An operation that is over.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// What it did.
    pub kind: Use,
    /// Whether it is a command that does nothing but read documents: it counts among those that read.
    pub reads: bool,
    /// How long, in microseconds.
    pub micros: i64,
    /// Whether it looked at everything.
    pub scan: Scan,
}

impl Namespace {
    fn add(&mut self, done: Done) {
        let used = Usage { micros: done.micros, count: 1 };
        self.used.0[done.kind as usize].add(used);
        let at = match done.kind {
            Use::Queries | Use::GetMore => 0,
            Use::Commands if done.reads => 0,
            Use::Insert | Use::Update | Use::Remove => 1,
            Use::Commands => 2,
        };
        self.latencies.sums[at].add(used);
        self.latencies.histograms[at].add(done.micros);
        self.latencies.scans += i64::from(done.scan != Scan::None);
        self.latencies.ending_scans += i64::from(done.scan == Scan::Ending);
    }
}

/// Operations of one kind of work on the whole server.
#[derive(Default)]
pub struct Latency {
    micros: AtomicI64,
    count: AtomicI64,
}

impl Latency {
    fn add(&self, micros: i64) {
        self.micros.fetch_add(micros, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// As it is now.
    pub fn get(&self) -> Usage {
        Usage {
            micros: self.micros.load(Ordering::Relaxed),
            count: self.count.load(Ordering::Relaxed),
        }
    }
}

/// All use since the start.
#[derive(Default)]
pub struct Top {
    namespaces: Mutex<HashMap<Box<str>, Namespace>>,
    /// Operations that read.
    pub reads: Latency,
    /// Operations that write.
    pub writes: Latency,
    /// All others.
    pub commands: Latency,
}

impl Top {
    /// Counts an operation; those on no collection count for the server only. `exists` says of a namespace whether there is a collection
    /// or a view of this name; others are not kept.
    pub fn record(
        &self,
        namespace: Option<(&str, &str)>,
        done: Done,
        exists: impl Fn(&str) -> bool,
    ) {
        let micros = done.micros;
        match done.kind {
            Use::Queries | Use::GetMore => self.reads.add(micros),
            Use::Commands if done.reads => self.reads.add(micros),
            Use::Insert | Use::Update | Use::Remove => self.writes.add(micros),
            Use::Commands => self.commands.add(micros),
        }
        let Some((db, collection)) = namespace else { return };
        // Joined on the stack: names are short, and nothing is allocated for a namespace that is known.
        let mut joined = [0u8; mayfly_base::limits::MAX_NAMESPACE_BYTES];
        let len = db.len() + 1 + collection.len();
        let Some(text) = joined.get_mut(..len) else { return };
        text[..db.len()].copy_from_slice(db.as_bytes());
        text[db.len()] = b'.';
        text[db.len() + 1..].copy_from_slice(collection.as_bytes());
        let Ok(text) = std::str::from_utf8(text) else { return };
        let mut namespaces = self.namespaces.lock();
        if let Some(entry) = namespaces.get_mut(text) {
            entry.add(done);
        } else if namespaces.len() < MOST_NAMESPACES && exists(text) {
            namespaces.entry(text.into()).or_default().add(done);
        }
    }

    /// A collection or a view was dropped or renamed: one that is created under its name begins with zeros.
    pub fn forget(&self, namespace: &str) {
        self.namespaces.lock().remove(namespace);
    }

    /// Forgets all namespaces but these.
    pub fn forget_others(&self, exists: impl Fn(&str) -> bool) {
        self.namespaces.lock().retain(|name, _| exists(name));
    }

    /// How long operations on a namespace took.
    pub fn latencies(&self, namespace: &str) -> Latencies {
        let namespaces = self.namespaces.lock();
        namespaces.get(namespace).map(|it| (*it.latencies).clone()).unwrap_or_default()
    }

    /// All namespaces, ascending by name.
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
