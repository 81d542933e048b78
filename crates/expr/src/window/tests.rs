//! Results of window functions, one row for each rule. Manual: "$setWindowFields", "Window
//! Operators", and the pages of the functions.

use mayfly_value::extjson::{Style, parse_document, to_string};
use mayfly_value::{DocBuf, DocBuilder, RawValue};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

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

/// Functions, with the fields that they read: `v` may be any number, null or missing, `c` too, but
/// no large one, `w` any scalar, `n` a small number, `a` an array, `o` a document.
const FUNCTIONS: &[&str] = &[
    "$sum: '$v'",
    "$avg: '$v'",
    "$count: {}",
    "$stdDevPop: '$v'",
    "$stdDevSamp: '$v'",
    "$min: '$w'",
    "$max: '$w'",
    "$covariancePop: ['$c', '$n']",
    "$covarianceSamp: ['$n', '$c']",
    "$integral: {input: '$n'}",
    "$derivative: {input: '$n'}",
    "$minMaxScaler: '$n'",
    "$minN: {n: 3, input: '$w'}",
    "$maxN: {n: 2, input: '$w'}",
    "$top: {sortBy: {w: -1}, output: '$i'}",
    "$topN: {n: 4, sortBy: {k: 1}, output: '$i'}",
    "$bottom: {sortBy: {k: 1}, output: '$i'}",
    "$bottomN: {n: 2, sortBy: {k: 1}, output: '$i'}",
    "$bottomN: {n: 5, sortBy: {k: 1, w: 1}, output: ['$i', '$w']}",
    "$bottomN: {n: 9, sortBy: {k: -1}, output: '$i'}",
    "$median: {input: '$v', method: 'approximate'}",
    "$percentile: {input: '$v', p: [0.9, 0, 0.1, 1, 0.5], method: 'approximate'}",
    "$addToSet: '$w'",
    "$setUnion: '$a'",
    "$mergeObjects: '$o'",
    "$push: '$w'",
    "$concatArrays: '$a'",
    "$first: '$w'",
    "$firstN: {n: 3, input: '$w'}",
    "$last: '$w'",
    "$lastN: {n: 3, input: '$w'}",
];

fn number(random: &mut SmallRng, is_large: bool) -> String {
    let quarters = random.random_range(-20..20);
    match random.random_range(0..if is_large { 10 } else { 8 }) {
        0..4 => quarters.to_string(),
        4 => format!("{{$numberLong: '{quarters}'}}"),
        5 | 6 => format!("{{$numberDouble: '{}'}}", f64::from(quarters) / 4.0),
        7 => format!("{{$numberDecimal: '{}'}}", f64::from(quarters) / 4.0),
        8 => "{$numberDouble: '1e17'}".to_owned(),
        _ => "{$numberLong: '4000000000'}".to_owned(),
    }
}

/// A document in the order of `t`, with some of the special values.
fn random_document(random: &mut SmallRng, at: usize, t: f64) -> String {
    let special = ["NaN", "Infinity", "-Infinity"][random.random_range(0..3)];
    let mut any = |name: &str, is_large| match random.random_range(0..12) {
        0 => String::new(),
        1 => format!(", {name}: null"),
        2 => format!(", {name}: {{$numberDouble: '{special}'}}"),
        3 => format!(", {name}: {{$numberDecimal: '{special}'}}"),
        _ => format!(", {name}: {}", number(random, is_large)),
    };
    let (v, c) = (any("v", true), any("c", false));
    let w = match random.random_range(0..8) {
        0 => String::new(),
        1 => ", w: null".to_owned(),
        2 => format!(", w: 't{}'", random.random_range(0..4)),
        3 => ", w: [1]".to_owned(),
        _ => format!(", w: {}", number(random, true)),
    };
    let items: Vec<String> = (0..random.random_range(0..4)).map(|_| number(random, true)).collect();
    let fields: Vec<String> =
        "pqrpq"[random.random_range(0..5)..].chars().map(|f| format!("{f}: {at}")).collect();
    let (n, k) = (number(random, false), random.random_range(0..3));
    let (a, o) = (items.join(", "), fields.join(", "));
    format!("{{t: {t:?}, i: {at}, n: {n}, k: {k}, a: [{a}], o: {{{o}}}{v}{c}{w}}}")
}

