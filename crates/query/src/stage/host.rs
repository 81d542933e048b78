//! What stages may ask of the server that runs them.

use mayfly_base::Result;
use mayfly_value::{DocBuf, RawDoc};

/// The server around a pipeline.
pub trait Host {
    /// The documents of `$currentOp` with these options.
    ///
    /// # Errors
    /// Those of the options.
    fn current_ops(&self, options: RawDoc<'_>) -> Result<Vec<DocBuf>>;

    /// The documents of `$listLocalSessions` with these options.
    ///
    /// # Errors
    /// Those of the options.
    fn local_sessions(&self, options: RawDoc<'_>) -> Result<Vec<DocBuf>>;

    /// The documents of `$listSessions` with these options.
    ///
    /// # Errors
    /// Those of the options.
    fn sessions(&self, options: RawDoc<'_>) -> Result<Vec<DocBuf>>;

    /// The documents of `$querySettings`, with the shapes of queries or without.
    ///
    /// # Errors
    /// Those of the shapes.
    fn query_settings(&self, with_shapes: bool) -> Result<Vec<DocBuf>>;

    /// The documents of `$indexStats` about the collection of the command.
    ///
    /// # Errors
    /// Those of the store.
    fn index_stats(&self) -> Result<Vec<DocBuf>>;

    /// The documents of `$planCacheStats` about the collection of the command.
    ///
    /// # Errors
    /// Those of showing plans.
    fn cached_plans(&self) -> Result<Vec<DocBuf>>;

    /// The document of `$collStats` about the collection of the command, with these options, which were checked.
    ///
    /// # Errors
    /// Those of the store.
    fn coll_stats(&self, options: RawDoc<'_>) -> Result<Vec<DocBuf>>;

    /// The documents of `$ttlStats` about the collection of the command.
    ///
    /// # Errors
    /// Those of the store.
    fn ttl_stats(&self) -> Result<Vec<DocBuf>>;
}
