//! The index keys of a document.
//!
//! Rules of the manual, "Multikey Indexes": an array on an indexed path gives one key per element; an empty array gives
//! `undefined`; a missing path gives `null`; at most one field of a compound key may meet an array in one document
//! (171 CannotIndexParallelArrays). A numeric path component addresses an array position.

use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::{RawDoc, RawValue};

use crate::index_spec::{IndexField, IndexSpec};

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
    /// Forgets the keys, keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bits.clear();
        self.ends.clear();
        self.multikey = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Key and type bits, in the order of creation, without duplicates.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.ends.iter().enumerate().map(|(at, &(key_end, bits_end))| {
            let (key_start, bits_start) = if at == 0 { (0, 0) } else { self.ends[at - 1] };
            (&self.bytes[key_start..key_end], &self.bits[bits_start..bits_end])
        })
    }

    /// Closes the key that stands at the end of the buffer; drops it when it is there already.
    fn close_key(&mut self, bits: &TypeBits) {
        let start = self.ends.last().map_or(0, |end| end.0);
        let (before, key) = self.bytes.split_at(start);
        // Few keys: compare; many keys come from long arrays and are made unique below.
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

    /// Makes long lists unique.
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

/// Fills `out` with the document's keys.
///
/// # Errors
/// 171 CannotIndexParallelArrays; 67 CannotCreateIndex-like limits are 257 TransactionTooLarge here.
pub(crate) fn index_keys(spec: &IndexSpec, document: RawDoc<'_>, out: &mut KeySet) -> Result<()> {
    out.clear();
    if spec.sparse() && spec.fields().iter().all(|field| !path_exists(document, &field.parts)) {
        return Ok(());
    }
    match spec.fields() {
        [field] => single_field(field, document, out)?,
        fields => compound(fields, document, out)?,
    }
    out.deduplicate();
    if out.len() > limits::MAX_KEYS_PER_DOCUMENT {
        return Err(Error::new(
            ErrorCode::TransactionTooLarge,
            format!(
                "a document may have at most {} keys in one index",
                limits::MAX_KEYS_PER_DOCUMENT
            ),
        ));
    }
    Ok(())
}

fn single_field(field: &IndexField, document: RawDoc<'_>, out: &mut KeySet) -> Result<()> {
    let mut arrays = false;
    let mut found = 0usize;
    expand(RawValue::Document(document), &field.parts, &mut arrays, &mut |value| {
        found += 1;
        let mut bits = TypeBits::default();
        keys::append_value(&mut out.bytes, &mut bits, value, field.descending);
        out.close_key(&bits);
    });
    out.multikey = u32::from(arrays);
    debug_assert!(found > 0, "every document has at least the null key");
    Ok(())
}

fn compound(fields: &[IndexField], document: RawDoc<'_>, out: &mut KeySet) -> Result<()> {
    // The values of each field; only one may have several.
    let mut columns: Vec<Vec<RawValue<'_>>> = Vec::with_capacity(fields.len());
    let mut array_field: Option<(usize, &IndexField)> = None;
    for (at, field) in fields.iter().enumerate() {
        let mut values = Vec::with_capacity(1);
        let mut arrays = false;
        expand(RawValue::Document(document), &field.parts, &mut arrays, &mut |v| values.push(v));
        if arrays {
            out.multikey |= 1 << at;
            match array_field {
                // Paths that share the array are expanded together below.
                Some((_, other)) if !share_array(other, field, document) => {
                    return Err(Error::new(
                        ErrorCode::CannotIndexParallelArrays,
                        format!("cannot index parallel arrays [{}] [{}]", last(field), last(other)),
                    ));
                }
                Some(_) => {}
                None => array_field = Some((at, field)),
            }
        }
        columns.push(values);
    }
    if out.multikey.count_ones() > 1 {
        return shared_array(fields, document, out);
    }
    let rows = columns.iter().map(Vec::len).max().unwrap_or(1);
    for row in 0..rows {
        let mut bits = TypeBits::default();
        for (field, values) in fields.iter().zip(&columns) {
            let value = values.get(row).or(values.first()).copied().unwrap_or(RawValue::Null);
            keys::append_value(&mut out.bytes, &mut bits, value, field.descending);
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

/// `{ "a.b": 1, "a.c": 1 }` over `{ a: [ {b, c}, ... ] }`: one key per element of the shared array.
fn shared_array(fields: &[IndexField], document: RawDoc<'_>, out: &mut KeySet) -> Result<()> {
    let arrays: Vec<usize> = (0..fields.len()).filter(|at| out.multikey & (1 << at) != 0).collect();
    let (first, second) = (&fields[arrays[0]], &fields[arrays[1]]);
    let depth = shared_prefix(first, second, document).unwrap_or(1);
    let mut value = RawValue::Document(document);
    for part in &first.parts[..depth] {
        value = value.as_document().and_then(|inner| inner.get(part)).unwrap_or(RawValue::Null);
    }
    let RawValue::Array(array) = value else { return Ok(()) };
    for element in array.iter().map(|element| element.value()) {
        let mut bits = TypeBits::default();
        for (at, field) in fields.iter().enumerate() {
            let mut chosen = None;
            let mut more = 0usize;
            let mut ignore = false;
            let mut take = |v| {
                more += 1;
                chosen.get_or_insert(v);
            };
            if out.multikey & (1 << at) != 0 {
                expand(element, &field.parts[depth..], &mut ignore, &mut take);
            } else {
                expand(RawValue::Document(document), &field.parts, &mut ignore, &mut take);
            }
            if more > 1 {
                return Err(Error::new(
                    ErrorCode::CannotIndexParallelArrays,
                    format!("cannot index parallel arrays below [{}]", field.parts[depth - 1]),
                ));
            }
            let chosen = chosen.unwrap_or(RawValue::Null);
            keys::append_value(&mut out.bytes, &mut bits, chosen, field.descending);
        }
        out.close_key(&bits);
    }
    Ok(())
}

/// Visits every value that the path gives as an index key: always at least one.
fn expand<'a>(
    value: RawValue<'a>,
    parts: &[String],
    arrays: &mut bool,
    visit: &mut dyn FnMut(RawValue<'a>),
) {
    let Some((part, rest)) = parts.split_first() else {
        match value {
            RawValue::Array(array) => {
                *arrays = true;
                let mut any = false;
                for element in array.iter() {
                    any = true;
                    visit(element.value());
                }
                if !any {
                    visit(RawValue::Undefined);
                }
            }
            other => visit(other),
        }
        return;
    };
    match value {
        RawValue::Document(inner) => match inner.get(part) {
            Some(next) => expand(next, rest, arrays, visit),
            None => visit(RawValue::Null),
        },
        RawValue::Array(array) => {
            if let Some(element) = position(part).and_then(|at| array.iter().nth(at)) {
                // A position of the array, unless its elements have a field of that name.
                if !array
                    .iter()
                    .any(|e| e.value().as_document().is_some_and(|d| d.get(part).is_some()))
                {
                    return expand(element.value(), rest, arrays, visit);
                }
            }
            *arrays = true;
            let mut any = false;
            for element in array.iter().map(|element| element.value()) {
                any = true;
                match element {
                    RawValue::Document(_) => expand(element, parts, arrays, visit),
                    _ => visit(RawValue::Null),
                }
            }
            if !any {
                visit(RawValue::Null);
            }
        }
        _ => visit(RawValue::Null),
    }
}

fn position(part: &str) -> Option<usize> {
    let canonical =
        part == "0" || (!part.starts_with('0') && part.bytes().all(|b| b.is_ascii_digit()));
    if canonical && part.len() <= 7 { part.parse().ok() } else { None }
}

fn path_exists(document: RawDoc<'_>, parts: &[String]) -> bool {
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
