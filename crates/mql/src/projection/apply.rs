//! Projections over raw documents.

use mayfly_base::limits::MAX_BSON_DEPTH;
use mayfly_value::{DocBuilder, RawDoc, RawElement, RawValue};

use super::{Branch, Level, Mode, Projection};

pub(super) fn apply(projection: &Projection, doc: RawDoc<'_>, out: &mut DocBuilder) {
    for element in doc.iter() {
        if element.name_bytes() == b"_id" && projection.root.find(b"_id").is_none() {
            if projection.keeps_id {
                out.append_element(element);
            }
            continue;
        }
        apply_element(projection.mode, &projection.root, element, out, 0);
    }
}

fn apply_element(
    mode: Mode,
    level: &Level,
    element: RawElement<'_>,
    out: &mut DocBuilder,
    depth: usize,
) {
    match (mode, level.find(element.name_bytes())) {
        (Mode::Include, Some(Branch::Leaf)) | (Mode::Exclude, None) => {
            out.append_element(element);
        }
        (Mode::Include, None) | (Mode::Exclude, Some(Branch::Leaf)) => {}
        (_, Some(Branch::Level(inner))) => match element.value() {
            RawValue::Document(doc) => {
                out.start_document(element.name());
                apply_fields(mode, inner, doc, out, depth + 1);
                out.end();
            }
            RawValue::Array(items) => {
                out.start_array(element.name());
                apply_items(mode, inner, items, out, depth + 1);
                out.end();
            }
            _ if mode == Mode::Exclude => {
                out.append_element(element);
            }
            _ => {}
        },
    }
}

fn apply_fields(mode: Mode, level: &Level, doc: RawDoc<'_>, out: &mut DocBuilder, depth: usize) {
    if depth <= MAX_BSON_DEPTH {
        doc.iter().for_each(|element| apply_element(mode, level, element, out, depth));
    }
}

/// The documents of an array are projected; other items stay in an exclusion and go in an
/// inclusion.
fn apply_items(mode: Mode, level: &Level, items: RawDoc<'_>, out: &mut DocBuilder, depth: usize) {
    if depth > MAX_BSON_DEPTH {
        return;
    }
    for item in items.iter() {
        match item.value() {
            RawValue::Document(doc) => {
                out.push_document();
                apply_fields(mode, level, doc, out, depth + 1);
                out.end();
            }
            RawValue::Array(inner) => {
                out.push_array();
                apply_items(mode, level, inner, out, depth + 1);
                out.end();
            }
            value if mode == Mode::Exclude => {
                out.push(value);
            }
            _ => {}
        }
    }
}
