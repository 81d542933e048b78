//! What a command did beside writing its reply, and what it waits for. Handlers record it here; the dispatcher acts on it.
//!
//! That a command wrote is not recorded here: its row and its operation say so, so that no handler has to.

use std::cell::Cell;
use std::time::Duration;

use mayfly_query::Awaited;

/// What a command that cannot be answered yet waits for, before it runs again.
pub enum Wait {
    /// Data.
    Data(DataWait),
    /// A change of the topology.
    Topology {
        /// The counter that the client knows.
        seen: i64,
        /// At most so long.
        longest: Duration,
    },
}

impl Wait {
    /// How long the wait may take at most.
    pub fn longest(&self) -> Duration {
        match self {
            Wait::Data(data) => data.longest,
            Wait::Topology { longest, .. } => *longest,
        }
    }
}

/// What a command that found nothing waits for.
pub struct DataWait {
    /// What may bring data.
    pub awaited: Awaited,
    /// As [`Awaited::seen`] gave it before the command looked.
    pub seen: u64,
    /// At most so long.
    pub longest: Duration,
}

/// The effects of one command.
#[derive(Default)]
pub struct Effects {
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
    /// The reply shows what is in the log up to this timestamp. It is sent when that is durable.
    pub fn show_up_to(&self, timestamp: u64) {
        self.shown_up_to.set(self.shown_up_to.get().max(timestamp));
    }

    /// A statement failed, and the reply says so in an array of errors: its transaction ends.
    pub fn fail_statement(&self) {
        self.has_failed.set(true);
    }

    /// The command runs again after this wait, and its reply is thrown away.
    pub fn wait_for(&self, wait: Wait) {
        self.wait.set(Some(wait));
    }

    /// The reply has this counter of the topology.
    pub fn show_counter(&self, counter: i64) {
        self.counter.set(Some(counter));
    }

    /// The command runs again after its reply, without another request.
    pub fn stream(&self) {
        self.streams.set(true);
    }

    /// The connection closes after the reply.
    pub fn close_connection(&self) {
        self.closes.set(true);
    }

    /// The connection closes without a reply.
    pub fn hang_up(&self) {
        self.hangs_up.set(true);
    }

    /// The reply is sent so much later.
    pub fn pause(&self, pause: Duration) {
        self.pause.set(pause);
    }

    /// Everything was read as of this time.
    pub(crate) fn read_as_of(&self, timestamp: u64) {
        self.read_as_of.set(Some(timestamp));
    }

    /// The time that everything was read as of, if that was one.
    pub(crate) fn time_of_reads(&self) -> Option<u64> {
        self.read_as_of.get()
    }

    /// The last timestamp that the reply shows; 0 for none.
    pub(crate) fn shown_up_to(&self) -> u64 {
        self.shown_up_to.get()
    }

    /// Whether a statement failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.get()
    }

    /// What the command waits for.
    pub(crate) fn take_wait(&self) -> Option<Wait> {
        self.wait.take()
    }

    /// The counter of the topology in the reply.
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

    /// How much later the reply is sent.
    pub(crate) fn paused(&self) -> Duration {
        self.pause.get()
    }
}
