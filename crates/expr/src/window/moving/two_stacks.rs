//! Summaries of sequences: a sum, a deviation, a covariance, an area.
//!
//! A summary can be extended by an item or by the summary of what follows, but no item can be
//! removed from it: a sum of doubles would drift, an infinity would remain. [`TwoStacks`]
//! summarises a window nevertheless, as a queue of two stacks does: the back has one summary, to
//! which items are added; the front has the summary of each of its suffixes. When the front has no
//! item left, the items of the back become the front. A window of three items over `d e f g h`:
//!
//! ```text
//!            front                   back        result
//!   d e f    -                       d+e+f       d+e+f
//!   e f g    e+f, f                  g           (e+f)+g       after d was removed
//!   f g h    f                       g+h         f+(g+h)
//! ```
//!
//! To save memory, the front is divided into blocks of 16 items. Each block has one stored summary,
//! of all items of the front that follow the block. The summaries of its suffixes are computed when
//! it becomes the first block.

use std::collections::VecDeque;

use mayfly_base::Result;
use mayfly_value::{DocBuf, ValueBuf};

use super::{WindowFunction, WindowState};

/// Items of the front whose suffixes are computed together.
const BLOCK_ITEMS: usize = 16;

/// A summary of the items of a sequence.
pub(in super::super) trait Summary: Clone + Default + Send {
    /// What a summary needs to know of a document.
    type Item: Send;
    /// The arguments of the function.
    type Settings: Copy + Send;

    /// The item of a document.
    ///
    /// # Errors
    /// Errors of expressions and of operators.
    fn item(
        settings: Self::Settings,
        function: &WindowFunction,
        document: &DocBuf,
    ) -> Result<Self::Item>;

    /// Adds the next item.
    fn push(&mut self, item: &Self::Item);

    /// Adds the items of the sequence that follows.
    fn append(&mut self, later: &Self);

    /// The result of the function for this document of the sequence.
    ///
    /// # Errors
    /// Errors of expressions and of operators.
    fn result(
        &self,
        settings: Self::Settings,
        function: &WindowFunction,
        here: &DocBuf,
    ) -> Result<ValueBuf>;
}

/// A sequence that only grows.
pub(super) struct Growing<S: Summary> {
    settings: S::Settings,
    summary: S,
}

impl<S: Summary> Growing<S> {
    pub(super) fn new(settings: S::Settings) -> Growing<S> {
        Growing { settings, summary: S::default() }
    }
}

impl<S: Summary> WindowState for Growing<S> {
    fn add(&mut self, function: &WindowFunction, document: &DocBuf) -> Result<()> {
        self.summary.push(&S::item(self.settings, function, document)?);
        Ok(())
    }

    fn result(&mut self, function: &WindowFunction, here: &DocBuf) -> Result<ValueBuf> {
        self.summary.result(self.settings, function, here)
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// A sequence to which items are added, and from whose start they are removed.
pub(super) struct TwoStacks<S: Summary> {
    settings: S::Settings,
    items: VecDeque<S::Item>,
    /// Number of items in the front.
    in_front: usize,
    /// Summaries of the front from each item of its first block on; the longest is the last one.
    front: Vec<S>,
    /// Summaries of the front after each of its blocks; that of the first block is the last one.
    after_blocks: Vec<S>,
    back: S,
}

impl<S: Summary> TwoStacks<S> {
    pub(super) fn new(settings: S::Settings) -> TwoStacks<S> {
        TwoStacks {
            settings,
            items: VecDeque::new(),
            in_front: 0,
            front: Vec::new(),
            after_blocks: Vec::new(),
            back: S::default(),
        }
    }

    pub(super) fn push(&mut self, item: S::Item) {
        self.back.push(&item);
        self.items.push_back(item);
    }

    pub(super) fn pop(&mut self) {
        if self.in_front == 0 {
            self.turn();
            self.enter_block();
        }
        self.front.pop();
        self.items.pop_front();
        self.in_front = self.in_front.saturating_sub(1);
        if self.front.is_empty() && self.in_front > 0 {
            self.enter_block();
        }
    }

    /// Makes the items of the back the front.
    fn turn(&mut self) {
        self.in_front = self.items.len();
        self.back = S::default();
        let mut after = S::default();
        for start in (0..self.in_front).step_by(BLOCK_ITEMS).rev() {
            self.after_blocks.push(after.clone());
            let end = self.in_front.min(start + BLOCK_ITEMS);
            let mut block = S::default();
            self.items.range(start..end).for_each(|item| block.push(item));
            block.append(&after);
            after = block;
        }
    }

    /// Computes the summaries of the suffixes of the next block.
    fn enter_block(&mut self) {
        let mut after = self.after_blocks.pop().unwrap_or_default();
        for item in self.items.range(..self.in_front.min(BLOCK_ITEMS)).rev() {
            let mut longer = S::default();
            longer.push(item);
            longer.append(&after);
            self.front.push(longer.clone());
            after = longer;
        }
    }

    /// The summary of all items.
    pub(super) fn summary(&self) -> S {
        let Some(front) = self.front.last() else { return self.back.clone() };
        let mut whole = front.clone();
        whole.append(&self.back);
        whole
    }
}

impl<S: Summary> WindowState for TwoStacks<S> {
    fn add(&mut self, function: &WindowFunction, document: &DocBuf) -> Result<()> {
        self.push(S::item(self.settings, function, document)?);
        Ok(())
    }

    fn remove(&mut self) {
        self.pop();
    }

    fn result(&mut self, function: &WindowFunction, here: &DocBuf) -> Result<ValueBuf> {
        self.summary().result(self.settings, function, here)
    }

    fn bytes(&self) -> usize {
        let summaries = self.front.len() + self.after_blocks.len();
        self.items.len() * size_of::<S::Item>() + summaries * size_of::<S>()
    }
}
