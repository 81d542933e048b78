//! Scripts: the value of statements, pairs that are emitted, digests and waits.

use super::*;

#[test]
fn the_value_of_statements_is_that_of_the_last() {
    check("var a = 2; a == 2", &[], RawValue::Bool(true));
    check("x = 5; if (x > 4) { 'large' } else { 'small' }", &[], RawValue::String("large"));
    check("let a = 1\na + 1\n// a remark", &[], RawValue::Double(2.0));
    let script = Script::new("x = this.r; x == 5", ScriptLimits::default());
    let document = |number: i32| {
        let mut out = DocBuilder::new();
        out.append("r", number);
        out.finish()
    };
    assert!(script.holds(document(5).as_doc()).expect("it is run"));
    assert!(!script.holds(document(4).as_doc()).expect("it is run"));
    // A body with a `return` is a function.
    check("var a = 2; return a; a + 1", &[], RawValue::Double(2.0));
}

#[test]
fn functions_emit_pairs() {
    let source = "function () { for (var i = 0; i < this.n; i++) emit(i, {v: base + i}); }";
    let globals = {
        let mut out = DocBuilder::new();
        out.append("base", 10).append("twice", RawValue::Code("function (n) { return 2 * n; }"));
        out.finish()
    };
    let script =
        Script::of(vec![source.to_owned(), "twice(base)".to_owned()], ScriptLimits::default());
    let script = script.with_globals(globals);
    let mut document = DocBuilder::new();
    document.append("n", 2);
    let mut pairs = Vec::new();
    let mut visit = |key: ValueBuf, value: ValueBuf| {
        let value = value.as_raw().as_document().and_then(|value| value.get("v"));
        pairs.push((key, value.map(RawValue::to_owned)));
        Ok(())
    };
    script.emitted(0, document.finish().as_doc(), &mut visit).expect("it emits");
    let double = |number| RawValue::Double(number).to_owned();
    let expected = [(double(0.0), Some(double(10.0))), (double(1.0), Some(double(11.0)))];
    assert_eq!(pairs, expected);
    let result = script.call_at(1, DocBuilder::new_array().finish().as_doc()).expect("it is run");
    assert_eq!(result, double(20.0));
    let script = Script::new("emit(1)", ScriptLimits::default());
    let error = script.emitted(0, DocBuf::empty().as_doc(), &mut |_, _| Ok(())).unwrap_err();
    assert_eq!(error.code(), ErrorCode::JSInterpreterFailure);
    // Other calls do not have it.
    check_fails("emit(1, 2)", "139: ReferenceError");
}

#[test]
fn digests_are_of_the_text_in_bytes() {
    check("hex_md5('')", &[], RawValue::String("d41d8cd98f00b204e9800998ecf8427e"));
    check("hex_md5('Grüße')", &[], RawValue::String("49c5f675b49037b6044b803ac9d1a6d7"));
}

#[test]
fn a_wait_ends_with_its_operation() {
    check("sleep(1); sleep(); sleep(-5); sleep('x'); true", &[], RawValue::Bool(true));
    let limits = ScriptLimits { timeout_ms: 20, ..ScriptLimits::default() };
    check_fails_within(limits, "try { sleep(1e9) } catch (e) {} return 1", "11601: ");
    let op = OpCtx::detached(Arc::new(SystemClock::new()));
    op.set_max_time_ms(20);
    let _entered = enter(Current { op: Some(op) });
    check_fails("sleep(1e9)", "50: ");
}
