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
//! A commit waits for half a second at most. Then the transactions that are late fail with
//! [`KvError::TooOld`] at their first read.

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
use crate::wait::Abandoned;

/// How long a commit waits for the server to begin earlier readers.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// Begins a transaction; the select takes the snapshot.
const BEGIN_READER: &str = "begin isolation level repeatable read read only; select 1";

/// The BEGINs that were sent and not answered.
#[derive(Default)]
pub(crate) struct Openings {
    state: Mutex<OpeningState>,
    answered: Condvar,
}

#[derive(Default)]
struct OpeningState {
    next: u64,
    pending: BTreeMap<u64, Arc<Mutex<Progress>>>,
    /// The number of commits that have begun.
    commits: u64,
}

/// The progress of one BEGIN.
enum Progress {
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
    progress: Arc<Mutex<Progress>>,
    commits: u64,
    is_repeated: bool,
}

impl Openings {
    /// Sends BEGIN for a read-only transaction. One that begins again must see no commit that has
    /// begun since the first time: it passes the number of commits of then.
    pub(crate) fn begin(self: &Arc<Openings>, lease: &Lease, of_first: Option<u64>) -> Opening {
        lease.begin_transaction();
        let connection = lease.connection();
        let progress = Arc::new(Mutex::new(Progress::Sent));
        let (number, commits) = {
            let mut state = self.state.lock();
            let number = state.next;
            state.next += 1;
            state.pending.insert(number, progress.clone());
            (number, of_first.unwrap_or(state.commits))
        };
        let is_repeated = of_first.is_some();
        let opening = Opening { openings: self.clone(), progress, commits, is_repeated };
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
        let give_up = Instant::now() + LONGEST_WAIT;
        current::wait(|| {
            while !is_clear(&state) {
                if self.answered.wait_until(&mut state, give_up).timed_out() {
                    break;
                }
            }
        });
        // The others stay pending for later commits, which find them answered or late as well.
        let after = state.pending.split_off(&upto);
        let late = std::mem::replace(&mut state.pending, after);
        for progress in late.into_values() {
            // Its reader looks at it again when it is woken.
            let mut progress = progress.lock();
            if matches!(*progress, Progress::Sent) {
                *progress = Progress::Late;
            }
        }
        drop(state);
        self.answered.notify_all();
    }
}

impl Opening {
    fn end(&self, number: u64, ended: Progress) {
        {
            let mut progress = self.progress.lock();
            if matches!(*progress, Progress::Sent) {
                *progress = ended;
            }
        }
        self.openings.state.lock().pending.remove(&number);
        self.openings.answered.notify_all();
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
        let look = || match &*self.progress.lock() {
            Progress::Sent => None,
            // Of one that was sent again, commits between the first time and now may be visible.
            Progress::Begun if self.is_repeated && !self.may_repeat() => {
                Some(Err(Failure::Refused(KvError::TooOld)))
            }
            Progress::Begun => Some(Ok(())),
            Progress::Failed(failure) => Some(Err(failure.clone())),
            Progress::Late => Some(Err(Failure::Refused(KvError::TooOld))),
        };
        if let Some(result) = look() {
            return result;
        }
        current::wait(|| {
            let mut state = self.openings.state.lock();
            loop {
                if let Some(result) = look() {
                    return result;
                }
                if self.openings.answered.wait_until(&mut state, deadline).timed_out() {
                    return look().unwrap_or(Err(Abandoned::Deadline.into()));
                }
            }
        })
    }
}
