//! Accumulators over moving windows. Invertible ones are updated as the window moves: sums, means
//! and deviations of numbers of one type, without loss of precision; minimum and maximum by a
//! monotonic queue. All others are recomputed for each document, unless the window only grows.

use std::cmp::Ordering;
use std::collections::VecDeque;

use mayfly_base::Result;
use mayfly_value::{DocBuf, Number, RawValue, ValueBuf, compare_values_in};

use super::bounds::{Bound, Bounds, only_grow, reaches};
use super::{See, WindowFunction, null};
use crate::Sum;
use crate::accum::{AccumState, Accumulator, AccumulatorKind, Deviation, Population};

pub(super) fn run(
    function: &WindowFunction,
    accumulator: &Accumulator,
    partition: &[DocBuf],
    see: &mut See<'_>,
) -> Result<()> {
    let reaches = reaches(function, partition)?;
    if !only_grow(&reaches) {
        match accumulator.kind() {
            AccumulatorKind::Min => {
                let results = extremes(function, accumulator, partition, &reaches, Ordering::Less)?;
                return results.into_iter().try_for_each(see);
            }
            AccumulatorKind::Max => {
                let results =
                    extremes(function, accumulator, partition, &reaches, Ordering::Greater)?;
                return results.into_iter().try_for_each(see);
            }
            AccumulatorKind::Sum
            | AccumulatorKind::Avg
            | AccumulatorKind::Count
            | AccumulatorKind::StdDevPop
            | AccumulatorKind::StdDevSamp => {
                let values = function.values(accumulator.argument(), partition)?;
                let count = accumulator.kind() == AccumulatorKind::Count;
                if let Some(numbers) = alike(&values, count) {
                    let results = moving(function, accumulator.kind(), &numbers, &reaches);
                    return results.into_iter().try_for_each(see);
                }
            }
            _ => {}
        }
    }
    recomputed(accumulator, function, partition, &reaches, see)
}

/// Whether an accumulator is updated as the window moves, instead of being recomputed for each
/// window.
pub(super) fn moves(kind: AccumulatorKind) -> bool {
    matches!(
        kind,
        AccumulatorKind::Min
            | AccumulatorKind::Max
            | AccumulatorKind::Sum
            | AccumulatorKind::Avg
            | AccumulatorKind::Count
            | AccumulatorKind::StdDevPop
            | AccumulatorKind::StdDevSamp
    )
}

/// Whether documents leave the window.
fn loses_documents(function: &WindowFunction) -> bool {
    let (Bounds::Documents(lower, _) | Bounds::Range { lower, .. }) = function.bounds;
    lower != Bound::Unbounded
}

/// The result of a window. As in the reference, the deviation of a single number is an int where
/// documents leave the window.
pub(super) fn finished(
    function: &WindowFunction,
    accumulator: &Accumulator,
    state: &AccumState,
) -> Result<ValueBuf> {
    let deviates = accumulator.kind() == AccumulatorKind::StdDevPop;
    if deviates && state.has_one_number() && loses_documents(function) {
        return Ok(RawValue::Int32(0).to_owned());
    }
    accumulator.finish(state)
}

/// Recomputes each window that does not extend the previous one.
fn recomputed(
    accumulator: &Accumulator,
    function: &WindowFunction,
    partition: &[DocBuf],
    reaches: &[(usize, usize)],
    see: &mut See<'_>,
) -> Result<()> {
    let mut state = accumulator.start(None)?;
    let mut held = (0, 0);
    for reach in reaches {
        if reach.0 != held.0 || reach.1 < held.1 {
            state = accumulator.start(None)?;
            held = (reach.0, reach.0);
        }
        for document in &partition[held.1..reach.1] {
            accumulator.add_in(&mut state, function.frame(document))?;
        }
        held.1 = held.1.max(reach.1);
        see(Some(finished(function, accumulator, &state)?))?;
    }
    Ok(())
}