/// A window, and its documents by definition: their range, given the sort values and a position.
type Reach = Box<dyn Fn(&[f64], usize) -> std::ops::Range<usize>>;

fn random_window(random: &mut SmallRng) -> (String, Reach) {
    let (low, width) = (random.random_range(-9..6), random.random_range(0..12));
    let (kind, scale) = [("documents", 1.0), ("range", 0.5)][random.random_range(0..2)];
    let (low, high) = (f64::from(low) * scale, f64::from(low + width) * scale);
    let name = |at: f64, other: &str| match other {
        "" if kind == "documents" => (at as i64).to_string(),
        "" => format!("{{$numberDouble: '{at}'}}"),
        other => format!("'{other}'"),
    };
    let (lower, upper) = match random.random_range(0..8) {
        0 => ("unbounded", ""),
        1 => ("", "unbounded"),
        2 if high >= 0.0 => ("current", ""),
        3 if low <= 0.0 => ("", "current"),
        4 => ("unbounded", "current"),
        _ => ("", ""),
    };
    let high = if lower == "current" { high.abs() } else { high };
    let text = format!("{{{kind}: [{}, {}]}}", name(low, lower), name(high, upper));
    let reach = move |places: &[f64], here: usize| {
        let count = places.len();
        let at = |end: usize| end.min(count);
        let by = |by: f64| usize::try_from(here as i64 + by as i64).unwrap_or(0);
        let from = match (lower, kind) {
            ("unbounded", _) => 0,
            ("current", _) => here,
            (_, "documents") => by(low),
            _ => places.iter().filter(|place| **place < places[here] + low).count(),
        };
        let to = match (upper, kind) {
            ("unbounded", _) => count,
            ("current", _) => here + 1,
            (_, "documents") => by(high + 1.0),
            _ => places.iter().filter(|place| **place <= places[here] + high).count(),
        };
        at(from).min(at(to))..at(to)
    };
    (text, Box::new(reach))
}

/// Results over a partition that is read as a stream.
fn streamed(function: &WindowFunction, documents: &[DocBuf]) -> Vec<Option<ValueBuf>> {
    struct Documents(std::vec::IntoIter<DocBuf>);
    impl DocumentReader for Documents {
        fn next(&mut self) -> Result<Option<DocBuf>> {
            Ok(self.0.next())
        }
    }
    struct Enough;
    impl StreamMemory for Enough {
        fn holds(&mut self, _: usize) -> bool {
            true
        }
        fn failure(&self) -> Error {
            Error::internal("enough")
        }
    }
    let mut open = || {
        let documents: Vec<DocBuf> = documents.to_vec();
        Ok(Box::new(Documents(documents.into_iter())) as Box<dyn DocumentReader>)
    };
    let mut stream = WindowStream::start(function, &mut open).unwrap();
    documents.iter().map(|_| stream.next(function, &mut Enough).unwrap()).collect()
}

/// Whether a result equals that of a window of its own, except for rounding where a function adds
/// doubles in another order.
fn same(name: &str, moved: &ValueBuf, anew: &ValueBuf) -> bool {
    let (moved, anew) = (moved.as_raw(), anew.as_raw());
    let sums = ["$sum", "$avg", "$std", "$cov", "$int"].iter().any(|sum| name.starts_with(sum));
    if name.starts_with("$stdDevPop") && moved == RawValue::Int32(0) {
        return Number::from_value(anew).is_some_and(|number| number.to_f64() == 0.0);
    }
    match (Number::from_value(moved), Number::from_value(anew)) {
        (Some(left), Some(right)) if sums && moved.type_byte() == anew.type_byte() => {
            let (left, right) = (left.to_f64(), right.to_f64());
            left.to_bits() == right.to_bits()
                || (left.is_nan() && right.is_nan())
                || (left - right).abs() <= 1e-9 * left.abs().max(right.abs()).max(1.0)
        }
        _ => moved == anew,
    }
}

