//! The definition of an index: checked, normalised, and in the form that `listIndexes` shows.
//!
//! Sources: the manual's pages "createIndexes" and "TTL Indexes"; texts and codes of TTL options
//! from the expiry contract, section 1.

mod checks;
mod request;
#[cfg(test)]
mod tests;
mod types;

use std::sync::Arc;

use mayfly_base::{Result, limits};
use mayfly_value::{
    ChangedPath, Collation, DocBuf, DocBuilder, RawDoc, RawValue, SortOrder, compare_docs,
    same_collation,
};

use crate::index::kinds::{self, FieldKind, Kind, Maintenance};
use crate::policy::value::listed_expire_after;
use crate::policy::{ExpireAfter, TtlOptions};

use checks::check_key;
pub(super) use checks::{collation_option, key_pattern, name, version};
pub(crate) use request::{Requested, SpecRules, in_spec_context};

/// One field of an index key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexField {
    /// The dotted path, such as `a.b`.
    pub path: String,
    /// The path's components.
    pub parts: Vec<String>,
    /// The order of its values.
    pub order: SortOrder,
    /// The form in which an entry contains the values at the path.
    pub kind: FieldKind,
}

impl IndexField {
    /// A field with this dotted path.
    pub fn new(path: &str, order: SortOrder, kind: FieldKind) -> IndexField {
        let parts = path.split('.').map(str::to_owned).collect();
        IndexField { path: path.to_owned(), parts, order, kind }
    }
}

/// The checked definition of an index.
#[derive(Clone, Debug)]
pub struct IndexSpec {
    /// The definition as `listIndexes` shows it: v, key, name, options.
    document: DocBuf,
    name: String,
    fields: Vec<IndexField>,
    kind: Kind,
    unique: bool,
    sparse: bool,
    hidden: bool,
    /// Writes may add no second document with a key, although there may be duplicates already.
    prepare_unique: bool,
    expire_after: Option<ExpireAfter>,
    /// The options of the policy other than its time to live.
    ttl: Arc<TtlOptions>,
    /// Entries are the dates of the last modification (`_ts`).
    last_modified: bool,
    collation: Option<Arc<Collation>>,
    /// The request names no collation and inherits that of the collection.
    inherits: bool,
}

/// The flag of a last-modified policy in the catalog; never listed.
const LAST_MODIFIED: &str = "lastModified";

/// The document in this field.
fn part<'d>(document: RawDoc<'d>, name: &str) -> Option<RawDoc<'d>> {
    document.get(name)?.as_document()
}

/// Whether two filters have the same conditions, in any order.
fn same_filters(one: Option<RawDoc<'_>>, other: Option<RawDoc<'_>>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return one == other };
    let sorted = |filter| {
        let mut found = Vec::new();
        add_conditions(filter, 0, &mut found);
        found.sort_by(|a: &DocBuf, b| compare_docs(a.as_doc(), b.as_doc()));
        found
    };
    one == other || sorted(one) == sorted(other)
}

/// Adds the conditions of a filter, also those below `$and`.
fn add_conditions(filter: RawDoc<'_>, depth: usize, found: &mut Vec<DocBuf>) {
    for element in filter {
        match (element.name(), element.value()) {
            ("$and", RawValue::Array(parts)) if depth < limits::MAX_FILTER_DEPTH => {
                let parts = parts.iter().filter_map(|part| part.value().as_document());
                parts.for_each(|part| add_conditions(part, depth + 1, found));
            }
            _ => {
                let mut condition = DocBuilder::new();
                condition.append_element(element);
                found.push(condition.finish());
            }
        }
    }
}

impl IndexSpec {
    /// Parses a definition of the catalog. Ignores invalid options; the key must be valid.
    ///
    /// # Errors
    /// 67 CannotCreateIndex when the key is unusable.
    pub fn from_catalog(document: DocBuf) -> Result<IndexSpec> {
        let raw = document.as_doc();
        let key = key_pattern(raw)?;
        check_key(key)?;
        let fields = kinds::fields_of_key(key);
        let kind = Kind::from_catalog(raw, key)?;
        let flag = |name| matches!(raw.get(name), Some(RawValue::Bool(true)));
        let (unique, sparse, hidden) = (flag("unique"), flag("sparse"), flag("hidden"));
        let prepare_unique = flag("prepareUnique");
        let name = raw.get("name").and_then(RawValue::as_str).unwrap_or_default().to_owned();
        let last_modified = flag(LAST_MODIFIED);
        let expire_after = raw.get("expireAfterSeconds");
        let expire_after = expire_after.map(|value| listed_expire_after(value, last_modified));
        let ttl = Arc::new(TtlOptions::from_catalog(raw.get("ttl")));
        let collation = Collation::of_options(raw)?;
        let inherits = false;
        Ok(IndexSpec {
            document,
            name,
            fields,
            kind,
            unique,
            sparse,
            hidden,
            prepare_unique,
            expire_after,
            ttl,
            last_modified,
            collation,
            inherits,
        })
    }

