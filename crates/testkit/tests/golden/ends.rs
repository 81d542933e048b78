//! Every operation ends soon after its deadline and after a kill, whatever it does.
//!
//! Each row of [`ENDLESS`] is a command that would run for many seconds. It runs twice: with a
//! deadline that passes while it runs, and killed. A command that does not check often enough takes
//! too long to end. `ENDS=part` runs some of them and prints the times; with `ENDS_FREE=seconds`
//! each may run for this time before it is killed, which shows whether it runs long enough.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use mayfly_base::ErrorCode;
use mayfly_testkit::{Fixture, dialect, environment};
use mayfly_value::{DocBuf, RawValue};

/// The time that a command runs before it is ended.
const RUNS: Duration = Duration::from_millis(40);
/// The longest time until an operation is registered.
const STARTS: Duration = Duration::from_secs(60);
/// The time in which it must end, on a busy machine and without optimisation. In a release build it
/// is a tenth of that.
const NOTICES: Duration = Duration::from_secs(3);
/// `maxTimeMS`, by the fixture's clock.
const MAX_TIME_MS: i64 = 100;

/// Commands that insert the data.
const DATA: &[&str] = &[
    "{insert: 'one', documents: [{_id: 1, a: 1}]}",
    // Many small documents.
    "{aggregate: 'one', pipeline: [{$project: {_id: 0, n: {$range: [0, 3000]}}}, {$unwind: '$n'}, {$project: {_id: '$n', a: '$n', \
     b: {$mod: ['$n', 10]}, s: 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx', g: [{$mod: ['$n', 90]}, 1]}}, {$out: 'many'}], cursor: {}}",
    // A document with long texts.
    "{aggregate: 'one', pipeline: [{$project: {s: {$reduce: {input: {$range: [0, 22]}, initialValue: 'a', in: {$concat: \
     ['$$value', '$$value']}}}}}, {$set: {t: {$concat: [{$substrBytes: ['$s', 0, 1000000]}, 'b']}}}, {$out: 'text'}], cursor: {}}",
    // Texts short enough for the quick program for patterns.
    "{aggregate: 'one', pipeline: [{$project: {s: {$reduce: {input: {$range: [0, 14]}, initialValue: 'a', in: {$concat: \
     ['$$value', '$$value']}}}}}, {$set: {s: {$concat: ['=', {$substrBytes: ['$s', 0, 16000]}]}}}, {$out: 'page'}], cursor: {}}",
    // A document with a long array of numbers, and another of texts.
    "{aggregate: 'one', pipeline: [{$project: {a: {$range: [0, 400000]}, c: {$map: {input: {$range: [0, 100000]}, in: {$concat: \
     ['Ärger-', {$toString: '$$this'}]}}}}}, {$out: 'array'}], cursor: {}}",
    // A document with an array of documents.
    "{aggregate: 'one', pipeline: [{$project: {a: {$map: {input: {$range: [0, 100000]}, in: {x: '$$this', y: [1, 2, 3]}}}}}, {$out: \
     'items'}], cursor: {}}",
    // A document with many fields.
    "{aggregate: 'one', pipeline: [{$project: {o: {$arrayToObject: {$map: {input: {$range: [0, 100000]}, in: {k: {$concat: ['f', \
     {$toString: '$$this'}]}, v: '$$this'}}}}}}, {$out: 'wide'}], cursor: {}}",
    // Several large documents that differ only in the last field.
    "{aggregate: 'items', pipeline: [{$project: {a: {$slice: ['$a', 30000]}, n: {$range: [0, 30]}}}, {$unwind: '$n'}, {$project: \
     {_id: '$n', d: {a: '$a', n: '$n'}}}, {$out: 'large'}], cursor: {}}",
];

/// A command that runs for long.
struct Endless {
    name: &'static str,
    command: fn() -> String,
}

const fn endless(name: &'static str, command: fn() -> String) -> Endless {
    Endless { name, command }
}

/// `f(0), f(1), ...`
fn list(count: usize, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(", ")
}

fn aggregate(collection: &str, stages: &str) -> String {
    format!("{{aggregate: '{collection}', pipeline: [{stages}], cursor: {{}}}}")
}

fn find(collection: &str, filter: &str) -> String {
    format!("{{find: '{collection}', filter: {filter}}}")
}

/// A command with an expression over one document.
fn computed(collection: &str, expression: &str) -> String {
    aggregate(collection, &format!("{{$project: {{x: {expression}}}}}"))
}

