//! `$merge`: writes each result into a collection, as an update, an insert or both.

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_expr::{Expression, Frame, Scope};
use mayfly_mql::{Matcher, ParseContext, Update};
use mayfly_storage::Collection;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use std::sync::Arc;

use super::target::{check_target, new_id, target, with_id};
use super::{Around, Next, Running, Stage, StageContext};
use crate::pipeline::everything;
use crate::{CanonicalQuery, Flow, UpdateSpec, update};

/// A parsed `$merge`.
#[derive(Clone, Debug)]
pub(crate) struct Merge {
    into: Namespace,
    on: Vec<String>,
    variables: Vec<(String, Expression)>,
    matched: Matched,
    not_matched: NotMatched,
    scope: Scope,
}

#[derive(Clone, Debug)]
enum Matched {
    Replace,
    Keep,
    Merge,
    Fail,
    Pipeline(DocBuf),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotMatched {
    Insert,
    Discard,
    Fail,
}

fn fault(code: i32, text: impl Into<String>) -> Error {
    Error::new(ErrorCode(code), text)
}

pub(super) fn parse(value: RawValue<'_>, around: &Around<'_>) -> Result<Vec<Stage>> {
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
    let into = target(into, around, &[], |name| match name {
        "" => fault(
            51178,
            format!("$merge 'into' field must be either a string or an object, but found {kind}"),
        ),
        "coll" => fault(40414, "BSON field 'into.coll' is missing but a required field"),
        other => fault(40415, format!("BSON field 'into.{other}' is an unknown field.")),
    })?;
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
    let scope = around.scope.clone();
    let parse = |field: mayfly_value::RawElement<'_>| {
        Ok((field.name().to_owned(), Expression::parse_in(field.value(), &scope)?))
    };
    let variables = variables.unwrap_or(RawDoc::EMPTY).iter().map(parse).collect::<Result<_>>()?;
    let on = on.unwrap_or_else(|| vec!["_id".to_owned()]);
    let merge = Merge { into, on, variables, matched, not_matched, scope };
    Ok(vec![Stage::Merge(Box::new(merge))])
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
            // An inserted document has them in this order, whatever the order in which they were given.
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

/// Whether no two documents of the collection can have the same values in these fields.
fn is_unique(collection: &Collection, on: &[String], scope: &Scope) -> bool {
    if on == ["_id"] {
        return true;
    }
    collection.indexes().iter().any(|index| {
        let spec = &index.spec;
        let fields = spec.fields();
        spec.unique()
            && !index.is_partial()
            && mayfly_value::same_collation(spec.collation(), scope.collation())
            && fields.len() == on.len()
            && fields.iter().all(|field| on.contains(&field.path))
    })
}

pub(super) struct RunningMerge {
    merge: Merge,
    target: Option<Arc<Collection>>,
}

impl RunningMerge {
    pub(super) fn new(merge: Merge) -> RunningMerge {
        RunningMerge { merge, target: None }
    }

    fn target(&mut self, context: &StageContext<'_>) -> Result<Arc<Collection>> {
        if let Some(target) = self.target.as_ref().filter(|target| !target.is_dropped()) {
            return Ok(target.clone());
        }
        let Merge { into, on, scope, .. } = &self.merge;
        let store = context.store;
        store.check_no_view(into)?;
        let unique = match store.collection(into) {
            Some(existing) => is_unique(&existing, on, scope),
            None => *on == ["_id"],
        };
        if !unique {
            let text = "Cannot find index to verify that join fields will be unique";
            return Err(fault(51183, text));
        }
        let (target, _) = store.get_or_create(into)?;
        self.target = Some(target.clone());
        Ok(target)
    }

