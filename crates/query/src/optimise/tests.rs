//! Tests that optimised pipelines give the same results.

use mayfly_expr::Scope;
use mayfly_value::extjson::parse_document;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::optimised;
use crate::fixture::Fixture;
use crate::pipeline::parse_stages;
use crate::stage::filter::Match;
use crate::{PipelineContext, RunSettings};

fn document(text: &str) -> DocBuf {
    parse_document(text).unwrap()
}

/// The array in `{p: [...]}`.
fn pipeline(text: &str) -> DocBuf {
    let wrapped = document(&format!("{{\"p\": [{text}]}}"));
    wrapped.as_doc().get("p").and_then(RawValue::as_array).unwrap().to_owned()
}

/// The stages as explain shows them, with explicit operators in filters; `None` for invalid stages.
fn shown(pipeline: RawDoc<'_>, rewrite: bool) -> Option<String> {
    let scope = Scope::default();
    let context = PipelineContext::command("test", &scope);
    let (_, mut steps) = parse_stages(pipeline, &context).ok()?;
    if rewrite {
        steps = optimised(steps, &context);
    }
    let shown = steps.iter().filter_map(|step| match step.get::<Match>() {
        Some(found) => Some(found.0.root().to_document()),
        None => step.written().map(RawDoc::to_owned),
    });
    let shown = shown.map(|step| mayfly_value::shell::Shell(step.as_doc()).to_string());
    Some(shown.collect::<Vec<_>>().join(", "))
}

/// The rewritten stages, if they differ from the original.
fn rewritten(text: &str) -> Option<String> {
    let stages = pipeline(text);
    let better = shown(stages.as_doc(), true)?;
    (shown(stages.as_doc(), false).as_ref() != Some(&better)).then_some(better)
}

fn check(text: &str, expected: &str) {
    let expected = shown(pipeline(expected).as_doc(), false);
    assert!(expected.is_some(), "{text}");
    assert_eq!(rewritten(text), expected, "{text}");
}

#[test]
fn filters_and_limits_go_to_the_front() {
    check(
        r#"{"$sort": {"a": 1}}, {"$match": {"a": 1}}, {"$match": {"b": 2}}"#,
        r#"{"$match": {"$and": [{"a": 1}, {"b": 2}]}}, {"$sort": {"a": 1}}"#,
    );
    check(
        r#"{"$project": {"b": "$a", "c": 1}}, {"$match": {"b": 1, "c.d": 2, "e": 3}}"#,
        r#"{"$match": {"$and": [{"a": 1}, {"c.d": 2}]}}, {"$project": {"b": "$a", "c": 1}}, {"$match": {"e": 3}}"#,
    );
    check(
        r#"{"$unwind": "$a"}, {"$match": {"a": 1, "b": 2}}"#,
        r#"{"$match": {"b": 2}}, {"$unwind": "$a"}, {"$match": {"a": 1}}"#,
    );
    check(
        r#"{"$group": {"_id": "$a", "n": {"$sum": 1}}}, {"$match": {"_id": {"$gt": 5}, "n": 1}}"#,
        r#"{"$match": {"a": {"$gt": 5}}}, {"$group": {"_id": "$a", "n": {"$sum": 1}}}, {"$match": {"n": 1}}"#,
    );
    check(
        r#"{"$sort": {"a": 1}}, {"$addFields": {"x": 1}}, {"$limit": 5}, {"$limit": 3}"#,
        r#"{"$sort": {"a": 1}}, {"$limit": {"$numberLong": "3"}}, {"$addFields": {"x": 1}}"#,
    );
    check(
        r#"{"$unionWith": "d"}, {"$match": {"a": 1}}"#,
        r#"{"$match": {"a": 1}}, {"$unionWith": {"coll": "d", "pipeline": [{"$match": {"a": {"$eq": 1}}}]}}"#,
    );
}

