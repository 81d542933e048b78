//! No operator panics on any input: each is evaluated over all combinations of extreme values, in
//! each of its forms.

use mayfly_value::extjson::parse_document;
use mayfly_value::{DocBuilder, RawDoc, RawValue, ValueBuf};

use crate::{Expression, Frame, Scope, op};

/// The extreme values of the types, and a typical one of each.
const VALUES: &str = "[
    null, {$undefined: true}, true, 0, -1, 7, 2147483647, -2147483648,
    {$numberLong: '9223372036854775807'}, {$numberLong: '-9223372036854775808'},
    0.5, -0.0, {$numberDouble: '1e308'}, {$numberDouble: 'NaN'}, {$numberDouble: 'Infinity'}, {$numberDouble: '-Infinity'},
    {$numberDecimal: '0'}, {$numberDecimal: '-9.999999999999999999999999999999999E+6144'},
    {$numberDecimal: '1E-6176'}, {$numberDecimal: 'NaN'}, {$numberDecimal: '-Infinity'}, {$numberDecimal: '2.50'},
    '', 'é寿x', '2017-02-08T12:10:40.787Z', '%Y-%m-%d', 'month', 'America/New_York', '(a|b)*',
    [], [1, 'x', null], [['k', 1]], {}, {a: 1}, {k: 'x', v: 2},
    {$date: {$numberLong: '9223372036854775807'}}, {$date: {$numberLong: '-9223372036854775808'}},
    {$date: {$numberLong: '0'}}, {$timestamp: {t: 4294967295, i: 4294967295}},
    {$oid: '5ab9c3da31c2ab715d421285'}, {$binary: {base64: 'AQA=', subType: '00'}},
    {$regularExpression: {pattern: 'a+', options: 'i'}}, {$minKey: 1}, {$maxKey: 1}
]";

/// The named arguments of operators.
const PARTS: &[&[&str]] = &[
    &["date", "timezone"],
    &["date", "unit", "binSize", "timezone", "startOfWeek"],
    &["date", "format", "timezone", "onNull"],
    &["date", "timezone", "iso8601"],
    &["dateString", "format", "timezone", "onError"],
    &["startDate", "unit", "amount", "timezone"],
    &["startDate", "endDate", "unit", "timezone", "startOfWeek"],
    &["year", "month", "day", "hour", "timezone"],
    &["isoWeekYear", "isoWeek", "isoDayOfWeek", "millisecond"],
    &["input", "to", "format", "base", "byteOrder"],
    &["input", "chars"],
    &["input", "find", "replacement"],
    &["input", "regex", "options"],
    &["input", "sortBy"],
    &["n", "input"],
    &["field", "input", "value"],
    &["input", "in"],
    &["input", "cond", "limit"],
    &["input", "initialValue", "in"],
    &["inputs", "useLongestLength", "defaults"],
    &["branches", "default"],
    &["input", "p", "method"],
];

fn values() -> Vec<ValueBuf> {
    let list = parse_document(&format!("{{v: {VALUES}}}")).unwrap();
    let list = list.as_doc().get("v").unwrap().as_array().unwrap();
    list.iter().map(|item| item.value().to_owned()).collect()
}

/// Evaluates an operator over paths into a document of values, and over the values as constants.
fn try_all(name: &str, operand: RawValue<'_>, document: RawDoc<'_>) {
    let mut spec = DocBuilder::new();
    spec.append(name, operand);
    let spec = spec.finish();
    let scope = Scope::at(crate::OperationTime::at(0));
    if let Ok(parsed) = Expression::parse_in(RawValue::Document(spec.as_doc()), &scope) {
        let _ = parsed.dependencies();
        let _ = parsed.evaluate(Frame::new(document));
    }
}

#[test]
fn lists_of_arguments() {
    let values = values();
    let document = DocBuilder::new().finish();
    for row in op::rows() {
        for first in &values {
            try_all(row.name, first.as_raw(), document.as_doc());
            for second in &values {
                let mut pair = DocBuilder::new_array();
                pair.push(first).push(second);
                try_all(row.name, RawValue::Array(pair.finish().as_doc()), document.as_doc());
            }
        }
        // Three and four arguments: a selection of the combinations.
        for at in 0..values.len() * 2 {
            let mut four = DocBuilder::new_array();
            for step in [1, 5, 11, 17].iter().take(3 + at % 2) {
                four.push(&values[(at * step + step) % values.len()]);
            }
            try_all(row.name, RawValue::Array(four.finish().as_doc()), document.as_doc());
        }
    }
}

