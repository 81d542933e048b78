//! The blocking sort: keeps what it must, up to the memory limit.

use std::collections::VecDeque;

use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_mql::SortPattern;
use mayfly_value::{DocBuf, RawDoc};

/// Collects documents, then gives them in order.
pub(crate) struct Sorter {
    pattern: SortPattern,
    /// Only so many of the first are wanted.
    keep: Option<usize>,
    rows: Vec<(Vec<u8>, DocBuf)>,
    bytes: usize,
}

impl Sorter {
    pub(crate) fn new(pattern: SortPattern, keep: Option<u64>) -> Sorter {
        let keep = keep.and_then(|keep| usize::try_from(keep).ok());
        Sorter { pattern, keep, rows: Vec::new(), bytes: 0 }
    }

    /// Takes one document.
    ///
    /// # Errors
    /// 292 QueryExceededMemoryLimitNoDiskUseAllowed.
    pub(crate) fn push(&mut self, document: RawDoc<'_>) -> Result<()> {
        let key = self.pattern.sort_key(document);
        self.bytes += key.len() + document.as_bytes().len() + 64;
        self.rows.push((key, document.to_owned()));
        if let Some(keep) = self.keep
            && self.rows.len() >= keep.saturating_mul(2).saturating_add(1024)
        {
            self.cut(keep);
        }
        if self.bytes > limits::MAX_BLOCKING_MEMORY_BYTES {
            if let Some(keep) = self.keep {
                self.cut(keep);
            }
            if self.bytes > limits::MAX_BLOCKING_MEMORY_BYTES {
                return Err(Error::new(
                    ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
                    format!(
                        "Executor error during find command :: caused by :: Sort exceeded memory limit of {} bytes, \
                         but did not opt in to external sorting.",
                        limits::MAX_BLOCKING_MEMORY_BYTES
                    ),
                ));
            }
        }
        Ok(())
    }

    fn cut(&mut self, keep: usize) {
        self.rows.sort_by(|a, b| a.0.cmp(&b.0));
        self.rows.truncate(keep);
        self.bytes = self.rows.iter().map(|(key, doc)| key.len() + doc.as_bytes().len() + 64).sum();
    }

    /// Everything in order; equal keys keep the order in which they came.
    pub(crate) fn finish(mut self) -> VecDeque<DocBuf> {
        self.rows.sort_by(|a, b| a.0.cmp(&b.0));
        if let Some(keep) = self.keep {
            self.rows.truncate(keep);
        }
        self.rows.into_iter().map(|(_, document)| document).collect()
    }
}
