//! The blocking sort. It buffers rows up to the memory limit, and spills where that is allowed.
//!
//! Rows are bytes in one arena. In a top-k sort, a document that cannot be among the first k is not
//! copied.

use std::sync::atomic::Ordering;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_mql::SortPattern;
use mayfly_runs::Merge;
use mayfly_value::RawDoc;
use mayfly_work::OpCtx;
use mayfly_work::spill::Operator;

use super::spill::{parts, row};
use super::{Budget, MemoryStats, Share};
use crate::language::metadata::Metadata;
use crate::language::needed::Fields;

/// Collects documents, then returns them in order.
pub(crate) struct Sorter {
    /// The sort pattern; `None` if documents are added with keys.
    pattern: Option<SortPattern>,
    /// Number of results for a top-k sort.
    keep: Option<u64>,
    operator: Operator,
    share: Share,
    rows: mayfly_runs::Sorter,
    /// Bytes of all documents.
    bytes: u64,
    key: Vec<u8>,
}

impl Sorter {
    /// A sort by a pattern.
    pub(crate) fn new(pattern: SortPattern, keep: Option<u64>, budget: &Budget) -> Sorter {
        Sorter { pattern: Some(pattern), ..Sorter::by_keys(keep, budget, Operator::Sort) }
    }

    /// A sort of documents that are added with keys.
    pub(crate) fn by_keys(keep: Option<u64>, budget: &Budget, operator: Operator) -> Sorter {
        let first = keep.and_then(|keep| usize::try_from(keep).ok());
        let rows = first.map_or_else(mayfly_runs::Sorter::new, mayfly_runs::Sorter::first);
        let share = budget.share(operator);
        Sorter { pattern: None, keep, operator, share, rows, bytes: 0, key: Vec::new() }
    }

    /// Adds a document.
    ///
    /// # Errors
    /// 292 QueryExceededMemoryLimitNoDiskUseAllowed, errors of files and of the operation's
    /// deadline.
    pub(crate) fn push(
        &mut self,
        document: RawDoc<'_>,
        metadata: &Metadata,
        op: &OpCtx,
    ) -> Result<()> {
        self.push_fields(document, metadata, None, op)
    }

    /// Adds only `fields` of a document, which include those of the sort; `None` adds all.
    ///
    /// # Errors
    /// As [`Sorter::push`].
    pub(crate) fn push_fields(
        &mut self,
        document: RawDoc<'_>,
        metadata: &Metadata,
        fields: Option<&Fields>,
        op: &OpCtx,
    ) -> Result<()> {
        if let Some(pattern) = &self.pattern {
            pattern.check(document)?;
        }
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        if let Some(pattern) = &self.pattern {
            pattern.append_sort_key(metadata.frame(document), &mut key);
        }
        let pushed = match fields {
            Some(fields) if self.rows.wants(&key) => {
                self.push_keyed(&key, fields.of(document).as_doc(), metadata, op)
            }
            _ => self.push_keyed(&key, document, metadata, op),
        };
        self.key = key;
        pushed
    }

    /// Adds a document with its key.
    ///
    /// # Errors
    /// As [`Sorter::push`].
    pub(crate) fn push_keyed(
        &mut self,
        key: &[u8],
        document: RawDoc<'_>,
        metadata: &Metadata,
        op: &OpCtx,
    ) -> Result<()> {
        self.rows.push_parts(key, &parts(document, metadata));
        self.bytes += document.as_bytes().len() as u64;
        if self.share.is_over(self.rows.memory_bytes()) {
            self.make_room(op)?;
        }
        Ok(())
    }

    fn make_room(&mut self, op: &OpCtx) -> Result<()> {
        let before = self.rows.memory_bytes();
        self.rows.cut();
        let bytes = self.rows.memory_bytes();
        // If less than half was freed, the limit would soon be exceeded again.
        let in_memory = bytes <= before / 2 || !self.share.may_spill();
        if in_memory {
            self.share.set(bytes);
            if !self.share.is_over(bytes) {
                return Ok(());
            }
        }
        let Some(folder) = self.share.folder()? else { return Err(self.share.failure(too_much)) };
        let before = self.rows.spilled();
        self.rows.spill(folder, &|| op.check())?;
        self.share.count(op, self.rows.spilled().since(before));
        self.share.set(0);
        Ok(())
    }

    /// Returns all documents in order. Documents with equal keys keep their order of insertion.
    ///
    /// # Errors
    /// Errors of files and of the operation's deadline.
    pub(crate) fn finish(self, op: &OpCtx) -> Result<Sorted> {
        // The order of `$sample` is not a sort that the client requested.
        let by_chance = self.pattern.is_none() && self.keep.is_some();
        if matches!(self.operator, Operator::Sort | Operator::WindowFields) && !by_chance {
            op.has_sort_stage.store(true, Ordering::Relaxed);
            op.keys_sorted.fetch_add(self.rows.len(), Ordering::Relaxed);
            op.bytes_sorted.fetch_add(self.bytes, Ordering::Relaxed);
        }
        let left = self.keep.unwrap_or(u64::MAX);
        let rows_len = self.rows.len();
        let merge = self.rows.merge(&|| op.check())?;
        let mut share = self.share;
        share.set(merge.memory_bytes());
        let sorted = (rows_len, self.bytes);
        Ok(Sorted { merge, left, share: Some(share), sorted })
    }
}

fn too_much(limit: usize) -> Error {
    let text = format!(
        "Sort exceeded memory limit of {limit} bytes, but did not opt in to external sorting."
    );
    Error::new(ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed, text)
}