    /// What finds the document to merge with.
    fn filter(&self, document: RawDoc<'_>) -> Result<DocBuf> {
        let mut filter = DocBuilder::new();
        for field in &self.merge.on {
            match mayfly_value::paths::get_plain(document, field) {
                None | Some(RawValue::Null | RawValue::Undefined | RawValue::Array(_)) => {
                    return Err(fault(
                        51132,
                        "$merge write error: 'on' field cannot be missing, null, undefined or an array",
                    ));
                }
                Some(value) => filter.start_document(field).append("$eq", value).end(),
            };
        }
        Ok(filter.finish())
    }

    fn update(&self, document: RawDoc<'_>) -> Result<Update> {
        let context = ParseContext::default();
        let operator = |name: &str| {
            let mut out = DocBuilder::new();
            out.append(name, document);
            Update::parse(out.finish().as_doc(), &context)
        };
        match &self.merge.matched {
            Matched::Replace | Matched::Fail => Update::parse(document, &context),
            Matched::Keep => operator("$setOnInsert"),
            Matched::Merge => operator("$set"),
            Matched::Pipeline(stages) => {
                let mut scope = self.merge.scope.clone();
                let mut values = DocBuilder::new();
                if !self.merge.variables.iter().any(|(name, _)| name == "new") {
                    values.start_document("new").append("$literal", document).end();
                }
                for (name, expression) in &self.merge.variables {
                    let value = expression.evaluate(Frame::new(document))?;
                    match value.as_raw() {
                        Some(value) => values.start_document(name).append("$literal", value).end(),
                        None => values.append(name, "$$REMOVE"),
                    };
                }
                scope.declare(values.finish().as_doc())?;
                Update::parse_in(RawValue::Array(stages.as_doc()), &[], &scope, &context)
            }
        }
    }

    fn write(&mut self, context: &StageContext<'_>, document: RawDoc<'_>) -> Result<()> {
        let target = self.target(context)?;
        let document = match self.merge.on.iter().any(|field| field == "_id") {
            true => with_id(document),
            false => document.to_owned(),
        };
        let filter = self.filter(document.as_doc())?;
        let bypass = context.settings.bypass_validation;
        if matches!(self.merge.matched, Matched::Fail) {
            let document = with_id(document.as_doc());
            return context.store.write(context.op, &target, |unit| {
                if bypass {
                    unit.bypass_validation();
                }
                unit.insert(document.as_doc())
            });
        }
        let matcher = Matcher::parse_in(filter.as_doc(), &self.merge.scope)?;
        let collation = self.merge.scope.collation().cloned();
        let query = CanonicalQuery { matcher: Arc::new(matcher), collation, ..everything(None)? };
        let upsert = self.merge.not_matched == NotMatched::Insert;
        let pipeline = matches!(self.merge.matched, Matched::Pipeline(_));
        let spec = UpdateSpec {
            query,
            update: self.update(document.as_doc())?,
            multi: false,
            upsert,
            supplied: (upsert && pipeline).then(|| document.clone()),
            new_id: new_id(),
            repeatable: None,
            bypass_validation: bypass,
        };
        let outcome = update(context.store, context.op, &target, &spec)?;
        if outcome.matched == 0 && self.merge.not_matched == NotMatched::Fail {
            return Err(Error::new(
                ErrorCode::MergeStageNoMatchingDocument,
                "$merge could not find a matching document in the target collection for at least one document in the \
                 source collection",
            ));
        }
        Ok(())
    }
}

impl Running for RunningMerge {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        _: &mut Next<'_>,
    ) -> Result<Flow> {
        if context.settings.read_only {
            return Ok(Flow::More);
        }
        context.op.check()?;
        self.write(context, document)?;
        Ok(Flow::More)
    }

    fn finish(&mut self, context: &StageContext<'_>, _: &mut Next<'_>) -> Result<Flow> {
        // What is wrong with the target is wrong without a document, too.
        if !context.settings.read_only {
            self.target(context)?;
        }
        Ok(Flow::More)
    }

    fn holds_back(&self) -> bool {
        true
    }
}
