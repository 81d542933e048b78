//! `collStats`: numbers and sizes of a collection's documents and indexes.
//!
//! If records are clustered by `_id`, that index needs no space of its own and its size is 0.

use mayfly_auth::Action;
use mayfly_base::{Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_query::is_clustered;
use mayfly_service::top::Latencies;
use mayfly_storage::{Collection, OPLOG, RetiredTally};
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::scale::{SCALE, bytes, scale, small};
use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, Reads};
use crate::request::{Fields, Needs, Request};
use mayfly_value::arguments::convert::whole_number;

pub(crate) const ROW: Command = Command::new("collStats", "Returns the sizes of a collection", run)
    .arguments(ARGUMENTS)
    .needs(Needs::Collection(&[Action::CollStats]))
    .aliases(&["collstats"])
    .reads(Reads::PREFERENCE.union(Reads::COMMITTED))
    .expected(Expected::Long);
const ARGUMENTS: &[Argument] =
    &[SCALE, Argument::any("verbose"), Argument::any("waitForLock"), Argument::any("numericOnly")];
/// The known fields of `storageStats` in `$collStats`.
const STORAGE: &[Argument] = &[SCALE];
/// The fields of `latencyStats` in `$collStats`.
const LATENCIES: &[Argument] = &[Argument::flag("histograms")];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let scale = scale(&fields)?;
    let ns = request.namespace()?;
    doc.append("ns", ns.as_str());
    let store = &ctx.service.store;
    if ns.as_str() == OPLOG {
        return append_log(ctx, scale, doc);
    }
    match (store.collection(ctx.store.view, &ns), store.time_series_named(ctx.store.view, &ns)) {
        (Some(collection), _) => append(ctx, &collection, CountedAs::Documents, scale, doc),
        (None, Some((buckets, _))) => append(ctx, &buckets, CountedAs::Measurements, scale, doc),
        (None, None) => {
            store.check_no_view(ctx.store.view, &ns)?;
            append_nothing(scale, doc);
            Ok(())
        }
    }
}

/// The document of `$collStats`.
///
/// # Errors
/// Errors of the store; 2 BadValue for an invalid scale.
pub(crate) fn coll_stats_document(
    ctx: &CommandContext<'_>,
    collection: &Collection,
    shown: CountedAs,
    options: RawDoc<'_>,
) -> Result<DocBuf> {
    // Clients use the name of a time series, not that of its buckets.
    let ns = collection.namespace();
    let name = TimeSeries::name_of(&ns).map(|name| format!("{}.{name}", ns.db()));
    let name = name.as_deref().unwrap_or(ns.as_str());
    let asked = if shown == CountedAs::Measurements { name } else { ns.as_str() };
    let used = ctx.service.top.latencies(name);
    let mut doc = begin(ctx, asked, &used, options)?;
    if let Some(RawValue::Document(options)) = options.get("storageStats") {
        let fields = Fields::read_lenient(options, "$collStats.storageStats", STORAGE)?;
        let scale = scale(&fields)?;
        doc.start_document("storageStats");
        append(ctx, collection, shown, scale, &mut doc)?;
        doc.end();
    }
    if options.get("count").is_some() {
        let (count, _) = ctx.service.store.recent_size(ctx.op, collection)?;
        doc.append("count", small(count));
    }
    if options.get("queryExecStats").is_some() {
        doc.start_document("queryExecStats").start_document("collectionScans");
        doc.append("total", used.scans).append("nonTailable", used.ending_scans).end().end();
    }
    Ok(doc.finish())
}

/// The document of `$collStats` on a view, which only has latencies.
///
/// # Errors
/// 40415 and 14 for the options.
pub(crate) fn view_stats_document(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    options: RawDoc<'_>,
) -> Result<DocBuf> {
    let used = ctx.service.top.latencies(ns.as_str());
    Ok(begin(ctx, ns.as_str(), &used, options)?.finish())
}

/// The document of `$collStats` for the operation log.
///
/// # Errors
/// Errors of the store; 2 BadValue for an invalid scale.
pub(crate) fn log_stats_document(ctx: &CommandContext<'_>, options: RawDoc<'_>) -> Result<DocBuf> {
    let used = ctx.service.top.latencies(OPLOG);
    let mut doc = begin(ctx, OPLOG, &used, options)?;
    if let Some(RawValue::Document(options)) = options.get("storageStats") {
        let fields = Fields::read_lenient(options, "$collStats.storageStats", STORAGE)?;
        let scale = scale(&fields)?;
        doc.start_document("storageStats");
        append_log(ctx, scale, &mut doc)?;
        doc.end();
    }
    if options.get("count").is_some() {
        doc.append("count", small(ctx.service.store.oplog().sizes()?.entries));
    }
    Ok(doc.finish())
}

/// Appends the sizes of the operation log.
pub(super) fn append_log(ctx: &CommandContext<'_>, scale: i64, doc: &mut DocBuilder) -> Result<()> {
    let store = &ctx.service.store;
    let sizes = store.oplog().sizes()?;
    doc.append("size", small(sizes.bytes / scale)).append("count", small(sizes.entries));
    if sizes.entries > 0 {
        doc.append("avgObjSize", small(sizes.bytes / sizes.entries));
    }
    let storage = bytes(sizes.stored_bytes);
    doc.append("numOrphanDocs", 0).append("storageSize", small(storage / scale));
    doc.append("freeStorageSize", 0).append("capped", true).append("max", 0);
    doc.append("maxSize", small(bytes(store.oplog().limits().bytes) / scale));
    doc.append("nindexes", 0).start_array("indexBuilds").end().append("totalIndexSize", 0);
    doc.append("totalSize", small(storage / scale)).append("indexSizes", RawDoc::EMPTY);
    doc.append("scaleFactor", small(scale));
    Ok(())
}

