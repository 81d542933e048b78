//! Pipeline stages: one file for each stage, and one row for each in the table of `pipeline`.
//!
//! A stage is parsed once into a [`Stage`], which declares the fields that it reads and changes,
//! and runs as a [`Running`], which receives one document after the other and passes its results to
//! the next stage, as borrowed bytes. A [`StageContext`] gives access to the store. A [`Source`]
//! provides documents that come from no collection.

pub(crate) mod backup_cursor;
pub(crate) mod bucket;
pub(crate) mod bucket_auto;
pub(crate) mod cluster;
mod context;
pub(crate) mod count;
pub(crate) mod densify;
pub(crate) mod documents;
pub(crate) mod facet;
pub(crate) mod fields;
pub(crate) mod fill;
pub(crate) mod filter;
pub(crate) mod fused;
pub(crate) mod geo_near;
mod granularity;
pub(crate) mod graph_lookup;
pub(crate) mod group;
mod host;
mod join;
pub(crate) mod lookup;
pub(crate) mod map_reduce;
pub(crate) mod merge;
mod merge_run;
#[cfg(test)]
mod metadata_tests;
pub(crate) mod out;
#[cfg(test)]
mod out_tests;
pub(crate) mod project;
pub(crate) mod redact;
pub(crate) mod reshape;
mod rights;
pub(crate) mod sample;
pub(crate) mod search;
pub(crate) mod sort;
pub(crate) mod sort_by_count;
pub(crate) mod source;
pub(crate) mod split_event;
mod step;
pub(crate) mod sub;
mod target;
#[cfg(test)]
mod tests;
mod timed;
pub(crate) mod union_with;
pub(crate) mod unwind;
pub(crate) mod window;
pub(crate) mod window_fields;
mod window_partition;

use mayfly_storage::StoreSession;
use std::any::Any;
use std::cell::Cell;
use std::fmt::Debug;

use mayfly_base::{Namespace, Result};
use mayfly_expr::Frame;
use mayfly_value::{DocBuf, DocBuilder, RawDoc};
use mayfly_work::current::spend;

pub use context::{
    KnownDescription, PipelineContext, PipelineOwner, RunSettings, WantedDescription,
};
pub(crate) use fields::{Effect, Reads};
pub use host::Host;
pub(crate) use rights::RecordedRights;
pub use rights::{Needs, Rights};
pub use search::{SearchHit, SearchHits, SearchKind, Searched, Searcher, WantedOfHits};
pub use source::Description;
pub(crate) use source::{About, Source};
pub(crate) use step::{Step, written};
pub(crate) use timed::TimedStage;

use crate::exec::Flow;
use crate::language::metadata::CurrentMetadata;
use crate::memory::Sorter;
use mayfly_work::OpCtx;
use mayfly_work::spill::Operator;

/// Receives a document from the previous stage.
pub(crate) type Next<'n> = dyn FnMut(RawDoc<'_>) -> Result<Flow> + 'n;

/// A parsed stage, without running state.
pub(crate) trait Stage: Any + Debug + Send + Sync {
    /// Creates the running stage.
    fn start(self: Box<Self>) -> Box<dyn Running>;

    /// The fields that the stage reads.
    fn reads(&self) -> Reads {
        Reads::Anything
    }

    /// How the stage changes documents.
    fn effect(&self) -> Effect {
        Effect::Unknown
    }

    /// Whether the stage returns exactly one document for each, so that it commutes with `$limit`
    /// and `$skip`.
    fn is_one_for_one(&self) -> bool {
        false
    }

    /// The metadata that the stage adds to documents, by the names that `$meta` uses.
    fn gives_metadata(&self) -> &'static [&'static str] {
        &[]
    }

    /// The collections that the stage reads besides its input.
    fn collections(&self) -> Vec<Namespace> {
        Vec::new()
    }

    /// The descriptions of collections with which pipelines inside of the stage begin.
    fn descriptions(&self) -> Vec<WantedDescription> {
        Vec::new()
    }

    /// The collection that the stage writes to.
    fn writes_to(&self) -> Option<&Namespace> {
        None
    }

    /// Checks, without a write, that the collection is as the stage needs it.
    ///
    /// # Errors
    /// Errors of the stage.
    fn check_target(&self, _: StoreSession<'_>) -> Result<()> {
        Ok(())
    }
}

/// Work of passing a document to a stage, in units of [`spend`]; each KiB of the document adds one.
const SHOWN_UNITS: usize = 8;

/// The environment of a running stage.
pub(crate) struct StageContext<'c> {
    /// The store, the operation, and its view of the store.
    pub(crate) session: StoreSession<'c>,
    /// Settings of the run, made by the command.
    pub(crate) settings: &'c RunSettings,
    /// Metadata of the document that is being passed on.
    pub(crate) metadata: &'c CurrentMetadata,
    /// Whether a stage or the reader has paused in the current step. Only debug builds set it.
    paused: Cell<bool>,
}

