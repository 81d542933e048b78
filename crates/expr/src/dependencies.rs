//! What an expression reads: the paths of the document that a pipeline must keep for it, and what makes its value more than a
//! function of the document.

use std::collections::BTreeSet;

use crate::Expression;
use crate::op::Prepared;

/// What one or several expressions read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// Dotted paths; one may lie inside another.
    pub paths: BTreeSet<String>,
    /// The document as a whole: the paths do not say everything.
    pub whole_document: bool,
    /// What `$meta` asks for.
    pub metadata: BTreeSet<String>,
    /// Its value differs each time.
    pub random: bool,
}

impl Dependencies {
    /// Adds what an expression reads.
    pub fn add(&mut self, expression: &Expression) {
        match expression {
            Expression::Path(parts) if parts.is_empty() => self.whole_document = true,
            Expression::Path(parts) => {
                self.paths.insert(parts.join("."));
            }
            Expression::Call { row, .. } if row.name == "$rand" => self.random = true,
            // Who knows what it answers.
            Expression::Script(..) => self.random = true,
            Expression::Ready { prepared, .. } => {
                if let Prepared::Name(name) = &**prepared {
                    self.metadata.insert(name.to_string());
                }
            }
            _ => {}
        }
        // As deep as expressions may be nested, which the parser limits.
        for child in expression.children() {
            self.add(child);
        }
    }

    /// Adds what was found elsewhere.
    pub fn extend(&mut self, other: Dependencies) {
        self.paths.extend(other.paths);
        self.metadata.extend(other.metadata);
        self.whole_document |= other.whole_document;
        self.random |= other.random;
    }

    /// Whether it reads nothing of the document.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty() && !self.whole_document && self.metadata.is_empty() && !self.random
    }

    /// Whether it is a function of the fields at the paths, and of nothing else.
    pub fn is_plain(&self) -> bool {
        !self.whole_document && self.metadata.is_empty() && !self.random
    }

    /// Whether a change of the field at this path, or inside it or around it, can change what was read.
    pub fn reads(&self, path: &str) -> bool {
        let inside = |outer: &str, inner: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.whole_document
            || self.paths.iter().any(|have| inside(have, path) || inside(path, have))
    }
}

impl Expression {
    /// What it reads.
    pub fn dependencies(&self) -> Dependencies {
        let mut found = Dependencies::default();
        found.add(self);
        found
    }
}
