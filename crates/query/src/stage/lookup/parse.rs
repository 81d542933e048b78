//! Parses the operand of a `$lookup`.

use mayfly_base::{Error, Namespace, Result};
use mayfly_expr::Expression;
use mayfly_value::arguments::error::{missing, wrong_type};
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

/// `localField` or `foreignField`; null counts as absent.
fn field_of<'a>(name: &str, value: RawValue<'a>) -> Result<Option<&'a str>> {
    match value {
        RawValue::Null | RawValue::Undefined => Ok(None),
        _ => text_of(name, value).map(Some),
    }
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
            "localField" => local = field_of(name, value)?,
            "foreignField" => foreign = field_of(name, value)?,
            "as" => match value {
                RawValue::String(name) => result = Some(name),
                RawValue::Null | RawValue::Undefined => {}
                other => return Err(wrong_type("$lookup.as", other, "string")),
            },
            "pipeline" => pipeline = Some(pipeline_argument(value)?),
            "let" => match value {
                RawValue::Document(document) => variables = Some(document),
                RawValue::Null | RawValue::Undefined => {}
                other => return Err(wrong_type("$lookup.let", other, "object")),
            },
            other => {
                let text = format!("unknown argument to $lookup: {other}");
                return Err(Error::failed_to_parse(text));
            }
        }
    }
    let result = result.ok_or_else(|| missing("$lookup.as"))?;
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
