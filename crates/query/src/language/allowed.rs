//! The indexes that a query may use where somebody else than its client says so: an index filter, or query settings.

use std::sync::Arc;

use mayfly_base::Namespace;
use mayfly_value::{DocBuf, RawDoc, compare_docs};

use super::Hint;

/// Who says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowedBy {
    /// An index filter: where none of the indexes serves, the collection is scanned.
    IndexFilter,
    /// Query settings: where none of the indexes serves, the query is planned as if there were none.
    QuerySettings,
}

/// Indexes by name and by key pattern.
#[derive(Clone, Debug)]
pub struct AllowedIndexes {
    by: AllowedBy,
    names: Vec<String>,
    keys: Vec<DocBuf>,
    /// Scans of the collection.
    forward: bool,
    backward: bool,
}

impl AllowedIndexes {
    /// None so far.
    pub fn none(by: AllowedBy) -> AllowedIndexes {
        AllowedIndexes { by, names: Vec::new(), keys: Vec::new(), forward: false, backward: false }
    }

    /// Allows what a hint names.
    pub fn allow(&mut self, hint: Hint) {
        match hint {
            Hint::Name(name) => {
                if !self.names.contains(&name) {
                    self.names.push(name);
                }
            }
            Hint::Key(key) => {
                if !self.has_key(key.as_doc()) {
                    self.keys.push(key);
                }
            }
            Hint::Natural { backward: false } => self.forward = true,
            Hint::Natural { backward: true } => self.backward = true,
            Hint::Between { index, .. } => self.allow(*index),
        }
    }

    /// Who allows them.
    pub fn by(&self) -> AllowedBy {
        self.by
    }

    /// Those that are named by their key patterns.
    pub fn keys(&self) -> &[DocBuf] {
        &self.keys
    }

    /// Those that are named.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether an index of this name and key is among them.
    pub fn has(&self, name: &str, key: RawDoc<'_>) -> bool {
        self.names.iter().any(|allowed| allowed == name) || self.has_key(key)
    }

    fn has_key(&self, key: RawDoc<'_>) -> bool {
        self.keys.iter().any(|allowed| compare_docs(allowed.as_doc(), key).is_eq())
    }

    /// Whether the collection may be scanned although an index could serve.
    pub fn scans(&self) -> bool {
        self.forward || self.backward
    }

    /// The direction of the scan where nothing else is allowed: whether it goes backward.
    pub fn only_scan(&self) -> Option<bool> {
        let indexes = !self.names.is_empty() || !self.keys.is_empty();
        (!indexes && self.scans()).then_some(!self.forward)
    }
}

/// The indexes that a command may use of each of the collections that it reads.
#[derive(Clone, Debug, Default)]
pub struct IndexHints(Vec<(Namespace, Arc<AllowedIndexes>)>);

impl IndexHints {
    /// Adds those of a collection. False when there are some of it.
    pub fn add(&mut self, ns: Namespace, allowed: AllowedIndexes) -> bool {
        let new = self.of(&ns).is_none();
        if new {
            self.0.push((ns, Arc::new(allowed)));
        }
        new
    }

    /// Those of a collection.
    pub fn of(&self, ns: &Namespace) -> Option<&Arc<AllowedIndexes>> {
        self.0.iter().find(|(named, _)| named == ns).map(|(_, allowed)| allowed)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