/// A command that evaluates an expression over one document a thousand times.
fn often(collection: &str, expression: &str) -> String {
    let each = format!("{{$map: {{input: {{$range: [0, 1000]}}, in: {expression}}}}}");
    computed(collection, &format!("{{$size: {each}}}"))
}

/// A command with stages over a million rows.
fn over_rows(stages: &str) -> String {
    aggregate(
        "many",
        &format!(
            "{{$set: {{r: {{$range: [0, 1000]}}}}}}, {{$unwind: '$r'}}, {{$project: {{_id: 0, a: 1, r: 1, s: 1, v: {{$add: [{{$multiply: \
             ['$a', 7919]}}, '$r']}}}}}}, {stages}"
        ),
    )
}

/// A pattern that the automaton does not support. A match from each position stays within the
/// limits and takes long.
const PATTERN: &str = "(?=a{0,900}[^=]*+=)a|(?=c)c|d";

const ENDLESS: &[Endless] = &[
    endless("pattern on a long text", || find("text", &format!("{{s: {{$regex: '{PATTERN}'}}}}"))),
    endless("pattern on a page", || find("page", &format!("{{s: {{$regex: '{PATTERN}'}}}}"))),
    endless("$not of a pattern", || {
        find("text", &format!("{{s: {{$not: {{$regex: '{PATTERN}'}}}}}}"))
    }),
    endless("$regexMatch", || {
        computed("text", &format!("{{$regexMatch: {{input: '$s', regex: '{PATTERN}'}}}}"))
    }),
    endless("$regexFind", || {
        computed("text", &format!("{{$regexFind: {{input: '$s', regex: '{PATTERN}'}}}}"))
    }),
    endless("$regexFindAll", || {
        computed("text", "{$regexFindAll: {input: '$t', regex: '(?=a.*b)[^a]|b(?=c)'}}")
    }),
    endless("$regexFindAll of a page", || {
        computed("page", &format!("{{$regexFindAll: {{input: '$s', regex: '{PATTERN}'}}}}"))
    }),
    endless("$jsonSchema pattern", || {
        find("text", &format!("{{$jsonSchema: {{properties: {{s: {{pattern: '{PATTERN}'}}}}}}}}"))
    }),
    endless("update by a pattern", || {
        format!(
            "{{update: 'text', updates: [{{q: {{s: {{$regex: '{PATTERN}'}}}}, u: {{$set: {{x: 1}}}}}}]}}"
        )
    }),
    endless("delete by a pattern", || {
        format!("{{delete: 'text', deletes: [{{q: {{s: {{$regex: '{PATTERN}'}}}}, limit: 0}}]}}")
    }),
    endless("$map in $map", || {
        computed(
            "one",
            "{$size: {$map: {input: {$range: [0, 100000]}, in: {$size: {$map: {input: {$range: [0, 1000]}, in: \
                  '$$this'}}}}}}",
        )
    }),
    endless("$reduce of numbers", || {
        often(
            "array",
            "{$reduce: {input: '$a', initialValue: 0, in: {$add: ['$$value', '$$this']}}}",
        )
    }),
    endless("$filter", || often("array", "{$filter: {input: '$a', cond: {$lt: ['$$this', 0]}}}")),
    endless("$setUnion", || often("array", "{$size: {$setUnion: ['$a', '$c']}}")),
    endless("$setIntersection", || often("array", "{$setIntersection: ['$a', '$c']}")),
    endless("$setDifference", || often("array", "{$setDifference: ['$c', '$c']}")),
    endless("$setEquals", || often("array", "{$setEquals: ['$a', '$c']}")),
    endless("$setIsSubset", || often("array", "{$setIsSubset: ['$a', '$a']}")),
    endless("$allElementsTrue", || often("array", "{$allElementsTrue: ['$c']}")),
    endless("$in", || often("array", "{$in: [-1, '$a']}")),
    endless("$indexOfArray", || often("array", "{$indexOfArray: ['$a', -1]}")),
    // A loop remembers where items of arrays from outside are.
    endless("$arrayElemAt", || {
        often("array", "{$let: {vars: {in_loop: '$a'}, in: {$arrayElemAt: ['$$in_loop', 399999]}}}")
    }),
    endless("$size", || {
        often("array", "{$let: {vars: {in_loop: '$a'}, in: {$size: '$$in_loop'}}}")
    }),
    endless("$slice", || often("array", "{$slice: ['$a', -1]}")),
    endless("$sortArray", || often("array", "{$size: {$sortArray: {input: '$c', sortBy: -1}}}")),
    endless("$sortArray of documents", || {
        often("items", "{$size: {$sortArray: {input: '$a', sortBy: {y: 1, x: -1}}}}")
    }),
    endless("$reverseArray", || often("array", "{$size: {$reverseArray: '$a'}}")),
    endless("$zip", || often("array", "{$size: {$zip: {inputs: ['$a', '$c']}}}")),
    endless("$maxN", || often("array", "{$maxN: {input: '$a', n: 3}}")),
    endless("$sum of an array", || often("array", "{$sum: '$a'}")),
    endless("$avg, $stdDevPop of an array", || {
        often("array", "{$add: [{$avg: '$a'}, {$stdDevPop: '$a'}, {$max: '$a'}]}")
    }),
    endless("$median of an array", || {
        often("array", "{$median: {input: '$a', method: 'approximate'}}")
    }),
    endless("$arrayToObject", || {
        often("wide", "{$size: {$objectToArray: {$arrayToObject: {$objectToArray: '$o'}}}}")
    }),
    endless("a path through an array", || often("items", "{$max: '$a.x'}")),
    endless("a path to the last field", || often("wide", "'$o.f99999'")),
    endless("$getField", || often("wide", "{$getField: {field: 'f99999', input: '$o'}}")),
    endless("$mergeObjects", || often("wide", "{$type: {$mergeObjects: ['$o', {f1: 1}]}}")),
    endless("$eq of long texts", || often("text", "{$eq: ['$s', {$concat: ['$s', '']}]}")),
    endless("$replaceAll", || {
        often("text", "{$strLenBytes: {$replaceAll: {input: '$s', find: 'aa', replacement: 'b'}}}")
    }),
    endless("$split", || often("text", "{$size: {$split: ['$t', 'aaaa']}}")),
    endless("$indexOfCP", || often("text", "{$indexOfCP: ['$s', 'b']}")),
    endless("$strLenCP", || often("text", "{$strLenCP: '$s'}")),
    endless("$substrCP", || often("text", "{$substrCP: ['$s', 4194000, 2]}")),
    endless("$strcasecmp", || often("text", "{$strcasecmp: ['$s', '$t']}")),
    endless("$toUpper", || often("text", "{$strLenBytes: {$toUpper: '$s'}}")),
    endless("$trim", || {
        often(
            "text",
            "{$trim: {input: '$s', chars: {$concat: [\
        {$replaceAll: {input: '$s', find: 'a', replacement: 'b'}}, 'a']}}}",
        )
    }),
    endless("$toHashedIndexKey", || often("array", "{$toHashedIndexKey: '$a'}")),
    endless("$switch of many", || {
        let branches =
            list(3000, |at| format!("{{case: {{$eq: ['$$this', -1{at}]}}, then: {at}}}"));
        let each = format!("{{$switch: {{branches: [{branches}], default: 0}}}}");
        computed("array", &format!("{{$size: {{$map: {{input: '$a', in: {each}}}}}}}"))
    }),
    endless("$function", || {
        computed(
            "one",
            "{$function: {body: 'function() { while (true) {} }', args: [], lang: 'js'}}",
        )
    }),
    endless("$function that sorts", || {
        computed(
            "one",
            "{$function: {body: 'function() { var a = []; for (var i = 0; i < 3e5; i++) a.push((i * 7919) % 1000003); for (;;) \
                  { a.slice().sort(); } }', args: [], lang: 'js'}}",
        )
    }),
    endless("$function with a pattern", || {
        computed(
            "one",
            "{$function: {body: 'function() { return /(a|aa)+$/.test(\"a\".repeat(5000) + \"b\"); }', args: [], lang: 'js'}}",
        )
    }),
    endless("sleep", || find("one", "{$where: 'sleep(1e9)'}")),
    endless("mapReduce, map", || {
        "{mapReduce: 'one', map: 'for (;;);', reduce: '0', out: {inline: 1}}".to_owned()
    }),
    endless("mapReduce, reduce", || {
        "{mapReduce: 'many', map: 'emit(1, 1)', reduce: 'for (;;);', out: {inline: 1}}".to_owned()
    }),
    endless("$where", || find("one", "{$where: 'for (;;) {}'}")),
    endless("$accumulator", || {
        aggregate(
            "many",
            "{$group: {_id: null, x: {$accumulator: {init: 'function() { return 0; }', accumulate: 'function(s) { \
                  while (true) {} }', accumulateArgs: [], merge: 'function(a, b) { return a; }', lang: 'js'}}}}",
        )
    }),
    endless("filter on a long array", || {
        let all = list(3000, |at| format!("{{a: {{$lt: -1{at}}}}}"));
        find("array", &format!("{{$or: [{all}]}}"))
    }),
    endless("$in on a long array", || {
        let all = list(3000, |at| format!("{{a: {{$in: [-1{at}, -1]}}}}"));
        find("array", &format!("{{$or: [{all}]}}"))
    }),
    endless("$all on a long array", || {
        let values = list(100, |at| (399_000 + at).to_string());
        let all = list(200, |at| format!("{{a: {{$all: [{values}, -1{at}]}}}}"));
        find("array", &format!("{{$or: [{all}]}}"))
    }),
    endless("$elemMatch", || {
        let all = list(500, |at| format!("{{x: -1{at}}}"));
        find("items", &format!("{{a: {{$elemMatch: {{$or: [{all}]}}}}}}"))
    }),
    endless("fields of items", || {
        let all = list(1000, |at| format!("{{'a.x': -1{at}}}"));
        find("items", &format!("{{$or: [{all}]}}"))
    }),
    endless("fields of a wide document", || {
        let all = list(20_000, |at| format!("{{'o.g{at}': 1}}"));
        find("wide", &format!("{{$or: [{all}]}}"))
    }),
    endless("$expr of many", || {
        let all = list(3000, |at| format!("{{$in: [-1{at}, '$a']}}"));
        find("array", &format!("{{$expr: {{$or: [{all}]}}}}"))
    }),
    endless("$jsonSchema of items", || {
        let all = list(500, |at| format!("{{properties: {{x: {{minimum: {}}}}}}}", 200_000 + at));
        find(
            "items",
            &format!("{{$jsonSchema: {{properties: {{a: {{items: {{anyOf: [{all}, {{}}]}}}}}}}}}}"),
        )
    }),
    endless("$jsonSchema uniqueItems", || {
        let all = list(500, |_| "{properties: {a: {uniqueItems: true, maxItems: 1}}}".to_owned());
        find("items", &format!("{{$jsonSchema: {{anyOf: [{all}]}}}}"))
    }),
    endless("$jsonSchema patternProperties", || {
        let all = list(500, |at| format!("'^g{at}': {{minimum: 1}}"));
        find(
            "wide",
            &format!("{{$jsonSchema: {{properties: {{o: {{patternProperties: {{{all}}}}}}}}}}}"),
        )
    }),
    endless("a projection of many", || {
        let all = list(3000, |at| format!("p{at}: {{$indexOfArray: ['$a', -1]}}"));
        format!("{{find: 'array', projection: {{{all}}}}}")
    }),
    endless("$elemMatch projection", || {
        let all = list(1000, |at| format!("{{x: -1{at}}}"));
        format!("{{find: 'items', projection: {{a: {{$elemMatch: {{$or: [{all}]}}}}}}}}")
    }),
    endless("update of all items", || {
        let all = list(500, |at| format!("{{'i.x': -1{at}}}"));
        format!(
            "{{update: 'items', updates: [{{q: {{_id: 1}}, u: {{$set: {{'a.$[i].z': 1}}}}, arrayFilters: [{{$or: [{all}]}}]}}]}}"
        )
    }),
    endless("$addToSet of large items", || {
        let each = list(3000, |at| format!("'{at}'"));
        format!(
            "{{update: 'array', updates: [{}]}}",
            list(200, |_| {
                format!("{{q: {{_id: 1}}, u: {{$addToSet: {{c: {{$each: [{each}]}}}}}}}}")
            })
        )
    }),
    endless("$pull from a long array", || {
        let all = list(1000, |at| format!("{{x: -1{at}}}"));
        format!(
            "{{update: 'items', updates: [{{q: {{_id: 1}}, u: {{$pull: {{a: {{$or: [{all}]}}}}}}}}]}}"
        )
    }),
    endless("$push with $sort", || {
        format!(
            "{{update: 'items', updates: [{}]}}",
            list(300, |at| {
                format!(
                    "{{q: {{_id: 1}}, u: {{$push: {{a: {{$each: [{{x: {at}}}], $sort: {{y: 1, x: {}}}}}}}}}}}",
                    if at % 2 == 0 { 1 } else { -1 }
                )
            })
        )
    }),
    endless("an update by a pipeline", || {
        "{update: 'array', updates: [{q: {_id: 1}, u: [{$set: {z: {$size: {$map: {input: {$range: [0, 1000]}, in: \
         {$setIsSubset: ['$a', '$a']}}}}}}]}]}"
            .to_owned()
    }),
    endless("many updates", || {
        format!(
            "{{update: 'many', updates: [{}]}}",
            list(20_000, |at| {
                format!("{{q: {{s: '{at}'}}, u: {{$set: {{z: 1}}}}, multi: true}}")
            })
        )
    }),
    endless("many deletes", || {
        format!(
            "{{delete: 'many', deletes: [{}]}}",
            list(20_000, |at| { format!("{{q: {{s: '{at}'}}, limit: 0}}") })
        )
    }),
    endless("a cross product by $lookup", || {
        let join = "{$lookup: {from: 'many', pipeline: [], as: 'j'}}";
        aggregate(
            "many",
            &format!("{join}, {{$unwind: '$j'}}, {{$group: {{_id: null, n: {{$sum: 1}}}}}}"),
        )
    }),
    endless("$lookup by equality", || {
        let join = "{$lookup: {from: 'many', localField: 'b', foreignField: 'b', as: 'j'}}";
        aggregate(
            "many",
            &format!("{join}, {{$unwind: '$j'}}, {{$group: {{_id: '$j.a', n: {{$sum: 1}}}}}}"),
        )
    }),
    endless("$graphLookup", || {
        aggregate(
            "many",
            "{$graphLookup: {from: 'many', startWith: '$b', connectFromField: 'g', connectToField: 'b', as: 'j'}}, \
                  {$project: {n: {$size: '$j'}}}",
        )
    }),
    endless("$unwind of $unwind", || {
        aggregate(
            "items",
            "{$unwind: '$a'}, {$unwind: '$a.y'}, {$set: {q: {$range: [0, 1000]}}}, {$unwind: '$q'}, {$match: {q: -1}}",
        )
    }),
    endless("$redact", || {
        let all = list(200, |at| format!("{{$eq: ['$x', -1{at}]}}"));
        aggregate(
            "items",
            &format!("{{$redact: {{$cond: [{{$or: [{all}]}}, '$$PRUNE', '$$DESCEND']}}}}"),
        )
    }),
    endless("$sort", || over_rows("{$sort: {v: -1}}, {$skip: 10000000}")),
    endless("$sort by texts with a collation", || {
        aggregate("array", "{$unwind: '$c'}, {$project: {c: 1, r: {$range: [0, 20]}}}, {$unwind: '$r'}, {$sort: {c: -1, r: 1}}, {$skip: 10000000}")
            .replace("cursor", "collation: {locale: 'de'}, cursor")
    }),
    endless("$group", || over_rows("{$group: {_id: '$v', n: {$push: '$a'}}}, {$skip: 10000000}")),
    endless("$group with $addToSet", || {
        over_rows(
            "{$group: {_id: null, x: {$topN: {n: 3, sortBy: {v: 1}, output: '$a'}}, y: {$addToSet: '$a'}}}",
        )
    }),
    endless("$bucketAuto", || over_rows("{$bucketAuto: {groupBy: '$v', buckets: 7}}")),
    endless("$setWindowFields", || {
        over_rows(
            "{$setWindowFields: {sortBy: {r: 1}, output: {x: {$sum: '$a', window: {documents: [-10, 10]}}}}}, {$skip: 10000000}",
        )
    }),
    endless("$setWindowFields that does not take back", || {
        aggregate(
            "many",
            "{$setWindowFields: {sortBy: {a: 1}, output: {x: {$percentile: {input: '$a', p: [0.5], method: 'approximate'}, \
                  window: {documents: ['unbounded', 'unbounded']}}, y: {$stdDevPop: '$a', window: {documents: [-2000, 2000]}}, \
                  z: {$addToSet: '$a', window: {documents: [-2500, 2500]}}}}}, {$group: {_id: null, n: {$sum: '$x'}}}",
        )
    }),
    endless("$densify", || {
        aggregate(
            "many",
            "{$densify: {field: 'a', range: {step: 0.00001, bounds: [0.0, 1000.0]}}}, {$match: {s: 1}}",
        )
    }),
    endless("$fill", || {
        over_rows("{$fill: {sortBy: {v: 1}, output: {x: {method: 'linear'}}}}, {$skip: 10000000}")
    }),
    endless("$facet", || {
        aggregate(
            "many",
            "{$set: {r: {$range: [0, 1000]}}}, {$unwind: '$r'}, {$facet: {x: [{$group: {_id: '$a', n: {$sum: 1}}}], y: \
                  [{$sort: {r: 1}}, {$limit: 3}]}}",
        )
    }),
    endless("$sample", || over_rows("{$sample: {size: 5}}")),
    endless("$sortByCount, $count", || over_rows("{$sortByCount: '$r'}, {$count: 'n'}")),
    endless("$unionWith", || {
        let all = list(900, |_| "{$unionWith: 'many'}".to_owned());
        aggregate("many", &format!("{all}, {{$match: {{a: -1}}}}"))
    }),
    endless("$out", || over_rows("{$project: {_id: '$v'}}, {$out: 'out'}")),
    endless("$merge", || over_rows("{$project: {_id: '$v'}}, {$merge: 'merged'}")),
    endless("$group of large documents", || {
        aggregate(
            "large",
            "{$set: {r: {$range: [0, 1000]}}}, {$unwind: '$r'}, {$group: {_id: '$d', n: {$sum: 1}}}",
        )
    }),
    endless("$sort of large documents", || {
        aggregate(
            "large",
            "{$sort: {d: -1}}, {$set: {r: {$range: [0, 1000]}}}, {$unwind: '$r'}, {$group: {_id: '$d', n: {$sum: 1}}}",
        )
    }),
    endless("distinct", || {
        let size = "{$size: {$map: {input: {$range: [0, 100000]}, in: 1}}}";
        format!("{{distinct: 'many', key: 'a', query: {{$expr: {{$gte: [{size}, 0]}}}}}}")
    }),
    endless("count", || {
        let all = list(1000, |at| format!("{{s: {{$regex: '{at}(?=z)'}}}}"));
        format!("{{count: 'many', query: {{$or: [{all}]}}}}")
    }),
    endless("$or of many terms", || {
        let all = list(20_000, |at| format!("{{a: {at}, b: {{$gt: {at}}}}}"));
        find("many", &format!("{{$or: [{all}]}}"))
    }),
    endless("a polygon of many corners", || {
        let ring = |shift: f64| {
            let points = list(40_000, |at| {
                let angle = at as f64 / 40_000.0 * std::f64::consts::TAU;
                let far = 40.0 + (at % 2) as f64;
                format!("[{:.7}, {:.7}]", far * angle.cos() + shift, far * angle.sin() * 0.9)
            });
            format!("[[{points}, [{:.7}, 0.0]]]", 40.0 + shift)
        };
        let both = format!(
            "{{$documents: [{{g: {{type: 'Polygon', coordinates: {}}}}}]}}, {{$match: {{g: {{$geoIntersects: {{$geometry: {{type: \
             'Polygon', coordinates: {}}}}}}}}}}}",
            ring(0.0),
            ring(0.1)
        );
        format!("{{aggregate: 1, pipeline: [{both}], cursor: {{}}}}")
    }),
    endless("an index over all fields", || {
        "{createIndexes: 'large', indexes: [{key: {'$**': 1}, name: 'all'}, {key: {'d.a.x': 1, 'd.n': 1}, name: 'x'}]}".to_owned()
    }),
    endless("an index of many documents", || {
        "{createIndexes: 'rows', indexes: [{key: {v: 1, s: 1}, name: 'v'}]}".to_owned()
    }),
    endless("validate", || "{validate: 'rows', full: true}".to_owned()),
    endless("dataSize", || {
        "{dataSize: 'test.rows', keyPattern: {_id: 1}, min: {_id: MinKey}, max: {_id: MaxKey}}"
            .to_owned()
    }),
    endless("dbHash", || "{dbHash: 1}".to_owned()),
    endless("convertToCapped", || "{convertToCapped: 'rows', size: 1000000000}".to_owned()),
    endless("cloneCollectionAsCapped", || {
        "{cloneCollectionAsCapped: 'rows', toCollection: 'capped', size: 1000000000}".to_owned()
    }),
    endless("reIndex", || "{reIndex: 'rows'}".to_owned()),
    endless("insert of many", || {
        format!(
            "{{insert: 'inserted', documents: [{}]}}",
            list(99_000, |at| format!("{{a: {at}}}"))
        )
    }),
    endless("measurements", || {
        format!(
            "{{insert: 'series', documents: [{}]}}",
            list(30_000, |at| { format!("{{t: Date({}), m: {at}, a: {at}}}", at * 1000) })
        )
    }),
    endless("explain of all", || {
        let query = over_rows("{$sort: {v: 1}}, {$skip: 10000000}");
        format!("{{explain: {query}, verbosity: 'allPlansExecution'}}")
    }),
];

