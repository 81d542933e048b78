//! Parsed expressions and their evaluation.
//!
//! A path through an array evaluates to the array of the values in its documents, as described on
//! the manual's page "Field Paths"; missing values are omitted.

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_scripts::Script;
use mayfly_value::{Collation, DocBuilder, Finder, RawDoc, RawValue, ValueBuf, check_size};
use mayfly_work::current::spend;

use crate::op::{self, Each, OpRow, Positions, Prepared, Run, RunPrepared};
use crate::parse::Parser;
use crate::{Scope, Value};

/// A parsed expression.
#[derive(Clone, Debug)]
pub enum Expression {
    /// A constant; shared, because a variable may be used often.
    Constant(Arc<ValueBuf>),
    /// `$$REMOVE`.
    Missing,
    /// An omitted argument, where that differs from a missing value.
    Absent,
    /// `$a.b`; empty for `$$ROOT`.
    Path(Vec<String>),
    /// `$$name.a.b`, a variable of an enclosing operator.
    Variable {
        /// Its index among the variables in scope.
        place: usize,
        /// The path inside the variable's value.
        parts: Vec<String>,
    },
    /// A document with computed fields: `{ a: ..., b: ... }`.
    Document(Vec<(String, Expression)>),
    /// An array of expressions: `[ ..., ... ]`.
    Array(Vec<Expression>),
    /// An operator with arguments.
    Call {
        /// The operator.
        row: &'static OpRow,
        /// The function that evaluates it.
        run: Run,
        /// Its arguments.
        arguments: Vec<Expression>,
    },
    /// An operator with arguments and data prepared by the parser.
    Ready {
        /// The operator.
        row: &'static OpRow,
        /// The function that evaluates it.
        run: RunPrepared,
        /// Data that does not depend on the document.
        prepared: Arc<Prepared>,
        /// Its arguments.
        arguments: Vec<Expression>,
    },
    /// `$map`, `$filter`, `$reduce`: an expression for each item of an array.
    Each(Box<Each>),
    /// `$let`: variables for a body.
    Let {
        /// The index of the first variable; the others follow.
        first: usize,
        /// Their values.
        variables: Vec<Expression>,
        /// The expression that can use them.
        body: Box<Expression>,
    },
    /// `$function`: a script, and the expression for its arguments.
    Script(Arc<Script>, Box<Expression>),
    /// An expression whose strings are compared by a collation.
    Collated(Arc<Collation>, Box<Expression>),
}

/// Size from which on values count as work, in bytes.
const LARGE_BYTES: usize = 4 << 10;

/// Up to this many expressions over one document look up fields individually; more share a
/// [`Finder`].
pub const FEW_EXPRESSIONS: usize = 16;

/// The inputs of an evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    root: RawDoc<'a>,
    locals: Option<&'a Locals<'a>>,
    collation: Option<&'a Collation>,
    metadata: Option<RawDoc<'a>>,
    finder: Option<&'a Finder<'a>>,
}

/// The variables of one operator.
#[derive(Debug)]
pub(crate) struct Locals<'a> {
    /// The index of the first.
    pub(crate) first: usize,
    /// The values in order.
    pub(crate) values: &'a [Value<'a>],
    /// The variables of the enclosing operators.
    pub(crate) outer: Option<&'a Locals<'a>>,
    /// For a loop: where items of arrays are that exist for as long as the loop runs.
    pub(crate) positions: Option<&'a Positions>,
}

impl<'a> From<RawDoc<'a>> for Frame<'a> {
    fn from(root: RawDoc<'a>) -> Frame<'a> {
        Frame::new(root)
    }
}

impl<'a> Frame<'a> {
    /// A frame for a document, without variables.
    pub fn new(root: RawDoc<'a>) -> Frame<'a> {
        Frame { root, locals: None, collation: None, metadata: None, finder: None }
    }

    /// The same with strings compared by a collation.
    #[must_use]
    pub fn collated(self, collation: Option<&'a Collation>) -> Frame<'a> {
        Frame { collation, ..self }
    }

    /// The input document, which `$$ROOT` refers to.
    pub fn root(self) -> RawDoc<'a> {
        self.root
    }

    /// The collation; `None` for the simple one.
    pub fn collation(self) -> Option<&'a Collation> {
        self.collation
    }

