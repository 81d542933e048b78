//! The documents of `$listCatalog`: the entries of the catalog, in the form of the reference's.
//!
//! ```text
//! { db, name, type: "collection", shard, md: { ns, options, indexes: [{ spec, ready, ... }] },
//!   idxIdent: { name of an index: its file }, ns, ident: its file }
//! { db, name, type: "view" or "timeseries", shard, ns, viewOn, pipeline }
//! ```
//!
//! The server keeps no file for each collection, so the names of files contain only the number of
//! the object.

use std::collections::BTreeSet;

use mayfly_base::{Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_service::sharding::SHARD;
use mayfly_storage::{Collection, View};
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use crate::context::CommandContext;

/// The entries of all collections, views and time series.
pub(crate) fn catalog(ctx: &CommandContext<'_>) -> Result<Vec<DocBuf>> {
    let store = &ctx.service.store;
    let (mut documents, mut databases) = (Vec::new(), BTreeSet::new());
    for collection in store.collections(None) {
        ctx.op.check()?;
        databases.insert(collection.namespace().db().to_owned());
        documents.push(catalog_entry(ctx, &collection));
        documents.extend(series_entry(ctx, &collection));
    }
    for db in &databases {
        for view in &store.views(ctx.store.view, db)? {
            documents.push(view_entry(ctx, &Namespace::new(db, &view.name)?, view));
        }
    }
    Ok(documents)
}

/// The entry of a collection.
pub(crate) fn catalog_entry(ctx: &CommandContext<'_>, collection: &Collection) -> DocBuf {
    let ns = collection.namespace();
    let mut out = begun(ctx, &ns, "collection");
    out.start_document("md").append("ns", ns.as_str()).start_document("options");
    out.append("uuid", RawValue::uuid(&collection.uuid()));
    out.append_all(collection.options().as_doc()).end();
    let indexes = collection.indexes();
    let specs = collection.list_indexes();
    // Records that are clustered by `_id` have no such index.
    let clustered = collection.options().as_doc().get("clusteredIndex").is_some();
    let name_of = |spec: &DocBuf| {
        spec.as_doc().get("name").and_then(RawValue::as_str).unwrap_or_default().to_owned()
    };
    let listed: Vec<_> = specs
        .iter()
        .filter(|spec| !(clustered && spec.as_doc().get("clustered").is_some()))
        .map(|spec| (name_of(spec), spec))
        .collect();
    let found = |name: &str| indexes.iter().find(|index| index.spec.name() == name);
    out.start_array("indexes");
    for (name, spec) in &listed {
        let is_multikey = found(name).is_some_and(|index| index.is_multikey());
        out.push_document().append("spec", *spec).append("ready", true);
        out.append("multikey", is_multikey).append("head", 0_i64);
        out.append("backgroundSecondary", false).end();
    }
    out.end().end().start_document("idxIdent");
    for (name, _) in &listed {
        let id = found(name).map_or(collection.id(), |index| index.id());
        out.append(name, format!("index-{id}").as_str());
    }
    out.end().append("ns", ns.as_str());
    out.append("ident", format!("collection-{}", collection.id()).as_str());
    out.finish()
}

/// The entry of a time series, from its bucket collection.
fn series_entry(ctx: &CommandContext<'_>, buckets: &Collection) -> Option<DocBuf> {
    buckets.time_series()?;
    let of_buckets = buckets.namespace();
    let ns = Namespace::new(of_buckets.db(), TimeSeries::name_of(&of_buckets)?).ok()?;
    let mut out = begun(ctx, &ns, "timeseries");
    out.append("ns", ns.as_str()).append("viewOn", of_buckets.collection());
    Some(out.finish())
}

fn view_entry(ctx: &CommandContext<'_>, ns: &Namespace, view: &View) -> DocBuf {
    let mut out = begun(ctx, ns, "view");
    out.append("ns", ns.as_str()).append_all(view.options.as_doc());
    out.finish()
}

fn begun(ctx: &CommandContext<'_>, ns: &Namespace, kind: &str) -> DocBuilder {
    let mut out = DocBuilder::new();
    out.append("db", ns.db()).append("name", ns.collection()).append("type", kind);
    if ctx.service.replica_set.get().is_none() {
        out.append("shard", SHARD);
    }
    out
}
