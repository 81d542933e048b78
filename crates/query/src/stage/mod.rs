//! Pipeline stages: one file per stage, one row per stage.
//!
//! A stage is parsed once ([`Stage`]) and runs as a [`Running`]: it is shown one document after the other and shows its results
//! to the next one, as borrowed bytes. What it may use meanwhile is its [`StageContext`].

mod around;
mod bucket;
mod bucket_auto;
mod count;
mod densify;
mod documents;
mod facet;
mod fill;
mod filter;
pub(crate) mod geo_near;
mod granularity;
mod graph_lookup;
mod group;
mod join_table;
mod lookup;
mod merge;
mod merge_run;
mod out;
#[cfg(test)]
mod out_tests;
mod project;
mod redact;
mod reshape;
mod rows;
mod sample;
pub(crate) mod show_buckets;
mod sort;
mod sort_by_count;
mod source;
mod split_event;
mod sub;
mod target;
#[cfg(test)]
mod tests;
mod union_with;
pub(crate) mod unpack;
mod unwind;
mod window;
mod window_fields;
mod window_partition;

use std::sync::Arc;

use mayfly_base::{OpCtx, Result};
use mayfly_expr::Expression;
use mayfly_mql::update::pipeline::DocumentStage;
use mayfly_mql::{Matcher, Projection, SortPattern};
use mayfly_storage::Store;
use mayfly_value::{DocBuf, RawDoc};

pub use around::{Around, Inside, RunSettings};
pub(crate) use rows::SPLIT_LARGE_EVENT;
pub use rows::{MISSING, NEWER, STAGES, StagePlace, StageRow};

use crate::Flow;
use crate::change::{ChangeOptions, Resumed};
use crate::metadata::{self, InFlight};
use crate::needed::Fields;

/// Takes a document from the stage before.
pub(crate) type Next<'n> = dyn FnMut(RawDoc<'_>) -> Result<Flow> + 'n;

/// A parsed stage.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    Match(Matcher),
    /// With the number of results that are wanted.
    Sort(SortPattern, Option<u64>),
    Skip(u64),
    Limit(u64),
    Project(Projection),
    /// Leaves away what nobody behind looks at.
    Keep(Fields),
    Group(group::Group),
    Reshape(Arc<DocumentStage>),
    Unwind(unwind::Unwind),
    Unpack(unpack::Unpack),
    ShowBuckets(show_buckets::ShowBuckets),
    Lookup(Box<lookup::Lookup>),
    GraphLookup(Box<graph_lookup::GraphLookup>),
    UnionWith(Box<sub::SubPipeline>),
    Facet(facet::Facet),
    Redact(Expression),
    Sample(u64),
    BucketAuto(Box<bucket_auto::BucketAuto>),
    WindowFields(Box<window_fields::WindowFields>),
    Densify(Box<densify::Densify>),
    Out(Box<out::Out>),
    Merge(Box<merge::Merge>),
    GeoNear(Box<geo_near::GeoNear>),
    /// The same over measurements.
    Distances(Box<geo_near::GeoNear>),
    Documents(Vec<DocBuf>),
    ChangeStream(ChangeOptions),
    /// With the fragment that the stream goes on behind.
    SplitLargeEvent(Option<Resumed>),
    CurrentOp(DocBuf),
    LocalSessions(DocBuf),
    Sessions(DocBuf),
    IndexStats,
    CollStats(DocBuf),
    /// There is no cache of plans: nothing comes of it.
    PlanCacheStats,
    TtlStats,
}

/// What a running stage may use.
pub(crate) struct StageContext<'c> {
    /// The store.
    pub(crate) store: &'c Store,
    /// The operation: its deadline, and whether it was killed.
    pub(crate) op: &'c OpCtx,
    /// What the command says about its run.
    pub(crate) settings: &'c RunSettings,
    /// What is known about the document that is on its way.
    pub(crate) metadata: &'c InFlight,
}

/// A running stage.
pub(crate) trait Running: Send {
    /// Takes a document. A `Pause` from `next` is passed on; it means that nothing more is wanted for now, never that the
    /// document was not taken.
    ///
    /// # Errors
    /// Those of the stage and of the stages behind.
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