/// Begins a document of `$collStats` with the common fields.
fn begin(
    ctx: &CommandContext<'_>,
    ns: &str,
    used: &Latencies,
    options: RawDoc<'_>,
) -> Result<DocBuilder> {
    let mut doc = DocBuilder::new();
    doc.append("ns", ns).append("host", ctx.service.host.as_str());
    doc.append("localTime", RawValue::Date(ctx.op.now_ms()));
    if let Some(RawValue::Document(options)) = options.get("latencyStats") {
        let fields = Fields::read(options, "$collStats.latencyStats", LATENCIES)?;
        append_latencies(used, fields.bool("histograms")?.unwrap_or(false), &mut doc);
    }
    Ok(doc)
}

/// Appends the latencies by kind of operation.
fn append_latencies(used: &Latencies, with_histograms: bool, doc: &mut DocBuilder) {
    doc.start_document("latencyStats");
    for ((name, sum), histogram) in
        ["reads", "writes", "commands"].into_iter().zip(used.sums).zip(&used.histograms)
    {
        doc.start_document(name);
        if with_histograms {
            doc.start_array("histogram");
            for (micros, count) in histogram.ranges() {
                doc.push_document().append("micros", micros).append("count", count).end();
            }
            doc.end();
        }
        doc.append("latency", sum.micros).append("ops", sum.count).end();
    }
    doc.start_document("transactions");
    if with_histograms {
        doc.start_array("histogram").end();
    }
    doc.append("latency", 0i64).append("ops", 0i64).end().end();
}

/// How clients see the documents of a collection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CountedAs {
    /// As documents.
    Documents,
    /// As measurements: the buckets are counted in their own section.
    Measurements,
}

/// Appends the fields after the namespace.
fn append(
    ctx: &CommandContext<'_>,
    collection: &Collection,
    shown: CountedAs,
    scale: i64,
    doc: &mut DocBuilder,
) -> Result<()> {
    let sizes = ctx.service.store.sizes(ctx.op, collection)?;
    let (count, size) = (sizes.documents, sizes.data_bytes);
    doc.append("size", small(size / scale));
    match shown {
        CountedAs::Measurements => {
            doc.start_document("timeseries");
            doc.append("bucketsNs", collection.namespace().as_str());
            doc.append("bucketCount", small(count));
            if count > 0 {
                doc.append("avgBucketSize", small(size / count));
            }
            doc.end();
        }
        CountedAs::Documents => {
            doc.append("count", small(count));
            if count > 0 {
                doc.append("avgObjSize", small(size / count));
            }
        }
    }
    doc.append("numOrphanDocs", 0);
    let storage = bytes(sizes.storage_bytes);
    doc.append("storageSize", small(storage / scale)).append("freeStorageSize", 0);
    append_capped(collection, scale, doc);
    // Collections that were created with clustering by `_id`, and buckets, have no visible index on
    // it.
    let own = i64::from(!is_clustered(collection));
    doc.append("nindexes", small(sizes.indexes.len() as i64 + own));
    // The storage has no further details of an index.
    doc.append("indexDetails", RawDoc::EMPTY);
    doc.start_array("indexBuilds");
    for (index, _) in sizes.indexes.iter().filter(|(index, _)| !index.is_ready()) {
        doc.push(index.spec.name());
    }
    doc.end();
    let id_bytes = if own > 0 { bytes(sizes.id_index_bytes.unwrap_or(0)) } else { 0 };
    let index_bytes: i64 =
        id_bytes + sizes.indexes.iter().map(|(_, size)| bytes(*size)).sum::<i64>();
    doc.append("totalIndexSize", small(index_bytes / scale));
    doc.append("totalSize", small((storage + index_bytes) / scale));
    doc.start_document("indexSizes");
    if own > 0 {
        doc.append("_id_", small(id_bytes / scale));
    }
    for (index, size) in &sizes.indexes {
        doc.append(index.spec.name(), small(bytes(*size) / scale));
    }
    doc.end();
    // A field of this server.
    if sizes.retired != Some(RetiredTally::default()) {
        RetiredTally::append(sizes.retired, scale, doc);
    }
    doc.append("scaleFactor", small(scale));
    Ok(())
}

/// Appends whether the collection is capped, and its limits.
fn append_capped(collection: &Collection, scale: i64, doc: &mut DocBuilder) {
    let options = collection.options();
    let options = options.as_doc();
    let capped = options.get("capped") == Some(RawValue::Bool(true));
    doc.append("capped", capped);
    if capped {
        let number = |name: &str| options.get(name).and_then(whole_number);
        doc.append("max", small(number("max").unwrap_or(0)));
        doc.append("maxSize", small(number("size").unwrap_or(0) / scale));
    }
}

/// Appends the fields of a collection that does not exist, which counts as empty.
fn append_nothing(scale: i64, doc: &mut DocBuilder) {
    doc.append("size", 0).append("count", 0).append("numOrphanDocs", 0);
    doc.append("storageSize", 0).append("totalSize", 0).append("nindexes", 0);
    doc.append("totalIndexSize", 0).append("indexDetails", RawDoc::EMPTY);
    doc.append("indexSizes", RawDoc::EMPTY).append("scaleFactor", small(scale));
}
