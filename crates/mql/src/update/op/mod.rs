//! The table of update operators, one row each.

mod arithmetic;
mod array;
mod field;
mod pull;
mod push;

use std::fmt;

use mayfly_base::Result;
use mayfly_value::shell::ShellValue;
use mayfly_value::{PathWrite, RawDoc, RawValue, ValueBuf};

use super::UpdateContext;
use crate::FieldPath;
use crate::matcher::ParseContext;

/// The result of an operator for the value at its path.
pub enum Change {
    /// The value is unchanged.
    Keep,
    /// This value; the path is created where it is missing.
    Set(ValueBuf),
    /// The field is removed.
    Remove,
}

/// The target of an operator.
pub struct Target<'a> {
    /// The path of the field.
    pub path: &'a FieldPath,
    /// The document before the update, for error messages.
    pub doc: RawDoc<'a>,
    /// The time, and whether this is an insert.
    pub context: &'a UpdateContext,
}

impl Target<'_> {
    /// The last part of the path.
    pub fn field_name(&self) -> &str {
        self.path.parts().last().map_or("", |part| part)
    }

    /// The document in error messages: `{_id: 1}`.
    pub fn document_name(&self) -> String {
        match self.doc.get("_id") {
            Some(id) => format!("{{_id: {}}}", ShellValue(id)),
            None => "{no id}".to_owned(),
        }
    }
}

/// A parsed operator on one path.
pub trait Modifier: fmt::Debug + Send + Sync {
    /// Computes the change of the value; `None` for a missing one.
    fn apply(&self, current: Option<RawValue<'_>>, target: &Target<'_>) -> Result<Change>;

    /// What the log has to contain of the value.
    fn writes(&self) -> PathWrite {
        PathWrite::Whole
    }

    /// Whether the operator only changes what is there, and creates no field.
    fn only_existing(&self) -> bool {
        false
    }

    /// Whether a path through a scalar, or by a name through an array, counts as a missing field.
    /// Other operators refuse such a path, even if they would not create it.
    fn accepts_blocked_paths(&self) -> bool {
        false
    }
}

/// An operator's argument for one field.
pub struct Operand<'a> {
    /// The operator's name.
    pub operator: &'a str,
    /// The field's path.
    pub name: &'a str,
    /// The value of the argument.
    pub value: RawValue<'a>,
    /// The context for operators that take a filter.
    pub context: &'a ParseContext,
}

impl Operand<'_> {
    /// The argument in error messages: `a: "x"`.
    pub fn shown(&self) -> String {
        format!("{}: {}", self.name, ShellValue(self.value))
    }
}

/// Parses one field of an operator.
pub type ParseModifier = fn(&Operand<'_>) -> Result<Box<dyn Modifier>>;

/// How an operator is parsed.
pub enum Parse {
    /// Computes a new value.
    Modifier(ParseModifier),
    /// The same, only for inserts.
    OnInsert(ParseModifier),
    /// Moves a field.
    Rename,
}

/// A row of the table of update operators.
pub struct OperatorRow {
    /// The name with its dollar sign.
    pub name: &'static str,
    /// A one-line description.
    pub help: &'static str,
    /// The first version of the reference with the operator.
    pub since: &'static str,
    /// How it is parsed.
    pub parse: Parse,
}

const fn row(
    name: &'static str,
    since: &'static str,
    help: &'static str,
    parse: Parse,
) -> OperatorRow {
    OperatorRow { name, help, since, parse }
}

/// All update operators.
pub const ROWS: &[OperatorRow] = &[
    row("$set", "1.0", "Sets a field.", Parse::Modifier(field::set)),
    row("$unset", "1.0", "Removes a field.", Parse::Modifier(field::unset)),
    row("$setOnInsert", "2.4", "Sets a field of a new document.", Parse::OnInsert(field::set)),
    row("$rename", "1.8", "Moves a field.", Parse::Rename),
    row("$currentDate", "2.6", "Sets a field to now.", Parse::Modifier(field::current_date)),
    row("$inc", "1.0", "Adds to a number.", Parse::Modifier(arithmetic::inc)),
    row("$mul", "2.6", "Multiplies a number.", Parse::Modifier(arithmetic::mul)),
    row("$min", "2.6", "Keeps the lesser value.", Parse::Modifier(arithmetic::min)),
    row("$max", "2.6", "Keeps the greater value.", Parse::Modifier(arithmetic::max)),
    row("$bit", "1.8", "Changes an integer's bits.", Parse::Modifier(arithmetic::bit)),
    row("$push", "1.0", "Adds items to an array.", Parse::Modifier(push::push)),
    row("$addToSet", "1.2", "Adds items that are absent.", Parse::Modifier(array::add_to_set)),
    row("$pop", "1.0", "Removes the first or last item.", Parse::Modifier(array::pop)),
    row("$pull", "1.0", "Removes items by a condition.", Parse::Modifier(pull::pull)),
    row("$pullAll", "1.0", "Removes listed items.", Parse::Modifier(pull::pull_all)),
];

/// Parts of a path that select array items instead of naming a field.
pub const ARRAY_PARTS: &[&str] = &["$ (positional)", "$[]", "$[identifier]"];

/// Clauses of `$push` and `$addToSet`.
pub const CLAUSES: &[&str] = &["$each", "$position", "$slice", "$sort"];

/// The row of an operator.
pub fn find(name: &str) -> Option<&'static OperatorRow> {
    ROWS.iter().find(|row| row.name == name)
}

/// An array of values.
fn array_of<'v>(items: impl Iterator<Item = RawValue<'v>>) -> ValueBuf {
    let mut out = mayfly_value::DocBuilder::new_array();
    items.for_each(|item| {
        out.push(item);
    });
    RawValue::Array(out.finish().as_doc()).to_owned()
}
