//! Tests that metadata passes through stages with its documents.

use mayfly_value::extjson::parse_document;
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use mayfly_expr::Scope;

use crate::fixture::Fixture;
use crate::{Metadata, PipelineContext, RunSettings};

/// Runs stages over six documents with scores.
fn check(stages: &str, settings: RunSettings, expected: &str) {
    let documents: Vec<(DocBuf, Metadata)> = (0..6)
        .map(|id: i32| {
            let mut document = DocBuilder::new();
            document.append("_id", id).append("g", id % 2);
            document.start_array("a").push("x").push("y").end();
            let mut notes = DocBuilder::new();
            notes.append("textScore", f64::from(id * 7 % 6));
            (document.finish(), Metadata::new(notes.finish()))
        })
        .collect();
    let stages = parse_document(&format!("{{p: [{stages}]}}")).unwrap();
    let stages = stages.as_doc().get("p").and_then(RawValue::as_array).unwrap();
    let scope = Scope::default().with_metadata("textScore");
    let context = PipelineContext::command("test", &scope);
    let results = Fixture::new().run_over(stages, &context, &settings, &documents);
    assert_eq!(results.join(" "), expected);
}

/// Manual: "$meta (aggregation)", "Text Search in the Aggregation Pipeline".
#[test]
fn scores_travel_with_their_documents() {
    let plain = RunSettings::default;
    let score = "{$project: {s: {$meta: 'textScore'}}}";
    check(
        &format!("{{$match: {{g: 1}}}}, {{$limit: 2}}, {score}"),
        plain(),
        "{ _id: 1, s: 1.0 } { _id: 3, s: 3.0 }",
    );
    let sorted = "{$sort: {s: {$meta: 'textScore'}}}, {$skip: 1}, {$limit: 2}";
    let expected = "{ _id: 4, s: 4.0 } { _id: 3, s: 3.0 }";
    check(&format!("{sorted}, {score}"), plain(), expected);
    check(&format!("{{$replaceWith: {{_id: '$_id'}}}}, {sorted}, {score}"), plain(), expected);
    let unwound = "{$limit: 2}, {$unwind: '$a'}, {$project: {a: 1, s: {$meta: 'textScore'}}}";
    let expected = "{ _id: 0, a: \"x\", s: 0.0 } { _id: 0, a: \"y\", s: 0.0 } { _id: 1, a: \"x\", s: 1.0 } \
                    { _id: 1, a: \"y\", s: 1.0 }";
    check(unwound, plain(), expected);
    let added = "{$match: {_id: 5}}, {$addFields: {a: {$add: [1, {$meta: 'textScore'}]}}}";
    check(added, plain(), "{ _id: 5, g: 1, a: 6.0 }");
}

#[test]
fn groups_have_none_but_see_those_of_their_documents() {
    let group = "{$group: {_id: '$g', s: {$sum: {$meta: 'textScore'}}}}, {$sort: {_id: 1}}";
    let again = "{$addFields: {t: {$meta: 'textScore'}}}";
    let expected = "{ _id: 0, s: 6.0 } { _id: 1, s: 9.0 }";
    check(&format!("{group}, {again}"), RunSettings::default(), expected);
}

#[test]
fn scores_are_in_files_too() {
    let folder = Some(std::env::temp_dir());
    let small = RunSettings::limited(200, folder);
    let stages = "{$sort: {g: 1, s: {$meta: 'textScore'}}}, {$project: {s: {$meta: 'textScore'}}}";
    let expected = "{ _id: 4, s: 4.0 } { _id: 2, s: 2.0 } { _id: 0, s: 0.0 } { _id: 5, s: 5.0 } \
                    { _id: 3, s: 3.0 } { _id: 1, s: 1.0 }";
    check(stages, small, expected);
}
