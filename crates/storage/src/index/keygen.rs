//! The index keys of a document.
//!
//! Rules of the manual, "Multikey Indexes": an array on an indexed path gives one key per element;
//! an empty array gives `undefined`; a missing path gives `null`; at most one field of a compound
//! key may meet an array in one document (171 CannotIndexParallelArrays). A numeric path component
//! addresses an array position.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::paths::{check_positions, visit_index_values_of};
use mayfly_value::{Collation, RawDoc, RawValue};

use crate::index::kinds::Maintenance;
use crate::index::spec::{IndexField, IndexSpec};
use crate::policy::last_modified_entries;
use crate::record::Record;

/// The largest number of keys of one document in one index.
pub(crate) const MAX_KEYS_PER_DOCUMENT: usize = 100_000;

/// The keys of one document in one index, in one buffer.
#[derive(Default)]
pub(crate) struct KeySet {
    bytes: Vec<u8>,
    bits: Vec<u8>,
    /// End of key and end of type bits, per key.
    ends: Vec<(usize, usize)>,
    /// One bit per field that met an array.
    pub(crate) multikey: u32,
}

impl KeySet {
    /// Removes the keys and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bits.clear();
        self.ends.clear();
        self.multikey = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Keys with their type bits, in the order of creation, without duplicates.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.ends.iter().enumerate().map(|(at, &(key_end, bits_end))| {
            let (key_start, bits_start) = if at == 0 { (0, 0) } else { self.ends[at - 1] };
            (&self.bytes[key_start..key_end], &self.bits[bits_start..bits_end])
        })
    }

    /// Adds a key that `write` appends, with its type bits.
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>, &mut TypeBits)) {
        let mut bits = TypeBits::default();
        write(&mut self.bytes, &mut bits);
        self.close_key(&bits);
    }

    /// Ends the key at the end of the buffer; removes it when it is a duplicate.
    fn close_key(&mut self, bits: &TypeBits) {
        let start = self.ends.last().map_or(0, |end| end.0);
        let (before, key) = self.bytes.split_at(start);
        // A few keys are compared here. Many keys come from long arrays and are made unique later.
        let mut from = 0;
        let known = self.ends.len() <= 16
            && self.ends.iter().any(|&(end, _)| {
                let same = before[from..end] == *key;
                from = end;
                same
            });
        if known {
            self.bytes.truncate(start);
            return;
        }
        self.bits.extend_from_slice(bits.as_bytes());
        self.ends.push((self.bytes.len(), self.bits.len()));
    }

    /// Removes duplicates from long lists.
    fn deduplicate(&mut self) {
        if self.ends.len() <= 17 {
            return;
        }
        let mut seen = std::collections::HashSet::new();
        let mut unique = KeySet { multikey: self.multikey, ..KeySet::default() };
        for (key, bits) in self.iter() {
            if seen.insert(key) {
                unique.bytes.extend_from_slice(key);
                unique.bits.extend_from_slice(bits);
                unique.ends.push((unique.bytes.len(), unique.bits.len()));
            }
        }
        *self = unique;
    }
}

/// Fills `out` with the keys that a write of the document maintains: all of its keys, or none if
/// the index is log-fed.
///
/// # Errors
/// 171 CannotIndexParallelArrays; 67 CannotCreateIndex-like limits are 257 TransactionTooLarge
/// here.
pub(crate) fn index_keys(spec: &IndexSpec, record: Record<'_>, out: &mut KeySet) -> Result<()> {
    out.clear();
    let document = record.document;
    if spec.is_last_modified() {
        let order = spec.fields()[0].order;
        last_modified_entries(record, |value| {
            let mut bits = TypeBits::default();
            keys::append_value(&mut out.bytes, &mut bits, value, order);
            out.close_key(&bits);
        });
        return Ok(());
    }
    if let Some(kind) = spec.kind().special() {
        if kind.row().maintenance == Maintenance::Log {
            return Ok(());
        }
        kind.keys(spec, record, out)?;
        return limited(out);
    }
    if spec.sparse() && spec.fields().iter().all(|field| !path_exists(document, &field.parts)) {
        return Ok(());
    }
    for field in spec.fields() {
        check_positions(RawValue::Document(document), &field.parts)?;
    }
    let collation = spec.collation().map(|collation| &**collation);
    match spec.fields() {
        [field] => single_field(field, collation, document, out)?,
        fields => compound(fields, collation, document, out)?,
    }
    limited(out)
}

