//! What the row of a stage says, and the rules that are read from rows: what a stage is parsed into, where it may stand. The rows are
//! in [`super::rows`].

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_mql::update::pipeline::STAGES as UPDATE_STAGES;
use mayfly_value::{DocBuf, RawDoc, RawElement, RawValue};
use mayfly_work::spill::Operator;

use super::rows::{ABSENT, Absence, STAGES};
use crate::language::StageShape;
use crate::stage::{Around, Inside, Needs, Source, Stage, Step};

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
pub(super) enum Parse {
    /// It makes documents of those before it.
    Stage(ParseStage),
    /// It gives documents.
    Source(ParseSource),
    /// It is short for others, which it is written out as.
    Short(ParseShort),
}

pub(super) type ParseStage = fn(RawValue<'_>, &Around<'_>) -> Result<Box<dyn Stage>>;
pub(super) type ParseSource = fn(RawValue<'_>, &Around<'_>) -> Result<Box<dyn Source>>;
pub(super) type ParseShort = fn(RawValue<'_>, &Around<'_>) -> Result<Vec<DocBuf>>;

/// What every row says: name, help, since, needs.
pub(super) type Told = (&'static str, &'static str, &'static str, Needs);

pub(super) const fn with((name, help, since, needs): Told, parse: Parse) -> StageRow {
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
pub(super) const fn row(told: Told, parse: ParseStage) -> StageRow {
    with(told, Parse::Stage(parse))
}

/// A stage that is short for others.
pub(super) const fn short(told: Told, parse: ParseShort) -> StageRow {
    with(told, Parse::Short(parse))
}

/// A stage that gives documents of its own.
pub(super) const fn source(told: Told, parse: ParseSource) -> StageRow {
    with(told, Parse::Source(parse)).first()
}

/// A stage that writes.
pub(super) const fn last(told: Told, parse: ParseStage) -> StageRow {
    let place = StagePlace::Last;
    let row = StageRow { place, ..row(told, parse).alone().not_in_transactions() };
    row.concern(StageConcern::Present)
}

impl StageRow {
    /// It must begin its pipeline.
    pub(super) const fn first(self) -> StageRow {
        StageRow { place: StagePlace::First, ..self.alone() }
    }

    /// It stands in no pipeline inside a stage.
    pub(super) const fn alone(self) -> StageRow {
        StageRow { in_facet: false, in_join: false, ..self }
    }

    /// It may stand in a join, whatever was said before.
    pub(super) const fn in_joins(self) -> StageRow {
        StageRow { in_join: true, ..self }
    }

    /// It may not stand in a `$facet`.
    pub(super) const fn not_in_facets(self) -> StageRow {
        StageRow { in_facet: false, ..self }
    }

    /// No transaction runs it.
    pub(super) const fn not_in_transactions(self) -> StageRow {
        StageRow { in_transaction: false, ..self }
    }

    /// It may follow `$changeStream`.
    pub(super) const fn after_changes(self) -> StageRow {
        StageRow { after_changes: true, ..self }
    }

    pub(super) const fn concern(self, concern: StageConcern) -> StageRow {
        StageRow { concern, ..self }
    }

    pub(super) const fn shaped(self, shape: StageShape) -> StageRow {
        StageRow { shape, ..self }
    }

    /// It keeps documents, within the limits of these operators.
    pub(super) const fn keeps(self, memory: &'static [Operator]) -> StageRow {
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
