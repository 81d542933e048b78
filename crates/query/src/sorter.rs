//! The blocking sort: keeps what it must, up to the memory limit, and goes on in files where that is allowed.

use std::collections::VecDeque;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_mql::SortPattern;
use mayfly_value::{DocBuf, RawDoc};

use crate::metadata::Metadata;
use crate::spill::{Entry, Memory, Merge, Runs};

/// Memory of a row beside its key and its document, roughly.
const ROW_BYTES: usize = 64;

/// Collects documents, then gives them in order.
pub(crate) struct Sorter {
    /// Nothing: documents come with their keys.
    pattern: Option<SortPattern>,
    /// Only so many of the first are wanted.
    keep: Option<usize>,
    memory: Memory,
    rows: Vec<Entry>,
    bytes: usize,
    runs: Option<Runs>,
}

impl Sorter {
    pub(crate) fn new(pattern: SortPattern, keep: Option<u64>, memory: Memory) -> Sorter {
        Sorter { pattern: Some(pattern), ..Sorter::by_keys(keep, memory) }
    }

    /// Documents come with their keys.
    pub(crate) fn by_keys(keep: Option<u64>, memory: Memory) -> Sorter {
        let keep = keep.and_then(|keep| usize::try_from(keep).ok());
        Sorter { pattern: None, keep, memory, rows: Vec::new(), bytes: 0, runs: None }
    }

    /// Takes one document.
    ///
    /// # Errors
    /// 292 QueryExceededMemoryLimitNoDiskUseAllowed, those of files.
    pub(crate) fn push(&mut self, document: RawDoc<'_>, metadata: &Metadata) -> Result<()> {
        let pattern = self.pattern.as_ref();
        let key = pattern.map(|pattern| pattern.sort_key(metadata.frame(document)));
        self.push_keyed(key.unwrap_or_default(), document, metadata)
    }

    /// The same without a copy.
    ///
    /// # Errors
    /// As [`Sorter::push`].
    pub(crate) fn push_owned(&mut self, document: DocBuf, metadata: &Metadata) -> Result<()> {
        let pattern = self.pattern.as_ref();
        let key = pattern.map(|pattern| pattern.sort_key(metadata.frame(document.as_doc())));
        self.push_row((key.unwrap_or_default(), document, metadata.clone()))
    }

    /// Takes one document with its key.
    ///
    /// # Errors
    /// As [`Sorter::push`].
    pub(crate) fn push_keyed(
        &mut self,
        key: Vec<u8>,
        document: RawDoc<'_>,
        metadata: &Metadata,
    ) -> Result<()> {
        self.push_row((key, document.to_owned(), metadata.clone()))
    }

    fn push_row(&mut self, row: Entry) -> Result<()> {
        self.bytes += row_bytes(&row);
        self.rows.push(row);
        if let Some(keep) = self.keep
            && self.rows.len() >= keep.saturating_mul(2).saturating_add(1024)
        {
            self.cut(keep);
        }
        if self.bytes > self.memory.bytes {
            if let Some(keep) = self.keep {
                self.cut(keep);
            }
            if self.bytes > self.memory.bytes {
                self.spill()?;
            }
        }
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        let Some(folder) = &self.memory.folder else {
            return Err(Error::new(
                ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
                format!(
                    "Executor error during find command :: caused by :: Sort exceeded memory limit of {} bytes, \
                     but did not opt in to external sorting.",
                    self.memory.bytes
                ),
            ));
        };
        self.rows.sort_by(|a, b| a.0.cmp(&b.0));
        let runs = self.runs.get_or_insert_with(|| Runs::new(folder.clone()));
        runs.write(std::mem::take(&mut self.rows).into_iter())?;
        self.bytes = 0;
        Ok(())
    }

    fn cut(&mut self, keep: usize) {
        self.rows.sort_by(|a, b| a.0.cmp(&b.0));
        self.rows.truncate(keep);
        self.bytes = self.rows.iter().map(row_bytes).sum();
    }

    /// Everything in order; equal keys keep the order in which they came.
    ///
    /// # Errors
    /// Those of files.
    pub(crate) fn finish(mut self) -> Result<Sorted> {
        let left = self.keep.unwrap_or(usize::MAX);
        if self.runs.is_some() && !self.rows.is_empty() {
            self.spill()?;
        }
        if let Some(runs) = self.runs {
            return Ok(Sorted { rows: VecDeque::new(), merge: Some(runs.merge()?), left });
        }
        self.rows.sort_by(|a, b| a.0.cmp(&b.0));
        self.rows.truncate(left);
        let rows = self.rows.into_iter().map(|(_, document, metadata)| (document, metadata));
        let rows = rows.collect();
        Ok(Sorted { rows, merge: None, left })
    }
}

/// Memory that a row takes.
fn row_bytes((key, document, metadata): &Entry) -> usize {
    key.len() + document.as_bytes().len() + metadata.heap_bytes() + ROW_BYTES
}

/// Sorted documents.
#[derive(Default)]
pub(crate) struct Sorted {
    rows: VecDeque<(DocBuf, Metadata)>,
    merge: Option<Merge>,
    left: usize,
}

impl Sorted {
    /// The next one.
    ///
    /// # Errors
    /// Those of files.
    pub(crate) fn pop(&mut self) -> Result<Option<(DocBuf, Metadata)>> {
        if self.is_empty() {
            return Ok(None);
        }
        self.left -= 1;
        match &mut self.merge {
            None => Ok(self.rows.pop_front()),
            Some(merge) => {
                let entry = merge.next().transpose()?;
                Ok(entry.map(|(_, document, metadata)| (document, metadata)))
            }
        }
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0
            || match &self.merge {
                None => self.rows.is_empty(),
                Some(merge) => merge.is_over(),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_value::{DocBuilder, RawValue};

    fn sorted(memory: Memory, keep: Option<u64>) -> Result<Vec<(i32, i32)>> {
        let pattern = mayfly_value::bson::doc! { "a": 1 };
        let pattern = SortPattern::parse(DocBuf::from_bson(&pattern).as_doc())?;
        let mut sorter = Sorter::new(pattern, keep, memory);
        for n in 0..2000 {
            let mut document = DocBuilder::new();
            document.append("a", (n * 7919) % 100).append("n", n);
            sorter.push(document.finish().as_doc(), &Metadata::NONE)?;
        }
        let mut sorted = sorter.finish()?;
        let mut out = Vec::new();
        while let Some((document, _)) = sorted.pop()? {
            let number = |name: &str| match document.as_doc().get(name) {
                Some(RawValue::Int32(n)) => n,
                other => panic!("{other:?}"),
            };
            out.push((number("a"), number("n")));
        }
        Ok(out)
    }

    #[test]
    fn files_give_the_same_order_as_memory() {
        let folder = Some(std::env::temp_dir().join("mayfly-sorter-test"));
        let in_memory = sorted(Memory::default(), None).unwrap();
        assert_eq!(in_memory.len(), 2000);
        assert!(in_memory.is_sorted(), "equal keys keep their order");
        let small = Memory { bytes: 10_000, folder };
        assert_eq!(sorted(small.clone(), None).unwrap(), in_memory);
        assert_eq!(sorted(small, Some(300)).unwrap(), in_memory[..300]);
    }

    #[test]
    fn without_files_it_fails() {
        let small = Memory { bytes: 10_000, folder: None };
        let error = sorted(small.clone(), None).unwrap_err();
        assert_eq!(error.code(), ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed);
        assert_eq!(sorted(small, Some(10)).unwrap().len(), 10);
    }
}
