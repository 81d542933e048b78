//! `$set` (`$addFields`) of a pipeline: sets fields to the values of expressions and keeps all
//! others.
//!
//! All expressions are evaluated on the original document. A path applies to all documents of an
//! array; a scalar on the path is replaced by a document. A field whose expression is missing is
//! removed.

use mayfly_base::limits::{MAX_BSON_DEPTH, MAX_FILTER_DEPTH};
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::{Expression, FEW_EXPRESSIONS, Frame, Scope};
use mayfly_value::paths::{check_field_path, empty_name};
use mayfly_value::shell::Shell;
use mayfly_value::{
    DocBuf, DocBuilder, Finder, Names, RawDoc, RawValue, ValueBuf, check_depth, ty,
};

/// A parsed specification: a tree of names.
#[derive(Debug)]
pub(super) struct SetFields {
    root: Level,
    expressions: Vec<Expression>,
}

/// Names in the order of the specification.
#[derive(Debug, Default)]
struct Level(Names<Branch>);

#[derive(Debug)]
enum Branch {
    /// The index of the expression.
    Leaf(usize),
    Level(Level),
}

/// The context of a field of the specification.
struct FieldContext<'a> {
    spec: RawDoc<'a>,
    scope: &'a Scope,
    depth: usize,
}

impl SetFields {
    pub(super) fn parse(spec: RawDoc<'_>, scope: &Scope) -> Result<SetFields> {
        if spec.is_empty() {
            let text = "specification must have at least one field";
            return Err(Error::new(ErrorCode(40177), text));
        }
        let mut fields = SetFields { root: Level::default(), expressions: Vec::new() };
        for element in spec.iter() {
            fields.field(
                element.name(),
                element.value(),
                &FieldContext { spec, scope, depth: 0 },
            )?;
        }
        Ok(fields)
    }

    fn field(&mut self, path: &str, value: RawValue<'_>, context: &FieldContext<'_>) -> Result<()> {
        check_path(path, context.depth)?;
        let nested = match value {
            RawValue::Document(inner) if inner.is_empty() => None,
            RawValue::Document(inner) => {
                let is_expression = inner.iter().any(|e| e.name_bytes().starts_with(b"$"));
                if is_expression && inner.iter().nth(1).is_some() {
                    return Err(more_than_an_operator(inner, context.spec));
                }
                (!is_expression).then_some(inner)
            }
            _ => None,
        };
        let Some(inner) = nested else {
            let expression = Expression::parse_in(value, context.scope)?;
            self.expressions.push(expression);
            return insert(&mut self.root, path, self.expressions.len() - 1, context.spec);
        };
        for element in inner.iter() {
            let name = element.name();
            if name.contains('.') {
                let text = format!(
                    "cannot use dotted field name '{name}' in a sub object: {}",
                    Shell(inner)
                );
                return Err(Error::new(ErrorCode(40183), text));
            }
            let inner = FieldContext { depth: context.depth + 1, ..*context };
            self.field(&format!("{path}.{name}"), element.value(), &inner)?;
        }
        Ok(())
    }

    /// The dotted paths with their expressions.
    pub(super) fn paths(&self) -> Vec<(String, &Expression)> {
        let mut out = Vec::new();
        self.collect(&self.root, "", &mut out);
        out
    }

    fn collect<'s>(&'s self, level: &Level, prefix: &str, out: &mut Vec<(String, &'s Expression)>) {
        for (name, branch) in level.0.as_slice() {
            let path =
                if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
            match branch {
                Branch::Leaf(at) => {
                    out.extend(self.expressions.get(*at).map(|value| (path, value)))
                }
                Branch::Level(inner) => self.collect(inner, &path, out),
            }
        }
    }

    pub(super) fn apply<'a>(&'a self, frame: Frame<'a>) -> Result<DocBuf> {
        let doc = frame.root();
        let finder = (self.expressions.len() > FEW_EXPRESSIONS).then(|| Finder::new(doc));
        let frame = frame.finding_by(finder.as_ref());
        let value = |expression: &Expression| -> Result<Option<ValueBuf>> {
            let value = expression.evaluate(frame)?;
            Ok(value.as_raw().map(RawValue::to_owned))
        };
        let values: Vec<Option<ValueBuf>> =
            self.expressions.iter().map(value).collect::<Result<_>>()?;
        let mut out = DocBuilder::in_buffer(Vec::with_capacity(doc.as_bytes().len() + 64));
        write_level(&self.root, doc, &values, &mut out, 0)?;
        let made = out.finish();
        let levels = |value: &ValueBuf| matches!(value.type_byte(), ty::DOCUMENT | ty::ARRAY);
        if values.iter().flatten().any(levels) {
            check_depth(made.as_doc())?;
        }
        Ok(made)
    }
}

