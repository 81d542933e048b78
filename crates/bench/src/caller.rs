//! What a connection asks: a state machine of requests and answers, the same for a thread that
//! waits for each answer and for the event loop that drives thousands of them.

use anyhow::Result;
use mayfly_value::RawDoc;

use crate::wire::Request;

/// What follows an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The operation needs a further request.
    Again,
    /// It is complete.
    Done(Done),
}

/// A complete request, or several that belong together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// Operations, or documents where the load counts those.
    pub(crate) count: u64,
    /// Bytes of the user's data that it wrote.
    pub(crate) bytes: u64,
}

impl Turn {
    /// So many operations that write nothing.
    pub(crate) const fn done(count: u64) -> Turn {
        Turn::Done(Done { count, bytes: 0 })
    }

    /// So many operations that wrote so many bytes of the user's data.
    pub(crate) const fn wrote(count: u64, bytes: u64) -> Turn {
        Turn::Done(Done { count, bytes })
    }
}

/// One asker; it has at most one request under way.
pub(crate) trait Caller: Send {
    /// Builds the next request.
    fn ask(&mut self, request: &mut Request);
    /// Checks that the answer is a success.
    fn answer(&mut self, reply: RawDoc<'_>) -> Result<Turn>;
}

/// A caller made of two functions and what they share.
pub(crate) fn caller<S, A, B>(state: S, ask: A, answer: B) -> Box<dyn Caller>
where
    S: Send + 'static,
    A: FnMut(&mut S, &mut Request) + Send + 'static,
    B: FnMut(&mut S, RawDoc<'_>) -> Result<Turn> + Send + 'static,
{
    Box::new(Pair { state, ask, answer })
}

struct Pair<S, A, B> {
    state: S,
    ask: A,
    answer: B,
}

impl<S, A, B> Caller for Pair<S, A, B>
where
    S: Send,
    A: FnMut(&mut S, &mut Request) + Send,
    B: FnMut(&mut S, RawDoc<'_>) -> Result<Turn> + Send,
{
    fn ask(&mut self, request: &mut Request) {
        (self.ask)(&mut self.state, request);
    }

    fn answer(&mut self, reply: RawDoc<'_>) -> Result<Turn> {
        (self.answer)(&mut self.state, reply)
    }
}
