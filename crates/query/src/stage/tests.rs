//! Tests that stages give the same results with little memory as with much.

use mayfly_expr::Scope;
use mayfly_value::extjson::parse_document;
use mayfly_value::{DocBuf, DocBuilder, RawValue};
use mayfly_work::spill::Operator;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::fixture::Fixture;
use crate::{Budget, MemoryLimits, PipelineContext, RunSettings};

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
    let context = PipelineContext::command("test", &scope);
    let folder = std::env::temp_dir();
    for text in LIMITED {
        let wrapped: DocBuf = parse_document(&format!("{{\"p\": [{text}]}}")).unwrap();
        let stages = wrapped.as_doc().get("p").and_then(RawValue::as_array).unwrap();
        let run = |memory_bytes, spill_folder| {
            let settings = RunSettings::limited(memory_bytes, spill_folder);
            fixture.run(stages, &context, settings)
        };
        let mut plain = run(100 << 20, None).unwrap();
        let mut spilled = run(20_000, Some(folder.clone())).unwrap();
        if text.contains("$group") {
            plain.sort();
            spilled.sort();
        }
        assert_eq!(plain, spilled, "{text}");
        let failed = run(20_000, None);
        // A single group needs no more memory.
        assert!(failed == Err(292) || text.contains("$none"), "{text}: {failed:?}");
    }
}

