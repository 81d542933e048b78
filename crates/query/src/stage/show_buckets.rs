//! `$_internalShowBuckets`: buckets in the reference's format. It stands in front of what clients ask of `system.buckets.X`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::{MeasurementFields, shown_bucket};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::{Next, Running, Stage, StageContext};
use crate::Flow;

/// Conjunctions are looked into so deep; what is deeper says nothing.
const MAX_DEPTH: usize = 16;

/// A checked stage.
#[derive(Clone, Debug)]
pub(crate) struct ShowBuckets {
    fields: MeasurementFields,
}

pub(super) fn parse(value: RawValue<'_>) -> Result<Vec<Stage>> {
    let time = value.as_document().and_then(|spec| spec.get("timeField"));
    let Some(time) = time.and_then(RawValue::as_str) else {
        let text = "The $_internalShowBuckets stage requires a timeField parameter";
        return Err(Error::new(ErrorCode::FailedToParse, text));
    };
    let fields = MeasurementFields { time: time.to_owned(), meta: None };
    Ok(vec![Stage::ShowBuckets(ShowBuckets { fields })])
}

impl ShowBuckets {
    /// What a filter on buckets as they are shown says about fields that they are stored with.
    pub(crate) fn on_stored(&self, filter: RawDoc<'_>) -> Option<DocBuf> {
        let mut clauses = DocBuilder::new();
        clauses.start_array("$and");
        let before = clauses.len();
        self.read(filter, &mut clauses, 0);
        let found = clauses.len() > before;
        clauses.end();
        found.then(|| clauses.finish())
    }

    fn read(&self, filter: RawDoc<'_>, clauses: &mut DocBuilder, depth: usize) {
        for element in filter {
            match (element.name(), element.value()) {
                ("$and", RawValue::Array(parts)) if depth < MAX_DEPTH => {
                    for part in parts.iter().filter_map(|part| part.value().as_document()) {
                        self.read(part, clauses, depth + 1);
                    }
                }
                (name, _) if self.is_stored(name) => {
                    clauses.push_document().append_element(element).end();
                }
                _ => {}
            }
        }
    }

    /// Whether a path is stored as it is shown.
    fn is_stored(&self, path: &str) -> bool {
        let bound = |side: &str| path.strip_prefix(side) == Some(&self.fields.time);
        matches!(path, "_id" | "meta" | "control.version" | "control.count" | "control.closed")
            || path.starts_with("meta.")
            || bound("control.min.")
            || bound("control.max.")
    }
}

pub(super) struct RunningShowBuckets(pub(super) ShowBuckets);

impl Running for RunningShowBuckets {
    fn push(
        &mut self,
        _: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        next(shown_bucket(document, &self.0.fields)?.as_doc())
    }
}
