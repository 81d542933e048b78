//! Results of expressions, one row for each rule.

use mayfly_scripts::ScriptLimits;
use mayfly_value::extjson::{Style, parse_document, to_string};
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use super::*;

fn evaluate(expression: &str, document: &str) -> mayfly_base::Result<String> {
    let mut scope = Scope::at(crate::OperationTime::at(1_000));
    scope.declare(parse_document("{limit: 5, sum: {$add: ['$$limit', 1]}}").unwrap().as_doc())?;
    let spec = parse_document(&format!("{{e: {expression}}}")).unwrap();
    let parsed = Expression::parse_in(spec.as_doc().get("e").unwrap(), &scope)?;
    let document = parse_document(document).unwrap();
    let value = parsed.evaluate(Frame::new(document.as_doc()))?;
    let mut out = DocBuilder::new();
    value.as_raw().map(|value| out.append("v", value));
    Ok(shown(out.finish().as_doc()))
}

fn shown(document: RawDoc<'_>) -> String {
    to_string(document, Style::Canonical)
}

fn check(expression: &str, document: &str, expected: &str) {
    let expected = match expected {
        "missing" => "{}".to_owned(),
        expected => format!("{{v: {expected}}}"),
    };
    let expected = shown(parse_document(&expected).unwrap().as_doc());
    assert_eq!(evaluate(expression, document).unwrap(), expected, "{expression} over {document}");
}

fn check_error(expression: &str, document: &str, code: i32, text: &str) {
    let error = evaluate(expression, document).unwrap_err();
    assert_eq!((error.code().0, error.message()), (code, text), "{expression} over {document}");
}

/// Manual: "Field Paths", "Literal Expressions", "Aggregation Variables", "$let".
#[test]
fn paths_constants_and_variables() {
    check("'$a.b'", "{a: {b: 1}}", "1");
    check("'$a.c'", "{a: {b: 1}}", "missing");
    check("'$a.b'", "{a: [{b: 1}, {c: 1}, 5, [{b: 4}], {b: 2}]}", "[1, 2]");
    check("{x: '$a', y: '$z'}", "{a: 1}", "{x: 1}");
    check("['$a', '$z']", "{a: 1}", "[1, null]");
    check("{$literal: '$a'}", "{a: 1}", "'$a'");
    check("'$$ROOT.a'", "{a: 1}", "1");
    check("'$$CURRENT'", "{a: 1}", "{a: 1}");
    check("'$$NOW'", "{}", "{$date: {$numberLong: '1000'}}");
    check("'$$REMOVE'", "{}", "missing");
    check("'$$USER_ROLES'", "{}", "[]");
    check("['$$limit', '$$sum']", "{}", "[5, 6]");
    check("{$let: {vars: {x: '$a', y: 2}, in: {$add: ['$$x', '$$y']}}}", "{a: 1}", "3");
    check("{$let: {vars: {x: '$a'}, in: '$$x.b'}}", "{a: {b: 7}}", "7");
    let nested =
        "{$let: {vars: {x: 1}, in: {$let: {vars: {x: {$add: ['$$x', '$a']}}, in: ['$$x', '$a']}}}}";
    check(nested, "{a: 2}", "[3, 2]");
    check("{$let: {vars: {CURRENT: '$a'}, in: '$b'}}", "{a: {b: 3}, b: 4}", "3");
}

/// Manual: "Comparison Expression Operators", "Boolean Expression Operators", "Conditional
/// Expression Operators".
#[test]
fn comparison_boolean_and_conditional() {
    check("{$eq: [1, 1.0]}", "{}", "true");
    check("{$eq: ['$a', null]}", "{}", "false");
    check("{$lt: ['$a', null]}", "{}", "true");
    check("{$gt: ['x', 5]}", "{}", "true");
    check("{$gte: ['$a', '$b']}", "{a: [2], b: [1, 3]}", "true");
    check("{$ne: ['$a', '$b']}", "{a: {x: 1}, b: {x: 1}}", "false");
    check("{$cmp: ['$a', 2]}", "{a: 1}", "-1");
    check("{$and: []}", "{}", "true");
    check("{$or: []}", "{}", "false");
    check("{$and: ['$a', 1, 'x', []]}", "{a: true}", "true");
    check("{$and: ['$a', 1]}", "{a: 0}", "false");
    check("{$or: ['$z', null, 0, {$literal: ''}]}", "{}", "true");
    check("{$not: ['$a']}", "{a: {$numberDouble: 'NaN'}}", "false");
    check("{$not: '$a'}", "{}", "true");
    check("{$cond: ['$a', 1, 2]}", "{a: false}", "2");
    check("{$cond: {if: '$a', then: '$b', else: 2}}", "{a: 1}", "missing");
    check("{$cond: ['$a', {$divide: [1, '$z']}, 2]}", "{z: 0}", "2");
    check("{$ifNull: ['$a', '$b', 3]}", "{b: null}", "3");
    check("{$ifNull: ['$a', '$b']}", "{}", "missing");
}

