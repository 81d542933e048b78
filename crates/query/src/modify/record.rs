//! The record of a statement that a client may send again: written by the unit that had its effect, read by the one who
//! answers it the second time.
//!
//! ```text
//! { n: matched, nModified: modified, upserted?: _id, image?: the document that the reply shows }
//! ```
//!
//! A statement without an effect leaves no record: running it again is as good as its first answer.

use mayfly_base::Result;
use mayfly_storage::{Statement, WriteUnit};
use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawValue};

use super::ModifyOutcome;

/// Which version of its document a statement's answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// None.
    Neither,
    /// As it was.
    Before,
    /// As it is.
    After,
}

/// A statement that a client may send again.
#[derive(Clone, Copy, Debug)]
pub struct Repeatable {
    /// Its name.
    pub statement: Statement,
    /// What of its document is kept with it.
    pub image: Image,
}

/// A statement's document before and after, as far as there are both.
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
    /// What is recorded of it.
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

    /// The outcome, and the image, out of a record.
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

    /// Whether it left anything that a second run must not do again.
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
