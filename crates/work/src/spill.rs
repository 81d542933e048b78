//! What operators write into files because their memory is used up: counted for an operation, and for the whole server.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// What was written into files because memory did not suffice. What merging rewrites does not count again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spilled {
    /// How often memory was emptied into a file.
    pub spills: u64,
    /// Entries that were written.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Bytes of the files.
    pub file_bytes: u64,
}

impl Spilled {
    /// Adds what was written elsewhere.
    pub fn add(&mut self, other: Spilled) {
        self.spills += other.spills;
        self.records += other.records;
        self.bytes += other.bytes;
        self.file_bytes += other.file_bytes;
    }

    /// What was written since.
    #[must_use]
    pub fn since(self, before: Spilled) -> Spilled {
        Spilled {
            spills: self.spills - before.spills,
            records: self.records - before.records,
            bytes: self.bytes - before.bytes,
            file_bytes: self.file_bytes - before.file_bytes,
        }
    }
}

/// An operator that keeps documents, keys or groups, and has a limit of its own for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// A sort, and `$sample`.
    Sort,
    /// `$group` and what is made of it.
    Group,
    /// `$bucketAuto`.
    BucketAuto,
    /// `$setWindowFields` and `$fill`.
    WindowFields,
    /// `$densify`.
    Densify,
    /// The table of a join that no index serves.
    HashLookup,
    /// What a `$lookup` keeps of stages that give the same for each document.
    LookupCache,
    /// `$graphLookup`.
    GraphLookup,
    /// The output of a `$facet`.
    Facet,
    /// The scores of a text search.
    TextOr,
    /// What a search by distance has found and not shown.
    Near,
    /// Records that an index has shown.
    IndexScan,
}

impl Operator {
    /// All of them.
    pub const ALL: [Operator; 12] = [
        Operator::Sort,
        Operator::Group,
        Operator::BucketAuto,
        Operator::WindowFields,
        Operator::Densify,
        Operator::HashLookup,
        Operator::LookupCache,
        Operator::GraphLookup,
        Operator::Facet,
        Operator::TextOr,
        Operator::Near,
        Operator::IndexScan,
    ];

    /// Its name in `serverStatus` and before the counters of the profiler.
    pub fn name(self) -> &'static str {
        match self {
            Operator::Sort => "sort",
            Operator::Group => "group",
            Operator::BucketAuto => "bucketAuto",
            Operator::WindowFields => "setWindowFields",
            Operator::Densify => "densify",
            Operator::HashLookup => "hashLookup",
            Operator::LookupCache => "lookupCache",
            Operator::GraphLookup => "graphLookup",
            Operator::Facet => "facet",
            Operator::TextOr => "textOr",
            Operator::Near => "near",
            Operator::IndexScan => "indexScan",
        }
    }
}

/// Counts by operator; takes memory only when something is counted.
#[derive(Debug, Default)]
pub struct SpillCounters(OnceLock<Box<[Counters; Operator::ALL.len()]>>);

#[derive(Debug, Default)]
struct Counters {
    spills: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
    file_bytes: AtomicU64,
}

impl SpillCounters {
    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.0.get().is_none()
    }

    /// Counts what an operator wrote.
    pub fn add(&self, operator: Operator, more: Spilled) {
        if more != Spilled::default() {
            let counters = &self.0.get_or_init(Box::default)[operator as usize];
            counters.spills.fetch_add(more.spills, Ordering::Relaxed);
            counters.records.fetch_add(more.records, Ordering::Relaxed);
            counters.bytes.fetch_add(more.bytes, Ordering::Relaxed);
            counters.file_bytes.fetch_add(more.file_bytes, Ordering::Relaxed);
        }
    }

    /// What an operator wrote.
    pub fn of(&self, operator: Operator) -> Spilled {
        let Some(all) = self.0.get() else { return Spilled::default() };
        let counters = &all[operator as usize];
        Spilled {
            spills: counters.spills.load(Ordering::Relaxed),
            records: counters.records.load(Ordering::Relaxed),
            bytes: counters.bytes.load(Ordering::Relaxed),
            file_bytes: counters.file_bytes.load(Ordering::Relaxed),
        }
    }

    /// Counts what others counted.
    pub fn add_all(&self, others: &SpillCounters) {
        if !others.is_empty() {
            Operator::ALL.into_iter().for_each(|operator| self.add(operator, others.of(operator)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_counted_apart() {
        let (all, one) = (SpillCounters::default(), SpillCounters::default());
        all.add_all(&one);
        one.add(Operator::Sort, Spilled::default());
        assert!(one.is_empty() && all.is_empty());
        let more = Spilled { spills: 1, records: 2, bytes: 3, file_bytes: 4 };
        one.add(Operator::Group, more);
        all.add_all(&one);
        all.add_all(&one);
        assert_eq!(
            all.of(Operator::Group),
            Spilled { spills: 2, records: 4, bytes: 6, file_bytes: 8 }
        );
        assert_eq!(all.of(Operator::Sort), Spilled::default());
        assert_eq!(all.of(Operator::Group).since(more), more);
        for (at, operator) in Operator::ALL.into_iter().enumerate() {
            assert_eq!(operator as usize, at);
        }
    }
}
