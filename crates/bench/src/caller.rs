//! Callers: state machines that build requests and check replies. A caller runs in a thread that
//! waits for each reply, or in an event loop with thousands of others.

use anyhow::Result;
use mayfly_value::RawDoc;

use crate::wire::Request;

/// The next step after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The operation needs a further request.
    Again,
    /// The operation is complete.
    Done(Done),
}

/// A complete operation: one request, or several that belong together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// The number of operations, or of documents if the load counts documents.
    pub(crate) count: u64,
    /// Bytes of documents that it wrote.
    pub(crate) bytes: u64,
}

impl Turn {
    /// Completed operations that write nothing.
    pub(crate) const fn done(count: u64) -> Turn {
        Turn::Done(Done { count, bytes: 0 })
    }

    /// Completed operations that wrote this many bytes of documents.
    pub(crate) const fn wrote(count: u64, bytes: u64) -> Turn {
        Turn::Done(Done { count, bytes })
    }
}

/// A source of requests. At most one of its requests is under way.
pub(crate) trait Caller: Send {
    /// Builds the next request.
    fn ask(&mut self, request: &mut Request);
    /// Checks that the reply reports success.
    fn answer(&mut self, reply: RawDoc<'_>) -> Result<Turn>;
}

/// A caller made of two functions and the state that they share.
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
