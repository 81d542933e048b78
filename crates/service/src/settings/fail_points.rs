//! Fail points: places in the code at which a test makes the server fail. Tests of drivers use
//! them.
//!
//! They are available only on a server that was started with `enableTestCommands`. A point has a
//! mode, which decides how often it fires, and data, which the code at the point reads. An ordinary
//! command only checks [`FailPoints::any_on`].

use mayfly_value::arguments::error::mistyped;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuf, Number, RawDoc, RawValue};
use parking_lot::Mutex;

/// The fail points of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailPoint {
    /// Before a command runs; with a write concern error, after it has run.
    Command,
    /// In a `getMore` that has taken its cursor.
    GetMoreAfterCursorCheckout,
    /// Every operation with a time limit has exceeded it.
    MaxTimeAlwaysTimeOut,
    /// No operation exceeds its time limit.
    MaxTimeNeverTimeOut,
    /// Before the commit of a retryable statement.
    PrimaryTransactionalWrite,
}

/// Names on the wire, in the order of [`FailPoint`].
const NAMES: [(&str, FailPoint); 5] = [
    ("failCommand", FailPoint::Command),
    ("failGetMoreAfterCursorCheckout", FailPoint::GetMoreAfterCursorCheckout),
    ("maxTimeAlwaysTimeOut", FailPoint::MaxTimeAlwaysTimeOut),
    ("maxTimeNeverTimeOut", FailPoint::MaxTimeNeverTimeOut),
    ("onPrimaryTransactionalWrite", FailPoint::PrimaryTransactionalWrite),
];

impl FailPoint {
    /// Finds a fail point by name.
    ///
    /// # Errors
    /// 266 FailPointSetFailed for an unknown name.
    pub fn named(name: &str) -> Result<FailPoint> {
        let found = NAMES.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, point)| *point)
            .ok_or_else(|| Error::new(ErrorCode::FailPointSetFailed, format!("{name} not found")))
    }
}

/// How often a point fires.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Mode {
    /// Never.
    #[default]
    Off,
    /// Each time.
    AlwaysOn,
    /// This many more times.
    Times(i64),
    /// Each time, after this many passages.
    Skip(i64),
    /// Each time with this probability.
    Probability(f64),
}

impl Mode {
    /// Reads the `mode` of a command.
    ///
    /// # Errors
    /// 2 BadValue, 14 TypeMismatch, 20 IllegalOperation without one.
    pub fn parse(value: Option<RawValue<'_>>) -> Result<Mode> {
        let choices =
            "'mode' must be one of 'off', 'alwaysOn', 'times', 'skip', and 'activationProbability'";
        match value {
            None => {
                let text = "When setting a failpoint, you must supply a 'mode'";
                Err(Error::new(ErrorCode::IllegalOperation, text))
            }
            Some(RawValue::String("off")) => Ok(Mode::Off),
            Some(RawValue::String("alwaysOn")) => Ok(Mode::AlwaysOn),
            Some(RawValue::String(other)) => {
                Err(Error::bad_value(format!("unknown mode: {other}")))
            }
            Some(RawValue::Document(mode)) => {
                if let Some(times) = mode.get("times") {
                    count("times", times).map(Mode::Times)
                } else if let Some(skip) = mode.get("skip") {
                    count("skip", skip).map(Mode::Skip)
                } else if let Some(value) = mode.get("activationProbability") {
                    probability(value).map(Mode::Probability)
                } else {
                    Err(Error::bad_value(choices))
                }
            }
            Some(_) => Err(mistyped("'mode' must be a string or JSON object")),
        }
    }
}

fn count(name: &str, value: RawValue<'_>) -> Result<i64> {
    let Some(number) = Number::from_value(value) else {
        return Err(mistyped(format!("'{name}' option to 'mode' must be a number")));
    };
    match number.to_i64_exact() {
        Some(count @ 0..=0x7fff_ffff) => Ok(count),
        Some(_) => Err(Error::bad_value(format!(
            "'{name}' option to 'mode' must be between 0 and {}",
            i32::MAX
        ))),
        None => Err(Error::bad_value(format!("'{name}' option to 'mode' must be a whole number"))),
    }
}

fn probability(value: RawValue<'_>) -> Result<f64> {
    match value {
        RawValue::Double(probability) if (0.0..=1.0).contains(&probability) => Ok(probability),
        RawValue::Double(other) => Err(Error::bad_value(format!(
            "activationProbability must be between 0.0 and 1.0; found {other}"
        ))),
        _ => Err(mistyped(
            "'activationProbability' option to 'mode' must be a double between 0 and 1",
        )),
    }
}

