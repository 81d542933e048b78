//! Cursors, from which clients fetch batches. A cursor contains a plan and key positions, no engine
//! objects.

use mayfly_storage::StoreSession;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result, limits};
use mayfly_mql::Projection;
use mayfly_storage::{Collection, Store, Watch};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, check_size};
use mayfly_work::{OpCtx, PlanSummary};

use crate::exec::Failures;
use crate::exec::shape::{KeyPaths, RequestedMetadata};
use crate::exec::{Executor, Flow};
use crate::memory::{Spool, SpoolWriter};
use crate::pipeline::PipelineRun;

/// Bytes of a reply that are reserved for fields other than the batch.
const REPLY_ROOM_BYTES: usize = 16 * 1024;

/// The size limit of a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimit {
    /// Limit on the documents; `None` for no limit.
    pub documents: Option<usize>,
}

/// The origin of a cursor's documents.
pub enum CursorSource {
    /// A plan.
    Find(Box<Executor>),
    /// A pipeline.
    Pipeline(Box<PipelineRun>),
    /// Documents in memory.
    Ready(VecDeque<DocBuf>),
    /// Documents in a file.
    Spooled(Box<SpooledResults>),
}

/// Results that were read completely, and wait in a file.
pub struct SpooledResults {
    rest: Spool,
    next: Option<DocBuf>,
}

/// Limit on the bytes of such a file.
const MAX_SPOOLED_BYTES: usize = 1 << 30;

/// The event that a cursor without documents waits for.
pub enum AwaitedEvent {
    /// A commit on a collection.
    Collection(Arc<Collection>),
    /// Any change.
    Changes,
    /// A change that may concern a scope.
    Events(Arc<Watch>),
}

impl AwaitedEvent {
    /// The current position, to be read before the cursor and passed to
    /// [`AwaitedEvent::wait_past`].
    pub fn seen(&self, store: &Store) -> u64 {
        match self {
            AwaitedEvent::Collection(collection) => collection.commits_seen(),
            AwaitedEvent::Changes | AwaitedEvent::Events(_) => store.oplog().settled(),
        }
    }

    /// Waits for an event after a position.
    pub async fn wait_past(&self, store: &Store, seen: u64) {
        match self {
            AwaitedEvent::Collection(collection) => collection.wait_for_commit(seen).await,
            AwaitedEvent::Changes => store.oplog().wait_past(seen).await,
            AwaitedEvent::Events(watch) => store.oplog().wait_past_for(watch, seen).await,
        }
    }
}

/// An open cursor.
pub struct Cursor {
    /// The namespace that is shown to clients.
    pub namespace: Namespace,
    /// The origin of the documents.
    source: CursorSource,
    /// Whether a batch without documents waits for some.
    pub await_data: bool,
    /// Whether batches contain only data that is durable when the reply is sent.
    pub only_durable: bool,
    /// The remaining time limit of the command that opened the cursor, for all its batches
    /// together.
    pub time_left_micros: Option<i64>,
    /// The command that opened the cursor, as `currentOp` shows it, and its plan.
    pub origin: Option<CursorOrigin>,
    /// What its batches have contained so far.
    pub returned: Returned,
    /// The position ([`AwaitedEvent::seen`]) up to which its last batch has found no documents.
    pub empty_up_to: Option<u64>,
}

/// Counts of what a cursor has returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Returned {
    /// The documents of all batches.
    pub documents: i64,
    /// The number of batches.
    pub batches: i64,
}

/// What opened a cursor, for reports about its later batches.
#[derive(Clone)]
pub struct CursorOrigin {
    /// The command as a BSON document.
    pub command: Arc<[u8]>,
    /// Its plan in short.
    pub plan_summary: PlanSummary,
}

impl Cursor {
    /// A cursor before its first batch.
    pub fn new(namespace: Namespace, source: CursorSource) -> Cursor {
        Cursor {
            namespace,
            source,
            await_data: false,
            only_durable: false,
            time_left_micros: None,
            origin: None,
            returned: Returned::default(),
            empty_up_to: None,
        }
    }

