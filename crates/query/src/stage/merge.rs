//! `$merge`: writes each result into a collection, as an update or an insert. This file parses it;
//! [`super::merge_run`] runs it.

use super::unwind::parts;
use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_expr::{Expression, Scope};
use mayfly_storage::StoreSession;
use mayfly_value::arguments::{
    Argument, Fields, Form,
    error::{not_a_choice, wrong_type},
};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::merge_run::{RunningMerge, missing_in};
use super::target::{check_target, target};
use super::{PipelineContext, Running, Stage, fill};

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

pub(crate) const ARGUMENTS: &[Argument] = &[
    Argument::one_of("into", &[Form::String, Form::Document]).required().null_is_value(),
    Argument::any("on"),
    Argument::document("let"),
    Argument::any("whenMatched"),
    Argument::choice("whenNotMatched", &["insert", "discard", "fail"]),
];
/// The fields of `into`.
const INTO: &[Argument] = &[Argument::string("coll"), Argument::string("db")];

pub(crate) fn parse(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    let (mut on, mut variables) = (None, None);
    let (mut matched, mut not_matched) = (Matched::Merge, NotMatched::Insert);
    let into = match value {
        RawValue::String(_) => value,
        RawValue::Document(spec) => {
            let fields = Fields::read(spec, "$merge", ARGUMENTS)?;
            on = spec.get("on").map(on_fields).transpose()?;
            variables = fields.document("let")?;
            if let Some(value) = spec.get("whenMatched") {
                matched = when_matched(value)?;
            }
            not_matched = NotMatched::named(fields.string("whenNotMatched")?);
            named(fields.required("into")?)?
        }
        other => return Err(wrong_type("$merge.into", other, "[string, object]")),
    };
    let into = target(into, context, ("$merge.into", INTO))?;
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
            51181,
            "Combination of {whenMatched, whenNotMatched} modes is not supported by $merge",
        ));
    }
    let new = variables.and_then(|variables| variables.get("new"));
    if new.is_some_and(|new| new != RawValue::String("$$ROOT")) {
        let text =
            "'let' may not define a value for the reserved 'new' variable other than '$$ROOT'";
        return Err(fault(51273, text));
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

/// `into`, if it names a collection.
fn named(into: RawValue<'_>) -> Result<RawValue<'_>> {
    let is_empty = |name: RawValue<'_>| {
        matches!(name, RawValue::String("") | RawValue::Null | RawValue::Undefined)
    };
    match into {
        RawValue::String("") => {
            Err(fault(5_786_800, "$merge 'into' field cannot be an empty string"))
        }
        RawValue::Document(spec) if spec.get("coll").is_none_or(is_empty) => {
            let text =
                "$merge 'into' field must specify a 'coll' that is not empty, null or undefined";
            Err(fault(5_786_801, text))
        }
        _ => Ok(into),
    }
}

impl Stage for Merge {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningMerge::new(*self))
    }

    fn writes_to(&self) -> Option<&Namespace> {
        Some(&self.into)
    }

    fn check_target(&self, session: StoreSession<'_>) -> Result<()> {
        missing_in(self, session).map(drop)
    }
}

fn on_fields(value: RawValue<'_>) -> Result<Vec<String>> {
    match value {
        RawValue::String(field) => {
            parts(field)?;
            Ok(vec![field.to_owned()])
        }
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
                parts(name)?;
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

/// The stages with each `$fill` as the stage that it is rewritten to.
///
/// # Errors
/// Errors of `$fill`; 72 InvalidOptions if it fills from other documents.
fn updating(stages: RawDoc<'_>) -> Result<DocBuf> {
    let mut out = DocBuilder::new();
    for (at, stage) in stages.iter().enumerate() {
        let spec = stage.value().as_document().unwrap_or(RawDoc::EMPTY);
        let at = at.to_string();
        match fill::values(spec)? {
            Some(filled) => out.append(&at, &filled),
            None => out.append(&at, spec),
        };
    }
    Ok(out.finish())
}

fn when_matched(value: RawValue<'_>) -> Result<Matched> {
    match value {
        RawValue::Array(stages) => {
            for stage in stages {
                if stage.value().as_document().is_none() {
                    let path = format_args!("$merge.whenMatched.{}", stage.name());
                    return Err(wrong_type(path, stage.value(), "object"));
                }
            }
            updating(stages).map(Matched::Pipeline)
        }
        RawValue::String("replace") => Ok(Matched::Replace),
        RawValue::String("keepExisting") => Ok(Matched::Keep),
        RawValue::String("merge") => Ok(Matched::Merge),
        RawValue::String("fail") => Ok(Matched::Fail),
        RawValue::String(other) => Err(not_a_choice("$merge.whenMatched", other)),
        other => Err(fault(
            51191,
            format!(
                "$merge 'whenMatched' field  must be either a string or an array, but found {}",
                other.type_name()
            ),
        )),
    }
}

impl NotMatched {
    fn named(name: Option<&str>) -> NotMatched {
        match name {
            Some("discard") => NotMatched::Discard,
            Some("fail") => NotMatched::Fail,
            _ => NotMatched::Insert,
        }
    }
}