/// A window that moves gives the result of its documents alone, in memory and as a stream.
#[test]
fn moving_equals_recomputing() {
    let mut random = SmallRng::seed_from_u64(5);
    let pattern = parse_document("{t: 1}").unwrap();
    let order = Order::parse_pattern(pattern.as_doc()).unwrap();
    let parsed = |text: &str| {
        let spec = parse_document(text).unwrap();
        WindowFunction::parse(spec.as_doc(), Some(&order), &Scope::default())
    };
    for round in 0..40 {
        let (mut t, mut places, mut documents) = (0.0, Vec::new(), Vec::new());
        for at in 0..random.random_range(1..90) {
            t += f64::from(random.random_range(0..3_u8)) * 0.5;
            places.push(t);
            let text = random_document(&mut random, at, t);
            documents.push(parse_document(&text).unwrap_or_else(|_| panic!("{text}")));
        }
        for name in FUNCTIONS {
            let (window, reach) = random_window(&mut random);
            // A scaled number is one of its window.
            let Ok(function) = parsed(&format!("{{{name}, window: {window}}}")) else {
                assert!(name.starts_with("$minMaxScaler"), "{name} {window}");
                continue;
            };
            let whole = "window: {documents: ['unbounded', 'unbounded']}";
            let whole = parsed(&format!("{{{name}, {whole}}}")).unwrap();
            let empty = "window: {documents: ['unbounded', -1]}";
            let results = function.run(&documents).unwrap();
            assert_eq!(streamed(&function, &documents), results, "{name} {window}");
            for (here, moved) in results.iter().enumerate() {
                let reach = reach(&places, here);
                let at = here.saturating_sub(reach.start).min(reach.len().saturating_sub(1));
                let anew = match reach.is_empty() {
                    true => parsed(&format!("{{{name}, {empty}}}")).unwrap().run(&documents[..1]),
                    false => whole.run(&documents[reach.clone()]),
                };
                let anew = anew.unwrap().swap_remove(at);
                let equal = same(name, moved.as_ref().unwrap(), anew.as_ref().unwrap());
                assert!(equal, "round {round}: {name} {window} at {here}: {moved:?} {anew:?}");
            }
        }
    }
}

/// A sum, a deviation or a covariance is exact again after a value that is large beyond all others
/// has left the window.
#[test]
fn what_left_the_window_leaves_no_trace() {
    let mut texts = vec!["{t: 0, v: {$numberDouble: '1e200'}, w: 3.0}".to_owned()];
    texts.extend((1..40).map(|at| format!("{{t: {at}, v: 1e-20, w: {}}}", at % 2)));
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let last = |function: &str| {
        let spec = format!("{{{function}, window: {{documents: [-3, 0]}}}}");
        let results = parse_document(&run("{t: 1}", &spec, &texts).unwrap()).unwrap();
        let results = results.as_doc().get("r").unwrap().as_array().unwrap();
        Number::from_value(results.iter().nth(4).unwrap().value()).unwrap().to_f64()
    };
    assert_eq!(last("$sum: '$v'"), 4e-20);
    assert_eq!(last("$stdDevPop: '$v'"), 0.0);
    assert_eq!(last("$covariancePop: ['$v', '$w']"), 0.0);
    assert!((last("$integral: {input: '$v'}") - 3e-20).abs() < 1e-34);
}

/// Documents that are in no window are not evaluated.
#[test]
fn only_documents_of_windows_are_evaluated() {
    let documents = &["{t: 1, v: 0}", "{t: 2, v: 2}", "{t: 3, v: 4}"];
    let next = "{$sum: {$divide: [4, '$v']}, window: {documents: [1, 1]}}";
    check("{t: 1}", next, documents, "[2.0, 1.0, 0]");
    assert!(run("{t: 1}", &next.replace("[1, 1]", "[0, 1]"), documents).is_err());
}
