//! Read-only transactions whose BEGIN is still under way.
//!
//! A read-only transaction takes its snapshot when it begins. Waiting for the server would cost
//! every query a round trip. Instead BEGIN is only sent, the first read follows it at once, and
//! *commits* wait: COMMIT is sent when the server has answered all BEGINs that were sent before.
//! So a transaction does not see a commit that was requested after it began.
//!
//! ```text
//! reader   begin ->           get ->         <- ok   <- value          one round trip
//! writer            commit()  ...............  commit ->     <- ok
//! ```
//!
//! So a slow reader delays commits. When a commit has waited for more than a few milliseconds,
//! because the server is overloaded, readers wait themselves for the next second: a BEGIN that was
//! answered before the call returns concerns no commit. A commit waits for two seconds at most.
//! Then the transactions that are late fail with [`KvError::Unavailable`] at their first read, as
//! do those that would have to begin again, after a lost connection, when there were commits
//! meanwhile.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use mayfly_kv::KvError;
use mayfly_work::current;
use parking_lot::{Condvar, Mutex};

use crate::failure::Failure;
use crate::pool::Lease;
use crate::wait::{Abandoned, CHECK_EVERY, has_ended};

/// How long a commit waits for the server to begin earlier readers.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// After a commit has waited for this long, readers wait themselves for a time.
const SLOW: Duration = Duration::from_millis(3);
const SLOW_FOR: Duration = Duration::from_secs(1);

const LATE: &str = "PostgreSQL has not begun the transaction in time";
const LOST: &str = "the connection to PostgreSQL was lost, and others have committed meanwhile";

/// Begins a transaction; the select takes the snapshot.
const BEGIN_READER: &str = "begin isolation level repeatable read read only; select 1";

/// The BEGINs that were sent and not answered.
#[derive(Default)]
pub(crate) struct Openings {
    state: Mutex<OpeningState>,
    /// The oldest BEGIN was answered.
    advanced: Condvar,
}

#[derive(Default)]
struct OpeningState {
    next: u64,
    pending: BTreeMap<u64, Arc<Reply>>,
    /// The number of commits that have begun.
    commits: u64,
    /// The number of commits that wait.
    waiting: usize,
    /// Until then readers wait themselves.
    slow_until: Option<Instant>,
}

/// Which thread waits for the reply to a BEGIN.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// The reader, before its call returns.
    Reader,
    /// Commits, until the reader has begun.
    Commits,
}

/// The reply to one BEGIN.
#[derive(Default)]
struct Reply {
    progress: Mutex<Progress>,
    /// Its reader waits for it. No other thread is woken: with many readers that would be costly.
    arrived: Condvar,
}

/// The progress of one BEGIN.
#[derive(Default)]
enum Progress {
    #[default]
    Sent,
    Begun,
    Failed(Failure),
    /// A commit has not waited for it.
    Late,
}

/// A BEGIN that was sent.
#[derive(Clone)]
pub(crate) struct Opening {
    openings: Arc<Openings>,
    reply: Arc<Reply>,
    commits: u64,
    is_repeated: bool,
}

