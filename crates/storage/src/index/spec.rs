//! The definition of an index: checked, normalised, and in the form that `listIndexes` shows.
//!
//! Sources: the manual's pages "createIndexes" and "TTL Indexes"; texts and codes of TTL options
//! from the expiry contract, section 1.

use mayfly_value::arguments::error::{mistyped, wrong_type};
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_value::paths::is_dollar_name;
use mayfly_value::shell::Shell;
use mayfly_value::{
    ChangedPath, Collation, DocBuf, DocBuilder, RawDoc, RawElement, RawValue, SortOrder,
    compare_docs, same_collation,
};

use super::id_index;
use crate::index::kinds::{self, FieldKind, Kind, Maintenance};
use crate::policy::ExpireAfter;
use crate::policy::value::{
    as_f64, expire_after_for_create, last_modified_for_create, listed_expire_after,
};
use crate::policy::{TtlIndexRules, TtlOptions};

/// A note in the reply for a compound key whose TTL option is dropped.
pub(crate) const TTL_IGNORED_NOTE: &str =
    "expireAfterSeconds ignored: TTL indexes are single-field indexes";

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

/// The result of a checked request.
pub(crate) enum Requested {
    /// The index on `_id`, which always exists, and the requested collation.
    Id(Option<Option<Arc<Collation>>>),
    /// A further index, and a note for the reply.
    Index(Box<IndexSpec>, Option<&'static str>),
}

/// How requests are checked.
#[derive(Clone, Copy)]
pub(crate) struct SpecRules {
    /// Which rules apply where the manual and servers differ.
    pub ttl: TtlIndexRules,
    /// An index on `_ts` is a last-modified policy.
    pub last_modified: bool,
    /// Drop unknown options instead of refusing them.
    pub ignore_unknown: bool,
}

/// Options that are stored and listed as given.
const KNOWN: &[&str] = &[
    "v",
    "key",
    "name",
    "ns",
    "unique",
    "sparse",
    "hidden",
    "background",
    "expireAfterSeconds",
    "partialFilterExpression",
    "collation",
    "storageEngine",
    "prepareUnique",
    "dropDups",
    "bucketSize",
    "clustered",
    "ttl",
];

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
    /// Checks a requested definition.
    ///
    /// # Errors
    /// 67, 197, 9, 14, 2 and 238 as the reference has them.
    pub(crate) fn request(raw: RawDoc<'_>, rules: SpecRules) -> Result<Requested> {
        let key = key_pattern(raw)?;
        let name = name(raw, key)?;
        if is_id_pattern(key) {
            return Ok(Requested::Id(id_index::collation_of(raw, key)?));
        }
        if name == "_id_" {
            return Err(Error::bad_value(format!(
                "The index name '_id_' is reserved for the _id index, which must have key pattern {{_id: 1}}, found {}",
                Shell(key)
            )));
        }
        let kind = kinds::row_of_key(key);
        let is_wildcard = kind.is_some_and(|row| row.field == FieldKind::Wildcard);
        if raw.get("expireAfterSeconds").is_some() && is_wildcard {
            return Err(Error::new(
                ErrorCode::CannotCreateIndex,
                "cannot make a TTL index :: caused by :: Index type 'wildcard' does not support the \
                 'expireAfterSeconds' option",
            ));
        }
        check_key(key)?;
        let is_text = kind.is_some_and(|row| row.field == FieldKind::Text);
        if !is_text && key.iter().any(|field| matches!(field.name(), "_fts" | "_ftsx")) {
            let text = "Index key contains an illegal field name: '_fts' belongs to text indexes";
            return Err(Error::new(ErrorCode::CannotCreateIndex, text));
        }
        let last_modified =
            rules.last_modified && raw.get("expireAfterSeconds").is_some() && is_last_modified(key);
        if raw.get("ttl").is_some() && raw.get("expireAfterSeconds").is_none() {
            return Err(Error::new(
                ErrorCode::InvalidOptions,
                "'ttl' can be used only together with 'expireAfterSeconds'",
            ));
        }
        if let Some(row) = kind
            && raw.get("ttl").is_some()
        {
            return Err(Error::new(
                ErrorCode::InvalidOptions,
                format!("'ttl' is not supported on an index of type '{}'", row.name),
            ));
        }
        let requested = kinds::request(raw, key)?;
        let mut note = None;
        let mut expire_after = None;
        // Version 1 has no collations, not even that of the collection.
        let mut inherits = version(raw)? > 1;
        let mut out = DocBuilder::new();
        check_collated(raw)?;
        out.append("v", version(raw)?);
        out.append("key", requested.key.as_ref().map_or(key, DocBuf::as_doc)).append("name", name);
        for element in raw {
            match element.name() {
                // The server has one engine, without options for an index. They are listed as
                // given.
                "storageEngine" => match element.value() {
                    RawValue::Document(_) => {
                        out.append_element(element);
                    }
                    RawValue::Null | RawValue::Undefined => {}
                    other => return Err(wrong_type("storageEngine", other, "object")),
                },
                "v" | "key" | "name" | "ns" | "dropDups" => {}
                "expireAfterSeconds" if last_modified => {
                    let seconds = last_modified_for_create(element.value())?;
                    out.append("expireAfterSeconds", seconds);
                    expire_after = Some(ExpireAfter::of_last_modified(seconds));
                }
                "ttl" => {
                    TtlOptions::parse(element.value())?;
                    if key.iter().count() == 1 {
                        out.append_element(element);
                    }
                }
                "expireAfterSeconds" => {
                    let seconds = expire_after_for_create(element.value())?;
                    if key.iter().count() == 1 {
                        out.append("expireAfterSeconds", seconds);
                        expire_after = Some(ExpireAfter::Seconds(seconds));
                    } else if rules.ttl == TtlIndexRules::Manual {
                        note = Some(TTL_IGNORED_NOTE);
                    } else {
                        return Err(Error::new(
                            ErrorCode::CannotCreateIndex,
                            "TTL indexes are single-field indexes, compound indexes do not support TTL",
                        ));
                    }
                }
                "collation" => {
                    inherits = false;
                    if let Some(collation) = collation_option(element)? {
                        out.append("collation", collation.document());
                    }
                }
                // It has no effect, and is listed as given.
                "background" => {
                    boolean(element)?;
                    out.append_element(element);
                }
                "hidden" => {
                    if only_boolean(element)? {
                        out.append("hidden", true);
                    }
                }
                "sparse" => {
                    out.append("sparse", boolean(element)?);
                }
                "unique" | "prepareUnique" => {
                    if boolean(element)? {
                        out.append(element.name(), true);
                    }
                }
                "partialFilterExpression" => {
                    document_option(element)?;
                    out.append_element(element);
                }
                own if kind.is_some_and(|row| row.options.contains(&own)) => {}
                // Options of other kinds have no effect, and are listed.
                known if kinds::is_option(known) => {
                    out.append_element(element);
                }
                known if KNOWN.contains(&known) => {
                    return Err(Error::not_implemented(format!("index option '{known}'")));
                }
                unknown if rules.ignore_unknown => tracing::debug!(unknown, "ignored index option"),
                unknown => {
                    return Err(Error::new(
                        ErrorCode::InvalidIndexSpecificationOption,
                        format!(
                            "The field '{unknown}' is not valid for an index specification. Specification: {}",
                            Shell(raw)
                        ),
                    ));
                }
            }
        }
        if last_modified {
            out.append(LAST_MODIFIED, true);
        }
        let own = requested.options.finish();
        own.as_doc().iter().for_each(|element| {
            out.append_element(element);
        });
        let document = out.finish();
        let mut spec = IndexSpec::from_catalog(document)?;
        spec.expire_after = expire_after;
        spec.inherits = inherits;
        if last_modified && spec.unique {
            return Err(Error::new(
                ErrorCode::CannotCreateIndex,
                "a '_ts' policy cannot be unique",
            ));
        }
        if spec.sparse && spec.partial_filter().is_some() {
            return Err(Error::new(
                ErrorCode::CannotCreateIndex,
                "cannot mix \"partialFilterExpression\" and \"sparse\" options",
            ));
        }
        Ok(Requested::Index(Box::new(spec), note))
    }

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

/// Adds the definition to an error's message, as the reference does.
pub(crate) fn in_spec_context(error: Error, spec: RawDoc<'_>) -> Error {
    match error.code() {
        ErrorCode::CannotCreateIndex | ErrorCode::TypeMismatch => {
            error.in_context(format_args!(". Index spec: {}", Shell(spec)))
        }
        _ => error,
    }
}

pub(super) fn key_pattern(raw: RawDoc<'_>) -> Result<RawDoc<'_>> {
    match raw.get("key") {
        Some(RawValue::Document(key)) => Ok(key),
        Some(other) => Err(mistyped(format!(
            "The field 'key' must be an object, but got {}",
            other.type_name()
        ))),
        None => Err(Error::failed_to_parse(
            "The 'key' field is a required property of an index specification",
        )),
    }
}

pub(super) fn name<'a>(raw: RawDoc<'a>, key: RawDoc<'_>) -> Result<&'a str> {
    match raw.get("name") {
        Some(RawValue::String("")) => {
            Err(Error::new(ErrorCode::CannotCreateIndex, "index name cannot be empty"))
        }
        Some(RawValue::String("*")) => Err(Error::bad_value("The index name '*' is not valid.")),
        Some(RawValue::String(name)) if name.contains('\0') => {
            Err(Error::new(ErrorCode::CannotCreateIndex, "index name cannot contain NUL bytes"))
        }
        Some(RawValue::String(name)) => Ok(name),
        Some(other) => Err(mistyped(format!(
            "The field 'name' must be a string, but got {}",
            other.type_name()
        ))),
        None => Err(Error::failed_to_parse(format!(
            "The 'name' field is a required property of an index specification, key: {}",
            Shell(key)
        ))),
    }
}

fn is_id_pattern(key: RawDoc<'_>) -> bool {
    let mut elements = key.iter();
    match (elements.next(), elements.next()) {
        (Some(only), None) => {
            only.name_bytes() == b"_id"
                && as_f64(only.value()).is_some_and(|number| number.abs() == 1.0)
        }
        _ => false,
    }
}

/// `{ _ts: 1 }` or `{ _ts: -1 }`.
fn is_last_modified(key: RawDoc<'_>) -> bool {
    let mut fields = key.iter();
    fields.next().is_some_and(|field| field.name_bytes() == b"_ts") && fields.next().is_none()
}

fn check_key(key: RawDoc<'_>) -> Result<()> {
    let fail = |text: String| Err(Error::new(ErrorCode::CannotCreateIndex, text));
    if key.is_empty() {
        return fail("Index keys cannot be empty.".into());
    }
    let count = key.iter().count();
    if count > limits::MAX_INDEX_FIELDS {
        let text = format!("Index key pattern has {count} fields; the limit is 32");
        return Err(Error::new(ErrorCode(13103), text));
    }
    for (at, element) in key.iter().enumerate() {
        let path = element.name();
        if path.is_empty() || path.split('.').any(str::is_empty) {
            return fail("Index keys cannot contain an empty field.".into());
        }
        let named = path.strip_suffix("$**").unwrap_or(path);
        // A path may lead into the fields of a DBRef ($ref, $id, $db), but not begin with one.
        let refused = |(at, part): (usize, &str)| match at {
            0 => part.starts_with('$'),
            _ => is_dollar_name(part),
        };
        if named.split('.').enumerate().any(refused) {
            return fail(format!(
                "Index key contains an illegal field name: field name starts with '$': {path}"
            ));
        }
        if key.iter().take(at).any(|before| before.name_bytes() == element.name_bytes()) {
            return fail(format!("Index key contains the field '{path}' twice"));
        }
        match element.value() {
            plugin @ RawValue::String(kind) => {
                if kind == "wildcard" {
                    let text = "'wildcard' is no value of an index key; the field is named $**";
                    return Err(Error::new(ErrorCode(7_246_202), text));
                }
                if FieldKind::of(path, plugin).is_none() {
                    return fail(format!("Unknown index plugin '{kind}'"));
                }
                if kinds::wildcard::is_wildcard(path) && (path != "$**" || kind != "text") {
                    return fail(format!("A wildcard index cannot be of type '{kind}'"));
                }
            }
            number if number.is_number() => match as_f64(number) {
                Some(number) if number.is_nan() => {
                    return fail("Values in the index key pattern cannot be NaN.".into());
                }
                Some(0.0) => return fail("Values in the index key pattern cannot be 0.".into()),
                _ => {}
            },
            other => {
                return fail(format!(
                    "Values in v:2 index key pattern cannot be of type {}. Only numbers > 0, numbers < 0, and \
                     strings are allowed.",
                    other.type_name()
                ));
            }
        }
    }
    Ok(())
}

pub(super) fn version(raw: RawDoc<'_>) -> Result<i32> {
    match raw.get("v") {
        None => Ok(2),
        Some(value) => match as_f64(value) {
            Some(2.0) => Ok(2),
            Some(1.0) => Ok(1),
            Some(other) if other.fract() != 0.0 || other.abs() > f64::from(i32::MAX) => {
                Err(Error::bad_value(format!(
                    "Index version must be representable as a 32-bit integer, but got {other}"
                )))
            }
            Some(other) => Err(Error::new(
                ErrorCode::CannotCreateIndex,
                format!(
                    "Invalid index specification {}; cannot create an index with v={other}",
                    Shell(raw)
                ),
            )),
            None => Err(mistyped(format!(
                "The field 'v' must be a number, but got {}",
                value.type_name()
            ))),
        },
    }
}

/// Version 1 has no collations.
fn check_collated(raw: RawDoc<'_>) -> Result<()> {
    if raw.get("collation").is_none() || version(raw)? > 1 {
        return Ok(());
    }
    let text = format!(
        "Invalid index specification {}; cannot create an index with the 'collation' option and v=1",
        Shell(raw)
    );
    Err(Error::new(ErrorCode::CannotCreateIndex, text))
}

fn boolean(element: RawElement<'_>) -> Result<bool> {
    match element.value() {
        RawValue::Bool(value) => Ok(value),
        number if number.is_number() => Ok(as_f64(number).is_some_and(|value| value != 0.0)),
        other => Err(mistyped(format!(
            "The field '{}' has value {other:?}, which is not convertible to bool",
            element.name()
        ))),
    }
}

/// A flag that must not be a number.
fn only_boolean(element: RawElement<'_>) -> Result<bool> {
    match element.value() {
        RawValue::Bool(value) => Ok(value),
        other => Err(mistyped(format!(
            "The field '{}' must be a bool, but got {}",
            element.name(),
            other.type_name()
        ))),
    }
}

fn document_option(element: RawElement<'_>) -> Result<()> {
    match element.value() {
        RawValue::Document(_) => Ok(()),
        other => Err(mistyped(format!(
            "The field '{}' must be an object, but got {}",
            element.name(),
            other.type_name()
        ))),
    }
}

pub(super) fn collation_option(element: RawElement<'_>) -> Result<Option<Arc<Collation>>> {
    document_option(element)?;
    match element.value() {
        RawValue::Document(collation) if collation.is_empty() => {
            Err(Error::bad_value("The field 'collation' cannot be an empty object."))
        }
        RawValue::Document(collation) => Collation::parse(collation, "collation"),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests;
