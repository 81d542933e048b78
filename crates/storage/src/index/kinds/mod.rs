//! Kinds of indexes other than the ordinary one, a file each: which options their definitions have,
//! and which keys a document has.
//!
//! An entry of any kind is a list of ordered values, one for each of [`IndexSpec::fields`]:
//!
//! ```text
//! ordinary          the field's value
//! hashed            a hash of the field's value, 64 bits
//! $**               the path ("$_path"), and the value there: two fields of the entry for one of the key pattern
//! text              a term (_fts) and its score (_ftsx)
//! 2dsphere, 2d      a cell
//! ```
//!
//! Scans, checks and builds treat all kinds alike. The planner reads [`IndexField::kind`] to find
//! the bounds of a field.
//!
//! The entries of most kinds are written with the document, in the same engine transaction. A kind
//! whose row says [`Maintenance::Log`] is *log-fed*: writes do not touch its entries, a follower
//! brings them forward from the operation log ([`crate::feed`]).

#[cfg(any(test, feature = "fixture"))]
mod fixture;
pub mod hashed;
pub mod plane;
pub mod sphere;
pub mod text;
pub mod wildcard;

use mayfly_value::arguments::error::mistyped;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, SortOrder};

use crate::index::keygen::{KeySet, index_keys, limited};
use crate::index::spec::{IndexField, IndexSpec};
use crate::record::Record;

/// A kind of index other than the ordinary one, with its options.
pub(crate) trait IndexKind: Any + fmt::Debug + Send + Sync {
    /// The row of its kind.
    fn row(&self) -> &'static KindRow;

    /// Checks a definition with the collation that it inherits from its collection.
    ///
    /// # Errors
    /// 67 CannotCreateIndex for a collation that the kind does not support.
    fn check_in_collection(&self, _spec: &IndexSpec) -> Result<()> {
        Ok(())
    }

    /// Fills `out` with the keys of a document.
    ///
    /// # Errors
    /// When the kind cannot index the document. The write is then refused; in a log-fed index, the
    /// document has no entries.
    fn keys(&self, spec: &IndexSpec, record: Record<'_>, out: &mut KeySet) -> Result<()>;
}

/// Where a time series may have an index of a kind.
#[derive(Clone, Copy)]
pub(crate) enum OverMeasurements {
    /// On the meta field only; on others it is refused with this code.
    OnMeta(ErrorCode),
    /// On the meta field, and on others as an ordered index of their bounds.
    Anywhere,
    /// Nowhere; the subject of the sentence that says so ("Text indexes").
    Never(&'static str),
}

/// A row of the table of kinds.
pub(crate) struct KindRow {
    /// The name in messages, and for most kinds in key patterns.
    pub(crate) name: &'static str,
    /// The mark by which a field of a key pattern belongs to this kind.
    pub(crate) mark: Mark,
    /// The kind of the field with the mark.
    pub(crate) field: FieldKind,
    /// Options of this kind only.
    pub(crate) options: &'static [KindOption],
    /// Whether definitions with the same key and other options are the same index.
    pub(crate) other_options: OtherOptions,
    /// Where a time series may have it.
    pub(crate) over_measurements: OverMeasurements,
    /// How many indexes of the kind a collection may have.
    pub(crate) count: KindCount,
    /// When entries are written.
    pub(crate) maintenance: Maintenance,
    /// Checks a request: the definition and its key pattern. The usual error is 67
    /// CannotCreateIndex.
    pub(crate) request: fn(RawDoc<'_>, RawDoc<'_>) -> Result<Requested>,
    /// Compiles a definition of the catalog, with its key pattern. Ignores invalid options; 67
    /// CannotCreateIndex when it is unusable.
    pub(crate) from_catalog: fn(RawDoc<'_>, RawDoc<'_>) -> Result<Arc<dyn IndexKind>>,
}

/// The position of the mark in a field of a key pattern.
pub(crate) enum Mark {
    /// The value: the name of the kind as a string.
    Value,
    /// The field's name.
    Name(fn(&str) -> bool),
}

/// An option of a kind. Its type is checked in definitions of every kind.
pub(crate) struct KindOption {
    pub(crate) name: &'static str,
    pub(crate) form: OptionForm,
}

/// The types of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OptionForm {
    Number,
    String,
    /// Weights of a text index: a document, or an array or a string, which the kind refuses.
    Weights,
    /// The kind checks it.
    Own,
}

impl OptionForm {
    const fn option(self, name: &'static str) -> KindOption {
        KindOption { name, form: self }
    }
}

impl KindRow {
    /// The type of the option of this name, if it is one of the kind's.
    pub(crate) fn option(&self, name: &str) -> Option<OptionForm> {
        self.options.iter().find(|option| option.name == name).map(|option| option.form)
    }
}

/// Whether a definition with other options of its kind is the same index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherOptions {
    /// The same index.
    Same,
    /// The same index with other options, which is refused.
    Differ,
    /// Another index.
    AnotherIndex,
}

