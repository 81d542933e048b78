//! Updates by a pipeline: stages that compute the new document from the old one.
//!
//! Every stage is a row of [`STAGES`]. Expressions are those of the aggregation language, without
//! restrictions.

mod set_fields;

use mayfly_base::limits::MAX_PIPELINE_STAGES;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::{Expression, Frame, Scope};
use mayfly_value::arguments::error::mistyped;
use mayfly_value::arguments::{Argument, Fields};
use mayfly_value::paths::check_field_path;
use mayfly_value::shell::{Shell, ShellValue};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawElement, RawValue};

use crate::projection::{Projection, ProjectionKind};
use set_fields::SetFields;

/// A stage that an update may contain.
pub struct StageRow {
    /// The name with its dollar sign.
    pub name: &'static str,
    parse: fn(&str, RawValue<'_>, &Scope) -> Result<Stage>,
}

/// All stages that an update may have.
pub const STAGES: &[StageRow] = &[
    StageRow { name: "$set", parse: parse_set },
    StageRow { name: "$addFields", parse: parse_set },
    StageRow { name: "$unset", parse: parse_unset },
    StageRow { name: "$project", parse: parse_project },
    StageRow { name: "$replaceRoot", parse: parse_replace_root },
    StageRow { name: "$replaceWith", parse: parse_replace_with },
];

#[derive(Debug)]
enum Stage {
    Set(SetFields),
    Project(Projection),
    Replace { with: Expression, called: &'static str },
}

/// One stage, for use in other pipelines.
#[derive(Debug)]
pub struct DocumentStage(Stage);

/// The effect of a stage on a document.
#[derive(Debug)]
pub enum DocumentChange<'s> {
    /// Sets these paths to the values of expressions.
    Set(Vec<(String, &'s Expression)>),
    /// Keeps or drops fields.
    Project(&'s Projection),
    /// Replaces the document.
    Replace(&'s Expression),
}

impl DocumentStage {
    /// The effect on a document.
    pub fn change(&self) -> DocumentChange<'_> {
        match &self.0 {
            Stage::Set(fields) => DocumentChange::Set(fields.paths()),
            Stage::Project(projection) => DocumentChange::Project(projection),
            Stage::Replace { with, .. } => DocumentChange::Replace(with),
        }
    }

    /// Parses the operand of the stage with this name, one of [`STAGES`].
    ///
    /// # Errors
    /// 40324 for another name, errors of the stage.
    pub fn parse(name: &str, value: RawValue<'_>, scope: &Scope) -> Result<DocumentStage> {
        match STAGES.iter().find(|row| row.name == name) {
            Some(row) => (row.parse)(name, value, scope).map(DocumentStage),
            None => Err(unrecognized(name)),
        }
    }

    /// Applies the stage to a document.
    ///
    /// # Errors
    /// Errors of its expressions.
    pub fn run<'a>(&'a self, document: impl Into<Frame<'a>>) -> Result<DocBuf> {
        self.0.run(document.into())
    }
}

/// A parsed pipeline.
#[derive(Debug)]
pub(super) struct Pipeline(Vec<Stage>);

impl Pipeline {
    pub(super) fn parse(
        stages: RawDoc<'_>,
        scope: &Scope,
        is_stage: Option<fn(&str) -> bool>,
    ) -> Result<Pipeline> {
        let scope = &scope.clone().waiting_for_documents();
        let mut parsed = Vec::new();
        for stage in stages.iter() {
            let spec = stage_document(stage.value())?;
            if parsed.len() == MAX_PIPELINE_STAGES {
                let text =
                    format!("Pipeline length must be no longer than {MAX_PIPELINE_STAGES} stages");
                return Err(Error::new(ErrorCode::FailedToParse, text));
            }
            parsed.push(parse_stage(spec, scope, is_stage)?);
        }
        Ok(Pipeline(parsed))
    }

    /// Applies all stages to a document.
    pub(super) fn run(&self, doc: RawDoc<'_>) -> Result<DocBuf> {
        let mut current = doc.to_owned();
        for stage in &self.0 {
            current = stage.run(Frame::new(current.as_doc()))?;
        }
        Ok(current)
    }
}

impl Stage {
    fn run<'a>(&'a self, frame: Frame<'a>) -> Result<DocBuf> {
        match self {
            Stage::Set(fields) => fields.apply(frame),
            Stage::Project(projection) => projection.project(frame),
            Stage::Replace { with, called } => {
                let value = with.evaluate(frame)?;
                match value.as_raw() {
                    Some(RawValue::Document(new)) => Ok(new.to_owned()),
                    other => Err(not_a_document(called, other, frame.root())),
                }
            }
        }
    }
}

fn not_a_document(called: &str, value: Option<RawValue<'_>>, doc: RawDoc<'_>) -> Error {
    let (shown, kind) = match value {
        Some(value) => (ShellValue(value).to_string(), value.type_name()),
        None => ("MISSING".to_owned(), "missing"),
    };
    Error::new(
        ErrorCode(40228),
        format!(
            "{called} must evaluate to an object, but resulting value was: {shown}. Type of resulting \
             value: '{kind}'. Input document: {}",
            Shell(doc)
        ),
    )
}

/// Checks that every stage has a name, of those that an update may have or of `is_stage`.
///
/// # Errors
/// 14 TypeMismatch for an element that is not a document, 40323, 40324.
pub(super) fn check_names(stages: RawDoc<'_>, is_stage: fn(&str) -> bool) -> Result<()> {
    for stage in stages.iter() {
        let field = only_field(stage_document(stage.value())?)?;
        let name = field.name();
        if !STAGES.iter().any(|row| row.name == name) && !is_stage(name) {
            return Err(unrecognized(name));
        }
    }
    Ok(())
}

fn stage_document(stage: RawValue<'_>) -> Result<RawDoc<'_>> {
    stage
        .as_document()
        .ok_or_else(|| mistyped("Each element of the 'pipeline' array must be an object"))
}

fn only_field(spec: RawDoc<'_>) -> Result<RawElement<'_>> {
    let mut fields = spec.iter();
    match (fields.next(), fields.next()) {
        (Some(field), None) => Ok(field),
        _ => {
            let text = "A pipeline stage specification object must contain exactly one field.";
            Err(Error::new(ErrorCode(40323), text))
        }
    }
}

fn unrecognized(name: &str) -> Error {
    Error::new(ErrorCode(40324), format!("Unrecognized pipeline stage name: '{name}'"))
}

fn parse_stage(
    spec: RawDoc<'_>,
    scope: &Scope,
    is_stage: Option<fn(&str) -> bool>,
) -> Result<Stage> {
    let field = only_field(spec)?;
    let name = field.name();
    if let Some(row) = STAGES.iter().find(|row| row.name == name) {
        return (row.parse)(name, field.value(), scope);
    }
    if is_stage.is_some_and(|is_stage| is_stage(name)) {
        let text = format!("{name} is not allowed to be used within an update");
        return Err(Error::new(ErrorCode::InvalidOptions, text));
    }
    Err(unrecognized(name))
}

fn parse_set(name: &str, value: RawValue<'_>, scope: &Scope) -> Result<Stage> {
    let RawValue::Document(spec) = value else {
        let text =
            format!("{name} specification stage must be an object, got {}", value.type_name());
        return Err(Error::new(ErrorCode(40272), text));
    };
    let fields = SetFields::parse(spec, scope);
    fields.map(Stage::Set).map_err(|error| error.in_context(format!("Invalid {name}")))
}

fn parse_project(_name: &str, value: RawValue<'_>, scope: &Scope) -> Result<Stage> {
    let RawValue::Document(spec) = value else {
        return Err(Error::new(ErrorCode(15969), "$project specification must be an object"));
    };
    let projection = Projection::parse_in(spec, ProjectionKind::Stage, scope);
    projection.map(Stage::Project).map_err(|error| error.in_context("Invalid $project"))
}

/// Parses a field or an array of fields to exclude.
fn parse_unset(_name: &str, value: RawValue<'_>, _scope: &Scope) -> Result<Stage> {
    let fault = |code: i32, what: &str| {
        let text = format!("$unset specification must be a string or an array{what}");
        Err(Error::new(ErrorCode(code), text))
    };
    let mut exclusion = DocBuilder::new();
    // The builder would omit a name with a NUL byte.
    let mut exclude = |field: &str| -> Result<()> {
        if field.contains('\0') {
            let text = "Invalid $unset :: caused by :: a path may not contain '\\0'";
            return Err(Error::new(ErrorCode(9_527_900), text));
        }
        check_field_path(field).map_err(|error| error.in_context("Invalid $unset"))?;
        exclusion.append(field, 0);
        Ok(())
    };
    match value {
        RawValue::String(field) => exclude(field)?,
        RawValue::Array(fields) if fields.is_empty() => {
            return fault(31119, " with at least one field");
        }
        RawValue::Array(fields) => {
            for field in fields.iter() {
                match field.value() {
                    RawValue::String(field) => exclude(field)?,
                    _ => return fault(31120, " containing only string values"),
                }
            }
        }
        _ => return fault(31002, ""),
    }
    let projection = Projection::parse(exclusion.finish().as_doc(), ProjectionKind::Stage);
    projection.map(Stage::Project).map_err(|error| error.in_context("Invalid $unset"))
}

fn parse_replace_root(_name: &str, value: RawValue<'_>, scope: &Scope) -> Result<Stage> {
    let RawValue::Document(spec) = value else {
        let text = format!(
            "expected an object as specification for $replaceRoot stage, got {}",
            value.type_name()
        );
        return Err(Error::new(ErrorCode(40229), text));
    };
    const FIELDS: &[Argument] = &[Argument::any("newRoot").required()];
    Fields::read(spec, "$replaceRoot", FIELDS)?;
    let new_root = spec.get("newRoot").unwrap_or(RawValue::Null);
    Ok(Stage::Replace {
        with: Expression::parse_in(new_root, scope)?,
        called: "'newRoot' expression ",
    })
}

fn parse_replace_with(_name: &str, value: RawValue<'_>, scope: &Scope) -> Result<Stage> {
    let with = Expression::parse_in(value, scope)?;
    Ok(Stage::Replace { with, called: "'replacement document' expression " })
}

#[cfg(test)]
mod tests;
