//! The table of stages: what there is, where it may stand, and what is missing.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{RawDoc, RawElement, RawValue};

use super::{
    Around, Inside, Stage, bucket, bucket_auto, count, densify, documents, facet, fill, filter,
    geo_near, graph_lookup, group, lookup, merge, out, project, redact, reshape, sample,
    show_buckets, sort, sort_by_count, source, split_event, union_with, unpack, unwind, window,
    window_fields,
};

/// Where in its pipeline a stage may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StagePlace {
    /// Anywhere.
    Anywhere,
    /// At the beginning.
    First,
    /// At the end, of a command's own pipeline.
    Last,
}

/// A row of the table of stages.
pub struct StageRow {
    /// With its dollar.
    pub name: &'static str,
    /// Where it may stand.
    pub place: StagePlace,
    /// Whether it may stand in a `$facet`.
    pub in_facet: bool,
    /// Whether it may stand in the pipeline of `$lookup` and `$unionWith`.
    pub in_join: bool,
    parse: Parse,
}

type Parse = fn(RawValue<'_>, &Around<'_>) -> Result<Vec<Stage>>;

/// A stage without constraints.
const fn row(name: &'static str, parse: Parse) -> StageRow {
    StageRow { name, place: StagePlace::Anywhere, in_facet: true, in_join: true, parse }
}

/// A stage that gives documents of its own.
const fn first(name: &'static str, parse: Parse) -> StageRow {
    StageRow { place: StagePlace::First, in_facet: false, in_join: false, ..row(name, parse) }
}

/// A stage that writes.
const fn last(name: &'static str, parse: Parse) -> StageRow {
    StageRow { place: StagePlace::Last, in_facet: false, in_join: false, ..row(name, parse) }
}

/// The stage that splits events; what it may follow is checked with the pipeline.
pub(crate) const SPLIT_LARGE_EVENT: &str = "$changeStreamSplitLargeEvent";

/// Stages that work.
pub const STAGES: &[StageRow] = &[
    row("$match", filter::parse),
    row("$sort", |value, around| sort::parse(value, around.scope)),
    row("$skip", window::parse_skip),
    row("$limit", window::parse_limit),
    row("$project", |value, around| project::parse(value, around.scope)),
    row("$count", |value, around| count::parse(value, around.scope)),
    row("$group", |value, around| group::parse(value, around.scope)),
    row("$set", |value, around| reshape::parse("$set", value, around.scope)),
    row("$addFields", |value, around| reshape::parse("$addFields", value, around.scope)),
    row("$unset", |value, around| reshape::parse("$unset", value, around.scope)),
    row("$replaceRoot", |value, around| reshape::parse("$replaceRoot", value, around.scope)),
    row("$replaceWith", |value, around| reshape::parse("$replaceWith", value, around.scope)),
    row("$unwind", unwind::parse),
    row("$sortByCount", |value, around| sort_by_count::parse(value, around.scope)),
    row(mayfly_storage::UNPACK_STAGE, |value, around| unpack::parse(value, around.scope)),
    row(mayfly_storage::SHOW_BUCKETS_STAGE, |value, _| show_buckets::parse(value)),
    row("$lookup", lookup::parse),
    row("$graphLookup", graph_lookup::parse),
    row("$unionWith", union_with::parse),
    StageRow { in_facet: false, ..row("$facet", facet::parse) },
    row("$bucket", bucket::parse),
    row("$bucketAuto", bucket_auto::parse),
    row("$setWindowFields", window_fields::parse),
    row("$fill", fill::parse),
    row("$densify", densify::parse),
    row("$redact", redact::parse),
    row("$sample", sample::parse),
    StageRow { in_join: true, ..first("$documents", documents::parse) },
    StageRow { in_join: true, ..first("$geoNear", geo_near::parse) },
    last("$out", out::parse),
    last("$merge", merge::parse),
    first("$changeStream", source::change_stream),
    StageRow { in_facet: false, in_join: false, ..row(SPLIT_LARGE_EVENT, split_event::parse) },
    first("$currentOp", source::current_op),
    first("$listLocalSessions", source::local_sessions),
    first("$listSessions", source::sessions),
    first("$collStats", source::coll_stats),
    first("$planCacheStats", source::plan_cache_stats),
    first("$indexStats", source::index_stats),
    first("$ttlStats", source::ttl_stats),
    first("$shardedDataDistribution", source::sharded_data_distribution),
];

