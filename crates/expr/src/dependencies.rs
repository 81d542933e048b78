//! Dependency analysis: the paths that an expression reads, which a pipeline must keep for it, and
//! other inputs of its value.

use std::collections::BTreeSet;

use crate::Expression;
use crate::op::Prepared;

/// The inputs of one or several expressions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// Dotted paths; one may be inside another.
    pub paths: BTreeSet<String>,
    /// The whole document is read: the paths are incomplete.
    pub whole_document: bool,
    /// The metadata that `$meta` reads.
    pub metadata: BTreeSet<String>,
    /// The value is not deterministic.
    pub random: bool,
}

impl Dependencies {
    /// Adds the inputs of an expression.
    pub fn add(&mut self, expression: &Expression) {
        match expression {
            Expression::Path(parts) if parts.is_empty() => self.whole_document = true,
            Expression::Path(parts) => {
                self.paths.insert(parts.join("."));
            }
            Expression::Call { row, .. } if matches!(row.name, "$rand" | "$currentDate") => {
                self.random = true;
            }
            // The result of a script is not predictable.
            Expression::Script(..) => self.random = true,
            Expression::Ready { prepared, .. } => {
                if let Prepared::Name(name) = &**prepared {
                    self.metadata.insert(name.to_string());
                }
            }
            _ => {}
        }
        // The recursion is bounded by the parser's limit of nesting.
        for child in expression.children() {
            self.add(child);
        }
    }

    /// Adds other inputs.
    pub fn extend(&mut self, other: Dependencies) {
        self.paths.extend(other.paths);
        self.metadata.extend(other.metadata);
        self.whole_document |= other.whole_document;
        self.random |= other.random;
    }

    /// Whether there are no inputs.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty() && !self.whole_document && self.metadata.is_empty() && !self.random
    }

    /// Whether the value is a function of the fields at the paths only.
    pub fn is_plain(&self) -> bool {
        !self.whole_document && self.metadata.is_empty() && !self.random
    }

    /// Whether a change of the field at this path, inside it or around it, can change the value.
    pub fn reads(&self, path: &str) -> bool {
        let inside = |outer: &str, inner: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.whole_document
            || self.paths.iter().any(|have| inside(have, path) || inside(path, have))
    }
}

impl Expression {
    /// The inputs of the expression.
    pub fn dependencies(&self) -> Dependencies {
        let mut found = Dependencies::default();
        found.add(self);
        found
    }
}
