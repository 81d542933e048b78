//! The log after the base, the end of a copy, and the switch-over.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use mayfly_base::{Clock, Error, ErrorCode, SystemClock};
use mayfly_query::PartialFilters;
use mayfly_storage::{CopyEnd, CopyPhase, CopyTarget, Replay, SessionsPart};
use mayfly_value::{RawDoc, RawValue};

use super::server::is_answer;
use super::source::Source;
use super::{CopyFlags, TRIED, check_source, of_target, print, say, verify};
use crate::failure::{Failure, FailureKind};

/// The pause after the whole log was read.
const PAUSE: Duration = Duration::from_millis(100);
/// The interval of two lines about the lag, and of two stored positions without changes.
const REPORT: Duration = Duration::from_secs(5);
/// How long the last entries may take, while writes wait.
const LAST_ENTRIES: Duration = Duration::from_secs(8);
/// Records of retryable writes are read again if they are younger than the first reading by this
/// time at most, in milliseconds: the clock of the source may differ.
const SESSIONS_SLACK_MS: i64 = 600_000;

/// What follows the log of a source.
struct Follower {
    source: Source,
    target: CopyTarget,
    replay: Replay,
    copy: [u8; 16],
    /// The entries up to this time were read and applied.
    reached: u64,
    settled: u64,
    clock: SystemClock,
}

/// Applies the log, and ends the copy if that is possible or wanted.
///
/// # Errors
/// A [`Failure`].
pub(super) fn follow(
    mut source: Source,
    target: CopyTarget,
    flags: &CopyFlags,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let copy = target.state().copy;
    let replay = target.replay(Arc::new(PartialFilters)).map_err(|error| of_target(&error))?;
    let reached = replay.position();
    if let Source::Local(local) = &source {
        if target.state().phase == CopyPhase::Complete && local.was_moved_by(copy)? {
            source.close(copy);
            return released(target, &replay, out);
        }
        if flags.switch_over {
            local.refuse_moved()?;
        }
    }
    let store = source.follow(copy, reached)?;
    check_source(target.state(), store)?;
    let clock = SystemClock::new();
    let mut follower = Follower { source, target, replay, copy, reached, settled: 0, clock };
    if follower.source.is_local() {
        return follower.end_offline(flags, out);
    }
    follower.catch_up(flags, out)?;
    follower.switch_over(out)
}

impl Follower {
    /// Reads and applies a part of the log.
    fn step(&mut self) -> anyhow::Result<()> {
        let part = self.source.log(self.copy, self.reached)?;
        apply(&mut self.replay, &part.entries).map_err(|error| of_target(&error))?;
        (self.reached, self.settled) = (part.reached, part.settled);
        Ok(())
    }

    fn is_at_end(&self) -> bool {
        self.reached >= self.settled
    }

    /// Whether the target is at most about a second late. Under a constant load of writes the log
    /// always has an entry more; a hold lets the target have all of them.
    fn is_close(&self) -> bool {
        (self.settled >> 32).saturating_sub(self.reached >> 32) <= 1
    }