#[test]
fn named_parts() {
    let values = values();
    let mut fields = DocBuilder::new();
    for (at, value) in values.iter().enumerate() {
        fields.append(&format!("f{at}"), value);
    }
    let document = fields.finish();
    for row in op::rows() {
        for names in PARTS {
            for at in 0..values.len() * 2 {
                let mut operand = DocBuilder::new();
                for (nth, name) in names.iter().enumerate() {
                    let value = (at * (2 * nth + 1) + nth * at / values.len()) % values.len();
                    operand.append(name, format!("$f{value}").as_str());
                }
                let operand = operand.finish();
                try_all(row.name, RawValue::Document(operand.as_doc()), document.as_doc());
            }
        }
    }
}

/// Dates at the limits of their range, shifted and truncated in every unit.
#[test]
fn dates_at_the_ends() {
    let moments =
        [i64::MIN, i64::MIN + 1, -62_135_596_800_000, -1, 0, 253_402_300_800_000, i64::MAX];
    let amounts = [i64::MIN, -1, 1, 400, i64::MAX];
    let units =
        ["millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year"];
    for zone in ["UTC", "+14:00", "Europe/Paris"] {
        for unit in units {
            for moment in moments {
                let date = format!("{{$date: {{$numberLong: '{moment}'}}}}");
                let run = |text: String| {
                    let spec = parse_document(&text).unwrap();
                    let _ = Expression::parse(RawValue::Document(spec.as_doc()));
                };
                for amount in amounts {
                    let amount = format!("{{$numberLong: '{amount}'}}");
                    for name in ["$dateAdd", "$dateSubtract"] {
                        run(format!(
                            "{{{name}: {{startDate: {date}, unit: '{unit}', amount: {amount}, timezone: '{zone}'}}}}"
                        ));
                    }
                    run(format!(
                        "{{$dateTrunc: {{date: {date}, unit: '{unit}', binSize: {amount}, timezone: '{zone}'}}}}"
                    ));
                }
                for other in moments {
                    let other = format!("{{$date: {{$numberLong: '{other}'}}}}");
                    run(format!(
                        "{{$dateDiff: {{startDate: {date}, endDate: {other}, unit: '{unit}', timezone: '{zone}'}}}}"
                    ));
                }
                run(format!("{{$dateToParts: {{date: {date}, timezone: '{zone}'}}}}"));
                run(format!("{{$isoWeek: {{date: {date}, timezone: '{zone}'}}}}"));
            }
        }
    }
}

