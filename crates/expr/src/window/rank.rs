//! `$rank`, `$denseRank`, `$documentNumber`.

use mayfly_base::Result;
use mayfly_value::{DocBuf, RawValue, ValueBuf};

use super::WindowFunction;
use super::moving::WindowState;

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
}

impl WindowState for Ranks {
    fn add(&mut self, function: &WindowFunction, document: &DocBuf) -> Result<()> {
        let key = function.order_key(document);
        self.number += 1;
        if self.which == RankKind::Number || self.before.as_ref() != Some(&key) {
            self.rank = if self.which == RankKind::Dense { self.rank + 1 } else { self.number };
        }
        self.before = Some(key);
        Ok(())
    }

    /// The rank: an int as long as it fits.
    fn result(&mut self, _: &WindowFunction, _: &DocBuf) -> Result<ValueBuf> {
        Ok(match i32::try_from(self.rank) {
            Ok(rank) => RawValue::Int32(rank).to_owned(),
            Err(_) => RawValue::Int64(self.rank).to_owned(),
        })
    }

    fn bytes(&self) -> usize {
        0
    }
}