    /// Applies the log until the target has nearly all of it. Without a switch-over it does not
    /// end.
    fn catch_up(&mut self, flags: &CopyFlags, out: &mut impl Write) -> anyhow::Result<()> {
        let (mut announced, mut kept) = (false, Instant::now());
        loop {
            self.step()?;
            if kept.elapsed() >= REPORT {
                kept = Instant::now();
                let reached = self.reached;
                self.replay.keep_position(reached).map_err(|error| of_target(&error))?;
                if !announced {
                    let lag = (self.settled >> 32).saturating_sub(self.reached >> 32);
                    say(&format!("the target is {lag} s late"));
                }
            }
            if !self.is_close() {
                continue;
            }
            if flags.switch_over {
                return Ok(());
            }
            if !announced {
                announced = true;
                print(
                    out,
                    "The target has the entries of the log, and follows less than a second late. \
                     It goes on until Ctrl-C. The same command continues it later; with \
                     --switchOver it moves the store to the target.",
                )?;
            }
            if self.is_at_end() {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Moves the store: its writers wait meanwhile.
    fn switch_over(mut self, out: &mut impl Write) -> anyhow::Result<()> {
        // Most records are copied before the hold.
        let since_ms = self.clock.now_ms() - SESSIONS_SLACK_MS;
        self.copy_sessions(0)?;
        self.step()?;
        let began = Instant::now();
        let time = match self.hold_and_complete(since_ms) {
            Ok(time) => time,
            Err(error) => {
                self.source.release(self.copy);
                return Err(error);
            }
        };
        if let Err(error) = self.source.finish(self.copy, time) {
            return Err(match is_answer(&error) {
                true => {
                    self.source.release(self.copy);
                    error
                }
                false => unknown_end(&error),
            });
        }
        drop(self.source);
        released(self.target, &self.replay, out)?;
        let millis = began.elapsed().as_millis();
        print(out, &format!("Writes waited for {millis} ms. The server of the source is ending."))
    }

    /// Makes writes wait, and completes the target. Returns the last time of the log.
    fn hold_and_complete(&mut self, since_ms: i64) -> anyhow::Result<u64> {
        let hold = self.source.hold(self.copy)?;
        let began = Instant::now();
        while self.reached < hold.time {
            if began.elapsed() > LAST_ENTRIES {
                let advice = "run the same command again when fewer writes are under way";
                let failure = Failure::new(FailureKind::General, TRIED, advice);
                let text = "the last entries took too long; the writes of the source go on";
                return Err(anyhow!(text).context(failure));
            }
            self.step()?;
        }
        self.copy_sessions(since_ms)?;
        self.complete(hold.time, hold.suspended)?;
        Ok(hold.time)
    }

    /// Copies the records of retryable writes since a wall time.
    fn copy_sessions(&mut self, since_ms: i64) -> anyhow::Result<()> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let SessionsPart { run, next } =
                self.source.sessions(self.copy, since_ms, after.as_deref())?;
            self.target.write_sessions(&run).map_err(|error| of_target(&error))?;
            match next {
                Some(_) => after = next,
                None => return Ok(()),
            }
        }
    }

    fn complete(&mut self, time: u64, suspended: Option<Vec<u8>>) -> anyhow::Result<()> {
        let reached = self.reached;
        self.replay.keep_position(reached).map_err(|error| of_target(&error))?;
        let end = CopyEnd { time, now_ms: self.clock.now_ms(), suspended };
        self.target.complete(self.replay.store(), &end).map_err(|error| of_target(&error))
    }

    /// Ends the copy of a source that no server has open.
    fn end_offline(mut self, flags: &CopyFlags, out: &mut impl Write) -> anyhow::Result<()> {
        self.step()?;
        while !self.is_at_end() {
            self.step()?;
        }
        let time = self.hold_and_complete(0)?;
        if flags.verify
            && let Source::Local(local) = &mut self.source
        {
            let store = local.store()?;
            verify::compare(&store, self.replay.store(), out)?;
        }
        if flags.switch_over {
            self.source.finish(self.copy, time)?;
        }
        self.source.close(self.copy);
        released(self.target, &self.replay, out)
    }
}

/// Makes a store of the target.
fn released(target: CopyTarget, replay: &Replay, out: &mut impl Write) -> anyhow::Result<()> {
    target.release(replay.store()).map_err(|error| of_target(&error))?;
    print(
        out,
        "The copy is complete: a server can open the target. Search indexes are built again from \
         the documents; change streams must begin anew.",
    )
}

/// Applies entries, one after the other.
fn apply(replay: &mut Replay, mut entries: &[u8]) -> mayfly_base::Result<()> {
    let mut read = Vec::new();
    while !entries.is_empty() {
        let length = entries.first_chunk().map(|bytes| u32::from_le_bytes(*bytes) as usize);
        let split = length.and_then(|length| entries.split_at_checked(length));
        let entry = split.and_then(|(entry, rest)| Some((RawDoc::new(entry)?, rest)));
        let Some((entry, rest)) = entry else {
            let text = "the source's log contains bytes that are no entry";
            return Err(Error::new(ErrorCode::DataCorruptionDetected, text));
        };
        debug_assert!(matches!(entry.get("ts"), Some(RawValue::Timestamp(_))));
        entries = rest;
        read.push(entry);
    }
    replay.apply_all(&read)
}

/// The failure when the reply to the last request was lost.
fn unknown_end(error: &anyhow::Error) -> anyhow::Error {
    let advice = "if the server of the source runs, its writes go on, and the same command tries \
                  again; if it has ended, run the command with its data folder or database as \
                  --from, which completes the target or continues the copy. Until then no server \
                  opens the target";
    let tried = "cannot tell whether the source was moved";
    anyhow!("{:#}", error.root_cause()).context(Failure::new(FailureKind::General, tried, advice))
}
