//! The documents of `$listClusterCatalog`: one for each collection, view and time series of a
//! database, or of all databases. The server has one shard, which holds all of them.

use std::collections::BTreeSet;

use mayfly_base::{Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_service::sharding::{self, SHARD};
use mayfly_storage::{Collection, View};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::context::CommandContext;

/// The size of chunks in megabytes, which is the reference's default.
const CHUNK_MB: i32 = 128;

/// The documents for these options: `db`, unless all databases are listed, and those of the stage.
pub(crate) fn cluster_catalog(
    ctx: &CommandContext<'_>,
    options: RawDoc<'_>,
) -> Result<Vec<DocBuf>> {
    let is_set = |name: &str| options.get(name) == Some(RawValue::Bool(true));
    let db = options.get("db").and_then(RawValue::as_str);
    let parts = Parts { shards: is_set("shards"), balancing: is_set("balancingConfiguration") };
    let store = &ctx.service.store;
    let mut documents = Vec::new();
    // Definitions of views are documents of a collection, so a database with views has one.
    let mut databases = BTreeSet::new();
    for collection in store.collections(db) {
        ctx.op.check()?;
        databases.insert(collection.namespace().db().to_owned());
        documents.push(parts.of_collection(ctx, &collection)?);
        documents.extend(parts.of_series(&collection));
    }
    for db in &databases {
        let views = store.views(ctx.store.view, db)?;
        for view in &views {
            documents.push(parts.of_view(&Namespace::new(db, &view.name)?, view));
        }
    }
    Ok(documents)
}

/// The optional parts of the documents.
struct Parts {
    shards: bool,
    balancing: bool,
}

impl Parts {
    fn of_collection(&self, ctx: &CommandContext<'_>, collection: &Collection) -> Result<DocBuf> {
        let ns = collection.namespace();
        let mut out = begun(&ns, "collection");
        let options = collection.options();
        let clustered = options.as_doc().get("clusteredIndex").is_some();
        let id_index = collection.list_indexes().into_iter().next();
        let id_index = id_index.filter(|_| !clustered && collection.time_series().is_none());
        if let Some(id_index) = &id_index {
            out.append("idIndex", id_index);
        }
        out.append("options", &options).start_document("info").append("readOnly", false);
        out.append("uuid", RawValue::uuid(&collection.uuid())).end();
        match sharding::sharded(&ctx.service.store, collection)? {
            Some(sharded) => {
                out.append("sharded", true);
                let key = sharded.as_doc().get("key");
                out.append("shardKey", key.unwrap_or(RawValue::Document(RawDoc::EMPTY)));
            }
            None => drop(out.append("sharded", false)),
        }
        Ok(self.finished(out))
    }

    /// The document of a time series, from its bucket collection.
    fn of_series(&self, collection: &Collection) -> Option<DocBuf> {
        collection.time_series()?;
        let buckets = collection.namespace();
        let ns = Namespace::new(buckets.db(), TimeSeries::name_of(&buckets)?).ok()?;
        let mut out = begun(&ns, "timeseries");
        out.append("options", &collection.options());
        out.start_document("info").append("readOnly", false).end().append("sharded", false);
        Some(self.finished(out))
    }

    fn of_view(&self, ns: &Namespace, view: &View) -> DocBuf {
        let mut out = begun(ns, "view");
        out.append("options", &view.options);
        out.start_document("info").append("readOnly", true).end().append("sharded", false);
        self.finished(out)
    }

    fn finished(&self, mut out: DocBuilder) -> DocBuf {
        if self.shards {
            out.start_array("shards").push(SHARD).end();
        }
        if self.balancing {
            out.append("balancingEnabled", true).start_document("balancingEnabledReason");
            out.append("enableBalancing", true).append("allowMigrations", true).end();
            out.append("autoMergingEnabled", true).append("chunkSize", CHUNK_MB);
        }
        out.finish()
    }
}

fn begun(ns: &Namespace, kind: &str) -> DocBuilder {
    let mut out = DocBuilder::new();
    out.append("ns", ns.as_str()).append("db", ns.db()).append("type", kind);
    out
}