/// The error of a document with an operator and other fields.
fn more_than_an_operator(inner: RawDoc<'_>, spec: RawDoc<'_>) -> Error {
    let text = format!(
        "an expression specification must contain exactly one field, the name of the expression. \
         Found {} fields in {}, while parsing object {}",
        inner.iter().count(),
        Shell(inner),
        Shell(spec)
    );
    Error::new(ErrorCode(40181), text)
}

fn check_path(path: &str, depth: usize) -> Result<()> {
    if depth > MAX_FILTER_DEPTH {
        return Err(Error::new(ErrorCode::Overflow, "FieldPath is too long"));
    }
    if depth > 0 && path.ends_with('.') {
        // The name of a nested field is empty.
        return Err(empty_name());
    }
    check_field_path(path)
}

fn insert(root: &mut Level, path: &str, expression: usize, spec: RawDoc<'_>) -> Result<()> {
    let mut level = root;
    let mut end = 0;
    loop {
        let rest = &path[end..];
        let name = rest.split('.').next().unwrap_or(rest);
        end += name.len() + 1;
        let is_last = end > path.len();
        let at = match level.0.position(name) {
            Some(at) => at,
            None if is_last => {
                level.0.push(name, Branch::Leaf(expression));
                return Ok(());
            }
            None => level.0.push(name, Branch::Level(Level::default())),
        };
        match level.0.value_mut(at) {
            Branch::Level(inner) if !is_last => level = inner,
            Branch::Level(_) | Branch::Leaf(_) => {
                let other = &path[..(end - 1).min(path.len())];
                let text = format!(
                    "specification contains two conflicting paths. Cannot specify both '{path}' and \
                     '{other}': {}",
                    Shell(spec)
                );
                return Err(Error::new(ErrorCode(40176), text));
            }
        }
    }
}

fn write_level(
    level: &Level,
    doc: RawDoc<'_>,
    values: &[Option<ValueBuf>],
    out: &mut DocBuilder,
    depth: usize,
) -> Result<()> {
    if depth > MAX_BSON_DEPTH {
        let text = format!("Document exceeds maximum nesting depth of {MAX_BSON_DEPTH}");
        return Err(Error::new(ErrorCode::Overflow, text));
    }
    let branches = level.0.as_slice();
    let mut there = vec![false; branches.len()];
    for element in doc.iter() {
        let name = element.name();
        match level.0.position(name) {
            None => drop(out.append_element(element)),
            Some(at) => {
                there[at] = true;
                let current = Some(element.value());
                write_branch(&branches[at].1, current, name, values, out, depth)?;
            }
        }
    }
    for ((name, branch), there) in branches.iter().zip(there) {
        if !there {
            write_branch(branch, None, name, values, out, depth)?;
        }
    }
    Ok(())
}

fn write_branch(
    branch: &Branch,
    current: Option<RawValue<'_>>,
    name: &str,
    values: &[Option<ValueBuf>],
    out: &mut DocBuilder,
    depth: usize,
) -> Result<()> {
    let level = match branch {
        Branch::Leaf(at) => {
            if let Some(Some(value)) = values.get(*at) {
                out.append(name, value);
            }
            return Ok(());
        }
        Branch::Level(level) => level,
    };
    match current {
        Some(RawValue::Array(items)) => {
            out.start_array(name);
            write_items(level, items, values, out, depth + 1)?;
        }
        Some(RawValue::Document(doc)) => {
            out.start_document(name);
            write_level(level, doc, values, out, depth + 1)?;
        }
        _ => {
            out.start_document(name);
            write_level(level, RawDoc::EMPTY, values, out, depth + 1)?;
        }
    }
    out.end();
    Ok(())
}

fn write_items(
    level: &Level,
    items: RawDoc<'_>,
    values: &[Option<ValueBuf>],
    out: &mut DocBuilder,
    depth: usize,
) -> Result<()> {
    if depth > MAX_BSON_DEPTH {
        let text = format!("Document exceeds maximum nesting depth of {MAX_BSON_DEPTH}");
        return Err(Error::new(ErrorCode::Overflow, text));
    }
    for item in items.iter() {
        match item.value() {
            RawValue::Array(inner) => {
                out.push_array();
                write_items(level, inner, values, out, depth + 1)?;
            }
            value => {
                out.push_document();
                let doc = value.as_document().unwrap_or(RawDoc::EMPTY);
                write_level(level, doc, values, out, depth + 1)?;
            }
        }
        out.end();
    }
    Ok(())
}