/// Removes duplicates and checks the number of keys.
pub(super) fn limited(out: &mut KeySet) -> Result<()> {
    out.deduplicate();
    if out.len() > MAX_KEYS_PER_DOCUMENT {
        return Err(Error::new(
            ErrorCode::TransactionTooLarge,
            format!("a document may have at most {} keys in one index", MAX_KEYS_PER_DOCUMENT),
        ));
    }
    Ok(())
}

fn single_field(
    field: &IndexField,
    collation: Option<&Collation>,
    document: RawDoc<'_>,
    out: &mut KeySet,
) -> Result<()> {
    let mut arrays = false;
    let mut found = 0usize;
    expand(RawValue::Document(document), &field.parts, &mut arrays, &mut |value| {
        found += 1;
        let mut bits = TypeBits::default();
        keys::append_value_in(&mut out.bytes, &mut bits, value, field.order, collation);
        out.close_key(&bits);
    });
    out.multikey = u32::from(arrays);
    debug_assert!(found > 0, "every document has at least the null key");
    Ok(())
}

fn compound(
    fields: &[IndexField],
    collation: Option<&Collation>,
    document: RawDoc<'_>,
    out: &mut KeySet,
) -> Result<()> {
    // The values of each field; only one field may have several.
    let mut columns: Vec<Vec<RawValue<'_>>> = Vec::with_capacity(fields.len());
    let mut array_field: Option<(usize, &IndexField)> = None;
    for (at, field) in fields.iter().enumerate() {
        let (values, arrays) = values_of(document, field);
        if arrays {
            out.multikey |= 1 << at;
            match array_field {
                // Paths that share the array are expanded together below.
                Some((_, other)) if !share_array(other, field, document) => {
                    return Err(parallel_arrays(field, other));
                }
                Some(_) => {}
                None => array_field = Some((at, field)),
            }
        }
        columns.push(values);
    }
    if out.multikey.count_ones() > 1 {
        return shared_array(fields, collation, document, out);
    }
    let rows = columns.iter().map(Vec::len).max().unwrap_or(1);
    for row in 0..rows {
        let mut bits = TypeBits::default();
        for (field, values) in fields.iter().zip(&columns) {
            let value = values.get(row).or(values.first()).copied().unwrap_or(RawValue::Null);
            keys::append_value_in(&mut out.bytes, &mut bits, value, field.order, collation);
        }
        out.close_key(&bits);
    }
    Ok(())
}

fn last(field: &IndexField) -> &str {
    field.parts.last().map_or("", String::as_str)
}

/// The longest common prefix of two paths, if an array stands at it.
fn shared_prefix(a: &IndexField, b: &IndexField, document: RawDoc<'_>) -> Option<usize> {
    let common = a.parts.iter().zip(&b.parts).take_while(|(x, y)| x == y).count();
    (1..=common).find(|&len| {
        let mut value = RawValue::Document(document);
        for part in &a.parts[..len] {
            match value {
                RawValue::Document(inner) => match inner.get(part) {
                    Some(next) => value = next,
                    None => return false,
                },
                _ => return false,
            }
        }
        matches!(value, RawValue::Array(_))
    })
}

fn share_array(a: &IndexField, b: &IndexField, document: RawDoc<'_>) -> bool {
    shared_prefix(a, b, document).is_some()
}

/// The position of one field of a key while its document is traversed.
#[derive(Clone, Copy)]
enum FieldCursor<'a, 'f> {
    /// At this value, with the rest of the path to go.
    At(RawValue<'a>, &'f [String]),
    /// At the value of the field.
    Reached(RawValue<'a>),
}

impl<'a> FieldCursor<'a, '_> {
    /// Advances to the field's value, or to the first array on the way, which it returns.
    fn go_on(&mut self) -> Option<RawDoc<'a>> {
        while let FieldCursor::At(value, parts) = *self {
            *self = match (value, parts.split_first()) {
                (RawValue::Array(array), None) => return Some(array),
                (RawValue::Array(array), Some((part, rest))) => match at_position(array, part) {
                    Some(item) if rest.is_empty() => FieldCursor::Reached(item),
                    Some(item) => FieldCursor::At(item, rest),
                    None => return Some(array),
                },
                (value, None) => FieldCursor::Reached(value),
                (RawValue::Document(inner), Some((part, rest))) => match inner.get(part) {
                    Some(next) => FieldCursor::At(next, rest),
                    None => FieldCursor::Reached(RawValue::Null),
                },
                (_, Some(_)) => FieldCursor::Reached(RawValue::Null),
            };
        }
        None
    }

    /// Enters an item of the array; `None` stands for an empty array.
    fn into_item(self, item: Option<RawValue<'a>>) -> Self {
        match (self, item) {
            (FieldCursor::At(_, []), Some(item)) => FieldCursor::Reached(item),
            (FieldCursor::At(_, []), None) => FieldCursor::Reached(RawValue::Undefined),
            (FieldCursor::At(_, parts), Some(item @ RawValue::Document(_))) => {
                FieldCursor::At(item, parts)
            }
            (FieldCursor::At(..), _) => FieldCursor::Reached(RawValue::Null),
            (reached @ FieldCursor::Reached(_), _) => reached,
        }
    }
}

