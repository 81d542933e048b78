//! Projections of `find` and `$project`: the fields to keep, and computed fields.
//!
//! A projection is a tree of field names. An inclusion keeps the named fields, an exclusion all
//! others; `_id` is kept unless it is excluded by name. Both apply to documents inside arrays.
//! Computed fields (expressions, literals, `$elemMatch`) are appended after the kept ones, in the
//! order of the specification.

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

/// The kind of projection; the two differ in small rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectionKind {
    /// `find`, `findAndModify`: an empty projection keeps everything.
    Find,
    /// `$project`: an empty specification is an error.
    Stage,
}

/// The treatment of the named fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They are kept.
    Include,
    /// They are dropped.
    Exclude,
}

/// A level of the tree: names in the order of the specification.
#[derive(Clone, Debug, Default)]
pub(crate) struct Level {
    fields: Names<Branch>,
    /// It contains computed fields, here or below.
    makes: bool,
    /// It contains the positional `$`, here or below.
    positional: bool,
}

/// The treatment of a field.
#[derive(Clone, Debug)]
pub(crate) enum Branch {
    /// The whole field.
    Leaf,
    /// Parts of it.
    Level(Level),
    /// The field, with a slice of its array.
    Slice(Slice),
    /// The field, with only the matched item of the first array on its path.
    Positional,
    /// A computed field.
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
    /// Number of computed fields.
    made: usize,
}

impl Projection {
    /// Parses a specification such as `{a: 1, "b.c": 1, _id: 0}`.
    ///
    /// # Errors
    /// Errors of [`Projection::parse_in`].
    pub fn parse(spec: RawDoc<'_>, kind: ProjectionKind) -> Result<Projection> {
        Projection::parse_in(spec, kind, &Scope::default())
    }

    /// The same with variables of a command for expressions.
    ///
    /// # Errors
    /// 31249 and 31250 for conflicting paths, 31252 to 31254 and 31310 for mixing inclusion and
    /// exclusion, errors of paths, operators and expressions.
    pub fn parse_in(spec: RawDoc<'_>, kind: ProjectionKind, scope: &Scope) -> Result<Projection> {
        parse::parse(spec, kind, scope)
    }

    /// Projects a document.
    ///
    /// # Errors
    /// Errors of expressions.
    pub fn project<'a>(&'a self, doc: impl Into<Frame<'a>>) -> Result<DocBuf> {
        let mut out = DocBuilder::new();
        let adds_levels = apply::apply(self, doc.into(), None, &mut out)?;
        checked(out, adds_levels)
    }

    /// Projects a document that satisfies a filter, which determines the positional `$`.
    ///
    /// # Errors
    /// Errors of expressions; 51246 and 51247 when the filter matched no item of the array.
    pub fn project_found<'a>(
        &'a self,
        doc: impl Into<Frame<'a>>,
        filter: &'a Matcher,
    ) -> Result<DocBuf> {
        let mut out = DocBuilder::new();
        let adds_levels = apply::apply(self, doc.into(), Some(filter), &mut out)?;
        checked(out, adds_levels)
    }

    /// Whether an expression reads the metadata with this name in `$meta`.
    pub fn asks_for(&self, name: &str) -> bool {
        asks_for(&self.root, name)
    }

    /// The names of fields of the outermost level that are this metadata.
    pub fn fields_of(&self, name: &str) -> Vec<&str> {
        let is_of = |branch: &Branch| match branch {
            Branch::Expression(expression) => expression.dependencies().metadata.contains(name),
            _ => false,
        };
        let fields = self.root.fields.as_slice().iter();
        fields.filter(|(_, branch)| is_of(branch)).map(|(field, _)| &**field).collect()
    }

    /// Whether it contains the positional `$`.
    pub fn is_positional(&self) -> bool {
        self.root.positional
    }

    /// Whether it returns every document unchanged.
    pub fn is_identity(&self) -> bool {
        self.mode == Mode::Exclude && self.root.fields.as_slice().is_empty() && self.keeps_id
    }

    /// The dotted paths that an inclusion reads, `_id` first if it is kept; `None` for exclusions
    /// and with computed fields. An index with all of them covers the projection.
    pub fn needed_paths(&self) -> Option<Vec<String>> {
        if self.mode == Mode::Exclude || self.root.makes || self.root.positional {
            return None;
        }
        let mut paths = Vec::new();
        self.visit_needed_paths(&mut |path| paths.push(path.to_owned()));
        Some(paths)
    }

    /// Visits the same paths; none in the other cases.
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

/// The effect of a pipeline's projection on fields.
#[derive(Clone, Debug)]
pub enum ProjectedFields<'p> {
    /// The fields at these paths are dropped.
    Without(Vec<String>),
    /// All other fields are dropped.
    Only {
        /// Top-level fields kept unchanged.
        kept: Vec<&'p str>,
        /// All paths that are at least partly kept.
        paths: Vec<String>,
        /// Dotted paths of computed fields, with their expressions.
        made: Vec<(String, &'p Expression)>,
    },
}

impl Projection {
    /// The effect on fields.
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