    /// A new batch begins, over a new snapshot: what was read of other collections is old.
    fn begin_batch(&mut self) {}

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

    /// Whether results may come at the end of the input, or stay behind when the reader pauses.
    fn holds_back(&self) -> bool {
        false
    }
}

impl Stage {
    /// Whether it needs no collection.
    pub(crate) fn is_source(&self) -> bool {
        matches!(
            self,
            Stage::CurrentOp(_)
                | Stage::LocalSessions(_)
                | Stage::Sessions(_)
                | Stage::Documents(_)
        )
    }

    /// Whether it gives documents about the collection instead of those in it.
    pub(crate) fn describes_collection(&self) -> bool {
        matches!(
            self,
            Stage::IndexStats | Stage::TtlStats | Stage::CollStats(_) | Stage::PlanCacheStats
        )
    }

    /// What the documents that it finds have beside their fields, by the names that `$meta` uses.
    pub(crate) fn gives_metadata(&self) -> &'static [&'static str] {
        match self {
            Stage::Match(matcher) => metadata::given_by(matcher),
            Stage::GeoNear(_) | Stage::Distances(_) => metadata::GEO_NEAR,
            _ => &[],
        }
    }

    /// Its running form.
    pub(crate) fn start(self) -> Box<dyn Running> {
        match self {
            Stage::Match(matcher) => Box::new(filter::RunningMatch(matcher)),
            Stage::GeoNear(stage) => Box::new(geo_near::RunningGeoNear(stage)),
            Stage::Distances(stage) => Box::new(geo_near::RunningDistances(stage)),
            Stage::Sort(pattern, keep) => Box::new(sort::RunningSort::new(pattern, keep)),
            Stage::Skip(count) => Box::new(window::RunningSkip(count)),
            Stage::Limit(count) => Box::new(window::RunningLimit(count)),
            Stage::Keep(fields) => Box::new(project::RunningKeep(fields)),
            Stage::Project(projection) => Box::new(project::RunningProject(projection)),
            Stage::Group(group) => Box::new(group::RunningGroup::new(group)),
            Stage::Reshape(stage) => Box::new(reshape::RunningReshape(stage)),
            Stage::Unpack(unpack) => Box::new(unpack::RunningUnpack::new(unpack)),
            Stage::ShowBuckets(stage) => Box::new(show_buckets::RunningShowBuckets(stage)),
            Stage::Unwind(unwind) => Box::new(unwind::RunningUnwind::new(unwind)),
            Stage::Lookup(lookup) => Box::new(lookup::RunningLookup::new(*lookup)),
            Stage::GraphLookup(graph) => Box::new(graph_lookup::RunningGraphLookup(*graph)),
            Stage::UnionWith(sub) => Box::new(union_with::RunningUnionWith::new(*sub)),
            Stage::Facet(facet) => Box::new(facet::RunningFacet::new(facet)),
            Stage::Redact(expression) => Box::new(redact::RunningRedact(expression)),
            Stage::Sample(size) => Box::new(sample::RunningSample::new(size)),
            Stage::BucketAuto(stage) => Box::new(bucket_auto::RunningBucketAuto::new(*stage)),
            Stage::WindowFields(stage) => Box::new(window_fields::RunningWindowFields::new(*stage)),
            Stage::Densify(stage) => Box::new(densify::RunningDensify::new(*stage)),
            Stage::Out(out) => Box::new(out::RunningOut::new(*out)),
            Stage::SplitLargeEvent(resumed) => Box::new(split_event::RunningSplit::new(resumed)),
            Stage::Merge(merge) => Box::new(merge_run::RunningMerge::new(*merge)),
            // A source is run by the pipeline; behind another stage parsing has refused it.
            Stage::Documents(_)
            | Stage::ChangeStream(_)
            | Stage::CurrentOp(_)
            | Stage::LocalSessions(_)
            | Stage::Sessions(_)
            | Stage::IndexStats
            | Stage::CollStats(_)
            | Stage::PlanCacheStats
            | Stage::TtlStats => Box::new(window::RunningSkip(0)),
        }
    }
}
