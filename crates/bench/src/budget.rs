//! Budgets: limits on the figures of a load, and whether they are met.

use std::fmt;

use crate::figures::{PER_CORE, RATE, SERVER};

/// A bound of one figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Budget {
    /// The figure's name.
    pub(crate) figure: &'static str,
    bound: Bound,
    pub(crate) limit: f64,
    pub(crate) unit: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    AtMost,
    AtLeast,
}

/// Whether a budget is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Met,
    NotMet,
    /// The figure is missing: the load failed, or its server runs elsewhere.
    Unknown,
}

impl Budget {
    /// A budget with an upper limit.
    pub(crate) const fn at_most(figure: &'static str, limit: f64, unit: &'static str) -> Budget {
        Budget { figure, bound: Bound::AtMost, limit, unit }
    }

    /// A limit on the CPU microseconds of the server per operation.
    pub(crate) const fn server(limit: f64) -> Budget {
        Budget::at_most(SERVER, limit, "us")
    }

    /// A minimum of operations per second.
    pub(crate) const fn rate(limit: f64) -> Budget {
        Budget { figure: RATE, bound: Bound::AtLeast, limit, unit: "/s" }
    }

    /// A minimum of operations per second of the server's CPU time.
    pub(crate) const fn per_core(limit: f64) -> Budget {
        Budget { figure: PER_CORE, bound: Bound::AtLeast, limit, unit: "/s" }
    }

    /// The verdict on a value. Without a value it is unknown.
    pub(crate) fn verdict(&self, value: Option<f64>) -> Verdict {
        let kept = |value: f64| match self.bound {
            Bound::AtMost => value <= self.limit,
            Bound::AtLeast => value >= self.limit,
        };
        match value {
            Some(value) if !value.is_nan() && kept(value) => Verdict::Met,
            Some(value) if !value.is_nan() => Verdict::NotMet,
            _ => Verdict::Unknown,
        }
    }

    /// The sign between figure and limit.
    pub(crate) fn sign(&self) -> &'static str {
        match self.bound {
            Bound::AtMost => "<=",
            Bound::AtLeast => ">=",
        }
    }
}

impl Verdict {
    /// The verdict on several budgets: the worst one.
    pub(crate) fn all(verdicts: impl IntoIterator<Item = Verdict>) -> Option<Verdict> {
        verdicts.into_iter().reduce(|one, other| match (one, other) {
            (Verdict::NotMet, _) | (_, Verdict::NotMet) => Verdict::NotMet,
            (Verdict::Unknown, _) | (_, Verdict::Unknown) => Verdict::Unknown,
            (Verdict::Met, Verdict::Met) => Verdict::Met,
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Verdict::Met => "met",
            Verdict::NotMet => "NOT MET",
            Verdict::Unknown => "unknown",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_the_bound() {
        let (cost, rate) = (Budget::server(15.0), Budget::rate(350_000.0));
        assert_eq!(cost.verdict(Some(15.0)), Verdict::Met);
        assert_eq!(cost.verdict(Some(15.1)), Verdict::NotMet);
        assert_eq!(rate.verdict(Some(349_999.0)), Verdict::NotMet);
        assert_eq!(rate.verdict(Some(400_000.0)), Verdict::Met);
        assert_eq!(rate.verdict(Some(f64::NAN)), Verdict::Unknown);
        assert_eq!(rate.verdict(None), Verdict::Unknown);
        assert_eq!(Verdict::all([]), None);
        assert_eq!(Verdict::all([Verdict::Met, Verdict::Unknown]), Some(Verdict::Unknown));
        let failed = [Verdict::Unknown, Verdict::NotMet, Verdict::Met];
        assert_eq!(Verdict::all(failed), Some(Verdict::NotMet));
    }
}