/// Expressions of the greatest depth that the parser accepts fit the stack of a runtime thread.
#[test]
fn deep_expressions_fit_the_stack() {
    let forms = [
        ("{$not: [", "]}", "'$a'"),
        ("{$map: {input: [1], in: ", "}}", "'$$this'"),
        ("{$reduce: {input: [1], initialValue: 0, in: ", "}}", "'$$value'"),
        ("{$let: {vars: {x: '$a'}, in: ", "}}", "'$$x'"),
        ("{$cond: [", ", 1, '$b']}", "'$a'"),
        ("{$ifNull: [{$concat: [{$toString: ", "}]}, '$a']}", "'$a'"),
        ("{$regexFind: {regex: 'a', input: ", "}}", "'$a'"),
        ("{$sum: [1, ", "]}", "'$a'"),
        ("{a: ", "}", "'$a'"),
    ];
    let run = move || {
        for (open, close, inside) in forms {
            for levels in [30, 60, 90, 120] {
                let (open, close) = (open.repeat(levels), close.repeat(levels));
                let Ok(spec) = parse_document(&format!("{{e: {open}{inside}{close}}}")) else {
                    continue;
                };
                let spec = spec.as_doc().get("e").unwrap();
                if let Ok(parsed) = Expression::parse(spec) {
                    let document = parse_document("{a: 'a'}").unwrap();
                    let _ = parsed.dependencies();
                    let _ = parsed.evaluate(Frame::new(document.as_doc()));
                }
            }
        }
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}

/// A document for each value: `t` is its index, `v` the value, `w` another value.
fn rows_of_values() -> Vec<mayfly_value::DocBuf> {
    let values = values();
    let row = |at: usize| {
        let mut row = DocBuilder::new();
        row.append("t", i32::try_from(at).unwrap());
        row.append("v", &values[at]);
        row.append("w", &values[(at * 7 + 3) % values.len()]);
        row.finish()
    };
    (0..values.len()).map(row).collect()
}

#[test]
fn accumulators_take_any_value() {
    let rows = rows_of_values();
    let operands = [
        "'$v'",
        "{}",
        "{n: 3, input: '$v'}",
        "{output: '$v', sortBy: {w: -1, v: 1}}",
        "{n: 3, output: '$v', sortBy: {w: 1}}",
        "{input: '$v', method: 'approximate'}",
        "{input: '$v', p: [0, 0.5, 1], method: 'approximate'}",
    ];
    for row in crate::accum::ROWS {
        for operand in operands {
            let spec = parse_document(&format!("{{f: {{{}: {operand}}}}}", row.name)).unwrap();
            let field = spec.as_doc().get_element("f").unwrap();
            let Ok(parsed) = crate::accum::Accumulator::parse(field, &Scope::default()) else {
                continue;
            };
            let mut state = parsed.start(None).unwrap();
            for document in &rows {
                let _ = parsed.add(&mut state, document.as_doc());
                let _ = parsed.finish(&state);
            }
            let mut merged = parsed.start(None).unwrap();
            let _ = parsed.merge(&mut merged, state.save().as_raw());
            // States that no accumulator saved must be harmless too.
            for document in &rows {
                let _ = parsed.merge(&mut merged, RawValue::Document(document.as_doc()));
            }
        }
    }
}

#[test]
fn window_functions_take_any_value() {
    let rows = rows_of_values();
    let functions = [
        "$sum: '$v'",
        "$avg: '$v'",
        "$min: '$v'",
        "$max: '$v'",
        "$stdDevSamp: '$v'",
        "$push: '$v'",
        "$rank: {}",
        "$denseRank: {}",
        "$shift: {output: '$v', by: -2147483648}",
        "$shift: {output: '$v', by: 2147483647}",
        "$locf: '$v'",
        "$linearFill: '$v'",
        "$derivative: {input: '$v'}",
        "$derivative: {input: '$v', unit: 'week'}",
        "$integral: {input: '$v'}",
        "$integral: {input: '$v', unit: 'millisecond'}",
        "$expMovingAvg: {input: '$v', N: 9223372036854775807}",
        "$covarianceSamp: ['$v', '$w']",
    ];
    let windows = [
        "",
        ", window: {documents: [-2147483648, 2147483647]}",
        ", window: {documents: [-1, 1]}",
        ", window: {documents: [2147483646, 2147483647]}",
        ", window: {range: [{$numberDouble: '-1e308'}, {$numberDouble: '1e308'}]}",
        ", window: {range: [{$numberLong: '-9223372036854775808'}, 'current']}",
        ", window: {range: [{$numberLong: '-9223372036854775808'}, 1], unit: 'year'}",
    ];
    for function in functions {
        for window in windows {
            let spec = parse_document(&format!("{{{function}{window}}}")).unwrap();
            for order in ["{t: 1}", "{v: 1}", "{w: 1}"] {
                let pattern = parse_document(order).unwrap();
                let order = crate::Order::parse_pattern(pattern.as_doc()).unwrap();
                let parsed = crate::window::WindowFunction::parse(
                    spec.as_doc(),
                    Some(&order),
                    &Scope::default(),
                );
                if let Ok(parsed) = parsed {
                    let mut rows = rows.clone();
                    rows.sort_by_cached_key(|row| order.encoded_key(row.as_doc(), None));
                    let _ = parsed.run(&rows);
                    for part in rows.chunks(3) {
                        let _ = parsed.run(part);
                    }
                }
            }
        }
    }
}

/// A single state must not exceed its memory limit, regardless of spilling.
#[test]
fn lists_end_with_their_memory() {
    let spec = parse_document("{f: {$push: '$v'}}").unwrap();
    let field = spec.as_doc().get_element("f").unwrap();
    let parsed = crate::accum::Accumulator::parse(field, &Scope::default()).unwrap();
    let mut state = parsed.start(None).unwrap();
    let mut document = DocBuilder::new();
    document.append("v", "x".repeat(1 << 20).as_str());
    let document = document.finish();
    let failed = (0..101).find_map(|_| parsed.add(&mut state, document.as_doc()).err());
    assert_eq!(failed.unwrap().code().0, 146);
}

/// A single expression over one document can take hours: it ends with its operation.
#[test]
fn long_expressions_end_with_their_operation() {
    use mayfly_base::ManualClock;
    use mayfly_work::OpCtx;
    use mayfly_work::current::{Current, enter};
    let millions = |inner: &str| {
        format!(
            "{{$map: {{input: {{$range: [0, 30000]}}, as: 'i', in: {{$map: {{input: {{$range: [0, '$n']}}, \
                as: 'j', in: {inner}}}}}}}}}"
        )
    };
    let reduce =
        "{$reduce: {input: {$range: [0, '$n']}, initialValue: 0, in: {$add: ['$$value', 1]}}}";
    let filter = "{$filter: {input: {$range: [0, '$n']}, cond: {$in: ['$$i', '$l']}}}";
    let document = parse_document("{n: 30000, l: [1, 2, 3]}").unwrap();
    for inner in
        [reduce, filter, "{$zip: {inputs: ['$l', {$range: [0, '$n']}], useLongestLength: true}}"]
    {
        let spec = parse_document(&format!("{{e: {}}}", millions(inner))).unwrap();
        let parsed = Expression::parse(spec.as_doc().get("e").unwrap()).unwrap();
        let op = OpCtx::detached(std::sync::Arc::new(ManualClock::at_ms(0)));
        op.set_max_time_ms(0);
        let _entered = enter(Current { op: Some(op) });
        let failed = parsed.evaluate(Frame::new(document.as_doc())).unwrap_err();
        assert_eq!(failed.code().0, 50, "{inner}");
    }
}

/// A string of 2^24 bytes is too large as a literal, as an argument, and as a result; bytes count,
/// not characters. Measured behaviour of the reference.
#[test]
fn large_strings_are_refused() {
    const LIMIT: usize = 1 << 24;
    let code = |expression: &str, field: &str, literal: Option<&str>| -> i32 {
        let parsed = parse_document(&format!("{{e: {expression}}}")).unwrap();
        let mut spec = DocBuilder::new();
        match (literal, parsed.as_doc().get("e").unwrap()) {
            // The literal takes the place of the operand.
            (Some(text), RawValue::String(operator)) => {
                spec.start_document("e").append(operator, text).end();
            }
            (_, other) => drop(spec.append("e", other)),
        }
        let spec = spec.finish();
        let mut root = DocBuilder::new();
        root.append("f", field);
        let root = root.finish();
        let parsed = Expression::parse(spec.as_doc().get("e").unwrap());
        let result = parsed.and_then(|it| it.evaluate(Frame::new(root.as_doc())).map(|_| ()));
        result.map_or_else(|error| error.code().0, |()| 0)
    };
    let (below, at) = ("y".repeat(LIMIT - 1), "y".repeat(LIMIT));
    for operator in ["'$literal'", "'$strLenBytes'", "'$strLenCP'", "'$toString'", "'$toBool'"] {
        assert_eq!(code(operator, "", Some(&below)), 0, "{operator}");
        assert_eq!(code(operator, "", Some(&at)), 16493, "{operator}");
    }
    assert_eq!(code("'$strLenCP'", "", Some(&"ü".repeat(LIMIT / 2))), 16493);
    let half = "x".repeat(LIMIT / 2);
    for (expression, expected) in [
        ("{$concat: ['$f', '$f']}", 16493),
        ("{$concat: ['$f', {$substrBytes: ['$f', 1, -1]}]}", 0),
        ("{$replaceAll: {input: '$f', find: 'x', replacement: 'xx'}}", 16493),
        ("{$replaceAll: {input: '$f', find: 'x', replacement: ''}}", 0),
        ("{$replaceOne: {input: '$f', find: 'x', replacement: {$concat: ['$f', 'x']}}}", 16493),
        (
            "{$reduce: {input: ['$f', '$f'], initialValue: '', in: {$concat: ['$$value', '$$this']}}}",
            16493,
        ),
    ] {
        assert_eq!(code(expression, &half, None), expected, "{expression}");
    }
    // Binary data whose text would be too large is a failed conversion.
    let as_text = |format: &str| {
        format!(
            "{{$convert: {{input: {{$convert: {{input: '$f', to: 'binData', format: 'utf8'}}}}, to: 'string', format: '{format}'}}}}"
        )
    };
    assert_eq!(code(&as_text("hex"), &half, None), 241);
    assert_eq!(code(&as_text("base64"), &half, None), 0);
    assert_eq!(code(&as_text("base64"), &below[..LIMIT / 4 * 3], None), 241);
    assert_eq!(code(&as_text("utf8"), &half, None), 0);
}