/// Statistics of a sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SortStats {
    /// Memory and spills.
    pub memory: MemoryStats,
    /// Number of input documents.
    pub documents: u64,
    /// Their size in bytes.
    pub bytes: u64,
}

/// Sorted documents.
#[derive(Default)]
pub(crate) struct Sorted {
    merge: Merge,
    left: u64,
    /// Memory of the rows that are not spilled.
    share: Option<Share>,
    sorted: (u64, u64),
}

impl Sorted {
    /// The next document.
    ///
    /// # Errors
    /// Errors of files.
    pub(crate) fn next(&mut self) -> Result<Option<(RawDoc<'_>, Metadata)>> {
        if self.is_empty() {
            // Later stages may run for long, so the memory is released.
            self.merge = Merge::default();
            if let Some(share) = &mut self.share {
                share.set(0);
            }
            return Ok(None);
        }
        self.left -= 1;
        self.merge.next()?.map(|(_, bytes)| row(bytes)).transpose()
    }

    /// Writes the documents in memory to a file.
    ///
    /// # Errors
    /// 292 QueryExceededMemoryLimitNoDiskUseAllowed without files; errors of files and of the
    /// operation's deadline.
    pub(crate) fn spill(&mut self, op: &OpCtx) -> Result<()> {
        let bytes = self.merge.memory_bytes();
        let Some(share) = self.share.as_mut().filter(|_| bytes > 0 && !self.merge.is_over()) else {
            return Ok(());
        };
        share.set(bytes);
        let Some(folder) = share.folder()? else { return Err(too_much(share.limit())) };
        let spilled = self.merge.spill(folder, &|| op.check())?;
        share.count(op, spilled);
        share.set(self.merge.memory_bytes());
        Ok(())
    }

    /// The statistics of the sort.
    pub(crate) fn stats(&self) -> SortStats {
        let memory = self.share.as_ref().map(Share::stats).unwrap_or_default();
        SortStats { memory, documents: self.sorted.0, bytes: self.sorted.1 }
    }

    /// Whether no document is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0 || self.merge.is_over()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mayfly_base::ManualClock;
    use mayfly_value::{DocBuf, DocBuilder, RawValue};

    use super::*;
    use crate::memory::MemoryLimits;

    fn sorted(memory: &Budget, keep: Option<u64>) -> Result<Vec<(i32, i32)>> {
        let op = OpCtx::detached(Arc::new(ManualClock::at_ms(0)));
        let pattern = mayfly_value::bson::doc! { "a": 1 };
        let pattern = SortPattern::parse(DocBuf::from_bson(&pattern).as_doc())?;
        let mut sorter = Sorter::new(pattern, keep, memory);
        for n in 0..2000 {
            let mut document = DocBuilder::new();
            document.append("a", (n * 7919) % 100).append("n", n);
            sorter.push(document.finish().as_doc(), &Metadata::NONE, &op)?;
        }
        let mut sorted = sorter.finish(&op)?;
        let mut out = Vec::new();
        while let Some((document, _)) = sorted.next()? {
            let number = |name: &str| match document.get(name) {
                Some(RawValue::Int32(n)) => n,
                other => panic!("{other:?}"),
            };
            out.push((number("a"), number("n")));
        }
        assert!(sorted.is_empty());
        Ok(out)
    }

    #[test]
    fn files_give_the_same_order_as_memory() {
        let folder = Some(std::env::temp_dir());
        let in_memory = sorted(&Budget::default(), None).unwrap();
        assert_eq!(in_memory.len(), 2000);
        assert!(in_memory.is_sorted(), "equal keys keep their order");
        let small = Budget::new(MemoryLimits::default().with_all(10_000), folder);
        assert_eq!(sorted(&small, None).unwrap(), in_memory);
        let spilled = small.spilled(Operator::Sort);
        assert!(spilled.spills > 5 && spilled.records > 1000, "{spilled:?}");
        assert_eq!(sorted(&small, Some(300)).unwrap(), in_memory[..300]);
        assert_eq!(small.used(), 0);
    }

    #[test]
    fn a_sort_reports_the_memory_it_took() {
        let op = OpCtx::detached(Arc::new(ManualClock::at_ms(0)));
        let folder = Some(std::env::temp_dir());
        let budget = Budget::new(MemoryLimits::default().with_all(1000), folder);
        let mut sorter = Sorter::by_keys(None, &budget, Operator::Sort);
        let mut document = DocBuilder::new();
        document.append("n", 1);
        let document = document.finish();
        for key in 0..100u8 {
            sorter.push_keyed(&[key], document.as_doc(), &Metadata::NONE, &op).unwrap();
        }
        let mut sorted = sorter.finish(&op).unwrap();
        let stats = sorted.stats();
        assert_eq!((stats.documents, stats.bytes), (100, 100 * 12));
        assert_eq!(stats.memory.limit, 1000);
        assert_eq!(stats.memory.spilled, budget.spilled(Operator::Sort));
        assert!(stats.memory.peak > 1000 && stats.memory.spilled.records > 80, "{stats:?}");
        assert!(op.has_sort_stage.load(Ordering::Relaxed));
        while sorted.next().unwrap().is_some() {}
        assert_eq!((budget.used(), sorted.stats()), (0, stats));
        assert_eq!(op.keys_sorted.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn without_files_it_fails() {
        let small = Budget::new(MemoryLimits::default().with_all(10_000), None);
        let error = sorted(&small, None).unwrap_err();
        assert_eq!(error.code(), ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed);
        assert_eq!(sorted(&small, Some(10)).unwrap().len(), 10);
    }
}
