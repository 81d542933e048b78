//! `$accumulator`: an accumulator written in JavaScript.
//!
//! The functions of one accumulator share a sandbox. The arguments of calls are buffered, up to a
//! limit, so that one call into the interpreter processes many documents; the state is converted to
//! BSON only between such calls, as in the reference. A saved state is `{ s: state, p: [buffered
//! arguments] }`.

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_scripts::{Script, source_of};
use mayfly_value::shell::ShellValue;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, ValueBuf};

use super::Accumulator;
use crate::op::fault;
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

/// Largest buffer of one group, in bytes.
const MAX_WAITING_BYTES: usize = 256 << 10;

/// Approximate memory of an array.
const ARRAY_BYTES: usize = 64;

/// Indexes of the functions in the script.
const INIT: usize = 0;
const ACCUMULATE: usize = 1;
const MERGE: usize = 2;
const FINALIZE: usize = 3;

const NAMES: [&str; 4] = ["init", "accumulate", "merge", "finalize"];

/// The functions of an accumulator, and the arguments of `init`.
#[derive(Debug)]
pub(super) struct Functions {
    script: Script,
    finalizes: bool,
    init_arguments: Expression,
}

impl Functions {
    /// The expression for the arguments of `init`.
    pub(super) fn begins_with(&self) -> &Expression {
        &self.init_arguments
    }
}

/// The state of one group.
#[derive(Clone, Debug)]
pub(super) struct Scripted {
    functions: Arc<Functions>,
    state: ValueBuf,
    waiting: Vec<DocBuf>,
    waiting_bytes: usize,
}

/// Parses `{ init, initArgs, accumulate, accumulateArgs, merge, finalize, lang }`.
pub(super) fn parse(
    operand: RawValue<'_>,
    parser: &mut Parser<'_>,
    parsed: &mut Accumulator,
) -> Result<()> {
    let RawValue::Document(spec) = operand else {
        let found = operand.type_name();
        let text = format!("$accumulator expects an object as an argument; found: {found}");
        return Err(fault(4_544_703, text));
    };
    let mut sources: [String; 4] = Default::default();
    let mut init_arguments = Expression::constant(RawValue::Array(RawDoc::EMPTY));
    let (mut arguments, mut finalizes) = (None, false);
    for part in spec {
        let (name, value) = (part.name(), part.value());
        if let Some(place) = NAMES.iter().position(|have| *have == name) {
            sources[place] = source(name, value, parser)?;
            finalizes |= place == FINALIZE;
            continue;
        }
        match name {
            "initArgs" => init_arguments = parser.parse_collated(value)?,
            "accumulateArgs" => arguments = Some(parser.parse_collated(value)?),
            "lang" => check_language(value)?,
            _ => {
                let text = format!("$accumulator got an unexpected field: {name}");
                return Err(fault(4_544_706, text));
            }
        }
    }
    let missing = |code: i32, name: &str| {
        fault(code, format!("$accumulator missing required argument '{name}'"))
    };
    for (place, code) in [(INIT, 4_544_707), (ACCUMULATE, 4_544_708), (MERGE, 4_544_709)] {
        if sources[place].is_empty() {
            return Err(missing(code, NAMES[place]));
        }
    }
    parsed.argument = arguments.ok_or_else(|| missing(4_544_710, "accumulateArgs"))?;
    let script = Script::of(sources.into(), parser.scope().script_limits());
    parsed.functions = Some(Arc::new(Functions { script, finalizes, init_arguments }));
    Ok(())
}

fn source(name: &str, value: RawValue<'_>, parser: &mut Parser<'_>) -> Result<String> {
    let Expression::Constant(value) = parser.parse(value)? else {
        let text = format!("$accumulator '{name}' must be a constant expression");
        return Err(fault(4_544_701, text));
    };
    let source = source_of(value.as_raw()).map(str::to_owned);
    source
        .ok_or_else(|| fault(4_544_702, format!("$accumulator '{name}' must be a String or Code")))
}