fn document(fixture: &Fixture, command: &str) -> DocBuf {
    match dialect::document(command, &fixture.env()) {
        Ok(document) => document,
        Err(why) => panic!("{why}: {}", command.chars().take(300).collect::<String>()),
    }
}

/// The way in which an operation is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Deadline,
    Killed,
}

/// Runs a command and ends it; returns the time that it took to end, or a description of the fault.
fn end(fixture: &Fixture, row: &Endless, end: End, free: Duration) -> Result<Duration, String> {
    let mut command = (row.command)();
    if end == End::Deadline {
        command.insert_str(command.len() - 1, &format!(", maxTimeMS: {MAX_TIME_MS}"));
    }
    let command = document(fixture, &command);
    let (sender, receiver) = mpsc::channel();
    let (reply, took) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let reply = fixture.run_document("test", command.as_doc());
            // It is not awaited when the test has failed.
            let _ = sender.send(reply);
        });
        // The deadline is set when the operation is registered, and the clock moves after that. On
        // a busy machine this can take long.
        let began = Instant::now();
        while fixture.service.ops.list().is_empty() && began.elapsed() < STARTS {
            if let Ok(reply) = receiver.try_recv() {
                return (reply, Duration::ZERO);
            }
            std::thread::yield_now();
        }
        if let Ok(reply) = receiver.recv_timeout(free) {
            return (reply, Duration::ZERO);
        }
        let began = Instant::now();
        match end {
            End::Deadline => fixture.clock.advance_ms(MAX_TIME_MS),
            End::Killed => {
                fixture.service.ops.list().iter().for_each(|op| op.kill(ErrorCode::Interrupted));
            }
        }
        (receiver.recv().unwrap_or_else(|_| DocBuf::empty()), began.elapsed())
    });
    let reply = reply.as_doc();
    let code = |reply: mayfly_value::RawDoc<'_>| match reply.get("code") {
        Some(RawValue::Int32(code)) => Some(code),
        _ => None,
    };
    let of_statement = match reply.get("writeErrors") {
        Some(RawValue::Array(errors)) => {
            errors.iter().last().and_then(|error| match error.value() {
                RawValue::Document(error) => code(error),
                _ => None,
            })
        }
        _ => None,
    };
    let expected = if end == End::Deadline { 50 } else { 11601 };
    match code(reply).or(of_statement) {
        Some(code) if code == expected && took <= NOTICES => Ok(took),
        Some(code) if code == expected => {
            Err(format!("{}, {end:?}: it noticed after {took:?}", row.name))
        }
        _ => {
            let shown: String = dialect::show(reply).chars().take(300).collect();
            Err(format!("{}, {end:?}: after {took:?} it answered {shown}", row.name))
        }
    }
}

#[test]
fn operations_end_when_they_have_to() {
    let shown = environment::text("ENDS").is_some();
    let free = environment::number("ENDS_FREE").map_or(RUNS, Duration::from_secs);
    let fixture = Fixture::in_memory();
    for command in DATA {
        fixture.ok("test", command);
    }
    fixture.ok("test", &over_rows("{$limit: 100000}, {$out: 'rows'}"));
    fixture.ok("test", "{createIndexes: 'rows', indexes: [{key: {a: 1, r: 1}, name: 'ar'}]}");
    fixture.ok("test", "{create: 'series', timeseries: {timeField: 't', metaField: 'm'}}");
    let mut wrong = Vec::new();
    let rows = environment::selected("ENDS", ENDLESS.iter().collect(), |row| row.name.to_owned());
    for row in rows {
        for how in [End::Deadline, End::Killed] {
            let ended = end(&fixture, row, how, free);
            if shown {
                println!("{}, {how:?}: {ended:?}", row.name);
            }
            wrong.extend(ended.err());
        }
    }
    assert!(wrong.is_empty(), "these did not end as they should:\n{}", wrong.join("\n"));
}
