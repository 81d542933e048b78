//! Change streams: the operation log as events (manual, "Change Streams", "Change Events").
//!
//! ```text
//! log entry ──► operations ──► events of the scope ──► stages after $changeStream ──► batch
//!                               (a queue)               ($match, $project, ..)
//! ```
//!
//! A stream keeps the token of the last operation that it examined. Its watch ([`Watch`]) knows
//! which later entries cannot concern it; the stream skips those without reading them. Events are
//! made in queues from the part of the log that has no holes. Each batch reports the position of
//! the stream as `postBatchResumeToken`, even if it contains no event.

mod delta;
mod event;
mod log_scan;
mod lookup;
mod options;
mod split;
mod token;

use mayfly_storage::StoreSession;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result, limits};
pub use mayfly_storage::ChangeScope;
use mayfly_storage::{Direction, LogEntry, LogOperation, LogRange, LogVisitor, Store, Watch};
use mayfly_value::{DocBuf, RawDoc, RawValue};

use event::{Builder, Outcome, TransactionPart};
pub use log_scan::{LogOrder, LogScan};
use lookup::{LookedUp, Queued};
use options::Start;
pub(crate) use options::{ARGUMENTS as STREAM_ARGUMENTS, ChangeOptions};
pub(crate) use split::{Resumed, fragments};
use token::{Token, TokenKind};

/// Limit on an event: a document, and room for its token.
const MAX_EVENT_BYTES: usize = limits::MAX_USER_DOCUMENT_BYTES + 8 * 1024;

/// Limit on the events that are made at once.
const QUEUED: usize = 100;
/// The same after a full queue: the stream is far from the end of the log.
const QUEUED_AFTER_FULL: usize = 1600;
/// Approximate limit on their bytes.
const QUEUED_BYTES: usize = 1 << 20;

/// Why a batch ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchEnd {
    Full,
    NoMoreEvents,
}

/// A running change stream.
pub(crate) struct ChangeStream {
    builder: Builder,
    /// Determines which entries may concern the stream.
    watch: Arc<Watch>,
    /// The last operation that was examined.
    position: Token,
    /// Events that were not returned yet.
    queue: VecDeque<Queued>,
    /// Documents of its first updates.
    looked_up: LookedUp,
    /// Limit on the events of the next queue.
    limit: usize,
    /// The event that is being passed through the stages: its token, in both forms.
    shown: Option<(Token, DocBuf)>,
    /// The token of the last result that was returned, or of the start.
    last: Token,
    /// Why the last batch ended.
    ended: BatchEnd,
    /// Whether this batch has returned an event.
    given: bool,
    /// An event that could not be returned, and the error for the next batch.
    refused: Option<(Token, Error)>,
    /// Whether an event has ended the stream.
    over: bool,
}

impl ChangeStream {
    /// A stream that starts where the options specify.
    ///
    /// # Errors
    /// 286 ChangeStreamHistoryLost, 260 InvalidResumeToken.
    pub(crate) fn new(
        store: &Store,
        scope: ChangeScope,
        options: &ChangeOptions,
    ) -> Result<ChangeStream> {
        // The watch must exist before the position is read, so that it covers everything after the
        // position.
        let watch = store.oplog().watch(scope.clone());
        let last = match options.start {
            Start::Now => Token::after_timestamp(store.oplog().settled()),
            Start::At(timestamp) => Token::after_timestamp(timestamp.saturating_sub(1)),
            Start::After(token) => token,
        };
        // The event of a fragment is made again; the stage that splits it drops the fragments that
        // the client has received.
        let position = match last.fragment {
            Some(_) => Token { fragment: None, ..last }.before(),
            None => last,
        };
        store.oplog().check_not_cut(position.complete_up_to())?;
        let builder = Builder { scope, options: options.clone() };
        Ok(ChangeStream {
            builder,
            watch,
            position,
            queue: VecDeque::new(),
            looked_up: LookedUp::default(),
            limit: QUEUED,
            shown: None,
            last,
            ended: BatchEnd::NoMoreEvents,
            given: false,
            refused: None,
            over: false,
        })
    }

    /// Whether no more events will come.
    pub(crate) fn is_over(&self) -> bool {
        self.over && self.queue.is_empty() && self.refused.is_none()
    }

    /// Starts a batch. `given` is set if results are left from the last one.
    pub(crate) fn begin_batch(&mut self, given: bool) {
        self.given = given;
    }

    /// Ends a batch, whose last result has this `_id`.
    pub(crate) fn end_batch(&mut self, last: Option<RawDoc<'_>>, end: BatchEnd) {
        if let Some(Ok(token)) = last.map(Token::parse) {
            self.last = token;
        }
        self.ended = end;
    }