/// Manual: "$add", "$subtract", "$multiply", "$divide", "$mod".
#[test]
fn arithmetic() {
    check("{$add: [1, 2]}", "{}", "3");
    check("{$add: []}", "{}", "0");
    check("{$add: ['$a', 1]}", "{a: 2147483647}", "{$numberLong: '2147483648'}");
    let huge = "{$numberDouble: '9223372036854775808.0'}";
    check("{$add: [{$numberLong: '9223372036854775807'}, 1]}", "{}", huge);
    check("{$add: [1, {$numberDecimal: '0.10'}]}", "{}", "{$numberDecimal: '1.10'}");
    check("{$add: [0.1, 0.2, 0.3]}", "{}", "0.6");
    check("{$add: ['$z', 1]}", "{}", "null");
    let date = |ms: i64| format!("{{$date: {{$numberLong: '{ms}'}}}}");
    check(&format!("{{$add: [{}, 2.5]}}", date(10)), "{}", &date(13));
    check("{$subtract: [5, 2.5]}", "{}", "2.5");
    check(&format!("{{$subtract: [{}, {}]}}", date(10), date(3)), "{}", "{$numberLong: '7'}");
    check(&format!("{{$subtract: [{}, 4]}}", date(10)), "{}", &date(6));
    check("{$subtract: [null, 'x']}", "{}", "null");
    check("{$multiply: ['$a', 3]}", "{a: {$numberLong: '2'}}", "{$numberLong: '6'}");
    check("{$multiply: [65536, 65536]}", "{}", "{$numberLong: '4294967296'}");
    check("{$divide: [4, 2]}", "{}", "{$numberDouble: '2.0'}");
    check("{$divide: [{$numberDecimal: '1'}, 8]}", "{}", "{$numberDecimal: '0.125'}");
    check("{$mod: [7, 2.0]}", "{}", "1.0");
    check("{$mod: [-7, 4]}", "{}", "-3");
    check("{$mod: [7.5, 2]}", "{}", "1.5");
    check("{$mod: [{$numberDecimal: '7.5'}, 2]}", "{}", "{$numberDecimal: '1.5'}");
}

