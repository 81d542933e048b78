//! The rate of deletions: two token buckets, and a ramp for new or shortened policies.
//!
//! Pure functions of time. Expiry contract, section 9 (`maxDocsPerSec`, `maxBytesPerSec`).

use crate::policy::TtlOptions;

/// The capacity of a bucket: the tokens of a quarter of a second.
const BURST_SECS: f64 = 0.25;
/// The rate, in documents a second, at which a new or shortened policy starts. It doubles each
/// second.
const RAMP_FIRST_DOCS: f64 = 20_000.0;
/// The rate at which the ramp ends.
const RAMP_LAST_DOCS: f64 = 1_000_000.0;

/// The limits at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PaceLimits {
    /// Documents in a second.
    pub docs: Option<f64>,
    /// Bytes of BSON in a second.
    pub bytes: Option<f64>,
}

impl PaceLimits {
    /// The limits of a policy which started, or was shortened, this many microseconds ago.
    pub(crate) fn of(options: &TtlOptions, age_micros: Option<i64>) -> PaceLimits {
        let ramp = age_micros.and_then(ramp);
        let docs = match (options.max_docs_per_sec, ramp) {
            (Some(limit), Some(ramp)) => Some(limit.min(ramp)),
            (limit, ramp) => limit.or(ramp),
        };
        PaceLimits { docs, bytes: options.max_bytes_per_sec }
    }

    fn are_none(self) -> bool {
        self.docs.is_none() && self.bytes.is_none()
    }
}

/// The rate of the ramp in documents a second; `None` after its end.
fn ramp(age_micros: i64) -> Option<f64> {
    let rate = RAMP_FIRST_DOCS * (age_micros.max(0) as f64 / 1e6).exp2();
    (rate < RAMP_LAST_DOCS).then_some(rate)
}

/// The token buckets of a policy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    docs: f64,
    bytes: f64,
    /// When the buckets were last filled, in microseconds; `None` before the first time.
    at_micros: Option<i64>,
}

impl Pace {
    /// How many documents may be deleted now; `None` without a limit.
    pub(crate) fn allowance(&mut self, limits: PaceLimits, now_micros: i64) -> Option<usize> {
        if limits.are_none() {
            self.at_micros = None;
            return None;
        }
        let passed = self.at_micros.map(|at| (now_micros - at).max(0) as f64 / 1e6);
        self.at_micros = Some(now_micros);
        let fill = |tokens: f64, rate: Option<f64>, least: f64| match rate {
            None => f64::INFINITY,
            Some(rate) => {
                let most = (rate * BURST_SECS).max(least);
                // A bucket starts full when its limit is new or was lifted meanwhile.
                match passed {
                    Some(secs) if tokens.is_finite() => (tokens + secs * rate).min(most),
                    _ => most,
                }
            }
        };
        self.docs = fill(self.docs, limits.docs, 1.0);
        self.bytes = fill(self.bytes, limits.bytes, 1.0);
        // A document may take more bytes than the bucket has. Deletions then wait until the bucket
        // is positive again.
        Some(if self.bytes > 0.0 { self.docs.max(0.0) as usize } else { 0 })
    }

    /// Takes tokens for deleted documents.
    pub(crate) fn spend(&mut self, docs: i64, bytes: i64) {
        self.docs -= docs as f64;
        self.bytes -= bytes as f64;
    }
}

/// An exponentially decaying rate, in events a second over about ten seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    per_sec: f64,
    at_micros: i64,
}

const RATE_MEMORY_SECS: f64 = 10.0;

impl Rate {
    /// Counts events.
    pub(crate) fn add(&mut self, events: i64, now_micros: i64) {
        self.per_sec = self.at(now_micros) + events as f64 / RATE_MEMORY_SECS;
        self.at_micros = now_micros;
    }

    /// The rate at this time, in events a second.
    pub(crate) fn at(&self, now_micros: i64) -> f64 {
        let secs = (now_micros - self.at_micros).max(0) as f64 / 1e6;
        self.per_sec * (-secs / RATE_MEMORY_SECS).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    #[test]
    fn t_69_over_ten_seconds_a_pace_is_kept_within_a_tenth() {
        for limit in [1.0, 7.5, 100.0, 33_333.0] {
            let limits = PaceLimits { docs: Some(limit), bytes: None };
            let (mut pace, mut gone) = (Pace::default(), 0);
            let secs = if limit < 10.0 { 100 } else { 10 };
            for step in 0..secs * 20 {
                let allowed = pace.allowance(limits, step * SECOND / 20).unwrap() as i64;
                pace.spend(allowed, allowed * 1000);
                gone += allowed;
            }
            let expected = limit * secs as f64;
            assert!((gone as f64 - expected).abs() <= expected * 0.1, "{limit}: {gone}");
        }
    }

    #[test]
    fn bytes_are_a_debt() {
        let limits = PaceLimits { docs: None, bytes: Some(1000.0) };
        let mut pace = Pace::default();
        assert!(pace.allowance(limits, 0).unwrap() > 0);
        pace.spend(1, 10_250);
        assert_eq!(pace.allowance(limits, 9 * SECOND), Some(0));
        assert!(pace.allowance(limits, 11 * SECOND).unwrap() > 0);
    }

    #[test]
    fn a_ramp_begins_slowly_and_ends() {
        let options = TtlOptions::default();
        assert_eq!(PaceLimits::of(&options, None), PaceLimits::default());
        assert_eq!(PaceLimits::of(&options, Some(0)).docs, Some(RAMP_FIRST_DOCS));
        assert_eq!(PaceLimits::of(&options, Some(2 * SECOND)).docs, Some(4.0 * RAMP_FIRST_DOCS));
        assert_eq!(PaceLimits::of(&options, Some(10 * SECOND)).docs, None);
        let slow = TtlOptions { max_docs_per_sec: Some(5.0), ..options };
        assert_eq!(PaceLimits::of(&slow, Some(0)).docs, Some(5.0));
        assert_eq!(PaceLimits::of(&slow, None).docs, Some(5.0));
    }

    #[test]
    fn a_rate_forgets() {
        let mut rate = Rate::default();
        for step in 0..1000 {
            rate.add(10, step * SECOND / 10);
        }
        assert!((rate.at(100 * SECOND) - 100.0).abs() < 3.0);
        assert!(rate.at(200 * SECOND) < 0.1);
    }
}
