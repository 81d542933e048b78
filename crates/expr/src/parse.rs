//! Parses values as expressions: paths, variables, documents, arrays, operators. Constant
//! expressions are evaluated once, when they are parsed.
//!
//! The error of a constant expression is kept until everything is parsed: errors of the syntax come
//! first, and an operator that never evaluates an operand drops its error (`$or`, `$switch`). In
//! validators and pipelines of updates it appears only when a document is there.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_value::paths::check_field_path;
use mayfly_value::{RawDoc, RawValue};

use crate::op::size::metadata;
use crate::op::{self, ConstantItems, OpRow, Operands, Prepared, Run, RunPrepared, check_text};
use crate::{Expression, Frame, Scope, Scripts, Value};

/// The metadata that is the value of `$$SEARCH_META`.
const SEARCH_META: &str = "searchMeta";

/// Up to this many names of an object are compared linearly.
const FEW_NAMES: usize = 16;

/// The state of parsing an expression.
pub struct Parser<'s> {
    scope: &'s Scope,
    /// Variables of the enclosing operators, outermost first.
    locals: Vec<String>,
    /// The indexes of each variable among them.
    places: HashMap<String, Vec<usize>>,
    depth: usize,
    reads_document: bool,
    /// The error of the first constant expression that could not be evaluated.
    deferred: Option<Error>,
}