/// Manual: "Array Expression Operators", "String Expression Operators", "$type".
#[test]
fn arrays_texts_and_types() {
    check("{$size: '$a'}", "{a: [1, [2, 3]]}", "2");
    check("{$in: ['$x', ['a', 1.0]]}", "{x: 1}", "true");
    check("{$in: [1, '$a']}", "{a: [[1]]}", "false");
    check("{$arrayElemAt: ['$a', -1]}", "{a: [1, 2]}", "2");
    check("{$arrayElemAt: ['$a', 2]}", "{a: [1, 2]}", "missing");
    check("{$arrayElemAt: ['$z', 0]}", "{}", "null");
    check("{$isArray: ['$a']}", "{a: []}", "true");
    check("{$isArray: [['x']]}", "{}", "true");
    check("{$slice: ['$a', 2]}", "{a: [1, 2, 3]}", "[1, 2]");
    check("{$slice: ['$a', -2]}", "{a: [1, 2, 3]}", "[2, 3]");
    check("{$slice: ['$a', 1, 1]}", "{a: [1, 2, 3]}", "[2]");
    check("{$slice: ['$a', -5, 2]}", "{a: [1, 2, 3]}", "[1, 2]");
    check("{$concat: ['a', '$b']}", "{b: 'c'}", "'ac'");
    check("{$concat: ['a', '$b']}", "{}", "null");
    check("{$toUpper: '$a'}", "{a: 'aé1'}", "'Aé1'");
    check("{$toLower: '$a'}", "{}", "''");
    check("{$toLower: 5}", "{}", "'5'");
    check("{$type: '$a'}", "{}", "'missing'");
    check("{$type: '$a'}", "{a: {$numberLong: '1'}}", "'long'");
    check("{$isNumber: '$a'}", "{a: 1.5}", "true");
    check("{$setDifference: ['$a', [2]]}", "{a: [3, 1.0, 2, 3, 1, [2], 2]}", "[3, 1.0, [2]]");
    check("{$setDifference: [[], '$a']}", "{a: [1]}", "[]");
    // Byte offsets may be inside letters: é has two bytes.
    check("{$indexOfBytes: ['$a', 'é', 1]}", "{a: 'éaé'}", "3");
    check("{$indexOfBytes: ['$a', 'é', 1, 4]}", "{a: 'éaé'}", "-1");
    check("{$indexOfBytes: ['$a', 'a', 1, 1]}", "{a: 'éa'}", "-1");
    check("{$indexOfBytes: ['$a', '', 1, 1]}", "{a: 'éa'}", "1");
    check("{$indexOfBytes: ['$a', 'a', 9]}", "{a: 'éa'}", "-1");
    check(
        "{$map: {input: {$regexFindAll: {input: '$a', regex: 'é.'}}, in: '$$this.idx'}}",
        "{a: 'éaxéééb'}",
        "[0, 3, 5]",
    );
    check("{$size: {$range: [0, 1000000]}}", "{}", "1000000");
    check("{$range: [0, -5, -2]}", "{}", "[0, -2, -4]");
}

#[test]
fn faults_have_their_codes() {
    check_error(
        "{$range: [0, 6600000]}",
        "{}",
        146,
        "$range would use too much memory (105600040 bytes) and cannot spill to disk. Memory limit: 104857600 bytes",
    );
    let texts = [
        ("'$'", 16872, "'$' by itself is not a valid FieldPath"),
        ("'$a.'", 40353, "FieldPath must not end with a '.'."),
        ("'$a..b'", 15998, "FieldPath field names may not be empty strings."),
        ("'$$x'", 17276, "Use of undefined variable: x"),
        ("{$foo: 1}", 168, "Unrecognized expression '$foo'"),
        ("{$createUUID: 1}", 168, "Unrecognized expression '$createUUID'"),
        ("{$cmp: [1]}", 16020, "Expression $cmp takes exactly 2 arguments. 1 were passed in."),
        ("{$cond: {then: 1, else: 2}}", 17080, "Missing 'if' parameter to $cond"),
        ("{$cond: {foo: 1}}", 17083, "Unrecognized parameter to $cond: foo"),
        ("{$ifNull: [1]}", 1_257_300, "$ifNull needs at least two arguments, had: 1"),
        ("{$add: [1, 'x']}", 14, "$add only supports numeric or date types, not string"),
        ("{$subtract: [1, 'x']}", 14, "can't $subtract string from int"),
        ("{$multiply: [{}]}", 14, "$multiply only supports numeric types, not object"),
        ("{$divide: [1, 0]}", 2, "can't $divide by zero"),
        ("{$divide: [1, 'x']}", 14, "$divide only supports numeric types, not int and string"),
        ("{$mod: [1, 0]}", 16610, "can't $mod by zero"),
        ("{$concat: [1]}", 16702, "$concat only supports strings, not int"),
        (
            "{$size: '$z'}",
            17124,
            "The argument to $size must be an array, but was of type: missing",
        ),
        ("{$in: [1, 2]}", 40081, "$in requires an array as a second argument, found: int"),
        (
            "{$arrayElemAt: [1, 2]}",
            28689,
            "$arrayElemAt's first argument must be an array, but is int",
        ),
        ("{$slice: [[1], 1, 0]}", 28729, "Third argument to $slice must be positive: 0"),
        (
            "{$let: {vars: {X: 1}, in: 1}}",
            9,
            "'X' starts with an invalid character for a user variable name",
        ),
        ("{$let: {in: 1}}", 16876, "Missing 'vars' parameter to $let"),
    ];
    for (expression, code, text) in texts {
        check_error(expression, "{}", code, text);
    }
    let mut scope = Scope::default();
    let fields = parse_document("{x: '$a'}").unwrap();
    assert_eq!(scope.declare(fields.as_doc()).unwrap_err().code().0, 4_890_500);
    let deep = format!("{}1{}", "{$not: [".repeat(300), "]}".repeat(300));
    if let Ok(deep) = parse_document(&format!("{{e: {deep}}}")) {
        assert!(Expression::parse(deep.as_doc().get("e").unwrap()).is_err());
    }
}

