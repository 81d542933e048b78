//! Dotted paths through documents and arrays, as queries, sort patterns and index keys read them.
//!
//! A path such as `a.b` goes through embedded documents, and **into the documents of an array** on
//! its way: in `{a: [{b: 1}, {b: 2}]}` it reaches 1 and 2. A numeric part addresses an array's
//! position, and also a field of that name in the array's documents. An array directly inside an
//! array is entered only through such a part, and is one value if the path ends there. Where a
//! document on the way lacks the field, or the path meets a scalar, it is [`Hit::Missing`] there;
//! array items that are not documents are skipped.

use std::ops::ControlFlow;

use mayfly_base::{Error, ErrorCode, Result};

use crate::raw::{Finder, RawDoc, RawElement, RawValue};
use crate::shell::ShellValue;

/// Most parts of a path; the reference's limit on nesting is the same number.
pub const MAX_PATH_PARTS: usize = mayfly_base::limits::MAX_BSON_DEPTH;

/// The fields of a reference to a document (DBRef): the only names that may begin with `$` wherever
/// paths are checked.
pub const LINK_FIELDS: [&str; 3] = ["$ref", "$id", "$db"];

/// Whether a name begins with `$` and is not a DBRef field. Paths of pipelines, sort patterns,
/// projections and indexes must not contain such names.
pub fn is_dollar_name(name: &str) -> bool {
    name.starts_with('$') && !LINK_FIELDS.contains(&name)
}

/// Checks a dotted path by the rules of pipelines, sort patterns and projections: no empty part,
/// none that begins with `$`, and no NUL byte, which would terminate the name.
///
/// # Errors
/// 15 Overflow, 40352, 40353, 15998, 16410, 16411.
pub fn check_field_path(dotted: &str) -> Result<()> {
    let fault = |code: i32, text: &str| Err(Error::new(ErrorCode(code), text));
    if dotted.is_empty() {
        return fault(40352, "FieldPath cannot be constructed with empty string");
    }
    if dotted.split('.').take(MAX_PATH_PARTS + 1).count() > MAX_PATH_PARTS {
        return fault(ErrorCode::Overflow.0, "FieldPath is too long");
    }
    if dotted.ends_with('.') {
        return fault(40353, "FieldPath must not end with a '.'.");
    }
    for part in dotted.split('.') {
        if part.is_empty() {
            return Err(empty_name());
        }
        if is_dollar_name(part) {
            let text = "FieldPath field names may not start with '$'. Consider using $getField or $setField.";
            return fault(16410, text);
        }
    }
    if dotted.contains('\0') {
        let text =
            "FieldPath field names may not contain '\\0'. Consider using $getField or $setField.";
        return fault(16411, text);
    }
    Ok(())
}

/// The error for a part of a path, or for a name in a document that an expression makes.
pub fn empty_name() -> Error {
    Error::new(ErrorCode(15998), "FieldPath field names may not be empty strings.")
}

/// One result of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Hit<'a> {
    /// A value, and whether it was reached as an item of the array that the path ends in.
    Value(RawValue<'a>, bool),
    /// The path ends early at this document or scalar.
    Missing,
}

/// The treatment of an array at the end of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafArrays {
    /// Visit its items, then the array itself, as comparisons in queries require.
    Expand,
    /// Visit only the array itself.
    Keep,
}

/// Receives each hit; `Break` ends the visit.
pub type Visit<'v, 'a> = &'v mut dyn FnMut(Hit<'a>) -> ControlFlow<()>;

/// All hits of a path.
pub type PathHits<'a> = Vec<Hit<'a>>;

/// Collects every value that a path reaches, arrays at its end expanded.
pub fn get_path<'a>(doc: RawDoc<'a>, path: &str) -> PathHits<'a> {
    let parts: Vec<&str> = path.split('.').collect();
    let mut hits = Vec::new();
    let _ = visit_path(doc, &parts, &mut |hit| {
        hits.push(hit);
        ControlFlow::Continue(())
    });
    hits
}

