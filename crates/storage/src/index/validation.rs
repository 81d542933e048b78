//! Document validation: the `validator` and the encrypted fields of a collection, applied by every
//! write unit.
//!
//! The query language is implemented above `storage`, which has a compiled check, its level and its
//! action. The manual's page is "Schema Validation".
//!
//! A collection with `encryptedFields` stores only encrypted values in these fields, and only the
//! server writes their tags (`__safeContent__`).

use std::sync::Arc;

use mayfly_base::{ClientData, Error, ErrorCode, Result};
use mayfly_encryption::{EncryptedFields, SAFE_CONTENT};
use mayfly_value::shell::Shell;
use mayfly_value::{Collation, DocBuf, DocBuilder, RawDoc, RawValue};

use crate::index::FilterCompiler;

/// The time of a write: wall time in milliseconds, and cluster time.
#[derive(Clone, Copy, Debug)]
pub struct WriteTime {
    /// Milliseconds since 1970.
    pub now_ms: i64,
    /// The bits of a timestamp.
    pub cluster: u64,
}

/// A compiled validator.
pub trait DocumentCheck: Send + Sync {
    /// Whether a document that is written at this time satisfies the validator. Most validators do
    /// not ask for the time.
    ///
    /// # Errors
    /// When that cannot be determined.
    fn fits(&self, document: RawDoc<'_>, time: &dyn Fn() -> WriteTime) -> Result<bool>;

    /// Why a document does not satisfy it: the `details` of the error.
    fn explain(&self, document: RawDoc<'_>, time: &dyn Fn() -> WriteTime) -> DocBuf;
}

/// The validation rules of one collection that has effective ones.
pub(crate) struct Validation {
    rules: Option<Rules>,
    encrypted: Option<EncryptedFields>,
}

/// Whether a write may change the tags of encrypted values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SafeContent {
    /// It must leave them as they are.
    #[default]
    Kept,
    /// The server has planned the write, and computed the tags.
    Planned,
}

/// The validator of a collection.
struct Rules {
    check: Arc<dyn DocumentCheck>,
    /// `moderate`: documents that were invalid before may stay invalid.
    moderate: bool,
    /// The consequence of an invalid document.
    action: Action,
}

/// The consequence of an invalid document.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    /// The write is refused.
    Refuse,
    /// It is only logged.
    Log,
    /// The write is refused, and logged.
    RefuseAndLog,
}

/// The longest explanation that is sent to a client.
const MAX_DETAILS_BYTES: usize = 1 << 20;

impl Validation {
    /// Compiles the rules in a collection's options.
    ///
    /// # Errors
    /// Errors of the compiler; 9 FailedToParse for malformed encrypted fields.
    pub(crate) fn from_options(
        options: RawDoc<'_>,
        filters: &dyn FilterCompiler,
    ) -> Result<Option<Arc<Validation>>> {
        let rules = Rules::from_options(options, filters)?;
        let encrypted = options.get("encryptedFields").and_then(RawValue::as_document);
        let encrypted = encrypted.map(EncryptedFields::parse).transpose()?;
        let is_effective = rules.is_some() || encrypted.is_some();
        Ok(is_effective.then(|| Arc::new(Validation { rules, encrypted })))
    }

    /// Whether the collection has encrypted fields.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.encrypted.is_some()
    }

    /// Checks a document that is to be inserted.
    ///
    /// # Errors
    /// 121 DocumentValidationFailure; 2 BadValue for tags that the server has not planned; errors
    /// of the check, also with `warn`.
    pub(crate) fn check_insert(
        &self,
        ns: &str,
        document: RawDoc<'_>,
        tags: SafeContent,
        time: &dyn Fn() -> WriteTime,
    ) -> Result<()> {
        if let Some(encrypted) = &self.encrypted {
            if tags == SafeContent::Kept && document.get(SAFE_CONTENT).is_some() {
                let text = format!("Cannot insert a document with field name {SAFE_CONTENT}");
                return Err(Error::bad_value(text));
            }
            encrypted.check_stored(document)?;
        }
        match &self.rules {
            Some(rules) if !rules.check.fits(document, time)? => rules.fail(ns, document, time),
            _ => Ok(()),
        }
    }

    /// Checks a document that is to replace another.
    ///
    /// # Errors
    /// As [`Validation::check_insert`].
    pub(crate) fn check_update(
        &self,
        ns: &str,
        (old, new): (RawDoc<'_>, RawDoc<'_>),
        tags: SafeContent,
        time: &dyn Fn() -> WriteTime,
    ) -> Result<()> {
        if let Some(encrypted) = &self.encrypted {
            if tags == SafeContent::Kept && old.get(SAFE_CONTENT) != new.get(SAFE_CONTENT) {
                let text = format!("Cannot change the field {SAFE_CONTENT} of a document");
                return Err(Error::bad_value(text));
            }
            encrypted.check_stored(new)?;
        }
        let Some(rules) = &self.rules else { return Ok(()) };
        if rules.check.fits(new, time)? || rules.moderate && !rules.check.fits(old, time)? {
            return Ok(());
        }
        rules.fail(ns, new, time)
    }
}

impl Rules {
    fn from_options(options: RawDoc<'_>, filters: &dyn FilterCompiler) -> Result<Option<Rules>> {
        let text = |name: &str| options.get(name).and_then(RawValue::as_str);
        let Some(RawValue::Document(validator)) = options.get("validator") else { return Ok(None) };
        // The validator is compiled even when validation is off, so that an invalid one is refused.
        let collation = Collation::of_options(options)?;
        let check = filters.compile_validator(validator, collation.as_ref())?;
        if validator.is_empty() || text("validationLevel") == Some("off") {
            return Ok(None);
        }
        Ok(Some(Rules {
            check,
            moderate: text("validationLevel") == Some("moderate"),
            action: match text("validationAction") {
                Some("warn") => Action::Log,
                Some("errorAndLog") => Action::RefuseAndLog,
                _ => Action::Refuse,
            },
        }))
    }

    fn fail(&self, ns: &str, document: RawDoc<'_>, time: &dyn Fn() -> WriteTime) -> Result<()> {
        let mut info = DocBuilder::new();
        info.append("failingDocumentId", document.get("_id").unwrap_or(RawValue::Null));
        let details = self.check.explain(document, time);
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
        if self.action != Action::Refuse {
            let shown = ClientData(Shell(info.as_doc()).to_string());
            match self.action {
                Action::Log => {
                    tracing::warn!(namespace = ns, errInfo = %shown, "document would fail validation");
                    return Ok(());
                }
                _ => tracing::warn!(namespace = ns, errInfo = %shown, "document failed validation"),
            }
        }
        let mut extra = DocBuilder::new();
        extra.append("errInfo", &info);
        let error = Error::new(ErrorCode::DocumentValidationFailure, "Document failed validation");
        Err(error.with_extra(extra.finish().into_bytes()))
    }
}