/// Stages of the reference that do not exist here yet.
pub const MISSING: &[&str] = &[
    "$backupCursor",
    "$backupCursorExtend",
    "$listCatalog",
    "$listSampledQueries",
    "$listSearchIndexes",
    "$operationMetrics",
    "$querySettings",
    "$queryStats",
    "$rankFusion",
    "$rerank",
    "$search",
    "$searchMeta",
    "$vectorSearch",
];

/// Stages of a hosted search engine, which no server has by itself. All of them are missing, too.
const SEARCH: &[&str] =
    &["$listSearchIndexes", "$rankFusion", "$search", "$searchMeta", "$vectorSearch"];

/// Stages that came with versions of the reference behind 8.0, and do not exist here.
pub const NEWER: &[&str] = &["$listClusterCatalog", "$listMqlEntities", "$score", "$scoreFusion"];

/// Stages that a server sends to another, never a client. Nobody sends them to this one.
const INTERNAL: &[&str] = &["$mergeCursors"];

/// SearchNotEnabled.
const SEARCH_NOT_ENABLED: &str =
    "Using $search and $vectorSearch aggregation stages requires additional configuration.";

impl Stage {
    /// Parses one element of a pipeline; some stages are short for two others.
    ///
    /// # Errors
    /// 40323, 40324 for what is no stage, 238 for a stage that is missing here, 40600, 51047, 31441 for one that may not stand
    /// here, those of the stage.
    pub(crate) fn parse(spec: RawDoc<'_>, around: &Around<'_>) -> Result<Vec<Stage>> {
        let mut fields = spec.iter();
        let (Some(field), None) = (fields.next(), fields.next()) else {
            return Err(Error::new(
                ErrorCode(40323),
                "A pipeline stage specification object must contain exactly one field.",
            ));
        };
        let row = StageRow::of(field)?;
        row.check_inside(around.inside)?;
        (row.parse)(field.value(), around)
    }
}

impl StageRow {
    /// The row of a stage as it stands in a pipeline.
    ///
    /// # Errors
    /// 40324 for what is no stage, 238 for a stage that is missing here.
    pub(crate) fn of(field: RawElement<'_>) -> Result<&'static StageRow> {
        let name = field.name();
        if let Some(row) = STAGES.iter().find(|row| row.name == name) {
            return Ok(row);
        }
        if SEARCH.contains(&name) {
            return Err(Error::new(ErrorCode(31082), SEARCH_NOT_ENABLED));
        }
        if INTERNAL.contains(&name) {
            let text = format!("{name}' is not allowed in user requests");
            return Err(Error::new(ErrorCode(5491300), text));
        }
        if MISSING.contains(&name) {
            return Err(Error::not_implemented(format!("pipeline stage '{name}'")));
        }
        Err(Error::new(ErrorCode(40324), format!("Unrecognized pipeline stage name: '{name}'")))
    }

    fn check_inside(&self, inside: Inside) -> Result<()> {
        let name = self.name;
        let (code, text) = match inside {
            Inside::Facet if !self.in_facet => {
                (40600, format!("{name} is not allowed to be used within a $facet stage"))
            }
            Inside::Lookup if !self.in_join => {
                (51047, format!("{name} is not allowed within a $lookup's sub-pipeline"))
            }
            Inside::UnionWith if !self.in_join => {
                (31441, format!("{name} is not allowed within a $unionWith's sub-pipeline"))
            }
            Inside::Command | Inside::View | Inside::Facet | Inside::Lookup | Inside::UnionWith => {
                return Ok(());
            }
        };
        Err(Error::new(ErrorCode(code), text))
    }

    /// Checks its place among the stages of its pipeline.
    ///
    /// # Errors
    /// 40601, 40602.
    pub(crate) fn check_place(&self, at: usize, count: usize) -> Result<()> {
        let name = self.name;
        match self.place {
            StagePlace::First if at > 0 => Err(Error::new(
                ErrorCode(40602),
                format!("{name} is only valid as the first stage in a pipeline"),
            )),
            StagePlace::Last if at + 1 < count => Err(Error::new(
                ErrorCode(40601),
                format!("{name} can only be the final stage in the pipeline"),
            )),
            StagePlace::Anywhere | StagePlace::First | StagePlace::Last => Ok(()),
        }
    }
}
