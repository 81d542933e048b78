//! The collections that a view reads, determined without running it.

use mayfly_base::Namespace;
use mayfly_expr::{OperationTime, Scope};
use mayfly_scripts::ScriptLimits;
use mayfly_value::{RawDoc, RawValue};

use crate::pipeline::Pipeline;
use crate::stage::PipelineContext;

/// The names that a view reads: its source, and those that its stages read.
pub fn view_reads(db: &str, view: RawDoc<'_>) -> Vec<Namespace> {
    let on = view.get("viewOn").and_then(RawValue::as_str);
    let on = on.and_then(|on| Namespace::new(db, on).ok());
    // The pipeline is not run.
    let scope = Scope::at(OperationTime::ANY).with_script_limits(ScriptLimits::default());
    let pipeline = view.get("pipeline").and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY);
    // A pipeline that cannot be parsed reads nothing.
    let parsed = Pipeline::parse(pipeline, &PipelineContext::view(db, &scope));
    let stages = parsed.map_or_else(|_| Vec::new(), |parsed| parsed.collections());
    on.into_iter().chain(stages).collect()
}
