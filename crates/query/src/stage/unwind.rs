//! `$unwind`: one document for each item of an array.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::arguments::{Argument, Fields, OwnCodes};
use mayfly_value::paths::check_field_path;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::{Effect, Next, PipelineContext, Reads, Running, Stage, StageContext};
use crate::exec::Flow;
use crate::language::metadata::Metadata;

/// A parsed `$unwind`.
#[derive(Clone, Debug)]
pub(crate) struct Unwind {
    pub(super) path: Vec<String>,
    pub(super) index: Option<Vec<String>>,
    pub(super) keep_empty: bool,
}

impl Unwind {
    /// The path of the array, and the field for the positions.
    fn paths(&self) -> Vec<String> {
        let index = self.index.as_ref().and_then(|index| index.first().cloned());
        std::iter::once(self.path.join(".")).chain(index).collect()
    }

    /// The options as explain shows them.
    pub(super) fn append_options(&self, out: &mut DocBuilder) {
        out.append("preserveNullAndEmptyArrays", self.keep_empty);
        if let Some(index) = &self.index {
            out.append("includeArrayIndex", index.join(".").as_str());
        }
    }
}

fn fault(code: i32, text: impl Into<String>) -> Error {
    Error::new(ErrorCode(code), text)
}

pub(crate) fn parse(value: RawValue<'_>, _: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    let (path, index, keep_empty) = match value {
        RawValue::String(text) => (Some(text), None, false),
        RawValue::Document(options) => {
            let fields = Fields::read_with(options, "$unwind", ARGUMENTS, CODES)?;
            let keep_empty = fields.bool("preserveNullAndEmptyArrays")?.unwrap_or(false);
            let index = match fields.string("includeArrayIndex")? {
                None => None,
                Some("") => return Err(fault(28810, INDEX_TEXT.replace("{}", "string"))),
                Some(text) => Some(index_path(text)?),
            };
            (fields.string("path")?, index, keep_empty)
        }
        other => {
            let text = format!(
                "expected either a string or an object as specification for $unwind stage, got {}",
                other.type_name()
            );
            return Err(fault(15981, text));
        }
    };
    let Some(path) = path.filter(|path| !path.is_empty()) else {
        return Err(fault(28812, "no path specified to $unwind stage"));
    };
    let Some(path) = path.strip_prefix('$') else {
        let text = format!("path option to $unwind stage should be prefixed with a '$': {path}");
        return Err(fault(28818, text));
    };
    Ok(Box::new(Unwind { path: parts(path)?, index, keep_empty }))
}

const INDEX_TEXT: &str =
    "expected a non-empty string for the includeArrayIndex option to $unwind stage, got {}";

pub(crate) const ARGUMENTS: &[Argument] = &[
    Argument::string("path")
        .null_is_value()
        .refused_with(28808, "expected a string as the path for $unwind stage, got {}"),
    Argument::bool("preserveNullAndEmptyArrays").null_is_value().refused_with(
        28809,
        "expected a boolean for the preserveNullAndEmptyArrays option to $unwind stage, got {}",
    ),
    Argument::string("includeArrayIndex").null_is_value().refused_with(28810, INDEX_TEXT),
];
pub(crate) const CODES: OwnCodes =
    OwnCodes { unknown: (28811, "unrecognized option to $unwind stage: {}"), missing: None };

fn index_path(text: &str) -> Result<Vec<String>> {
    if text.starts_with('$') {
        let text = format!(
            "includeArrayIndex option to $unwind stage should not be prefixed with a '$': {text}"
        );
        return Err(fault(28822, text));
    }
    parts(text)
}

pub(super) fn parts(path: &str) -> Result<Vec<String>> {
    check_field_path(path)?;
    Ok(path.split('.').map(str::to_owned).collect())
}

impl Stage for Unwind {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningUnwind::new(*self))
    }

    fn reads(&self) -> Reads {
        Reads::some(self.paths())
    }

    fn effect(&self) -> Effect {
        Effect::changes(self.paths())
    }
}

struct RunningUnwind {
    unwind: Unwind,
    /// A document whose items were not all returned, with the index of the next item and its
    /// metadata.
    rest: Option<(DocBuf, usize, Metadata)>,
}

