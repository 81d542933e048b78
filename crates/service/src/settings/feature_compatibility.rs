//! The feature compatibility version, stored over restarts: `setFeatureCompatibilityVersion`.
//!
//! ```text
//! admin.system.version   { _id: "featureCompatibilityVersion", version }
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};

use mayfly_base::{Namespace, Result};
use mayfly_storage::Store;
use mayfly_value::{DocBuilder, RawValue};
use mayfly_work::OpCtx;

use crate::documents;

const ID: &str = "featureCompatibilityVersion";

/// The valid versions.
const VERSIONS: &[&str] = &["8.0", "8.2"];

/// The version of a new server, as a place in [`VERSIONS`].
const NEWEST: usize = VERSIONS.len() - 1;

/// The version of the reference whose features clients may expect. It selects no format of the
/// data: every version reads the data of the other.
#[derive(Debug)]
pub struct FeatureCompatibility {
    /// A place in [`VERSIONS`].
    current: AtomicUsize,
}

impl Default for FeatureCompatibility {
    fn default() -> FeatureCompatibility {
        FeatureCompatibility { current: AtomicUsize::new(NEWEST) }
    }
}

impl FeatureCompatibility {
    /// Reads the stored version.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn load(store: &Store) -> Result<FeatureCompatibility> {
        let stored = documents::read(store, &place()?, ID)?;
        let version = stored.as_ref().and_then(|stored| stored.as_doc().get("version"));
        let current = version.and_then(RawValue::as_str).and_then(position).unwrap_or(NEWEST);
        Ok(FeatureCompatibility { current: AtomicUsize::new(current) })
    }

    /// Takes over a version that was loaded.
    pub(crate) fn adopt(&self, loaded: &FeatureCompatibility) {
        self.current.store(loaded.current.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The version in effect.
    pub fn current(&self) -> &'static str {
        VERSIONS.get(self.current.load(Ordering::Relaxed)).copied().unwrap_or_default()
    }

    /// The valid version with this name.
    pub fn find(name: &str) -> Option<&'static str> {
        VERSIONS.iter().find(|version| **version == name).copied()
    }

    /// The valid versions, for a message.
    pub fn names() -> String {
        format!("'{}'", VERSIONS.join("' or '"))
    }

    /// Changes the version, now and after a restart. A name that is not valid has no effect.
    ///
    /// # Errors
    /// Errors of the engine; the old version stays in effect.
    pub fn set(&self, store: &Store, op: &OpCtx, version: &str) -> Result<()> {
        let Some(position) = position(version) else { return Ok(()) };
        let mut out = DocBuilder::new();
        out.append("_id", ID);
        out.append("version", version);
        documents::put(store, op, &place()?, ID, out.finish().as_doc())?;
        self.current.store(position, Ordering::Relaxed);
        Ok(())
    }
}

fn position(name: &str) -> Option<usize> {
    VERSIONS.iter().position(|version| *version == name)
}

fn place() -> Result<Namespace> {
    Namespace::new("admin", "system.version")
}