#[test]
fn filters_pass_new_roots_and_redactions() {
    check(
        r#"{"$replaceWith": {"b": "$a", "c": {"$add": ["$c", 1]}}}, {"$match": {"b.x": 1, "c": 2}}"#,
        r#"{"$match": {"a.x": 1}}, {"$replaceWith": {"b": "$a", "c": {"$add": ["$c", 1]}}}, {"$match": {"c": 2}}"#,
    );
    check(
        r#"{"$replaceRoot": {"newRoot": {"$mergeObjects": ["$$ROOT", {"x": "$y"}]}}}, {"$match": {"a": 1, "x": 2}}"#,
        r#"{"$match": {"a": 1}}, {"$replaceRoot": {"newRoot": {"$mergeObjects": ["$$ROOT", {"x": "$y"}]}}}, {"$match": {"x": 2}}"#,
    );
    check(
        r#"{"$redact": "$$DESCEND"}, {"$match": {"a.b": {"$gt": 1}, "c": null, "d.0": 1}}"#,
        r#"{"$match": {"a.b": {"$gt": 1}}}, {"$redact": "$$DESCEND"}, {"$match": {"a.b": {"$gt": 1}, "c": null, "d.0": 1}}"#,
    );
    check(
        r#"{"$sort": {"a": 1}}, {"$redact": "$$DESCEND"}, {"$sort": {"b": 1}}, {"$match": {"a": 1}}"#,
        r#"{"$match": {"a": 1}}, {"$sort": {"a": 1}}, {"$redact": "$$DESCEND"}, {"$match": {"a": 1}}, {"$sort": {"b": 1}}"#,
    );
}

#[test]
fn what_depends_on_a_stage_stays_after_it() {
    for text in [
        r#"{"$addFields": {"a.b": 1}}, {"$match": {"a.c": null}}"#,
        r#"{"$project": {"a": 1}}, {"$match": {"b": null}}"#,
        r#"{"$project": {"a": {"$add": ["$a", 1]}}}, {"$match": {"a": 1}}"#,
        r#"{"$group": {"_id": "$a"}}, {"$match": {"_id": null}}"#,
        r#"{"$limit": 3}, {"$match": {"a": 1}}"#,
        r#"{"$replaceRoot": {"newRoot": "$a"}}, {"$match": {"a": 1}}"#,
        r#"{"$replaceWith": {"a": "$b"}}, {"$match": {"b": null}}"#,
        r#"{"$redact": "$$PRUNE"}, {"$match": {"a": {"$ne": 1}, "b": [1], "c": {"$exists": false}}}"#,
        r#"{"$sort": {"a": 1}}, {"$match": {"$sampleRate": 0.5}}"#,
        r#"{"$sort": {"a": 1}}, {"$match": {"$expr": {"$lt": [{"$rand": {}}, 0.5]}}}"#,
    ] {
        assert_eq!(rewritten(text), None, "{text}");
    }
}

/// Random choices, the same in each run.
struct Chance(SmallRng);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0.random_range(0..most)
    }

    fn pick<'p>(&mut self, from: &[&'p str]) -> &'p str {
        from[self.below(from.len())]
    }
}

