//! From a parsed request to documents: canonical query, read-only plan, executor, pipeline stages,
//! cursors, and the execution of updates and deletes.
//!
//! Plans are read-only. Executors keep the running state, and continue after their last key in a
//! new snapshot for each batch.

mod change;
mod cursor;
mod exec;
mod explain;
#[cfg(test)]
mod fixture;
mod language;
mod memory;
mod modify;
mod optimise;
mod pipeline;
mod plan;
mod stage;
mod timeseries;
mod view_reads;

pub use change::{ChangeScope, LogOrder, LogScan};
pub use cursor::{AwaitedEvent, BatchLimit, Cursor, CursorOrigin, CursorSource, Returned};
pub use exec::shape::ResultShape;
pub use exec::{Executor, Flow, metadata_of};
pub use explain::{Explained, Purpose, Shown, Verbosity, cached_plans, explain, normalized_filter};
pub use language::metadata::Metadata;
pub use language::partial::PartialFilters;
pub use language::{
    AllowedBy, AllowedIndexes, CanonicalQuery, FindOptions, FirstOf, Hint, IndexHints, PlanShape,
    QueryShape, QueryShapeHash, SearchedView, StageShape,
};
pub use mayfly_expr::accum::AccumulatorLimits;
pub use memory::{Budget, MemoryLimits, MemoryStats, Room, SortStats};
pub use modify::{
    DeleteSpec, EncryptedWrites, FindAndModifySpec, FoundAndModified, Image, ModifyOutcome,
    Repeatable, SingleWrite, SnapshotCounts, StateCollections, UNIT_WRITES, Unmatched, UpdateSpec,
    Upkeep, UpkeepFigures, UpkeepKind, WriteKind, delete, find_and_modify, update, write_together,
};
pub use pipeline::absent::{ABSENT as UNAVAILABLE_STAGES, Absence};
pub use pipeline::rows::{STAGES, is_stage};
pub use pipeline::{
    Client, Pipeline, PipelineRun, StageConcern, StageOptions, StagePosition, StageRow,
    UncheckedPipeline, Validation, begins_with_search,
};
pub use plan::{
    AtomicF64, EntryCheck, IndexFilter, IndexFilters, IndexScan, NearAccess, OnePerValue, Plan,
    PlanKey, PlannerSettings, RecordScan, Suggestion, TextAccess, allowed_on, check_absent,
    forget_plans, is_clustered, plan, plans, single_id,
};
pub use stage::map_reduce::MAP_REDUCE_STAGE;
pub use stage::{
    Description, Host, KnownDescription, Needs as StageNeeds, PipelineContext, PipelineOwner,
    Rights, RunSettings, SearchHit, SearchHits, SearchKind, Searched, Searcher, WantedDescription,
    WantedOfHits,
};
pub use timeseries::{
    delete_measurements, delete_raw_buckets, find_and_modify_raw_bucket,
    find_and_remove_measurement, update_buckets, update_raw_buckets,
};
pub use view_reads::view_reads;
