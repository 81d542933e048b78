//! How much memory the state of an accumulator may take: one value cannot go into a file.

use mayfly_base::limits::MAX_BLOCKING_MEMORY_BYTES;

use super::Kind;

/// Memory that one state may take, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccumulatorLimits {
    /// `$push`.
    pub push: usize,
    /// `$addToSet`.
    pub add_to_set: usize,
    /// `$concatArrays`.
    pub concat_arrays: usize,
    /// `$setUnion`.
    pub set_union: usize,
    /// `$firstN`, `$topN` and their kin.
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
    pub(super) fn of(&self, kind: Kind) -> usize {
        match kind {
            Kind::Push => self.push,
            Kind::AddToSet => self.add_to_set,
            Kind::ConcatArrays => self.concat_arrays,
            Kind::SetUnion => self.set_union,
            Kind::Bottom
            | Kind::BottomN
            | Kind::FirstN
            | Kind::LastN
            | Kind::MaxN
            | Kind::MinN
            | Kind::Top
            | Kind::TopN => self.top_n,
            Kind::Avg
            | Kind::Count
            | Kind::First
            | Kind::Last
            | Kind::Max
            | Kind::Median
            | Kind::MergeObjects
            | Kind::Min
            | Kind::Percentile
            | Kind::Scripted
            | Kind::StdDevPop
            | Kind::StdDevSamp
            | Kind::Sum => MAX_BLOCKING_MEMORY_BYTES,
        }
    }
}