impl RunningUnwind {
    fn new(unwind: Unwind) -> RunningUnwind {
        RunningUnwind { unwind, rest: None }
    }

    /// Passes on a document for each item from index `from` on, until the next stage pauses.
    /// Returns the next index.
    fn show_items(
        &self,
        document: RawDoc<'_>,
        from: usize,
        next: &mut Next<'_>,
    ) -> Result<(Flow, Option<usize>)> {
        let Unwind { path, index, .. } = &self.unwind;
        let Some(RawValue::Array(items)) = reached(document, path) else {
            return Ok((Flow::More, None));
        };
        let mut items = items.iter().enumerate().skip(from).peekable();
        while let Some((at, item)) = items.next() {
            let mut unwound = replaced(document, path, Some(item.value()));
            if let Some(index) = index {
                let at = RawValue::Int64(at as i64);
                unwound = replaced(unwound.as_doc(), index, Some(at));
            }
            // A stage that pauses has accepted the document.
            if next(unwound.as_doc())? != Flow::More {
                return Ok((Flow::Pause, items.peek().map(|(at, _)| *at)));
            }
        }
        Ok((Flow::More, None))
    }
}

impl Running for RunningUnwind {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        let Unwind { path, index, keep_empty } = &self.unwind;
        let mut show = |document: RawDoc<'_>| match index {
            None => next(document),
            Some(index) => next(replaced(document, index, Some(RawValue::Null)).as_doc()),
        };
        match reached(document, path) {
            None | Some(RawValue::Null | RawValue::Undefined) if *keep_empty => show(document),
            None | Some(RawValue::Null | RawValue::Undefined) => Ok(Flow::More),
            Some(RawValue::Array(items)) if items.is_empty() => match keep_empty {
                true => show(replaced(document, path, None).as_doc()),
                false => Ok(Flow::More),
            },
            Some(RawValue::Array(_)) => {
                let (flow, rest) = self.show_items(document, 0, next)?;
                self.rest = rest.map(|at| (document.to_owned(), at, context.metadata.get()));
                Ok(flow)
            }
            // A scalar counts as an array of itself.
            Some(_) => show(document),
        }
    }

    fn resume(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        let Some((document, from, metadata)) = self.rest.take() else { return Ok(Flow::More) };
        context.metadata.set(&metadata);
        let (flow, rest) = self.show_items(document.as_doc(), from, next)?;
        self.rest = rest.map(|at| (document, at, metadata));
        Ok(flow)
    }

    fn holds_back(&self) -> bool {
        self.rest.is_some()
    }
}

/// The value at a path through documents, without arrays.
fn reached<'a>(document: RawDoc<'a>, path: &[String]) -> Option<RawValue<'a>> {
    let (first, rest) = path.split_first()?;
    let value = document.get(first)?;
    if rest.is_empty() { Some(value) } else { reached(value.as_document()?, rest) }
}

/// Replaces the value at a path, in place or appended; `None` removes the field.
pub(super) fn replaced(
    document: RawDoc<'_>,
    path: &[String],
    value: Option<RawValue<'_>>,
) -> DocBuf {
    let mut out = DocBuilder::in_buffer(Vec::with_capacity(document.as_bytes().len() + 32));
    write_replaced(document, path, value, &mut out);
    out.finish()
}

fn write_replaced(
    document: RawDoc<'_>,
    path: &[String],
    value: Option<RawValue<'_>>,
    out: &mut DocBuilder,
) {
    let Some((first, rest)) = path.split_first() else { return };
    let mut found = false;
    for element in document {
        if found || element.name_bytes() != first.as_bytes() {
            out.append_element(element);
            continue;
        }
        found = true;
        write_part(first, rest, element.value().as_document(), value, out);
    }
    if !found && value.is_some() {
        write_part(first, rest, None, value, out);
    }
}

fn write_part(
    name: &str,
    rest: &[String],
    inner: Option<RawDoc<'_>>,
    value: Option<RawValue<'_>>,
    out: &mut DocBuilder,
) {
    if rest.is_empty() {
        if let Some(value) = value {
            out.append(name, value);
        }
        return;
    }
    out.start_document(name);
    write_replaced(inner.unwrap_or(RawDoc::EMPTY), rest, value, out);
    out.end();
}
