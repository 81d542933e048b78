//! Wildcard indexes: an entry for each value of a document, with its path (manual, "Wildcard
//! Indexes", "Compound Wildcard Indexes").
//!
//! A path consists of the field names on the way, joined by dots, without positions in arrays.
//! Embedded documents are traversed; an empty one is a value of its own, an empty array is
//! `undefined`, and an array directly in another array is a value. `_id` is not indexed unless
//! requested. A document without any indexed value has no entry; in a compound index it has one
//! whose path and value are MinKey, so that scans of its other fields find it.

mod compound;

use mayfly_value::arguments::error::mistyped;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::keys;
use mayfly_value::paths::is_dollar_name;
use mayfly_value::{Collation, RawDoc, RawElement, RawValue, SortOrder};

use self::compound::{check_projection, ordinary_paths, subtree_of};
use super::{
    FieldKind, IndexKind, KindCount, KindRow, Maintenance, Mark, OptionForm, OtherOptions,
    OverMeasurements, Requested, cannot_create,
};
use crate::index::keygen::{self, KeySet};
use crate::index::spec::{IndexField, IndexSpec};
use crate::policy::value::as_f64;
use crate::record::Record;

pub(super) const ROW: KindRow = KindRow {
    name: "wildcard",
    mark: Mark::Name(is_wildcard),
    field: FieldKind::Wildcard,
    options: &[OptionForm::Own.option("wildcardProjection")],
    other_options: OtherOptions::AnotherIndex,
    over_measurements: OverMeasurements::OnMeta(ErrorCode(7_246_201)),
    count: KindCount::Any,
    maintenance: Maintenance::Writes,
    request,
    from_catalog: |spec, key| Ok(Arc::new(Wildcard::from_catalog(spec, key)?)),
};

/// The name of the field of an entry that contains the path.
pub const PATH: &str = "$_path";

/// Whether a name in a key pattern stands for all fields below it.
pub(crate) fn is_wildcard(name: &str) -> bool {
    name == "$**" || name.ends_with(".$**")
}

/// The paths that a wildcard index covers.
#[derive(Clone, Debug)]
pub struct Wildcard {
    /// The indexed subtrees if `included` is set, otherwise the excluded ones.
    paths: Vec<Vec<String>>,
    included: bool,
    /// Whether `_id` is indexed.
    id: bool,
    /// Whether the key also has ordinary fields.
    compound: bool,
}

/// How much of the value at a path is indexed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Coverage {
    Nothing,
    Parts,
    All,
}

/// Checks a requested definition.
///
/// # Errors
/// 67 CannotCreateIndex, 9 FailedToParse, 14 TypeMismatch.
fn request(raw: RawDoc<'_>, key: RawDoc<'_>) -> Result<Requested> {
    for option in ["unique", "sparse"] {
        if let Some(RawValue::Bool(true)) = raw.get(option) {
            let text = format!("Index type 'wildcard' does not support the {option} option");
            return Err(cannot_create(text));
        }
    }
    if raw.get("v").and_then(as_f64) == Some(1.0) {
        return Err(cannot_create("Index type 'wildcard' is only supported with v: 2"));
    }
    check_key(raw, key)?;
    let mut requested = Requested::default();
    if let Some(projection) = raw.get("wildcardProjection") {
        let RawValue::Document(projection) = projection else {
            return Err(mistyped(format!(
                "The field 'wildcardProjection' must be a non-empty object, but got {}",
                projection.type_name()
            )));
        };
        if projection.is_empty() {
            return Err(Error::failed_to_parse(
                "The 'wildcardProjection' field can't be an empty object",
            ));
        }
        if key.get("$**").is_none() {
            return Err(Error::failed_to_parse(
                "The field 'wildcardProjection' is only allowed when 'key' is {\"$**\": ±1}",
            ));
        }
        if key.iter().count() > 1 {
            check_projection(key, projection)?;
        }
        Projection::parse(projection)?;
        requested.options.append("wildcardProjection", projection);
    }
    Ok(requested)
}

