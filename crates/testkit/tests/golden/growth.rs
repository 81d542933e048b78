//! The work of one command grows with the number of fields, values or clauses, not with its square.
//!
//! Each row of [`KINDS`] is a command that names many fields, values, clauses or statements. It
//! runs twice, the second time with four times as many: quadratic work takes sixteen times as long
//! then. The processor time of the thread is measured, the best of three runs. `GROWTH=part` runs
//! some of them, `GROWTH_ITEMS=n` with other numbers; both print the times.

use std::time::Duration;

use mayfly_testkit::{Fixture, dialect, environment};
use mayfly_value::{DocBuf, RawValue};
use rustix::time::{ClockId, clock_gettime};

/// The number of fields, values or clauses of the smaller command.
const ITEMS: usize = 1500;

/// The factor between the smaller and the larger command.
const FACTOR: usize = 4;

/// The largest allowed ratio of times: n log n stays well below it, quadratic work is far above.
const MOST_TIMES: u32 = 8;

/// Times below this are too short to measure growth.
const SHORTEST: Duration = Duration::from_millis(20);

/// A command with many fields, values, clauses or statements.
struct Kind {
    name: &'static str,
    /// Commands that prepare the data.
    prepare: fn(usize) -> Vec<String>,
    /// The command with this many items.
    command: fn(usize) -> String,
}

/// `f(0), f(1), ...`
fn list(count: usize, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(", ")
}

/// `f0: 0, f1: 1, ...`
fn fields(count: usize) -> String {
    list(count, |at| format!("f{at}: {at}"))
}

fn numbers(count: usize) -> String {
    list(count, |at| at.to_string())
}

fn nothing(_: usize) -> Vec<String> {
    Vec::new()
}

fn wide(count: usize) -> Vec<String> {
    vec![format!("{{insert: 'c', documents: [{{_id: 1, {}}}]}}", fields(count))]
}

fn nested(count: usize) -> Vec<String> {
    vec![format!("{{insert: 'c', documents: [{{_id: 1, o: {{{}}}}}]}}", fields(count))]
}

fn small(_: usize) -> Vec<String> {
    vec!["{insert: 'c', documents: [{_id: 1, a: 1}]}".to_owned()]
}

fn array(count: usize) -> Vec<String> {
    vec![format!("{{insert: 'c', documents: [{{_id: 1, a: [{}]}}]}}", numbers(count))]
}

fn documents(count: usize) -> Vec<String> {
    let items = list(count, |at| format!("{{x: {at}}}"));
    vec![format!("{{insert: 'c', documents: [{{_id: 1, a: [{items}]}}]}}")]
}

fn inner(count: usize) -> Vec<String> {
    vec![format!("{{insert: 'c', documents: [{{_id: 1, a: [{{{}}}]}}]}}", fields(count))]
}

fn indexed(_: usize) -> Vec<String> {
    vec!["{createIndexes: 'c', indexes: [{key: {'$**': 1}, name: 'w'}]}".to_owned()]
}

fn indexed_array(_: usize) -> Vec<String> {
    vec!["{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a'}]}".to_owned()]
}

fn series(_: usize) -> Vec<String> {
    vec!["{create: 'c', timeseries: {timeField: 't', metaField: 'm'}}".to_owned()]
}

fn find(filter: &str) -> String {
    format!("{{find: 'c', filter: {filter}}}")
}

fn project(projection: &str) -> String {
    format!("{{find: 'c', projection: {projection}}}")
}

fn update(change: &str) -> String {
    format!("{{update: 'c', updates: [{{q: {{_id: 1}}, u: {change}}}]}}")
}

fn aggregate(stage: &str) -> String {
    format!("{{aggregate: 'c', pipeline: [{stage}], cursor: {{}}}}")
}

fn computed(expression: &str) -> String {
    aggregate(&format!("{{$project: {{x: {expression}}}}}"))
}

