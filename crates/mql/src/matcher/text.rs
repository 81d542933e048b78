//! The `$text` operator. Its meaning depends on the collection's text index, so the planner binds
//! it to an index ([`TextTest::bind`]); after that it can be evaluated for any document.

use std::sync::{Arc, PoisonError, RwLock};

use mayfly_base::{Error, Result};
use mayfly_text::{FoundBy, SearchOptions, TextSearch, TextSpec};
use mayfly_value::{DocBuilder, RawDoc};

use super::{DocumentTest, Expr};

/// A `$text` operator, possibly bound to an index.
#[derive(Debug)]
pub struct TextTest {
    options: SearchOptions,
    bound: RwLock<Option<Arc<BoundSearch>>>,
}

/// A search with the specification of its index.
#[derive(Debug)]
pub struct BoundSearch {
    /// The specification of the index.
    pub spec: Arc<TextSpec>,
    /// The parsed search.
    pub search: TextSearch,
}

impl TextTest {
    pub(super) fn new(options: SearchOptions) -> TextTest {
        TextTest { options, bound: RwLock::new(None) }
    }

    /// Appends the operand.
    pub(super) fn append_to(&self, out: &mut DocBuilder) {
        let SearchOptions { search, language, sensitivity } = &self.options;
        out.append("$search", search.as_str());
        if let Some(language) = language {
            out.append("$language", language.as_str());
        }
        if sensitivity.case {
            out.append("$caseSensitive", true);
        }
        if sensitivity.diacritics {
            out.append("$diacriticSensitive", true);
        }
    }

    /// Binds the search to an index.
    ///
    /// # Errors
    /// 2 BadValue for an unknown language.
    pub fn bind(&self, spec: &Arc<TextSpec>) -> Result<Arc<BoundSearch>> {
        let search = TextSearch::parse(&self.options, spec)?;
        let bound = Arc::new(BoundSearch { spec: spec.clone(), search });
        *self.bound.write().unwrap_or_else(PoisonError::into_inner) = Some(bound.clone());
        Ok(bound)
    }

    /// The bound search.
    ///
    /// # Errors
    /// 1 InternalError while it is not bound.
    pub fn bound(&self) -> Result<Arc<BoundSearch>> {
        let bound = self.bound.read().unwrap_or_else(PoisonError::into_inner).clone();
        bound.ok_or_else(|| Error::internal("a text search without an index"))
    }

    /// Whether a document matches.
    ///
    /// # Errors
    /// Errors of the document's languages.
    pub(super) fn holds(&self, document: RawDoc<'_>, found: FoundBy) -> Result<bool> {
        let bound = self.bound()?;
        bound.search.matches(document, &bound.spec, found)
    }
}

/// The `$text` operator of a filter.
///
/// # Errors
/// 2 BadValue for more than one, and for one in a `$nor`.
pub(super) fn only_text(root: &Expr) -> Result<Option<Arc<TextTest>>> {
    let mut found = Vec::new();
    collect(root, false, &mut found)?;
    match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => Err(Error::bad_value("Too many text expressions")),
    }
}

fn collect(expr: &Expr, in_nor: bool, found: &mut Vec<Arc<TextTest>>) -> Result<()> {
    match expr {
        Expr::And(parts) | Expr::Or(parts) => {
            parts.iter().try_for_each(|part| collect(part, in_nor, found))
        }
        Expr::Nor(parts) => parts.iter().try_for_each(|part| collect(part, true, found)),
        Expr::Document(DocumentTest::Text(_)) if in_nor => {
            Err(Error::bad_value("text expression not allowed in nor"))
        }
        Expr::Document(DocumentTest::Text(text)) => {
            found.push(text.clone());
            Ok(())
        }
        Expr::Document(_) | Expr::Path { .. } | Expr::Always(_) => Ok(()),
    }
}

/// Whether every matching document satisfies the `$text` operator.
pub(super) fn is_required(expr: &Expr) -> bool {
    match expr {
        Expr::And(parts) => parts.iter().any(is_required),
        Expr::Document(test) => matches!(test, DocumentTest::Text(_)),
        Expr::Or(_) | Expr::Nor(_) | Expr::Path { .. } | Expr::Always(_) => false,
    }
}

/// The filter for documents that the text index found.
pub(super) fn for_found(expr: &Expr) -> Expr {
    match expr {
        Expr::And(parts) => Expr::And(parts.iter().map(for_found).collect()),
        Expr::Document(DocumentTest::Text(text)) => {
            Expr::Document(DocumentTest::FoundText(text.clone()))
        }
        other => other.clone(),
    }
}
