//! Checks whether the system clock can be trusted. If the wall clock jumps a year ahead, everything
//! is due at once, for the monitor and for every read that hides expired documents, and deletions
//! cannot be undone.
//!
//! [`ClockWatch`] compares the wall time with the time since boot, which is never corrected. Their
//! difference, the *offset*, stays constant while both clocks run. It is compared with the offset
//! of the last check, so that a slow correction in many small steps is not taken for a jump:
//! ```text
//!               off by more than the limit
//!   trusted ---------------------------------> suspended
//!           <---------------------------------
//!               ttlResume, or the clock is back
//! ```
//!
//! A store starts suspended when the clock is earlier than its last write, or when the last run
//! ended suspended and the clock is still wrong ([`Mark`]): a restart alone does not correct a
//! clock.
//!
//! A store that was restored from a backup starts suspended, too, whatever its clock shows: most
//! of its documents may be due. Only `ttlResume` ends that.
//!
//! The clock is checked before each deletion and each hiding by wall time, so that neither happens
//! between a jump and the next pass. While expiry is suspended, no policy deletes or hides, as if
//! all were paused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use mayfly_base::Clock;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use parking_lot::Mutex;

use crate::policy::TtlParameters;

/// A check does not update the offset when it differs by less than this, so that few checks write.
const NEWS_MS: i64 = 1000;
/// The largest age of a stored mark.
const FRESH_MS: i64 = 3_600_000;
/// Both clocks must be read within this time; otherwise they are read again, because the thread may
/// have been stopped between the readings.
const READ_WITHIN_MICROS: i64 = 1_000_000;
/// The number of attempts.
const READINGS: usize = 10;

/// The reason of a suspension after a restore.
pub const RESTORED: &str = "restored";

/// Why and since when expiry is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspension {
    /// `clockJumped`, `clockBehindData` or `restored`.
    pub reason: &'static str,
    /// When the fault was noticed, in milliseconds since 1970 by the clock before the fault; when
    /// the data was restored.
    pub since_ms: i64,
    /// How far the clock is off, in milliseconds; negative when it is late.
    pub off_by_ms: i64,
}

impl Suspension {
    /// Appends the fields for a reply.
    pub fn append_to(&self, out: &mut DocBuilder) {
        out.append("reason", self.reason).append("since", RawValue::Date(self.since_ms));
        out.append("offByMillis", self.off_by_ms);
    }
}

/// The stored form of a suspension, for the next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The clock jumped ahead to `to_ms`, by `by_ms`.
    Ahead { to_ms: i64, by_ms: i64 },
    /// Any time before this one is wrong.
    Behind { least_ms: i64 },
    /// The data was restored from a backup at this time.
    Restored { since_ms: i64 },
}

impl Mark {
    pub(crate) fn to_document(self) -> DocBuf {
        let mut out = DocBuilder::new();
        match self {
            Mark::Ahead { to_ms, by_ms } => {
                out.append("ahead", RawValue::Date(to_ms)).append("by", by_ms);
            }
            Mark::Behind { least_ms } => {
                out.append("behind", RawValue::Date(least_ms));
            }
            Mark::Restored { since_ms } => {
                out.append("restored", RawValue::Date(since_ms));
            }
        }
        out.finish()
    }

    /// Whether a start with this mark suspends expiry in all cases in which one with the other mark
    /// would.
    pub(crate) fn covers(self, other: Mark) -> bool {
        match (self, other) {
            (Mark::Ahead { to_ms: own, .. }, Mark::Ahead { to_ms: other, .. }) => own <= other,
            // The mark grows as time passes.
            (Mark::Behind { least_ms: own }, Mark::Behind { least_ms: other }) => {
                other.saturating_sub(own) <= FRESH_MS
            }
            (Mark::Restored { .. }, Mark::Restored { .. }) => true,
            (Mark::Ahead { .. } | Mark::Behind { .. } | Mark::Restored { .. }, _) => false,
        }
    }

    /// Parses a stored mark; `None` when it is invalid.
    pub(crate) fn from_document(document: RawDoc<'_>) -> Option<Mark> {
        if let Some(RawValue::Date(since_ms)) = document.get("restored") {
            return Some(Mark::Restored { since_ms });
        }
        match (document.get("ahead"), document.get("by"), document.get("behind")) {
            (Some(RawValue::Date(to_ms)), Some(RawValue::Int64(by_ms)), _) => {
                Some(Mark::Ahead { to_ms, by_ms })
            }
            (_, _, Some(RawValue::Date(least_ms))) => Some(Mark::Behind { least_ms }),
            _ => None,
        }
    }
}

/// Why expiry is suspended: a fault of the clock, in terms of offsets, or a restore.
#[derive(Clone, Copy)]
enum Fault {
    /// The clock left the offset `right`.
    Left { right: i64 },
    /// The clock is below `least`, the offset at which it would show the last write.
    Behind { least: i64 },
    /// The last run saw the clock jump to the offset `jumped`.
    Ahead { jumped: i64, by_ms: i64 },
    /// The data was restored.
    Restored { since_ms: i64 },
}