const fn kind(
    name: &'static str,
    prepare: fn(usize) -> Vec<String>,
    command: fn(usize) -> String,
) -> Kind {
    Kind { name, prepare, command }
}

const KINDS: &[Kind] = &[
    kind("insert", nothing, |n| format!("{{insert: 'c', documents: [{{{}}}]}}", fields(n))),
    kind("inclusion", wide, |n| project(&format!("{{{}}}", list(n, |at| format!("f{at}: 1"))))),
    kind("backward inclusion", wide, |n| {
        project(&format!("{{{}}}", list(n, |at| format!("f{}: 1", n - at))))
    }),
    kind("inclusion of others", wide, |n| {
        project(&format!("{{{}}}", list(n, |at| format!("g{at}: 1"))))
    }),
    kind("nested inclusion", nested, |n| {
        project(&format!("{{{}}}", list(n, |at| format!("'o.f{at}': 1"))))
    }),
    kind("exclusion", wide, |n| project(&format!("{{{}}}", list(n, |at| format!("f{at}: 0"))))),
    kind("computed projection", wide, |n| {
        project(&format!("{{{}}}", list(n, |at| format!("f{at}: {{$literal: 1}}"))))
    }),
    kind("computed others", wide, |n| {
        project(&format!("{{{}}}", list(n, |at| format!("g{at}: {{$literal: 1}}"))))
    }),
    kind("$set", wide, |n| {
        update(&format!("{{$set: {{{}}}}}", list(n, |at| format!("f{at}: 'x'"))))
    }),
    kind("$set of others", wide, |n| {
        update(&format!("{{$set: {{{}}}}}", list(n, |at| format!("g{at}: 1"))))
    }),
    kind("$set below", nested, |n| {
        update(&format!("{{$set: {{{}}}}}", list(n, |at| format!("'o.f{at}': 'x'"))))
    }),
    kind("$inc", wide, |n| update(&format!("{{$inc: {{{}}}}}", list(n, |at| format!("f{at}: 1"))))),
    kind("$unset", wide, |n| {
        update(&format!("{{$unset: {{{}}}}}", list(n, |at| format!("f{at}: 1"))))
    }),
    kind("$rename", wide, |n| {
        update(&format!("{{$rename: {{{}}}}}", list(n, |at| format!("f{at}: 'g{at}'"))))
    }),
    kind("replacement", wide, |n| update(&format!("{{{}}}", list(n, |at| format!("f{at}: 'x'"))))),
    kind("pipeline $set", wide, |n| {
        update(&format!("[{{$set: {{{}}}}}]", list(n, |at| format!("f{at}: 'x'"))))
    }),
    kind("pipeline $set of others", wide, |n| {
        update(&format!("[{{$set: {{{}}}}}]", list(n, |at| format!("g{at}: 'x'"))))
    }),
    kind("pipeline $unset", wide, |n| {
        update(&format!("[{{$unset: [{}]}}]", list(n, |at| format!("'f{at}'"))))
    }),
    kind("$addToSet", array, |n| {
        update(&format!(
            "{{$addToSet: {{a: {{$each: [{}]}}}}}}",
            list(n, |at| (n + at).to_string())
        ))
    }),
    kind("$pullAll", array, |n| {
        update(&format!("{{$pullAll: {{a: [{}]}}}}", list(n, |at| (n + at).to_string())))
    }),
    kind("$pull $in", array, |n| {
        update(&format!("{{$pull: {{a: {{$in: [{}]}}}}}}", list(n, |at| (2 * at).to_string())))
    }),
    kind("$push", array, |n| {
        update(&format!("{{$push: {{a: {{$each: [{}], $sort: -1}}}}}}", numbers(n)))
    }),
    kind("$set of all items", array, |_| update("{$set: {'a.$[]': 'x'}}")),
    kind("$set of all items' fields", documents, |_| update("{$set: {'a.$[].x': 'x'}}")),
    kind("filter", wide, |n| find(&format!("{{{}}}", fields(n)))),
    kind("filter of missing", small, |n| {
        find(&format!("{{{}}}", list(n, |at| format!("g{at}: null"))))
    }),
    kind("nested filter", nested, |n| {
        find(&format!("{{{}}}", list(n, |at| format!("'o.f{at}': {at}"))))
    }),
    kind("$and", wide, |n| {
        find(&format!("{{$and: [{}]}}", list(n, |at| format!("{{f{at}: {at}}}"))))
    }),
    kind("$or", wide, |n| find(&format!("{{$or: [{}]}}", list(n, |at| format!("{{f{at}: 'x'}}"))))),
    kind("$or of one field", small, |n| {
        find(&format!("{{$or: [{}]}}", list(n, |at| format!("{{a: {at}}}"))))
    }),
    kind("$nor", wide, |n| {
        find(&format!("{{$nor: [{}]}}", list(n, |at| format!("{{f{at}: 'x'}}"))))
    }),
    kind("$in", array, |n| {
        find(&format!("{{a: {{$in: [{}]}}}}", list(n, |at| (n + at).to_string())))
    }),
    kind("$all", array, |n| {
        find(&format!("{{a: {{$all: [{}]}}}}", list(n, |at| (n - 1 - at).to_string())))
    }),
    kind("$jsonSchema properties", wide, |n| {
        let all = list(n, |at| format!("f{at}: {{bsonType: 'number'}}"));
        find(&format!("{{$jsonSchema: {{properties: {{{all}}}}}}}"))
    }),
    kind("$jsonSchema required", wide, |n| {
        let all = list(n, |at| format!("'f{at}'"));
        find(&format!("{{$jsonSchema: {{required: [{all}]}}}}"))
    }),
    kind("$jsonSchema dependencies", wide, |n| {
        let all = list(n, |at| format!("f{at}: ['f{}']", n - 1 - at));
        find(&format!("{{$jsonSchema: {{dependencies: {{{all}}}}}}}"))
    }),
    kind("$expr $in", small, |n| find(&format!("{{$expr: {{$in: ['$a', [{}]]}}}}", numbers(n)))),
    kind("$expr $and", small, |n| {
        find(&format!(
            "{{$expr: {{$and: [{}]}}}}",
            list(n, |at| format!("{{$ne: ['$a', '{at}']}}"))
        ))
    }),
    kind("$expr $and $eq", wide, |n| {
        find(&format!(
            "{{$expr: {{$and: [{}]}}}}",
            list(n, |at| format!("{{$eq: ['$f{at}', {at}]}}"))
        ))
    }),
    kind("$project", wide, |n| {
        aggregate(&format!("{{$project: {{{}}}}}", list(n, |at| format!("f{at}: 1"))))
    }),
    kind("$project exclusion", wide, |n| {
        aggregate(&format!("{{$project: {{{}}}}}", list(n, |at| format!("f{at}: 0"))))
    }),
    kind("$project of others", wide, |n| {
        aggregate(&format!("{{$project: {{{}}}}}", list(n, |at| format!("g{at}: '$f{at}'"))))
    }),
    kind("$addFields", wide, |n| {
        aggregate(&format!("{{$addFields: {{{}}}}}", list(n, |at| format!("f{at}: 'x'"))))
    }),
    kind("$addFields of others", wide, |n| {
        aggregate(&format!("{{$addFields: {{{}}}}}", list(n, |at| format!("g{at}: 'x'"))))
    }),
    kind("$unset stage", wide, |n| {
        aggregate(&format!("{{$unset: [{}]}}", list(n, |at| format!("'f{at}'"))))
    }),
    kind("$replaceWith", small, |n| {
        aggregate(&format!("{{$replaceWith: {{{}}}}}", list(n, |at| format!("f{at}: '$a'"))))
    }),
    kind("$group", small, |n| {
        let all = list(n, |at| format!("f{at}: {{$sum: 1}}"));
        aggregate(&format!("{{$group: {{_id: null, {all}}}}}"))
    }),
    kind("$switch", small, |n| {
        let all = list(n, |at| format!("{{case: {{$eq: ['$a', '{at}']}}, then: {at}}}"));
        computed(&format!("{{$switch: {{branches: [{all}], default: 1}}}}"))
    }),
    kind("$let", small, |n| {
        let all = list(n, |at| format!("v{at}: '$a'"));
        let uses = list(n, |at| format!("'$$v{at}'"));
        computed(&format!("{{$let: {{vars: {{{all}}}, in: [{uses}]}}}}"))
    }),
    kind("let", small, |n| {
        let all = list(n, |at| format!("v{at}: {at}"));
        let uses = list(n, |at| format!("{{$ne: ['$a', '$$v{at}']}}"));
        format!(
            "{{find: 'c', filter: {{$expr: {{$and: [{{$eq: [1, 1]}}, {uses}]}}}}, let: {{{all}}}}}"
        )
    }),
    kind("$reduce $concatArrays", array, |_| {
        computed(
            "{$reduce: {input: '$a', initialValue: [], in: {$concatArrays: ['$$value', ['$$this']]}}}",
        )
    }),
    kind("$reduce $concatArrays in front", array, |_| {
        computed(
            "{$reduce: {input: '$a', initialValue: [], in: {$concatArrays: [['$$this'], '$$value']}}}",
        )
    }),
    kind("$reduce $mergeObjects", array, |_| {
        computed(
            "{$reduce: {input: '$a', initialValue: {}, in: {$mergeObjects: ['$$value', {$arrayToObject: [[{k: \
             {$toString: '$$this'}, v: 1}]]}]}}}",
        )
    }),
    kind("$reduce $concat", array, |_| {
        computed(
            "{$reduce: {input: '$a', initialValue: '', in: {$concat: ['$$value', 'xxxxxxxxxxxxxxxxxxxx']}}}",
        )
    }),
    kind("$reduce $setUnion", array, |_| {
        computed(
            "{$reduce: {input: '$a', initialValue: [], in: {$setUnion: ['$$value', ['$$this']]}}}",
        )
    }),
    kind("$map $in", array, |_| {
        computed("{$size: {$filter: {input: '$a', as: 'x', cond: {$in: ['$$x', [1, 2, 3]]}}}}")
    }),
    kind("$zip", array, |_| computed("{$zip: {inputs: ['$a', '$a']}}")),
    kind("$setDifference", array, |_| computed("{$setDifference: ['$a', {$reverseArray: '$a'}]}")),
    kind("$unwind", array, |_| aggregate("{$unwind: '$a'}, {$group: {_id: '$a'}}, {$count: 'n'}")),
    kind("$addToSet group", array, |_| {
        aggregate("{$unwind: '$a'}, {$group: {_id: 1, x: {$addToSet: '$a'}}}")
    }),
    kind("distinct", array, |_| "{distinct: 'c', key: 'a'}".to_owned()),
    kind("inserts that can be sent again", nothing, |n| {
        let all = list(n, |at| format!("{{_id: {at}}}"));
        format!(
            "{{insert: 'c', documents: [{all}], lsid: {{id: BinData(4, 'AAAAAAAAAAAAAAAAAAAAAA==')}}, txnNumber: NumberLong({n})}}"
        )
    }),
    kind("updates that can be sent again", small, |n| {
        let all = list(n, |at| format!("{{q: {{_id: 1}}, u: {{$set: {{a: {at}}}}}}}"));
        format!(
            "{{update: 'c', updates: [{all}], lsid: {{id: BinData(4, 'AAAAAAAAAAAAAAAAAAAAAA==')}}, txnNumber: NumberLong({n})}}"
        )
    }),
    kind("$group of fields", wide, |n| {
        let all = list(n, |at| format!("f{at}: {{$sum: '$f{at}'}}"));
        aggregate(&format!("{{$group: {{_id: null, {all}}}}}"))
    }),
    kind("$elemMatch", inner, |n| find(&format!("{{a: {{$elemMatch: {{{}}}}}}}", fields(n)))),
    kind("filter of items", inner, |n| {
        find(&format!("{{{}}}", list(n, |at| format!("'a.f{at}': {at}"))))
    }),
    kind("inclusion of items", inner, |n| {
        project(&format!("{{{}}}", list(n, |at| format!("'a.f{at}': 1"))))
    }),
    kind("computed of items", inner, |n| {
        project(&format!("{{{}}}", list(n, |at| format!("g{at}: '$a.f{at}'"))))
    }),
    kind("wildcard index", indexed, |n| format!("{{insert: 'c', documents: [{{{}}}]}}", fields(n))),
    kind("index of an array", indexed_array, |n| {
        format!("{{insert: 'c', documents: [{{a: [{}]}}]}}", numbers(n))
    }),
    kind("deletes", documents, |n| {
        format!(
            "{{delete: 'c', deletes: [{}]}}",
            list(n, |at| format!("{{q: {{_id: {at}}}, limit: 1}}"))
        )
    }),
    kind("$mergeObjects", wide, |n| {
        computed(&format!("{{$mergeObjects: [{}]}}", list(n, |at| format!("{{f{at}: '$f{at}'}}"))))
    }),
    kind("$unwind and $push", array, |_| {
        aggregate("{$unwind: '$a'}, {$group: {_id: null, a: {$push: '$a'}}}")
    }),
    kind("fields of a measurement", series, |n| {
        format!(
            "{{insert: 'c', documents: [{{t: Date(0), m: 1, {}}}, {{t: Date(1), m: 1, {}}}]}}",
            fields(n),
            fields(n)
        )
    }),
    kind("measurements", series, |n| {
        let all = list(n, |at| format!("{{t: Date({at}), m: 1, a: {at}}}"));
        format!("{{insert: 'c', documents: [{all}]}}")
    }),
];