/// Visits every value that a path reaches, arrays at its end expanded.
#[inline]
pub fn visit_path<'a, S: AsRef<str>>(
    doc: RawDoc<'a>,
    path_parts: &[S],
    visit: Visit<'_, 'a>,
) -> ControlFlow<()> {
    visit_path_with(doc, path_parts, LeafArrays::Expand, visit)
}

/// Visits every value that a path reaches.
pub fn visit_path_with<'a, S: AsRef<str>>(
    doc: RawDoc<'a>,
    path_parts: &[S],
    leaf_arrays: LeafArrays,
    visit: Visit<'_, 'a>,
) -> ControlFlow<()> {
    visit_document(doc, path_parts, leaf_arrays, |doc: RawDoc<'a>, name: &str| doc.get(name), visit)
}

/// The same with fields found by a [`Finder`].
pub fn visit_path_by<'a, S: AsRef<str>>(
    doc: RawDoc<'a>,
    path_parts: &[S],
    leaf_arrays: LeafArrays,
    finder: &Finder<'_>,
    visit: Visit<'_, 'a>,
) -> ControlFlow<()> {
    let get = |doc: RawDoc<'a>, name: &str| finder.get(doc, name);
    visit_document(doc, path_parts, leaf_arrays, get, visit)
}

/// Returns a field of a document.
trait Get<'a>: Fn(RawDoc<'a>, &str) -> Option<RawValue<'a>> + Copy {}

impl<'a, F: Fn(RawDoc<'a>, &str) -> Option<RawValue<'a>> + Copy> Get<'a> for F {}

fn visit_document<'a, S: AsRef<str>>(
    doc: RawDoc<'a>,
    path_parts: &[S],
    leaf_arrays: LeafArrays,
    get: impl Get<'a>,
    visit: Visit<'_, 'a>,
) -> ControlFlow<()> {
    let Some((name, rest)) = path_parts.split_first() else {
        return ControlFlow::Continue(());
    };
    match get(doc, name.as_ref()) {
        Some(value) => visit_value(value, rest, leaf_arrays, get, visit),
        None => visit(Hit::Missing),
    }
}

/// Continues from a value that the path has reached.
fn visit_value<'a, S: AsRef<str>>(
    value: RawValue<'a>,
    rest: &[S],
    leaf_arrays: LeafArrays,
    get: impl Get<'a>,
    visit: Visit<'_, 'a>,
) -> ControlFlow<()> {
    match (value, rest.is_empty()) {
        (RawValue::Array(items), true) if leaf_arrays == LeafArrays::Expand => {
            for item in items.iter() {
                visit(Hit::Value(item.value(), true))?;
            }
            visit(Hit::Value(value, false))
        }
        (_, true) => visit(Hit::Value(value, false)),
        (RawValue::Document(inner), false) => visit_document(inner, rest, leaf_arrays, get, visit),
        (RawValue::Array(items), false) => visit_items(items, rest, leaf_arrays, get, visit),
        (_, false) => visit(Hit::Missing),
    }
}

/// Continues through an array in the middle of a path: into the documents in it, and at a
/// position's item into the item itself. Both are results, in the order of the items.
fn visit_items<'a, S: AsRef<str>>(
    items: RawDoc<'a>,
    rest: &[S],
    leaf_arrays: LeafArrays,
    get: impl Get<'a>,
    visit: Visit<'_, 'a>,
) -> ControlFlow<()> {
    let position = array_index(rest[0].as_ref());
    let after = &rest[1..];
    for (at, item) in items.iter().enumerate() {
        let value = item.value();
        if let RawValue::Document(inner) = value {
            visit_document(inner, rest, leaf_arrays, get, visit)?;
        }
        if position != Some(at) {
            continue;
        }
        match (value, after.is_empty()) {
            // Also an array as it is: a path that ends in a position does not go into its item.
            (_, true) => visit(Hit::Value(value, false))?,
            (RawValue::Document(inner), false) => {
                visit_document(inner, after, leaf_arrays, get, visit)?;
            }
            (RawValue::Array(inner), false) => visit_items(inner, after, leaf_arrays, get, visit)?,
            (_, false) => {}
        }
    }
    ControlFlow::Continue(())
}

