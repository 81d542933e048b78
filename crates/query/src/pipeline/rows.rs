//! The table of stages: what there is, where it may stand, what it needs, and what is missing. It stands above the stages, because
//! those of time series are among them.
//!
//! Every rule about a stage by its name reads its row, and every rule about a parsed one asks the stage. A test fails for a rule that
//! names a stage.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_mql::update::pipeline::STAGES as UPDATE_STAGES;
use mayfly_value::{DocBuf, RawDoc, RawElement, RawValue};
use mayfly_work::spill::Operator;

use crate::language::StageShape;
use crate::stage::{
    Around, Inside, Needs, Source, Stage, Step, bucket, bucket_auto, count, densify, documents,
    facet, fill, filter, geo_near, graph_lookup, group, lookup, merge, out, project, redact,
    reshape, sample, sort, sort_by_count, source, split_event, union_with, unwind, window,
    window_fields,
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

/// Which read concerns a pipeline with a stage takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageConcern {
    /// All.
    Any,
    /// `local` only: what it shows has no past.
    Local,
    /// Those that read what is there now: what is written is not of the time that is read.
    Present,
    /// `majority`, with which it reads by default.
    Majority,
}

/// A row of the table of stages.
#[derive(Clone, Copy)]
pub struct StageRow {
    /// With its dollar.
    pub name: &'static str,
    /// What it does, for the compatibility page.
    pub help: &'static str,
    /// The version of the reference that had it first.
    pub since: &'static str,
    /// The rights that it needs.
    pub needs: Needs,
    /// Where it may stand.
    pub place: StagePlace,
    /// Whether it may stand in a `$facet`.
    pub in_facet: bool,
    /// Whether it may stand in the pipeline of `$lookup` and `$unionWith`.
    pub in_join: bool,
    /// Whether a statement of a transaction may have it. Those may not that write, that read what is no part of the snapshot, and
    /// `$unionWith`, which the reference refuses, too.
    pub in_transaction: bool,
    /// Whether it may follow `$changeStream`. Manual: "Change Streams", "Modify Change Stream Output".
    pub after_changes: bool,
    /// Which read concerns it takes.
    pub concern: StageConcern,
    /// What of its operand belongs to the shape of a query.
    pub shape: StageShape,
    /// The operators that limit its memory, each with a parameter.
    pub memory: &'static [Operator],
    parse: Parse,
}

/// How a stage is parsed, by what it is.
#[derive(Clone, Copy)]
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

