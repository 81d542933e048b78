//! Rules for documents: the `validator` of a collection, applied by every write unit.
//!
//! The language stays above: storage holds a compiled check and knows level and action. The manual's page is "Schema
//! Validation".

use std::sync::Arc;

use mayfly_base::{ClientData, Error, ErrorCode, Result};
use mayfly_value::shell::Shell;
use mayfly_value::{Collation, DocBuf, DocBuilder, RawDoc, RawValue};

use crate::index::FilterCompiler;

/// A compiled validator.
pub trait DocumentCheck: Send + Sync {
    /// Whether a document satisfies it.
    ///
    /// # Errors
    /// When that cannot be found out.
    fn fits(&self, document: RawDoc<'_>) -> Result<bool>;

    /// Why a document does not: the `details` of the error.
    fn explain(&self, document: RawDoc<'_>) -> DocBuf;
}

/// The rules of one collection, when they ask for anything.
pub(crate) struct Validation {
    check: Arc<dyn DocumentCheck>,
    /// `moderate`: documents that broke the rules before may go on doing so.
    moderate: bool,
    /// `warn`: a line in the log is all that happens.
    only_warn: bool,
}

/// Longest explanation that goes to a client.
const MAX_DETAILS_BYTES: usize = 1 << 20;

impl Validation {
    /// The rules in a collection's options.
    ///
    /// # Errors
    /// Those of the compiler.
    pub(crate) fn from_options(
        options: RawDoc<'_>,
        filters: &dyn FilterCompiler,
    ) -> Result<Option<Arc<Validation>>> {
        let text = |name: &str| options.get(name).and_then(RawValue::as_str);
        let Some(RawValue::Document(validator)) = options.get("validator") else { return Ok(None) };
        // Compiled even when it is switched off: what does not compile is refused.
        let collation = Collation::of_options(options)?;
        let check = filters.compile_validator(validator, collation.as_ref())?;
        if validator.is_empty() || text("validationLevel") == Some("off") {
            return Ok(None);
        }
        Ok(Some(Arc::new(Validation {
            check,
            moderate: text("validationLevel") == Some("moderate"),
            only_warn: text("validationAction") == Some("warn"),
        })))
    }

    /// A document about to be inserted.
    ///
    /// # Errors
    /// 121 DocumentValidationFailure; those of the check, under `warn`, too.
    pub(crate) fn check_insert(&self, ns: &str, document: RawDoc<'_>) -> Result<()> {
        match self.check.fits(document)? {
            true => Ok(()),
            false => self.fail(ns, document),
        }
    }

    /// A document about to take the place of another.
    ///
    /// # Errors
    /// 121 DocumentValidationFailure; those of the check, under `warn`, too.
    pub(crate) fn check_update(&self, ns: &str, old: RawDoc<'_>, new: RawDoc<'_>) -> Result<()> {
        if self.check.fits(new)? || self.moderate && !self.check.fits(old)? {
            return Ok(());
        }
        self.fail(ns, new)
    }

    fn fail(&self, ns: &str, document: RawDoc<'_>) -> Result<()> {
        let mut info = DocBuilder::new();
        info.append("failingDocumentId", document.get("_id").unwrap_or(RawValue::Null));
        let details = self.check.explain(document);
        if details.as_bytes().len() <= MAX_DETAILS_BYTES {
            info.append("details", &details);
        } else {
            info.start_document("details");
            if let Some(operator) = details.as_doc().get_element("operatorName") {
                info.append_element(operator);
            }
            info.append("truncated", true).end();
        }
        let info = info.finish();
        if self.only_warn {
            let info = Shell(info.as_doc()).to_string();
            let info = ClientData(info);
            tracing::warn!(namespace = ns, errInfo = %info, "document would fail validation");
            return Ok(());
        }
        let mut extra = DocBuilder::new();
        extra.append("errInfo", &info);
        let error = Error::new(ErrorCode::DocumentValidationFailure, "Document failed validation");
        Err(error.with_extra(extra.finish().into_bytes()))
    }
}
