//! Conditions on the whole document: expressions, scripts, schemas, text searches, samples.

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_expr::{Dependencies, Expression, Frame, random_unit};
use mayfly_scripts::Script;
use mayfly_text::FoundBy;
use mayfly_value::{DocBuilder, RawDoc, RawValue, ValueBuf};

use super::{Expr, OriginalOperator, Predicate, Schema, TextTest};
use crate::FieldPath;

/// A condition on the whole document.
#[derive(Clone, Debug)]
pub enum DocumentTest {
    /// `$expr`: an aggregation expression.
    Computed(Arc<Computed>),
    /// `$where`: a script with its source.
    Script(Arc<Script>, Box<str>),
    /// `$jsonSchema`: a schema.
    Schema(Arc<Schema>, OriginalOperator),
    /// `$text`: a text search.
    Text(Arc<TextTest>),
    /// `$text` for a document that the index found.
    FoundText(Arc<TextTest>),
    /// `$sampleRate`: true with this probability.
    Sample(f64),
}

/// `$expr`: an expression, and the predicates that it implies.
#[derive(Debug)]
pub struct Computed {
    pub(super) expression: Expression,
    /// Implied predicates on single fields, which indexes can serve.
    pub(super) implied: Vec<(FieldPath, Predicate)>,
    /// The original operand.
    pub(super) written: ValueBuf,
}

impl Computed {
    /// The original expression.
    pub fn written(&self) -> RawValue<'_> {
        self.written.as_raw()
    }
}

impl DocumentTest {
    /// Predicates on single fields that are true whenever it is; they do not imply it.
    pub fn implied(&self) -> &[(FieldPath, Predicate)] {
        match self {
            DocumentTest::Computed(computed) => &computed.implied,
            DocumentTest::Script(..)
            | DocumentTest::Schema(..)
            | DocumentTest::Text(_)
            | DocumentTest::FoundText(_)
            | DocumentTest::Sample(_) => &[],
        }
    }

    /// Evaluates the condition.
    ///
    /// # Errors
    /// Errors of the expression, of the script, or of a regular expression in the schema.
    pub fn holds(&self, doc: RawDoc<'_>) -> Result<bool> {
        match self {
            DocumentTest::Computed(computed) => {
                Ok(computed.expression.evaluate(Frame::new(doc))?.is_true())
            }
            DocumentTest::Script(script, _) => script.holds(doc),
            DocumentTest::Schema(schema, _) => schema.fits_document(doc),
            DocumentTest::Text(text) => text.holds(doc, FoundBy::Otherwise),
            DocumentTest::FoundText(text) => text.holds(doc, FoundBy::ByIndex),
            DocumentTest::Sample(rate) => Ok(random_unit() < *rate),
        }
    }

    /// Appends the operator with its operand.
    pub(super) fn append_to(&self, out: &mut DocBuilder) {
        match self {
            DocumentTest::Computed(computed) => {
                out.append(self.name(), &computed.written);
            }
            DocumentTest::Script(_, source) => {
                out.append(self.name(), RawValue::Code(source));
            }
            DocumentTest::Schema(_, written) => {
                out.append(self.name(), written.as_doc());
            }
            DocumentTest::Text(text) | DocumentTest::FoundText(text) => {
                text.append_to(out.start_document(self.name()));
                out.end();
            }
            DocumentTest::Sample(rate) => {
                out.append(self.name(), *rate);
            }
        }
    }

    /// The inputs of an `$expr`; `None` for other conditions.
    pub fn reads(&self) -> Option<Dependencies> {
        match self {
            DocumentTest::Computed(computed) => Some(computed.expression.dependencies()),
            DocumentTest::Script(..)
            | DocumentTest::Schema(..)
            | DocumentTest::Text(_)
            | DocumentTest::FoundText(_)
            | DocumentTest::Sample(_) => None,
        }
    }

    /// The operator's name.
    pub fn name(&self) -> &'static str {
        match self {
            DocumentTest::Computed(_) => "$expr",
            DocumentTest::Script(..) => "$where",
            DocumentTest::Schema(..) => "$jsonSchema",
            DocumentTest::Text(_) | DocumentTest::FoundText(_) => "$text",
            DocumentTest::Sample(_) => "$sampleRate",
        }
    }
}

/// Whether any part is an `$expr`.
pub(super) fn has_expression(expr: &Expr) -> bool {
    match expr {
        Expr::And(parts) | Expr::Or(parts) | Expr::Nor(parts) => parts.iter().any(has_expression),
        Expr::Document(test) => matches!(test, DocumentTest::Computed(_)),
        Expr::Path { .. } | Expr::Always(_) => false,
    }
}

/// Whether any part evaluates an expression or a script, or searches text.
pub(super) fn computes(expr: &Expr) -> bool {
    match expr {
        Expr::And(parts) | Expr::Or(parts) | Expr::Nor(parts) => parts.iter().any(computes),
        Expr::Document(test) => match test {
            DocumentTest::Computed(_) | DocumentTest::Script(..) => true,
            DocumentTest::Text(_) | DocumentTest::FoundText(_) => true,
            DocumentTest::Schema(..) | DocumentTest::Sample(_) => false,
        },
        Expr::Path { .. } | Expr::Always(_) => false,
    }
}