/// What every row says: name, help, since, needs.
type Told = (&'static str, &'static str, &'static str, Needs);

const fn with((name, help, since, needs): Told, parse: Parse) -> StageRow {
    StageRow {
        name,
        help,
        since,
        needs,
        place: StagePlace::Anywhere,
        in_facet: true,
        in_join: true,
        in_transaction: true,
        after_changes: false,
        concern: StageConcern::Any,
        shape: StageShape::Options,
        memory: &[],
        parse,
    }
}

/// A stage without constraints.
const fn row(told: Told, parse: ParseStage) -> StageRow {
    with(told, Parse::Stage(parse))
}

/// A stage that is short for others.
const fn short(told: Told, parse: ParseShort) -> StageRow {
    with(told, Parse::Short(parse))
}

/// A stage that gives documents of its own.
const fn source(told: Told, parse: ParseSource) -> StageRow {
    with(told, Parse::Source(parse)).first()
}

/// A stage that writes.
const fn last(told: Told, parse: ParseStage) -> StageRow {
    let place = StagePlace::Last;
    let row = StageRow { place, ..row(told, parse).alone().not_in_transactions() };
    row.concern(StageConcern::Present)
}

impl StageRow {
    /// It must begin its pipeline.
    const fn first(self) -> StageRow {
        StageRow { place: StagePlace::First, ..self.alone() }
    }

    /// It stands in no pipeline inside a stage.
    const fn alone(self) -> StageRow {
        StageRow { in_facet: false, in_join: false, ..self }
    }

    /// It may stand in a join, whatever was said before.
    const fn in_joins(self) -> StageRow {
        StageRow { in_join: true, ..self }
    }

    /// It may not stand in a `$facet`.
    const fn not_in_facets(self) -> StageRow {
        StageRow { in_facet: false, ..self }
    }

    /// No transaction runs it.
    const fn not_in_transactions(self) -> StageRow {
        StageRow { in_transaction: false, ..self }
    }

    /// It may follow `$changeStream`.
    const fn after_changes(self) -> StageRow {
        StageRow { after_changes: true, ..self }
    }

    const fn concern(self, concern: StageConcern) -> StageRow {
        StageRow { concern, ..self }
    }

    const fn shaped(self, shape: StageShape) -> StageRow {
        StageRow { shape, ..self }
    }

    /// It keeps documents, within the limits of these operators.
    const fn keeps(self, memory: &'static [Operator]) -> StageRow {
        StageRow { memory, ..self }
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
    row(("$match", "Keeps documents that match a filter", "2.1", Needs::Input), filter::parse)
        .after_changes()
        .shaped(StageShape::Filter),
    row(("$sort", "Sorts documents", "2.1", Needs::Input), |value, around| {
        sort::parse(value, around.scope)
    })
    .keeps(&[Operator::Sort])
    .shaped(StageShape::Verbatim),
    row(("$skip", "Drops the first documents", "2.1", Needs::Input), window::parse_skip)
        .shaped(StageShape::Type),
    row(("$limit", "Keeps the first documents", "2.1", Needs::Input), window::parse_limit)
        .shaped(StageShape::Type),
    row(
        ("$project", "Includes, excludes and computes fields", "2.1", Needs::Input),
        |value, around| project::parse(value, around.scope),
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
        |value, around| group::parse(value, around.scope),
    )
    .keeps(&[Operator::Group])
    .shaped(StageShape::Expression),
    row(("$set", "Adds or replaces fields", "4.2", Needs::Input), |value, around| {
        reshape::parse("$set", value, around.scope)
    })
    .after_changes()
    .shaped(StageShape::Expression),
    row(("$addFields", "Adds or replaces fields", "3.4", Needs::Input), |value, around| {
        reshape::parse("$addFields", value, around.scope)
    })
    .after_changes()
    .shaped(StageShape::Expression),
    row(("$unset", "Removes fields", "4.2", Needs::Input), |value, around| {
        reshape::parse("$unset", value, around.scope)
    })
    .after_changes()
    .shaped(StageShape::Verbatim),
    row(
        ("$replaceRoot", "Replaces each document by an expression", "3.4", Needs::Input),
        |value, around| reshape::parse("$replaceRoot", value, around.scope),
    )
    .after_changes()
    .shaped(StageShape::Expression),
    row(
        ("$replaceWith", "Replaces each document by an expression", "4.2", Needs::Input),
        |value, around| reshape::parse("$replaceWith", value, around.scope),
    )
    .after_changes()
    .shaped(StageShape::Expression),
    row(
        ("$unwind", "Gives one document for each item of an array", "2.1", Needs::Input),
        unwind::parse,
    )
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
        |value, around| unpack::parse(value, around.scope),
    ),
    row(
        (
            mayfly_storage::SHOW_BUCKETS_STAGE,
            "Shows buckets of a time series in the format of the reference",
            "",
            Needs::Input,
        ),
        |value, _| show_buckets::parse(value),
    ),
    row(("$lookup", "Joins with another collection", "3.2", Needs::InputAndOptions), lookup::parse)
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
    .keeps(&[Operator::WindowFields]),
    short(("$fill", "Fills fields that are null or missing", "5.3", Needs::Input), |value, _| {
        fill::parse(value)
    })
    .keeps(&[Operator::WindowFields]),
    row(
        ("$densify", "Adds documents for missing values of a field", "5.1", Needs::Input),
        densify::parse,
    )
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
        .keeps(&[Operator::Sort]),
    source(
        ("$documents", "Gives documents that are written in the stage", "5.1", Needs::Nothing),
        documents::parse,
    )
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
    .first()
    .in_joins()
    .keeps(&[Operator::Near]),
    last(
        ("$out", "Replaces a collection by the results", "2.6", Needs::InputAndOptions),
        out::parse,
    )
    .shaped(StageShape::Verbatim),
    last(
        ("$merge", "Writes the results into a collection", "4.2", Needs::InputAndOptions),
        merge::parse,
    ),
    source(
        (
            "$changeStream",
            "Gives the changes of a collection, a database, or all databases",
            "3.6",
            Needs::Options,
        ),
        source::change_stream,
    )
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
    source(
        ("$currentOp", "Lists the operations that run", "3.6", Needs::Options),
        source::current_op,
    )
    .not_in_transactions()
    .concern(StageConcern::Local),
    source(
        (
            "$listLocalSessions",
            "Lists the sessions in the memory of the server",
            "3.6",
            Needs::Options,
        ),
        source::local_sessions,
    )
    .not_in_transactions()
    .concern(StageConcern::Local),
    source(
        ("$listSessions", "Lists the sessions that the server keeps", "3.6", Needs::Options),
        source::sessions,
    )
    .not_in_transactions(),
    source(
        (
            "$collStats",
            "Gives figures about the collection",
            "3.4",
            Needs::Collection(Action::CollStats),
        ),
        source::coll_stats,
    )
    .not_in_transactions(),
    source(
        (
            "$planCacheStats",
            "Lists the cached plans of the collection",
            "4.2",
            Needs::Collection(Action::PlanCacheRead),
        ),
        source::plan_cache_stats,
    )
    .not_in_transactions()
    .concern(StageConcern::Local),
    source(
        ("$querySettings", "Lists query settings", "8.0", Needs::Cluster(Action::QuerySettings)),
        source::query_settings,
    )
    .not_in_transactions()
    .concern(StageConcern::Local),
    source(
        (
            "$indexStats",
            "Tells how often each index of the collection was used",
            "3.2",
            Needs::Collection(Action::IndexStats),
        ),
        source::index_stats,
    )
    .not_in_transactions(),
    source(
        (
            "$ttlStats",
            "Tells what policies of the collection have expired",
            "",
            Needs::Cluster(Action::ServerStatus),
        ),
        source::ttl_stats,
    )
    .not_in_transactions(),
    source(
        (
            "$shardedDataDistribution",
            "Tells how data lie on shards, of which there are none",
            "6.0",
            Needs::Cluster(Action::ShardedDataDistribution),
        ),
        source::sharded_data_distribution,
    ),
];

/// Why a stage that has a name is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It does not exist here yet.
    Missing,
    /// It belongs to a hosted search engine, which no server has by itself.
    Search,
    /// It came with a version of the reference after 8.0, and is unrecognized.
    Newer,
    /// A server sends it to another, never a client. Nobody sends it to this one.
    Internal,
}

