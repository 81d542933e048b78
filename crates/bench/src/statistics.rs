//! What several runs say together.

/// Median and extremes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Range {
    /// Of these values; nothing of none. What is not a number is left out.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Range> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Range { median, min, max })
    }
}

/// How the second compares with the first, run by run.
pub(crate) fn ratios(first: &[Option<f64>], second: &[Option<f64>]) -> Vec<f64> {
    let ratio = |(first, second): (&Option<f64>, &Option<f64>)| {
        let ratio = (*second)? / (*first)?;
        ratio.is_finite().then_some(ratio)
    };
    first.iter().zip(second).filter_map(ratio).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let odd = Range::of([3.0, 1.0, f64::NAN, 2.0]).unwrap();
        assert_eq!((odd.min, odd.median, odd.max), (1.0, 2.0, 3.0));
        assert_eq!(Range::of([4.0, 1.0]).unwrap().median, 2.5);
        assert!(Range::of([]).is_none());
    }

    #[test]
    fn ratios_pair_the_runs() {
        let first = [Some(2.0), None, Some(4.0), Some(0.0)];
        let second = [Some(1.0), Some(1.0), Some(8.0), Some(1.0)];
        assert_eq!(ratios(&first, &second), [0.5, 2.0]);
    }
}
