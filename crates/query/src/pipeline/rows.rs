//! The table of stages: which exist, where they are allowed, what they need, and which are missing.
//! It is in a higher layer than the stages, because stages of time series are among them.
//!
//! Every rule about a stage name reads its row, and every rule about a parsed stage asks the stage.
//! A test fails for a rule that names a stage.

use mayfly_auth::Action;
use mayfly_work::spill::Operator;

use super::absent::{ABSENT, Absence, AbsentStage};
use super::row::{StageConcern, StageRow, last, row, short, source as of_source};
use super::{fusion, searches};
use crate::change::STREAM_ARGUMENTS;
use crate::language::StageShape;
use crate::language::metadata::GEO_NEAR_DISTANCE;
use crate::language::searched_view::ViewStage;
use crate::stage::{
    Needs, backup_cursor, bucket, bucket_auto, cluster, count, densify, documents, facet, fill,
    filter, fused, geo_near, graph_lookup, group, lookup, map_reduce, merge, out, project, redact,
    reshape, sample, sort, sort_by_count, source, split_event, union_with, unwind, window,
    window_fields,
};
use crate::timeseries::{show_buckets, unpack};

/// The stage that splits events; its position is checked with the pipeline.
pub(crate) const SPLIT_LARGE_EVENT: &str = "$changeStreamSplitLargeEvent";