impl Fault {
    fn of(mark: Mark, up_ms: i64) -> Fault {
        match mark {
            Mark::Ahead { to_ms, by_ms } => {
                Fault::Ahead { jumped: to_ms.saturating_sub(up_ms), by_ms }
            }
            Mark::Behind { least_ms } => Fault::Behind { least: least_ms.saturating_sub(up_ms) },
            Mark::Restored { since_ms } => Fault::Restored { since_ms },
        }
    }

    /// Whether the clock is still wrong. A restore is never over by itself.
    fn lasts(self, offset: i64, limit: i64) -> bool {
        match self {
            Fault::Left { right } => offset.saturating_sub(right).saturating_abs() > limit,
            Fault::Behind { least } => least.saturating_sub(offset) > limit,
            // The length of the downtime is unknown, so any time before the jump may be right.
            Fault::Ahead { jumped, .. } => jumped.saturating_sub(offset) <= limit && limit < NEVER,
            Fault::Restored { .. } => true,
        }
    }

    fn off_by_ms(self, offset: i64) -> i64 {
        match self {
            Fault::Left { right: from } | Fault::Behind { least: from } => {
                offset.saturating_sub(from)
            }
            Fault::Ahead { by_ms, .. } => by_ms,
            Fault::Restored { .. } => 0,
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Fault::Left { .. } | Fault::Ahead { .. } => "clockJumped",
            Fault::Behind { .. } => "clockBehindData",
            Fault::Restored { .. } => RESTORED,
        }
    }

    /// The mark for the next run.
    fn mark(self, offset: i64, up_ms: i64) -> Mark {
        match self {
            Fault::Left { right } if offset > right => Mark::Ahead {
                to_ms: offset.saturating_add(up_ms),
                by_ms: offset.saturating_sub(right),
            },
            Fault::Left { right: least } | Fault::Behind { least } => {
                Mark::Behind { least_ms: least.saturating_add(up_ms) }
            }
            Fault::Ahead { jumped, by_ms } => {
                Mark::Ahead { to_ms: jumped.saturating_add(up_ms), by_ms }
            }
            Fault::Restored { since_ms } => Mark::Restored { since_ms },
        }
    }
}

/// A limit that no difference exceeds.
const NEVER: i64 = i64::MAX;

/// The state that the next check starts from.
enum State {
    /// The clock has not been checked since the store was opened; the possible faults.
    Begun(Vec<Fault>),
    Trusted,
    Suspended {
        fault: Fault,
        since_ms: i64,
    },
}

/// Watches the system clock.
pub(crate) struct ClockWatch {
    clock: Arc<dyn Clock>,
    params: Arc<TtlParameters>,
    /// The offset at the last check that trusted the clock, in milliseconds.
    offset: AtomicI64,
    /// Whether the state is `Trusted`.
    trusted: AtomicBool,
    state: Mutex<State>,
}

impl ClockWatch {
    /// Starts the watch over data that was last written at `written_ms`.
    pub(crate) fn begin(
        clock: Arc<dyn Clock>,
        params: Arc<TtlParameters>,
        written_ms: Option<i64>,
        mark: Option<Mark>,
    ) -> ClockWatch {
        let watch = ClockWatch {
            clock,
            params,
            offset: AtomicI64::new(0),
            trusted: AtomicBool::new(false),
            state: Mutex::new(State::Trusted),
        };
        let up_ms = watch.up_ms();
        let written = written_ms.map(|least_ms| Mark::Behind { least_ms });
        let faults = mark.into_iter().chain(written).map(|mark| Fault::of(mark, up_ms));
        *watch.state.lock() = State::Begun(faults.collect());
        watch.offset.store(watch.steady_offset(), Ordering::Release);
        watch
    }

    /// Checks both clocks. Returns whether documents may be deleted and hidden by the wall clock.
    pub(crate) fn is_trusted(&self) -> bool {
        let known = self.offset.load(Ordering::Acquire);
        let offset = self.offset();
        let off_by = offset.saturating_sub(known).saturating_abs();
        if !self.trusted.load(Ordering::Acquire) || off_by > self.limit_ms() {
            return self.check_closely();
        }
        if off_by >= NEWS_MS {
            // Fails when another thread was faster.
            let relaxed = Ordering::Relaxed;
            let _ = self.offset.compare_exchange(known, offset, Ordering::AcqRel, relaxed);
        }
        true
    }

    /// Accepts the clock as it is. Returns whether expiry was suspended.
    pub(crate) fn resume(&self) -> bool {
        let suspended = !self.is_trusted();
        self.trust(&mut self.state.lock(), self.steady_offset());
        if suspended {
            tracing::info!("expiry was resumed by the command ttlResume");
        }
        suspended
    }

