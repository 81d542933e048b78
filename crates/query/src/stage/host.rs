//! The interface through which stages query the server that runs them.

use mayfly_base::Result;
use mayfly_value::{DocBuf, RawDoc};

/// The server that runs a pipeline.
pub trait Host {
    /// The documents of `$currentOp` with these options.
    ///
    /// # Errors
    /// Errors of the options.
    fn current_ops(&self, options: RawDoc<'_>) -> Result<Vec<DocBuf>>;

    /// The documents of `$listLocalCursors`.
    fn local_cursors(&self) -> Vec<DocBuf>;

    /// The documents of `$listLocalSessions` with these options.
    ///
    /// # Errors
    /// Errors of the options.
    fn local_sessions(&self, options: RawDoc<'_>) -> Result<Vec<DocBuf>>;

    /// The documents of `$listSessions` with these options.
    ///
    /// # Errors
    /// Errors of the options.
    fn sessions(&self, options: RawDoc<'_>) -> Result<Vec<DocBuf>>;

    /// The documents of `$querySettings`, with or without the shapes of queries.
    ///
    /// # Errors
    /// Errors of the shapes.
    fn query_settings(&self, with_shapes: bool) -> Result<Vec<DocBuf>>;

    /// The documents of `$queryStats`.
    ///
    /// # Errors
    /// Errors of the store.
    fn query_stats(&self) -> Result<Vec<DocBuf>>;

    /// The documents of `$indexStats` for the collection of the command.
    ///
    /// # Errors
    /// Errors of the store.
    fn index_stats(&self) -> Result<Vec<DocBuf>>;

    /// The documents of `$planCacheStats` for the collection of the command.
    ///
    /// # Errors
    /// Errors of formatting plans.
    fn cached_plans(&self) -> Result<Vec<DocBuf>>;

    /// The document of `$collStats` for the collection of the command. The options were checked.
    ///
    /// # Errors
    /// Errors of the store.
    fn coll_stats(&self, options: RawDoc<'_>) -> Result<Vec<DocBuf>>;

    /// The documents of `$listClusterCatalog` with these options and, unless all databases are
    /// listed, `db`.
    ///
    /// # Errors
    /// Errors of the store.
    fn cluster_catalog(&self, options: RawDoc<'_>) -> Result<Vec<DocBuf>>;

    /// The documents of `$listCatalog` for the collection of the command, or for all collections
    /// if it names none.
    ///
    /// # Errors
    /// Errors of the store.
    fn catalog(&self) -> Result<Vec<DocBuf>>;

    /// The documents of `$listSearchIndexes` with these options, for the collection of the command.
    ///
    /// # Errors
    /// Errors of the store.
    fn search_indexes(&self, options: RawDoc<'_>) -> Result<Vec<DocBuf>>;

    /// The documents of `$ttlStats` for the collection of the command.
    ///
    /// # Errors
    /// Errors of the store.
    fn ttl_stats(&self) -> Result<Vec<DocBuf>>;
}