    /// The same with a finder, for many expressions over one document.
    #[must_use]
    pub fn finding_by(self, finder: Option<&'a Finder<'a>>) -> Frame<'a> {
        Frame { finder: finder.or(self.finder), ..self }
    }

    /// The value of a field of the frame's document, or of a document inside it.
    #[inline]
    pub fn get<'d>(self, doc: RawDoc<'d>, name: &str) -> Option<RawValue<'d>> {
        match self.finder {
            None => doc.get(name),
            Some(finder) => finder.get(doc, name),
        }
    }

    /// The same with metadata for `$meta`, by name: `{ textScore: 1.5 }`.
    #[must_use]
    pub fn with_metadata(self, metadata: Option<RawDoc<'a>>) -> Frame<'a> {
        Frame { metadata, ..self }
    }

    /// The metadata for `$meta`.
    pub fn metadata(self) -> Option<RawDoc<'a>> {
        self.metadata
    }

    /// The variables in scope.
    pub(crate) fn locals(self) -> Option<&'a Locals<'a>> {
        self.locals
    }

    /// The same with further variables.
    pub(crate) fn within(self, locals: &'a Locals<'a>) -> Frame<'a> {
        Frame { locals: Some(locals), ..self }
    }

    /// A finder for this many expressions, if they are many and the frame has none yet.
    #[inline]
    fn finder_for(self, expressions: usize) -> Option<Finder<'a>> {
        let needs_finder = expressions > FEW_EXPRESSIONS && self.finder.is_none();
        needs_finder.then(|| Finder::new(self.root))
    }

    /// Where items of an array are, if it is borrowed from a value that the expression names and
    /// that exists for as long as an enclosing loop runs: of the outermost such loop.
    pub(crate) fn positions_of(self, array: &Expression) -> Option<&'a Positions> {
        let place = match array {
            Expression::Path(_) | Expression::Constant(_) => None,
            Expression::Variable { place, .. } => Some(*place),
            _ => return None,
        };
        let (mut found, mut next) = (None, self.locals);
        while let Some(locals) = next.filter(|locals| place.is_none_or(|at| at < locals.first)) {
            found = locals.positions.or(found);
            next = locals.outer;
        }
        found
    }

    fn variable(self, place: usize) -> Option<RawValue<'a>> {
        let mut next = self.locals;
        while let Some(locals) = next {
            if let Some(at) = place.checked_sub(locals.first) {
                return locals.values.get(at).and_then(Value::as_raw);
            }
            next = locals.outer;
        }
        None
    }
}

impl Expression {
    /// The expression of a constant.
    pub(crate) fn constant(value: RawValue<'_>) -> Expression {
        Expression::Constant(Arc::new(value.to_owned()))
    }

    /// Parses a value as an expression without variables of a command.
    ///
    /// # Errors
    /// Errors of [`Expression::parse_in`].
    pub fn parse(value: RawValue<'_>) -> Result<Expression> {
        Expression::parse_in(value, &Scope::default())
    }

    /// Parses a value as an expression.
    ///
    /// # Errors
    /// 168 InvalidPipelineOperator for an unknown operator, 238 NotImplemented for one that is not
    /// implemented, 16410, 16872, 17276 for invalid paths and variables, errors of the operators,
    /// and errors of evaluating constant expressions.
    pub fn parse_in(value: RawValue<'_>, scope: &Scope) -> Result<Expression> {
        Parser::new(scope).parse_collated(value)
    }

    /// Parses an expression whose paths begin at a level of the document instead of its root, for
    /// [`Expression::evaluate_at`]. Strings are compared by the scope's collation.
    ///
    /// # Errors
    /// Errors of the expression.
    pub fn parse_on_levels(value: RawValue<'_>, scope: &Scope) -> Result<Expression> {
        let mut parser = Parser::new(scope);
        let (_, body) = parser.with_locals(vec!["CURRENT".to_owned()], value)?;
        parser.finish()?;
        Ok(match scope.collation() {
            Some(collation) => Expression::Collated(collation.clone(), Box::new(body)),
            None => body,
        })
    }

