//! The row of a stage, and the rules that follow from it: how a stage is parsed, and where it is
//! allowed. The rows are in [`super::rows`].

use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_value::arguments::{Argument, OwnCodes};
use mayfly_value::{DocBuf, RawDoc, RawValue};
use mayfly_work::spill::Operator;

use super::absent::absent;
use super::rows::STAGES;
use crate::language::StageShape;
use crate::language::searched_view::ParseViewStage;
use crate::stage::{Needs, PipelineContext, PipelineOwner, Source, Stage, Step};

/// The allowed positions of a stage in its pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StagePosition {
    /// Any position.
    Anywhere,
    /// The first position.
    First,
    /// The last position, in a command's own pipeline.
    Last,
}

/// The read concerns that a pipeline with a stage accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageConcern {
    /// Every read concern.
    Any,
    /// Only `local`: the stage shows current state that has no history.
    Local,
    /// Read concerns for the current state, because a stage that writes cannot write at an earlier
    /// time.
    Present,
    /// Only `majority`, which is also the default.
    Majority,
}

/// The declared fields of a stage's operand.
#[derive(Clone, Copy)]
pub struct StageOptions {
    /// The fields of the document.
    pub fields: &'static [Argument],
    /// The codes for unknown and missing fields, if the stage has its own.
    pub codes: Option<OwnCodes>,
}

/// A row of the table of stages.
#[derive(Clone, Copy)]
pub struct StageRow {
    /// The name with its dollar sign.
    pub name: &'static str,
    /// A short description, for the compatibility page.
    pub help: &'static str,
    /// The first version of the reference that has the stage.
    pub since: &'static str,
    /// The rights that the stage needs.
    pub needs: Needs,
    /// The allowed positions.
    pub place: StagePosition,
    /// The code of the error in another position than the first, if it is not 40602.
    first_code: Option<i32>,
    /// Whether the stage is allowed in a `$facet`, and in the pipelines of joins in it.
    pub in_facet: bool,
    /// Whether the stage reads no collection, so that its pipeline cannot be over one.
    is_independent: bool,
    /// The code of the error over a collection, if it is not 73.
    independent_code: Option<i32>,
    /// Whether the stage is allowed in the pipeline of `$lookup` and `$unionWith`.
    pub in_join: bool,
    /// Whether the stage is allowed in a transaction. Not allowed are stages that write, stages
    /// that read outside of the snapshot, and `$unionWith`, which the reference rejects too.
    pub in_transaction: bool,
    /// Whether the stage may follow `$changeStream`. Manual: "Change Streams", "Modify Change
    /// Stream Output".
    pub after_changes: bool,
    /// An option with which the stage may not.
    not_after_changes: Option<&'static str>,
    /// The read concerns that the stage accepts.
    pub concern: StageConcern,
    /// The options with which the stage is in the stable API; `None` for all.
    stable_options: Option<&'static [&'static str]>,
    /// The part of the operand that belongs to the shape of a query.
    pub shape: StageShape,
    /// Whether the stage with this operand only selects and orders documents, so that it is allowed
    /// in a fusion of pipelines.
    pub(super) selects: fn(RawValue<'_>) -> bool,
    /// Whether the stage is a fusion of pipelines.
    pub(super) fuses: bool,
    /// Whether the stage reads a search index, on a view one of the view.
    pub searches: bool,
    /// Parses the stage in a view that search indexes can be on; `None` where they cannot.
    pub(super) searched: Option<ParseViewStage>,
    /// The metadata by which the stage orders its documents, the best first.
    pub(super) ranked_by: Option<&'static str>,
    /// The declared fields of the operand, if it may be a document with declared fields.
    pub options: Option<StageOptions>,
    /// Whether only the server itself makes the stage; lists for clients leave it out.
    pub is_internal: bool,
    /// The operators that limit the stage's memory, each with a parameter.
    pub memory: &'static [Operator],
    parse: Parse,
}

/// The parser of a stage, by kind.
#[derive(Clone, Copy)]
pub(super) enum Parse {
    /// The stage transforms documents.
    Stage(ParseStage),
    /// The stage is a source.
    Source(ParseSource),
    /// The stage is rewritten to others.
    Short(ParseShort),
}

pub(super) type ParseStage = fn(RawValue<'_>, &PipelineContext<'_>) -> Result<Box<dyn Stage>>;
pub(super) type ParseSource = fn(RawValue<'_>, &PipelineContext<'_>) -> Result<Box<dyn Source>>;
pub(super) type ParseShort = fn(RawValue<'_>, &PipelineContext<'_>) -> Result<Vec<DocBuf>>;

