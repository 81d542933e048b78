//! The table of stages: what there is, where it may stand, and what is missing. It stands above the stages, because those of time
//! series are among them.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuf, RawDoc, RawElement, RawValue};

use crate::stage::{
    Around, Inside, Source, Stage, Step, bucket, bucket_auto, count, densify, documents, facet,
    fill, filter, geo_near, graph_lookup, group, lookup, merge, out, project, redact, reshape,
    sample, sort, sort_by_count, source, split_event, union_with, unwind, window, window_fields,
};
use crate::timeseries::{show_buckets, unpack};

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

/// How a stage is parsed, by what it is.
enum Parse {
    /// It makes documents of those before it.
    Stage(ParseStage),
    /// It gives documents.
    Source(ParseSource),
    /// It is short for others, which it is written out as.
    Short(ParseShort),
}

type ParseStage = fn(RawValue<'_>, &Around<'_>) -> Result<Box<dyn Stage>>;
type ParseSource = fn(RawValue<'_>, &Around<'_>) -> Result<Box<dyn Source>>;
type ParseShort = fn(RawValue<'_>, &Around<'_>) -> Result<Vec<DocBuf>>;

const fn with(name: &'static str, parse: Parse) -> StageRow {
    StageRow { name, place: StagePlace::Anywhere, in_facet: true, in_join: true, parse }
}

/// A stage without constraints.
const fn row(name: &'static str, parse: ParseStage) -> StageRow {
    with(name, Parse::Stage(parse))
}

/// A stage that is short for others.
const fn short(name: &'static str, parse: ParseShort) -> StageRow {
    with(name, Parse::Short(parse))
}

/// A stage that must begin its pipeline.
const fn first(row: StageRow) -> StageRow {
    StageRow { place: StagePlace::First, in_facet: false, in_join: false, ..row }
}

/// A stage that gives documents of its own.
const fn source(name: &'static str, parse: ParseSource) -> StageRow {
    first(with(name, Parse::Source(parse)))
}

/// A stage that writes.
const fn last(name: &'static str, parse: ParseStage) -> StageRow {
    StageRow {
        place: StagePlace::Last,
        in_facet: false,
        in_join: false,
        ..with(name, Parse::Stage(parse))
    }
}

/// What a stage was parsed into.
pub(crate) enum Parsed {
    /// Where documents come from.
    Source(Box<dyn Source>),
    /// One stage, or those that one is short for.
    Steps(Vec<Step>),
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
    short("$count", |value, _| count::parse(value)),
    row("$group", |value, around| group::parse(value, around.scope)),
    row("$set", |value, around| reshape::parse("$set", value, around.scope)),
    row("$addFields", |value, around| reshape::parse("$addFields", value, around.scope)),
    row("$unset", |value, around| reshape::parse("$unset", value, around.scope)),
    row("$replaceRoot", |value, around| reshape::parse("$replaceRoot", value, around.scope)),
    row("$replaceWith", |value, around| reshape::parse("$replaceWith", value, around.scope)),
    row("$unwind", unwind::parse),
    short("$sortByCount", |value, _| sort_by_count::parse(value)),
    row(mayfly_storage::UNPACK_STAGE, |value, around| unpack::parse(value, around.scope)),
    row(mayfly_storage::SHOW_BUCKETS_STAGE, |value, _| show_buckets::parse(value)),
    row("$lookup", lookup::parse),
    row("$graphLookup", graph_lookup::parse),
    row("$unionWith", union_with::parse),
    StageRow { in_facet: false, ..row("$facet", facet::parse) },
    short("$bucket", bucket::parse),
    row("$bucketAuto", bucket_auto::parse),
    row("$setWindowFields", window_fields::parse),
    short("$fill", |value, _| fill::parse(value)),
    row("$densify", densify::parse),
    row("$redact", redact::parse),
    row("$sample", sample::parse),
    StageRow { in_join: true, ..source("$documents", documents::parse) },
    StageRow { in_join: true, ..first(row("$geoNear", geo_near::parse)) },
    last("$out", out::parse),
    last("$merge", merge::parse),
    source("$changeStream", source::change_stream),
    StageRow { in_facet: false, in_join: false, ..row(SPLIT_LARGE_EVENT, split_event::parse) },
    source("$currentOp", source::current_op),
    source("$listLocalSessions", source::local_sessions),
    source("$listSessions", source::sessions),
    source("$collStats", source::coll_stats),
    source("$planCacheStats", source::plan_cache_stats),
    source("$querySettings", source::query_settings),
    source("$indexStats", source::index_stats),
    source("$ttlStats", source::ttl_stats),
    source("$shardedDataDistribution", source::sharded_data_distribution),
];

/// Stages of the reference that do not exist here yet.
pub const MISSING: &[&str] = &[
    "$backupCursor",
    "$backupCursorExtend",
    "$listCatalog",
    "$listSampledQueries",
    "$listSearchIndexes",
    "$operationMetrics",
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

/// Parses one element of a pipeline.
///
/// # Errors
/// 40323, 40324 for what is no stage, 238 for a stage that is missing here, 40600, 51047, 31441 for one that may not stand
/// here, those of the stage.
pub(crate) fn parse_stage(spec: RawDoc<'_>, around: &Around<'_>) -> Result<Parsed> {
    let mut fields = spec.iter();
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return Err(Error::new(
            ErrorCode(40323),
            "A pipeline stage specification object must contain exactly one field.",
        ));
    };
    let row = StageRow::of(field)?;
    row.check_inside(around.inside)?;
    match row.parse {
        Parse::Source(parse) => Ok(Parsed::Source(parse(field.value(), around)?)),
        Parse::Stage(parse) => {
            Ok(Parsed::Steps(vec![Step::sent(parse(field.value(), around)?, spec)]))
        }
        Parse::Short(parse) => {
            let mut steps = Vec::new();
            for spec in parse(field.value(), around)? {
                // What others stand for is no short form itself.
                if let Parsed::Steps(step) = parse_stage(spec.as_doc(), around)? {
                    steps.extend(step);
                }
            }
            Ok(Parsed::Steps(steps))
        }
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
