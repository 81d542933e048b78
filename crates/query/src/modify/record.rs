//! The record of a retryable statement. The write unit that has the statement's effect stores it; a
//! retry is answered from it.
//!
//! ```text
//! { n: matched, nModified: modified, upserted?: _id, image?: the document in the reply }
//! ```
//!
//! A statement without an effect has no record: a retry runs again.

use mayfly_base::Result;
use mayfly_storage::{Statement, WriteUnit};
use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawValue};

use super::ModifyOutcome;

/// The version of the document that the reply contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// No version.
    Neither,
    /// The version before the change.
    Before,
    /// The version after the change.
    After,
}

/// A retryable statement.
#[derive(Clone, Copy, Debug)]
pub struct Repeatable {
    /// Session, transaction number and id of the statement.
    pub statement: Statement,
    /// The version of the document that is stored with the record.
    pub image: Image,
}

/// The versions of a statement's document, as far as they exist.
#[derive(Clone, Copy, Default)]
pub(crate) struct Images<'d> {
    pub(crate) before: Option<RawDoc<'d>>,
    pub(crate) after: Option<RawDoc<'d>>,
}

impl Repeatable {
    pub(crate) fn record(
        &self,
        unit: &mut WriteUnit<'_>,
        outcome: &ModifyOutcome,
        images: Images<'_>,
    ) -> Result<()> {
        let image = match self.image {
            Image::Neither => None,
            Image::Before => images.before,
            Image::After => images.after,
        };
        unit.record_statement(self.statement, 1, outcome.record(image).as_doc())
    }
}

impl ModifyOutcome {
    /// The record of the outcome.
    pub fn record(&self, image: Option<RawDoc<'_>>) -> DocBuf {
        let mut record = DocBuilder::new();
        record.append("n", self.matched).append("nModified", self.modified);
        if let Some(id) = &self.upserted {
            record.append("upserted", id);
        }
        if let Some(image) = image {
            record.append("image", image);
        }
        record.finish()
    }

    /// Restores outcome and image from a record.
    pub fn recall(record: RawDoc<'_>) -> (ModifyOutcome, Option<DocBuf>) {
        let number = |name: &str| {
            record.get(name).and_then(Number::from_value).map_or(0, |number| number.to_f64() as i64)
        };
        let outcome = ModifyOutcome {
            matched: number("n"),
            modified: number("nModified"),
            upserted: record.get("upserted").map(RawValue::to_owned),
        };
        (outcome, record.get("image").and_then(RawValue::as_document).map(RawDoc::to_owned))
    }

    /// Whether the statement had an effect that a retry must not repeat.
    pub fn had_effect(&self) -> bool {
        self.modified > 0 || self.upserted.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_gives_the_outcome_back() {
        let upserted = Some(RawValue::Int32(7).to_owned());
        let outcome = ModifyOutcome { matched: 1, modified: 0, upserted };
        let mut image = DocBuilder::new();
        image.append("_id", 7);
        let image = image.finish();
        let (recalled, shown) =
            ModifyOutcome::recall(outcome.record(Some(image.as_doc())).as_doc());
        assert_eq!((recalled.matched, recalled.modified), (1, 0));
        assert_eq!(recalled.upserted, outcome.upserted);
        assert_eq!(shown, Some(image));
        assert!(recalled.had_effect());
    }
}
