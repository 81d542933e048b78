//! The sources of figures at one moment. A costly source is read once, when the first row needs it.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use mayfly_kv::EngineStats;
use mayfly_storage::ReadView;
use mayfly_work::OpCtx;

use crate::counters::PolicyFigure;
use crate::process::usage;
use crate::search::SearchTotals;
use crate::server::Service;
use crate::sessions::{CursorCounts, TransactionCounts};

/// Figures of a server at one moment.
pub struct Reading<'s> {
    /// The server whose figures are read.
    pub service: &'s Service,
    /// The names of the commands, by their index in the command table.
    pub commands: &'s [&'static str],
    catalog: OnceCell<CatalogCounts>,
    engine: OnceCell<EngineStats>,
    running: OnceCell<Vec<Arc<OpCtx>>>,
    cursors: OnceCell<CursorCounts>,
    transactions: OnceCell<TransactionCounts>,
    memory: OnceCell<usage::Memory>,
    messages: OnceCell<(usize, usize, u64)>,
    policies: OnceCell<Arc<[PolicyFigure]>>,
    search: OnceCell<SearchTotals>,
}

/// The numbers of collections by sort.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CatalogCounts {
    pub(super) collections: i64,
    pub(super) capped: i64,
    pub(super) clustered: i64,
    pub(super) time_series: i64,
    pub(super) views: i64,
    pub(super) internal_collections: i64,
}

impl<'s> Reading<'s> {
    /// Reads the figures of a server. `commands` are the names of its commands by their index in
    /// the command table.
    pub fn new(service: &'s Service, commands: &'s [&'static str]) -> Reading<'s> {
        Reading {
            service,
            commands,
            catalog: OnceCell::new(),
            engine: OnceCell::new(),
            running: OnceCell::new(),
            cursors: OnceCell::new(),
            transactions: OnceCell::new(),
            memory: OnceCell::new(),
            messages: OnceCell::new(),
            policies: OnceCell::new(),
            search: OnceCell::new(),
        }
    }

    pub(super) fn engine(&self) -> &EngineStats {
        self.engine.get_or_init(|| self.service.store.engine_stats())
    }

    /// Sums over all search indexes.
    pub(super) fn search(&self) -> SearchTotals {
        *self.search.get_or_init(|| SearchTotals::of(&self.service.store))
    }

    /// The running operations.
    pub(super) fn running(&self) -> &[Arc<OpCtx>] {
        self.running.get_or_init(|| self.service.ops.list())
    }

    /// The number of running operations that read.
    pub(super) fn running_reads(&self) -> i64 {
        let reads = |op: &&Arc<OpCtx>| matches!(op.info().op, "query" | "getmore" | "command");
        self.running().iter().filter(reads).count() as i64
    }

    pub(super) fn cursors(&self) -> &CursorCounts {
        let now = || self.service.clock.monotonic_micros();
        self.cursors.get_or_init(|| self.service.cursors.counts(now()))
    }

    pub(super) fn transactions(&self) -> &TransactionCounts {
        self.transactions.get_or_init(|| self.service.sessions.transactions.counts())
    }

    pub(super) fn memory(&self) -> &usage::Memory {
        self.memory.get_or_init(usage::memory)
    }

    /// Bytes of incoming requests, bytes of unsent replies, and the number of connections that were
    /// closed to free memory of requests.
    pub(super) fn messages(&self) -> (usize, usize, u64) {
        *self.messages.get_or_init(|| self.service.buffers.counts())
    }

    /// The figures of TTL policies, those with most lag first.
    pub(super) fn policies(&self) -> &[PolicyFigure] {
        let Service { store, clock, policies, .. } = self.service;
        self.policies.get_or_init(|| policies.get(store, clock))
    }

    pub(super) fn catalog(&self) -> &CatalogCounts {
        self.catalog.get_or_init(|| count_catalog(self.service))
    }
}

fn count_catalog(service: &Service) -> CatalogCounts {
    let mut counts = CatalogCounts::default();
    let mut databases = BTreeSet::new();
    for collection in service.store.collections(None) {
        let ns = collection.namespace();
        let internal = matches!(ns.db(), "admin" | "config" | "local");
        let system = ns.collection().starts_with("system.");
        let count = match internal || system {
            true => &mut counts.internal_collections,
            false => &mut counts.collections,
        };
        *count += 1;
        counts.capped += i64::from(collection.capped().is_some());
        counts.time_series += i64::from(collection.time_series().is_some());
        let clustered = collection.options().as_doc().get("clusteredIndex").is_some();
        counts.clustered += i64::from(clustered);
        if !databases.contains(ns.db()) {
            databases.insert(ns.db().to_owned());
        }
    }
    // A database whose views cannot be read counts as having none.
    let views = |db: &String| {
        service.store.views(&ReadView::now(), db).map_or(0, |views| views.len() as i64)
    };
    counts.views = databases.iter().map(views).sum();
    counts
}
