//! Conditions on the document as a whole: expressions, scripts, schemas, text searches, samples.

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_expr::javascript::Script;
use mayfly_expr::{Expression, Frame, random_unit};
use mayfly_value::RawDoc;
use mayfly_value::text::Found;

use super::{Expr, Predicate, Schema, TextTest};
use crate::FieldPath;

/// A condition on the document as a whole.
#[derive(Clone, Debug)]
pub enum DocumentTest {
    /// `$expr`.
    Computed(Arc<Computed>),
    /// `$where`.
    Script(Arc<Script>),
    /// `$jsonSchema`.
    Schema(Arc<Schema>),
    /// `$text`.
    Text(Arc<TextTest>),
    /// `$text` of a document that the index found.
    FoundText(Arc<TextTest>),
    /// `$sampleRate`: holds with this probability.
    Sample(f64),
}

/// `$expr`: an expression, and what has to hold wherever it is true.
#[derive(Debug)]
pub struct Computed {
    pub(super) expression: Expression,
    /// Conditions on single fields, which indexes serve.
    pub(super) implied: Vec<(FieldPath, Predicate)>,
}

impl DocumentTest {
    /// Conditions on single fields that have to hold wherever it holds; they do not say all that it says.
    pub fn implied(&self) -> &[(FieldPath, Predicate)] {
        match self {
            DocumentTest::Computed(computed) => &computed.implied,
            DocumentTest::Script(_)
            | DocumentTest::Schema(_)
            | DocumentTest::Text(_)
            | DocumentTest::FoundText(_)
            | DocumentTest::Sample(_) => &[],
        }
    }

    /// Whether it holds.
    ///
    /// # Errors
    /// Those of the expression, of the script, of a pattern in the schema.
    pub fn holds(&self, doc: RawDoc<'_>) -> Result<bool> {
        match self {
            DocumentTest::Computed(computed) => {
                Ok(computed.expression.evaluate(Frame::new(doc))?.is_true())
            }
            DocumentTest::Script(script) => script.holds(doc),
            DocumentTest::Schema(schema) => schema.fits_document(doc),
            DocumentTest::Text(text) => text.holds(doc, Found::Otherwise),
            DocumentTest::FoundText(text) => text.holds(doc, Found::ByIndex),
            DocumentTest::Sample(rate) => Ok(random_unit() < *rate),
        }
    }

    /// The operator.
    pub fn name(&self) -> &'static str {
        match self {
            DocumentTest::Computed(_) => "$expr",
            DocumentTest::Script(_) => "$where",
            DocumentTest::Schema(_) => "$jsonSchema",
            DocumentTest::Text(_) | DocumentTest::FoundText(_) => "$text",
            DocumentTest::Sample(_) => "$sampleRate",
        }
    }
}

/// Whether any part evaluates an expression or a script, or searches texts.
pub(super) fn computes(expr: &Expr) -> bool {
    match expr {
        Expr::And(parts) | Expr::Or(parts) | Expr::Nor(parts) => parts.iter().any(computes),
        Expr::Document(test) => match test {
            DocumentTest::Computed(_) | DocumentTest::Script(_) => true,
            DocumentTest::Text(_) | DocumentTest::FoundText(_) => true,
            DocumentTest::Schema(_) | DocumentTest::Sample(_) => false,
        },
        Expr::Path { .. } | Expr::Always(_) => false,
    }
}
