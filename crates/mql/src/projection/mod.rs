//! Projections of `find` and `$project`: which fields of a document stay, and which are made.
//!
//! A projection is a tree of field names. An inclusion keeps what the tree names, an exclusion what it does not name; `_id`
//! stays unless it is excluded by name. Both go through arrays, documents inside them included. What is made (expressions,
//! literals, `$elemMatch`) stands behind what stays, in the order of the specification.

mod apply;
mod computed;
mod parse;
pub mod row;
mod slice;

use std::borrow::Cow;

use mayfly_base::Result;
use mayfly_expr::{Expression, Frame, Scope};
use mayfly_value::{DocBuf, DocBuilder, Names, RawDoc, check_depth};

use crate::Matcher;
use computed::ElementMatch;
use slice::Slice;

/// Where the projection stands; the two differ in small rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectionKind {
    /// `find`, `findAndModify`: an empty projection keeps everything.
    Find,
    /// `$project`: an empty specification is an error.
    Stage,
}

/// What is done with the fields that the tree names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They stay.
    Include,
    /// They go.
    Exclude,
}

/// A level of the tree: names in the order of the specification.
#[derive(Clone, Debug, Default)]
pub(crate) struct Level {
    fields: Names<Branch>,
    /// Something in it or below is made and may be new.
    makes: bool,
    /// The positional `$` is in it or below.
    positional: bool,
}

/// What a name leads to.
#[derive(Clone, Debug)]
pub(crate) enum Branch {
    /// The whole field.
    Leaf,
    /// Parts of it.
    Level(Level),
    /// The field; of an array a part.
    Slice(Slice),
    /// The field; of the first array on its path the item that the filter found.
    Positional,
    /// A field of this name is made.
    Expression(Expression),
    /// The first item of the array that satisfies a condition.
    ElemMatch(ElementMatch),
}

impl Level {
    fn find(&self, name: &[u8]) -> Option<&Branch> {
        self.fields.find(name)
    }
}

/// A parsed projection.
#[derive(Clone, Debug)]
pub struct Projection {
    mode: Mode,
    root: Level,
    keeps_id: bool,
    /// How many fields are made.
    made: usize,
}

impl Projection {
    /// Parses a specification such as `{a: 1, "b.c": 1, _id: 0}`.
    ///
    /// # Errors
    /// Those of [`Projection::parse_in`].
    pub fn parse(spec: RawDoc<'_>, kind: ProjectionKind) -> Result<Projection> {
        Projection::parse_in(spec, kind, &Scope::default())
    }

    /// The same where expressions may name the variables of a command.
    ///
    /// # Errors
    /// 31249 and 31250 for paths that collide, 31252 to 31254 and 31310 for mixtures, those of paths, operators and
    /// expressions.
    pub fn parse_in(spec: RawDoc<'_>, kind: ProjectionKind, scope: &Scope) -> Result<Projection> {
        parse::parse(spec, kind, scope)
    }

    /// The projected document.
    ///
    /// # Errors
    /// Those of expressions.
    pub fn project<'a>(&'a self, doc: impl Into<Frame<'a>>) -> Result<DocBuf> {
        let mut out = DocBuilder::new();
        let adds_levels = apply::apply(self, doc.into(), None, &mut out)?;
        checked(out, adds_levels)
    }

    /// The projected document, for one that a filter found: its positional `$` is known.
    ///
    /// # Errors
    /// Those of expressions; 51246 and 51247 when the filter found no item of the array.
    pub fn project_found<'a>(
        &'a self,
        doc: impl Into<Frame<'a>>,
        filter: &'a Matcher,
    ) -> Result<DocBuf> {
        let mut out = DocBuilder::new();
        let adds_levels = apply::apply(self, doc.into(), Some(filter), &mut out)?;
        checked(out, adds_levels)
    }

    /// Whether an expression in it asks for this metadata, by the name that `$meta` uses.
    pub fn asks_for(&self, name: &str) -> bool {
        asks_for(&self.root, name)
    }

    /// Whether it keeps every document as it is.
    pub fn is_identity(&self) -> bool {
        self.mode == Mode::Exclude && self.root.fields.as_slice().is_empty() && self.keeps_id
    }

    /// The dotted paths that an inclusion needs, `_id` first when it stays; nothing for exclusions and for what makes fields.
    /// An index that has all of them answers without the document.
    pub fn needed_paths(&self) -> Option<Vec<String>> {
        if self.mode == Mode::Exclude || self.root.makes || self.root.positional {
            return None;
        }
        let mut paths = Vec::new();
        self.visit_needed_paths(&mut |path| paths.push(path.to_owned()));
        Some(paths)
    }

    /// Shows those paths, none where there are no such.
    pub fn visit_needed_paths(&self, visit: &mut dyn FnMut(&str)) {
        if self.mode == Mode::Exclude || self.root.makes || self.root.positional {
            return;
        }
        if self.keeps_id && self.root.find(b"_id").is_none() {
            visit("_id");
        }
        visit_paths(&self.root, "", visit);
    }
}

