//! Kinds of indexes beside the ordinary one, a file each: what their definitions may say, and which keys a document has.
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
//! Everything that scans, checks or builds entries is the same for all; the planner asks [`IndexField::kind`] what bounds a
//! field.

pub mod hashed;
pub mod plane;
pub mod sphere;
pub mod text;
pub mod wildcard;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::index::keygen::KeySet;
use crate::index::spec::{IndexField, IndexSpec};
use crate::record::Record;

/// What the entries of an index stand for.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Values in their order.
    Ordered,
    /// Hashes of one field's values.
    Hashed,
    /// Values of all fields that a document has.
    Wildcard(wildcard::Wildcard),
    /// Terms of texts.
    Text(text::TextIndex),
    /// Places on the earth.
    Sphere(sphere::SphereIndex),
    /// Places on a plane.
    Plane(plane::PlaneIndex),
}

/// What one field of an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// The value at the path.
    Ordered,
    /// Its hash.
    Hashed,
    /// The path of a wildcard's value.
    Path,
    /// A wildcard's value.
    Wildcard,
    /// A term.
    Text,
    /// A cell on the earth.
    Sphere,
    /// A cell on a plane.
    Plane,
}

impl FieldKind {
    /// What an element of a key pattern asks for.
    pub(crate) fn of(name: &str, value: RawValue<'_>) -> Option<FieldKind> {
        Some(match value {
            RawValue::String("hashed") => FieldKind::Hashed,
            RawValue::String("text") => FieldKind::Text,
            RawValue::String("2dsphere") => FieldKind::Sphere,
            RawValue::String("2d") => FieldKind::Plane,
            RawValue::String(_) => return None,
            _ if wildcard::is_wildcard(name) => FieldKind::Wildcard,
            _ => FieldKind::Ordered,
        })
    }
}

/// The kind that a key pattern names: that of its first field which is not ordinary.
pub(crate) fn kind_of_key(key: RawDoc<'_>) -> FieldKind {
    let special = |element: mayfly_value::RawElement<'_>| match FieldKind::of(
        element.name(),
        element.value(),
    ) {
        None | Some(FieldKind::Ordered) => None,
        special => special,
    };
    key.iter().find_map(special).unwrap_or(FieldKind::Ordered)
}

/// As texts name it.
pub(crate) fn name_of(kind: FieldKind) -> &'static str {
    match kind {
        FieldKind::Ordered => "",
        FieldKind::Hashed => "hashed",
        FieldKind::Path | FieldKind::Wildcard => "wildcard",
        FieldKind::Text => "text",
        FieldKind::Sphere => "2dsphere",
        FieldKind::Plane => "2d",
    }
}

/// What a request for an index of a kind turns into.
#[derive(Default)]
pub(crate) struct Requested {
    /// The key pattern as it is listed, when it is not as it was asked for.
    pub(crate) key: Option<DocBuf>,
    /// Options that are listed behind all others.
    pub(crate) options: DocBuilder,
}

/// Options that belong to one kind, which lists them itself.
pub(crate) fn own_options(kind: FieldKind) -> &'static [&'static str] {
    match kind {
        FieldKind::Ordered | FieldKind::Path | FieldKind::Hashed => &[],
        FieldKind::Wildcard => wildcard::OPTIONS,
        FieldKind::Text => text::OPTIONS,
        FieldKind::Sphere => sphere::OPTIONS,
        FieldKind::Plane => plane::OPTIONS,
    }
}

/// Checks a request.
///
/// # Errors
/// Those of the kind: 67 CannotCreateIndex as a rule.
pub(crate) fn request(raw: RawDoc<'_>, key: RawDoc<'_>) -> Result<Requested> {
    let kind = kind_of_key(key);
    if kind != FieldKind::Wildcard && raw.get("wildcardProjection").is_some() {
        return Err(Error::bad_value(
            "The field 'wildcardProjection' is only allowed in an 'wildcard' index",
        ));
    }
    match kind {
        FieldKind::Ordered | FieldKind::Path => Ok(Requested::default()),
        FieldKind::Hashed => hashed::request(raw, key),
        FieldKind::Wildcard => wildcard::request(raw, key),
        FieldKind::Text => text::request(raw, key),
        FieldKind::Sphere => sphere::request(raw, key),
        FieldKind::Plane => plane::request(raw, key),
    }
}

