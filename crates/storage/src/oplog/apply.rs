//! Applies a delta of the log to a document. The format is drawn in [`super::diff`], which makes
//! deltas. Deltas of other servers arrive by `applyOps`, so all parts are checked.
//!
//! A delta may be applied to a document that already has its changes: removed fields stay removed,
//! and added fields are appended at the end again.

use mayfly_base::{Error, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, ValueBuf};

/// The deepest level of a delta.
const MAX_LEVELS: usize = 200;
/// The greatest length to which a delta may extend an array.
const MAX_ITEMS: usize = 1_500_000;

/// Applies the delta to a document.
///
/// # Errors
/// 9 FailedToParse for a malformed delta.
pub(crate) fn apply_delta(old: RawDoc<'_>, delta: RawDoc<'_>) -> Result<DocBuf> {
    document(old, delta, MAX_LEVELS)
}

fn malformed(what: &str) -> Error {
    Error::failed_to_parse(format!("the delta of an update has {what}"))
}

/// The sections of a document's delta.
#[derive(Default)]
struct Sections<'d> {
    gone: Option<RawDoc<'d>>,
    set: Option<RawDoc<'d>>,
    came: Option<RawDoc<'d>>,
    tails: Option<RawDoc<'d>>,
    inner: Vec<(&'d str, RawDoc<'d>)>,
}