    /// Whether no event is available for this batch.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() || self.refused.is_some()
    }

    /// The watch that signals new events.
    pub(crate) fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }

    /// The timestamp up to which the log was examined.
    pub(crate) fn reached(&self) -> u64 {
        self.position.complete_up_to()
    }

    /// A timestamp that is not before anything that the events contain.
    pub(crate) fn shown_up_to(&self, store: &Store) -> u64 {
        // A document that is looked up may be newer than its event.
        match self.builder.options.after {
            options::Image::Lookup => store.last_timestamp(),
            _ => self.reached(),
        }
    }

    /// The resume token at the end of a batch: that of the last result, if the batch is full or the
    /// log has no later entries, and else the position in the log.
    pub(crate) fn resume_token(&self) -> DocBuf {
        let reached = match (&self.refused, self.queue.front()) {
            (Some((refused, _)), _) => return refused.before().document(),
            (None, Some(next)) => next.token.before(),
            (None, None) => self.position,
        };
        match self.ended == BatchEnd::Full || reached.timestamp <= self.last.timestamp {
            true => self.last.document(),
            false => reached.document(),
        }
    }

    /// The token after which this event is the next one.
    pub(crate) fn token_before(event: RawDoc<'_>) -> DocBuf {
        let id = event.get("_id").and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY);
        Token::parse(id).map_or_else(|_| id.to_owned(), |token| token.before().document())
    }

    /// The next event; `None` if there is none yet.
    ///
    /// # Errors
    /// 286 ChangeStreamHistoryLost, 47 NoMatchingDocument, errors of the store.
    pub(crate) fn next(&mut self, session: StoreSession<'_>) -> Result<Option<DocBuf>> {
        if let Some((_, error)) = self.refused.take() {
            return Err(error);
        }
        if self.queue.is_empty() && !self.over {
            self.read(session)?;
        }
        self.looked_up.complete(session, &mut self.queue)?;
        let Some(Queued { token, event, .. }) = self.queue.pop_front() else { return Ok(None) };
        self.shown = Some((token, token.document()));
        Ok(Some(event))
    }

    /// Checks that a result of the stages still has the token of its event, and that it fits a
    /// reply.
    ///
    /// # Errors
    /// 280 ChangeStreamFatalError, 10334 BSONObjectTooLarge.
    pub(crate) fn check_shown(&mut self, result: RawDoc<'_>) -> Result<()> {
        let id = result.get("_id").and_then(RawValue::as_document);
        if let Some((token, shown)) = &self.shown
            && id != Some(shown.as_doc())
            && !id.is_some_and(|id| is_fragment_of(id, *token))
        {
            return Err(lost_token());
        }
        let size = result.as_bytes().len();
        if size > MAX_EVENT_BYTES {
            return Err(too_large(size));
        }
        self.given = true;
        Ok(())
    }

    /// Handles an event that cannot be returned. If this batch has returned other events, the error
    /// is kept for the next batch.
    ///
    /// # Errors
    /// The error, if this batch has returned no event.
    pub(crate) fn refuse(&mut self, error: Error) -> Result<()> {
        match &self.shown {
            Some((token, _)) if self.given => {
                self.refused = Some((*token, error));
                Ok(())
            }
            _ => Err(error),
        }
    }

    fn read(&mut self, session: StoreSession<'_>) -> Result<()> {
        let quiet = session.store.oplog().quiet_until(&self.watch, self.reached());
        if quiet > self.reached() {
            self.position = self.position.max(Token::after_timestamp(quiet));
        }
        let from = self.position;
        let mut reading = Reading {
            builder: &self.builder,
            session,
            from,
            queue: &mut self.queue,
            limit: self.limit,
            bytes: 0,
            over: false,
            cut_short: false,
            failed: None,
        };
        let mut seen = 0u64;
        let reached = session.store.oplog().read_changes(from.complete_up_to(), &mut |entry| {
            let timestamp = entry.timestamp();
            seen += 1;
            if seen.is_multiple_of(QUEUED as u64) {
                session.op.check()?;
            }
            match event::part_of_transaction(entry) {
                // It is processed with the last entry, which has the time of the commit.
                Some(TransactionPart::Before) => return Ok(ControlFlow::Continue(())),
                Some(TransactionPart::Last { before }) => {
                    let mut at = 0;
                    read_parts(session.store, before, &mut |part| {
                        at = reading.entry(timestamp, part, at)?;
                        session.op.check().map(|()| reading.flow())
                    })?;
                    reading.entry(timestamp, entry, at)?;
                }
                None => {
                    reading.entry(timestamp, entry, 0)?;
                }
            }
            match reading.failed.take() {
                // The events before the failure are returned first; the next read meets it again.
                Some(_) if !reading.queue.is_empty() => reading.cut_short = true,
                Some(error) => return Err(error),
                None => {}
            }
            Ok(reading.flow())
        })?;
        let (over, cut_short) = (reading.over, reading.cut_short);
        self.limit = match reading.is_full() {
            true => QUEUED_AFTER_FULL,
            false => QUEUED,
        };
        self.over = over;
        self.position = match (over || cut_short, self.queue.back()) {
            (true, Some(last)) => last.token,
            _ => self.position.max(Token::after_timestamp(reached)),
        };
        Ok(())
    }
}