    /// Whether it has no collation of its own.
    pub(crate) fn inherits(&self) -> bool {
        self.inherits
    }

    /// The definition as one without a collation of its own.
    pub(crate) fn without_own_collation(self) -> IndexSpec {
        IndexSpec { inherits: true, ..self }
    }

    /// The definition with the collation that it inherits from its collection.
    pub(crate) fn inheriting(self, default: Option<&Arc<Collation>>) -> IndexSpec {
        match default {
            Some(collation) if self.inherits => {
                let shown = RawValue::Document(collation.document());
                let document = self.with_option("collation", Some(shown));
                IndexSpec { document, collation: Some(collation.clone()), inherits: false, ..self }
            }
            _ => self,
        }
    }

    /// The definition as `listIndexes` shows it; an invalid `expireAfterSeconds` is replaced by
    /// 2147483647.
    pub fn listed(&self) -> DocBuf {
        if self.expire_after == Some(ExpireAfter::Invalid) {
            return self.with_option("expireAfterSeconds", Some(RawValue::Int32(i32::MAX)));
        }
        match self.last_modified {
            true => self.with_option(LAST_MODIFIED, None),
            false => self.document.clone(),
        }
    }

    /// The definition as it is stored in the catalog.
    pub fn document(&self) -> RawDoc<'_> {
        self.document.as_doc()
    }

    /// The definition document with one option set (in place, else at the end) or removed.
    fn with_option(&self, name: &str, value: Option<RawValue<'_>>) -> DocBuf {
        let mut out = DocBuilder::new();
        let mut found = false;
        for element in self.document.as_doc() {
            if element.name() == name {
                found = true;
                if let Some(value) = value {
                    out.append(name, value);
                }
            } else {
                out.append_element(element);
            }
        }
        if let (false, Some(value)) = (found, value) {
            out.append(name, value);
        }
        out.finish()
    }

    /// Whether the keys of a document may depend on the values at these paths. Only the names of
    /// the first level are compared: no array is above them, whose positions a path can name or
    /// leave out. Indexes of special kinds may read any path.
    pub(crate) fn reads(&self, paths: &[ChangedPath<'_>]) -> bool {
        let is_read = |path: &ChangedPath<'_>| {
            let name = path.parts.first().map(|name| &**name);
            self.fields.iter().any(|field| field.parts.first().map(String::as_str) == name)
        };
        self.last_modified || self.kind.special().is_some() || paths.iter().any(is_read)
    }

    /// The definition with another time to live.
    #[must_use]
    pub fn with_expire_after(&self, expire_after: ExpireAfter) -> IndexSpec {
        let seconds = RawValue::Int32(expire_after.listed_secs());
        let document = self.with_option("expireAfterSeconds", Some(seconds));
        IndexSpec { document, expire_after: Some(expire_after), ..self.clone() }
    }

    /// The definition without a time to live.
    #[must_use]
    pub fn without_expire_after(&self) -> IndexSpec {
        let document = self.with_option("expireAfterSeconds", None);
        let plain = IndexSpec { document, expire_after: None, ..self.clone() };
        plain.with_ttl_options(RawDoc::EMPTY)
    }

    /// The definition with another document `ttl`, which was parsed before; without one when it is
    /// empty.
    #[must_use]
    pub fn with_ttl_options(&self, ttl: RawDoc<'_>) -> IndexSpec {
        let value = (!ttl.is_empty()).then_some(RawValue::Document(ttl));
        let document = self.with_option("ttl", value);
        IndexSpec { document, ttl: Arc::new(TtlOptions::from_catalog(value)), ..self.clone() }
    }

    /// The definition, hidden from the planner or not.
    #[must_use]
    pub fn with_hidden(&self, hidden: bool) -> IndexSpec {
        let document = self.with_option("hidden", hidden.then_some(RawValue::Bool(true)));
        IndexSpec { document, hidden, ..self.clone() }
    }

    /// The definition with `prepareUnique` set or not.
    #[must_use]
    pub fn with_prepare_unique(&self, prepare_unique: bool) -> IndexSpec {
        let set = prepare_unique.then_some(RawValue::Bool(true));
        let document = self.with_option("prepareUnique", set);
        IndexSpec { document, prepare_unique, ..self.clone() }
    }

    /// The definition with `unique`, which `prepareUnique` has prepared.
    #[must_use]
    pub fn with_unique(&self) -> IndexSpec {
        let prepared = self.with_prepare_unique(false);
        let document = prepared.with_option("unique", Some(RawValue::Bool(true)));
        IndexSpec { document, unique: true, ..prepared }
    }

    /// The name of the index, unique in its collection.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key pattern.
    pub fn key(&self) -> RawDoc<'_> {
        self.document.as_doc().get("key").and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY)
    }

    /// The kind of the index.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The fields of an entry: those of the key pattern, and for a wildcard the path before the
    /// value.
    pub fn fields(&self) -> &[IndexField] {
        &self.fields
    }

    /// Whether two documents may not share a key.
    pub fn unique(&self) -> bool {
        self.unique
    }

    /// Whether documents without any of the fields have no entry.
    pub fn sparse(&self) -> bool {
        self.sparse
    }

    /// Whether writes may add no second document with a key, although there may be duplicates
    /// already.
    pub fn prepare_unique(&self) -> bool {
        self.prepare_unique
    }

    /// Whether entries come from the operation log instead of the writes ([`crate::feed`]).
    pub fn is_log_fed(&self) -> bool {
        self.kind.row().is_some_and(|row| row.maintenance == Maintenance::Log)
    }

    /// Whether the planner ignores the index.
    pub fn hidden(&self) -> bool {
        self.hidden
    }

    /// Whether its time to live has no effect, because entries of this kind are not dates.
    pub fn is_inert(&self) -> bool {
        self.expire_after.is_some() && !self.kind.is_ordered()
    }

    /// The time to live of a TTL index.
    pub fn expire_after(&self) -> Option<ExpireAfter> {
        self.expire_after
    }

    /// The options of the policy other than its time to live.
    pub fn ttl_options(&self) -> &TtlOptions {
        &self.ttl
    }

    /// The options as a shared value.
    pub(crate) fn shared_ttl_options(&self) -> Arc<TtlOptions> {
        self.ttl.clone()
    }

    /// Whether entries are times of modification, which no query can use.
    pub fn is_last_modified(&self) -> bool {
        self.last_modified
    }

    /// Whether due documents are hidden. A paused policy hides nothing: a write that meets a hidden
    /// document would have to fail because of an invisible document, or to remove it.
    pub fn hides_expired(&self) -> bool {
        let hides = self.last_modified || self.ttl.hide_expired;
        self.expire_after.is_some() && hides && !self.ttl.paused
    }

    /// The collation of strings in its keys.
    pub fn collation(&self) -> Option<&Arc<Collation>> {
        self.collation.as_ref()
    }

    /// The filter of a partial index.
    pub fn partial_filter(&self) -> Option<RawDoc<'_>> {
        self.document.as_doc().get("partialFilterExpression").and_then(RawValue::as_document)
    }

    /// Whether the reference considers both to be the same index: key pattern, collation, partial
    /// filter, unique, sparse.
    pub fn same_identity(&self, other: &IndexSpec) -> bool {
        self.same_key_and_filter(other)
            && self.unique == other.unique
            && self.sparse == other.sparse
            && kinds::same_index(self, other)
    }

    /// Whether key pattern (numbers by sign), collation and filter are the same.
    pub fn same_key_and_filter(&self, other: &IndexSpec) -> bool {
        self.fields == other.fields
            && same_filters(self.partial_filter(), other.partial_filter())
            && same_collation(self.collation(), other.collation())
            && self.same_over_measurements(other)
    }

    /// Whether indexes of a time series have the same key pattern and filter over measurements.
    /// Over buckets, different ones may be stored alike: `2dsphere` as ascending, filters on other
    /// fields than the meta field as none.
    fn same_over_measurements(&self, other: &IndexSpec) -> bool {
        let (one, other) = (self.document.as_doc(), other.document.as_doc());
        let asked = (part(one, "originalSpec"), part(other, "originalSpec"));
        let (Some(one), Some(other)) = asked else { return true };
        let key = |asked| part(asked, "key").map(kinds::fields_of_key);
        let filter = "partialFilterExpression";
        key(one) == key(other) && same_filters(part(one, filter), part(other, filter))
    }

    /// Whether a request for `other` changes nothing: same identity, name and options.
    pub fn same_definition(&self, other: &IndexSpec) -> bool {
        self.same_identity(other)
            && self.name == other.name
            && self.same_policy(other)
            && self.hidden == other.hidden
            && kinds::same_options(self, other)
    }
}

impl IndexSpec {
    /// Whether time to live and the options `ttl` are the same.
    pub(crate) fn same_policy(&self, other: &IndexSpec) -> bool {
        self.expire_after == other.expire_after && self.ttl == other.ttl
    }
}