impl<'c> StageContext<'c> {
    /// The context of one batch.
    pub(crate) fn new(
        session: StoreSession<'c>,
        settings: &'c RunSettings,
        metadata: &'c CurrentMetadata,
    ) -> StageContext<'c> {
        StageContext { session, settings, metadata, paused: Cell::new(false) }
    }

    /// Starts a new step: after a pause, stages may receive documents again.
    pub(crate) fn begin_step(&self) {
        self.paused.set(false);
    }

    /// Adds a document with its key to the sorter of a stage, which begins with the first one.
    ///
    /// # Errors
    /// Errors of [`Sorter::push`].
    pub(crate) fn sort(
        &self,
        sorter: &mut Option<Sorter>,
        (most, operator): (Option<u64>, Operator),
        key: &[u8],
        document: RawDoc<'_>,
    ) -> Result<()> {
        let begin = || Sorter::by_keys(most, &self.settings.budget, operator);
        let sorter = sorter.get_or_insert_with(begin);
        sorter.push_keyed(key, document, &self.metadata.get(), self.session.op)
    }

    /// Checks the contract of [`Running::push`] for every stage: no document is passed on after a
    /// pause.
    fn check_pause(&self, flow: &Result<Flow>) {
        if cfg!(debug_assertions) && !matches!(flow, Ok(Flow::More)) {
            self.paused.set(true);
        }
    }
}

/// A running stage that makes one document of each.
struct OneForOne<F>(F);

impl<F: FnMut(Frame<'_>) -> Result<DocBuf> + Send> Running for OneForOne<F> {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        let metadata = context.metadata.get();
        next((self.0)(metadata.frame(document))?.as_doc())
    }
}

/// A running stage that makes one document of each with this function.
pub(crate) fn one_for_one(
    make: impl FnMut(Frame<'_>) -> Result<DocBuf> + Send + 'static,
) -> Box<dyn Running> {
    Box::new(OneForOne(make))
}

/// A running stage.
pub(crate) trait Running: Send {
    /// Takes a document and passes results to `next`.
    ///
    /// `next` returns `Pause` when it has accepted the document and wants no more in this step. The
    /// stage then does not call `next` again, keeps the remaining results, passes them on in
    /// [`Running::resume`], and returns `Pause` itself. [`show`] asserts in debug builds that no
    /// stage passes on a document after a pause.
    ///
    /// # Errors
    /// Errors of this stage and of the later ones.
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow>;

    /// Passes on results that a pause left over. Returns `Pause` if some are left again.
    ///
    /// # Errors
    /// As [`Running::push`].
    fn resume(&mut self, _: &StageContext<'_>, _: &mut Next<'_>) -> Result<Flow> {
        Ok(Flow::More)
    }

    /// Ends the input, and passes on buffered results. A `Pause` asks to be called again.
    ///
    /// # Errors
    /// As [`Running::push`].
    fn finish(&mut self, _: &StageContext<'_>, _: &mut Next<'_>) -> Result<Flow> {
        Ok(Flow::More)
    }

    /// Ends a batch. The next one has a new snapshot, so cached data of other collections is
    /// dropped.
    fn end_batch(&mut self) {}

    /// Cleans up after the run failed in this stage or elsewhere.
    fn abandon(&mut self, _: &StageContext<'_>) {}

    /// Moves buffered documents from memory to files. Stages that buffer little ignore this.
    ///
    /// # Errors
    /// 292 QueryExceededMemoryLimitNoDiskUseAllowed without files; errors of files and of the
    /// operation's deadline.
    fn release(&mut self, _: &OpCtx) -> Result<()> {
        Ok(())
    }

    /// Whether the stage needs no further documents.
    fn is_satisfied(&self) -> bool {
        false
    }

    /// The next result that a pause left over, if documents are change events with resume tokens.
    fn held(&self) -> Option<RawDoc<'_>> {
        None
    }

    /// Appends statistics for explain. Returns the stage's own time in microseconds, if it is
    /// measured.
    fn explain(&self, _: &mut DocBuilder) -> u64 {
        0
    }

    /// Whether the stage may hold results back until the end of the input or after a pause.
    fn holds_back(&self) -> bool {
        false
    }
}

/// Receives the results of a pipeline.
pub(crate) type Reader<'r> = dyn FnMut(RawDoc<'_>) -> Result<Flow> + 'r;

/// Passes a document to the first stage, its results to the second, and so on to the reader.
///
/// # Errors
/// Errors of the stages and of the reader, and errors of an operation that must end.
pub(crate) fn show(
    stages: &mut [Box<dyn Running>],
    context: &StageContext<'_>,
    document: RawDoc<'_>,
    reader: &mut Reader<'_>,
) -> Result<Flow> {
    debug_assert!(!context.paused.get(), "a document was passed on after a pause");
    let flow = match stages.split_first_mut() {
        None => reader(document),
        Some((first, later)) => {
            // A stage may make many or large documents of one.
            spend(SHOWN_UNITS + (document.as_bytes().len() >> 10))?;
            let next = &mut |result: RawDoc<'_>| show(later, context, result, reader);
            let flow = first.push(context, document, next);
            if first.is_satisfied() { flow.and(Ok(Flow::Pause)) } else { flow }
        }
    };
    context.check_pause(&flow);
    flow
}
