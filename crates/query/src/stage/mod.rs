//! Pipeline stages: one file per stage, and one row per stage in the table of `pipeline`.
//!
//! A stage is parsed once into a [`Stage`], a type of its own that says what it reads and what it does to fields, and runs as a
//! [`Running`]: it is shown one document after the other and shows its results to the next one, as borrowed bytes. What it may use
//! meanwhile is its [`StageContext`]. Where documents come from that no stage gave is a [`Source`].

mod around;
pub(crate) mod bucket;
pub(crate) mod bucket_auto;
pub(crate) mod count;
pub(crate) mod densify;
pub(crate) mod documents;
pub(crate) mod facet;
pub(crate) mod fields;
pub(crate) mod fill;
pub(crate) mod filter;
pub(crate) mod geo_near;
mod granularity;
pub(crate) mod graph_lookup;
pub(crate) mod group;
mod host;
mod join;
pub(crate) mod lookup;
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
pub(crate) mod sort;
pub(crate) mod sort_by_count;
pub(crate) mod source;
pub(crate) mod split_event;
mod step;
mod sub;
mod target;
#[cfg(test)]
mod tests;
pub(crate) mod union_with;
pub(crate) mod unwind;
mod watched;
pub(crate) mod window;
pub(crate) mod window_fields;
mod window_partition;

use mayfly_storage::StoreSession;
use std::any::Any;
use std::cell::Cell;
use std::fmt::Debug;

use mayfly_base::{Namespace, Result};
use mayfly_value::{DocBuilder, RawDoc};
use mayfly_work::current::spend;

pub use around::{Around, Inside, RunSettings};
pub(crate) use fields::{Effect, Reads};
pub use host::Host;
pub(crate) use rights::Noted;
pub use rights::{Needs, Rights};
pub use source::Description;
pub(crate) use source::{About, Source};
pub(crate) use step::{Step, written};
pub(crate) use watched::Watched;

use crate::exec::Flow;
use crate::language::metadata::InFlight;

/// Takes a document from the stage before.
pub(crate) type Next<'n> = dyn FnMut(RawDoc<'_>) -> Result<Flow> + 'n;

/// A parsed stage: what it is, not how far it has come.
pub(crate) trait Stage: Any + Debug + Send + Sync {
    /// Its running form.
    fn start(self: Box<Self>) -> Box<dyn Running>;

    /// Which fields it looks at.
    fn reads(&self) -> Reads {
        Reads::Anything
    }

    /// What it does to the fields of documents.
    fn effect(&self) -> Effect {
        Effect::Unknown
    }

    /// Whether it gives exactly one document for each, so that it may as well come behind a `$limit` or `$skip`.
    fn is_one_for_one(&self) -> bool {
        false
    }

    /// What the documents that it finds have beside their fields, by the names that `$meta` uses.
    fn gives_metadata(&self) -> &'static [&'static str] {
        &[]
    }

    /// The collections that it reads beside its input, by name in the database of the command.
    fn collections(&self) -> Vec<Namespace> {
        Vec::new()
    }

    /// The collection that it writes to.
    fn writes_to(&self) -> Option<&Namespace> {
        None
    }
}

/// Work that passing a document to a stage counts as, in units of [`spend`]; each KiB of the document adds one.
const SHOWN_UNITS: usize = 8;

/// What a running stage may use.
pub(crate) struct StageContext<'c> {
    /// The store, the operation, and what it sees.
    pub(crate) session: StoreSession<'c>,
    /// What the command says about its run.
    pub(crate) settings: &'c RunSettings,
    /// Metadata of the document that is being passed on.
    pub(crate) metadata: &'c InFlight,
    /// Whether a stage or the reader has paused in the present step. Only debug builds set it.
    paused: Cell<bool>,
}

impl<'c> StageContext<'c> {
    /// The context of one batch.
    pub(crate) fn new(
        session: StoreSession<'c>,
        settings: &'c RunSettings,
        metadata: &'c InFlight,
    ) -> StageContext<'c> {
        StageContext { session, settings, metadata, paused: Cell::new(false) }
    }

    /// Starts a new step: stages may be given documents again after a pause.
    pub(crate) fn begin_step(&self) {
        self.paused.set(false);
    }

    /// Checks the contract of [`Running::push`] for every stage: no document is passed on after a pause.
    fn check_pause(&self, flow: &Result<Flow>) {
        if cfg!(debug_assertions) && !matches!(flow, Ok(Flow::More)) {
            self.paused.set(true);
        }
    }
}

/// A running stage.
pub(crate) trait Running: Send {
    /// Takes a document and passes results to `next`.
    ///
    /// `next` answers `Pause` when it has taken the document and wants no more in this step. The stage then calls `next` no more,
    /// keeps the results that are left, gives them in [`Running::resume`], and returns `Pause` itself. [`show`] asserts in
    /// debug builds that no stage passes on a document after a pause.
    ///
    /// # Errors
    /// Errors of this stage and of the later ones.
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow>;

    /// Gives what a pause left of the results of documents that were pushed; a `Pause` when something is left again.
    ///
    /// # Errors
    /// As [`Running::push`].
    fn resume(&mut self, _: &StageContext<'_>, _: &mut Next<'_>) -> Result<Flow> {
        Ok(Flow::More)
    }

    /// The input is over: gives what comes behind it. A `Pause` asks to be called again.
    ///
    /// # Errors
    /// As [`Running::push`].
    fn finish(&mut self, _: &StageContext<'_>, _: &mut Next<'_>) -> Result<Flow> {
        Ok(Flow::More)
    }

    /// A batch is over. The next one comes over a new snapshot: what was read of other collections goes.
    fn end_batch(&mut self) {}

    /// The run failed, here or elsewhere: clears away what nobody will look for.
    fn abandon(&mut self, _: &StageContext<'_>) {}

    /// Whether it wants no further document, whatever comes.
    fn is_satisfied(&self) -> bool {
        false
    }

    /// The next of the results that a pause left, where the documents are events that can be gone on behind.
    fn held(&self) -> Option<RawDoc<'_>> {
        None
    }

    /// Writes what it did, for those who explain it. Gives the microseconds that it took itself, where somebody watched that.
    fn explain(&self, _: &mut DocBuilder) -> u64 {
        0
    }

    /// Whether results may come at the end of the input, or stay behind when the reader pauses.
    fn holds_back(&self) -> bool {
        false
    }
}

/// Takes the results of a pipeline.
pub(crate) type Reader<'r> = dyn FnMut(RawDoc<'_>) -> Result<Flow> + 'r;

/// Shows a document to the first stage, whose results go to the second, and so on to the reader.
///
/// # Errors
/// Those of the stages and of the reader, and those of an operation that must end.
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
            // A stage may make many documents of one, and large ones.
            spend(SHOWN_UNITS + (document.as_bytes().len() >> 10))?;
            let next = &mut |result: RawDoc<'_>| show(later, context, result, reader);
            let flow = first.push(context, document, next);
            if first.is_satisfied() { flow.and(Ok(Flow::Pause)) } else { flow }
        }
    };
    context.check_pause(&flow);
    flow
}