fn check_language(value: RawValue<'_>) -> Result<()> {
    match value {
        RawValue::String("js") => Ok(()),
        RawValue::String(_) => Err(fault(4_544_705, "$accumulator only supports lang: 'js'")),
        other => {
            let found = other.type_name();
            Err(fault(4_544_704, format!("$accumulator lang must be a string; found: {found}")))
        }
    }
}

/// Checks that a value is an array.
fn array_of<'v>(value: &'v Value<'_>, code: i32, name: &str) -> Result<RawDoc<'v>> {
    match value.as_raw() {
        Some(RawValue::Array(items)) => Ok(items),
        found => {
            let found = found.map_or_else(|| "MISSING".to_owned(), |it| ShellValue(it).to_string());
            let text = format!("$accumulator {name} must evaluate to an array: {found}");
            Err(fault(code, text))
        }
    }
}

impl Scripted {
    /// Creates the state of a group; the frame's root is the document in the group's `_id`.
    pub(super) fn start(functions: &Arc<Functions>, frame: Frame<'_>) -> Result<Scripted> {
        functions.script.check_enabled()?;
        let arguments = functions.init_arguments.evaluate(frame)?;
        let arguments = array_of(&arguments, 4_544_711, "initArgs")?;
        let state = functions.script.call_at(INIT, arguments)?;
        let functions = functions.clone();
        Ok(Scripted { functions, state, waiting: Vec::new(), waiting_bytes: 0 })
    }

    /// Memory of the state in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Scripted>() + self.state.heap_bytes() + self.waiting_bytes
    }

    /// Buffers the arguments of one document.
    pub(super) fn put(&mut self, value: &Value<'_>) -> Result<()> {
        let arguments = array_of(value, 4_544_712, "accumulateArgs")?;
        self.waiting_bytes += arguments.as_bytes().len() + ARRAY_BYTES;
        self.waiting.push(arguments.to_owned());
        if self.waiting_bytes > MAX_WAITING_BYTES { self.take_in_waiting() } else { Ok(()) }
    }

    fn take_in_waiting(&mut self) -> Result<()> {
        self.state = self.whole_state()?;
        self.waiting = Vec::new();
        self.waiting_bytes = 0;
        Ok(())
    }

    fn waiting_calls(&self) -> DocBuf {
        let mut calls = DocBuilder::new_array();
        for arguments in &self.waiting {
            calls.push(RawValue::Array(arguments.as_doc()));
        }
        calls.finish()
    }

    /// The state after all buffered calls.
    fn whole_state(&self) -> Result<ValueBuf> {
        if self.waiting.is_empty() {
            return Ok(self.state.clone());
        }
        let calls = self.waiting_calls();
        self.functions.script.fold(ACCUMULATE, self.state.as_raw(), calls.as_doc())
    }

    /// The result of the group.
    pub(super) fn finish(&self) -> Result<ValueBuf> {
        let state = self.whole_state()?;
        if !self.functions.finalizes {
            return Ok(state);
        }
        let mut arguments = DocBuilder::new_array();
        arguments.push(&state);
        self.functions.script.call_at(FINALIZE, arguments.finish().as_doc())
    }

    /// Saves the state.
    pub(super) fn save(&self, out: &mut DocBuilder) {
        out.append("s", &self.state);
        out.append("p", RawValue::Array(self.waiting_calls().as_doc()));
    }

    /// Merges the saved state of later documents.
    pub(super) fn merge(&mut self, saved: RawDoc<'_>) -> Result<()> {
        self.take_in_waiting()?;
        let script = &self.functions.script;
        let other = saved.get("s").unwrap_or(RawValue::Null);
        let calls = saved.get("p").and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY);
        let folded = match calls.is_empty() {
            true => None,
            false => Some(script.fold(ACCUMULATE, other, calls)?),
        };
        let mut arguments = DocBuilder::new_array();
        arguments.push(&self.state);
        arguments.push(folded.as_ref().map_or(other, ValueBuf::as_raw));
        self.state = script.call_at(MERGE, arguments.finish().as_doc())?;
        Ok(())
    }
}