#[test]
fn random_numbers_differ_and_stay_in_range() {
    let numbers: Vec<f64> = (0..1000).map(|_| random_unit()).collect();
    assert!(numbers.iter().all(|number| (0.0..1.0).contains(number)));
    let mean = numbers.iter().sum::<f64>() / 1000.0;
    assert!((0.4..0.6).contains(&mean), "{mean}");
}

/// Nested variables double a value at each level; evaluation fails at the size limit of strings and
/// documents.
#[test]
fn values_do_not_grow_without_end() {
    for (doubled, code) in [
        ("{$concat: ['$$x', '$$x']}", 16493),
        ("['$$x', '$$x']", 10334),
        ("{a: '$$x', b: '$$x'}", 10334),
    ] {
        let mut expression = "'$$x'".to_owned();
        for _ in 0..40 {
            expression = format!("{{$let: {{vars: {{x: {doubled}}}, in: {expression}}}}}");
        }
        let expression = format!("{{$let: {{vars: {{x: '$a'}}, in: {expression}}}}}");
        let error = evaluate(&expression, "{a: 'text'}").unwrap_err();
        assert_eq!(error.code().0, code, "{doubled}: {error}");
    }
}

#[test]
fn dependencies_are_found() {
    let scope = Scope::default().with_metadata("textScore");
    let of = |text: &str| {
        let spec = parse_document(&format!("{{e: {text}}}")).unwrap();
        Expression::parse_in(spec.as_doc().get("e").unwrap(), &scope).unwrap().dependencies()
    };
    let found = of("{$map: {input: '$a.b', as: 'x', in: {$add: ['$$x', '$c', {$rand: {}}]}}}");
    assert_eq!(found.paths.iter().map(String::as_str).collect::<Vec<_>>(), ["a.b", "c"]);
    assert!(found.random && !found.whole_document);
    assert!(found.reads("a") && found.reads("a.b.c") && !found.reads("ab"));
    assert!(of("'$$ROOT'").whole_document);
    assert!(of("{$meta: 'textScore'}").metadata.contains("textScore"));
    assert!(of("{$concat: ['a', 'b']}").is_empty());
}

/// Manual: "$meta": an error where the metadata does not exist.
#[test]
fn metadata_comes_with_the_document() {
    let spec = parse_document("{e: {$meta: 'textScore'}}").unwrap();
    let spec = spec.as_doc().get("e").unwrap();
    assert_eq!(Expression::parse(spec).unwrap_err().code().0, 40218);
    let scope = Scope::default().with_metadata("textScore");
    let parsed = Expression::parse_in(spec, &scope).unwrap();
    let notes = parse_document("{textScore: 1.5}").unwrap();
    let frame = Frame::new(RawDoc::EMPTY).with_metadata(Some(notes.as_doc()));
    let score = parsed.evaluate(frame).unwrap();
    assert_eq!(score.as_raw(), Some(mayfly_value::RawValue::Double(1.5)));
}