/// The required columns of a row: name, help, since, needs.
pub(super) type RowHead = (&'static str, &'static str, &'static str, Needs);

pub(super) const fn with((name, help, since, needs): RowHead, parse: Parse) -> StageRow {
    StageRow {
        name,
        help,
        since,
        needs,
        place: StagePosition::Anywhere,
        first_code: None,
        in_facet: true,
        is_independent: false,
        independent_code: None,
        in_join: true,
        in_transaction: true,
        after_changes: false,
        not_after_changes: None,
        concern: StageConcern::Any,
        stable_options: None,
        shape: StageShape::Options,
        selects: |_| false,
        fuses: false,
        searches: false,
        searched: None,
        ranked_by: None,
        options: None,
        is_internal: false,
        memory: &[],
        parse,
    }
}

/// A stage without restrictions.
pub(super) const fn row(head: RowHead, parse: ParseStage) -> StageRow {
    with(head, Parse::Stage(parse))
}

/// A stage that is rewritten to others.
pub(super) const fn short(head: RowHead, parse: ParseShort) -> StageRow {
    with(head, Parse::Short(parse))
}

/// A source.
pub(super) const fn source(head: RowHead, parse: ParseSource) -> StageRow {
    with(head, Parse::Source(parse)).first()
}

/// A stage that writes.
pub(super) const fn last(head: RowHead, parse: ParseStage) -> StageRow {
    let place = StagePosition::Last;
    let row = StageRow { place, ..row(head, parse).alone().not_in_transactions() };
    row.concern(StageConcern::Present)
}

impl StageRow {
    /// Requires the first position.
    pub(super) const fn first(self) -> StageRow {
        StageRow { place: StagePosition::First, ..self.alone() }
    }

    /// Requires the first position, with this code in others.
    pub(super) const fn first_with(self, code: i32) -> StageRow {
        StageRow { first_code: Some(code), ..self.first() }
    }

    /// Declares that the stage reads no collection.
    pub(super) const fn independent(self) -> StageRow {
        StageRow { is_independent: true, ..self }
    }

    /// Declares that the stage reads no collection; over one it fails with this code.
    pub(super) const fn independent_with(self, code: i32) -> StageRow {
        StageRow { independent_code: Some(code), ..self.independent() }
    }

    /// Forbids the stage in nested pipelines.
    pub(super) const fn alone(self) -> StageRow {
        StageRow { in_facet: false, in_join: false, ..self }
    }

    /// Allows the stage in joins, overriding [`StageRow::alone`].
    pub(super) const fn in_joins(self) -> StageRow {
        StageRow { in_join: true, ..self }
    }

    /// Forbids the stage in a `$facet`.
    pub(super) const fn not_in_facets(self) -> StageRow {
        StageRow { in_facet: false, ..self }
    }

    /// Declares which operands make the stage select documents only.
    pub(super) const fn selecting(self, selects: fn(RawValue<'_>) -> bool) -> StageRow {
        StageRow { selects, ..self }
    }

    /// Declares that search indexes can be on a view with this stage.
    pub(super) const fn searched(self, parse: ParseViewStage) -> StageRow {
        StageRow { searched: Some(parse), ..self }
    }

    /// Declares a fusion of pipelines, which must be the first stage.
    pub(super) const fn fusion(self) -> StageRow {
        StageRow { fuses: true, ..self.first() }
    }

    /// Declares that the documents are in the order of this metadata.
    pub(super) const fn ranked(self, metadata: &'static str) -> StageRow {
        StageRow { ranked_by: Some(metadata), ..self }
    }

    /// Declares a search: the first stage, which replaces the stages of a view.
    pub(super) const fn search(self) -> StageRow {
        let row = self.first().in_joins().not_in_transactions().selecting(|_| true);
        StageRow { searches: true, ..row }
    }

    /// Declares the fields of the operand.
    pub(super) const fn options(self, fields: &'static [Argument]) -> StageRow {
        StageRow { options: Some(StageOptions { fields, codes: None }), ..self }
    }

    /// Declares the fields of the operand, with codes of its own for unknown and missing ones.
    pub(super) const fn options_with(
        self,
        fields: &'static [Argument],
        codes: OwnCodes,
    ) -> StageRow {
        StageRow { options: Some(StageOptions { fields, codes: Some(codes) }), ..self }
    }

    /// Leaves the stage out of lists for clients.
    pub(super) const fn internal(self) -> StageRow {
        StageRow { is_internal: true, ..self }
    }

    /// Forbids the stage in transactions.
    pub(super) const fn not_in_transactions(self) -> StageRow {
        StageRow { in_transaction: false, ..self }
    }

    /// Allows the stage after `$changeStream`.
    pub(super) const fn after_changes(self) -> StageRow {
        StageRow { after_changes: true, ..self }
    }

    /// Allows the stage after `$changeStream` unless it has this option.
    pub(super) const fn after_changes_without(self, option: &'static str) -> StageRow {
        StageRow { not_after_changes: Some(option), ..self.after_changes() }
    }

    pub(super) const fn concern(self, concern: StageConcern) -> StageRow {
        StageRow { concern, ..self }
    }

    /// Excludes the stage from the stable API.
    pub(super) const fn unstable(self) -> StageRow {
        self.stable_with(&[])
    }

    /// Declares that the stage is in the stable API with these options only.
    pub(super) const fn stable_with(self, options: &'static [&'static str]) -> StageRow {
        StageRow { stable_options: Some(options), ..self }
    }

    pub(super) const fn shaped(self, shape: StageShape) -> StageRow {
        StageRow { shape, ..self }
    }

    /// Declares that the stage buffers documents, within the limits of these operators.
    pub(super) const fn keeps(self, memory: &'static [Operator]) -> StageRow {
        StageRow { memory, ..self }
    }
}

/// A parsed stage.
pub(crate) enum Parsed {
    /// A source.
    Source(Box<dyn Source>),
    /// One stage, or those that it was rewritten to.
    Steps(Vec<Step>),
}

/// Parses one element of a pipeline.
///
/// # Errors
/// 40323, 40324 for elements that are not stages, 238 for stages that are not implemented, 40600,
/// 51047, 31441 for stages that are not allowed in this pipeline, errors of the stage.
pub(crate) fn parse_stage(spec: RawDoc<'_>, context: &PipelineContext<'_>) -> Result<Parsed> {
    let mut fields = spec.iter();
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return Err(Error::new(
            ErrorCode(40323),
            "A pipeline stage specification object must contain exactly one field.",
        ));
    };
    let row = match StageRow::find(field.name()) {
        Some(row) => row,
        None => return Err(absent(field.name())),
    };
    row.check_inside(context)?;
    context.needs(row.needs);
    match row.parse {
        Parse::Source(parse) => Ok(Parsed::Source(parse(field.value(), context)?)),
        Parse::Stage(parse) => {
            Ok(Parsed::Steps(vec![Step::sent(parse(field.value(), context)?, spec)]))
        }
        Parse::Short(parse) => {
            let mut steps = Vec::new();
            for spec in parse(field.value(), context)? {
                // A stage is never rewritten to one that is rewritten itself.
                if let Parsed::Steps(step) = parse_stage(spec.as_doc(), context)? {
                    steps.extend(step);
                }
            }
            Ok(Parsed::Steps(steps))
        }
    }
}