impl<'d> Sections<'d> {
    fn of(delta: RawDoc<'d>) -> Result<Sections<'d>> {
        let mut sections = Sections::default();
        for element in delta {
            let Some(part) = element.value().as_document() else {
                return Err(malformed(&format!("no document under '{}'", element.name())));
            };
            match element.name() {
                "d" => sections.gone = Some(part),
                "u" => sections.set = Some(part),
                "i" => sections.came = Some(part),
                "b" => sections.tails = Some(part),
                name => match name.strip_prefix('s') {
                    Some(field) => sections.inner.push((field, part)),
                    None => return Err(malformed(&format!("the unknown section '{name}'"))),
                },
            }
        }
        Ok(sections)
    }
}

fn has(part: Option<RawDoc<'_>>, name: &str) -> bool {
    part.is_some_and(|part| part.get_element(name).is_some())
}

fn document(old: RawDoc<'_>, delta: RawDoc<'_>, levels: usize) -> Result<DocBuf> {
    let sections = Sections::of(delta)?;
    let mut out = DocBuilder::in_buffer(Vec::with_capacity(old.as_bytes().len() + 64));
    for element in old {
        let name = element.name();
        if has(sections.gone, name) || has(sections.came, name) {
            continue;
        }
        if let Some(now) = sections.set.and_then(|set| set.get_element(name)) {
            out.append_element(now);
        } else if let Some(tail) = sections.tails.and_then(|tails| tails.get(name)) {
            let value = with_tail(element.value(), tail)?;
            out.append(name, value.as_raw());
        } else if let Some((_, inner)) = sections.inner.iter().find(|(field, _)| *field == name) {
            out.append(name, nested(element.value(), *inner, levels)?.as_raw());
        } else {
            out.append_element(element);
        }
    }
    // A changed field that is missing in the document is appended.
    for now in sections.set.into_iter().flatten() {
        if old.get_element(now.name()).is_none() {
            out.append_element(now);
        }
    }
    if let Some(came) = sections.came {
        out.append_all(came);
    }
    Ok(out.finish())
}

/// A binary value up to the offset of the tail, followed by the tail.
fn with_tail(old: RawValue<'_>, tail: RawValue<'_>) -> Result<ValueBuf> {
    let parts = tail.as_document().map(|tail| (tail.get("o"), tail.get("d")));
    let Some((Some(RawValue::Int32(offset)), Some(RawValue::Binary { subtype, bytes: end }))) =
        parts
    else {
        return Err(malformed("no offset and value for a binary field"));
    };
    let RawValue::Binary { bytes: was, .. } = old else { return Ok(old.to_owned()) };
    let kept = usize::try_from(offset).ok().and_then(|offset| was.get(..offset));
    let Some(kept) = kept else { return Err(malformed("an offset after the end of its field")) };
    let bytes = [kept, end].concat();
    Ok(RawValue::Binary { subtype, bytes: &bytes }.to_owned())
}

/// Applies a nested delta to the value of a field. A value that is neither a document nor an array
/// any more stays.
fn nested(old: RawValue<'_>, delta: RawDoc<'_>, levels: usize) -> Result<ValueBuf> {
    let Some(levels) = levels.checked_sub(1) else { return Err(malformed("too many levels")) };
    let of_array = delta.get("a") == Some(RawValue::Bool(true));
    Ok(match old {
        RawValue::Array(old) if of_array => {
            RawValue::Array(array(old, delta, levels)?.as_doc()).to_owned()
        }
        RawValue::Document(old) if !of_array => {
            RawValue::Document(document(old, delta, levels)?.as_doc()).to_owned()
        }
        other => other.to_owned(),
    })
}

fn array(old: RawDoc<'_>, delta: RawDoc<'_>, levels: usize) -> Result<DocBuf> {
    let mut items: Vec<ValueBuf> = old.iter().map(|item| item.value().to_owned()).collect();
    for element in delta {
        let position = |text: &str| match text.parse::<usize>() {
            Ok(at) if at < MAX_ITEMS => Ok(at),
            _ => Err(malformed(&format!("the position '{text}' in an array"))),
        };
        match (element.name(), element.value()) {
            ("a", _) => {}
            ("l", RawValue::Int32(length)) => resize(&mut items, position(&length.to_string())?),
            (name, value) => {
                let (kind, at) = name.split_at_checked(1).unwrap_or((name, ""));
                let at = position(at)?;
                if items.len() <= at {
                    resize(&mut items, at + 1);
                }
                items[at] = match (kind, value) {
                    ("u", value) => value.to_owned(),
                    ("s", RawValue::Document(inner)) => nested(items[at].as_raw(), inner, levels)?,
                    _ => return Err(malformed(&format!("the unknown part '{name}' of an array"))),
                };
            }
        }
    }
    let mut out = DocBuilder::new_array();
    for item in &items {
        out.push(item);
    }
    Ok(out.finish())
}

/// Truncates the array, or extends it with nulls.
fn resize(items: &mut Vec<ValueBuf>, length: usize) {
    items.resize_with(length, || RawValue::Null.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_value::bson::{Bson, Document, doc};

    fn applied(old: Document, delta: Document) -> Result<DocBuf> {
        let (old, delta) = (DocBuf::from_bson(&old), DocBuf::from_bson(&delta));
        apply_delta(old.as_doc(), delta.as_doc())
    }

    #[test]
    fn what_is_applied_twice_is_as_applied_once() {
        let delta = doc! {"d": {"a": false}, "u": {"b": 2}, "i": {"c": 3}, "sd": {"u": {"x": 1}}};
        let once = applied(doc! {"a": 1, "b": 1, "d": {"x": 0}}, delta.clone()).unwrap();
        let expected = doc! {"b": 2, "d": {"x": 1}, "c": 3};
        assert_eq!(once, DocBuf::from_bson(&expected));
        assert_eq!(applied(expected, delta).unwrap(), once);
    }

    #[test]
    fn what_is_missing_or_of_another_type_does_not_fail() {
        let found = applied(doc! {}, doc! {"u": {"a": 1}, "sb": {"u": {"c": 1}}}).unwrap();
        assert_eq!(found, DocBuf::from_bson(&doc! {"a": 1}));
        let found = applied(doc! {"a": 1}, doc! {"sa": {"a": true, "u0": 1}}).unwrap();
        assert_eq!(found, DocBuf::from_bson(&doc! {"a": 1}));
        let found = applied(doc! {"a": [1]}, doc! {"sa": {"a": true, "u2": 1}}).unwrap();
        assert_eq!(found, DocBuf::from_bson(&doc! {"a": [1, Bson::Null, 1]}));
    }

    #[test]
    fn what_is_no_delta_is_an_error() {
        for delta in [
            doc! {"u": 1},
            doc! {"x": {}},
            doc! {"sa": {"a": true, "u99999999999": 1}},
            doc! {"sa": {"a": true, "x0": 1}},
            doc! {"sa": {"a": true, "u-1": 1}},
        ] {
            assert!(applied(doc! {"a": [1]}, delta.clone()).is_err(), "{delta}");
        }
    }
}
