//! `$rank`, `$denseRank`, `$documentNumber`.

use mayfly_value::{DocBuf, RawValue, ValueBuf};

use super::WindowFunction;

/// The function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RankKind {
    Rank,
    Dense,
    Number,
}

/// The rank of the last document of a sequence.
pub(super) struct Ranks {
    which: RankKind,
    number: i64,
    rank: i64,
    /// The sort key of the last document.
    before: Option<Vec<u8>>,
}

impl Ranks {
    pub(super) fn new(which: RankKind) -> Ranks {
        Ranks { which, number: 0, rank: 0, before: None }
    }

    /// Adds a document with this sort key.
    pub(super) fn push(&mut self, key: Vec<u8>) {
        self.number += 1;
        if self.which == RankKind::Number || self.before.as_ref() != Some(&key) {
            self.rank = if self.which == RankKind::Dense { self.rank + 1 } else { self.number };
        }
        self.before = Some(key);
    }

    /// The rank: an int as long as it fits.
    pub(super) fn current(&self) -> ValueBuf {
        match i32::try_from(self.rank) {
            Ok(rank) => RawValue::Int32(rank).to_owned(),
            Err(_) => RawValue::Int64(self.rank).to_owned(),
        }
    }
}

pub(super) fn run(
    which: RankKind,
    function: &WindowFunction,
    partition: &[DocBuf],
) -> Vec<Option<ValueBuf>> {
    let mut ranks = Ranks::new(which);
    let rank = |document| {
        ranks.push(function.order_key(document));
        Some(ranks.current())
    };
    partition.iter().map(rank).collect()
}
