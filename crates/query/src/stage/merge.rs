//! `$merge`: writes each result into a collection, as an update or an insert. This file parses it;
//! [`super::merge_run`] runs it.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_expr::{Expression, Scope};
use mayfly_value::{DocBuf, RawDoc, RawValue};

use super::merge_run::RunningMerge;
use super::target::{check_target, target};
use super::{PipelineContext, Running, Stage};

/// A parsed `$merge`.
#[derive(Debug)]
pub(super) struct Merge {
    pub(super) into: Namespace,
    pub(super) on: Vec<String>,
    pub(super) variables: Vec<(String, Expression)>,
    pub(super) matched: Matched,
    pub(super) not_matched: NotMatched,
    pub(super) scope: Scope,
}

/// `whenMatched`.
#[derive(Clone, Debug)]
pub(super) enum Matched {
    Replace,
    Keep,
    Merge,
    Fail,
    Pipeline(DocBuf),
}

/// `whenNotMatched`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotMatched {
    Insert,
    Discard,
    Fail,
}

pub(super) fn fault(code: i32, text: impl Into<String>) -> Error {
    Error::new(ErrorCode(code), text)
}

/// The error for a field of `into`, or for `into` itself, which has this type.
fn target_fault(name: &str, kind: &str) -> Error {
    match name {
        "" => fault(
            51178,
            format!("$merge 'into' field must be either a string or an object, but found {kind}"),
        ),
        "coll" => fault(40414, "BSON field 'into.coll' is missing but a required field"),
        other => fault(40415, format!("BSON field 'into.{other}' is an unknown field.")),
    }
}

pub(crate) fn parse(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    let (mut into, mut on, mut variables) = (None, None, None);
    let (mut matched, mut not_matched) = (Matched::Merge, NotMatched::Insert);
    match value {
        RawValue::String(_) => into = Some(value),
        RawValue::Document(spec) => {
            for option in spec {
                match (option.name(), option.value()) {
                    ("into", value) => into = Some(value),
                    ("on", value) => on = Some(on_fields(value)?),
                    ("let", RawValue::Document(document)) => variables = Some(document),
                    ("let", other) => {
                        return Err(Error::type_mismatch(format!(
                            "BSON field '$merge.let' is the wrong type '{}', expected type 'object'",
                            other.type_name()
                        )));
                    }
                    ("whenMatched", value) => matched = when_matched(value)?,
                    ("whenNotMatched", value) => not_matched = when_not_matched(value)?,
                    (name, _) => {
                        let text = format!("BSON field '$merge.{name}' is an unknown field.");
                        return Err(fault(40415, text));
                    }
                }
            }
        }
        other => {
            let kind = other.type_name();
            let text = format!("$merge only supports a string or object argument, not {kind}");
            return Err(fault(51182, text));
        }
    }
    let Some(into) = into else {
        return Err(fault(40414, "BSON field '$merge.into' is missing but a required field"));
    };
    let kind = into.type_name();
    let into = target(into, context, &[], |name| target_fault(name, kind))?;
    if not_matched == NotMatched::Insert {
        context.needs_on(&into, Action::Insert);
    }
    if !matches!(matched, Matched::Fail) {
        context.needs_on(&into, Action::Update);
    }
    check_target(&into, "$merge", (31319, 31320))?;
    if let (Matched::Keep | Matched::Fail, NotMatched::Discard | NotMatched::Fail) =
        (&matched, not_matched)
    {
        return Err(fault(
            51189,
            "Combination of {whenMatched, whenNotMatched} modes is not supported by $merge",
        ));
    }
    if variables.is_some() && !matches!(matched, Matched::Pipeline(_)) {
        let text = "Cannot use 'let' variables with 'whenMatched' that is not a pipeline";
        return Err(fault(51199, text));
    }
    let scope = context.scope.clone().without_metadata();
    let parse = |field: mayfly_value::RawElement<'_>| {
        Ok((field.name().to_owned(), Expression::parse_in(field.value(), &scope)?))
    };
    let variables = variables.unwrap_or(RawDoc::EMPTY).iter().map(parse).collect::<Result<_>>()?;
    let on = on.unwrap_or_else(|| vec!["_id".to_owned()]);
    let merge = Merge { into, on, variables, matched, not_matched, scope };
    Ok(Box::new(merge))
}

impl Stage for Merge {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningMerge::new(*self))
    }

    fn writes_to(&self) -> Option<&Namespace> {
        Some(&self.into)
    }
}

fn on_fields(value: RawValue<'_>) -> Result<Vec<String>> {
    match value {
        RawValue::String(field) => Ok(vec![field.to_owned()]),
        RawValue::Array(fields) if fields.is_empty() => Err(fault(
            51187,
            "If explicitly specifying $merge 'on', must include at least one field",
        )),
        RawValue::Array(fields) => {
            let mut on: Vec<String> = Vec::new();
            for field in fields {
                let Some(name) = field.value().as_str() else {
                    let kind = field.value().type_name();
                    let text = format!("'on' array elements must be strings, but found {kind}");
                    return Err(fault(51134, text));
                };
                if on.iter().any(|have| have == name) {
                    return Err(fault(31465, format!("Found a duplicate field '{name}'")));
                }
                on.push(name.to_owned());
            }
            // Inserted documents have these fields in sorted order, as in the reference.
            on.sort();
            Ok(on)
        }
        other => Err(fault(
            51186,
            format!(
                "$merge 'on' field  must be either a string or an array of strings, but found {}",
                other.type_name()
            ),
        )),
    }
}

fn not_valid(value: &str, field: &str) -> Error {
    Error::bad_value(format!(
        "Enumeration value '{value}' for field '$merge.{field}' is not a valid value."
    ))
}

fn when_matched(value: RawValue<'_>) -> Result<Matched> {
    match value {
        RawValue::Array(stages) => Ok(Matched::Pipeline(stages.to_owned())),
        RawValue::String("replace") => Ok(Matched::Replace),
        RawValue::String("keepExisting") => Ok(Matched::Keep),
        RawValue::String("merge") => Ok(Matched::Merge),
        RawValue::String("fail") => Ok(Matched::Fail),
        RawValue::String(other) => Err(not_valid(other, "whenMatched")),
        other => Err(fault(
            51191,
            format!(
                "$merge 'whenMatched' field  must be either a string or an array, but found {}",
                other.type_name()
            ),
        )),
    }
}

fn when_not_matched(value: RawValue<'_>) -> Result<NotMatched> {
    match value {
        RawValue::String("insert") => Ok(NotMatched::Insert),
        RawValue::String("discard") => Ok(NotMatched::Discard),
        RawValue::String("fail") => Ok(NotMatched::Fail),
        RawValue::String(other) => Err(not_valid(other, "whenNotMatched")),
        other => Err(Error::type_mismatch(format!(
            "BSON field '$merge.whenNotMatched' is the wrong type '{}', expected type 'string'",
            other.type_name()
        ))),
    }
}