/// Visits the values that an index on the path has for a document, which sorting by the path uses
/// too. Returns whether it met an array. The items of an array at the end are visited one by one,
/// an empty array as undefined. A missing field is visited as null, so there is always at least one
/// value.
pub fn visit_index_values<'a, S: AsRef<str>>(
    doc: RawDoc<'a>,
    path_parts: &[S],
    visit: &mut dyn FnMut(RawValue<'a>),
) -> bool {
    visit_index_values_of(RawValue::Document(doc), path_parts, visit)
}

/// The same for a path that begins at a value, for example at an item of an array.
pub fn visit_index_values_of<'a, S: AsRef<str>>(
    value: RawValue<'a>,
    parts: &[S],
    visit: &mut dyn FnMut(RawValue<'a>),
) -> bool {
    match (value, parts.split_first()) {
        (RawValue::Array(items), None) => {
            if items.is_empty() {
                visit(RawValue::Undefined);
            }
            items.iter().for_each(|item| visit(item.value()));
            true
        }
        (RawValue::Document(inner), Some((part, rest))) => match inner.get(part.as_ref()) {
            Some(next) => visit_index_values_of(next, rest, visit),
            None => {
                visit(RawValue::Null);
                false
            }
        },
        (RawValue::Array(items), Some((part, rest))) => {
            let named = |item: RawElement<'a>| {
                item.value()
                    .as_document()
                    .is_some_and(|doc| doc.get_element(part.as_ref()).is_some())
            };
            let at = array_index(part.as_ref()).and_then(|index| items.iter().nth(index));
            if let Some(item) = at.filter(|_| !items.iter().any(named)) {
                // A position; the index does not count this array as multikey. Its item is the
                // value as it is, also an array.
                if rest.is_empty() {
                    visit(item.value());
                    return false;
                }
                return visit_index_values_of(item.value(), rest, visit);
            }
            if items.is_empty() {
                visit(RawValue::Null);
            }
            for item in items.iter() {
                match item.value() {
                    inner @ RawValue::Document(_) => {
                        visit_index_values_of(inner, parts, visit);
                    }
                    _ => visit(RawValue::Null),
                }
            }
            true
        }
        (value, None) => {
            visit(value);
            false
        }
        (_, Some(_)) => {
            visit(RawValue::Null);
            false
        }
    }
}

/// Refuses values in which a number in a path is valid both as a position and as a field, as index
/// keys and sorting do.
///
/// # Errors
/// 16746.
pub fn check_positions<S: AsRef<str>>(value: RawValue<'_>, parts: &[S]) -> Result<()> {
    if !parts.iter().any(|part| array_index(part.as_ref()).is_some()) {
        return Ok(());
    }
    let Some((part, rest)) = parts.split_first() else { return Ok(()) };
    let part = part.as_ref();
    let array = match value {
        RawValue::Document(inner) => {
            return inner.get(part).map_or(Ok(()), |next| check_positions(next, rest));
        }
        RawValue::Array(array) => array,
        _ => return Ok(()),
    };
    let Some(item) = array_index(part).and_then(|at| array.iter().nth(at)) else {
        let documents = array.iter().map(|item| item.value());
        return documents
            .filter(|item| matches!(item, RawValue::Document(_)))
            .try_for_each(|item| check_positions(item, parts));
    };
    let named = |item: RawElement<'_>| {
        item.value().as_document().is_some_and(|doc| doc.get_element(part).is_some())
    };
    if array.iter().any(named) {
        let shown = ShellValue(value);
        let text = format!(
            "Ambiguous field name found in array (do not use numeric field names in embedded elements in an array), field: '{part}' for array: {shown}"
        );
        return Err(Error::new(ErrorCode(16746), text));
    }
    check_positions(item.value(), rest)
}

