//! Percentiles: the least value that is not exceeded by the given share of all values. The
//! reference estimates it with a t-digest; this server keeps all values and computes it exactly, as
//! the reference does for small groups.

use mayfly_value::{DocBuilder, Number, RawValue, ValueBuf, ty};

/// The numbers among some values, in ascending order.
pub(crate) fn sorted_numbers<'v>(values: impl Iterator<Item = RawValue<'v>>) -> Vec<f64> {
    let mut numbers: Vec<f64> = values
        .filter_map(Number::from_value)
        .map(Number::to_f64)
        .filter(|number| !number.is_nan())
        .collect();
    numbers.sort_by(f64::total_cmp);
    numbers
}

/// The index of a quantile in ascending numbers, of which there are `count`.
pub(crate) fn index(count: usize, share: f64) -> usize {
    let rank = (share * count as f64).ceil() as usize;
    rank.saturating_sub(1).min(count.saturating_sub(1))
}

/// The value at a quantile of ascending numbers; null if there are none.
fn at(numbers: &[f64], share: f64) -> RawValue<'static> {
    let value = numbers.get(index(numbers.len(), share));
    value.map_or(RawValue::Null, |value| RawValue::Double(*value))
}

/// The result of `$median` over ascending numbers.
pub(crate) fn median(numbers: &[f64]) -> ValueBuf {
    at(numbers, 0.5).to_owned()
}

/// The result of `$percentile` over ascending numbers: an array in the order of the quantiles.
pub(crate) fn percentiles(numbers: &[f64], shares: &[f64]) -> ValueBuf {
    let mut out = DocBuilder::new_array();
    for share in shares {
        out.push(at(numbers, *share));
    }
    ValueBuf::from_parts(ty::ARRAY, out.finish().into_bytes())
}