/// The fail points by their index in `NAMES`, with a fast answer when none is on.
#[derive(Default)]
pub struct FailPoints {
    enabled: AtomicBool,
    any_on: AtomicBool,
    points: Mutex<[Point; NAMES.len()]>,
}

#[derive(Default)]
struct Point {
    mode: Mode,
    data: Option<DocBuf>,
    /// How often it has fired since the start.
    entered: i64,
}

impl FailPoints {
    /// Whether the server was started with `enableTestCommands`.
    pub fn are_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Lets commands set fail points.
    pub fn enable(&self) {
        self.enabled.store(true, Ordering::Relaxed);
    }

    /// Whether any fail point is set.
    #[inline]
    pub fn any_on(&self) -> bool {
        self.any_on.load(Ordering::Relaxed)
    }

    /// Sets a fail point; returns how often it has fired so far.
    pub fn set(&self, point: FailPoint, mode: Mode, data: Option<DocBuf>) -> i64 {
        let mut points = self.points.lock();
        let set = &mut points[point as usize];
        (set.mode, set.data) = (mode, data);
        let entered = set.entered;
        self.note_any_on(&*points);
        entered
    }

    /// How often a fail point has fired since the start.
    pub fn entered(&self, point: FailPoint) -> i64 {
        self.points.lock()[point as usize].entered
    }

    /// Passes a fail point; returns its data when it fires. A passage for which `meant` is false
    /// does not count.
    #[cold]
    pub fn pass(&self, point: FailPoint, meant: impl FnOnce(RawDoc<'_>) -> bool) -> Option<DocBuf> {
        let mut points = self.points.lock();
        let passed = &mut points[point as usize];
        let data = passed.data.clone().unwrap_or_else(DocBuf::empty);
        if passed.mode == Mode::Off || !meant(data.as_doc()) {
            return None;
        }
        let fires = passed.mode.count_passage();
        passed.entered += i64::from(fires);
        self.note_any_on(&*points);
        fires.then_some(data)
    }

    fn note_any_on(&self, points: &[Point]) {
        let any = points.iter().any(|point| point.mode != Mode::Off);
        self.any_on.store(any, Ordering::Relaxed);
    }
}

impl Mode {
    /// Counts a passage; returns whether the fail point fires.
    fn count_passage(&mut self) -> bool {
        match self {
            Mode::Off => false,
            Mode::AlwaysOn => true,
            Mode::Times(0) => {
                *self = Mode::Off;
                false
            }
            Mode::Times(left) => {
                *left -= 1;
                if *left == 0 {
                    *self = Mode::Off;
                }
                true
            }
            Mode::Skip(0) => true,
            Mode::Skip(left) => {
                *left -= 1;
                false
            }
            // The standard library seeds each of its hashers anew, which is random enough here.
            Mode::Probability(probability) => {
                let random = RandomState::new().build_hasher().finish() >> 11;
                (random as f64) < *probability * (1_u64 << 53) as f64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fired(points: &FailPoints, times: usize) -> Vec<bool> {
        (0..times).map(|_| points.pass(FailPoint::Command, |_| true).is_some()).collect()
    }

    #[test]
    fn names_stand_in_the_order_of_the_points() {
        for (at, (name, point)) in NAMES.iter().enumerate() {
            assert_eq!(at, *point as usize, "{name}");
            assert_eq!(FailPoint::named(name).unwrap(), *point);
        }
        assert_eq!(FailPoint::named("x").unwrap_err().code(), ErrorCode::FailPointSetFailed);
    }

    #[test]
    fn modes_say_how_often() {
        let points = FailPoints::default();
        assert!(!points.any_on());
        points.set(FailPoint::Command, Mode::Times(2), None);
        assert!(points.any_on());
        assert_eq!(fired(&points, 3), [true, true, false]);
        assert!(!points.any_on());
        points.set(FailPoint::Command, Mode::Skip(1), None);
        assert_eq!(fired(&points, 3), [false, true, true]);
        assert!(points.pass(FailPoint::Command, |_| false).is_none());
        points.set(FailPoint::Command, Mode::Probability(0.0), None);
        assert_eq!(fired(&points, 2), [false, false]);
        points.set(FailPoint::Command, Mode::Probability(1.0), None);
        assert_eq!(fired(&points, 2), [true, true]);
        assert_eq!(points.set(FailPoint::Command, Mode::Off, None), 6);
        assert_eq!(fired(&points, 1), [false]);
    }
}
