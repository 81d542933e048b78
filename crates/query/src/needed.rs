//! Documents with nothing but the fields that somebody reads: what waits in memory or in files need not carry the others.

use std::collections::BTreeSet;

use crate::buckets::wanted_fields;
use crate::stage::Stage;
use mayfly_mql::Projection;
use mayfly_mql::projection::ProjectionKind;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

/// With more fields than that it is not worth looking for them.
const MAX_FIELDS: usize = 16;

/// Names of the fields of a document that somebody looks at.
#[derive(Clone, Debug)]
pub(crate) struct Fields(Vec<String>);

impl Fields {
    /// A document with only those.
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

/// What the stages from this place on look at, when the one there keeps documents.
fn kept_at(pipeline: RawDoc<'_>, at: usize) -> Option<Fields> {
    let behind = pipeline.iter().skip(at).filter_map(|stage| stage.value().as_document());
    let fields: Vec<String> = wanted_fields(behind)?.into_iter().collect();
    (fields.len() <= MAX_FIELDS).then_some(Fields(fields))
}

/// What the sort keeps that the planner takes from the front of a pipeline.
pub(crate) fn kept_by_front_sort(stages: &[Stage], pipeline: RawDoc<'_>) -> Option<Fields> {
    match stages {
        [Stage::Sort(..), ..] => kept_at(pipeline, 0),
        [Stage::Match(_), Stage::Sort(..), ..] => kept_at(pipeline, 1),
        _ => None,
    }
}

/// Leaves away, before stages that keep documents, the fields that nobody behind looks at. `sent` says which stage of the pipeline
/// each stage is, where that is known.
pub(crate) fn narrow(stages: &mut Vec<Stage>, sent: &[usize], pipeline: RawDoc<'_>) {
    if stages.len() != sent.len() {
        return;
    }
    for at in (1..stages.len()).rev() {
        let front = matches!(stages[..at], [Stage::Match(_)]);
        let keeps = matches!(stages[at], Stage::Sort(..) | Stage::WindowFields(_)) && !front;
        let narrow = matches!(stages[at - 1], Stage::Project(_) | Stage::Group(_));
        if keeps
            && !narrow
            && let Some(fields) = kept_at(pipeline, sent[at])
        {
            stages.insert(at, Stage::Keep(fields));
        }
    }
}

/// What keeps these paths and all that lies in them; nothing when the document has to stay whole.
pub(crate) fn keeping(paths: &BTreeSet<String>) -> Option<Projection> {
    let mut spec = DocBuilder::new();
    let mut with_id = false;
    let mut kept: Option<&str> = None;
    for path in paths {
        // They are in order: what lies inside comes right behind, or behind names with characters below the dot.
        let inside = |outer: &str| path.strip_prefix(outer).is_some_and(|it| it.starts_with('.'));
        if kept.is_some_and(inside) || paths.iter().any(|outer| inside(outer)) {
            continue;
        }
        with_id |= path == "_id" || path.starts_with("_id.");
        spec.append(path, 1);
        kept = Some(path);
    }
    // Without a path only the number of documents is of interest.
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
