//! Pipeline stages: one file per stage, one row per stage.
//!
//! A stage is parsed once ([`Stage`]) and runs as a [`Running`]: it is shown one document after the other and shows its results
//! to the next one, as borrowed bytes.

mod count;
mod group;
mod project;
mod reshape;
mod sort;
mod sort_by_count;
pub(crate) mod unpack;
mod unwind;
mod window;

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::Scope;
use mayfly_mql::update::pipeline::DocumentStage;
use mayfly_mql::{Matcher, Projection, SortPattern};
use mayfly_value::{DocBuf, RawDoc, RawElement, RawValue};

use crate::Flow;

/// Takes a document from the stage before.
pub(crate) type Next<'n> = dyn FnMut(RawDoc<'_>) -> Result<Flow> + 'n;

/// A parsed stage.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    Match(Matcher),
    Sort(SortPattern),
    Skip(u64),
    Limit(u64),
    Project(Projection),
    Group(group::Group),
    Reshape(Arc<DocumentStage>),
    Unwind(unwind::Unwind),
    Unpack(unpack::Unpack),
    CurrentOp(DocBuf),
    LocalSessions(DocBuf),
    Sessions(DocBuf),
    IndexStats,
    TtlStats,
}

/// A running stage.
pub(crate) trait Running: Send {
    /// Takes a document. A `Pause` from `next` is passed on; it means that nothing more is wanted for now, never that the
    /// document was not taken.
    ///
    /// # Errors
    /// Those of the stage and of the stages behind.
    fn push(&mut self, document: RawDoc<'_>, next: &mut Next<'_>) -> Result<Flow>;

    /// The input is over.
    ///
    /// # Errors
    /// As [`Running::push`].
    fn finish(&mut self, next: &mut Next<'_>) -> Result<()>;

    /// Whether it wants no further document, whatever comes.
    fn is_satisfied(&self) -> bool {
        false
    }
}

/// A row of the table of stages.
pub struct StageRow {
    /// With its dollar.
    pub name: &'static str,
    /// Whether it must be the first one and needs no collection.
    pub source: bool,
    parse: fn(RawValue<'_>, &Scope) -> Result<Vec<Stage>>,
}

/// Stages that work.
pub const STAGES: &[StageRow] = &[
    StageRow { name: "$match", source: false, parse: parse_match },
    StageRow { name: "$sort", source: false, parse: sort::parse },
    StageRow { name: "$skip", source: false, parse: window::parse_skip },
    StageRow { name: "$limit", source: false, parse: window::parse_limit },
    StageRow { name: "$project", source: false, parse: project::parse },
    StageRow { name: "$count", source: false, parse: count::parse },
    StageRow { name: "$group", source: false, parse: group::parse },
    StageRow { name: "$set", source: false, parse: reshape::parse_set },
    StageRow { name: "$addFields", source: false, parse: reshape::parse_add_fields },
    StageRow { name: "$unset", source: false, parse: reshape::parse_unset },
    StageRow { name: "$replaceRoot", source: false, parse: reshape::parse_replace_root },
    StageRow { name: "$replaceWith", source: false, parse: reshape::parse_replace_with },
    StageRow { name: "$unwind", source: false, parse: unwind::parse },
    StageRow { name: "$sortByCount", source: false, parse: sort_by_count::parse },
    StageRow { name: mayfly_storage::UNPACK_STAGE, source: false, parse: unpack::parse },
    StageRow { name: "$currentOp", source: true, parse: parse_current_op },
    StageRow { name: "$listLocalSessions", source: true, parse: parse_local_sessions },
    StageRow { name: "$listSessions", source: true, parse: parse_sessions },
    StageRow { name: "$indexStats", source: true, parse: parse_index_stats },
    StageRow { name: "$ttlStats", source: true, parse: parse_ttl_stats },
];

/// Stages of the reference that do not exist here yet.
pub const MISSING: &[&str] = &[
    "$backupCursor",
    "$backupCursorExtend",
    "$bucket",
    "$bucketAuto",
    "$changeStream",
    "$changeStreamSplitLargeEvent",
    "$collStats",
    "$densify",
    "$documents",
    "$facet",
    "$fill",
    "$geoNear",
    "$graphLookup",
    "$listCatalog",
    "$listClusterCatalog",
    "$listMqlEntities",
    "$listSampledQueries",
    "$listSearchIndexes",
    "$lookup",
    "$merge",
    "$mergeCursors",
    "$operationMetrics",
    "$out",
    "$planCacheStats",
    "$querySettings",
    "$queryStats",
    "$rankFusion",
    "$redact",
    "$rerank",
    "$sample",
    "$score",
    "$scoreFusion",
    "$search",
    "$searchMeta",
    "$setWindowFields",
    "$shardedDataDistribution",
    "$unionWith",
    "$vectorSearch",
];

impl Stage {
    /// Parses one element of a pipeline; some stages are short for two others.
    ///
    /// # Errors
    /// 40323, 40324 for what is no stage, 238 for a stage that is missing here, those of the stage.
    pub(crate) fn parse(spec: RawDoc<'_>, scope: &Scope) -> Result<Vec<Stage>> {
        let mut fields = spec.iter();
        let (Some(field), None) = (fields.next(), fields.next()) else {
            return Err(Error::new(
                ErrorCode(40323),
                "A pipeline stage specification object must contain exactly one field.",
            ));
        };
        (Stage::row(field)?.parse)(field.value(), scope)
    }

