//! `$rank`, `$denseRank`, `$documentNumber`.

use mayfly_value::{DocBuf, RawValue, ValueBuf};

use super::WindowFunction;

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Rank,
    Dense,
    Number,
}

/// The rank of the last document of a sequence.
pub(super) struct Ranks {
    which: Which,
    number: i64,
    rank: i64,
    /// The order's key of the last document.
    before: Option<Vec<u8>>,
}

impl Ranks {
    pub(super) fn new(which: Which) -> Ranks {
        Ranks { which, number: 0, rank: 0, before: None }
    }

    /// Adds a document by its key.
    pub(super) fn push(&mut self, key: Vec<u8>) {
        self.number += 1;
        if self.which == Which::Number || self.before.as_ref() != Some(&key) {
            self.rank = if self.which == Which::Dense { self.rank + 1 } else { self.number };
        }
        self.before = Some(key);
    }

    pub(super) fn current(&self) -> i64 {
        self.rank
    }
}

pub(super) fn run(
    which: Which,
    function: &WindowFunction,
    partition: &[DocBuf],
) -> Vec<Option<ValueBuf>> {
    let mut ranks = Ranks::new(which);
    let rank = |document| {
        ranks.push(function.order_key(document));
        Some(RawValue::Int64(ranks.current()).to_owned())
    };
    partition.iter().map(rank).collect()
}