/// The state of making a queue of events.
struct Reading<'r> {
    builder: &'r Builder,
    session: StoreSession<'r>,
    /// The last operation that was examined before.
    from: Token,
    queue: &'r mut VecDeque<Queued>,
    /// Limit on the events of the queue.
    limit: usize,
    bytes: usize,
    /// Whether an event ends the stream.
    over: bool,
    /// Whether the current entry has more events than fit.
    cut_short: bool,
    failed: Option<Error>,
}

impl Reading<'_> {
    /// Makes events of an entry, whose first operation has the number `first`. Returns the number
    /// after its last operation, unless the queue is full before.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected.
    fn entry(&mut self, timestamp: u64, entry: &LogEntry<'_>, first: u32) -> Result<u32> {
        let mut next = first;
        entry.operations(&mut |operation| {
            let token = Token { timestamp, at: next, kind: TokenKind::Event, fragment: None };
            next += 1;
            self.operation(entry, operation, token);
            let done = self.failed.is_some() || self.over || self.cut_short;
            Ok(if done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(next)
    }

    fn operation(&mut self, entry: &LogEntry<'_>, operation: &LogOperation<'_>, token: Token) {
        // For the operation at the start position only the `invalidate` event may be missing, which
        // only commands have.
        let known = token == self.from;
        let command = || operation.get("op").and_then(RawValue::as_str) == Some("c");
        if self.failed.is_some() || self.over || token < self.from || (known && !command()) {
            return;
        }
        if self.is_full() {
            self.cut_short = true;
            return;
        }
        match self.builder.event(self.session, entry, operation, token) {
            Ok(Outcome::Nothing) => {}
            Ok(Outcome::Event(_) | Outcome::Update(..)) if known => {}
            Ok(Outcome::Event(event)) => self.push(Queued { token, event, lookup: None }),
            Ok(Outcome::Update(event, lookup)) => {
                self.push(Queued { token, event, lookup: Some(lookup) });
            }
            Ok(Outcome::Last(event, last)) => {
                if !known {
                    self.push(Queued { token, event, lookup: None });
                }
                let token = Token { kind: TokenKind::Invalidate, ..token };
                self.push(Queued { token, event: last, lookup: None });
                self.over = true;
            }
            Err(error) => self.failed = Some(error),
        }
    }

    fn push(&mut self, queued: Queued) {
        self.bytes += queued.event.as_bytes().len();
        self.queue.push_back(queued);
    }

    fn is_full(&self) -> bool {
        self.queue.len() >= self.limit || self.bytes >= QUEUED_BYTES
    }

    fn flow(&self) -> ControlFlow<()> {
        match self.over || self.cut_short || self.failed.is_some() || self.is_full() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Visits the entries of a transaction up to `last`, in order.
///
/// # Errors
/// 286 ChangeStreamHistoryLost if the log has been truncated after their start.
fn read_parts(store: &Store, last: u64, visit: &mut LogVisitor<'_>) -> Result<()> {
    let oplog = store.oplog();
    let mut first = last;
    loop {
        let mut before = None;
        let range = LogRange { first, last: first };
        oplog.read(range, Direction::Forward, &mut |part| {
            before = event::previous(part);
            Ok(ControlFlow::Break(()))
        })?;
        match before {
            Some(0) => break,
            Some(before) => first = before,
            None => {
                oplog.check_not_cut(first.saturating_sub(1))?;
                return Err(Error::new(
                    ErrorCode::DataCorruptionDetected,
                    "a part of a transaction is missing in the operation log",
                ));
            }
        }
    }
    let range = LogRange { first, last };
    oplog.read(range, Direction::Forward, visit)?;
    oplog.check_not_cut(first.saturating_sub(1))
}

/// Whether a token identifies a fragment of this event.
fn is_fragment_of(id: RawDoc<'_>, event: Token) -> bool {
    let Ok(id) = Token::parse(id) else { return false };
    id.fragment.is_some() && Token { fragment: None, ..id } == event
}

fn too_large(size: usize) -> Error {
    Error::new(
        ErrorCode::BSONObjectTooLarge,
        format!(
            "BSONObj size: {size} is invalid. Size must be between 0 and {}. A change event is too large: ask for fewer \
             documents in it, or split it with $changeStreamSplitLargeEvent",
            limits::MAX_USER_DOCUMENT_BYTES
        ),
    )
}

fn lost_token() -> Error {
    Error::new(
        ErrorCode::ChangeStreamFatalError,
        "Encountered an event whose _id field, which contains the resume token, was modified by the pipeline. \
         Modifying the _id field of an event makes it impossible to resume the stream from that point. Only \
         transformations that retain the unmodified _id field are allowed.",
    )
}