fn in_facet(name: &str) -> Error {
    let text = format!("{name} is not allowed to be used within a $facet stage");
    Error::new(ErrorCode(40600), text)
}

fn not_first(name: &str) -> Error {
    Error::new(ErrorCode(40602), format!("{name} is only valid as the first stage in a pipeline"))
}

fn check_stable(pipeline: RawDoc<'_>, depth: usize) -> Result<()> {
    // The parser refuses deeper pipelines.
    if depth > limits::MAX_BSON_DEPTH {
        return Ok(());
    }
    let stages = pipeline.iter().filter_map(|stage| stage.value().as_document()?.iter().next());
    for stage in stages {
        let name = stage.name();
        if !StageRow::find(name).is_none_or(|row| row.is_stable(stage.value())) {
            let text =
                format!("stage {name} is not allowed with 'apiStrict: true' in API Version 1");
            return Err(Error::new(ErrorCode::APIStrictError, text));
        }
        // Pipelines of joins and of `$facet`.
        let Some(options) = stage.value().as_document() else { continue };
        for inner in options.iter().filter_map(|option| option.value().as_array()) {
            check_stable(inner, depth + 1)?;
        }
    }
    Ok(())
}

impl StageRow {
    /// The row of the stage with this name.
    pub fn find(name: &str) -> Option<&'static StageRow> {
        STAGES.iter().find(|row| row.name == name)
    }

    /// Whether the stage is a source.
    pub fn is_source(&self) -> bool {
        matches!(self.parse, Parse::Source(_))
    }

    /// The row of the first stage of a pipeline.
    pub fn first_of(pipeline: RawDoc<'_>) -> Option<&'static StageRow> {
        let first = pipeline.iter().next()?.value().as_document()?;
        StageRow::find(first.iter().next()?.name())
    }

    /// Whether the stage describes its collection, so that it can begin the pipeline of a join.
    pub(crate) fn describes_collection(&self) -> bool {
        self.is_source() && self.in_join && matches!(self.needs, Needs::Collection(_))
    }

    /// Whether the stage reads no collection, so that its pipeline cannot be over one.
    pub fn is_independent(&self) -> bool {
        self.is_independent
    }

    /// Whether the stage writes.
    pub fn writes(&self) -> bool {
        self.place == StagePosition::Last
    }

    /// Checks that all stages of a pipeline, also of those inside of stages, are in the stable API.
    ///
    /// # Errors
    /// 323 APIStrictError.
    pub fn check_stable(pipeline: RawDoc<'_>) -> Result<()> {
        check_stable(pipeline, 0)
    }

    /// Whether the stage may follow `$changeStream` with this operand.
    pub(super) fn may_follow_changes(&self, operand: RawValue<'_>) -> bool {
        let options = operand.as_document().unwrap_or(RawDoc::EMPTY);
        self.after_changes && self.not_after_changes.is_none_or(|name| options.get(name).is_none())
    }

    fn is_stable(&self, operand: RawValue<'_>) -> bool {
        let Some(stable) = self.stable_options else { return true };
        let options = operand.as_document().unwrap_or(RawDoc::EMPTY);
        !stable.is_empty() && options.iter().all(|option| stable.contains(&option.name()))
    }

    /// The code of the error for the stage over a collection, if it is independent.
    pub fn code_over_collection(&self) -> ErrorCode {
        self.independent_code.map_or(ErrorCode::InvalidNamespace, ErrorCode)
    }

    /// The error for an independent stage over a collection.
    fn over_collection(&self) -> Error {
        let text = format!("{} must be run against the database with {{aggregate: 1}}", self.name);
        Error::new(self.code_over_collection(), text)
    }

    fn check_inside(&self, context: &PipelineContext<'_>) -> Result<()> {
        let name = self.name;
        if self.independent_code.is_some() && context.within_facet() {
            return Err(match context.collection {
                Some(_) => self.over_collection(),
                None => in_facet(name),
            });
        }
        let is_nested = !matches!(context.inside, PipelineOwner::Command | PipelineOwner::View);
        if self.is_independent && !self.in_join && is_nested {
            return Err(self.over_collection());
        }
        if context.within_facet() && !self.in_facet {
            return Err(in_facet(name));
        }
        let is_first = context.stage() == 0 || self.fuses && context.is_after_view();
        if self.place == StagePosition::First && self.first_code.is_none() && !is_first {
            return Err(not_first(name));
        }
        let (code, text) = match context.inside {
            PipelineOwner::Lookup if !self.in_join => {
                (51047, format!("{name} is not allowed within a $lookup's sub-pipeline"))
            }
            PipelineOwner::UnionWith if !self.in_join => {
                (31441, format!("{name} is not allowed within a $unionWith's sub-pipeline"))
            }
            PipelineOwner::Command
            | PipelineOwner::View
            | PipelineOwner::Facet
            | PipelineOwner::Lookup
            | PipelineOwner::UnionWith => {
                return Ok(());
            }
        };
        Err(Error::new(ErrorCode(code), text))
    }

    /// Checks the position of the stage in its pipeline.
    ///
    /// # Errors
    /// 40601, 40602.
    pub(crate) fn check_place(&self, at: usize, count: usize) -> Result<()> {
        let name = self.name;
        match self.place {
            StagePosition::First if at > 0 => Err(match self.first_code {
                Some(code) => {
                    let text = format!("{name} was not the first stage in the pipeline.");
                    Error::new(ErrorCode(code), text)
                }
                None => not_first(name),
            }),
            StagePosition::Last if at + 1 < count => Err(Error::new(
                ErrorCode(40601),
                format!("{name} can only be the final stage in the pipeline"),
            )),
            StagePosition::Anywhere | StagePosition::First | StagePosition::Last => Ok(()),
        }
    }
}