    /// Whether the next batch may find documents. It finds none if the last one has found none, and
    /// the awaited event has not happened since.
    pub fn has_more_to_read(&self, store: &Store) -> bool {
        match (self.empty_up_to, self.awaited()) {
            (Some(position), Some(awaited)) => awaited.seen(store) > position,
            _ => true,
        }
    }

    /// Whether the cursor stays open at the end of its results.
    pub fn is_tailable(&self) -> bool {
        match &self.source {
            CursorSource::Find(executor) => executor.is_tailable(),
            CursorSource::Pipeline(run) => run.changes_reached().is_some(),
            CursorSource::Ready(_) | CursorSource::Spooled(_) => false,
        }
    }

    /// The event that the cursor waits for, if it does.
    pub fn awaited(&self) -> Option<AwaitedEvent> {
        match &self.source {
            CursorSource::Find(executor) if self.await_data => {
                Some(AwaitedEvent::Collection(executor.collection().clone()))
            }
            CursorSource::Pipeline(run) if self.await_data && run.changes_reached().is_some() => {
                Some(run.watch().cloned().map_or(AwaitedEvent::Changes, AwaitedEvent::Events))
            }
            _ => None,
        }
    }

    /// The position for [`AwaitedEvent::wait_past`] after a batch of changes, for a batch that the
    /// stages have emptied or that did not examine the whole log.
    pub fn reached(&self) -> Option<u64> {
        match &self.source {
            CursorSource::Pipeline(run) => run.changes_reached(),
            _ => None,
        }
    }

    /// A timestamp up to which the log must be durable before the last batch is sent; `None` if the
    /// batch may contain any committed data. Change events are always sent after they are durable,
    /// so that a client that resumes finds them again.
    pub fn must_be_durable(&self, store: &Store) -> Option<u64> {
        let changes = match &self.source {
            CursorSource::Pipeline(run) => run.changes_shown_up_to(store),
            CursorSource::Find(_) | CursorSource::Ready(_) | CursorSource::Spooled(_) => None,
        };
        changes.or_else(|| self.only_durable.then(|| store.last_timestamp()))
    }

    /// `postBatchResumeToken`, for change streams.
    pub fn resume_token(&self) -> Option<DocBuf> {
        match &self.source {
            CursorSource::Pipeline(run) => run.resume_token(),
            _ => None,
        }
    }

    /// Whether all results were returned.
    pub fn is_done(&self) -> bool {
        match &self.source {
            CursorSource::Find(executor) => executor.is_done(),
            CursorSource::Pipeline(run) => run.is_done(),
            CursorSource::Ready(documents) => documents.is_empty(),
            CursorSource::Spooled(kept) => kept.next.is_none(),
        }
    }

    /// Appends documents to the open array of the reply until the batch is full, by count or
    /// because the reply would exceed 16 MiB. The first document always fits.
    ///
    /// # Errors
    /// Errors of the plan or pipeline.
    pub fn fill(
        &mut self,
        session: StoreSession<'_>,
        limit: BatchLimit,
        out: &mut DocBuilder,
    ) -> Result<usize> {
        let mut batch =
            Batch { start: out.len(), count: 0, most: limit.documents.unwrap_or(usize::MAX), out };
        if batch.most == 0 {
            return Ok(0);
        }
        match &mut self.source {
            CursorSource::Find(executor) => fill_from_plan(executor, session, &mut batch)?,
            CursorSource::Pipeline(run) => {
                run.run(session, &mut |document| batch.take(document))?
            }
            CursorSource::Ready(documents) => {
                while let Some(document) = documents.front() {
                    let flow = batch.take(document.as_doc())?;
                    if flow == Flow::Refused {
                        break;
                    }
                    documents.pop_front();
                    if flow == Flow::Pause {
                        break;
                    }
                }
            }
            CursorSource::Spooled(kept) => {
                while let Some(document) = &kept.next {
                    session.op.check()?;
                    let flow = batch.take(document.as_doc())?;
                    if flow == Flow::Refused {
                        break;
                    }
                    kept.next = kept.rest.next()?.map(RawDoc::to_owned);
                    if flow == Flow::Pause {
                        break;
                    }
                }
            }
        }
        self.returned.documents += i64::try_from(batch.count).unwrap_or(i64::MAX);
        Ok(batch.count)
    }

