//! `$_internalShowBuckets`: buckets in the reference's format. It is prepended to pipelines over
//! `system.buckets.X`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_buckets::{MeasurementFields, shown_bucket};
use mayfly_mql::matcher::Expr;
use mayfly_value::{RawDoc, RawValue};

use crate::exec::Flow;
use crate::stage::{Next, Running, Stage, StageContext};

/// The parsed stage.
#[derive(Debug)]
pub(crate) struct ShowBuckets {
    fields: MeasurementFields,
}

pub(crate) fn parse(value: RawValue<'_>) -> Result<Box<dyn Stage>> {
    let time = value.as_document().and_then(|spec| spec.get("timeField"));
    let Some(time) = time.and_then(RawValue::as_str) else {
        let text = "The $_internalShowBuckets stage requires a timeField parameter";
        return Err(Error::new(ErrorCode::FailedToParse, text));
    };
    let fields = MeasurementFields { time: time.to_owned(), meta: None };
    Ok(Box::new(ShowBuckets { fields }))
}

impl ShowBuckets {
    /// The conditions of a filter on displayed buckets that concern stored fields.
    pub(crate) fn on_stored(&self, filter: &Expr) -> Option<Expr> {
        on_stored(filter, &self.fields)
    }
}

/// The conditions of a filter on displayed buckets that concern stored fields.
pub(super) fn on_stored(filter: &Expr, fields: &MeasurementFields) -> Option<Expr> {
    let stored = |condition: &&Expr| match condition {
        Expr::Path { path, .. } => is_stored(path.as_str(), fields),
        _ => false,
    };
    let found: Vec<Expr> = filter.conjuncts().into_iter().filter(stored).cloned().collect();
    (!found.is_empty()).then(|| Expr::And(found))
}

/// Whether a path is stored as it is displayed.
fn is_stored(path: &str, fields: &MeasurementFields) -> bool {
    let bound = |side: &str| path.strip_prefix(side) == Some(&fields.time);
    matches!(path, "_id" | "meta" | "control.version" | "control.count" | "control.closed")
        || path.starts_with("meta.")
        || bound("control.min.")
        || bound("control.max.")
}

impl Stage for ShowBuckets {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningShowBuckets(*self))
    }
}

struct RunningShowBuckets(ShowBuckets);

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
