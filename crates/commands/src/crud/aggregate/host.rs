//! The server and the command's collection as stages see them.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_query::{Host, cached_plans};
use mayfly_service::QuerySetting;
use mayfly_storage::Collection;
use mayfly_storage::ttl::DueCount;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::not_on_views;
use crate::context::CommandContext;
use crate::diagnostics::catalog::{catalog, catalog_entry};
use crate::diagnostics::cluster_catalog::cluster_catalog;
use crate::diagnostics::coll_stats::{
    CountedAs, coll_stats_document, log_stats_document, view_stats_document,
};
use crate::diagnostics::current_op::{CurrentOpOptions, OperationOwner, current_ops};
use crate::diagnostics::index_stats::index_stats;
use crate::diagnostics::open_cursors::local_cursors;
use crate::diagnostics::query_stats::query_stats;
use crate::diagnostics::search_indexes::listed;
use crate::request::Fields;

/// The subject of a stage that reads no documents.
pub(super) enum Described {
    /// A collection.
    Documents(Arc<Collection>),
    /// The measurements of a time series, by its buckets.
    Measurements(Arc<Collection>),
    /// A view, of which the use and the search indexes are known.
    View(Namespace),
    /// The operation log.
    Log,
    Nothing,
}

impl Described {
    fn collection(&self) -> Option<&Collection> {
        match self {
            Described::Documents(collection) | Described::Measurements(collection) => {
                Some(collection)
            }
            Described::View(_) | Described::Log | Described::Nothing => None,
        }
    }
}

pub(super) struct ServerHost<'a, 'c> {
    pub(super) ctx: &'a CommandContext<'c>,
    pub(super) described: Described,
}

impl Host for ServerHost<'_, '_> {
    fn current_ops(&self, options: RawDoc<'_>) -> Result<Vec<DocBuf>> {
        let fields = Fields::new(options, "$currentOp");
        let all_users = fields.bool("allUsers")?.unwrap_or(false);
        let options = CurrentOpOptions {
            whose: if all_users { OperationOwner::All } else { OperationOwner::of(self.ctx) },
            idle_connections: fields.bool("idleConnections")?.unwrap_or(false),
            idle_cursors: fields.bool("idleCursors")?.unwrap_or(false),
            idle_sessions: fields.bool("idleSessions")?.unwrap_or(true),
            truncate_ops: fields.bool("truncateOps")?.unwrap_or(false),
        };
        Ok(current_ops(self.ctx.service, &options))
    }

    fn local_cursors(&self) -> Vec<DocBuf> {
        local_cursors(self.ctx.service)
    }

    fn local_sessions(&self, options: RawDoc<'_>) -> Result<Vec<DocBuf>> {
        crate::diagnostics::local_sessions::local_sessions(self.ctx, "$listLocalSessions", options)
    }

    fn sessions(&self, options: RawDoc<'_>) -> Result<Vec<DocBuf>> {
        crate::diagnostics::local_sessions::local_sessions(self.ctx, "$listSessions", options)
    }

    fn query_settings(&self, with_shapes: bool) -> Result<Vec<DocBuf>> {
        Ok(list_settings(self.ctx, with_shapes))
    }

    fn query_stats(&self) -> Result<Vec<DocBuf>> {
        Ok(query_stats(self.ctx))
    }

    fn coll_stats(&self, options: RawDoc<'_>) -> Result<Vec<DocBuf>> {
        Ok(vec![match &self.described {
            Described::Documents(collection) => {
                coll_stats_document(self.ctx, collection, CountedAs::Documents, options)?
            }
            Described::Measurements(buckets) => {
                coll_stats_document(self.ctx, buckets, CountedAs::Measurements, options)?
            }
            Described::Log => log_stats_document(self.ctx, options)?,
            Described::View(ns) if options.iter().all(|part| part.name() == "latencyStats") => {
                view_stats_document(self.ctx, ns, options)?
            }
            Described::View(_) => return Err(not_on_views("$collStats")),
            Described::Nothing => return Ok(Vec::new()),
        }])
    }

    fn index_stats(&self) -> Result<Vec<DocBuf>> {
        let specs = match &self.described {
            Described::Measurements(buckets) => buckets.list_measurement_indexes(),
            Described::Documents(collection) => collection.list_indexes(),
            Described::View(_) | Described::Log | Described::Nothing => Vec::new(),
        };
        let list = |collection| index_stats(self.ctx.service, collection, &specs);
        Ok(self.described.collection().map(list).unwrap_or_default())
    }

    fn cached_plans(&self) -> Result<Vec<DocBuf>> {
        match (&self.described, self.described.collection()) {
            (_, Some(collection)) => cached_plans(collection, &self.ctx.service.host),
            (Described::Nothing, None) => Err(Error::new(
                ErrorCode(50933),
                "the collection of $planCacheStats does not exist",
            )),
            (_, None) => Ok(Vec::new()),
        }
    }

    fn cluster_catalog(&self, options: RawDoc<'_>) -> Result<Vec<DocBuf>> {
        cluster_catalog(self.ctx, options)
    }

    fn catalog(&self) -> Result<Vec<DocBuf>> {
        match &self.described {
            Described::Nothing => catalog(self.ctx),
            Described::Documents(collection) => Ok(vec![catalog_entry(self.ctx, collection)]),
            Described::Measurements(_) | Described::View(_) | Described::Log => Ok(Vec::new()),
        }
    }

    fn search_indexes(&self, options: RawDoc<'_>) -> Result<Vec<DocBuf>> {
        match &self.described {
            Described::Documents(collection) => listed(self.ctx, &collection.namespace(), options),
            Described::View(ns) => listed(self.ctx, ns, options),
            Described::Measurements(_) | Described::Log | Described::Nothing => Ok(Vec::new()),
        }
    }

    fn ttl_stats(&self) -> Result<Vec<DocBuf>> {
        let Some(collection) = self.described.collection() else { return Ok(Vec::new()) };
        let statuses = self.ctx.service.store.ttl_status(self.ctx.op, collection, DueCount::All)?;
        let documents = statuses.iter().map(|status| {
            let mut document = DocBuilder::new();
            status.append_to(&mut document);
            document.finish()
        });
        Ok(documents.collect())
    }
}

/// The documents of `$querySettings`.
fn list_settings(ctx: &CommandContext<'_>, with_shapes: bool) -> Vec<DocBuf> {
    let document = |setting: &Arc<QuerySetting>| {
        let mut out = DocBuilder::new();
        setting.append_to(&mut out);
        if with_shapes && let Some(shape) = setting.shape() {
            out.append("debugQueryShape", RawValue::Document(shape.as_doc()));
        }
        out.finish()
    };
    ctx.service.query_settings.all().iter().map(document).collect()
}