/// How many indexes of a kind a collection may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KindCount {
    /// Any number.
    Any,
    /// One, because an operator uses the index without naming it.
    One,
}

/// When the entries of a kind are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maintenance {
    /// With the document, in the same transaction.
    Writes,
    /// Later, from the operation log ([`crate::feed`]).
    #[cfg_attr(
        not(any(test, feature = "fixture")),
        allow(dead_code, reason = "no kind is log-fed yet")
    )]
    Log,
}

/// The kinds of indexes other than the ordinary one.
pub(crate) const KINDS: &[&KindRow] = &[
    &hashed::ROW,
    &wildcard::ROW,
    &text::ROW,
    &sphere::ROW,
    &plane::ROW,
    #[cfg(any(test, feature = "fixture"))]
    &fixture::ROW,
];

/// The kind of an index.
#[derive(Clone, Debug)]
pub struct Kind(Option<Arc<dyn IndexKind>>);

impl Kind {
    /// Reads the kind of a definition in the catalog; ignores invalid options.
    ///
    /// # Errors
    /// 67 CannotCreateIndex when the definition is unusable.
    pub(crate) fn from_catalog(spec: RawDoc<'_>, key: RawDoc<'_>) -> Result<Kind> {
        let row = row_of_key(key);
        Ok(Kind(row.map(|row| (row.from_catalog)(spec, key)).transpose()?))
    }

    /// Whether it is the ordinary kind, whose entries are the values of the fields.
    pub fn is_ordered(&self) -> bool {
        self.0.is_none()
    }

    /// The kind, when it is not the ordinary one.
    pub(crate) fn special(&self) -> Option<&dyn IndexKind> {
        self.0.as_deref()
    }

    /// The kind as type `K`, if it is that one.
    pub fn get<K: Any>(&self) -> Option<&K> {
        let any: &dyn Any = self.special()?;
        any.downcast_ref()
    }

    /// Whether the kind is `K`.
    pub fn is<K: Any>(&self) -> bool {
        self.get::<K>().is_some()
    }

    /// The row of the kind, when it is not the ordinary one.
    pub(crate) fn row(&self) -> Option<&'static KindRow> {
        self.special().map(IndexKind::row)
    }
}

/// The content of one field of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// The value at the path.
    Ordered,
    /// A hash of the value.
    Hashed,
    /// The path of a wildcard index's value.
    Path,
    /// The value of a wildcard index.
    Wildcard,
    /// A term of a text index.
    Text,
    /// A cell on the earth.
    Sphere,
    /// A cell on a plane.
    Plane,
    /// The content of a log-fed index. Several kinds share it, because the planner does not use
    /// such an index: an operator of its own reads it.
    LogFed,
}

impl FieldKind {
    /// The kind that an element of a key pattern requests; `None` for a string that names no kind.
    pub(crate) fn of(name: &str, value: RawValue<'_>) -> Option<FieldKind> {
        match (row_of_field(name, value), value) {
            (Some(row), _) => Some(row.field),
            (None, RawValue::String(_)) => None,
            (None, _) => Some(FieldKind::Ordered),
        }
    }

    /// Whether entries contain the values of the field themselves, in their order.
    pub fn holds_values(self) -> bool {
        matches!(self, FieldKind::Ordered | FieldKind::Wildcard)
    }
}