    /// Evaluates an expression of [`Expression::parse_on_levels`] at this level; `$$ROOT` is the
    /// document of the frame.
    ///
    /// # Errors
    /// Errors of the operators.
    pub fn evaluate_at(&self, level: RawDoc<'_>, frame: Frame<'_>) -> Result<Value<'static>> {
        let values = [Value::Borrowed(RawValue::Document(level))];
        let locals = Locals { first: 0, values: &values, outer: None, positions: None };
        self.evaluate(frame.within(&locals)).map(Value::detached)
    }

    /// The direct subexpressions, in no particular order.
    pub(crate) fn children(&self) -> Vec<&Expression> {
        match self {
            Expression::Constant(_)
            | Expression::Missing
            | Expression::Absent
            | Expression::Path(_)
            | Expression::Variable { .. } => Vec::new(),
            Expression::Document(fields) => fields.iter().map(|field| &field.1).collect(),
            Expression::Array(arguments)
            | Expression::Call { arguments, .. }
            | Expression::Ready { arguments, .. } => arguments.iter().collect(),
            Expression::Script(_, arguments) => vec![arguments],
            Expression::Each(each) => each.children(),
            Expression::Let { variables, body, .. } => variables.iter().chain([&**body]).collect(),
            Expression::Collated(_, inner) => vec![inner],
        }
    }

    /// The value of a constant expression; `None` for others.
    pub fn as_constant(&self) -> Option<RawValue<'_>> {
        match self {
            Expression::Constant(value) => Some(value.as_raw()),
            _ => None,
        }
    }

    /// The path of the field that the expression reads; `None` for the whole document and for
    /// computed values.
    pub fn as_path(&self) -> Option<&[String]> {
        match self {
            Expression::Path(parts) if !parts.is_empty() => Some(parts),
            Expression::Collated(_, inner) => inner.as_path(),
            _ => None,
        }
    }

    /// The fields of a document expression.
    pub fn as_document(&self) -> Option<Vec<(&str, &Expression)>> {
        match self {
            Expression::Document(fields) => {
                Some(fields.iter().map(|(name, value)| (name.as_str(), value)).collect())
            }
            Expression::Collated(_, inner) => inner.as_document(),
            _ => None,
        }
    }

    /// The documents merged into the whole document, if the expression is `$mergeObjects` with
    /// `$$ROOT` as its first operand.
    pub fn as_additions(&self) -> Option<&[Expression]> {
        match self {
            Expression::Call { row, arguments, .. } if row.name == "$mergeObjects" => {
                let (first, others) = arguments.split_first()?;
                matches!(first, Expression::Path(parts) if parts.is_empty()).then_some(others)
            }
            Expression::Collated(_, inner) => inner.as_additions(),
            _ => None,
        }
    }

    /// Evaluates the expression.
    ///
    /// # Errors
    /// Errors of the operators.
    pub fn evaluate<'a>(&'a self, frame: Frame<'a>) -> Result<Value<'a>> {
        match self {
            Expression::Constant(value) => {
                let value = value.as_raw();
                spend_on(size(value))?;
                Ok(Value::Borrowed(value))
            }
            Expression::Missing | Expression::Absent => Ok(Value::Missing),
            Expression::Path(parts) => {
                spend_on(frame.root.as_bytes().len())?;
                Ok(match parts.as_slice() {
                    // Most paths have one part.
                    [name] => Value::from(frame.get(frame.root, name)),
                    parts => follow(RawValue::Document(frame.root), parts, frame),
                })
            }
            Expression::Variable { place, parts } => {
                let Some(value) = frame.variable(*place) else { return Ok(Value::Missing) };
                spend_on(size(value))?;
                Ok(follow(value, parts, frame))
            }
            Expression::Document(fields) => {
                let finder = frame.finder_for(fields.len());
                let frame = frame.finding_by(finder.as_ref());
                let mut out = DocBuilder::new();
                for (name, field) in fields {
                    if let Some(value) = field.evaluate(frame)?.as_raw() {
                        out.append(name, value);
                        check_size(out.len())?;
                    }
                }
                op::document(out)
            }
            Expression::Array(items) => {
                let finder = frame.finder_for(items.len());
                let frame = frame.finding_by(finder.as_ref());
                let mut out = DocBuilder::new_array();
                for item in items {
                    out.push(item.evaluate(frame)?.as_raw().unwrap_or(RawValue::Null));
                    check_size(out.len())?;
                }
                op::array(out)
            }
            Expression::Call { run, arguments, .. } => {
                spend(1)?;
                match frame.finder_for(arguments.len()) {
                    None => run(arguments, frame),
                    Some(finder) => {
                        run(arguments, frame.finding_by(Some(&finder))).map(Value::detached)
                    }
                }
            }
            Expression::Ready { run, prepared, arguments, .. } => {
                spend(1)?;
                run(prepared, arguments, frame)
            }
            Expression::Each(each) => each.evaluate(frame),
            Expression::Let { first, variables, body } => {
                let values = variables.iter().map(|value| value.evaluate(frame));
                let values = values.collect::<Result<Vec<_>>>()?;
                let outer = frame.locals;
                let locals = Locals { first: *first, values: &values, outer, positions: None };
                body.evaluate(frame.within(&locals)).map(Value::detached)
            }
            Expression::Script(script, arguments) => op::call_script(script, arguments, frame),
            Expression::Collated(collation, inner) => {
                inner.evaluate(frame.collated(Some(collation)))
            }
        }
    }
}

/// Counts a large value as work of the operation, because its consumer may read all of it.
#[inline]
fn spend_on(bytes: usize) -> Result<()> {
    if bytes < LARGE_BYTES { Ok(()) } else { spend(bytes >> 10) }
}

/// The size of a value that may be large.
#[inline]
fn size(value: RawValue<'_>) -> usize {
    match value {
        RawValue::Document(inner) | RawValue::Array(inner) => inner.as_bytes().len(),
        RawValue::String(text) => text.len(),
        _ => 0,
    }
}

/// Evaluates a path inside a value.
fn follow<'a>(value: RawValue<'a>, parts: &[String], frame: Frame<'_>) -> Value<'a> {
    let Some((part, rest)) = parts.split_first() else { return Value::Borrowed(value) };
    match value {
        RawValue::Document(inner) => match frame.get(inner, part) {
            Some(next) => follow(next, rest, frame),
            None => Value::Missing,
        },
        RawValue::Array(items) => {
            let mut out = DocBuilder::new_array();
            for item in items.iter().map(|item| item.value()) {
                // Arrays directly inside arrays are not traversed.
                if let RawValue::Document(_) = item
                    && let Some(found) = follow(item, parts, frame).as_raw()
                {
                    out.push(found);
                }
            }
            Value::Owned(RawValue::Array(out.finish().as_doc()).to_owned())
        }
        _ => Value::Missing,
    }
}