/// The array position in a path part: digits without a leading zero.
pub fn array_index(part: &str) -> Option<usize> {
    let digits = part.as_bytes();
    let plain = !digits.is_empty()
        && digits.len() <= 9
        && digits.iter().all(u8::is_ascii_digit)
        && (digits[0] != b'0' || digits.len() == 1);
    if plain { part.parse().ok() } else { None }
}

/// The value at a path through embedded documents only.
pub fn get_plain<'a>(doc: RawDoc<'a>, path: &str) -> Option<RawValue<'a>> {
    let mut parts = path.split('.');
    let mut value = doc.get(parts.next()?)?;
    for part in parts {
        value = value.as_document()?.get(part)?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extjson::parse_document;

    /// Manual: "Query an Array of Embedded Documents", "Document: Dot Notation".
    #[test]
    fn paths_traverse_arrays() {
        let cases = [
            ("{a: 1}", "a", "1"),
            ("{a: {b: 2}}", "a.b", "2"),
            ("{}", "a.b", "missing"),
            ("{a: 5}", "a.b", "missing"),
            ("{a: [1, 2]}", "a", "*1 *2 [ 1, 2 ]"),
            ("{a: [{b: 1}, {b: 2}, 3, {}]}", "a.b", "1 2 missing"),
            ("{a: [{b: [1, 2]}]}", "a.b", "*1 *2 [ 1, 2 ]"),
            ("{a: [[{b: 1}]]}", "a.b", ""),
            ("{a: [[{b: 1}]]}", "a.0.b", "1"),
            ("{a: [7, 8]}", "a.1", "8"),
            ("{a: [7, 8]}", "a.2", ""),
            ("{a: [[7, 8]]}", "a.0", "[ 7, 8 ]"),
            ("{a: [[7, 8]]}", "a.0.1", "8"),
            ("{a: [7]}", "a.0.b", ""),
            ("{a: [{'0': 5}]}", "a.0", "5 { 0: 5 }"),
            ("{a: [{b: 1}]}", "a.0.b", "missing 1"),
            ("{a: []}", "a.b", ""),
            ("{a: {'0': 1}}", "a.0", "1"),
        ];
        for (doc, path, expected) in cases {
            let doc = parse_document(doc).unwrap();
            let hits = get_path(doc.as_doc(), path).iter().map(show).collect::<Vec<_>>();
            assert_eq!(hits.join(" "), expected, "{path} in {doc:?}");
        }
    }

    /// Manual: "Multikey Indexes", "Sparse Indexes".
    #[test]
    fn index_values_of_paths() {
        let cases = [
            ("{a: 1}", "a", "1", false),
            ("{}", "a.b", "null", false),
            ("{a: []}", "a", "undefined", true),
            ("{a: []}", "a.b", "null", true),
            ("{a: [1, [2]]}", "a", "1 [ 2 ]", true),
            ("{a: [{b: 1}, 5, {}]}", "a.b", "1 null null", true),
            ("{a: [{b: [1, 2]}]}", "a.b", "1 2", true),
            ("{a: [7, 8]}", "a.1", "8", false),
            ("{a: [[7, 8]]}", "a.0", "[ 7, 8 ]", false),
            ("{a: [{'0': 5}]}", "a.0", "5", true),
        ];
        for (doc, path, expected, array) in cases {
            let doc = parse_document(doc).unwrap();
            let parts: Vec<&str> = path.split('.').collect();
            let mut values = Vec::new();
            let met = visit_index_values(doc.as_doc(), &parts, &mut |value| {
                values.push(format!("{value:?}"));
            });
            assert_eq!((values.join(" ").as_str(), met), (expected, array), "{path} in {doc:?}");
        }
    }

    fn show(hit: &Hit<'_>) -> String {
        match hit {
            Hit::Value(value, true) => format!("*{value:?}"),
            Hit::Value(value, false) => format!("{value:?}"),
            Hit::Missing => "missing".to_owned(),
        }
    }
}