/// The key has one wildcard, and only ordinary fields which the wildcard does not cover.
fn check_key(raw: RawDoc<'_>, key: RawDoc<'_>) -> Result<()> {
    let kinds = || key.iter().map(|element| FieldKind::of(element.name(), element.value()));
    let wildcards = kinds().filter(|kind| *kind == Some(FieldKind::Wildcard)).count();
    let plugins = |kind| !matches!(kind, Some(FieldKind::Wildcard | FieldKind::Ordered));
    if wildcards != 1 || kinds().any(plugins) {
        return Err(match wildcards {
            1 => cannot_create("wildcard indexes do not allow other index types"),
            _ => Error::new(
                ErrorCode(7_246_201),
                "Only one wildcard field is allowed in a compound wildcard index",
            ),
        });
    }
    let Some(subtree) = subtree_of(key).filter(|_| key.iter().count() > 1) else { return Ok(()) };
    match raw.get("wildcardProjection") {
        Some(_) => Ok(()),
        None if subtree.is_empty() => Err(cannot_create(
            "Compound wildcard indexes on all fields must also specify 'wildcardProjection' option",
        )),
        None => match ordinary_paths(key).find(|path| path.starts_with(&subtree)) {
            None => Ok(()),
            Some(path) => {
                let path = path.join(".");
                let text = format!("The wildcard of a compound index covers its field '{path}'");
                Err(Error::new(ErrorCode(7_246_204), text))
            }
        },
    }
}

/// A parsed `wildcardProjection`.
struct Projection {
    paths: Vec<Vec<String>>,
    included: bool,
    id: bool,
}

impl Projection {
    fn parse(projection: RawDoc<'_>) -> Result<Projection> {
        let mut found = Projection { paths: Vec::new(), included: false, id: false };
        let mut mode = None;
        found.add(projection, &mut Vec::new(), &mut mode)?;
        // With _id only, { _id: 1 } includes and { _id: 0 } excludes, as in a projection.
        found.included = mode.unwrap_or(found.id);
        Ok(found)
    }

    fn add(
        &mut self,
        fields: RawDoc<'_>,
        above: &mut Vec<String>,
        mode: &mut Option<bool>,
    ) -> Result<()> {
        for field in fields {
            let depth = above.len();
            above.extend(field.name().split('.').map(str::to_owned));
            self.add_field(field, above, mode)?;
            above.truncate(depth);
        }
        Ok(())
    }

    fn add_field(
        &mut self,
        field: RawElement<'_>,
        path: &mut Vec<String>,
        mode: &mut Option<bool>,
    ) -> Result<()> {
        let name = path.join(".");
        if path.iter().any(|part| part.is_empty() || is_dollar_name(part)) {
            return Err(Error::failed_to_parse(format!(
                "wildcardProjection has an invalid field path '{name}'"
            )));
        }
        let included = match field.value() {
            RawValue::Bool(included) => included,
            RawValue::Document(below) if !below.is_empty() => return self.add(below, path, mode),
            number if number.is_number() => as_f64(number) != Some(0.0),
            other => {
                let text = format!(
                    "wildcardProjection must include or exclude '{name}', but got {}",
                    other.type_name()
                );
                return Err(Error::new(ErrorCode(51_271), text));
            }
        };
        if name == "_id" {
            self.id = included;
            return Ok(());
        }
        if *mode.get_or_insert(included) != included {
            let (code, text) = match included {
                true => (31253, "inclusion on field {} in exclusion projection"),
                false => (31254, "exclusion on field {} in inclusion projection"),
            };
            return Err(Error::new(
                ErrorCode(code),
                format!("Cannot do {}", text.replace("{}", &name)),
            ));
        }
        let overlaps = |known: &Vec<String>| known.starts_with(path) || path.starts_with(known);
        if self.paths.iter().any(overlaps) {
            return Err(Error::new(ErrorCode(31249), format!("Path collision at {name}")));
        }
        self.paths.push(path.clone());
        Ok(())
    }
}

impl IndexKind for Wildcard {
    fn row(&self) -> &'static KindRow {
        &ROW
    }

    fn keys(&self, spec: &IndexSpec, record: Record<'_>, out: &mut KeySet) -> Result<()> {
        let document = record.document;
        let mut beside = Vec::with_capacity(spec.fields().len());
        for field in spec.fields() {
            beside.push(match field.kind {
                FieldKind::Path | FieldKind::Wildcard => RawValue::MinKey,
                _ => single_value(document, field)?,
            });
        }
        let mut walk = Walk {
            wildcard: self,
            fields: spec.fields(),
            collation: spec.collation().map(|collation| &**collation),
            beside,
            path: Vec::new(),
            arrays: false,
            out,
        };
        walk.document(document, Coverage::Parts);
        if self.compound && walk.out.len() == 0 {
            walk.push(RawValue::MinKey, RawValue::MinKey);
        }
        if walk.arrays {
            let at = spec.fields().iter().position(|field| field.kind == FieldKind::Wildcard);
            walk.out.multikey = at.map_or(0, |at| 1 << at);
        }
        Ok(())
    }
}

