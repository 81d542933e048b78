//! The changes of an update as a delta in the reference's format (version 2), so that the log
//! contains the changes instead of the whole document.
//!
//! ```text
//! document   { d: { name: false, .. },     removed fields
//!              u: { name: value, .. },     fields with another value, at their old position
//!              i: { name: value, .. },     added fields, appended in this order
//!              b: { name: { o: offset, d: BinData }, .. },   binary fields with another end: `d` from the offset on
//!              s<name>: delta, .. }        fields whose document or array has a delta of its own
//! array      { a: true, l: length, u<index>: value, .., s<index>: delta, .. }
//! ```
//!
//! The delta of update operators has the value at each path that an operator named, also if only a
//! part of the value has changed; an array is named as a whole if several of the items changed that
//! `$[]` or `$[identifier]` selected. Other deltas have the smallest parts; what is not shorter by
//! its parts is named as a whole, and so is a document that a pipeline computed.
//!
//! A delta applied to the old document gives the new one, byte for byte. A field that moves is
//! removed and added. A document with two fields of the same name among the changed ones has no
//! delta.

use mayfly_value::{
    ChangedPath, DocBuf, DocBuilder, PathWrite, RawDoc, RawElement, RawIter, RawValue, ty,
};

use super::UpdateStyle;

/// The deepest level that is compared by parts; a changed value below it is replaced as a whole.
const MAX_LEVELS: usize = 20;
/// A document with more changed fields is replaced as a whole.
const MAX_CHANGES: usize = 256;

/// Binary values with a shorter common prefix are replaced as a whole.
const MIN_SHARED_BYTES: usize = 64;
/// The bytes that the reference counts for the fields `$v` and `diff` of an entry.
const DELTA_FRAME_BYTES: usize = 15;
/// The number of bytes that are compared at once.
const BLOCK: usize = 64;

/// The delta from `old` to `new`; `None` when the new document has to be logged as a whole. Every
/// part of the new document that is not in the delta is in the old one, byte for byte. With
/// [`UpdateStyle::Growth`] binary values are compared by parts; readers of such a delta need the
/// old document.
pub(crate) fn delta(old: RawDoc<'_>, new: RawDoc<'_>, style: UpdateStyle<'_>) -> Option<DocBuf> {
    let (growth, paths): (_, &[_]) = match style {
        UpdateStyle::Replacement => return None,
        UpdateStyle::Computed | UpdateStyle::Parts => (false, &[]),
        UpdateStyle::Operators(paths) => (false, paths),
        UpdateStyle::Growth => (true, &[]),
    };
    let delta = document_delta(old, new, Depth { levels: MAX_LEVELS, growth, paths })?;
    let fits = match style {
        UpdateStyle::Computed => is_shorter(&delta, DELTA_FRAME_BYTES, new),
        _ => true,
    };
    fits.then_some(delta)
}

/// Whether a delta with a frame of so many bytes is shorter than the new value.
fn is_shorter(delta: &DocBuf, frame_bytes: usize, new: RawDoc<'_>) -> bool {
    delta.as_bytes().len() + frame_bytes < new.as_bytes().len()
}

/// How deep parts are compared.
#[derive(Clone, Copy)]
struct Depth<'p> {
    levels: usize,
    growth: bool,
    /// The paths of operators through this level; none if parts are compared freely.
    paths: &'p [ChangedPath<'p>],
}

/// How a changed field is described.
enum Described<'p> {
    /// By its parts.
    Free,
    /// As a whole.
    Whole,
    /// By the items at its end, if only such were added.
    Appended,
    /// By the operators' paths below it.
    Below(Vec<ChangedPath<'p>>),
}

impl<'p> Depth<'p> {
    /// The number of path parts above this level.
    fn above(self) -> usize {
        MAX_LEVELS - self.levels
    }