impl<'s> Parser<'s> {
    /// A parser with the variables of a scope.
    pub(crate) fn new(scope: &'s Scope) -> Parser<'s> {
        Parser {
            scope,
            locals: Vec::new(),
            places: HashMap::new(),
            depth: 0,
            reads_document: false,
            deferred: None,
        }
    }

    /// Whether the expressions parsed so far read the document.
    pub(crate) fn reads_document(&self) -> bool {
        self.reads_document
    }

    /// Whether the expression is part of a validator.
    pub(crate) fn in_validator(&self) -> bool {
        self.scope.scripts() == Scripts::Nowhere
    }

    /// Parses a value.
    pub(crate) fn parse(&mut self, value: RawValue<'_>) -> Result<Expression> {
        if self.depth > limits::MAX_FILTER_DEPTH {
            return Err(Error::new(ErrorCode::Overflow, "expression is nested too deeply"));
        }
        self.depth += 1;
        let parsed = match value {
            RawValue::String(text) if text.starts_with('$') => self.path(text),
            RawValue::Array(items) => self.list(items).map(array),
            RawValue::Document(document) => self.document(document),
            RawValue::String(text) => check_text(text.len()).map(|()| Expression::constant(value)),
            constant => Ok(Expression::constant(constant)),
        };
        self.depth -= 1;
        parsed
    }

    /// Parses the items of an array.
    pub(crate) fn list(&mut self, items: RawDoc<'_>) -> Result<Vec<Expression>> {
        items.iter().map(|item| self.parse(item.value())).collect()
    }

    /// Parses a list of arguments; another value is a list of one.
    pub(crate) fn arguments(&mut self, operand: RawValue<'_>) -> Result<Vec<Expression>> {
        match operand {
            RawValue::Array(items) => self.list(items),
            single => Ok(vec![self.parse(single)?]),
        }
    }

    /// Parses an expression with additional variables; returns the index of the first.
    pub(crate) fn with_locals(
        &mut self,
        names: Vec<String>,
        body: RawValue<'_>,
    ) -> Result<(usize, Expression)> {
        let first = self.locals.len();
        for name in names {
            self.places.entry(name.clone()).or_default().push(self.locals.len());
            self.locals.push(name);
        }
        let body = self.parse(body);
        for name in self.locals.drain(first..) {
            self.places.get_mut(&name).and_then(Vec::pop);
        }
        Ok((first, body?))
    }

    fn document(&mut self, document: RawDoc<'_>) -> Result<Expression> {
        let mut fields: Vec<(String, Expression)> = Vec::new();
        let mut names = HashSet::new();
        for element in document {
            let name = element.name();
            if name.is_empty() {
                let text = "FieldPath field names may not be empty strings.";
                return Err(Error::new(ErrorCode(15998), text));
            }
            if name.starts_with('$') && !fields.is_empty() {
                let text = format!("FieldPath field names may not start with '$': {name}");
                return Err(Error::new(ErrorCode(16410), text));
            }
            if name.starts_with('$') {
                if document.iter().count() > 1 {
                    return Err(Error::new(
                        ErrorCode(15983),
                        format!(
                            "An object representing an expression must have exactly one field: {document:?}"
                        ),
                    ));
                }
                return self.operator(name, element.value());
            }
            if name.contains('.') {
                return Err(Error::new(
                    ErrorCode(16412),
                    format!(
                        "FieldPath field names may not contain '.'. Consider using $getField or $setField. {name}"
                    ),
                ));
            }
            let twice = if fields.len() < FEW_NAMES {
                fields.iter().any(|(have, _)| have == name)
            } else {
                if names.is_empty() {
                    names.extend(document.iter().take(fields.len()).map(|before| before.name()));
                }
                !names.insert(name)
            };
            if twice {
                let text =
                    format!("duplicate field name specified in object literal: {document:?}");
                return Err(Error::new(ErrorCode(16406), text));
            }
            fields.push((name.to_owned(), self.parse(element.value())?));
        }
        let constant = fields.iter().all(|(_, field)| is_constant(field));
        let expression = Expression::Document(fields);
        if constant { self.fold(expression) } else { Ok(expression) }
    }

    /// Parses something, and returns the error of a constant expression in it apart from it.
    pub(crate) fn apart<T>(
        &mut self,
        parse: impl FnOnce(&mut Parser<'s>) -> Result<T>,
    ) -> Result<(T, Option<Error>)> {
        let before = self.deferred.take();
        let parsed = parse(self)?;
        let error = std::mem::replace(&mut self.deferred, before);
        Ok((parsed, error))
    }

    /// Keeps the error of a constant expression, if there is one.
    pub(crate) fn defer(&mut self, error: Option<Error>) {
        if self.deferred.is_none() {
            self.deferred = error;
        }
    }

    /// Ends the parsing.
    ///
    /// # Errors
    /// The error of the first constant expression that could not be evaluated, unless the scope
    /// waits for a document.
    pub(crate) fn finish(&mut self) -> Result<()> {
        match self.deferred.take() {
            Some(error) if !self.scope.waits_for_documents() => Err(error),
            _ => Ok(()),
        }
    }

    /// An operator with arguments; evaluated immediately if they are constant.
    pub(crate) fn call(
        &mut self,
        row: &'static OpRow,
        run: Run,
        arguments: Vec<Expression>,
    ) -> Result<Expression> {
        let constant = arguments.iter().all(is_constant);
        let expression = Expression::Call { row, run, arguments };
        if constant { self.fold(expression) } else { Ok(expression) }
    }

    /// The same with prepared data.
    pub(crate) fn ready(
        &mut self,
        row: &'static OpRow,
        run: RunPrepared,
        prepared: Prepared,
        arguments: Vec<Expression>,
    ) -> Result<Expression> {
        let constant = arguments.iter().all(is_constant);
        let prepared = Arc::new(prepared);
        let expression = Expression::Ready { row, run, prepared, arguments };
        if constant { self.fold(expression) } else { Ok(expression) }
    }

    /// Evaluates a constant expression. If that fails, the expression stays as it is.
    fn fold(&mut self, expression: Expression) -> Result<Expression> {
        let frame = Frame::new(RawDoc::EMPTY).collated(self.scope.collation().map(|have| &**have));
        let value = match expression.evaluate(frame) {
            Ok(value) => value.into_owned(),
            Err(error) => {
                self.defer(Some(error));
                return Ok(expression);
            }
        };
        Ok(value.map_or(Expression::Missing, |value| Expression::Constant(value.into())))
    }

    /// Parses an expression whose strings are compared by the scope's collation.
    pub(crate) fn parse_collated(&mut self, value: RawValue<'_>) -> Result<Expression> {
        let parsed = self.parse(value)?;
        self.finish()?;
        Ok(match (self.scope.collation(), parsed) {
            (Some(_), plain @ (Expression::Constant(_) | Expression::Path(_))) => plain,
            (Some(collation), parsed) => Expression::Collated(collation.clone(), Box::new(parsed)),
            (None, parsed) => parsed,
        })
    }

    /// The variables that expressions may use.
    pub(crate) fn scope(&self) -> &Scope {
        self.scope
    }

    /// The expression `$$ROOT`.
    pub(crate) fn root(&mut self) -> Expression {
        self.reads_document = true;
        Expression::Path(Vec::new())
    }

    fn operator(&mut self, name: &str, operand: RawValue<'_>) -> Result<Expression> {
        let Some(row) = op::find(name) else {
            let text = format!("Unrecognized expression '{name}'");
            return Err(Error::new(ErrorCode::InvalidPipelineOperator, text));
        };
        match row.operands {
            Operands::Own(parse) => parse(self, row, operand),
            Operands::List { least, most, run } => {
                let arguments = self.arguments(operand)?;
                check_arity(row, arguments.len(), least, most)?;
                self.call(row, run, arguments)
            }
            Operands::Searched { run, run_constant } => {
                let arguments = self.arguments(operand)?;
                check_arity(row, arguments.len(), 2, 2)?;
                let items = arguments[1].as_constant().and_then(RawValue::as_array);
                match items.map(|items| ConstantItems::of(items, self.scope.collation().cloned())) {
                    Some(items) => self.ready(row, run_constant, Prepared::Items(items), arguments),
                    None => self.call(row, run, arguments),
                }
            }
        }
    }

    fn path(&mut self, text: &str) -> Result<Expression> {
        let Some(variable) = text.strip_prefix("$$") else {
            let parts = path_parts(&text[1..])?;
            if let Some(place) = self.place("CURRENT") {
                return Ok(Expression::Variable { place, parts });
            }
            if let Some(current) = self.scope.variable("CURRENT") {
                return self.inside(current, parts);
            }
            self.reads_document = true;
            return Ok(Expression::Path(parts));
        };
        let (name, rest) = variable.split_once('.').unwrap_or((variable, ""));
        check_variable_name(name)?;
        let rest = match variable.contains('.') {
            true if rest.is_empty() => {
                let text = "FieldPath must not end with a '.'.";
                return Err(Error::new(ErrorCode(40353), text));
            }
            true => path_parts(rest)?,
            false => Vec::new(),
        };
        if let Some(place) = self.place(name) {
            return Ok(Expression::Variable { place, parts: rest });
        }
        let constant = match name {
            "CURRENT" if self.scope.variable(name).is_some() => self.scope.variable(name),
            "ROOT" | "CURRENT" => {
                self.reads_document = true;
                return Ok(Expression::Path(rest));
            }
            "REMOVE" => return Ok(Expression::Missing),
            "SEARCH_META" if self.scope.has_metadata(SEARCH_META) => {
                return self.search_meta(rest);
            }
            "NOW" => self.scope.now(),
            "CLUSTER_TIME" => self.scope.cluster_time()?,
            // Without access control there are no roles.
            "USER_ROLES" => Some(self.scope.variable(name).unwrap_or_else(|| array(Vec::new()))),
            _ => self.scope.variable(name),
        };
        constant.map_or_else(|| Err(undefined(name)), |constant| self.inside(constant, rest))
    }

    /// A path inside `$$SEARCH_META`, which comes with each document as metadata.
    fn search_meta(&mut self, parts: Vec<String>) -> Result<Expression> {
        self.reads_document = true;
        let whole = metadata(SEARCH_META).ok_or_else(|| undefined("SEARCH_META"))?;
        if parts.is_empty() {
            return Ok(whole);
        }
        let place = self.locals.len();
        let body = Box::new(Expression::Variable { place, parts });
        Ok(Expression::Let { first: place, variables: vec![whole], body })
    }

    /// A path inside a variable of the scope.
    fn inside(&mut self, variable: Expression, parts: Vec<String>) -> Result<Expression> {
        if parts.is_empty() || !is_constant(&variable) {
            return Ok(variable);
        }
        // A path inside a constant is evaluated as a path inside a variable of a `$let`.
        self.fold(Expression::Let {
            first: 0,
            variables: vec![variable],
            body: Box::new(Expression::Variable { place: 0, parts }),
        })
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name)?.last().copied()
    }
}

fn array(items: Vec<Expression>) -> Expression {
    let constant = items.iter().all(is_constant);
    let expression = Expression::Array(items);
    match constant {
        // Evaluating an array of constants cannot fail.
        true => match expression.evaluate(Frame::new(RawDoc::EMPTY)).map(Value::into_owned) {
            Ok(Some(value)) => Expression::Constant(value.into()),
            _ => expression,
        },
        false => expression,
    }
}

/// Refuses a reference to a variable without a name, like `$$` and `$$$`.
///
/// # Errors
/// 9 FailedToParse.
fn check_variable_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::failed_to_parse("empty variable names are not allowed"));
    }
    if name.starts_with('$') {
        let text = format!("'{name}' starts with an invalid character for a user variable name");
        return Err(Error::failed_to_parse(text));
    }
    Ok(())
}

