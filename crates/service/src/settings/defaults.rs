//! Read and write concerns of operations that give none. They are a document of the database
//! `config`, as in the reference, and are read at startup.
//!
//! ```text
//! config.settings   { _id: "ReadWriteConcernDefaults", defaultReadConcern?, defaultWriteConcern?,
//!                     updateOpTime, updateWallClockTime }
//! ```

use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_base::Result;
use mayfly_storage::Store;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use mayfly_work::OpCtx;
use parking_lot::Mutex;

use super::stored::{put, read};

const CONCERNS: (&str, &str) = ("settings", "ReadWriteConcernDefaults");

/// The default concerns.
#[derive(Clone, Debug, Default)]
pub struct DefaultConcerns {
    /// The read concern, if one was set.
    pub read: Option<DocBuf>,
    /// The write concern, if one was set.
    pub write: Option<DocBuf>,
    /// When one was last set: the operation log's timestamp, and milliseconds since 1970.
    pub updated: Option<(u64, i64)>,
    /// When this server read or set them, in milliseconds since 1970.
    pub loaded_ms: i64,
}

/// The defaults of read and write concern.
#[derive(Default)]
pub struct Defaults {
    concerns: Mutex<DefaultConcerns>,
    has_concerns: AtomicBool,
}

impl Defaults {
    /// Reads the stored defaults.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn load(store: &Store, now_ms: i64) -> Result<Defaults> {
        let mut concerns = DefaultConcerns { loaded_ms: now_ms, ..DefaultConcerns::default() };
        if let Some(stored) = read(store, CONCERNS)? {
            let stored = stored.as_doc();
            let part = |name| stored.get(name).and_then(RawValue::as_document);
            concerns.read = part("defaultReadConcern").map(RawDoc::to_owned);
            concerns.write = part("defaultWriteConcern").map(RawDoc::to_owned);
            if concerns.write.as_ref().is_some_and(|write| !can_be_met(write.as_doc())) {
                tracing::warn!(
                    "the default write concern in config.{} is not used, because this server cannot satisfy it",
                    CONCERNS.0
                );
                concerns.write = None;
            }
            concerns.updated = match (stored.get("updateOpTime"), stored.get("updateWallClockTime"))
            {
                (Some(RawValue::Timestamp(at)), Some(RawValue::Date(wall))) => Some((at, wall)),
                _ => None,
            };
        }
        let defaults = Defaults::default();
        defaults.set(concerns);
        Ok(defaults)
    }

    /// Takes over defaults that were loaded.
    pub(crate) fn adopt(&self, loaded: Defaults) {
        self.set(loaded.concerns.into_inner());
    }

    /// The current default concerns.
    pub fn get(&self) -> DefaultConcerns {
        self.concerns.lock().clone()
    }

    /// Whether one of the concerns was set.
    pub fn has_concerns(&self) -> bool {
        self.has_concerns.load(Ordering::Relaxed)
    }

    /// Stores and applies default concerns.
    ///
    /// # Errors
    /// Errors of the engine; the old ones stay in effect.
    pub fn keep(&self, store: &Store, op: &OpCtx, concerns: DefaultConcerns) -> Result<()> {
        let now_ms = op.now_ms();
        let timestamp = store.new_timestamp();
        let mut out = DocBuilder::new();
        out.append("_id", CONCERNS.1);
        if let Some(read) = &concerns.read {
            out.append("defaultReadConcern", read);
        }
        if let Some(write) = &concerns.write {
            out.append("defaultWriteConcern", write);
        }
        out.append("updateOpTime", RawValue::Timestamp(timestamp));
        out.append("updateWallClockTime", RawValue::Date(now_ms));
        put(store, op, CONCERNS, out.finish().as_doc())?;
        let updated = Some((timestamp, now_ms));
        self.set(DefaultConcerns { updated, loaded_ms: now_ms, ..concerns });
        Ok(())
    }

    fn set(&self, concerns: DefaultConcerns) {
        let set = concerns.read.is_some() || concerns.write.is_some();
        *self.concerns.lock() = concerns;
        self.has_concerns.store(set, Ordering::Relaxed);
    }
}

/// Whether this server can meet a stored write concern. A restored configuration may come from a
/// larger cluster, and would refuse every write that gives none. Modes depend on the configuration
/// of the set, and are checked when they are used.
fn can_be_met(write: RawDoc<'_>) -> bool {
    write.iter().all(|part| {
        matches!(
            (part.name(), part.value()),
            ("w", RawValue::String(_) | RawValue::Document(_))
                | ("w", RawValue::Int32(1) | RawValue::Int64(1))
                | ("j", RawValue::Bool(_))
                | ("wtimeout", RawValue::Int32(_) | RawValue::Int64(_))
        )
    })
}
