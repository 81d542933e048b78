//! The effects of a command besides its reply, and what it waits for. Handlers record them here,
//! and dispatch acts on them.
//!
//! Writes are not recorded here: they follow from the command's row and its operation.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use mayfly_base::Result;
use mayfly_query::AwaitedEvent;
use mayfly_work::PlanSummary;

/// The event that a command waits for before it runs again.
pub enum Wait {
    /// Data.
    Data(DataWait),
    /// A change of the topology.
    Topology {
        /// The counter that the client knows.
        seen: i64,
        /// The timeout.
        longest: Duration,
    },
}

impl Wait {
    /// The cursor whose end also ends the wait.
    pub fn cursor(&self) -> Option<i64> {
        match self {
            Wait::Data(data) => data.cursor,
            Wait::Topology { .. } => None,
        }
    }

    /// The longest time to wait, after which the command continues without a change.
    pub fn longest(&self) -> Duration {
        match self {
            Wait::Data(data) => data.longest,
            Wait::Topology { longest, .. } => *longest,
        }
    }
}

/// A wait of a command that found no data.
pub struct DataWait {
    /// The source of new data.
    pub awaited: AwaitedEvent,
    /// The cursor whose end also ends the wait.
    pub cursor: Option<i64>,
    /// The value of [`AwaitedEvent::seen`] before the command read.
    pub seen: u64,
    /// The longest time to wait for new data.
    pub longest: Duration,
}

/// What one of several statements of a command did, for the profiler.
pub(crate) struct StatementFigures {
    pub(crate) keys_examined: u64,
    pub(crate) docs_examined: u64,
    pub(crate) micros: i64,
    pub(crate) plan_summary: PlanSummary,
    /// The numbers of matched, modified and inserted documents.
    pub(crate) outcome: Result<[i64; 3]>,
}

/// The effects of one command.
#[derive(Default)]
pub struct Effects {
    statements: RefCell<Vec<StatementFigures>>,
    shown_up_to: Cell<u64>,
    read_as_of: Cell<Option<u64>>,
    has_failed: Cell<bool>,
    wait: Cell<Option<Wait>>,
    counter: Cell<Option<i64>>,
    streams: Cell<bool>,
    closes: Cell<bool>,
    hangs_up: Cell<bool>,
    pause: Cell<Duration>,
}

impl Effects {
    /// Makes the reply wait until the log is durable up to this timestamp.
    pub fn wait_until_durable(&self, timestamp: u64) {
        self.shown_up_to.set(self.shown_up_to.get().max(timestamp));
    }

    /// Records that a statement failed and the reply has its error in an array: its transaction
    /// ends.
    pub fn fail_statement(&self) {
        self.has_failed.set(true);
    }

    /// Records a statement for the profiler.
    pub(crate) fn note_statement(&self, figures: StatementFigures) {
        self.statements.borrow_mut().push(figures);
    }

    /// Takes the recorded statements.
    pub(crate) fn take_statements(&self) -> Vec<StatementFigures> {
        self.statements.take()
    }

    /// Makes the command run again after this wait; its reply is discarded.
    pub fn wait_for(&self, wait: Wait) {
        self.wait.set(Some(wait));
    }

    /// Records the topology counter in the reply.
    pub fn show_counter(&self, counter: i64) {
        self.counter.set(Some(counter));
    }

    /// Makes the command run again after its reply, without another request.
    pub fn stream(&self) {
        self.streams.set(true);
    }

    /// Closes the connection after the reply.
    pub fn close_connection(&self) {
        self.closes.set(true);
    }

    /// Closes the connection without a reply.
    pub fn hang_up(&self) {
        self.hangs_up.set(true);
    }

    /// Delays the reply.
    pub fn pause(&self, pause: Duration) {
        self.pause.set(pause);
    }

    /// Records the timestamp of all reads of the command.
    pub(crate) fn read_as_of(&self, timestamp: u64) {
        self.read_as_of.set(Some(timestamp));
    }

    /// The timestamp of all reads, if they had the same one.
    pub(crate) fn time_of_reads(&self) -> Option<u64> {
        self.read_as_of.get()
    }

    /// The timestamp up to which the log must be durable before the reply; 0 for none.
    pub(crate) fn shown_up_to(&self) -> u64 {
        self.shown_up_to.get()
    }

    /// Whether a statement failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.get()
    }

    /// Takes the wait that the command asked for.
    pub(crate) fn take_wait(&self) -> Option<Wait> {
        self.wait.take()
    }

    /// The topology counter in the reply.
    pub(crate) fn counter(&self) -> Option<i64> {
        self.counter.get()
    }

    /// Whether another reply follows.
    pub(crate) fn streams(&self) -> bool {
        self.streams.get()
    }

    /// Whether the connection closes after the reply.
    pub(crate) fn closes(&self) -> bool {
        self.closes.get()
    }

    /// Whether the connection closes without a reply.
    pub(crate) fn hangs_up(&self) -> bool {
        self.hangs_up.get()
    }

    /// The delay of the reply.
    pub(crate) fn paused(&self) -> Duration {
        self.pause.get()
    }
}
