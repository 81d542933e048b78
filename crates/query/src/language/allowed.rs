//! The indexes that a query may use by an index filter or by query settings, rather than by the
//! client's hint.

use std::sync::Arc;

use mayfly_base::Namespace;
use mayfly_value::{DocBuf, RawDoc, compare_docs};

use super::Hint;

/// The origin of a restriction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowedBy {
    /// An index filter. If none of its indexes serves the query, the collection is scanned.
    IndexFilter,
    /// Query settings. If none of their indexes serves the query, it is planned without them.
    QuerySettings,
}

/// A set of indexes, by name and by key pattern.
#[derive(Clone, Debug)]
pub struct AllowedIndexes {
    by: AllowedBy,
    names: Vec<String>,
    keys: Vec<DocBuf>,
    /// Whether collection scans in this direction are allowed.
    forward: bool,
    backward: bool,
}

impl AllowedIndexes {
    /// An empty set.
    pub fn none(by: AllowedBy) -> AllowedIndexes {
        AllowedIndexes { by, names: Vec::new(), keys: Vec::new(), forward: false, backward: false }
    }

    /// Adds the index or scan of a hint.
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

    /// The origin of the restriction.
    pub fn by(&self) -> AllowedBy {
        self.by
    }

    /// The indexes given by key patterns.
    pub fn keys(&self) -> &[DocBuf] {
        &self.keys
    }

    /// The indexes given by name.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether an index with this name and key pattern is in the set.
    pub fn has(&self, name: &str, key: RawDoc<'_>) -> bool {
        self.names.iter().any(|allowed| allowed == name) || self.has_key(key)
    }

    fn has_key(&self, key: RawDoc<'_>) -> bool {
        self.keys.iter().any(|allowed| compare_docs(allowed.as_doc(), key).is_eq())
    }

    /// Whether a collection scan is allowed even if an index could serve the query.
    pub fn scans(&self) -> bool {
        self.forward || self.backward
    }

    /// If only collection scans are allowed: whether the scan runs backward.
    pub fn only_scan(&self) -> Option<bool> {
        let indexes = !self.names.is_empty() || !self.keys.is_empty();
        (!indexes && self.scans()).then_some(!self.forward)
    }
}

/// The indexes that a command may use, for each collection that it reads.
#[derive(Clone, Debug, Default)]
pub struct IndexHints(Vec<(Namespace, Arc<AllowedIndexes>)>);

impl IndexHints {
    /// Adds the indexes of a collection. Returns false if it already has some.
    pub fn add(&mut self, ns: Namespace, allowed: AllowedIndexes) -> bool {
        let new = self.of(&ns).is_none();
        if new {
            self.0.push((ns, Arc::new(allowed)));
        }
        new
    }

    /// The indexes of a collection.
    pub fn of(&self, ns: &Namespace) -> Option<&Arc<AllowedIndexes>> {
        self.0.iter().find(|(named, _)| named == ns).map(|(_, allowed)| allowed)
    }

    /// Whether no collection has a restriction.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