const VALUES: &[&str] = &[
    "1",
    "2",
    "null",
    "\"x\"",
    "[]",
    "[1, 2]",
    "[{\"b\": 1}, 2]",
    "{\"b\": 1}",
    "{\"b\": [1, {\"c\": 2}]}",
    "1.0",
    "{}",
    "[[1]]",
];
const PATHS: &[&str] = &["a", "b", "c", "a.b", "b.c", "_id", "a.0", "d"];
const STAGES: &[&str] = &[
    "{\"$sort\": {\"P\": 1, \"_id\": 1}}",
    "{\"$sort\": {\"P\": -1, \"_id\": 1}}",
    "{\"$addFields\": {\"P\": V}}",
    "{\"$addFields\": {\"b\": \"$a\", \"c\": \"$Q\"}}",
    "{\"$addFields\": {\"d\": {\"$literal\": V}, \"a\": \"$b\"}}",
    "{\"$project\": {\"P\": 1}}",
    "{\"$project\": {\"a\": 1, \"d\": \"$b\"}}",
    "{\"$project\": {\"_id\": 0, \"b\": \"$a\", \"c\": \"$P\"}}",
    "{\"$project\": {\"P\": 0}}",
    "{\"$unset\": [\"P\"]}",
    "{\"$unwind\": \"$P\"}",
    "{\"$unwind\": {\"path\": \"$P\", \"includeArrayIndex\": \"d\", \"preserveNullAndEmptyArrays\": true}}",
    "{\"$limit\": 4}",
    "{\"$skip\": 2}",
    "{\"$lookup\": {\"from\": \"d\", \"localField\": \"P\", \"foreignField\": \"Q\", \"as\": \"d\"}}",
    "{\"$lookup\": {\"from\": \"d\", \"localField\": \"P\", \"foreignField\": \"b\", \"as\": \"a.b\"}}",
    "{\"$lookup\": {\"from\": \"d\", \"localField\": \"P\", \"foreignField\": \"Q\", \"as\": \"d\"}}, {\"$unwind\": \"$d\"}",
    "{\"$lookup\": {\"from\": \"d\", \"localField\": \"P\", \"foreignField\": \"b\", \"as\": \"a.b\"}}, {\"$unwind\": {\"path\": \"$a.b\", \"includeArrayIndex\": \"d\", \"preserveNullAndEmptyArrays\": true}}",
    "{\"$lookup\": {\"from\": \"d\", \"localField\": \"P\", \"foreignField\": \"Q\", \"as\": \"d\"}}, {\"$unwind\": \"$d\"}, {\"$match\": {\"d.Q\": V, \"d.a\": {\"$ne\": V}}}",
    "{\"$lookup\": {\"from\": \"d\", \"localField\": \"P\", \"foreignField\": \"b\", \"as\": \"a.b\"}}, {\"$unwind\": \"$a.b\"}, {\"$match\": {\"a.b.Q\": {\"$gt\": V}, \"P\": V}}",
    "{\"$unionWith\": \"d\"}",
    "{\"$replaceWith\": {\"_id\": \"$_id\", \"b\": \"$a\", \"c\": {\"$literal\": V}, \"a\": \"$Q\"}}",
    "{\"$replaceRoot\": {\"newRoot\": {\"$mergeObjects\": [\"$$ROOT\", {\"b\": \"$Q\"}, {\"d\": {\"$literal\": V}}]}}}",
    "{\"$redact\": {\"$cond\": [{\"$eq\": [\"$c\", V]}, \"$$PRUNE\", \"$$DESCEND\"]}}",
    "{\"$redact\": {\"$cond\": [{\"$gt\": [\"$b\", V]}, \"$$KEEP\", \"$$DESCEND\"]}}",
    "{\"$setWindowFields\": {\"sortBy\": {\"_id\": 1}, \"output\": {\"P\": {\"$max\": \"$Q\", \"window\": {\"documents\": [-1, 1]}}}}}",
    "{\"$count\": \"a\"}",
    "{\"$group\": {\"_id\": \"$a\", \"b\": {\"$sum\": 1}}}",
    "{\"$group\": {\"_id\": \"$b.c\", \"a\": {\"$max\": \"$a\"}}}",
    "{\"$match\": {\"P\": V}}",
    "{\"$match\": {\"P\": {\"$gt\": V}}}",
    "{\"$match\": {\"P\": {\"$ne\": V}, \"Q\": {\"$in\": [1, \"x\"]}}}",
    "{\"$match\": {\"P\": {\"$exists\": false}}}",
    "{\"$match\": {\"$or\": [{\"P\": V}, {\"Q\": {\"$lt\": 2}}]}}",
    "{\"$match\": {\"$expr\": {\"$eq\": [\"$Q\", 1]}}}",
    "{\"$match\": {\"P\": {\"$elemMatch\": {\"$gte\": 1}}}}",
];

