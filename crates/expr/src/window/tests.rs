//! Results of window functions, one row for each rule. Manual: "$setWindowFields", "Window
//! Operators", and the pages of the functions.

use mayfly_value::extjson::{Style, parse_document, to_string};
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use super::*;

fn run(order: &str, spec: &str, documents: &[&str]) -> Result<String> {
    let pattern = parse_document(order).unwrap();
    let order = match pattern.as_doc().is_empty() {
        true => None,
        false => Some(Order::parse_pattern(pattern.as_doc())?),
    };
    let spec = parse_document(spec).unwrap();
    let function = WindowFunction::parse(spec.as_doc(), order.as_ref(), &Scope::default())?;
    let documents: Vec<DocBuf> =
        documents.iter().map(|text| parse_document(text).unwrap()).collect();
    let mut out = DocBuilder::new();
    out.start_array("r");
    for result in function.run(&documents)? {
        out.push(result.as_ref().map_or(RawValue::Undefined, ValueBuf::as_raw));
    }
    Ok(to_string(out.finish().as_doc(), Style::Canonical))
}

fn check(order: &str, spec: &str, documents: &[&str], expected: &str) {
    let expected = parse_document(&format!("{{r: {expected}}}")).unwrap();
    let expected = to_string(expected.as_doc(), Style::Canonical);
    assert_eq!(run(order, spec, documents).unwrap(), expected, "{spec}");
}

const V: &[&str] = &["{t: 1, v: 4}", "{t: 2, v: 1}", "{t: 4, v: null}", "{t: 4, v: 7}", "{t: 7}"];
const DATES: &[&str] = &[
    "{t: {$date: '2020-05-18T14:10:30Z'}, v: 295.1}",
    "{t: {$date: '2020-05-18T14:11:00Z'}, v: 295.65}",
    "{t: {$date: '2020-05-18T14:11:30Z'}, v: 296.35}",
];

#[test]
fn windows_by_position() {
    let sum = |window: &str| format!("{{$sum: '$v', window: {{documents: {window}}}}}");
    check("{t: 1}", &sum("['unbounded', 'current']"), V, "[4, 5, 5, 12, 12]");
    check("{t: 1}", &sum("['current', 'unbounded']"), V, "[12, 8, 7, 7, 0]");
    check("{t: 1}", &sum("[-1, 1]"), V, "[5, 5, 8, 7, 7]");
    check("{t: 1}", &sum("[1, 2]"), V, "[1, 7, 7, 0, 0]");
    check("{t: 1}", &sum("[-9, -3]"), V, "[0, 0, 0, 4, 5]");
    check("{}", "{$sum: '$v'}", V, "[12, 12, 12, 12, 12]");
    let of = |name: &str| format!("{{{name}: '$v', window: {{documents: [-1, 0]}}}}");
    check("{t: 1}", &of("$avg"), V, "[4.0, 2.5, 1.0, 7.0, 7.0]");
    check("{t: 1}", &of("$min"), V, "[4, 1, 1, 7, 7]");
    check("{t: 1}", &of("$max"), V, "[4, 4, 1, 7, 7]");
    check("{t: 1}", &of("$push"), V, "[[4], [4, 1], [1, null], [null, 7], [7]]");
    check("{t: 1}", &of("$stdDevPop"), V, "[0, 1.5, 0, 0, 0]");
    check("{t: 1}", &of("$stdDevSamp"), &V[..2], "[null, 2.1213203435596424]");
    check("{t: 1}", &of("$first"), V, "[4, 4, 1, null, 7]");
    check("{t: 1}", &of("$last"), V, "[4, 1, null, 7, null]");
    let count = "{$count: {}, window: {documents: [-1, 1]}}";
    check("{t: 1}", count, V, "[2, 3, 3, 3, 2]");
    let top = "{$topN: {n: 2, output: '$v', sortBy: {v: -1}}, window: {documents: [-1, 1]}}";
    check("{t: 1}", top, &V[..3], "[[4, 1], [4, 1], [1, null]]");
    // A removed value does not influence the type of later results.
    let mixed = &["{t: 1, v: 1.5}", "{t: 2, v: 2}", "{t: 3, v: {$numberLong: '3'}}"];
    let expected = "[1.5, {$numberDouble: '3.5'}, {$numberLong: '5'}]";
    check("{t: 1}", &sum("[-1, 0]"), mixed, expected);
    let endless = &["{t: 1, v: {$numberDouble: 'Infinity'}}", "{t: 2, v: 2}", "{t: 3, v: 3}"];
    let expected = "[{$numberDouble: 'Infinity'}, {$numberDouble: 'Infinity'}, 5]";
    check("{t: 1}", &sum("[-1, 0]"), endless, expected);
}