/// The numbers, if all are finite and of one type, so that removing a value is exact.
fn alike(values: &[Option<ValueBuf>], count: bool) -> Option<Vec<Option<Number>>> {
    if count {
        return Some(vec![Some(Number::Int32(1)); values.len()]);
    }
    let mut kind = None;
    let mut numbers = Vec::with_capacity(values.len());
    for value in values {
        let number = value.as_ref().and_then(|value| Number::from_value(value.as_raw()));
        if let Some(number) = number {
            let same = *kind.get_or_insert(number.to_value().type_byte());
            if same != number.to_value().type_byte() || !number.to_f64().is_finite() {
                return None;
            }
            // Adding decimals rounds, so removing them is inexact.
            if let Number::Decimal(_) = number {
                return None;
            }
        }
        numbers.push(number);
    }
    Some(numbers)
}

fn moving(
    function: &WindowFunction,
    kind: AccumulatorKind,
    numbers: &[Option<Number>],
    reaches: &[(usize, usize)],
) -> Vec<Option<ValueBuf>> {
    let (mut sum, mut deviation, mut count) = (Sum::default(), Deviation::default(), 0_i64);
    let deviates = matches!(kind, AccumulatorKind::StdDevPop | AccumulatorKind::StdDevSamp);
    let mut held = (0, 0);
    let mut results = Vec::with_capacity(reaches.len());
    for reach in reaches {
        for number in numbers[held.1.min(reach.1)..reach.1].iter().flatten() {
            count += 1;
            if deviates { deviation.put(number.to_f64()) } else { sum.add(*number) }
        }
        for number in numbers[held.0.min(reach.0)..reach.0].iter().flatten() {
            count -= 1;
            if deviates { deviation.remove(number.to_f64()) } else { sum.remove(*number) }
        }
        if count == 0 {
            // An empty window resets the state, including its type.
            (sum, deviation) = (Sum::default(), Deviation::default());
        }
        held = (held.0.max(reach.0), held.1.max(reach.1));
        let result = match kind {
            AccumulatorKind::Avg if count == 0 => RawValue::Null,
            AccumulatorKind::Avg => sum.mean(count).to_value(),
            AccumulatorKind::StdDevPop if count == 1 && loses_documents(function) => {
                RawValue::Int32(0)
            }
            AccumulatorKind::StdDevPop => deviation.finish(Population::Whole),
            AccumulatorKind::StdDevSamp => deviation.finish(Population::Sample),
            _ => sum.finish().to_value(),
        };
        results.push(Some(result.to_owned()));
    }
    results
}

/// A candidate is removed when a better one follows, or when the window has passed it.
fn extremes(
    function: &WindowFunction,
    accumulator: &Accumulator,
    partition: &[DocBuf],
    reaches: &[(usize, usize)],
    preferred: Ordering,
) -> Result<Vec<Option<ValueBuf>>> {
    let values = function.values(accumulator.argument(), partition)?;
    let collation = function.collation.as_deref();
    let mut candidates: VecDeque<usize> = VecDeque::new();
    let present = |at: usize| {
        values[at]
            .as_ref()
            .map(ValueBuf::as_raw)
            .filter(|value| !matches!(value, RawValue::Null | RawValue::Undefined))
    };
    let (mut next, mut results) = (0, Vec::with_capacity(partition.len()));
    for (from, to) in reaches {
        while next < *to {
            if let Some(value) = present(next) {
                let worse = |at: &usize| {
                    present(*at)
                        .is_some_and(|have| compare_values_in(value, have, collation) == preferred)
                };
                while candidates.back().is_some_and(worse) {
                    candidates.pop_back();
                }
                candidates.push_back(next);
            }
            next += 1;
        }
        while candidates.front().is_some_and(|at| at < from) {
            candidates.pop_front();
        }
        let best = candidates.front().and_then(|at| values[*at].clone());
        results.push(Some(best.unwrap_or_else(null)));
    }
    Ok(results)
}
