//! Which collections a view reads, without running it.

use mayfly_base::Namespace;
use mayfly_storage::MAX_VIEW_DEPTH;
use mayfly_value::{RawDoc, RawValue};

/// The names that a view reads: its own source, and those in its pipeline.
pub fn view_reads(db: &str, view: RawDoc<'_>) -> Vec<Namespace> {
    let mut names = Vec::new();
    if let Some(RawValue::String(on)) = view.get("viewOn") {
        names.push(on);
    }
    if let Some(RawValue::Array(pipeline)) = view.get("pipeline") {
        pipeline_reads(pipeline, 0, &mut names);
    }
    names.into_iter().filter_map(|name| Namespace::new(db, name).ok()).collect()
}

/// Other collections that stages name: `from` of look-ups, `coll` of unions, and those in pipelines inside.
fn pipeline_reads<'p>(pipeline: RawDoc<'p>, depth: usize, names: &mut Vec<&'p str>) {
    if depth > MAX_VIEW_DEPTH {
        return;
    }
    let stages = pipeline.iter().filter_map(|stage| stage.value().as_document());
    for stage in stages.filter_map(|stage| stage.iter().next()) {
        match (stage.name(), stage.value()) {
            ("$unionWith", RawValue::String(name)) => names.push(name),
            ("$lookup" | "$graphLookup" | "$unionWith", RawValue::Document(spec)) => {
                let named = ["from", "coll"].into_iter().filter_map(|field| spec.get(field));
                names.extend(named.filter_map(RawValue::as_str));
                if let Some(RawValue::Array(inner)) = spec.get("pipeline") {
                    pipeline_reads(inner, depth + 1, names);
                }
            }
            ("$facet", RawValue::Document(facets)) => {
                for inner in facets.iter().filter_map(|facet| facet.value().as_array()) {
                    pipeline_reads(inner, depth + 1, names);
                }
            }
            _ => {}
        }
    }
}