    /// How a changed field or item of this level is described.
    fn describes(self, name: &str) -> Described<'p> {
        let at = self.above();
        let has_name = |path: &&ChangedPath<'_>| path.parts.get(at).is_some_and(|it| **it == *name);
        let Some(first) = self.paths.iter().find(has_name) else { return Described::Free };
        // No path leads through the end of another one.
        match (first.parts.len() - at, first.write) {
            (1, PathWrite::Whole) => Described::Whole,
            (1, PathWrite::Append) => Described::Appended,
            _ => Described::Below(self.paths.iter().filter(has_name).copied().collect()),
        }
    }

    /// The level below.
    fn inner(self) -> Option<Depth<'p>> {
        Some(Depth { levels: self.levels.checked_sub(1)?, ..self })
    }

    /// Whether `$[]` or `$[identifier]` selected items of the array at this level.
    fn selects_items(self) -> bool {
        let at = self.above();
        self.paths.iter().any(|path| path.given.get(at).is_some_and(|it| it.starts_with("$[")))
    }

    /// Whether the operators' paths name several items of the array at this level.
    fn names_several_items(self) -> bool {
        let at = self.above();
        let mut names = self.paths.iter().filter_map(|path| path.parts.get(at));
        let first = names.next();
        names.any(|name| Some(name) != first)
    }
}

/// Changed fields by the sort of change, in the order of the documents.
#[derive(Default)]
struct Changes<'a> {
    gone: Vec<RawElement<'a>>,
    set: Vec<RawElement<'a>>,
    came: Vec<RawElement<'a>>,
    /// Binary fields with the length of the unchanged prefix.
    tails: Vec<(RawElement<'a>, usize)>,
    inner: Vec<(RawElement<'a>, DocBuf)>,
}

impl Changes<'_> {
    fn len(&self) -> usize {
        let whole = self.gone.len() + self.set.len() + self.came.len();
        whole + self.tails.len() + self.inner.len()
    }
}

fn document_delta<'a>(old: RawDoc<'a>, new: RawDoc<'a>, depth: Depth<'_>) -> Option<DocBuf> {
    let mut changes = Changes::default();
    let mut read = same_elements(old, new);
    let (mut before, mut after) = (old.iter_from(read), new.iter_from(read));
    let next = |read: &mut usize, after: &mut RawIter<'a>| {
        after.next().inspect(|element| *read += element.encoded_len())
    };
    let mut pending = next(&mut read, &mut after);
    while let Some(element) = before.next() {
        match pending {
            Some(now) if now.name_bytes() == element.name_bytes() => {
                let compared = compare(element, now, depth, &mut changes);
                // Most updates change one or two fields, and all bytes after them are the same.
                if compared == Compared::Different && before.rest() == after.rest() {
                    read = new.as_bytes().len() - 5;
                    pending = None;
                    break;
                }
                pending = next(&mut read, &mut after);
            }
            _ => changes.gone.push(element),
        }
        if changes.len() > MAX_CHANGES {
            return None;
        }
    }
    while let Some(now) = pending {
        changes.came.push(now);
        if changes.len() > MAX_CHANGES {
            return None;
        }
        pending = next(&mut read, &mut after);
    }
    if !is_all(new, read) {
        return None;
    }
    // A field that moved to the end is not listed as removed.
    let Changes { gone, came, .. } = &mut changes;
    gone.retain(|gone| !came.iter().any(|came| came.name_bytes() == gone.name_bytes()));
    unambiguous(old, new, &changes).then(|| write_document(&changes))
}

/// The length of the common prefix in whole elements; these need no comparison one by one.
fn same_elements(old: RawDoc<'_>, new: RawDoc<'_>) -> usize {
    // The elements follow the four bytes of the length.
    let [old, of_new] = [old, new].map(|document| document.as_bytes().get(4..).unwrap_or(&[]));
    let shared = shared_bytes(old, of_new);
    let mut same = 0;
    for element in new {
        let end = same + element.encoded_len();
        if end > shared {
            break;
        }
        same = end;
    }
    same
}

