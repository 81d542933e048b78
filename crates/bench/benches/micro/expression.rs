//! Expressions over an item, and accumulators over many.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use mayfly_expr::accum::Accumulator;
use mayfly_expr::{Expression, Frame, Scope};

use crate::{items, parse};

/// Items that are passed to an accumulator.
const ITEMS: u32 = 1_000;

#[divan::bench]
fn constant(bencher: Bencher<'_, '_>) {
    evaluate(bencher, "{e: {$literal: 5}}");
}

#[divan::bench]
fn path(bencher: Bencher<'_, '_>) {
    evaluate(bencher, "{e: '$name'}");
}

#[divan::bench]
fn document(bencher: Bencher<'_, '_>) {
    evaluate(bencher, "{e: {group: '$g', name: '$name', missing: '$nothing', one: 1}}");
}

#[divan::bench]
fn arithmetic(bencher: Bencher<'_, '_>) {
    evaluate(bencher, "{e: {$add: [{$multiply: ['$x', 2]}, '$g', 1]}}");
}

#[divan::bench]
fn condition(bencher: Bencher<'_, '_>) {
    evaluate(
        bencher,
        "{e: {$cond: [{$and: [{$gt: ['$x', 10]}, {$ne: ['$name', 'a']}]}, '$g', null]}}",
    );
}

#[divan::bench]
fn sum(bencher: Bencher<'_, '_>) {
    accumulate(bencher, "{e: {$sum: '$x'}}");
}

#[divan::bench]
fn count(bencher: Bencher<'_, '_>) {
    accumulate(bencher, "{e: {$count: {}}}");
}

fn evaluate(bencher: Bencher<'_, '_>, spec: &str) {
    let (expression, item) = (expression(spec), &items(1)[0]);
    bencher.bench(|| {
        let value = black_box(&expression).evaluate(Frame::new(black_box(item.as_doc())));
        value.expect("no error").as_raw().is_some()
    });
}

fn expression(spec: &str) -> Expression {
    let spec = parse(spec);
    Expression::parse(spec.as_doc().get("e").expect("the field e")).expect("an expression")
}

fn accumulate(bencher: Bencher<'_, '_>, spec: &str) {
    let (spec, items) = (parse(spec), items(ITEMS));
    let element = spec.as_doc().get_element("e").expect("the field e");
    let accumulator = Accumulator::parse(element, &Scope::default()).expect("an accumulator");
    bencher.counter(ItemsCount::new(items.len())).bench(|| {
        let mut state = accumulator.start(None).expect("a state");
        for item in black_box(&items) {
            accumulator.add(&mut state, item.as_doc()).expect("no error");
        }
        accumulator.finish(&state)
    });
}