impl Wildcard {
    /// Reads the definition in the catalog.
    fn from_catalog(spec: RawDoc<'_>, key: RawDoc<'_>) -> Result<Wildcard> {
        Wildcard::of(spec.get("wildcardProjection").and_then(RawValue::as_document), key)
    }

    fn of(projection: Option<RawDoc<'_>>, key: RawDoc<'_>) -> Result<Wildcard> {
        let compound = key.iter().count() > 1;
        let root = key.iter().find_map(|field| field.name().strip_suffix(".$**"));
        if let Some(root) = root {
            let path: Vec<String> = root.split('.').map(str::to_owned).collect();
            let id = path.first().is_some_and(|part| part == "_id");
            return Ok(Wildcard { paths: vec![path], included: true, id, compound });
        }
        let found = match projection {
            Some(projection) => Projection::parse(projection)?,
            None => Projection { paths: Vec::new(), included: false, id: false },
        };
        Ok(Wildcard { paths: found.paths, included: found.included, id: found.id, compound })
    }

    /// Whether every value at this path has an entry. Positions in arrays are not part of an
    /// entry's path.
    pub fn covers(&self, path: &[String]) -> bool {
        match self.share(path) {
            Coverage::All => true,
            // The excluded paths are below this one; values at the path itself are indexed.
            Coverage::Parts => !self.included,
            Coverage::Nothing => false,
        }
    }

    /// Whether the key also has ordinary fields.
    pub fn is_compound(&self) -> bool {
        self.compound
    }

    fn share(&self, path: &[String]) -> Coverage {
        if path.first().is_some_and(|part| part == "_id")
            && !(self.included && self.paths.iter().any(|known| known[0] == "_id"))
        {
            return if self.id { Coverage::All } else { Coverage::Nothing };
        }
        let within = |known: &Vec<String>| path.starts_with(known);
        let above = |known: &Vec<String>| known.starts_with(path);
        match self.included {
            true if self.paths.iter().any(within) => Coverage::All,
            true if self.paths.iter().any(above) => Coverage::Parts,
            true => Coverage::Nothing,
            false if self.paths.iter().any(within) => Coverage::Nothing,
            false if self.paths.iter().any(above) => Coverage::Parts,
            false => Coverage::All,
        }
    }
}

/// The value of an ordinary field in a compound wildcard index.
fn single_value<'a>(document: RawDoc<'a>, field: &IndexField) -> Result<RawValue<'a>> {
    let (values, arrays) = keygen::values_of(document, field);
    match values.as_slice() {
        [only] if !arrays => Ok(*only),
        _ => Err(Error::new(
            ErrorCode(7_246_301),
            format!(
                "compound wildcard indexes do not support arrays in fields other than the wildcard. Found array for path: {}",
                field.path
            ),
        )),
    }
}

/// Traverses a document. The recursion is at most as deep as documents are, 200 levels.
struct Walk<'a, 'o> {
    wildcard: &'a Wildcard,
    fields: &'a [IndexField],
    collation: Option<&'a Collation>,
    /// The values of ordinary fields.
    beside: Vec<RawValue<'a>>,
    path: Vec<String>,
    arrays: bool,
    out: &'o mut KeySet,
}

impl Walk<'_, '_> {
    /// Traverses a document. Returns whether any of it is indexed.
    fn document(&mut self, document: RawDoc<'_>, share: Coverage) -> bool {
        let mut any = false;
        for element in document {
            self.path.push(element.name().to_owned());
            let share = match share {
                Coverage::All => Coverage::All,
                _ => self.wildcard.share(&self.path),
            };
            any |= share != Coverage::Nothing && self.value(element.value(), share);
            self.path.pop();
        }
        any
    }

    /// Traverses the value at the present path. Returns whether any of it is indexed.
    fn value(&mut self, value: RawValue<'_>, share: Coverage) -> bool {
        match value {
            RawValue::Document(inner) => {
                if !self.document(inner, share) {
                    self.leaf(RawValue::Document(RawDoc::EMPTY));
                }
                true
            }
            RawValue::Array(items) => {
                self.arrays = true;
                let mut any = false;
                for item in items.iter() {
                    any |= match item.value() {
                        inner @ RawValue::Document(_) => self.value(inner, share),
                        item => self.scalar(item, share),
                    };
                }
                if !any {
                    self.leaf(RawValue::Undefined);
                }
                true
            }
            scalar => self.scalar(scalar, share),
        }
    }