impl Kind {
    /// That of a definition in the catalog, lenient with options.
    ///
    /// # Errors
    /// 67 CannotCreateIndex when nothing can be made of it.
    pub(crate) fn from_catalog(spec: RawDoc<'_>, key: RawDoc<'_>) -> Result<Kind> {
        Ok(match kind_of_key(key) {
            FieldKind::Ordered | FieldKind::Path => Kind::Ordered,
            FieldKind::Hashed => Kind::Hashed,
            FieldKind::Wildcard => Kind::Wildcard(wildcard::Wildcard::from_catalog(spec, key)?),
            FieldKind::Text => Kind::Text(text::TextIndex::from_catalog(spec, key)?),
            FieldKind::Sphere => Kind::Sphere(sphere::SphereIndex::from_catalog(spec)?),
            FieldKind::Plane => Kind::Plane(plane::PlaneIndex::from_catalog(spec)?),
        })
    }

    /// Whether it is the ordinary kind.
    pub fn is_ordered(&self) -> bool {
        matches!(self, Kind::Ordered)
    }
}

/// Checks a definition together with what its collection adds to it.
///
/// # Errors
/// 67 CannotCreateIndex for a collation that the kind does not know.
pub(crate) fn check_in_collection(spec: &IndexSpec) -> Result<()> {
    match spec.kind() {
        Kind::Text(_) => text::check_collation(spec),
        Kind::Plane(_) => plane::check_collation(spec.collation().map(|collation| &**collation)),
        Kind::Ordered | Kind::Hashed | Kind::Wildcard(_) | Kind::Sphere(_) => Ok(()),
    }
}

/// Whether both have the same options of their kind.
pub(crate) fn same_options(spec: &IndexSpec, other: &IndexSpec) -> bool {
    let kind = kind_of_key(spec.key());
    kind != FieldKind::Text
        || own_options(kind)
            .iter()
            .all(|name| spec.document().get(name) == other.document().get(name))
}

/// Fills `out` with the keys of a document in an index that is not of the ordinary kind.
///
/// # Errors
/// Those of the kind, when it cannot index the document.
pub(crate) fn keys(spec: &IndexSpec, record: Record<'_>, out: &mut KeySet) -> Result<()> {
    let document = record.document;
    match spec.kind() {
        Kind::Ordered => Ok(()),
        Kind::Hashed => hashed::keys(spec, document, out),
        Kind::Wildcard(wildcard) => wildcard.keys(spec, document, out),
        Kind::Text(text) => text.keys(spec, document, out),
        Kind::Sphere(sphere) => sphere.keys(spec, document, out),
        Kind::Plane(plane) => plane.keys(spec, document, out),
    }
}

/// The fields of an entry.
pub(crate) fn fields_of_key(key: RawDoc<'_>) -> Vec<IndexField> {
    let mut fields = Vec::new();
    for element in key {
        let kind = FieldKind::of(element.name(), element.value()).unwrap_or(FieldKind::Ordered);
        if kind == FieldKind::Wildcard {
            fields.push(IndexField::new(wildcard::PATH, false, FieldKind::Path));
        }
        let number = crate::policy::value::as_f64(element.value());
        let descending = number.is_some_and(|number| number < 0.0);
        fields.push(IndexField::new(element.name(), descending, kind));
    }
    fields
}

/// 67 CannotCreateIndex.
fn cannot_create(text: impl Into<String>) -> Error {
    Error::new(ErrorCode::CannotCreateIndex, text.into())
}
