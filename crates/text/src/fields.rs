//! Finds the indexed strings of a document, with their languages and weights.
//!
//! Arrays on a path are traversed; their items have the path of the array. An embedded document may
//! specify another language for itself and everything in it.

use std::ops::Bound;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{RawDoc, RawValue};

use crate::{Language, TextSpec};

/// The weight of a field without a specified weight.
const DEFAULT_WEIGHT: f64 = 1.0;

/// An indexed string.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TextField<'d> {
    /// The text of the string.
    pub text: &'d str,
    /// The language to analyze it with.
    pub language: Language,
    /// The weight of its terms.
    pub weight: f64,
}

type See<'s, 'd> = dyn FnMut(TextField<'d>) -> Result<()> + 's;

struct Walk<'w> {
    spec: &'w TextSpec,
    path: String,
}

pub(crate) fn visit_fields<'d>(
    spec: &TextSpec,
    document: RawDoc<'d>,
    see: &mut See<'_, 'd>,
) -> Result<()> {
    let mut walk = Walk { spec, path: String::new() };
    walk.document(document, spec.default_language, see)
}

impl Walk<'_> {
    fn document<'d>(
        &mut self,
        document: RawDoc<'d>,
        outer: Language,
        see: &mut See<'_, 'd>,
    ) -> Result<()> {
        let language = match document.get(&self.spec.language_override) {
            None => outer,
            Some(RawValue::String(name)) => Language::find(name).ok_or_else(|| {
                let text = format!("language override unsupported: {name}");
                Error::new(ErrorCode(17262), text)
            })?,
            Some(_) => {
                let text = "found language override field in document with non-string type";
                return Err(Error::new(ErrorCode(17261), text));
            }
        };
        let end = self.path.len();
        for element in document {
            if element.name() == self.spec.language_override {
                continue;
            }
            if end > 0 {
                self.path.push('.');
            }
            self.path.push_str(element.name());
            let known = self.leads_somewhere().then(|| self.value(element.value(), language, see));
            self.path.truncate(end);
            known.transpose()?;
        }
        Ok(())
    }

    /// The recursion is bounded by the nesting of documents.
    fn value<'d>(
        &mut self,
        value: RawValue<'d>,
        language: Language,
        see: &mut See<'_, 'd>,
    ) -> Result<()> {
        match value {
            RawValue::Array(items) => items.iter().try_for_each(|item| match item.value() {
                // A path does not enter an array directly inside another one.
                RawValue::Array(_) if !self.spec.wildcard => Ok(()),
                item => self.value(item, language, see),
            }),
            RawValue::Document(inner) => self.document(inner, language, see),
            RawValue::String(text) => match self.weight() {
                Some(weight) => see(TextField { text, language, weight }),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// The weight of a string at the current path; `None` when it is not indexed.
    fn weight(&self) -> Option<f64> {
        let weight = self.spec.weights.get(&self.path).copied();
        weight.or(self.spec.wildcard.then_some(DEFAULT_WEIGHT))
    }

    /// Whether anything at or below the current path is indexed.
    fn leads_somewhere(&self) -> bool {
        if self.spec.wildcard || self.spec.weights.contains_key(&self.path) {
            return true;
        }
        let below = (Bound::Excluded(self.path.as_str()), Bound::Unbounded);
        // Paths below it may follow others that only share its prefix.
        let alike = self.spec.weights.range::<str, _>(below);
        let mut alike = alike.map(|(path, _)| path).take_while(|path| path.starts_with(&self.path));
        alike.any(|path| path.as_bytes().get(self.path.len()) == Some(&b'.'))
    }
}