/// The length of the common prefix.
fn shared_bytes(old: &[u8], new: &[u8]) -> usize {
    // Blocks are compared first, because usually a few bytes have changed.
    let blocks = old.chunks_exact(BLOCK).zip(new.chunks_exact(BLOCK));
    let same = BLOCK * blocks.take_while(|(a, b)| a == b).count();
    let rest = old[same..].iter().zip(&new[same..]);
    same + rest.take_while(|(a, b)| a == b).count()
}

/// The result of a comparison of two fields of the same name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compared {
    Same,
    Different,
}

fn compare<'a>(
    old: RawElement<'a>,
    new: RawElement<'a>,
    depth: Depth<'_>,
    changes: &mut Changes<'a>,
) -> Compared {
    if old.type_byte() == new.type_byte() && old.data() == new.data() {
        return Compared::Same;
    }
    let has_parts =
        |element: &RawElement<'_>| matches!(element.type_byte(), ty::DOCUMENT | ty::ARRAY);
    let described = match depth.paths {
        [] => Described::Free,
        _ => depth.describes(new.name()),
    };
    if depth.growth
        && let Some(shared) = shared_front(old.value(), new.value())
    {
        changes.tails.push((new, shared));
    } else if has_parts(&old)
        && has_parts(&new)
        && let Some(delta) = described_delta(old.value(), new.value(), depth, &described)
    {
        changes.inner.push((new, delta));
    } else {
        changes.set.push(new);
    }
    Compared::Different
}

/// The length of the common prefix of two binary values, if omitting it saves enough.
fn shared_front(old: RawValue<'_>, new: RawValue<'_>) -> Option<usize> {
    let (
        RawValue::Binary { subtype: before, bytes: old },
        RawValue::Binary { subtype: after, bytes: new },
    ) = (old, new)
    else {
        return None;
    };
    let shared = shared_bytes(old, new);
    let fits = i32::try_from(shared).is_ok();
    (before == after && shared >= MIN_SHARED_BYTES && fits).then_some(shared)
}

/// The delta of a value as an operator's path wants it; `None` if the value is logged as a whole.
fn described_delta(
    old: RawValue<'_>,
    new: RawValue<'_>,
    depth: Depth<'_>,
    described: &Described<'_>,
) -> Option<DocBuf> {
    match (described, old, new) {
        (Described::Free, old, new) => inner_delta(old, new, Depth { paths: &[], ..depth }),
        (Described::Below(paths), RawValue::Array(old), RawValue::Array(new)) => {
            array_delta(old, new, Depth { paths, ..depth }.inner()?)
        }
        (Described::Below(paths), old, new) => inner_delta(old, new, Depth { paths, ..depth }),
        (Described::Appended, RawValue::Array(old), RawValue::Array(new)) => {
            // The items, without the final zero.
            let items = old.as_bytes().get(4..old.as_bytes().len().saturating_sub(1))?;
            let is_prefix = new.as_bytes().get(4..)?.starts_with(items);
            if !is_prefix {
                return None;
            }
            array_delta(old, new, Depth { paths: &[], ..depth }.inner()?)
        }
        (Described::Appended | Described::Whole, _, _) => None,
    }
}

/// The delta of an embedded document or array, if it is shorter than the new value.
fn inner_delta(old: RawValue<'_>, new: RawValue<'_>, depth: Depth<'_>) -> Option<DocBuf> {
    let depth = depth.inner()?;
    let (delta, new) = match (old, new) {
        (RawValue::Document(old), RawValue::Document(new)) => {
            (document_delta(old, new, depth)?, new)
        }
        (RawValue::Array(old), RawValue::Array(new)) => (array_delta(old, new, depth)?, new),
        _ => return None,
    };
    (!depth.paths.is_empty() || is_shorter(&delta, 0, new)).then_some(delta)
}

