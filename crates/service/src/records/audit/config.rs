//! The selection of events: a filter, and whether allowed commands are recorded. If commands may
//! change it, it is stored under the reference's name for it as a cluster parameter.
//!
//! ```text
//! config.clusterParameters   { _id: "auditConfig", clusterParameterTime, generation, filter, auditAuthorizationSuccess }
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::Result;
use mayfly_mql::{Matcher, ParseContext};
use mayfly_storage::Store;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use mayfly_work::OpCtx;

use super::Audit;
use crate::settings::{put, read};

const STORED: (&str, &str) = ("clusterParameters", "auditConfig");

/// Which events are recorded.
#[derive(Clone, Debug, Default)]
pub struct AuditConfig {
    /// A query over events, as sent and as compiled; `None` for all events.
    filter: Option<(DocBuf, Matcher)>,
    /// Whether allowed commands are recorded.
    pub authorization_success: bool,
    /// The id of the change that set it; zeros if no command has changed it.
    pub generation: [u8; 12],
    /// The operation log's timestamp of that change.
    pub time: u64,
}

impl AuditConfig {
    /// A configuration with this filter that does not record allowed commands.
    ///
    /// # Errors
    /// Errors of the filter.
    pub fn new(filter: Option<DocBuf>) -> Result<AuditConfig> {
        let filter = match filter.filter(|filter| !filter.as_doc().is_empty()) {
            Some(filter) => {
                let matcher = Matcher::parse(filter.as_doc(), &ParseContext::default())?;
                Some((filter, matcher))
            }
            None => None,
        };
        Ok(AuditConfig { filter, ..AuditConfig::default() })
    }

    /// Whether an event is recorded. An event on which the filter fails is recorded, because its
    /// absence would go unnoticed.
    pub(crate) fn wants(&self, event: RawDoc<'_>) -> bool {
        self.filter.as_ref().is_none_or(|(_, filter)| filter.matches(event).unwrap_or(true))
    }

    /// Appends the fields as in `getAuditConfig` and cluster parameters.
    pub fn append_to(&self, out: &mut DocBuilder) {
        let filter = self.filter.as_ref().map_or(RawDoc::EMPTY, |(filter, _)| filter.as_doc());
        out.append("filter", filter);
        out.append("auditAuthorizationSuccess", self.authorization_success);
    }
}

impl Audit {
    pub(crate) fn install(&self, config: AuditConfig) {
        self.authorization_success.store(config.authorization_success, Ordering::Relaxed);
        *self.config.write() = Arc::new(config);
    }
}

/// The stored configuration; `None` if no command has ever changed it.
pub(crate) fn load(store: &Store) -> Result<Option<AuditConfig>> {
    let Some(stored) = read(store, STORED)? else { return Ok(None) };
    let stored = stored.as_doc();
    let filter = stored.get("filter").and_then(RawValue::as_document).map(RawDoc::to_owned);
    let success = stored.get("auditAuthorizationSuccess") == Some(RawValue::Bool(true));
    let mut config = AuditConfig::new(filter)?;
    config.authorization_success = success;
    if let Some(RawValue::ObjectId(generation)) = stored.get("generation") {
        config.generation = generation;
    }
    if let Some(RawValue::Timestamp(time)) = stored.get("clusterParameterTime") {
        config.time = time;
    }
    Ok(Some(config))
}

impl AuditConfig {
    /// Stores the configuration as a new change.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn store(&mut self, store: &Store, op: &OpCtx) -> Result<()> {
        self.generation = mayfly_value::new_object_id(op.now_ms());
        self.time = store.new_timestamp();
        let mut out = DocBuilder::new();
        out.append("_id", STORED.1);
        out.append("clusterParameterTime", RawValue::Timestamp(self.time));
        out.append("generation", RawValue::ObjectId(self.generation));
        self.append_to(&mut out);
        put(store, op, STORED, out.finish().as_doc())
    }
}