/// Keys of `{ "a.b": 1, "a.c": 1 }` over `{ a: [ {b, c}, ... ] }`: one set for each item of the
/// shared array and, within it, for each item of an array below.
fn shared_array(
    fields: &[IndexField],
    collation: Option<&Collation>,
    document: RawDoc<'_>,
    out: &mut KeySet,
) -> Result<()> {
    let at = |field| FieldCursor::At(RawValue::Document(document), field);
    let places = fields.iter().map(|field| at(field.parts.as_slice())).collect();
    key_rows(fields, collation, places, out)
}

fn key_rows<'a, 'f>(
    fields: &[IndexField],
    collation: Option<&Collation>,
    mut places: Vec<FieldCursor<'a, 'f>>,
    out: &mut KeySet,
) -> Result<()> {
    let mut shared: Option<(usize, RawDoc<'a>)> = None;
    let mut inside = 0u32;
    for (at, place) in places.iter_mut().enumerate() {
        let Some(array) = place.go_on() else { continue };
        match shared {
            Some((other, first)) if !std::ptr::eq(first.as_bytes(), array.as_bytes()) => {
                return Err(parallel_arrays(&fields[at], &fields[other]));
            }
            Some(_) => {}
            None => shared = Some((at, array)),
        }
        inside |= 1 << at;
    }
    let Some((_, array)) = shared else {
        let mut bits = TypeBits::default();
        for (field, place) in fields.iter().zip(&places) {
            let (FieldCursor::At(value, _) | FieldCursor::Reached(value)) = *place;
            keys::append_value_in(&mut out.bytes, &mut bits, value, field.order, collation);
        }
        out.close_key(&bits);
        return Ok(());
    };
    let items = array.iter().map(|item| Some(item.value()));
    for item in items.chain(array.is_empty().then_some(None)) {
        let step = |(at, place): (usize, &FieldCursor<'a, 'f>)| match inside & (1 << at) {
            0 => *place,
            _ => place.into_item(item),
        };
        key_rows(fields, collation, places.iter().enumerate().map(step).collect(), out)?;
    }
    Ok(())
}

fn parallel_arrays(field: &IndexField, other: &IndexField) -> Error {
    Error::new(
        ErrorCode::CannotIndexParallelArrays,
        format!("cannot index parallel arrays [{}] [{}]", last(field), last(other)),
    )
}

/// Visits every value that the path gives as the key of a single-field index. Returns whether it
/// met an array.
pub(crate) fn single_values<'a>(
    document: RawDoc<'a>,
    parts: &[String],
    visit: &mut dyn FnMut(RawValue<'a>),
) -> bool {
    visit_index_values_of(RawValue::Document(document), parts, visit)
}

/// Every value that a field gives as an index key, at least one, and whether it met an array.
pub(crate) fn values_of<'a>(document: RawDoc<'a>, field: &IndexField) -> (Vec<RawValue<'a>>, bool) {
    let (mut values, mut arrays) = (Vec::with_capacity(1), false);
    expand(RawValue::Document(document), &field.parts, &mut arrays, &mut |value| {
        values.push(value);
    });
    (values, arrays)
}

/// Visits every value that the path gives as an index key; at least one.
fn expand<'a>(
    value: RawValue<'a>,
    parts: &[String],
    arrays: &mut bool,
    visit: &mut dyn FnMut(RawValue<'a>),
) {
    *arrays |= visit_index_values_of(value, parts, visit);
}

/// The array item at the position that this part of a path gives, unless items have a field of that
/// name.
fn at_position<'a>(array: RawDoc<'a>, part: &str) -> Option<RawValue<'a>> {
    let item = array.iter().nth(position(part)?)?;
    let named = |item: RawValue<'_>| item.as_document().is_some_and(|doc| doc.get(part).is_some());
    (!array.iter().any(|other| named(other.value()))).then_some(item.value())
}

fn position(part: &str) -> Option<usize> {
    let canonical =
        part == "0" || (!part.starts_with('0') && part.bytes().all(|b| b.is_ascii_digit()));
    if canonical && part.len() <= 7 { part.parse().ok() } else { None }
}