    /// Suspends expiry because the data was restored; returns the mark for the next run.
    pub(crate) fn suspend_restored(&self) -> Mark {
        let since_ms = self.clock.now_ms();
        let mut state = self.state.lock();
        *state = State::Suspended { fault: Fault::Restored { since_ms }, since_ms };
        self.trusted.store(false, Ordering::Release);
        Mark::Restored { since_ms }
    }

    /// Takes over the suspension that the owner of the store has recorded: documents are hidden by
    /// the wall clock here as there.
    pub(crate) fn follow(&self, mark: Option<Mark>) {
        match mark {
            None => self.trust(&mut self.state.lock(), self.steady_offset()),
            Some(mark) => {
                let since_ms = self.clock.now_ms();
                let fault = Fault::of(mark, self.up_ms());
                *self.state.lock() = State::Suspended { fault, since_ms };
                self.trusted.store(false, Ordering::Release);
            }
        }
    }

    /// The present suspension.
    pub(crate) fn suspension(&self) -> Option<Suspension> {
        self.is_trusted();
        let State::Suspended { fault, since_ms } = *self.state.lock() else { return None };
        let off_by_ms = fault.off_by_ms(self.steady_offset());
        Some(Suspension { reason: fault.reason(), since_ms, off_by_ms })
    }

    /// The mark for the next run.
    pub(crate) fn mark(&self) -> Option<Mark> {
        self.is_trusted();
        let State::Suspended { fault, .. } = *self.state.lock() else { return None };
        Some(fault.mark(self.steady_offset(), self.up_ms()))
    }

    fn check_closely(&self) -> bool {
        let mut state = self.state.lock();
        let known = self.offset.load(Ordering::Acquire);
        let (offset, limit) = (self.steady_offset(), self.limit_ms());
        let left = Some(Fault::Left { right: known }).filter(|fault| fault.lasts(offset, limit));
        let fault = match &*state {
            State::Suspended { fault, .. } => Some(*fault).filter(|it| it.lasts(offset, limit)),
            State::Trusted => left,
            State::Begun(faults) => {
                let lasting = faults.iter().find(|fault| fault.lasts(offset, limit));
                // A clock that has returned to the right time has not jumped.
                let was_wrong = faults.iter().any(|fault| fault.lasts(known, limit));
                lasting.copied().or(left.filter(|_| !was_wrong))
            }
        };
        match fault {
            None => self.trust(&mut state, offset),
            Some(fault @ Fault::Restored { since_ms })
                if !matches!(*state, State::Suspended { .. }) =>
            {
                *state = State::Suspended { fault, since_ms };
                self.trusted.store(false, Ordering::Release);
                tracing::warn!(
                    startupWarning = true,
                    reason = fault.reason(),
                    sinceMillis = since_ms,
                    "The data was restored from a backup: expiry deletes and hides nothing until the command ttlResume"
                );
            }
            Some(fault) if !matches!(*state, State::Suspended { .. }) => {
                let off_by_ms = fault.off_by_ms(offset);
                let since_ms = offset.saturating_add(self.up_ms()).saturating_sub(off_by_ms);
                *state = State::Suspended { fault, since_ms };
                self.trusted.store(false, Ordering::Release);
                tracing::warn!(
                    startupWarning = matches!(fault, Fault::Behind { .. } | Fault::Ahead { .. }),
                    reason = fault.reason(),
                    offByMillis = off_by_ms,
                    limitMillis = limit,
                    sinceMillis = since_ms,
                    "The clock has jumped or is late: expiry deletes and hides nothing until the clock is \
                     right again, or until the command ttlResume"
                );
            }
            Some(_) => {}
        }
        fault.is_none()
    }

    fn trust(&self, state: &mut State, offset: i64) {
        if let State::Suspended { fault, .. } = state
            && !matches!(fault, Fault::Restored { .. })
        {
            tracing::info!("the clock is back; expiry resumes");
        }
        *state = State::Trusted;
        self.offset.store(offset, Ordering::Release);
        self.trusted.store(true, Ordering::Release);
    }

    /// `ttlClockJumpLimitSecs` in milliseconds.
    fn limit_ms(&self) -> i64 {
        match self.params.clock_jump_limit_secs.load(Ordering::Relaxed) {
            0 => NEVER,
            secs => secs.saturating_mul(1000),
        }
    }

    fn up_ms(&self) -> i64 {
        self.clock.since_boot_micros() / 1000
    }

    fn offset(&self) -> i64 {
        self.clock.now_ms().saturating_sub(self.up_ms())
    }

    /// The offset from two readings that were close together.
    fn steady_offset(&self) -> i64 {
        for _ in 0..READINGS {
            let before = self.clock.since_boot_micros();
            let offset = self.offset();
            if self.clock.since_boot_micros() - before <= READ_WITHIN_MICROS {
                return offset;
            }
        }
        self.offset()
    }
}