fn checked(out: DocBuilder, adds_levels: bool) -> Result<DocBuf> {
    let projected = out.finish();
    if adds_levels {
        check_depth(projected.as_doc())?;
    }
    Ok(projected)
}

/// What a projection of a pipeline does to fields.
#[derive(Clone, Debug)]
pub enum ProjectedFields<'p> {
    /// Those at these paths go.
    Without(Vec<String>),
    /// No others stay.
    Only {
        /// Fields at the top that stay as they are.
        kept: Vec<&'p str>,
        /// All paths that something stays of.
        paths: Vec<String>,
        /// Dotted paths that are made, and how.
        made: Vec<(String, &'p Expression)>,
    },
}

impl Projection {
    /// What it does to fields.
    pub fn fields(&self) -> ProjectedFields<'_> {
        let mut paths = Vec::new();
        if self.mode == Mode::Exclude {
            if !self.keeps_id && self.root.find(b"_id").is_none() {
                paths.push("_id".to_owned());
            }
            collect_paths(&self.root, "", &mut paths);
            return ProjectedFields::Without(paths);
        }
        let mut kept = Vec::new();
        if self.keeps_id && self.root.find(b"_id").is_none() {
            kept.push("_id");
            paths.push("_id".to_owned());
        }
        for (name, branch) in self.root.fields.as_slice() {
            if matches!(branch, Branch::Leaf) {
                kept.push(name);
            }
        }
        collect_paths(&self.root, "", &mut paths);
        let mut made = Vec::new();
        collect_made(&self.root, "", &mut made);
        ProjectedFields::Only { kept, paths, made }
    }
}

fn collect_made<'p>(level: &'p Level, prefix: &str, made: &mut Vec<(String, &'p Expression)>) {
    for (name, branch) in level.fields.as_slice() {
        let path = if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
        match branch {
            Branch::Expression(expression) => made.push((path, expression)),
            Branch::Level(inner) => collect_made(inner, &path, made),
            Branch::Leaf | Branch::Slice(_) | Branch::Positional | Branch::ElemMatch(_) => {}
        }
    }
}

fn asks_for(level: &Level, name: &str) -> bool {
    level.fields.as_slice().iter().any(|(_, branch)| match branch {
        Branch::Expression(expression) => expression.dependencies().metadata.contains(name),
        Branch::Level(inner) => asks_for(inner, name),
        Branch::Leaf | Branch::Slice(_) | Branch::Positional | Branch::ElemMatch(_) => false,
    })
}

fn collect_paths(level: &Level, prefix: &str, paths: &mut Vec<String>) {
    visit_paths(level, prefix, &mut |path| paths.push(path.to_owned()));
}

fn visit_paths(level: &Level, prefix: &str, visit: &mut dyn FnMut(&str)) {
    for (name, branch) in level.fields.as_slice() {
        let path = match prefix {
            "" => Cow::Borrowed(&**name),
            prefix => Cow::Owned(format!("{prefix}.{name}")),
        };
        match branch {
            Branch::Leaf | Branch::Slice(_) | Branch::Positional => visit(&path),
            Branch::Level(inner) => visit_paths(inner, &path, visit),
            Branch::Expression(_) | Branch::ElemMatch(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