fn undefined(name: &str) -> Error {
    match name {
        "NOW" | "CLUSTER_TIME" => {
            let text = format!("Builtin variable '$${name}' is not available");
            Error::new(ErrorCode(51144), text)
        }
        "SEARCH_META" => {
            let text = "Can't access $$SEARCH_META without a $search stage earlier in the pipeline";
            Error::new(ErrorCode(6_347_902), text)
        }
        _ => Error::new(ErrorCode(17276), format!("Use of undefined variable: {name}")),
    }
}

/// Whether the value is known without a document.
pub(crate) fn is_constant(expression: &Expression) -> bool {
    matches!(expression, Expression::Constant(_) | Expression::Missing | Expression::Absent)
}

pub(crate) fn check_arity(row: &OpRow, given: usize, least: usize, most: usize) -> Result<()> {
    if (least..=most).contains(&given) {
        return Ok(());
    }
    let name = row.name;
    Err(if least == most {
        let text =
            format!("Expression {name} takes exactly {least} arguments. {given} were passed in.");
        Error::new(ErrorCode(16020), text)
    } else {
        let text = format!(
            "Expression {name} takes at least {least} arguments, and at most {most}, but {given} were passed in."
        );
        Error::new(ErrorCode(28667), text)
    })
}

/// Splits a dotted path.
pub(crate) fn path_parts(dotted: &str) -> Result<Vec<String>> {
    if dotted.is_empty() {
        return Err(Error::new(ErrorCode(16872), "'$' by itself is not a valid FieldPath"));
    }
    check_field_path(dotted)?;
    Ok(dotted.split('.').map(str::to_owned).collect())
}