#[test]
fn windows_by_range() {
    let sum = |window: &str| format!("{{$sum: '$v', window: {window}}}");
    check("{t: 1}", &sum("{range: [-2, 0]}"), V, "[4, 5, 8, 8, 0]");
    check("{t: 1}", &sum("{range: ['unbounded', 'current']}"), V, "[4, 5, 5, 12, 12]");
    check("{t: 1}", &sum("{range: ['current', 'unbounded']}"), V, "[12, 8, 7, 7, 0]");
    check("{t: 1}", &sum("{range: ['current', 0]}"), V, "[4, 1, 7, 7, 0]");
    check("{t: 1}", &sum("{range: [0.5, 3]}"), V, "[8, 7, 0, 0, 0]");
    let seconds = sum("{range: [-30, 0], unit: 'second'}");
    check("{t: 1}", &seconds, DATES, "[295.1, 590.75, 592.0]");
    let fails = |window: &str, documents: &[&str], order: &str| {
        run(order, &sum(window), documents).unwrap_err().code().0
    };
    assert_eq!(fails("{range: [-1, 0]}", DATES, "{t: 1}"), 5_429_413);
    assert_eq!(fails("{range: [-1, 0]}", &["{t: 'x'}"], "{t: 1}"), 5_429_414);
    assert_eq!(fails("{range: [-1, 0], unit: 'day'}", V, "{t: 1}"), 5_429_513);
    assert_eq!(fails("{range: [-1, 0]}", V, "{}"), 5_339_902);
    assert_eq!(fails("{range: [-1, 0]}", V, "{t: 1, v: 1}"), 5_339_902);
    assert_eq!(fails("{documents: [-1, 0]}", V, "{}"), 5_339_901);
    assert_eq!(fails("{documents: [1, 0]}", V, "{t: 1}"), 5_339_900);
    assert_eq!(fails("{documents: [0.5, 1]}", V, "{t: 1}"), 9);
    assert_eq!(fails("{documents: [0]}", V, "{t: 1}"), 9);
    assert_eq!(fails("{documents: ['x', 1]}", V, "{t: 1}"), 9);
    assert_eq!(fails("{documents: [0, 1], range: [0, 1]}", V, "{t: 1}"), 9);
}

#[test]
fn ranks() {
    check("{t: 1}", "{$rank: {}}", V, "[1, 2, 3, 3, 5]");
    check("{t: 1}", "{$denseRank: {}}", V, "[1, 2, 3, 3, 4]");
    check("{t: 1}", "{$documentNumber: {}}", V, "[1, 2, 3, 4, 5]");
    let fails = |order: &str, spec: &str| run(order, spec, V).unwrap_err().code().0;
    assert_eq!(fails("{t: 1}", "{$rank: 1}"), 5_371_603);
    assert_eq!(fails("{t: 1}", "{$rank: {}, window: {documents: [0, 1]}}"), 5_371_601);
    assert_eq!(fails("{}", "{$documentNumber: {}}"), 5_371_602);
    assert_eq!(fails("{t: 1, v: 1}", "{$denseRank: {}}"), 5_371_602);
}

#[test]
fn neighbours() {
    let next = "{$shift: {output: '$v', by: 1, default: 'none'}}";
    check("{t: 1}", next, V, "[1, null, 7, null, 'none']");
    let before = "{$shift: {output: '$v', by: -2}}";
    check("{t: 1}", before, V, "[null, null, 4, 1, null]");
    check("{t: 1}", "{$locf: '$v'}", V, "[4, 1, 1, 7, 7]");
    let gaps = &["{t: 0}", "{t: 1, v: 10}", "{t: 2}", "{t: 4, v: null}", "{t: 5, v: 30}", "{t: 9}"];
    check("{t: 1}", "{$linearFill: '$v'}", gaps, "[null, 10, 15.0, 25.0, 30, null]");
    let fails = |order: &str, spec: &str| run(order, spec, V).unwrap_err().code().0;
    assert_eq!(fails("{t: 1}", "{$linearFill: '$v'}"), 6_050_106);
    assert_eq!(fails("{}", "{$linearFill: '$v'}"), 605_001);
    assert_eq!(fails("{}", "{$shift: {output: '$v', by: 1}}"), 9);
    assert_eq!(fails("{t: 1}", "{$shift: {output: '$v', by: 1.5}}"), 9);
    assert_eq!(fails("{t: 1}", "{$shift: {output: '$v', by: 1, default: '$v'}}"), 9);
    assert_eq!(fails("{t: 1}", "{$minMaxScaler: {input: '$v'}}"), 10_487_000);
    assert_eq!(fails("{t: 1}", "{$nothing: 1}"), 9);
}

