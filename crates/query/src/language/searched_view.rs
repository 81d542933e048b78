//! The documents that a view shows which search indexes can be on. Manual: "Use Views with MongoDB
//! Search".
//!
//! The files of such an index contain each document as the view shows it, and are changed only when
//! the document itself has changed. What the view makes of a document must therefore depend on this
//! document only. Stages other than `$match` with `$expr`, `$set` and `$addFields` are refused, and
//! so are times, random values, scripts, metadata and the roles of the user. The rows of stages say
//! which stages are possible (`pipeline/searched_view.rs`).

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::{Dependencies, Expression, Frame, Scope};
use mayfly_mql::Matcher;
use mayfly_mql::update::pipeline::{DocumentChange, DocumentStage};
use mayfly_pattern::UnfinishedSearch;
use mayfly_value::{Collation, DocBuf, RawDoc, RawValue};
use mayfly_work::current::spend;

/// The stages of a view that search indexes can be on.
#[derive(Clone, Debug)]
pub struct SearchedView {
    pub(crate) stages: Arc<[ViewStage]>,
    pub(crate) collation: Option<Arc<Collation>>,
}

/// A stage of such a view.
#[derive(Debug)]
pub(crate) enum ViewStage {
    /// Shows the documents that satisfy a condition.
    Condition(Matcher),
    /// Sets fields.
    Fields(DocumentStage),
}

/// Parses the operand of a stage with this name.
pub(crate) type ParseViewStage = fn(&str, RawValue<'_>, &Scope) -> Result<ViewStage>;

impl SearchedView {
    /// The document as the view shows it; `None` if it does not show it. An expression that fails
    /// for a document makes a read of the view fail, so the document is not shown.
    ///
    /// # Errors
    /// The end of the operation, and of the limits of a regular expression, which decides nothing.
    pub fn show(&self, document: RawDoc<'_>) -> Result<Option<DocBuf>> {
        match self.try_show(document) {
            Err(error) if error.code() == UnfinishedSearch::CODE => Err(error),
            Err(_) => spend(usize::MAX).map(|()| None),
            shown => shown,
        }
    }

    /// The document as a search index on the view contains it; `None` if it does not contain it. A
    /// regular expression that does not end within its limits counts as one that fails: the write
    /// was accepted before, and another attempt would end in the same way.
    ///
    /// # Errors
    /// The end of the operation.
    pub fn indexed(&self, document: RawDoc<'_>) -> Result<Option<DocBuf>> {
        match self.show(document) {
            Err(error) if error.code() == UnfinishedSearch::CODE => Ok(None),
            shown => shown,
        }
    }

    fn try_show(&self, document: RawDoc<'_>) -> Result<Option<DocBuf>> {
        let mut shown = document.to_owned();
        for stage in &*self.stages {
            match stage {
                ViewStage::Condition(matcher) if !matcher.matches(shown.as_doc())? => {
                    return Ok(None);
                }
                ViewStage::Condition(_) => {}
                ViewStage::Fields(stage) => {
                    let frame = Frame::new(shown.as_doc()).collated(self.collation.as_deref());
                    shown = stage.run(frame)?;
                }
            }
        }
        Ok(Some(shown))
    }
}

impl ViewStage {
    /// Parses a filter, which may only have `$expr`.
    ///
    /// # Errors
    /// 67 CannotCreateIndex.
    pub(crate) fn condition(name: &str, operand: RawValue<'_>, scope: &Scope) -> Result<ViewStage> {
        let filter = operand.as_document().unwrap_or(RawDoc::EMPTY);
        let Some(condition) = filter.get("$expr").filter(|_| filter.iter().count() == 1) else {
            return Err(refused(&format!("{name} may only have $expr")));
        };
        check_steady(&Expression::parse_in(condition, scope).map_err(wrong)?.dependencies())?;
        Ok(ViewStage::Condition(Matcher::parse_in(filter, scope).map_err(wrong)?))
    }

    /// Parses a stage that sets fields.
    ///
    /// # Errors
    /// 67 CannotCreateIndex.
    pub(crate) fn fields(name: &str, operand: RawValue<'_>, scope: &Scope) -> Result<ViewStage> {
        let stage = DocumentStage::parse(name, operand, scope).map_err(wrong)?;
        let mut read = Dependencies::default();
        if let DocumentChange::Set(fields) = stage.change() {
            fields.iter().for_each(|(_, value)| read.add(value));
        }
        check_steady(&read)?;
        Ok(ViewStage::Fields(stage))
    }
}

fn wrong(error: Error) -> Error {
    refused(error.message())
}

/// Checks that a value depends only on its document.
fn check_steady(read: &Dependencies) -> Result<()> {
    match (read.random, read.metadata.iter().next()) {
        (true, _) => Err(refused("the values of $rand, $function and $currentDate can change")),
        (false, Some(name)) => Err(refused(&format!("$meta '{name}' is not part of a document"))),
        (false, None) => Ok(()),
    }
}

/// The error for a view that search indexes cannot be on.
pub(crate) fn refused(why: &str) -> Error {
    let text = format!(
        "search indexes are not supported on a view with these stages: {why}. A view can have $addFields, $set, and \
         $match with $expr."
    );
    Error::new(ErrorCode::CannotCreateIndex, text)
}