pub(crate) fn path_exists(document: RawDoc<'_>, parts: &[String]) -> bool {
    fn exists(value: RawValue<'_>, parts: &[String]) -> bool {
        let Some((part, rest)) = parts.split_first() else { return true };
        match value {
            RawValue::Document(inner) => inner.get(part).is_some_and(|next| exists(next, rest)),
            RawValue::Array(array) => {
                position(part)
                    .and_then(|at| array.iter().nth(at))
                    .is_some_and(|element| exists(element.value(), rest))
                    || array.iter().map(|element| element.value()).any(|element| {
                        matches!(element, RawValue::Document(_)) && exists(element, parts)
                    })
            }
            _ => false,
        }
    }
    exists(RawValue::Document(document), parts)
}

#[cfg(test)]
mod tests {
    use mayfly_value::DocBuf;
    use mayfly_value::bson::{Document, doc};

    use super::*;

    fn keys(pattern: &Document, document: &Document) -> Result<Vec<Vec<u8>>> {
        let spec = DocBuf::from_bson(&doc! { "key": pattern, "name": "i" });
        let spec = IndexSpec::from_catalog(spec).unwrap();
        let document = DocBuf::from_bson(document);
        let mut out = KeySet::default();
        let record = Record { document: document.as_doc(), modified_ms: 0, logged_at: None };
        index_keys(&spec, record, &mut out)?;
        Ok(out.iter().map(|(key, _)| key.to_vec()).collect())
    }

    #[test]
    fn fields_that_share_an_array_are_taken_from_one_item() {
        let pattern = doc! { "a.b": 1, "a.c": 1, "d": 1 };
        // Expects the same keys as those of these plain documents.
        let same = |document: &Document, plain: &[Document]| {
            let mut expected = Vec::new();
            for plain in plain {
                expected.extend(keys(&doc! { "b": 1, "c": 1, "d": 1 }, plain).unwrap());
            }
            assert_eq!(keys(&pattern, document).unwrap(), expected, "{document}");
        };
        let items = doc! { "a": [{ "b": 1, "c": 2 }, { "b": 3 }, 4], "d": 5 };
        let (one, two) = (doc! { "b": 1, "c": 2, "d": 5 }, doc! { "b": 3, "d": 5 });
        same(&items, &[one, two, doc! { "d": 5 }]);
        // An array below the shared one.
        let items = doc! { "a": [{ "b": [1, 2], "c": 3 }] };
        same(&items, &[doc! { "b": 1, "c": 3 }, doc! { "b": 2, "c": 3 }]);
        // An empty array has one key, like every document.
        same(&doc! { "a": [], "d": 1 }, &[doc! { "d": 1 }]);
        let parallel = doc! { "a": [{ "b": [1], "c": [2] }] };
        let error = keys(&pattern, &parallel).unwrap_err();
        assert_eq!(error.code(), ErrorCode::CannotIndexParallelArrays);
        let parallel = doc! { "a": [{ "b": 1 }], "d": [1] };
        assert_eq!(keys(&pattern, &parallel).unwrap_err().code(), error.code());
    }

    #[test]
    fn a_number_in_a_path_is_a_position_or_a_field_and_not_both() {
        let pattern = doc! { "a.0": 1 };
        assert_eq!(keys(&pattern, &doc! { "a": [5, { "x": 1 }] }).unwrap().len(), 1);
        assert_eq!(keys(&pattern, &doc! { "a": { "0": 5 } }).unwrap().len(), 1);
        assert_eq!(keys(&doc! { "a.1": 1 }, &doc! { "a": [{ "1": 5 }] }).unwrap().len(), 1);
        let error = keys(&pattern, &doc! { "a": [5, { "0": 7 }] }).unwrap_err();
        assert_eq!(error.code(), ErrorCode(16746));
    }

    #[test]
    fn arrays_in_arrays_that_fields_share() {
        let pattern = doc! { "a.b.c": 1, "a.b.d": 1 };
        let document =
            doc! { "a": [{ "b": [{ "c": 1, "d": 2 }, { "c": 3 }] }, { "b": { "d": 4 } }] };
        let plain = [doc! { "c": 1, "d": 2 }, doc! { "c": 3 }, doc! { "d": 4 }];
        let expected: Vec<_> =
            plain.iter().flat_map(|p| keys(&doc! { "c": 1, "d": 1 }, p).unwrap()).collect();
        assert_eq!(keys(&pattern, &document).unwrap(), expected);
    }
}
