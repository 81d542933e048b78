//! Stages with little memory give what they give with much.

use mayfly_expr::Scope;
use mayfly_value::extjson::parse_document;
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use crate::fixture::Fixture;
use crate::{Around, RunSettings};

const LIMITED: &[&str] = &[
    r#"{"$group": {"_id": "$a", "n": {"$sum": 1}, "all": {"$push": "$_id"}, "mean": {"$avg": "$b"}, "first": {"$first": "$t"}, "set": {"$addToSet": "$b"}}}"#,
    r#"{"$group": {"_id": {"x": "$b"}, "top": {"$top": {"sortBy": {"_id": -1}, "output": "$t"}}, "max": {"$max": "$t"}}}"#,
    r#"{"$group": {"_id": "$none", "last": {"$last": "$a"}, "two": {"$firstN": {"n": 2, "input": "$_id"}}}}"#,
    r#"{"$setWindowFields": {"sortBy": {"t": 1}, "partitionBy": "$a", "output": {"s": {"$sum": "$b", "window": {"documents": ["unbounded", "current"]}}}}}"#,
    r#"{"$bucketAuto": {"groupBy": "$b", "buckets": 7}}"#,
    r#"{"$project": {"t": 1}}, {"$addFields": {"u": "$t"}}, {"$sort": {"u": -1}}"#,
];

#[test]
fn what_spills_gives_the_same() {
    let fixture = Fixture::new();
    let documents: Vec<DocBuf> = (0..3000)
        .map(|id: i32| {
            let mut out = DocBuilder::new();
            out.append("_id", id).append("a", id * 7919 % 113).append("b", id * 31 % 500);
            out.append("t", format!("text {}", id * 271 % 3001).as_str());
            out.finish()
        })
        .collect();
    documents.chunks(500).for_each(|chunk| fixture.insert("c", chunk));
    let scope = Scope::default();
    let around = Around::command("test", &scope);
    let folder = std::env::temp_dir().join("mayfly-stage-test");
    for text in LIMITED {
        let wrapped: DocBuf = parse_document(&format!("{{\"p\": [{text}]}}")).unwrap();
        let stages = wrapped.as_doc().get("p").and_then(RawValue::as_array).unwrap();
        let run = |memory_bytes, spill_folder| {
            let settings = RunSettings { memory_bytes, spill_folder, ..RunSettings::default() };
            fixture.run(stages, &around, settings)
        };
        let mut plain = run(100 << 20, None).unwrap();
        let mut spilled = run(20_000, Some(folder.clone())).unwrap();
        if text.contains("$group") {
            plain.sort();
            spilled.sort();
        }
        assert_eq!(plain, spilled, "{text}");
        let failed = run(20_000, None);
        // One group needs no more than that.
        assert!(failed == Err(292) || text.contains("$none"), "{text}: {failed:?}");
    }
}