/// Groups that are saved and merged give the same results as others, wherever they are split.
#[test]
fn saved_states_merge() {
    let operators = [
        "$sum: '$v'",
        "$avg: '$v'",
        "$min: '$v'",
        "$max: '$v'",
        "$first: '$v'",
        "$last: '$v'",
        "$push: '$v'",
        "$addToSet: '$v'",
        "$count: {}",
        "$mergeObjects: '$o'",
        "$top: {sortBy: {v: -1}, output: '$i'}",
        "$topN: {n: 2, sortBy: {v: 1}, output: '$i'}",
        "$bottom: {sortBy: {v: 1}, output: '$i'}",
        "$bottomN: {n: 3, sortBy: {i: 1}, output: '$v'}",
        "$firstN: {n: 2, input: '$v'}",
        "$lastN: {n: 2, input: '$v'}",
        "$minN: {n: 2, input: '$v'}",
        "$maxN: {n: 2, input: '$v'}",
        "$median: {input: '$v', method: 'approximate'}",
        "$percentile: {input: '$v', p: [0.1, 0.9], method: 'approximate'}",
        "$setUnion: '$a'",
        "$concatArrays: '$a'",
    ];
    let documents = [
        "{i: 0, a: [1]}",
        "{i: 1, v: 3, o: {x: 1}, a: [2, 1]}",
        "{i: 2, v: {$numberLong: '5'}, o: {y: 2}, a: []}",
        "{i: 3, v: null, a: [3]}",
        "{i: 4, v: 0.1, o: {x: 3}, a: [1]}",
        "{i: 5, v: {$numberDecimal: '2.5'}, a: ['x']}",
        "{i: 6, v: 'text', a: [null]}",
        "{i: 7, v: 3, o: null, a: [1]}",
    ];
    let documents: Vec<_> = documents.iter().map(|text| parse_document(text).unwrap()).collect();
    for operator in operators {
        let spec = parse_document(&format!("{{f: {{{operator}}}}}")).unwrap();
        let field = spec.as_doc().get_element("f").unwrap();
        let accumulator = accum::Accumulator::parse(field, &Scope::default()).unwrap();
        let run = |part: &[mayfly_value::DocBuf]| {
            let mut state = accumulator.start(None).unwrap();
            for document in part {
                accumulator.add(&mut state, document.as_doc()).unwrap();
            }
            state
        };
        let whole = accumulator.finish(&run(&documents)).unwrap();
        for cut in 0..=documents.len() {
            let mut merged = accumulator.start(None).unwrap();
            for part in [&documents[..cut], &documents[cut..]] {
                accumulator.merge(&mut merged, run(part).save().as_raw()).unwrap();
            }
            assert_eq!(accumulator.finish(&merged).unwrap(), whole, "{operator} cut at {cut}");
        }
    }
}

const COUNTING: &str = "{f: {$accumulator: {init: 'n => ({n: n, seen: []})', initArgs: ['$from'], \
    accumulate: '(s, v) => { s.n += 1; s.seen.push(v); return s; }', accumulateArgs: ['$v'], \
    merge: '(a, b) => ({n: a.n + b.n, seen: a.seen.concat(b.seen)})', \
    finalize: 's => [s.n, s.seen.join(\"\")]', lang: 'js'}}}";

/// Deferred calls are saved with the state, and merged in their order.
#[test]
fn accumulators_in_javascript_can_be_saved() {
    let spec = parse_document(COUNTING).unwrap();
    let field = spec.as_doc().get_element("f").unwrap();
    let scope = Scope::default().with_script_limits(ScriptLimits::default());
    let accumulator = accum::Accumulator::parse(field, &scope).unwrap();
    let id = parse_document("{from: 10}").unwrap();
    let id = Some(RawValue::Document(id.as_doc()));
    let take = |state: &mut accum::AccumState, values: &[&str]| {
        for value in values {
            let document = parse_document(&format!("{{v: '{value}'}}")).unwrap();
            accumulator.add(state, document.as_doc()).unwrap();
        }
    };
    let mut later = accumulator.start(id).unwrap();
    take(&mut later, &["c", "d"]);
    let mut state = accumulator.start(id).unwrap();
    take(&mut state, &["a", "b"]);
    accumulator.merge(&mut state, later.save().as_raw()).unwrap();
    take(&mut state, &["e"]);
    let mut fresh = accumulator.start(id).unwrap();
    accumulator.merge(&mut fresh, state.save().as_raw()).unwrap();
    let expected = parse_document("{r: [35.0, 'abcde']}").unwrap();
    for _ in 0..2 {
        let found = accumulator.finish(&fresh).unwrap();
        assert_eq!(found.as_raw(), expected.as_doc().get("r").unwrap());
    }
}