fn fill(template: &str, chance: &mut Chance) -> String {
    let path = chance.pick(PATHS);
    let other = chance.pick(&["a", "b", "c", "a.b"]);
    let filled = template.replace("$$PRUNE", "$$%").replace('P', path);
    let filled = filled.replace('Q', other).replace('V', chance.pick(VALUES));
    filled.replace("$$%", "$$PRUNE")
}

#[test]
fn a_rewritten_pipeline_gives_the_same() {
    let fixture = Fixture::new();
    let mut chance = Chance(SmallRng::seed_from_u64(7));
    for collection in ["c", "d"] {
        let documents: Vec<DocBuf> = (0..24)
            .map(|id| {
                let mut out = DocBuilder::new();
                out.append("_id", id);
                for name in ["a", "b", "c"] {
                    if chance.below(4) > 0 {
                        let value = document(&format!("{{\"v\": {}}}", chance.pick(VALUES)));
                        out.append(name, value.as_doc().get("v").unwrap());
                    }
                }
                out.finish()
            })
            .collect();
        fixture.insert(collection, &documents);
    }
    let (mut changed, mut compared) = (0, 0);
    for _ in 0..6000 {
        let count = 2 + chance.below(4);
        let text: Vec<String> =
            (0..count).map(|_| fill(STAGES[chance.below(STAGES.len())], &mut chance)).collect();
        let text = text.join(", ");
        let stages = pipeline(&text);
        let scope = Scope::default();
        let context = PipelineContext::command("test", &scope);
        if rewritten(&text).is_none() {
            continue;
        }
        changed += 1;
        let plain = fixture.run(stages.as_doc(), &context.as_written(), RunSettings::default());
        let better = fixture.run(stages.as_doc(), &context, RunSettings::default());
        let (Ok(mut plain), Ok(mut better)) = (plain, better) else { continue };
        // Groups have no defined order.
        if text.contains("$group") {
            if text.contains("$limit") || text.contains("$skip") {
                continue;
            }
            plain.sort();
            better.sort();
        }
        assert_eq!(plain, better, "{text}");
        compared += 1;
    }
    assert!(changed > 1000 && compared > 500, "{changed} {compared}");
}