    /// Moves the data that operators buffer from memory to files.
    ///
    /// # Errors
    /// 292 QueryExceededMemoryLimitNoDiskUseAllowed for a query that may not use files; errors of
    /// files and of the operation's deadline.
    pub fn release(&mut self, op: &OpCtx) -> Result<()> {
        match &mut self.source {
            CursorSource::Find(executor) => executor.release(op),
            CursorSource::Pipeline(run) => run.release(op),
            CursorSource::Ready(_) | CursorSource::Spooled(_) => Ok(()),
        }
    }

    /// Reads all remaining results into a file in this folder, so that later batches have the same
    /// snapshot as this one.
    ///
    /// # Errors
    /// 146 ExceededMemoryLimit if they exceed the limit of the file; errors of the plan or
    /// pipeline.
    pub fn spool_rest(&mut self, session: StoreSession<'_>, folder: &Path) -> Result<()> {
        if self.is_done()
            || matches!(self.source, CursorSource::Ready(_) | CursorSource::Spooled(_))
        {
            return Ok(());
        }
        let (mut spool, mut bytes) = (SpoolWriter::new(folder)?, 0);
        while !self.is_done() {
            let mut batch = DocBuilder::new_array();
            self.fill(session, BatchLimit { documents: None }, &mut batch)?;
            let batch = batch.finish();
            bytes += batch.as_bytes().len();
            if bytes > MAX_SPOOLED_BYTES {
                let text = "a snapshot read has more than 1 GiB after its first batch";
                return Err(Error::new(ErrorCode::ExceededMemoryLimit, text));
            }
            for element in batch.as_doc() {
                if let RawValue::Document(document) = element.value() {
                    spool.push(document)?;
                }
            }
        }
        let mut rest = spool.finish()?;
        let next = rest.next()?.map(RawDoc::to_owned);
        self.source = CursorSource::Spooled(Box::new(SpooledResults { rest, next }));
        Ok(())
    }
}

fn fill_from_plan(
    executor: &mut Executor,
    session: StoreSession<'_>,
    batch: &mut Batch<'_>,
) -> Result<()> {
    let projection = executor.query().projection.clone();
    let matcher = executor.query().matcher.clone();
    let (shape, command) = (executor.shape(), executor.command());
    let collection = executor.collection().clone();
    let failures = Failures::of(command, &collection);
    let asked = RequestedMetadata::by(projection.as_ref());
    if shape.key_only || asked.is_some() {
        executor.settle(session)?;
    }
    let key = (!shape.is_plain() || asked.is_some()).then(|| KeyPaths::of(executor, asked));
    executor.expect(batch.most);
    executor.run(session, &mut |record, document, metadata| {
        let record = match &key {
            Some(key) => key.record(session, record, document)?,
            None => Cow::Borrowed(record),
        };
        let noted = match (asked, &key) {
            (Some(asked), Some(key)) => Some(asked.noted(key, &record, document, metadata)),
            _ => None,
        };
        let metadata = noted.as_ref().unwrap_or(metadata);
        let project = |p| Projection::project_found(p, metadata.frame(document), &matcher);
        let projected = projection.as_ref().map(project);
        let projected = projected.transpose().map_err(|error| failures.named(error))?;
        let result = projected.as_ref().map_or(document, DocBuf::as_doc);
        match &key {
            Some(key) if !shape.is_plain() => {
                batch.take(shape.shown(key, &record, document, result).as_doc())
            }
            _ => batch.take(result),
        }
    })
}

/// A batch that is being built inside of the reply.
struct Batch<'o> {
    start: usize,
    count: usize,
    most: usize,
    out: &'o mut DocBuilder,
}

impl Batch<'_> {
    fn take(&mut self, document: RawDoc<'_>) -> Result<Flow> {
        let size = self.out.len() - self.start + document.as_bytes().len();
        if size > limits::MAX_WIRE_DOCUMENT_BYTES {
            // Documents between stages may be larger, but results may not.
            check_size(document.as_bytes().len())?;
        }
        if self.count > 0 && size > limits::MAX_USER_DOCUMENT_BYTES - REPLY_ROOM_BYTES {
            return Ok(Flow::Refused);
        }
        self.out.push(document);
        self.count += 1;
        Ok(if self.count >= self.most { Flow::Pause } else { Flow::More })
    }
}