    fn row(field: RawElement<'_>) -> Result<&'static StageRow> {
        let name = field.name();
        if let Some(row) = STAGES.iter().find(|row| row.name == name) {
            return Ok(row);
        }
        if MISSING.contains(&name) {
            return Err(Error::not_implemented(format!("pipeline stage '{name}'")));
        }
        Err(Error::new(ErrorCode(40324), format!("Unrecognized pipeline stage name: '{name}'")))
    }

    /// Whether it needs no collection.
    pub(crate) fn is_source(&self) -> bool {
        matches!(self, Stage::CurrentOp(_) | Stage::LocalSessions(_) | Stage::Sessions(_))
    }

    /// Whether it gives documents about the collection instead of those in it.
    pub(crate) fn describes_collection(&self) -> bool {
        matches!(self, Stage::IndexStats | Stage::TtlStats)
    }

    /// Its running form.
    pub(crate) fn start(self) -> Box<dyn Running> {
        match self {
            Stage::Match(matcher) => Box::new(RunningMatch(matcher)),
            Stage::Sort(pattern) => Box::new(sort::RunningSort::new(pattern)),
            Stage::Skip(count) => Box::new(window::RunningSkip(count)),
            Stage::Limit(count) => Box::new(window::RunningLimit(count)),
            Stage::Project(projection) => Box::new(project::RunningProject(projection)),
            Stage::Group(group) => Box::new(group::RunningGroup::new(group)),
            Stage::Reshape(stage) => Box::new(reshape::RunningReshape(stage)),
            Stage::Unpack(unpack) => Box::new(unpack::RunningUnpack(unpack)),
            Stage::Unwind(unwind) => Box::new(unwind::RunningUnwind(unwind)),
            // A source is run by the pipeline; behind another stage parsing has refused it.
            Stage::CurrentOp(_)
            | Stage::LocalSessions(_)
            | Stage::Sessions(_)
            | Stage::IndexStats
            | Stage::TtlStats => Box::new(window::RunningSkip(0)),
        }
    }
}

fn parse_match(value: RawValue<'_>, scope: &Scope) -> Result<Vec<Stage>> {
    match value {
        RawValue::Document(filter) => Ok(vec![Stage::Match(Matcher::parse_in(filter, scope)?)]),
        _ => {
            Err(Error::new(ErrorCode(15959), "the match filter must be an expression in an object"))
        }
    }
}

fn parse_current_op(value: RawValue<'_>, _: &Scope) -> Result<Vec<Stage>> {
    match value {
        RawValue::Document(options) => Ok(vec![Stage::CurrentOp(options.to_owned())]),
        other => Err(Error::failed_to_parse(format!(
            "$currentOp options must be specified in an object, but found: {}",
            other.type_name()
        ))),
    }
}

fn parse_local_sessions(value: RawValue<'_>, _: &Scope) -> Result<Vec<Stage>> {
    match value {
        RawValue::Document(options) => Ok(vec![Stage::LocalSessions(options.to_owned())]),
        other => Err(Error::type_mismatch(format!(
            "$listLocalSessions options must be specified in an object, but found: {}",
            other.type_name()
        ))),
    }
}

fn parse_sessions(value: RawValue<'_>, _: &Scope) -> Result<Vec<Stage>> {
    match value {
        RawValue::Document(options) => Ok(vec![Stage::Sessions(options.to_owned())]),
        other => Err(Error::type_mismatch(format!(
            "$listSessions options must be specified in an object, but found: {}",
            other.type_name()
        ))),
    }
}

fn parse_index_stats(value: RawValue<'_>, _: &Scope) -> Result<Vec<Stage>> {
    match value {
        RawValue::Document(options) if options.is_empty() => Ok(vec![Stage::IndexStats]),
        _ => Err(Error::new(
            ErrorCode(28803),
            "The $indexStats stage specification must be an empty object",
        )),
    }
}

fn parse_ttl_stats(value: RawValue<'_>, _: &Scope) -> Result<Vec<Stage>> {
    match value {
        RawValue::Document(options) if options.is_empty() => Ok(vec![Stage::TtlStats]),
        _ => Err(Error::failed_to_parse("$ttlStats takes an empty object")),
    }
}

struct RunningMatch(Matcher);

impl Running for RunningMatch {
    fn push(&mut self, document: RawDoc<'_>, next: &mut Next<'_>) -> Result<Flow> {
        if self.0.try_matches(document)? { next(document) } else { Ok(Flow::More) }
    }

    fn finish(&mut self, _: &mut Next<'_>) -> Result<()> {
        Ok(())
    }
}
