//! `storedSource`: the fields of a document that an index keeps.

use std::collections::BTreeMap;

use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::definition::StoredSource;
use crate::limits::MAX_DEPTH;

/// Paths as a tree of names. A name without names below it is the end of a path.
#[derive(Default)]
struct Names<'p>(BTreeMap<&'p str, Names<'p>>);

impl<'p> Names<'p> {
    fn of(paths: &'p [String]) -> Names<'p> {
        let mut names = Names::default();
        for path in paths {
            names.add(path.split('.'));
        }
        names
    }

    fn add(&mut self, mut parts: impl Iterator<Item = &'p str>) {
        let Some(first) = parts.next() else { return };
        match self.0.get_mut(first) {
            // A path that ends here contains all longer ones.
            Some(names) if names.0.is_empty() => {}
            Some(names) => {
                let rest: Vec<&str> = parts.collect();
                if rest.is_empty() { names.0.clear() } else { names.add(rest.into_iter()) }
            }
            None => {
                let mut names = Names::default();
                names.add(parts);
                self.0.insert(first, names);
            }
        }
    }
}

/// The treatment of the named paths.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Keep,
    Remove,
}

/// The fields that the index keeps; `None`: it keeps none.
pub(super) fn stored(document: RawDoc<'_>, source: &StoredSource) -> Option<DocBuf> {
    let (paths, mode) = match source {
        StoredSource::None => return None,
        StoredSource::All => return Some(document.to_owned()),
        StoredSource::Include(paths) => (paths, Mode::Keep),
        StoredSource::Exclude(paths) => (paths, Mode::Remove),
    };
    let mut names = Names::of(paths);
    // The `_id` is always kept.
    match mode {
        Mode::Keep => _ = names.0.insert("_id", Names::default()),
        Mode::Remove => _ = names.0.remove("_id"),
    }
    let mut builder = DocBuilder::new();
    copy(document, &names, mode, &mut builder, 0);
    Some(builder.finish())
}

fn copy(document: RawDoc<'_>, names: &Names<'_>, mode: Mode, out: &mut DocBuilder, depth: usize) {
    for element in document {
        match names.0.get(element.name()) {
            None if mode == Mode::Remove => _ = out.append_element(element),
            None => {}
            Some(names) if names.0.is_empty() && mode == Mode::Keep => {
                out.append_element(element);
            }
            Some(names) if names.0.is_empty() => {}
            Some(names) => match element.value() {
                RawValue::Document(inner) if depth < MAX_DEPTH => {
                    out.start_document(element.name());
                    copy(inner, names, mode, out, depth + 1);
                    out.end();
                }
                RawValue::Array(items) if depth < MAX_DEPTH => {
                    out.start_array(element.name());
                    copy_items(items, names, mode, out, depth + 1);
                    out.end();
                }
                _ if mode == Mode::Remove => _ = out.append_element(element),
                _ => {}
            },
        }
    }
}

fn copy_items(
    items: RawDoc<'_>,
    names: &Names<'_>,
    mode: Mode,
    out: &mut DocBuilder,
    depth: usize,
) {
    for item in items {
        match item.value() {
            RawValue::Document(inner) if depth < MAX_DEPTH => {
                out.push_document();
                copy(inner, names, mode, out, depth + 1);
                out.end();
            }
            RawValue::Array(inner) if depth < MAX_DEPTH => {
                out.push_array();
                copy_items(inner, names, mode, out, depth + 1);
                out.end();
            }
            value if mode == Mode::Remove => _ = out.push(value),
            _ => {}
        }
    }
}