/// The implemented stages.
pub const STAGES: &[StageRow] = &[
    row(("$match", "Keeps documents that match a filter", "2.1", Needs::Input), filter::parse)
        .after_changes()
        .searched(ViewStage::condition)
        .selecting(|_| true)
        .shaped(StageShape::Filter),
    row(("$sort", "Sorts documents", "2.1", Needs::Input), |value, context| {
        sort::parse(value, context.scope)
    })
    .selecting(|_| true)
    .keeps(&[Operator::Sort])
    .shaped(StageShape::Order),
    row(("$skip", "Drops the first documents", "2.1", Needs::Input), window::parse_skip)
        .selecting(|_| true)
        .shaped(StageShape::Type),
    row(("$limit", "Keeps the first documents", "2.1", Needs::Input), window::parse_limit)
        .selecting(|_| true)
        .shaped(StageShape::Type),
    row(
        ("$project", "Includes, excludes and computes fields", "2.1", Needs::Input),
        |value, context| project::parse(value, context.scope),
    )
    .after_changes()
    .shaped(StageShape::Projection),
    short(("$count", "Counts documents", "3.4", Needs::Input), |value, _| count::parse(value))
        .shaped(StageShape::Verbatim),
    row(
        (
            "$group",
            "Groups documents by a key and accumulates over each group",
            "2.1",
            Needs::Input,
        ),
        |value, context| group::parse(value, context.scope),
    )
    .keeps(&[Operator::Group])
    .shaped(StageShape::Expression),
    row(("$set", "Adds or replaces fields", "4.2", Needs::Input), |value, context| {
        reshape::parse("$set", value, context.scope)
    })
    .after_changes()
    .searched(ViewStage::fields)
    .shaped(StageShape::Expression),
    row(("$addFields", "Adds or replaces fields", "3.4", Needs::Input), |value, context| {
        reshape::parse("$addFields", value, context.scope)
    })
    .after_changes()
    .searched(ViewStage::fields)
    .shaped(StageShape::Expression),
    row(("$unset", "Removes fields", "4.2", Needs::Input), |value, context| {
        reshape::parse("$unset", value, context.scope)
    })
    .after_changes()
    .shaped(StageShape::Verbatim),
    row(
        ("$replaceRoot", "Replaces each document by an expression", "3.4", Needs::Input),
        |value, context| reshape::parse("$replaceRoot", value, context.scope),
    )
    .after_changes()
    .shaped(StageShape::Expression),
    row(
        ("$replaceWith", "Replaces each document by an expression", "4.2", Needs::Input),
        |value, context| reshape::parse("$replaceWith", value, context.scope),
    )
    .after_changes()
    .shaped(StageShape::Expression),
    row(
        ("$unwind", "Gives one document for each item of an array", "2.1", Needs::Input),
        unwind::parse,
    )
    .options_with(unwind::ARGUMENTS, unwind::CODES)
    .shaped(StageShape::Verbatim),
    short(
        ("$sortByCount", "Counts documents by a key, the most frequent first", "3.4", Needs::Input),
        |value, _| sort_by_count::parse(value),
    )
    .keeps(&[Operator::Group, Operator::Sort])
    .shaped(StageShape::Expression),
    row(
        (
            mayfly_storage::UNPACK_STAGE,
            "Gives the measurements of the buckets of a time series",
            "5.0",
            Needs::Input,
        ),
        |value, context| unpack::parse(value, context.scope),
    ),
    row(
        (
            mayfly_storage::SHOW_BUCKETS_STAGE,
            "Shows buckets of a time series in the format of the reference",
            "",
            Needs::Input,
        ),
        |value, _| show_buckets::parse(value),
    )
    .internal(),
    row(
        (
            map_reduce::MAP_REDUCE_STAGE,
            "Emits, reduces and finalizes values by the functions of mapReduce",
            "",
            Needs::Input,
        ),
        map_reduce::parse,
    )
    .internal()
    .keeps(&[Operator::Group]),
    row(("$lookup", "Joins with another collection", "3.2", Needs::InputAndOptions), lookup::parse)
        .options(lookup::ARGUMENTS)
        .keeps(&[Operator::HashLookup, Operator::LookupCache]),
    row(
        (
            "$graphLookup",
            "Follows references through another collection",
            "3.4",
            Needs::InputAndOptions,
        ),
        graph_lookup::parse,
    )
    .options_with(graph_lookup::ARGUMENTS, graph_lookup::CODES)
    .keeps(&[Operator::GraphLookup]),
    row(
        (
            "$unionWith",
            "Appends the documents of another collection",
            "4.4",
            Needs::InputAndOptions,
        ),
        union_with::parse,
    )
    .options(union_with::ARGUMENTS)
    .not_in_transactions(),
    row(
        ("$facet", "Runs several pipelines over the same documents", "3.4", Needs::InputAndOptions),
        facet::parse,
    )
    .not_in_facets()
    .keeps(&[Operator::Facet])
    .shaped(StageShape::Pipelines),
    short(
        ("$bucket", "Groups documents into ranges with given boundaries", "3.4", Needs::Input),
        bucket::parse,
    )
    .keeps(&[Operator::Group]),
    row(
        (
            "$bucketAuto",
            "Groups documents into a number of ranges of similar size",
            "3.4",
            Needs::Input,
        ),
        bucket_auto::parse,
    )
    .options_with(bucket_auto::ARGUMENTS, bucket_auto::CODES)
    .keeps(&[Operator::BucketAuto]),
    row(
        (
            "$setWindowFields",
            "Computes fields over a window of neighbouring documents",
            "5.0",
            Needs::Input,
        ),
        window_fields::parse,
    )
    .options(window_fields::ARGUMENTS)
    .keeps(&[Operator::WindowFields]),
    short(("$fill", "Fills fields that are null or missing", "5.3", Needs::Input), |value, _| {
        fill::parse(value)
    })
    .options(fill::ARGUMENTS)
    .after_changes_without("sortBy")
    .keeps(&[Operator::WindowFields]),
    row(
        ("$densify", "Adds documents for missing values of a field", "5.1", Needs::Input),
        densify::parse,
    )
    .options(densify::ARGUMENTS)
    .keeps(&[Operator::Densify]),
    row(
        (
            "$redact",
            "Keeps or removes parts of each document by an expression",
            "2.6",
            Needs::Input,
        ),
        redact::parse,
    )
    .after_changes()
    .shaped(StageShape::Expression),
    row(("$sample", "Picks documents at random", "3.2", Needs::Input), sample::parse)
        .options_with(sample::ARGUMENTS, sample::CODES)
        .selecting(|_| true)
        .keeps(&[Operator::Sort]),
    short(
        ("$rankFusion", "Combines the results of pipelines by their ranks", "8.1", Needs::Input),
        fusion::rank,
    )
    .options(fusion::RANK_FUSION)
    .fusion()
    .keeps(&[Operator::Group, Operator::Sort]),
    short(
        ("$scoreFusion", "Combines the results of pipelines by their scores", "8.2", Needs::Input),
        fusion::score_fusion,
    )
    .options(fusion::SCORE_FUSION)
    .fusion()
    .keeps(&[Operator::Group, Operator::Sort]),
    short(("$score", "Gives documents a score, as metadata", "8.2", Needs::Input), fusion::score)
        .options(fusion::SCORE)
        .selecting(|_| true)
        .keeps(&[Operator::WindowFields]),
    row((fused::FUSED, "Wraps documents with their rank or score", "", Needs::Input), fused::parse)
        .internal(),
    row(
        (fused::SCORED, "Returns wrapped documents with their score", "", Needs::Input),
        fused::parse_scored,
    )
    .internal(),
    of_source(
        ("$documents", "Gives documents that are written in the stage", "5.1", Needs::Nothing),
        documents::parse,
    )
    .independent()
    .in_joins()
    .shaped(StageShape::Type),
    row(
        (
            "$geoNear",
            "Gives documents in the order of their distance from a point",
            "2.4",
            Needs::Input,
        ),
        geo_near::parse,
    )
    .options_with(geo_near::ARGUMENTS, geo_near::CODES)
    .first_with(40603)
    .selecting(geo_near::selects)
    .ranked(GEO_NEAR_DISTANCE)
    .in_joins()
    .keeps(&[Operator::Near]),
    searches::SEARCH,
    searches::SEARCH_BETA,
    searches::SEARCH_META,
    searches::VECTOR_SEARCH,
    last(
        ("$out", "Replaces a collection by the results", "2.6", Needs::InputAndOptions),
        out::parse,
    )
    .options(out::ARGUMENTS)
    .shaped(StageShape::Verbatim),
    last(
        ("$merge", "Writes the results into a collection", "4.2", Needs::InputAndOptions),
        merge::parse,
    )
    .options(merge::ARGUMENTS),
    of_source(
        (
            "$changeStream",
            "Gives the changes of a collection, a database, or all databases",
            "3.6",
            Needs::Options,
        ),
        source::change_stream,
    )
    .options(STREAM_ARGUMENTS)
    .not_in_transactions()
    .concern(StageConcern::Majority),
    row(
        (
            SPLIT_LARGE_EVENT,
            "Splits events of a change stream that exceed the limit of a document",
            "7.0",
            Needs::Input,
        ),
        split_event::parse,
    )
    .alone()
    .after_changes()
    .not_in_transactions(),
    of_source(
        ("$currentOp", "Lists the operations that run", "3.6", Needs::Options),
        source::current_op,
    )
    .options(source::CURRENT_OP)
    .unstable()
    .independent()
    .not_in_transactions()
    .concern(StageConcern::Local),
    of_source(
        (
            "$listLocalCursors",
            "Lists the open cursors of the server",
            "4.0",
            Needs::Cluster(Action::Inprog),
        ),
        source::local_cursors,
    )
    .unstable()
    .independent()
    .not_in_transactions()
    .concern(StageConcern::Local),
    of_source(
        (
            "$listLocalSessions",
            "Lists the sessions in the memory of the server",
            "3.6",
            Needs::Options,
        ),
        source::local_sessions,
    )
    .unstable()
    .independent()
    .not_in_transactions()
    .concern(StageConcern::Local),
    of_source(
        (
            "$backupCursor",
            "Lists the files of a consistent copy, which stay while the cursor is open",
            "4.2",
            Needs::Cluster(Action::Backup),
        ),
        backup_cursor::parse,
    )
    .unstable()
    .independent()
    .not_in_transactions()
    .concern(StageConcern::Local),
    of_source(
        ("$listSessions", "Lists the sessions that the server keeps", "3.6", Needs::Options),
        source::sessions,
    )
    .unstable()
    .independent()
    .not_in_transactions(),
    of_source(
        (
            "$collStats",
            "Gives figures about the collection",
            "3.4",
            Needs::Collection(Action::CollStats),
        ),
        source::coll_stats,
    )
    .in_joins()
    .stable_with(&["count"])
    .not_in_transactions(),
    of_source(
        (
            "$planCacheStats",
            "Lists the cached plans of the collection",
            "4.2",
            Needs::Collection(Action::PlanCacheRead),
        ),
        source::plan_cache_stats,
    )
    .in_joins()
    .unstable()
    .not_in_transactions()
    .concern(StageConcern::Local),
    of_source(
        ("$querySettings", "Lists query settings", "8.0", Needs::Cluster(Action::QuerySettings)),
        source::query_settings,
    )
    .options(source::QUERY_SETTINGS)
    .unstable()
    .independent()
    .not_in_transactions()
    .concern(StageConcern::Local),
    of_source(
        (
            "$listClusterCatalog",
            "Lists the collections of a database, or of all databases",
            "8.1",
            Needs::Cluster(Action::ListClusterCatalog),
        ),
        cluster::list_catalog,
    )
    .options(cluster::CATALOG)
    .independent_with(9621301)
    .not_in_transactions(),
    of_source(
        (
            "$listCatalog",
            "Gives the catalog's entry of the collection, or those of all collections",
            "6.0",
            Needs::Collection(Action::ListIndexes),
        ),
        source::list_catalog,
    )
    .in_joins()
    .unstable()
    .not_in_transactions(),
    searches::LIST_SEARCH_INDEXES,
    of_source(
        (
            "$listSampledQueries",
            "Lists sampled queries, of which there are none",
            "7.0",
            Needs::Cluster(Action::ListSampledQueries),
        ),
        cluster::sampled_queries,
    )
    .options(cluster::SAMPLED)
    .not_in_transactions(),
    of_source(
        (
            "$queryStats",
            "Lists operations by query shape, with suggested indexes",
            "7.1",
            Needs::Cluster(Action::QueryStatsRead),
        ),
        cluster::query_stats,
    )
    .options(cluster::QUERY_STATS)
    .not_in_transactions(),
    of_source(
        (
            "$indexStats",
            "Tells how often each index of the collection was used",
            "3.2",
            Needs::Collection(Action::IndexStats),
        ),
        source::index_stats,
    )
    .in_joins()
    .unstable()
    .not_in_transactions(),
    of_source(
        (
            "$ttlStats",
            "Tells what policies of the collection have expired",
            "",
            Needs::Cluster(Action::ServerStatus),
        ),
        source::ttl_stats,
    )
    .unstable()
    .not_in_transactions(),
    of_source(
        (
            "$shardedDataDistribution",
            "Tells how data lie on shards, of which there are none",
            "6.0",
            Needs::Cluster(Action::ShardedDataDistribution),
        ),
        source::sharded_data_distribution,
    )
    .unstable(),
];

/// Whether the aggregation language has a stage with this name, here or in the reference. Updates
/// reject such a stage as unsupported, and other names as unknown.
pub fn is_stage(name: &str) -> bool {
    let known = |stage: &AbsentStage| stage.absence == Absence::Missing;
    StageRow::find(name).is_some() || ABSENT.iter().any(|stage| stage.name == name && known(stage))
}

/// Whether transactions reject the stage with this name.
pub(super) fn is_outside_transactions(name: &str) -> bool {
    StageRow::find(name).is_some_and(|row| !row.in_transaction)
}
