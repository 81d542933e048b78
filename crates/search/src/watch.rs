//! Ends long work inside of tantivy's scorers.
//!
//! A scorer looks for its next document on its own: a phrase that nearly no document has, or two
//! frequent terms that never meet, can take seconds among millions of documents. tantivy gives no
//! way to end that, and its scorers hold no references. They share a [`Watch`] instead:
//!
//! 1. Each scorer counts its work ([`Watch::take`]), which calls the caller's check now and then.
//! 2. After an error of the check, all scorers of the query say that they have no more documents,
//!    so the loops over them end.
//! 3. The caller of these loops asks for the error ([`Watch::result`]).
//!
//! tantivy is fastest with its own scorers of terms, which do not count. They are used as long as
//! all of them together cannot take long.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use mayfly_base::{Error, Result};
use parking_lot::Mutex;
use tantivy::index::SegmentReader;
use tantivy::query::{Explanation, Scorer, Weight};
use tantivy::{DocId, DocSet, Score, TERMINATED};

/// The check of a caller, as a value of its own.
pub type SharedCheck = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// Steps between two calls of the check. A step takes about as long as reading one posting.
const BLOCK: u64 = if cfg!(test) { 64 } else { 65_536 };

/// The most work that the terms of a query do without counting, in postings of one term. Tests use
/// both kinds of scorers.
const MAX_UNCOUNTED: u64 = if cfg!(test) { 500 } else { 50_000_000 };

/// What the scorers of one query share. They run in one thread; the numbers are atomic because
/// tantivy's scorers may move to others.
pub(crate) struct Watch {
    check: SharedCheck,
    /// Steps until the next call of the check.
    left: AtomicU64,
    has_ended: AtomicBool,
    error: Mutex<Option<Error>>,
    /// The documents of the segment for which a query is built.
    documents: AtomicU64,
    /// The terms of the query, and their postings in this segment at most.
    terms: AtomicU64,
    postings: AtomicU64,
}

impl Watch {
    pub(crate) fn new(check: SharedCheck) -> Watch {
        Watch {
            check,
            left: AtomicU64::new(BLOCK),
            has_ended: AtomicBool::new(false),
            error: Mutex::new(None),
            documents: AtomicU64::new(0),
            terms: AtomicU64::new(0),
            postings: AtomicU64::new(0),
        }
    }

    /// Begins the query of a segment with this many documents.
    pub(crate) fn begin(&self, documents: usize) {
        self.documents.store(documents as u64, Relaxed);
        self.terms.store(0, Relaxed);
        self.postings.store(0, Relaxed);
    }

    /// Adds a term of the query, which this many documents of all segments have.
    pub(crate) fn add_term(&self, documents: u64) {
        self.terms.fetch_add(1, Relaxed);
        self.postings.fetch_add(documents.min(self.documents.load(Relaxed)), Relaxed);
    }

    /// Whether the scorers of terms count their work. tantivy keeps its own ones in the order of
    /// their documents, so each posting takes the longer the more terms there are: about 15 ns of
    /// two frequent terms, 45 ns of ten, and 160 ns of forty.
    fn counts_terms(&self) -> bool {
        let share = 1 + self.terms.load(Relaxed) / 2;
        self.postings.load(Relaxed).saturating_mul(share) > MAX_UNCOUNTED
    }

    /// Counts some steps. Returns whether the work has ended; then a scorer has no more documents.
    #[inline]
    pub(crate) fn take(&self, steps: usize) -> bool {
        match self.left.load(Relaxed).checked_sub(steps as u64) {
            Some(left) => self.left.store(left, Relaxed),
            None => self.call(),
        }
        self.has_ended()
    }

    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Relaxed)
    }

    #[cold]
    fn call(&self) {
        self.left.store(BLOCK, Relaxed);
        if !self.has_ended()
            && let Err(error) = (self.check)()
        {
            *self.error.lock() = Some(error);
            self.has_ended.store(true, Relaxed);
        }
    }

    /// The error of the check, if it has ended the work.
    pub(crate) fn result(&self) -> Result<()> {
        self.error.lock().clone().map_or(Ok(()), Err)
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// A weight whose scorer counts its work, if the query is large.
pub(crate) struct WatchedWeight {
    pub(crate) inner: Box<dyn Weight>,
    pub(crate) watch: Arc<Watch>,
}

impl Weight for WatchedWeight {
    fn scorer(&self, reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        let inner = self.inner.scorer(reader, boost)?;
        Ok(match self.watch.counts_terms() && inner.doc() != TERMINATED {
            true => Box::new(WatchedScorer { inner, watch: self.watch.clone() }),
            false => inner,
        })
    }

    fn explain(&self, reader: &SegmentReader, document: DocId) -> tantivy::Result<Explanation> {
        self.inner.explain(reader, document)
    }
}

struct WatchedScorer {
    inner: Box<dyn Scorer>,
    watch: Arc<Watch>,
}

impl DocSet for WatchedScorer {
    fn advance(&mut self) -> DocId {
        if self.watch.take(1) { TERMINATED } else { self.inner.advance() }
    }

    fn seek(&mut self, target: DocId) -> DocId {
        if self.watch.take(1) { TERMINATED } else { self.inner.seek(target) }
    }

    fn doc(&self) -> DocId {
        if self.watch.has_ended() { TERMINATED } else { self.inner.doc() }
    }

    fn size_hint(&self) -> u32 {
        self.inner.size_hint()
    }

    fn cost(&self) -> u64 {
        self.inner.cost()
    }
}

impl Scorer for WatchedScorer {
    fn score(&mut self) -> Score {
        self.inner.score()
    }
}
