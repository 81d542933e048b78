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

pub(super) fn run(
    which: Which,
    function: &WindowFunction,
    partition: &[DocBuf],
) -> Vec<Option<ValueBuf>> {
    let collation = function.collation.as_deref();
    let (mut rank, mut before): (i64, Option<Vec<u8>>) = (0, None);
    let mut results = Vec::with_capacity(partition.len());
    for (number, document) in (1..).zip(partition) {
        let order = function.order.as_ref();
        let key = order.map(|order| order.encoded_key(document.as_doc(), collation));
        if which == Which::Number || before.is_none() || key != before {
            rank = if which == Which::Dense { rank + 1 } else { number };
        }
        before = key;
        results.push(Some(RawValue::Int64(rank).to_owned()));
    }
    results
}