impl Openings {
    /// Sends BEGIN for a read-only transaction. One that begins again must see no commit that has
    /// begun since the first time: it passes the number of commits of then.
    pub(crate) fn begin(
        self: &Arc<Openings>,
        lease: &Lease,
        waits: Waits,
        of_first: Option<u64>,
    ) -> Opening {
        lease.begin_transaction();
        let connection = lease.connection();
        let reply = Arc::<Reply>::default();
        let (number, commits) = {
            let mut state = self.state.lock();
            let number = state.next;
            state.next += 1;
            if waits == Waits::Commits {
                state.pending.insert(number, reply.clone());
            }
            (number, of_first.unwrap_or(state.commits))
        };
        let is_repeated = of_first.is_some();
        let opening = Opening { openings: self.clone(), reply, commits, is_repeated };
        // Sending is the first poll; it does not wait.
        let sending = pin!(connection.client().simple_query_raw(BEGIN_READER));
        let replies = match sending.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(replies)) => replies,
            Poll::Ready(Err(error)) => {
                opening.end(number, Progress::Failed(Failure::of(&error)));
                return opening;
            }
            Poll::Pending => {
                opening.end(number, Progress::Failed(Failure::Lost("it did not send".into())));
                return opening;
            }
        };
        let task = opening.clone();
        connection.runtime().spawn(async move {
            let mut replies = pin!(replies);
            let mut progress = Progress::Begun;
            while let Some(reply) = replies.next().await {
                if let Err(error) = reply {
                    progress = Progress::Failed(Failure::of(&error));
                    break;
                }
            }
            task.end(number, progress);
        });
        opening
    }

    /// Which thread shall wait for the reply to the next BEGIN.
    pub(crate) fn waits(&self) -> Waits {
        match self.state.lock().slow_until {
            Some(until) if Instant::now() < until => Waits::Reader,
            _ => Waits::Commits,
        }
    }

    /// Counts a commit, and waits until earlier readers have begun.
    pub(crate) fn wait_before_commit(&self) {
        let mut state = self.state.lock();
        state.commits += 1;
        let upto = state.next;
        let is_clear =
            |state: &OpeningState| state.pending.keys().next().is_none_or(|number| *number >= upto);
        if is_clear(&state) {
            return;
        }
        let (begun, give_up) = (Instant::now(), Instant::now() + LONGEST_WAIT);
        state.waiting += 1;
        current::wait(|| {
            while !is_clear(&state) {
                let is_slow = begun.elapsed() >= SLOW;
                let until = if is_slow { give_up } else { begun + SLOW };
                let timed_out = self.advanced.wait_until(&mut state, until).timed_out();
                if is_slow {
                    state.slow_until = Some(Instant::now() + SLOW_FOR);
                }
                if timed_out && is_slow {
                    break;
                }
            }
        });
        state.waiting -= 1;
        // The others stay pending for later commits.
        let after = state.pending.split_off(&upto);
        let late = std::mem::replace(&mut state.pending, after);
        drop(state);
        late.into_values().for_each(|reply| reply.set(Progress::Late));
    }
}

impl Reply {
    /// The first call counts.
    fn set(&self, ended: Progress) {
        let mut progress = self.progress.lock();
        if matches!(*progress, Progress::Sent) {
            *progress = ended;
            self.arrived.notify_all();
        }
    }
}

impl Opening {
    fn end(&self, number: u64, ended: Progress) {
        self.reply.set(ended);
        let mut state = self.openings.state.lock();
        let was_oldest = state.pending.first_key_value().is_some_and(|(first, _)| *first == number);
        state.pending.remove(&number);
        if was_oldest && state.waiting > 0 {
            self.openings.advanced.notify_all();
        }
    }

    /// Whether no commit has begun since it was sent: then a later snapshot shows the same.
    pub(crate) fn may_repeat(&self) -> bool {
        self.openings.state.lock().commits == self.commits
    }

    /// The number of commits that had begun when it was sent for the first time.
    pub(crate) fn commits(&self) -> u64 {
        self.commits
    }

    /// Waits until the transaction has begun.
    pub(crate) fn wait(&self, deadline: Instant) -> Result<(), Failure> {
        let mut progress = self.reply.progress.lock();
        if matches!(*progress, Progress::Sent) {
            current::wait(|| {
                while matches!(*progress, Progress::Sent) {
                    if Instant::now() >= deadline || has_ended() {
                        break;
                    }
                    let until = deadline.min(Instant::now() + CHECK_EVERY);
                    self.reply.arrived.wait_until(&mut progress, until);
                }
            });
        }
        let result = match &*progress {
            Progress::Sent if has_ended() => Err(Abandoned::OperationEnded.into()),
            Progress::Sent => Err(Abandoned::Deadline.into()),
            Progress::Begun => Ok(()),
            Progress::Failed(failure) => Err(failure.clone()),
            Progress::Late => Err(Failure::Refused(KvError::Unavailable(LATE.into()))),
        };
        drop(progress);
        // Of one that was sent again, commits between the first time and now may be visible.
        match result {
            Ok(()) if self.is_repeated && !self.may_repeat() => {
                Err(Failure::Refused(KvError::Unavailable(LOST.into())))
            }
            result => result,
        }
    }
}
