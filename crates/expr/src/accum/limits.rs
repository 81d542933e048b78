//! Memory limits for the state of an accumulator, which cannot spill to a file.

use mayfly_base::limits::MAX_BLOCKING_MEMORY_BYTES;
use mayfly_base::{Error, ErrorCode, Result};

use super::AccumulatorKind;

/// Memory limit of one state, in bytes, by operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccumulatorLimits {
    /// Limit of `$push`, from `internalQueryMaxPushBytes`.
    pub push: usize,
    /// Limit of `$addToSet`, from `internalQueryMaxAddToSetBytes`.
    pub add_to_set: usize,
    /// Limit of `$concatArrays`, from `internalQueryMaxConcatArraysBytes`.
    pub concat_arrays: usize,
    /// Limit of `$setUnion`, from `internalQueryMaxSetUnionBytes`.
    pub set_union: usize,
    /// `$firstN`, `$topN` and related operators.
    pub top_n: usize,
}

impl Default for AccumulatorLimits {
    fn default() -> AccumulatorLimits {
        AccumulatorLimits {
            push: MAX_BLOCKING_MEMORY_BYTES,
            add_to_set: MAX_BLOCKING_MEMORY_BYTES,
            concat_arrays: MAX_BLOCKING_MEMORY_BYTES,
            set_union: MAX_BLOCKING_MEMORY_BYTES,
            top_n: MAX_BLOCKING_MEMORY_BYTES,
        }
    }
}

impl AccumulatorLimits {
    pub(super) fn of(&self, kind: AccumulatorKind) -> usize {
        match kind {
            AccumulatorKind::Push => self.push,
            AccumulatorKind::AddToSet => self.add_to_set,
            AccumulatorKind::ConcatArrays => self.concat_arrays,
            AccumulatorKind::SetUnion => self.set_union,
            AccumulatorKind::Bottom
            | AccumulatorKind::BottomN
            | AccumulatorKind::FirstN
            | AccumulatorKind::LastN
            | AccumulatorKind::MaxN
            | AccumulatorKind::MinN
            | AccumulatorKind::Top
            | AccumulatorKind::TopN => self.top_n,
            AccumulatorKind::Avg
            | AccumulatorKind::Count
            | AccumulatorKind::First
            | AccumulatorKind::Last
            | AccumulatorKind::Max
            | AccumulatorKind::Median
            | AccumulatorKind::MergeObjects
            | AccumulatorKind::Min
            | AccumulatorKind::Percentile
            | AccumulatorKind::Scripted
            | AccumulatorKind::StdDevPop
            | AccumulatorKind::StdDevSamp
            | AccumulatorKind::Sum => MAX_BLOCKING_MEMORY_BYTES,
        }
    }
}

/// The memory limit of one state of an accumulator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateLimit {
    pub(super) kind: AccumulatorKind,
    pub(super) most: usize,
}

impl StateLimit {
    /// Checks the memory of a state, in bytes.
    ///
    /// # Errors
    /// 146 ExceededMemoryLimit.
    pub(crate) fn check(self, bytes: usize) -> Result<()> {
        if bytes <= self.most {
            return Ok(());
        }
        let name = super::ROWS.iter().find(|row| row.kind == self.kind).map_or("", |row| row.name);
        let most = self.most;
        let text = format!(
            "{name} used too much memory and cannot spill to disk. Memory limit: {most} bytes"
        );
        Err(Error::new(ErrorCode(146), text))
    }
}