/// The row of the kind that an element of a key pattern requests; `None` for an ordinary field.
fn row_of_field(name: &str, value: RawValue<'_>) -> Option<&'static KindRow> {
    let marks = |row: &&&KindRow| match (&row.mark, value) {
        (Mark::Value, RawValue::String(kind)) => kind == row.name,
        (Mark::Name(_), RawValue::String(_)) | (Mark::Value, _) => false,
        (Mark::Name(matches), _) => matches(name),
    };
    KINDS.iter().find(marks).copied()
}

/// The row of the kind of a key pattern: that of its first field that is not ordinary.
pub(crate) fn row_of_key(key: RawDoc<'_>) -> Option<&'static KindRow> {
    key.iter().find_map(|element| row_of_field(element.name(), element.value()))
}

/// Fills `out` with all keys that the index has of the document, also if it is log-fed.
///
/// # Errors
/// As [`index_keys`].
pub(crate) fn entry_keys(spec: &IndexSpec, record: Record<'_>, out: &mut KeySet) -> Result<()> {
    match spec.kind().special().filter(|_| spec.is_log_fed()) {
        None => index_keys(spec, record, out),
        Some(kind) => {
            out.clear();
            kind.keys(spec, record, out)?;
            limited(out)
        }
    }
}

/// The result of a checked request.
#[derive(Default)]
pub(crate) struct Requested {
    /// The key pattern as it is listed, if it differs from the request.
    pub(crate) key: Option<DocBuf>,
    /// Options that are listed after all others.
    pub(crate) options: DocBuilder,
}

/// The type of an option that belongs to one of the kinds.
pub(crate) fn option_form(name: &str) -> Option<OptionForm> {
    KINDS.iter().find_map(|row| row.option(name))
}

/// Checks a request for an index of any kind.
///
/// # Errors
/// The error of the kind, usually 67 CannotCreateIndex.
pub(crate) fn request(raw: RawDoc<'_>, key: RawDoc<'_>) -> Result<Requested> {
    let row = row_of_key(key);
    if row.is_none_or(|row| row.field != FieldKind::Wildcard)
        && raw.get("wildcardProjection").is_some()
    {
        return Err(Error::bad_value(
            "The field 'wildcardProjection' is only allowed in an 'wildcard' index",
        ));
    }
    if row.is_none_or(|row| row.field != FieldKind::Text) && raw.get("weights").is_some() {
        return Err(cannot_create("the option 'weights' is only allowed in a text index"));
    }
    if let Some(row) = row.filter(|row| row.maintenance == Maintenance::Log) {
        check_log_fed(row, raw)?;
    }
    row.map_or_else(|| Ok(Requested::default()), |row| (row.request)(raw, key))
}

/// Refuses options that need the entries at the moment of a write.
fn check_log_fed(row: &KindRow, raw: RawDoc<'_>) -> Result<()> {
    let needs_entries = ["unique", "prepareUnique", "expireAfterSeconds"];
    match needs_entries.iter().find(|option| raw.get(option).is_some()) {
        None => Ok(()),
        Some(option) => Err(cannot_create(format!(
            "the option '{option}' is not supported on an index of type '{}'",
            row.name
        ))),
    }
}

/// Whether two definitions with the same key have the same options of their kind, as far as those
/// distinguish indexes.
pub(crate) fn same_options(spec: &IndexSpec, other: &IndexSpec) -> bool {
    spec.kind().row().is_none_or(|row| {
        let same = |KindOption { name, .. }: &KindOption| {
            spec.document().get(name) == other.document().get(name)
        };
        row.other_options == OtherOptions::Same || row.options.iter().all(same)
    })
}

/// Whether two definitions with the same key are the same index, as far as the options of their
/// kind decide that.
pub(crate) fn same_index(spec: &IndexSpec, other: &IndexSpec) -> bool {
    let decides = |row: &KindRow| row.other_options == OtherOptions::AnotherIndex;
    !spec.kind().row().is_some_and(decides) || same_options(spec, other)
}

/// The fields of an entry of an index with this key pattern.
pub(crate) fn fields_of_key(key: RawDoc<'_>) -> Vec<IndexField> {
    let mut fields = Vec::new();
    for element in key {
        let kind = FieldKind::of(element.name(), element.value()).unwrap_or(FieldKind::Ordered);
        if kind == FieldKind::Wildcard {
            fields.push(IndexField::new(wildcard::PATH, SortOrder::Ascending, FieldKind::Path));
        }
        let number = crate::policy::value::as_f64(element.value());
        let order = match number {
            Some(number) if number < 0.0 => SortOrder::Descending,
            _ => SortOrder::Ascending,
        };
        fields.push(IndexField::new(element.name(), order, kind));
    }
    fields
}

/// The error for an option of a wrong type.
fn wrong_type(option: &str, value: RawValue<'_>, expected: &str) -> Error {
    let found = value.type_name();
    mistyped(format!("The field '{option}' must be {expected}, but got {found}"))
}

fn cannot_create(text: impl Into<String>) -> Error {
    Error::new(ErrorCode::CannotCreateIndex, text.into())
}
