//! How often and how long each collection is used, and the whole server by kind of work: `top` and `opLatencies`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

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
    namespaces: Mutex<HashMap<Box<str>, NamespaceUse>>,
    /// Operations that read.
    pub reads: Latency,
    /// Operations that write.
    pub writes: Latency,
    /// All others.
    pub commands: Latency,
}

impl Top {
    /// Counts an operation; those on no collection count for the server only.
    pub fn record(&self, namespace: Option<(&str, &str)>, kind: Use, micros: i64) {
        match kind {
            Use::Queries | Use::GetMore => self.reads.add(micros),
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
        let used = Usage { micros, count: 1 };
        let mut namespaces = self.namespaces.lock();
        if let Some(entry) = namespaces.get_mut(text) {
            entry.0[kind as usize].add(used);
        } else if namespaces.len() < MOST_NAMESPACES {
            let entry = namespaces.entry(text.into()).or_default();
            entry.0[kind as usize].add(used);
        }
    }

    /// All namespaces, ascending by name.
    pub fn list(&self) -> Vec<(Box<str>, NamespaceUse)> {
        let mut list: Vec<_> =
            self.namespaces.lock().iter().map(|(name, used)| (name.clone(), *used)).collect();
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
        top.record(Some(("db", "c")), Use::Queries, 5);
        top.record(Some(("db", "c")), Use::Insert, 7);
        top.record(Some(("db", &"x".repeat(300))), Use::Insert, 1);
        top.record(None, Use::Commands, 3);
        let list = top.list();
        assert_eq!((list.len(), &*list[0].0), (1, "db.c"));
        let sums = list[0].1.sums();
        assert_eq!(sums.map(|sum| (sum.micros, sum.count)), [(12, 2), (5, 1), (7, 1)]);
        assert_eq!(top.writes.get(), Usage { micros: 8, count: 2 });
        assert_eq!(top.commands.get(), Usage { micros: 3, count: 1 });
    }
}