/// Deferred calls are bounded: large groups call the interpreter repeatedly.
#[test]
fn accumulators_in_javascript_take_many_documents() {
    let spec = "{f: {$accumulator: {init: 'return 0', accumulate: '(s, v) => s + v.length', \
        accumulateArgs: ['$v'], merge: '(a, b) => a + b'}}}";
    let spec = parse_document(spec).unwrap();
    let field = spec.as_doc().get_element("f").unwrap();
    let scope = Scope::default().with_script_limits(ScriptLimits::default());
    let accumulator = accum::Accumulator::parse(field, &scope).unwrap();
    let mut document = DocBuilder::new();
    document.append("v", "x".repeat(10_000).as_str());
    let document = document.finish();
    let mut state = accumulator.start(None).unwrap();
    for _ in 0..200 {
        accumulator.add(&mut state, document.as_doc()).unwrap();
        assert!(state.bytes() < 400_000);
    }
    let found = accumulator.finish(&state).unwrap();
    assert_eq!(found.as_raw(), RawValue::Double(2_000_000.0));
}

/// An operator that reads a large value once for each item of another ends with its operation.
#[test]
fn reading_large_values_is_work() {
    use mayfly_base::{ErrorCode, ManualClock};
    use mayfly_work::OpCtx;
    use mayfly_work::current::{Current, enter};
    use std::sync::Arc;

    let items = vec!["7"; 100_000].join(",");
    let document = format!("{{a: [{items}]}}");
    let expression = "{$arrayElemAt: ['$a', 99999]}";
    assert!(evaluate(expression, &document).is_ok());
    let op = OpCtx::detached(Arc::new(ManualClock::at_ms(0)));
    op.kill(ErrorCode::Interrupted);
    let _entered = enter(Current { op: Some(op) });
    check("{$arrayElemAt: ['$a', 1]}", "{a: [1, 2]}", "2");
    let error = evaluate(expression, &document).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Interrupted);
}

/// A constant array is sorted when it is parsed, and gives the same results as an array in the
/// document.
#[test]
fn constant_arrays_are_searched_as_others() {
    let list = "[3, 1.0, null, 'b', 'A', [1], {x: 1}, {$numberLong: '7'}, {$numberDouble: 'NaN'}, 'b', true]";
    let spec = parse_document(&format!(
        "{{in: {{$in: ['$a', {list}]}}, all: {{$setIsSubset: ['$a', {list}]}}}}"
    ))
    .unwrap();
    for element in spec.as_doc() {
        let parsed = Expression::parse_in(element.value(), &Scope::default()).unwrap();
        assert!(matches!(parsed, Expression::Ready { .. }), "{}", element.name());
    }
    let values = [
        "1",
        "2",
        "{$numberDecimal: '7'}",
        "'a'",
        "'A'",
        "null",
        "[1]",
        "[1.0]",
        "[2]",
        "{x: 1}",
        "{x: 2}",
        "true",
        "{$numberDouble: 'NaN'}",
        "[3, 'b']",
        "[3, 'c']",
        "[]",
    ];
    for value in values {
        let document = format!("{{a: {value}, list: {list}}}");
        for operator in ["$in", "$setIsSubset"] {
            let of = |array: &str| {
                evaluate(&format!("{{{operator}: ['$a', {array}]}}"), &document)
                    .map_err(|error| error.message().to_owned())
            };
            let (constant, stored) = (of(list), of("'$list'"));
            // The reference has different codes for a constant, but the same messages.
            assert_eq!(constant, stored, "{operator} of {value}");
        }
    }
    check(&format!("{{$in: ['$none', {list}]}}"), "{}", "false");
    check_error(
        "{$in: ['$a', 5]}",
        "{a: 1}",
        40081,
        "$in requires an array as a second argument, found: int",
    );
    let options = parse_document("{locale: 'en', strength: 2}").unwrap();
    let collation = mayfly_value::Collation::parse(options.as_doc(), "collation").unwrap();
    let scope = Scope::default().collated(collation);
    let parsed = Expression::parse_in(spec.as_doc().get("in").unwrap(), &scope).unwrap();
    for (value, expected) in [("'a'", true), ("'B'", true), ("'c'", false)] {
        let document = parse_document(&format!("{{a: {value}}}")).unwrap();
        let found = parsed.evaluate(Frame::new(document.as_doc())).unwrap();
        assert_eq!(found.as_raw(), Some(RawValue::Bool(expected)), "{value}");
    }
}