#[test]
fn changes_areas_and_means() {
    let km = &[
        "{t: {$date: '2020-05-18T14:10:30Z'}, m: 10}",
        "{t: {$date: '2020-05-18T15:10:30Z'}, m: 60}",
        "{t: {$date: '2020-05-18T15:40:30Z'}, m: 90}",
    ];
    let speed = "{$derivative: {input: '$m', unit: 'hour'}, window: {documents: [-1, 0]}}";
    check("{t: 1}", speed, km, "[null, 50.0, 60.0]");
    let plain = "{$derivative: {input: '$v'}, window: {documents: [0, 1]}}";
    check("{t: 1}", plain, &V[..2], "[-3.0, null]");
    let area = "{$integral: {input: '$m', unit: 'hour'}}";
    check("{t: 1}", area, km, "[72.5, 72.5, 72.5]");
    let so_far = "{$integral: {input: '$v'}, window: {documents: ['unbounded', 'current']}}";
    check("{t: 1}", so_far, &V[..2], "[0, 2.5]");
    assert_eq!(run("{t: 1}", so_far, V).unwrap_err().code().0, 5_423_900);
    let prices = &["{t: 1, v: 13.0}", "{t: 2, v: 15.4}", "{t: 3, v: 'x'}", "{t: 4, v: 12.0}"];
    check(
        "{t: 1}",
        "{$expMovingAvg: {input: '$v', N: 2}}",
        prices,
        "[13.0, 14.6, 14.6, 12.866666666666667]",
    );
    check("{t: 1}", "{$expMovingAvg: {input: '$v', alpha: 0.5}}", &prices[..2], "[13.0, 14.2]");
    let pairs = &["{t: 1, x: 0, y: 0}", "{t: 2, x: 2, y: 4}", "{t: 3, x: 'n', y: 1}"];
    let grows = |name: &str| {
        format!("{{{name}: ['$x', '$y'], window: {{documents: ['unbounded', 'current']}}}}")
    };
    check("{t: 1}", &grows("$covariancePop"), pairs, "[0.0, 2.0, 2.0]");
    check("{t: 1}", &grows("$covarianceSamp"), pairs, "[null, 4.0, 4.0]");
    let fails =
        |spec: &str, documents: &[&str]| run("{t: 1}", spec, documents).unwrap_err().code().0;
    assert_eq!(fails("{$derivative: {input: '$v'}}", V), 9);
    assert_eq!(fails(plain, DATES), 5_624_901);
    assert_eq!(fails(speed, V), 5_624_900);
    assert_eq!(fails(area, V), 5_423_900);
    assert_eq!(fails(&area.replace("$m", "$v"), V), 5_423_901);
    assert_eq!(fails("{$derivative: {input: '$v', unit: 'month'}, window: {}}", V), 5_490_710);
    assert_eq!(fails("{$expMovingAvg: {input: '$v', N: 2, alpha: 0.5}}", V), 9);
    assert_eq!(fails("{$expMovingAvg: {input: '$v', alpha: 1}}", V), 9);
    check("{t: 1}", "{$covariancePop: ['$x']}", pairs, "[null, null, null]");
}

/// Updated windows give the same results as recomputed ones.
#[test]
fn updating_equals_recomputing() {
    let documents: Vec<String> =
        (0..60).map(|at| format!("{{t: {at}, v: {}}}", (at * 37) % 23 - 9)).collect();
    let texts: Vec<&str> = documents.iter().map(String::as_str).collect();
    for name in ["$sum", "$avg", "$min", "$max", "$stdDevPop"] {
        for (lower, upper) in [(-3, 2), (-7, -2), (1, 5), (0, 0), (-60, 1)] {
            let spec = format!("{{{name}: '$v', window: {{documents: [{lower}, {upper}]}}}}");
            let moving = parse_document(&run("{t: 1}", &spec, &texts).unwrap()).unwrap();
            let RawValue::Array(moving) = moving.as_doc().get("r").unwrap() else { panic!() };
            for (at, result) in moving.iter().enumerate() {
                let reach = |by: i64| usize::try_from(at as i64 + by).unwrap_or(0).min(60);
                let part = &texts[reach(lower).min(reach(upper + 1))..reach(upper + 1)];
                let whole = format!("{{{name}: '$v'}}");
                let anew = match part {
                    [] => continue,
                    part => parse_document(&run("{t: 1}", &whole, part).unwrap()).unwrap(),
                };
                let first = anew.as_doc().get("r").unwrap().as_array().unwrap();
                let first = first.iter().next().unwrap().value();
                let number = |value| mayfly_value::Number::from_value(value).unwrap().to_f64();
                let close = (number(first) - number(result.value())).abs() < 1e-9;
                assert!(close, "{spec} at {at}: {:?} is not {first:?}", result.value());
            }
        }
    }
}