/// The processor time of this thread.
fn spent() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

fn document(fixture: &Fixture, command: &str) -> DocBuf {
    match dialect::document(command, &fixture.env()) {
        Ok(document) => document,
        Err(why) => panic!("{why}"),
    }
}

/// The least time of three runs.
fn time(kind: &Kind, count: usize, runs: usize) -> Duration {
    let run = |_| {
        let fixture = Fixture::in_memory();
        fixture.join("rs0");
        for command in (kind.prepare)(count) {
            fixture.ok("test", &command);
        }
        let command = document(&fixture, &(kind.command)(count));
        let began = spent();
        let reply = fixture.run_document("test", command.as_doc());
        let took = spent().saturating_sub(began);
        let reply = reply.as_doc();
        let ok =
            reply.get("ok") == Some(RawValue::Double(1.0)) && reply.get("writeErrors").is_none();
        assert!(
            ok,
            "{}: {}",
            kind.name,
            dialect::show(reply).chars().take(500).collect::<String>()
        );
        took
    };
    (0..runs).map(run).min().unwrap_or_default()
}

#[test]
fn the_work_of_a_command_grows_with_what_it_names() {
    let items = environment::number("GROWTH_ITEMS");
    let shown = environment::text("GROWTH").is_some() || items.is_some();
    let items = items.map_or(ITEMS, |items| items as usize);
    let kinds =
        environment::selected("GROWTH", KINDS.iter().collect(), |kind| kind.name.to_owned());
    let mut steep = Vec::new();
    for kind in kinds {
        let (few, many) = (time(kind, items, 3), time(kind, FACTOR * items, 1));
        let grows = |many: Duration| many > SHORTEST && many > MOST_TIMES * few;
        let line = format!("{}: {few:?} for {items}, {many:?} for {}", kind.name, FACTOR * items);
        if shown {
            println!("{:6.1} {line}", many.as_secs_f64() / few.as_secs_f64());
        }
        if grows(many) && grows(time(kind, FACTOR * items, 2)) {
            steep.push(line);
        }
    }
    assert!(steep.is_empty(), "these grow faster than what they name:\n{}", steep.join("\n"));
}