    /// Adds a value without paths below it. A projection by inclusion covers it only when it names
    /// the path itself.
    fn scalar(&mut self, value: RawValue<'_>, share: Coverage) -> bool {
        let indexed = share == Coverage::All || !self.wildcard.included;
        if indexed {
            self.leaf(value);
        }
        indexed
    }

    fn leaf(&mut self, value: RawValue<'_>) {
        let path = self.path.join(".");
        self.push(RawValue::String(&path), value);
    }

    fn push(&mut self, path: RawValue<'_>, value: RawValue<'_>) {
        let (fields, collation, beside) = (self.fields, self.collation, &self.beside);
        self.out.push(|key, bits| {
            for (field, ordinary) in fields.iter().zip(beside) {
                match field.kind {
                    FieldKind::Path => keys::append_value(key, bits, path, SortOrder::Ascending),
                    FieldKind::Wildcard => {
                        keys::append_value_in(key, bits, value, field.order, collation);
                    }
                    _ => keys::append_value_in(key, bits, *ordinary, field.order, collation),
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use mayfly_value::DocBuf;
    use mayfly_value::bson::{Document, doc};

    use super::*;
    use crate::index::keygen::index_keys;
    use crate::record::Record;

    /// The keys of a document, as paths and values.
    fn entries(spec: Document, document: &Document) -> Vec<String> {
        let spec = IndexSpec::from_catalog(DocBuf::from_bson(&spec)).unwrap();
        let document = DocBuf::from_bson(document);
        let mut out = KeySet::default();
        let record = Record { document: document.as_doc(), modified_ms: 0, logged_at: None };
        index_keys(&spec, record, &mut out).unwrap();
        let shown = |(key, bits): (&[u8], &[u8])| {
            let mut bits = keys::TypeBitsReader::new(bits);
            let (mut rest, mut text) = (key, Vec::new());
            for field in spec.fields() {
                let (value, len) = keys::decode_value(rest, field.order, &mut bits).unwrap();
                text.push(mayfly_value::shell::ShellValue(value.as_raw()).to_string());
                rest = &rest[len..];
            }
            text.join(" ")
        };
        out.iter().map(shown).collect()
    }

    #[test]
    fn every_value_has_an_entry_under_its_path() {
        let all = || doc! { "key": { "$**": 1 }, "name": "i" };
        let document = doc! { "_id": 1, "a": { "b": [1, { "c": 2 }, [3]], "d": {} }, "e": [] };
        let expected =
            ["\"a.b\" 1", "\"a.b.c\" 2", "\"a.b\" [ 3 ]", "\"a.d\" {}", "\"e\" undefined"];
        assert_eq!(entries(all(), &document), expected);
        assert!(entries(all(), &doc! { "_id": 1 }).is_empty());
    }

    #[test]
    fn a_projection_chooses_paths() {
        let with = |projection: Document| {
            doc! { "key": { "$**": 1 }, "name": "i", "wildcardProjection": projection }
        };
        let document = doc! { "_id": 1, "a": { "b": 1, "c": 2 }, "d": 3 };
        assert_eq!(entries(with(doc! { "a.b": 1 }), &document), ["\"a.b\" 1"]);
        assert_eq!(
            entries(with(doc! { "a.b": 0, "_id": 1 }), &document),
            ["\"_id\" 1", "\"a.c\" 2", "\"d\" 3"]
        );
        // The rest of a document without the requested fields.
        assert_eq!(entries(with(doc! { "a.x": 1 }), &document), ["\"a\" {}"]);
        let below = doc! { "key": { "a.$**": 1 }, "name": "i" };
        assert_eq!(entries(below, &document), ["\"a.b\" 1", "\"a.c\" 2"]);
    }

    #[test]
    fn a_compound_key_repeats_the_ordinary_fields() {
        let spec = || doc! { "key": { "t": 1, "a.$**": -1, "z": 1 }, "name": "i" };
        let document = doc! { "t": 7, "a": [1, 2] };
        assert_eq!(entries(spec(), &document), ["7 \"a\" 1 null", "7 \"a\" 2 null"]);
        assert_eq!(entries(spec(), &doc! { "t": 7 }), ["7 MinKey MinKey null"]);
    }
}