/// A stage that is not there.
pub struct AbsentStage {
    /// With its dollar.
    pub name: &'static str,
    /// Why.
    pub absence: Absence,
    /// Whether it is refused in a transaction as such, before it is refused as absent.
    not_in_transaction: bool,
}

const fn absent(name: &'static str, absence: Absence) -> AbsentStage {
    AbsentStage { name, absence, not_in_transaction: false }
}

const fn absent_and_outside_transactions(name: &'static str, absence: Absence) -> AbsentStage {
    AbsentStage { name, absence, not_in_transaction: true }
}

/// Stages that are not there.
pub const ABSENT: &[AbsentStage] = &[
    absent("$backupCursor", Absence::Missing),
    absent("$backupCursorExtend", Absence::Missing),
    absent("$listCatalog", Absence::Missing),
    absent("$listSampledQueries", Absence::Missing),
    absent("$operationMetrics", Absence::Missing),
    absent_and_outside_transactions("$queryStats", Absence::Missing),
    absent("$rerank", Absence::Missing),
    absent_and_outside_transactions("$listSearchIndexes", Absence::Search),
    absent("$rankFusion", Absence::Search),
    absent("$search", Absence::Search),
    absent("$searchMeta", Absence::Search),
    absent("$vectorSearch", Absence::Search),
    absent_and_outside_transactions("$listClusterCatalog", Absence::Newer),
    absent("$listMqlEntities", Absence::Newer),
    absent("$score", Absence::Newer),
    absent("$scoreFusion", Absence::Newer),
    absent("$mergeCursors", Absence::Internal),
];

/// SearchNotEnabled.
const SEARCH_NOT_ENABLED: &str =
    "Using $search and $vectorSearch aggregation stages requires additional configuration.";

/// Whether a stage of the aggregation language has this name, here or in the reference. An update refuses it as one that it does not
/// take, and everything else as unrecognized.
pub fn is_stage(name: &str) -> bool {
    let known = |stage: &AbsentStage| matches!(stage.absence, Absence::Missing | Absence::Search);
    StageRow::find(name).is_some() || ABSENT.iter().any(|stage| stage.name == name && known(stage))
}

/// Whether no transaction runs the stage with this name.
pub(super) fn is_outside_transactions(name: &str) -> bool {
    match StageRow::find(name) {
        Some(row) => !row.in_transaction,
        None => ABSENT.iter().any(|stage| stage.name == name && stage.not_in_transaction),
    }
}

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
    around.needs(row.needs);
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
    /// The row of the stage with this name.
    pub fn find(name: &str) -> Option<&'static StageRow> {
        STAGES.iter().find(|row| row.name == name)
    }

    /// Whether clients have no use for it: it stands for a name.
    pub fn is_internal(&self) -> bool {
        self.name == mayfly_storage::SHOW_BUCKETS_STAGE
    }

    /// Whether it gives documents of its own.
    pub fn is_source(&self) -> bool {
        matches!(self.parse, Parse::Source(_))
    }

    /// The row of the first stage of a pipeline.
    pub fn first_of(pipeline: RawDoc<'_>) -> Option<&'static StageRow> {
        let first = pipeline.iter().next()?.value().as_document()?;
        StageRow::find(first.iter().next()?.name())
    }

    /// Whether it writes.
    pub fn writes(&self) -> bool {
        self.place == StagePlace::Last
    }

    /// Whether an update may have it.
    pub fn in_updates(&self) -> bool {
        UPDATE_STAGES.iter().any(|row| row.name == self.name)
    }

    /// The row of a stage as it stands in a pipeline.
    ///
    /// # Errors
    /// 40324 for what is no stage, 238 for a stage that is missing here.
    pub(crate) fn of(field: RawElement<'_>) -> Result<&'static StageRow> {
        let name = field.name();
        if let Some(row) = StageRow::find(name) {
            return Ok(row);
        }
        let absent = ABSENT.iter().find(|stage| stage.name == name);
        Err(match absent.map(|stage| stage.absence) {
            Some(Absence::Search) => Error::new(ErrorCode(31082), SEARCH_NOT_ENABLED),
            Some(Absence::Internal) => {
                let text = format!("{name}' is not allowed in user requests");
                Error::new(ErrorCode(5491300), text)
            }
            Some(Absence::Missing) => Error::not_implemented(format!("pipeline stage '{name}'")),
            Some(Absence::Newer) | None => {
                let text = format!("Unrecognized pipeline stage name: '{name}'");
                Error::new(ErrorCode(40324), text)
            }
        })
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