/// Groups that need one document for each value, with the field of the index that serves them.
const GROUPED: &[(&str, &str)] = &[
    (r#"{"$group": {"_id": "$a"}}"#, "a"),
    (r#"{"$match": {"a": {"$gte": 1, "$lt": 5}}}, {"$group": {"_id": "$a"}}"#, "a"),
    (
        r#"{"$match": {"a": {"$in": [1, "x", null]}, "b": {"$gt": 3}}}, {"$group": {"_id": "$a"}}"#,
        "a",
    ),
    (r#"{"$sort": {"a": 1}}, {"$group": {"_id": "$a"}}"#, "a"),
    (
        r#"{"$sort": {"a": 1}}, {"$group": {"_id": "$a", "b": {"$first": "$b"}, "c": {"$first": "$c"}}}"#,
        "a",
    ),
    (r#"{"$sort": {"a": -1}}, {"$group": {"_id": "$a", "b": {"$last": "$b"}}}"#, "a"),
    (r#"{"$sort": {"d": 1, "b": -1}}, {"$group": {"_id": "$d", "b": {"$first": "$b"}}}"#, "d"),
    (r#"{"$sort": {"d": -1, "b": 1}}, {"$group": {"_id": "$d", "b": {"$first": "$$ROOT"}}}"#, "d"),
    (r#"{"$sort": {"d": 1, "b": -1}}, {"$group": {"_id": "$d", "b": {"$last": "$b"}}}"#, "d"),
    (
        r#"{"$match": {"d": {"$lt": 2}, "b": {"$mod": [2, 0]}}}, {"$sort": {"d": 1, "b": -1}}, {"$group": {"_id": "$d", "b": {"$last": "$b"}}}"#,
        "d",
    ),
    (r#"{"$group": {"_id": "$e.f"}}"#, "e.f"),
    (r#"{"$group": {"_id": "$a"}}, {"$match": {"_id": {"$gt": 2}}}"#, "a"),
];

/// Groups that need all documents, whatever indexes exist.
const NOT_GROUPED: &[&str] = &[
    r#"{"$group": {"_id": "$a", "n": {"$sum": 1}}}"#,
    r#"{"$group": {"_id": "$a", "b": {"$first": "$b"}}}"#,
    r#"{"$sort": {"a": 1}}, {"$group": {"_id": "$a", "b": {"$first": "$b"}, "c": {"$last": "$b"}}}"#,
    r#"{"$sort": {"b": 1}}, {"$group": {"_id": "$a", "b": {"$first": "$b"}}}"#,
    r#"{"$sort": {"a": 1}}, {"$limit": 5}, {"$group": {"_id": "$a"}}"#,
    r#"{"$sort": {"d": 1}}, {"$group": {"_id": "$d", "b": {"$first": "$b"}}}"#,
    r#"{"$group": {"_id": {"x": "$a"}}}"#,
    r#"{"$group": {"_id": "$m"}}"#,
    r#"{"$group": {"_id": "$s"}}"#,
];

#[test]
fn groups_by_an_index_give_the_same() {
    let values = ["1", "2", "1.0", "null", "\"x\"", "{\"b\": 1}", "{}", "true", "7"];
    let fixture = Fixture::new();
    let mut chance = Chance(SmallRng::seed_from_u64(11));
    let documents: Vec<DocBuf> = (0..700)
        .map(|id| {
            let mut out = DocBuilder::new();
            out.append("_id", id).append("b", id * 7 % 10);
            for name in ["a", "c", "d", "s"] {
                if chance.below(8) > 0 {
                    let value = document(&format!("{{\"v\": {}}}", chance.pick(&values)));
                    out.append(name, value.as_doc().get("v").unwrap());
                }
            }
            if chance.below(3) > 0 {
                out.start_document("e").append("f", (id % 5) as i64).end();
            }
            if id == 600 {
                out.start_array("m").push(1).push(2).end();
            } else {
                out.append("m", id % 3);
            }
            out.finish()
        })
        .collect();
    documents.chunks(100).for_each(|chunk| fixture.insert("c", chunk));
    for index in [
        r#"{"key": {"a": 1}, "name": "a"}"#,
        r#"{"key": {"d": -1, "b": 1}, "name": "db"}"#,
        r#"{"key": {"e.f": 1, "b": 1}, "name": "ef"}"#,
        r#"{"key": {"m": 1}, "name": "m"}"#,
        r#"{"key": {"s": 1}, "name": "s", "sparse": true}"#,
    ] {
        fixture.index("c", document(index).as_doc());
    }
    let scope = Scope::default();
    let context = PipelineContext::command("test", &scope);
    let run = |text: &str, context: &PipelineContext<'_>| {
        let mut found =
            fixture.run(pipeline(text).as_doc(), context, RunSettings::default()).unwrap();
        found.sort();
        // Which of two equal numbers becomes the group's `_id` depends on the order.
        found.iter().map(|found| found.replace("1.0", "1")).collect::<Vec<_>>()
    };
    for (text, path) in GROUPED {
        let summary = fixture.summary(pipeline(text).as_doc(), &context);
        let expected = format!("DISTINCT_SCAN {{ {path}: ");
        assert!(summary.starts_with(&expected), "{text}: {summary}");
        assert_eq!(run(text, &context), run(text, &context.as_written()), "{text}");
    }
    for text in NOT_GROUPED {
        let summary = fixture.summary(pipeline(text).as_doc(), &context);
        assert!(!summary.starts_with("DISTINCT_SCAN"), "{text}: {summary}");
        assert_eq!(run(text, &context), run(text, &context.as_written()), "{text}");
    }
}
