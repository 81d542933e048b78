//! Parses the operand of a `$lookup`.

use mayfly_base::{Error, Namespace, Result};
use mayfly_expr::Expression;
use mayfly_value::shell::ShellValue;
use mayfly_value::{RawDoc, RawElement, RawValue};

use super::{JoinFields, Lookup};
use crate::stage::sub::{SubPipeline, pipeline_argument};
use crate::stage::unwind::parts;
use crate::stage::{PipelineContext, PipelineOwner, Stage};

fn text_of<'a>(name: &str, value: RawValue<'a>) -> Result<&'a str> {
    value.as_str().ok_or_else(|| {
        Error::failed_to_parse(format!(
            "$lookup argument '{name}: {}' must be a string, is type {}",
            ShellValue(value),
            value.type_name()
        ))
    })
}

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
    let (mut from, mut local, mut foreign, mut result) = (None, None, None, None);
    let (mut variables, mut pipeline) = (None, None);
    for option in spec {
        let (name, value) = (option.name(), option.value());
        match name {
            "from" => {
                context.needs_named(value);
                from = Some(text_of(name, value)?);
            }
            "localField" => local = Some(text_of(name, value)?),
            "foreignField" => foreign = Some(text_of(name, value)?),
            "as" => result = Some(text_of(name, value)?),
            "pipeline" => pipeline = Some(pipeline_argument(value)?),
            "let" => match value {
                RawValue::Document(document) => variables = Some(document),
                other => {
                    return Err(Error::failed_to_parse(format!(
                        "$lookup argument 'let: {}' must be an object, is type {}",
                        ShellValue(other),
                        other.type_name()
                    )));
                }
            },
            other => {
                let text = format!("unknown argument to $lookup: {other}");
                return Err(Error::failed_to_parse(text));
            }
        }
    }
    let Some(result) = result else { return fail("must specify 'as' field for a $lookup") };
    let fields = join_fields(local, foreign, pipeline.is_some())?;
    if variables.is_some() && pipeline.is_none() {
        return fail("$lookup with a 'let' argument must also specify 'pipeline'");
    }
    if from.is_none() && pipeline.is_none() {
        return fail("must specify 'pipeline' when 'from' is empty");
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
