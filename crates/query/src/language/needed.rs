//! Reduces documents to the fields that are read later, so that buffers and files do not contain
//! the others.

use std::collections::BTreeSet;

use mayfly_mql::Projection;
use mayfly_mql::projection::ProjectionKind;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

/// Documents with more needed fields are kept whole.
const MAX_FIELDS: usize = 16;

/// Names of the top-level fields that are read later.
#[derive(Clone, Debug)]
pub(crate) struct Fields(Vec<String>);

impl Fields {
    /// These names, unless they are too many.
    pub(crate) fn few(names: impl IntoIterator<Item = String>) -> Option<Fields> {
        let names: Vec<String> = names.into_iter().collect();
        (names.len() <= MAX_FIELDS).then_some(Fields(names))
    }

    /// Copies these fields of a document.
    pub(crate) fn of(&self, document: RawDoc<'_>) -> DocBuf {
        let mut out = DocBuilder::new();
        for field in document {
            if self.0.iter().any(|name| name.as_bytes() == field.name_bytes()) {
                out.append_element(field);
            }
        }
        out.finish()
    }
}

/// A projection to these paths; `None` if the document has to stay whole.
pub(crate) fn keeping(paths: &BTreeSet<String>) -> Option<Projection> {
    let mut spec = DocBuilder::new();
    let mut with_id = false;
    let mut kept: Option<&str> = None;
    for path in paths {
        // Paths are sorted, so nested paths follow directly, or after names with characters smaller
        // than the dot.
        let inside = |outer: &str| path.strip_prefix(outer).is_some_and(|it| it.starts_with('.'));
        if kept.is_some_and(inside) || paths.iter().any(|outer| inside(outer)) {
            continue;
        }
        with_id |= path == "_id" || path.starts_with("_id.");
        spec.append(path, 1);
        kept = Some(path);
    }
    // Without paths only the number of documents matters.
    kept?;
    if !with_id {
        spec.append("_id", RawValue::Int32(0));
    }
    Projection::parse(spec.finish().as_doc(), ProjectionKind::Stage).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_value::extjson::parse_document;

    fn kept(paths: &[&str], document: &str) -> String {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        let document: DocBuf = parse_document(document).unwrap();
        let kept = keeping(&paths).unwrap().project(document.as_doc()).unwrap();
        mayfly_value::shell::Shell(kept.as_doc()).to_string()
    }

    #[test]
    fn what_lies_on_the_paths_stays() {
        let document = r#"{"_id": 1, "b": [{"x": 1, "y": 2}, 3], "a": {"x": 1, "y": {"z": 2}}, "a-": 4, "c": 1}"#;
        assert_eq!(kept(&["a.y", "a-", "a.y.z"], document), "{ a: { y: { z: 2 } }, a-: 4 }");
        assert_eq!(kept(&["_id", "b.x"], document), "{ _id: 1, b: [ { x: 1 } ] }");
        assert_eq!(kept(&["a", "a-", "a.x"], document), "{ a: { x: 1, y: { z: 2 } }, a-: 4 }");
    }
}