fn array_delta(old: RawDoc<'_>, new: RawDoc<'_>, depth: Depth<'_>) -> Option<DocBuf> {
    let (before, after) = (old.iter().count(), new.iter().count());
    let mut delta = DocBuilder::new();
    delta.append("a", true);
    if after < before {
        delta.append("l", i32::try_from(after).ok()?);
    }
    let selected = depth.selects_items();
    let several = selected && depth.names_several_items();
    let (mut changed, mut read) = (0, 0);
    let mut olds = old.iter();
    for (at, item) in new.iter().enumerate() {
        read += item.encoded_len();
        let was = olds.next();
        if was.is_some_and(|w| w.type_byte() == item.type_byte() && w.data() == item.data()) {
            continue;
        }
        changed += 1;
        if changed > MAX_CHANGES || (selected && changed > 1) {
            return None;
        }
        let described = match depth.paths {
            [] => Described::Free,
            _ if several => Described::Whole,
            _ => depth.describes(&at.to_string()),
        };
        let inner =
            was.and_then(|was| described_delta(was.value(), item.value(), depth, &described));
        match inner {
            Some(inner) => delta.append(&format!("s{at}"), inner.as_doc()),
            None => delta.append_renamed(format!("u{at}").as_bytes(), item),
        };
    }
    is_all(new, read).then(|| delta.finish())
}

/// Whether these are all elements of a document. A damaged document cannot be read to its end.
fn is_all(document: RawDoc<'_>, read: usize) -> bool {
    // The document also has its length and a final zero.
    document.as_bytes().len() == 4 + read + 1
}

/// Whether each changed name belongs to one field only, before and after.
fn unambiguous(old: RawDoc<'_>, new: RawDoc<'_>, changes: &Changes<'_>) -> bool {
    let once = |doc: RawDoc<'_>, name: &[u8]| {
        doc.iter().filter(|element| element.name_bytes() == name).nth(1).is_none()
    };
    let came = |name: &[u8]| changes.came.iter().any(|came| came.name_bytes() == name);
    let inner = changes.inner.iter().map(|(element, _)| element);
    let tails = changes.tails.iter().map(|(element, _)| element);
    let stayed = changes.set.iter().chain(inner).chain(tails);
    // A second field of this name in the new document was either in the old one, or was added.
    let known =
        |element: &RawElement<'_>| once(old, element.name_bytes()) && !came(element.name_bytes());
    let new_fields = |element: &RawElement<'_>| {
        once(old, element.name_bytes()) && once(new, element.name_bytes())
    };
    changes.gone.iter().all(|element| once(old, element.name_bytes()))
        && stayed.into_iter().all(known)
        && changes.came.iter().all(new_fields)
}

fn write_document(changes: &Changes<'_>) -> DocBuf {
    let mut delta = DocBuilder::new();
    if !changes.gone.is_empty() {
        delta.start_document("d");
        for element in &changes.gone {
            delta.append_renamed(element.name_bytes(), RawElement::from_parts(ty::BOOL, b"", &[0]));
        }
        delta.end();
    }
    for (name, elements) in [("u", &changes.set), ("i", &changes.came)] {
        if !elements.is_empty() {
            delta.start_document(name);
            for element in elements {
                delta.append_element(*element);
            }
            delta.end();
        }
    }
    if !changes.tails.is_empty() {
        delta.start_document("b");
        for (element, shared) in &changes.tails {
            let RawValue::Binary { subtype, bytes } = element.value() else { continue };
            let bytes = bytes.get(*shared..).unwrap_or(&[]);
            delta.start_document(element.name()).append("o", *shared as i32);
            delta.append("d", RawValue::Binary { subtype, bytes }).end();
        }
        delta.end();
    }
    for (element, inner) in &changes.inner {
        let name = [b"s", element.name_bytes()].concat();
        let inner = match element.type_byte() {
            ty::ARRAY | ty::DOCUMENT => inner.as_bytes(),
            _ => unreachable!("only documents and arrays have a delta"),
        };
        delta.append_renamed(&name, RawElement::from_parts(ty::DOCUMENT, b"", inner));
    }
    delta.finish()
}

#[cfg(test)]
mod tests;
