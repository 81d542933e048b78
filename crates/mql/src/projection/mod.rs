//! Projections of `find` and `$project`: which fields of a document stay.
//!
//! A projection is a tree of field names. An inclusion keeps what the tree names, an exclusion what
//! it does not name; `_id` stays unless it is excluded by name. Both go through arrays, documents
//! inside them included.

mod apply;
mod parse;

use mayfly_base::Result;
use mayfly_value::{DocBuf, DocBuilder, RawDoc};

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
    fields: Vec<(Box<str>, Branch)>,
}

/// What a name leads to.
#[derive(Clone, Debug)]
pub(crate) enum Branch {
    /// The whole field.
    Leaf,
    /// Parts of it.
    Level(Level),
}

impl Level {
    fn find(&self, name: &[u8]) -> Option<&Branch> {
        self.fields.iter().find(|(have, _)| have.as_bytes() == name).map(|(_, branch)| branch)
    }
}

/// A parsed projection.
#[derive(Clone, Debug)]
pub struct Projection {
    mode: Mode,
    root: Level,
    keeps_id: bool,
}

impl Projection {
    /// Parses a specification such as `{a: 1, "b.c": 1, _id: 0}`.
    pub fn parse(spec: RawDoc<'_>, kind: ProjectionKind) -> Result<Projection> {
        parse::parse(spec, kind)
    }

    /// Appends the projected document's fields to a builder.
    pub fn apply(&self, doc: RawDoc<'_>, out: &mut DocBuilder) {
        apply::apply(self, doc, out);
    }

    /// The projected document.
    pub fn project(&self, doc: RawDoc<'_>) -> DocBuf {
        let mut out = DocBuilder::new();
        self.apply(doc, &mut out);
        out.finish()
    }

    /// Whether it keeps every document as it is.
    pub fn is_identity(&self) -> bool {
        self.mode == Mode::Exclude && self.root.fields.is_empty() && self.keeps_id
    }

    /// The dotted paths that an inclusion needs, `_id` first when it stays; nothing for exclusions.
    /// An index that has all of them answers without the document.
    pub fn needed_paths(&self) -> Option<Vec<String>> {
        if self.mode == Mode::Exclude {
            return None;
        }
        let mut paths = Vec::new();
        if self.keeps_id && self.root.find(b"_id").is_none() {
            paths.push("_id".to_owned());
        }
        collect_paths(&self.root, "", &mut paths);
        Some(paths)
    }
}

fn collect_paths(level: &Level, prefix: &str, paths: &mut Vec<String>) {
    for (name, branch) in &level.fields {
        let path = if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
        match branch {
            Branch::Leaf => paths.push(path),
            Branch::Level(inner) => collect_paths(inner, &path, paths),
        }
    }
}

#[cfg(test)]
mod tests;
