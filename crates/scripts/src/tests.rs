//! Scripts: conversion of values, sources, limits, and isolation.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use mayfly_base::{Clock, ErrorCode, SystemClock};
use mayfly_value::{DocBuf, DocBuilder, RawValue, ValueBuf};
use mayfly_work::OpCtx;
use mayfly_work::current::{Current, enter};

use super::{Script, ScriptLimits};

mod natives;

fn arguments(values: &[RawValue<'_>]) -> DocBuf {
    let mut out = DocBuilder::new_array();
    for value in values {
        out.push(*value);
    }
    out.finish()
}

fn call(source: &str, values: &[RawValue<'_>]) -> Result<ValueBuf, String> {
    call_within(ScriptLimits::default(), source, values)
}

fn call_within(
    limits: ScriptLimits,
    source: &str,
    values: &[RawValue<'_>],
) -> Result<ValueBuf, String> {
    let script = Script::new(source, limits);
    let result = script.call(arguments(values).as_doc());
    result.map_err(|error| format!("{}: {}", error.code().0, error.message()))
}

fn check(source: &str, values: &[RawValue<'_>], expected: RawValue<'_>) {
    let found = call(source, values).unwrap_or_else(|error| panic!("{source}: {error}"));
    assert_eq!(found, expected.to_owned(), "{source}");
}

fn check_fails(source: &str, expected: &str) {
    check_fails_within(ScriptLimits::default(), source, expected);
}

fn check_fails_within(limits: ScriptLimits, source: &str, expected: &str) {
    let found = call_within(limits, source, &[]).map(|_| ()).expect_err(source);
    assert!(found.starts_with(expected), "{source}: {found}");
}

#[test]
fn numbers_come_back_as_doubles() {
    check("function (a, b) { return a + b; }", &[1.into(), 2.into()], RawValue::Double(3.0));
    check("return 7", &[], RawValue::Double(7.0));
    check("function (n) { return n; }", &[RawValue::Int64(1 << 60)], RawValue::Int64(1 << 60));
    check("function (n) { return n + 1; }", &[RawValue::Int64(41)], RawValue::Double(42.0));
    check("NumberInt(3)", &[], RawValue::Int32(3));
    check("NumberLong('9007199254740993')", &[], RawValue::Int64(9_007_199_254_740_993));
}

#[test]
fn sources_are_functions_expressions_or_bodies() {
    for source in [
        "function () { return true; }",
        "function named() { return true; };",
        "() => true",
        "(a, b) => { return true; }",
        "a => true",
        "true",
        "true;",
        "1 < 2 // with a remark",
        "return true",
        "var a = 1; return a === 1;",
        "function inner() { return true; } return inner();",
        "if (false) { return false; } else { return true; }",
    ] {
        check(source, &[], RawValue::Bool(true));
    }
    check_fails("function () {", "139: SyntaxError");
    check_fails("return return", "139: SyntaxError");
    check_fails("a\0b", "139: ");
}

#[test]
fn no_result_is_null() {
    check("function () {}", &[], RawValue::Null);
    check("return undefined", &[], RawValue::Null);
    check("return null", &[], RawValue::Null);
}

#[test]
fn every_type_comes_back() {
    let inner = {
        let mut doc = DocBuilder::new();
        doc.append("10", 1).append("i", 5).append("d", 5.5).append("s", "x\0y");
        doc.append("__proto__", 3).append("nothing", RawValue::Null);
        doc.finish()
    };
    let empty = DocBuf::empty();
    let values = [
        RawValue::MinKey,
        RawValue::MaxKey,
        RawValue::Double(-0.5),
        RawValue::Int64(i64::MIN),
        RawValue::Int64(i64::MAX),
        RawValue::String("Grüße \u{1F600}"),
        RawValue::Document(inner.as_doc()),
        RawValue::Document(empty.as_doc()),
        RawValue::Binary { subtype: 4, bytes: &[0, 1, 254, 255] },
        RawValue::Binary { subtype: 0, bytes: &[] },
        RawValue::ObjectId([7, 0, 1, 2, 3, 4, 5, 6, 255, 8, 9, 10]),
        RawValue::Bool(false),
        RawValue::Date(-1),
        RawValue::Timestamp(u64::MAX),
        RawValue::Regex { pattern: "^a.b$", options: "im" },
        RawValue::Regex { pattern: "(?i)a b", options: "x" },
        RawValue::DbPointer { ns: "db.c", id: [1; 12] },
    ];
    for value in values {
        check("function (v) { return v; }", &[value], value);
    }
    let decimal = mayfly_value::decimal::Decimal::parse("1.50").expect("a number").to_bytes();
    check("v => v", &[RawValue::Decimal128(decimal)], RawValue::Decimal128(decimal));
}

#[test]
fn fields_keep_their_integers_and_new_ones_are_doubles() {
    let document = {
        let mut doc = DocBuilder::new();
        doc.append("a", 1).append("b", 2);
        doc.finish()
    };
    let expected = {
        let mut doc = DocBuilder::new();
        doc.append("a", 2).append("b", 2.5).append("c", 1.0);
        doc.finish()
    };
    let source = "function (d) { d.a += 1; d.b += 0.5; d.c = 1; return d; }";
    check(source, &[document.as_doc().into()], expected.as_doc().into());
}

#[test]
fn results_have_limits() {
    check_fails("var o = {}; o.o = o; return o;", "17279: Exceeded depth limit");
    check_fails("return 'x'.repeat(1 << 25)", "10334: ");
    check_fails("return new Array(1 << 30)", "10334: ");
    check_fails("return {a: 10n}", "16662: unable to convert JavaScript property");
    check_fails("return {a: Symbol('a')}", "16662: ");
    check_fails("return {'a\\0b': 1}", "139: ");
}

#[test]
fn exceptions_become_errors() {
    check_fails("throw new Error('boom')", "139: Error: boom");
    check_fails("missing.field", "139: ReferenceError: missing is not defined");
    check_fails("throw 'text'", "139: uncaught exception: text");
    check_fails("throw {toString: function () { throw 1; }}", "139: uncaught exception");
    check_fails("return {get a() { throw new TypeError('inside'); }}", "139: TypeError: inside");
    check_fails("return Object.create(Date.prototype)", "139: TypeError");
    check_fails("assert(false, 'why')", "139: Error: assert failed : why");
}

#[test]
fn recursion_and_memory_end() {
    check_fails(
        "function f() { return f() + 1; } return f();",
        "139: RangeError: Maximum call stack",
    );
    check_fails("var a = []; a.toString = () => String(a); return '' + a", "139: ");
    let limits = ScriptLimits { heap_bytes: 16 << 20, ..ScriptLimits::default() };
    check_fails_within(
        limits,
        "var a = []; while (true) a.push('x'.repeat(1 << 16) + a.length);",
        "139: Out of memory",
    );
    check_fails_within(limits, "var s = 'xx'; while (true) s = s + s;", "139: ");
    check("return 1", &[], RawValue::Double(1.0));
}

/// A clock that advances by a millisecond at each reading.
struct Ticking(AtomicI64);

impl Clock for Ticking {
    fn now_ms(&self) -> i64 {
        0
    }

    fn monotonic_micros(&self) -> i64 {
        self.0.fetch_add(1000, Ordering::SeqCst)
    }
}

#[test]
fn loops_end_with_the_operation() {
    let op = OpCtx::detached(Arc::new(Ticking(AtomicI64::new(0))));
    op.set_max_time_ms(20);
    let entered = enter(Current { op: Some(op) });
    check_fails("while (true) {}", "50: operation exceeded time limit");
    check_fails("try { while (true) {} } catch (e) { return 1; }", "50: ");
    drop(entered);

    let op = OpCtx::detached(Arc::new(Ticking(AtomicI64::new(0))));
    op.kill(ErrorCode::Interrupted);
    let _entered = enter(Current { op: Some(op) });
    check_fails("/(a+)+$/.test('a'.repeat(40) + 'b')", "11601: ");
    // An error caused by the interruption.
    check_fails("throw null", "11601: ");
}

#[test]
fn a_call_has_a_time_of_its_own() {
    let limits = ScriptLimits { timeout_ms: 20, ..ScriptLimits::default() };
    check_fails_within(limits, "while (true) {}", "11601: JavaScript execution interrupted");
    check_fails_within(limits, "return {get a() { while (true) {} }}", "11601: ");
}

#[test]
fn nothing_stays_for_another_script() {
    let bend = "Object.prototype.evil = 1; Array.prototype.push = null; globalThis.kept = 1; \
                ObjectId.prototype.toString = null; return 1";
    check(bend, &[], RawValue::Double(1.0));
    check("return typeof kept + typeof ({}).evil", &[], RawValue::String("undefinedundefined"));
    check("var a = []; a.push(1); return a.length", &[], RawValue::Double(1.0));

    // The same script keeps its globals.
    let script = Script::new("this.n = (this.n || 0) + 1; return this.n;", ScriptLimits::default());
    let none = arguments(&[]);
    for expected in [1.0, 2.0] {
        let found = script.call(none.as_doc()).expect("a number");
        assert_eq!(found, RawValue::Double(expected).to_owned());
    }
}

#[test]
fn modified_built_ins_do_not_affect_the_server() {
    let id = RawValue::ObjectId([9; 12]);
    let source = "function (id) { Object.getPrototypeOf = Object.keys = null; Date.prototype.getTime = null; \
                  Object.defineProperty(Object.prototype, 'x', {set: function () { throw 1; }, configurable: true}); \
                  return {id: id, x: new Date(5)}; }";
    let expected = {
        let mut doc = DocBuilder::new();
        doc.append("id", id).append("x", RawValue::Date(5));
        doc.finish()
    };
    check(source, &[id], expected.as_doc().into());
}

#[test]
fn scripts_see_the_document_as_this_and_obj() {
    let mut doc = DocBuilder::new();
    doc.append("a", 3).append("long", 5_i64);
    let doc = doc.finish();
    for (source, expected) in [
        ("this.a == 3 && obj.a === 3", true),
        ("function () { return this.long == 5 && this.long.toNumber() === 5; }", true),
        ("obj.a > 3", false),
        ("''", false),
        ("'x'", true),
        ("undefined", false),
        ("({})", true),
    ] {
        let found = Script::new(source, ScriptLimits::default())
            .holds(doc.as_doc())
            .map_err(|e| e.to_string());
        assert_eq!(found, Ok(expected), "{source}");
    }
}

#[test]
fn functions_in_the_manual_exist() {
    for source in [
        "tojson({a: 1, b: [NumberLong(2)]}) === '{\\n\\t\"a\" : 1,\\n\\t\"b\" : [\\n\\t\\tNumberLong(2)\\n\\t]\\n}'",
        "tojsononeline({a: 'x'}) === '{ \"a\" : \"x\" }'",
        "ObjectId('507F1F77bcf86cd799439011').str === '507f1f77bcf86cd799439011'",
        "ObjectId('507f1f77bcf86cd799439011').getTimestamp().getTime() === 1350508407000",
        "new ObjectId() instanceof ObjectId && ObjectId().str.length === 24",
        "ISODate('2020-01-01T00:00:00').getTime() === Date.UTC(2020, 0, 1)",
        "BinData(0, 'AQID').hex() === '010203' && HexData(0, '010203').base64() === 'AQID'",
        "UUID('00112233-4455-6677-8899-aabbccddeeff').subtype() === 4",
        "Timestamp(1, 2).getInc() === 2 && NumberLong('5').compare(NumberLong(6)) === -1",
        "NumberDecimal('1.5').toString() === 'NumberDecimal(\"1.5\")'",
        "Array.sum([1, 2]) === 3 && Array.avg([1, 3]) === 2 && isNumber(1) && isString('') && isObject({})",
        "print(1) === undefined && DBRef('c', 1).$ref === 'c' && Array.unique([1, 1]).length === 1",
    ] {
        check(source, &[], RawValue::Bool(true));
    }
}

#[test]
fn memory_may_run_out_anywhere() {
    let document = {
        let mut doc = DocBuilder::new();
        doc.append("a", 1).append("text", "x".repeat(500).as_str()).append("l", 5_i64);
        doc.start_array("items");
        for at in 0..200 {
            doc.push(RawValue::ObjectId([at; 12]));
        }
        doc.end();
        doc.finish()
    };
    let source = "function (d) { d.more = d.items.map(function (id) { return {id: id, s: id.str + d.text}; }); return d; }";
    for heap_kb in (50..1500).step_by(17) {
        let limits = ScriptLimits { heap_bytes: heap_kb << 10, ..ScriptLimits::default() };
        let result = call_within(limits, source, &[document.as_doc().into()]);
        assert!(heap_kb > 200 || result.is_err(), "{heap_kb} KB");
    }
}

#[test]
fn nesting_has_a_limit_in_both_directions() {
    let mut nested = DocBuilder::new().finish();
    for _ in 0..150 {
        let mut outer = DocBuilder::new();
        outer.append("a", RawValue::Document(nested.as_doc()));
        nested = outer.finish();
    }
    check("d => d", &[nested.as_doc().into()], nested.as_doc().into());
    check_fails("var d = {}; for (var i = 0; i < 1000; i++) d = {a: d}; return d;", "17279: ");
    check_fails("var d = []; for (var i = 0; i < 1000; i++) d = [d]; return d;", "17279: ");
    check_fails(
        "var o = {}; for (var i = 0; i < 100000; i++) o = {o: o}; return tojson(o);",
        "139: ",
    );
}

#[test]
fn built_in_loops_end_too() {
    let limits = ScriptLimits { timeout_ms: 50, ..ScriptLimits::default() };
    for call in [
        "join.call(like)",
        "reverse.call(like)",
        "copyWithin.call(like, 0, 1)",
        "shift.call(like)",
        "unshift.call(like, 1)",
        "splice.call(like, 0, 1)",
        "sort.call(like)",
        "toLocaleString.call(like)",
        "flat.call(like)",
        "concat.call(like)",
        "shift.call(new Array(4294967295))",
        "splice.call(new Array(4294967295), 0, 1)",
        "sort.call(new Array(4294967295))",
        "join.call({get length() { return 2 ** 53 - 1; }})",
        "indexOf.call(like, 1)",
    ] {
        let source = format!(
            "var like = {{length: 2 ** 53 - 3}}; like[Symbol.isConcatSpreadable] = true; \
             Array.prototype.{call}; return 'done';"
        );
        let answer = call_within(limits, &source, &[]).map(|_| "done".to_owned());
        let ended = answer.unwrap_or_else(|error| error);
        let expected = ended.starts_with("11601") || ended.contains("too many items");
        assert!(expected, "{call}: {ended}");
    }
    for (source, expected) in [
        ("[3, 1, 2].sort().reverse().join('-')", "3-2-1"),
        ("[1].concat([2, [3]], 4).length + [[1, [2]], 3].flat().length + ''", "7"),
        ("[1, [2, [3, [4]]]].flat(Infinity).join()", "1,2,3,4"),
        ("var a = [1, 2, 3]; a.splice(1, 1); a.unshift(0); a.shift(); return a.toString();", "1,3"),
        ("(function () { return [].join.call(arguments, '+'); })(1, 2)", "1+2"),
        ("[].join.call('abc', '.')", "a.b.c"),
        ("typeof Proxy", "undefined"),
    ] {
        check(source, &[], RawValue::String(expected));
    }
}

#[test]
fn built_in_functions_ask_whether_to_go_on() {
    let array = "a = new Array(300000).fill('x').map((x, i) => x + (i * 7919) % 300007);";
    let numbers = "n = new Float64Array(400000).map((x, i) => (i * 7919) % 400009);";
    let object = "o = {}; for (var i = 0; i < 30000; i++) o['k' + i] = i;";
    let text = "s = 'ab, '.repeat(500000);";
    let mut went_on = Vec::new();
    for (before, each) in [
        (array, "a.slice().sort()"),
        // An inner `catch` must not hide the interruption.
        (array, "try { a.slice().sort(); } catch (e) {}"),
        (array, "a.indexOf('y')"),
        (array, "a.lastIndexOf('y')"),
        (array, "a.includes('y')"),
        (array, "a.slice().reverse()"),
        (array, "a.join()"),
        (array, "a.slice().splice(0, 1)"),
        (array, "[...a]"),
        (array, "Array.from(a)"),
        (array, "JSON.stringify(a)"),
        (array, "try { JSON.stringify([a, 1n]); } catch (e) {}"),
        (array, "Float64Array.from(a)"),
        (array, "new Float64Array(a)"),
        ("a = new Array(60000).fill(65);", "String.fromCharCode.apply(null, a)"),
        ("a = new Array(60000).fill(65);", "Reflect.apply(Math.max, null, a)"),
        (numbers, "n.slice().sort()"),
        (numbers, "n.indexOf(-1)"),
        (numbers, "n.join()"),
        (object, "Object.keys(o)"),
        (object, "Object.entries(o)"),
        (object, "Object.assign({}, o)"),
        (object, "Object.freeze(o)"),
        (object, "({...o})"),
        ("b = 2n ** 500000n;", "b * b"),
        ("b = 2n ** 500000n;", "try { b * b; } catch (e) {}"),
        (text, "s.indexOf('b, b')"),
        (text, "s.split(',')"),
        (text, "s.split(',').join(';')"),
        (text, "s.replaceAll(',', ';')"),
        (text, "s.toUpperCase()"),
        (text, "s.normalize('NFD')"),
        (text, "parseFloat(s.slice(0, 0) + '1'.repeat(1000000))"),
        (text, "'xy'.repeat(10000000)"),
        ("s = '[' + '1,'.repeat(300000) + '1]';", "JSON.parse(s)"),
        ("s = 'x'.repeat(1e6), t = 'x'.repeat(1e5) + 'y';", "s.indexOf(t)"),
        ("s = 'x'.repeat(1e6), t = 'y' + 'x'.repeat(1e5);", "s.lastIndexOf(t)"),
        ("s = 'x'.repeat(1e6), t = 'x'.repeat(1e5) + 'y';", "s.split(t)"),
        ("s = 'x'.repeat(1e6), t = 'x'.repeat(1e5) + 'y';", "s.replace(t, '')"),
        ("s = 'x'.repeat(1e7), a = new Array(1e5).fill(s + 1);", "a.indexOf(s + 2)"),
        ("s = 'x'.repeat(1e7), a = [1, 2, 3, 4, 5].map(x => s + x);", "a.slice().sort()"),
    ] {
        // The first call creates the operands of the second. The interpreter itself checks after
        // ten thousand iterations.
        let source = format!(
            "if (!globalThis.made) {{ made = 1; {before} return; }} \
             for (var turn = 0; turn < 50; turn++) {{ {each} }} return 'went on';"
        );
        let script = Script::new(&source, ScriptLimits::default());
        let none = arguments(&[]);
        script.call(none.as_doc()).unwrap_or_else(|error| panic!("{source}: {error}"));
        let op = OpCtx::detached(Arc::new(SystemClock::new()));
        op.kill(ErrorCode::Interrupted);
        let _entered = enter(Current { op: Some(op) });
        match script.call(none.as_doc()) {
            Ok(_) => went_on.push(each),
            Err(error) => assert_eq!(error.code(), ErrorCode::Interrupted, "{source}"),
        }
    }
    assert!(went_on.is_empty(), "{went_on:?}");
}

#[test]
fn counted_functions_look_like_built_in_ones() {
    for source in [
        "[].slice.name + [].slice.length + [].indexOf.length + ''.trimRight.name === 'slice21trimEnd'",
        "[][Symbol.iterator] === [].values && [].values.name === 'values'",
        "''[Symbol.iterator].name === '[Symbol.iterator]'",
        "var d = Object.getOwnPropertyDescriptor(Array.prototype, 'sort'); \
         return d.writable && d.configurable && !d.enumerable && !('prototype' in d.value)",
        "try { new [].sort(); } catch (e) { return e instanceof TypeError && /not a constructor/.test(e.message); }",
        "try { [].slice.call(null); } catch (e) { return e instanceof TypeError; }",
        "try { ''.trim.call(undefined); } catch (e) { return e instanceof TypeError; }",
        "try { Uint8Array(1); } catch (e) { return e instanceof TypeError; }",
        "class A extends Array {} return new A(1, 2, 3).slice(1) instanceof A",
        "class B extends Uint8Array {} return new B([1, 2]).slice(1) instanceof B && new B(3).constructor === B",
        "var u = new Uint8Array([3, 1, 2]); return u.sort().join() === '1,2,3' && u.constructor === Uint8Array",
        "Object.getPrototypeOf(Int8Array) === Object.getPrototypeOf(Uint8Array) && Int16Array.BYTES_PER_ELEMENT === 2",
        "[1, 2, 1].lastIndexOf(1) === 2 && [1, 2, 1].lastIndexOf(1, undefined) === 0 && [NaN].includes(NaN)",
        "[1, 2, 3].splice(1).length === 2 && [1, 2, 3].splice(1, undefined).length === 0",
        "[3, 20, undefined, 100].sort().join() === '100,20,3,'",
        "'a-b'.replace('-', '$&$&') === 'a--b' && 'abc'.indexOf('c', -5) === 2 && 'a,b'.split(',', 1).length === 1",
        "''.indexOf.call(12321, 3) === 2 && ''.slice.call(true, 1) === 'rue' && [].slice.call('abc', 1).length === 2",
        "'x'.match === ''.match && 'aXbX'.replaceAll('X', (x, at) => at) === 'a1b3'",
        "Object.keys('ab').length === 2 && Object.assign({}, null, {a: 1}, 'b')[0] === 'b'",
        "JSON.stringify({a: [1], b: 2}, ['a'], 1) === '{\\n \"a\": [\\n  1\\n ]\\n}' && JSON.stringify() === undefined",
        "parseInt === Number.parseInt && parseInt('12', 3) === 5 && Math.max.apply(null, [1, 2]) === 2",
        "Array.from({length: 2}, (_, i) => i).join() === '0,1' && Array.from('ab').length === 2",
        "var [a, ...b] = [1, 2, 3]; return a + b.length + [...'xyz'].length === 6 && [...new Map([[1, 2]])].length === 1",
    ] {
        check(source, &[], RawValue::Bool(true));
    }
}

#[test]
fn long_operands_give_the_same_results() {
    // Operands that are too long for one call of a built-in function, compared with results for
    // shorter ones.
    for source in [
        "var s = 'ab'.repeat(3000) + 'c', t = 'x'.repeat(9000) + s + 'y' + s; \
         return t.indexOf(s) === 9000 && t.indexOf(s, 9001) === 15002 && t.lastIndexOf(s) === 15002 && \
         t.lastIndexOf(s, 15001) === 9000 && t.lastIndexOf(s, 8999) === -1 && t.includes(s) && !t.includes(s + s)",
        "var s = 'ab'.repeat(3000), t = 'x' + s + 'y' + s + 'z'; \
         return t.split(s).join() === 'x,y,z' && t.split(s, 2).join() === 'x,y' && t.split(s, 0).length === 0",
        "var s = 'ab'.repeat(3000), t = 'x' + s + 'y' + s + 'z'; \
         return t.replace(s, '-') === 'x-y' + s + 'z' && t.replaceAll(s, '[$$$`]') === 'x[$x]y[$x' + s + 'y]z' && \
         t.replace(s, \"$'\") === 'x' + 'y' + s + 'z' + 'y' + s + 'z' && t.replaceAll(s, (a, at) => at) === 'x1y6002z'",
        "var s = 'a'.repeat(5000), a = ['b', s, 'c', s]; return a.indexOf(s) === 1 && a.indexOf(s, 2) === 3 && \
         a.lastIndexOf(s) === 3 && a.lastIndexOf(s, -2) === 1 && a.lastIndexOf(s, -9) === -1 && \
         a.includes(s, -1) && !a.includes(s + s) && a.indexOf(s, -3) === 1",
        "var p = 'a'.repeat(70000), a = [p + 2, undefined, 5, p + 1, , null]; \
         return a.sort().map(x => typeof x === 'string' ? x.slice(-1) : x).join() === '5,1,2,,,' && a[3] === null && !(5 in a)",
        "var n = new Float64Array(1 << 21); n[0] = NaN; n[1] = 1; n[2] = -0; n[3] = -1; n.sort(); \
         return n[0] === -1 && Object.is(n[1], -0) && Object.is(n[2], 0) && n[n.length - 2] === 1 && isNaN(n[n.length - 1])",
    ] {
        check(source, &[], RawValue::Bool(true));
    }
}
