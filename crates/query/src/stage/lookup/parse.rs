//! Parses the operand of a `$lookup`.

use mayfly_base::{Error, Namespace, Result};
use mayfly_expr::Expression;
use mayfly_value::arguments::{Argument, Fields};
use mayfly_value::{RawDoc, RawElement, RawValue};

use super::{JoinFields, Lookup};
use crate::stage::sub::SubPipeline;
use crate::stage::unwind::parts;
use crate::stage::{PipelineContext, PipelineOwner, Stage};

pub(crate) const ARGUMENTS: &[Argument] = &[
    Argument::string("as").required(),
    Argument::string("from")
        .null_is_value()
        .refused_with(9, "$lookup argument 'from' must be a string, is type {}"),
    Argument::string("localField"),
    Argument::string("foreignField"),
    Argument::array("pipeline")
        .null_is_value()
        .mistyped("'pipeline' option must be specified as an array"),
    Argument::document("let"),
];

/// The fields of an equality join; `None` when the pipeline alone joins.
fn join_fields(
    local: Option<&str>,
    foreign: Option<&str>,
    has_pipeline: bool,
) -> Result<Option<JoinFields>> {
    let text = match (local, foreign) {
        (Some(local), Some(foreign)) => {
            parts(foreign)?;
            return Ok(Some(JoinFields { local: parts(local)?, foreign: foreign.to_owned() }));
        }
        (None, None) if has_pipeline => return Ok(None),
        (None, None) => {
            "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be specified"
        }
        _ => "$lookup requires both or neither of 'localField' and 'foreignField' to be specified",
    };
    Err(Error::failed_to_parse(text))
}

const NO_PIPELINE: &str = "must specify 'pipeline' when 'from' is empty";

/// Parses the stage.
///
/// # Errors
/// 9 FailedToParse, errors of the expressions and of the pipeline.
pub(crate) fn parse(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    let fail = |text: &str| Err(Error::failed_to_parse(text));
    let RawValue::Document(spec) = value else {
        let kind = value.type_name();
        let text = format!("the $lookup stage specification must be an object, but found {kind}");
        return Err(Error::failed_to_parse(text));
    };
    // The rights on what it names are checked before its errors are shown.
    if let Some(named) = spec.get("from") {
        context.needs_named(named);
    }
    // The collection comes before all other parts.
    if spec.get("from").is_none() && spec.get("pipeline").is_none() {
        return fail(NO_PIPELINE);
    }
    let given = Fields::read(spec, "$lookup", ARGUMENTS)?;
    let (from, result) = (given.string("from")?, given.string("as")?.unwrap_or_default());
    let (local, foreign) = (given.string("localField")?, given.string("foreignField")?);
    let (variables, pipeline) = (given.document("let")?, given.array("pipeline")?);
    // Empty names with a pipeline join without a condition.
    let (local, foreign) = match (local, foreign) {
        (Some(""), Some("")) if pipeline.is_some() => (None, None),
        names => names,
    };
    let fields = join_fields(local, foreign, pipeline.is_some())?;
    if variables.is_some() && pipeline.is_none() {
        return fail("$lookup with a 'let' argument must also specify 'pipeline'");
    }
    if from.is_none() && pipeline.is_none() {
        return fail(NO_PIPELINE);
    }
    let from: Option<Namespace> = from.map(|name| context.collection(name)).transpose()?;
    let names = variables.unwrap_or(RawDoc::EMPTY);
    let stages = pipeline.unwrap_or(RawDoc::EMPTY);
    let sub = SubPipeline::parse(from, stages, PipelineOwner::Lookup, names, context)?;
    let parse = |element: RawElement<'_>| {
        let expression = Expression::parse_in(element.value(), context.scope)?;
        Ok((element.name().to_owned(), expression))
    };
    let variables = names.iter().map(parse).collect::<Result<_>>()?;
    let result = parts(result)?;
    Ok(Box::new(Lookup {
        sub,
        fields,
        variables,
        result,
        unwind: None,
        matching: None,
        sent: spec.to_owned(),
    }))
}
