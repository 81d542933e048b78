//! Counters of the data that operators spill to files, for an operation and for the whole server.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Amounts of spilled data. Merging passes, which rewrite it, are not counted.
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
    /// Adds other amounts.
    pub fn add(&mut self, other: Spilled) {
        self.spills += other.spills;
        self.records += other.records;
        self.bytes += other.bytes;
        self.file_bytes += other.file_bytes;
    }

    /// The difference to an earlier state.
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

/// An operator that buffers documents, keys or groups, with a memory limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// A sort, and `$sample`.
    Sort,
    /// `$group` and stages that are rewritten to it.
    Group,
    /// `$bucketAuto`.
    BucketAuto,
    /// `$setWindowFields` and `$fill`.
    WindowFields,
    /// `$densify`.
    Densify,
    /// The hash table of a join without an index.
    HashLookup,
    /// The cached results of the uncorrelated stages of a `$lookup`.
    LookupCache,
    /// `$graphLookup`.
    GraphLookup,
    /// The output of a `$facet`.
    Facet,
    /// The scores of a text search.
    TextOr,
    /// Results of a distance search that are found and not yet returned.
    Near,
    /// Record ids that an index scan has returned, for deduplication.
    IndexScan,
}

impl Operator {
    /// All operators, by their numbers.
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

    /// Its name in `serverStatus`, and the prefix of the profiler's counters.
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

/// Amounts by operator; allocates with the first non-zero amount.
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
    /// Whether nothing was spilled.
    pub fn is_empty(&self) -> bool {
        self.0.get().is_none()
    }

    /// Adds amounts of one operator.
    pub fn add(&self, operator: Operator, more: Spilled) {
        if more != Spilled::default() {
            let counters = &self.0.get_or_init(Box::default)[operator as usize];
            counters.spills.fetch_add(more.spills, Ordering::Relaxed);
            counters.records.fetch_add(more.records, Ordering::Relaxed);
            counters.bytes.fetch_add(more.bytes, Ordering::Relaxed);
            counters.file_bytes.fetch_add(more.file_bytes, Ordering::Relaxed);
        }
    }

    /// The amounts of one operator.
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

    /// Adds all amounts of other counters.
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
