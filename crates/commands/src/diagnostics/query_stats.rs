//! The documents of `$queryStats`: operations by query shape. Manual: "$queryStats", "Output".
//!
//! In addition to the manual's fields, `metrics` has the number of slow runs, the plan of the
//! latest run and a histogram, and a shape that reads much more than it returns has
//! `suggestedIndex`.

use mayfly_query::{QueryShapeHash, Suggestion};
use mayfly_service::{ShapeStats, Spread};
use mayfly_storage::ReadView;
use mayfly_value::decimal::Decimal;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::context::CommandContext;

/// The documents, those of the shapes with most time first.
pub(crate) fn query_stats(ctx: &CommandContext<'_>) -> Vec<DocBuf> {
    let now_secs = ctx.service.clock.now_ms() / 1000;
    let time = u32::try_from(now_secs).unwrap_or(u32::MAX);
    let list = ctx.service.shapes.list();
    list.iter().map(|(hash, stats)| document(ctx, *hash, stats, time)).collect()
}

fn document(
    ctx: &CommandContext<'_>,
    hash: QueryShapeHash,
    stats: &ShapeStats,
    time: u32,
) -> DocBuf {
    let shape = stats.shape.as_doc();
    let collection = collection_of(ctx, shape);
    let mut key = DocBuilder::new();
    key.append("queryShape", shape).append("collectionType", collection.kind);
    let key = key.finish();
    let mut out = DocBuilder::new();
    out.append("key", &key);
    out.append("keyHash", QueryShapeHash::of(key.as_doc()).to_string().as_str());
    out.append("queryShapeHash", hash.to_string().as_str());
    append_metrics(stats, &mut out);
    out.append("asOf", RawValue::Timestamp(u64::from(time) << 32));
    if let Some(suggestion) = suggested(stats, &collection) {
        out.start_document("suggestedIndex");
        suggestion.append_to(&mut out);
        out.end();
    }
    out.finish()
}

fn append_metrics(stats: &ShapeStats, out: &mut DocBuilder) {
    out.start_document("metrics").append("lastExecutionMicros", stats.last_micros);
    out.append("execCount", long(stats.runs)).append("slowExecCount", long(stats.slow_runs));
    append_spread("keysExamined", stats.keys_examined, out);
    append_spread("docsExamined", stats.docs_examined, out);
    out.append("hasSortStage", stats.has_sort_stage).append("usedDisk", stats.used_disk);
    out.append("fromMultiPlanner", stats.from_multi_planner);
    out.append("fromPlanCache", stats.from_plan_cache);
    append_spread("totalExecMicros", stats.micros, out);
    append_spread("firstResponseExecMicros", stats.micros, out);
    append_spread("docsReturned", stats.docs_returned, out);
    out.append("firstSeenTimestamp", RawValue::Date(stats.first_seen_ms));
    out.append("latestSeenTimestamp", RawValue::Date(stats.last_seen_ms));
    out.append("planSummary", &*stats.plan_summary);
    out.start_array("histogram");
    for (micros, count) in stats.histogram.ranges() {
        out.push_document().append("micros", micros).append("count", long(count)).end();
    }
    out.end().end();
}

fn append_spread(name: &str, spread: Spread, out: &mut DocBuilder) {
    out.start_document(name).append("sum", long(spread.sum));
    out.append("max", long(spread.max)).append("min", long(spread.min));
    let squares = Decimal::parse(&spread.squares.to_string());
    let squares = squares.unwrap_or_else(|| Decimal::nearest(spread.squares as f64));
    out.append("sumOfSquares", RawValue::Decimal128(squares.to_bytes())).end();
}

fn long(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The collection of a shape as it is now.
struct ShapeCollection {
    /// `key.collectionType`.
    kind: &'static str,
    /// The definitions of its indexes, if it is one that indexes can be created on.
    indexes: Option<Vec<DocBuf>>,
}

fn collection_of(ctx: &CommandContext<'_>, shape: RawDoc<'_>) -> ShapeCollection {
    let ns = shape.get("cmdNs").and_then(RawValue::as_document);
    let part = |name| ns.and_then(|ns| ns.get(name)).and_then(RawValue::as_str).unwrap_or("");
    let other = |kind| ShapeCollection { kind, indexes: None };
    if part("coll").starts_with("$cmd.") {
        return other("virtual");
    }
    let Ok(ns) = mayfly_base::Namespace::new(part("db"), part("coll")) else {
        return other("nonExistent");
    };
    let view = ReadView::now();
    let store = &ctx.service.store;
    if let Some(collection) = store.collection(&view, &ns) {
        let indexes = Some(collection.list_indexes());
        return ShapeCollection { kind: "collection", indexes };
    }
    if store.time_series_named(&view, &ns).is_some() {
        return other("timeseries");
    }
    match store.view(&view, &ns) {
        Ok(None) => other("nonExistent"),
        _ => other("view"),
    }
}

/// The index that would save the most, unless there is one already.
fn suggested(stats: &ShapeStats, collection: &ShapeCollection) -> Option<Suggestion> {
    let indexes = collection.indexes.as_ref().filter(|_| stats.is_wasteful())?;
    let suggestion = Suggestion::of(stats.shape.as_doc())?;
    let is_there = indexes.iter().any(|index| suggestion.is_served_by(index.as_doc()));
    (!is_there).then_some(suggestion)
}