/// An operation ends in time even if one document becomes many.
#[test]
fn what_one_document_becomes_is_stopped() {
    let fixture = Fixture::new();
    let mut document = DocBuilder::new();
    document.start_array("a");
    (0..1000).for_each(|item| {
        document.push(item);
    });
    let document = document.finish();
    let stages: DocBuf =
        parse_document(r#"{"p": [{"$unwind": "$a"}, {"$project": {"a": 1}}]}"#).unwrap();
    let stages = stages.as_doc().get("p").and_then(RawValue::as_array).unwrap();
    let (results, flow) = fixture.end_at_first(stages, document.as_doc());
    assert_eq!(flow.err().map(|error| error.code()), Some(mayfly_base::ErrorCode::Interrupted));
    assert!(results < 100, "{results}");
}

/// Most documents are at one point, so they all wait while farther regions are searched.
#[test]
fn a_search_by_distance_waits_in_a_file_where_it_may() {
    let fixture = Fixture::new();
    let documents: Vec<DocBuf> = (0..2000)
        .map(|id: i32| {
            let mut out = DocBuilder::new();
            let far = if id % 10 == 0 { f64::from(id) / 100.0 } else { 1.0 };
            out.append("_id", id).start_array("p").push(far).push(0.0).end();
            out.append("text", "x".repeat((id % 100) as usize).as_str());
            out.finish()
        })
        .collect();
    documents.chunks(500).for_each(|chunk| fixture.insert("c", chunk));
    let index: DocBuf = parse_document(r#"{"key": {"p": "2d"}, "name": "p"}"#).unwrap();
    fixture.index("c", index.as_doc());
    let text = r#"{"p": [{"$geoNear": {"near": [0, 0], "distanceField": "d"}}]}"#;
    let wrapped: DocBuf = parse_document(text).unwrap();
    let stages = wrapped.as_doc().get("p").and_then(RawValue::as_array).unwrap();
    let scope = Scope::default();
    let context = PipelineContext::command("test", &scope);
    let folder = std::env::temp_dir();
    let run = |memory_bytes, spill_folder| {
        let settings = RunSettings::limited(memory_bytes, spill_folder);
        fixture.run(stages, &context, settings)
    };
    let plain = run(100 << 20, None).unwrap();
    assert_eq!(plain.len(), 2000);
    assert_eq!(run(20_000, Some(folder)).unwrap(), plain);
    assert_eq!(run(20_000, None), Err(292));
}

/// Window functions of every kind, over partitions of very different sizes.
const WINDOWS: &[&str] = &[
    r#"{"$sum": "$b", "window": {"documents": ["unbounded", "current"]}}"#,
    r#"{"$avg": "$b", "window": {"documents": [-3, 2]}}"#,
    r#"{"$max": "$t", "window": {"range": [-10, 10]}}"#,
    r#"{"$min": "$b", "window": {"range": ["unbounded", 5]}}"#,
    r#"{"$push": "$_id", "window": {"documents": [-2, "current"]}}"#,
    r#"{"$addToSet": "$b", "window": {"documents": [0, 3]}}"#,
    r#"{"$stdDevSamp": "$b", "window": {"documents": [-5, 5]}}"#,
    r#"{"$count": {}, "window": {"range": [-1, 1]}}"#,
    r#"{"$rank": {}}"#,
    r#"{"$denseRank": {}}"#,
    r#"{"$documentNumber": {}}"#,
    r#"{"$shift": {"output": "$t", "by": -7, "default": "none"}}"#,
    r#"{"$derivative": {"input": "$b"}, "window": {"documents": [-2, "current"]}}"#,
    r#"{"$integral": {"input": "$b"}, "window": {"documents": ["unbounded", "current"]}}"#,
    r#"{"$expMovingAvg": {"input": "$b", "N": 5}}"#,
    r#"{"$covariancePop": ["$b", "$o"], "window": {"documents": [-10, 0]}}"#,
    r#"{"$linearFill": "$gap"}"#,
    r#"{"$locf": "$gap"}"#,
    r#"{"$topN": {"n": 2, "sortBy": {"t": 1}, "output": ["$b", "$in.c"]}, "window": {"documents": [-4, 4]}}"#,
    r#"{"$sum": "$b", "window": {"documents": ["unbounded", -3]}}"#,
    r#"{"$last": "$b", "window": {"documents": ["unbounded", 4]}}"#,
    r#"{"$sum": "$b", "window": {"documents": [2, 5]}}"#,
    r#"{"$max": "$b", "window": {"documents": [-9, -2]}}"#,
    r#"{"$sum": "$b"}"#,
    r#"{"$push": "$_id", "window": {"range": [-2, 3]}}"#,
    r#"{"$first": "$_id", "window": {"range": [5, 9]}}"#,
    r#"{"$sum": "$b", "window": {"range": [-9, -2.5]}}"#,
    r#"{"$derivative": {"input": "$b"}, "window": {"documents": ["unbounded", "current"]}}"#,
    r#"{"$derivative": {"input": "$b"}, "window": {"range": [-30, 30]}}"#,
    r#"{"$integral": {"input": "$b"}, "window": {"range": [-30, 0]}}"#,
    r#"{"$covarianceSamp": ["$b", "$o"], "window": {"range": ["unbounded", "current"]}}"#,
    r#"{"$shift": {"output": "$t", "by": 3}}"#,
    r#"{"$median": {"input": "$b", "method": "approximate"}, "window": {"documents": [-40, 20]}}"#,
    r#"{"$percentile": {"input": "$b", "p": [0.1, 0.9], "method": "approximate"}, "window": {"documents": ["unbounded", "current"]}}"#,
    r#"{"$bottomN": {"n": 3, "sortBy": {"in.c": 1}, "output": "$_id"}, "window": {"range": [-20, 20]}}"#,
    r#"{"$mergeObjects": {"t": "$t"}, "window": {"range": [-20, -3]}}"#,
    r#"{"$minMaxScaler": "$b", "window": {"documents": [-15, 15]}}"#,
    r#"{"$lastN": {"n": 2, "input": "$t"}, "window": {"documents": [-30, -1]}}"#,
];

#[test]
fn partitions_that_do_not_fit_memory_give_the_same() {
    let fixture = Fixture::new();
    let padding = "x".repeat(700);
    let documents: Vec<DocBuf> = (0..6600)
        .map(|id: i32| {
            let mut out = DocBuilder::new();
            // One partition with most documents, one with some, many with a few.
            let partition = if id % 10 < 8 { 0 } else { id % 83 };
            out.append("_id", id).append("p", partition).append("o", id * 7919 % 6599);
            out.append("t", format!("text {}", id * 271 % 3001).as_str());
            out.append("b", id * 31 % 500);
            if id % 7 == 0 {
                out.append("gap", id * 13 % 1000);
            }
            out.start_document("in").append("c", id % 11).append("pad", padding.as_str()).end();
            out.finish()
        })
        .collect();
    documents.chunks(300).for_each(|chunk| fixture.insert("c", chunk));
    let scope = Scope::default();
    let context = PipelineContext::command("test", &scope);
    let folder = std::env::temp_dir();
    let run = |output: &str, memory_bytes, spill_folder| {
        let text = format!(
            r#"{{"p": [{{"$setWindowFields": {{"partitionBy": "$p", "sortBy": {{"o": 1}}, "output": {{{output}}}}}}}, {{"$unset": "in.pad"}}]}}"#
        );
        let wrapped: DocBuf = parse_document(&text).unwrap();
        let stages = wrapped.as_doc().get("p").and_then(RawValue::as_array).unwrap();
        let settings = RunSettings::limited(memory_bytes, spill_folder);
        fixture.run(stages, &context, settings)
    };
    const LITTLE: usize = 2 << 20;
    let all: Vec<String> =
        WINDOWS.iter().enumerate().map(|(at, one)| format!("\"w{at}\": {one}")).collect();
    let output = all.join(", ");
    let plain = run(&output, 100 << 20, None).unwrap();
    assert_eq!(plain.len(), documents.len());
    let spilled = run(&output, LITTLE, Some(folder.clone())).unwrap();
    for (plain, spilled) in plain.iter().zip(&spilled) {
        assert_eq!(plain, spilled);
    }
    // Without files the preceding sort fails. A window and the state of a function must fit memory
    // in any case.
    assert_eq!(run(&all[0], LITTLE, None), Err(292));
    let small = r#""w": {"$last": "$$ROOT", "window": {"documents": [-5, 5]}}"#;
    assert_eq!(run(small, LITTLE, Some(folder.clone())).map(|all| all.len()), Ok(documents.len()));
    for window in [
        "",
        r#", "window": {"documents": [0, 3000]}"#,
        r#", "window": {"documents": [0, "unbounded"]}"#,
    ] {
        let large = format!(r#""w": {{"$push": "$$ROOT"{window}}}"#);
        assert_eq!(run(&large, LITTLE, Some(folder.clone())), Err(5414201), "{window}");
    }
}

/// Stages that buffer, and some between them. A `#` stands for a number below seven.
const STAGES: &[&str] = &[
    r#"{"$sort": {"a": 1, "_id": -1}}"#,
    r#"{"$sort": {"t": -1, "_id": 1}}, {"$limit": 4#}"#,
    r#"{"$sort": {"_id": 1}}, {"$skip": #}, {"$limit": 10#}"#,
    r##"{"$group": {"_id": "$a", "b": {"$sum": "$b"}, "t": {"$min": "$t"}, "a": {"$max": "$a"}}}, {"$sort": {"_id": 1}}"##,
    r##"{"$group": {"_id": {"$mod": ["$b", 4#]}, "b": {"$sum": 1}, "all": {"$push": "$_id"}, "a": {"$first": "$b"}}}, {"$sort": {"_id": 1}}"##,
    r##"{"$sort": {"_id": 1}}, {"$bucketAuto": {"groupBy": "$b", "buckets": 1#, "output": {"b": {"$sum": "$b"}, "a": {"$min": "$a"}}}}"##,
    r##"{"$setWindowFields": {"partitionBy": "$a", "sortBy": {"_id": 1}, "output": {"w": {"$sum": "$b", "window": {"documents": [-2, #]}}}}}, {"$sort": {"_id": 1}}"##,
    r##"{"$lookup": {"from": "d", "localField": "a", "foreignField": "x", "as": "found"}}, {"$addFields": {"found": {"$size": "$found"}}}"##,
    r##"{"$lookup": {"from": "d", "localField": "a", "foreignField": "y", "pipeline": [{"$match": {"x": {"$lt": 5#}}}, {"$sort": {"_id": -1}}], "as": "f"}}, {"$unwind": "$f"}, {"$project": {"a": 1, "b": "$f.x", "t": "$f.t"}}, {"$limit": 60#}"##,
    r##"{"$graphLookup": {"from": "d", "startWith": "$a", "connectFromField": "x", "connectToField": "_id", "as": "g"}}, {"$addFields": {"g": {"$size": "$g"}}}"##,
    r##"{"$facet": {"one": [{"$sort": {"b": 1, "_id": 1}}, {"$limit": 2#}], "two": [{"$group": {"_id": "$a"}}, {"$sort": {"_id": 1}}]}}, {"$unwind": "$one"}, {"$project": {"_id": "$one._id", "a": "$one.a", "b": "$one.b", "two": 1}}"##,
    r#"{"$densify": {"field": "b", "partitionByFields": ["a"], "range": {"step": 50, "bounds": [0, 200]}}}, {"$match": {"_id": {"$exists": true}}}, {"$sort": {"_id": 1}}"#,
    r#"{"$unionWith": {"coll": "d", "pipeline": [{"$sort": {"x": 1, "_id": 1}}, {"$limit": 20}]}}"#,
    r#"{"$match": {"b": {"$gt": 3#}}}"#,
];

/// Error codes of stages that cannot spill.
const TOO_LITTLE: &[i32] = &[146, 4568, 40099, 4031700, 5414201, 6007200];

#[test]
fn sequences_of_stages_give_the_same_in_files() {
    let fixture = Fixture::new();
    let documents = |count: i32, first: &str, second: &str| -> Vec<DocBuf> {
        let one = |id: i32| {
            let mut out = DocBuilder::new();
            out.append("_id", id).append(first, id * 7919 % 37).append(second, id * 31 % 211);
            out.append("t", format!("text {}", id * 271 % 301).as_str());
            out.finish()
        };
        (0..count).map(one).collect()
    };
    fixture.insert("c", &documents(300, "a", "b"));
    fixture.insert("d", &documents(150, "x", "y"));
    let scope = Scope::default();
    let context = PipelineContext::command("test", &scope);
    let folder = std::env::temp_dir();
    let mut random = SmallRng::seed_from_u64(12345);
    let mut chance = |below: usize| random.random_range(0..below);
    let (mut same, mut spilled, mut refused) = (0, 0, 0);
    for _ in 0..300 {
        let mut text = Vec::new();
        for _ in 0..1 + chance(4) {
            text.push(STAGES[chance(STAGES.len())].replace('#', &chance(7).to_string()));
        }
        let text = text.join(", ").replace("$limit\": 0", "$limit\": 1");
        let wrapped: DocBuf = parse_document(&format!("{{\"p\": [{text}]}}")).unwrap();
        let stages = wrapped.as_doc().get("p").and_then(RawValue::as_array).unwrap();
        let plain = fixture.run(stages, &context, RunSettings::default());
        let mut limits = MemoryLimits::default();
        match chance(2) {
            0 => limits = limits.with_all(500 + 200 * chance(60)),
            _ => limits.operation = 1000 + 500 * chance(60),
        }
        let budget = Budget::new(limits, Some(folder.clone()));
        let settings = RunSettings { budget: budget.clone(), ..RunSettings::default() };
        let limited = fixture.run(stages, &context, settings);
        assert_eq!(budget.used(), 0, "{text}: what was taken was given back");
        let files: u64 = Operator::ALL.into_iter().map(|it| budget.spilled(it).spills).sum();
        spilled += u32::from(files > 0);
        match limited {
            Err(code) if plain != limited => {
                assert!(TOO_LITTLE.contains(&code), "{text}: {code}");
                refused += 1;
            }
            limited => {
                assert_eq!(plain, limited, "{text}");
                same += 1;
            }
        }
    }
    assert!(same > 200 && spilled > 100 && refused > 0, "{same} {spilled} {refused}");
}
