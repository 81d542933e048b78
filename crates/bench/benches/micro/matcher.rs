//! Filters over a stored document, and their parsing.

use divan::{Bencher, black_box};
use mayfly_mql::{Matcher, ParseContext};
use mayfly_value::{DocBuf, DocBuilder};

use crate::{items, parse};

/// All three conditions are evaluated for an item.
const THREE_RANGES: &str = "{g: {$gte: 0}, x: {$lt: 2000000}, y: {$gte: 0}}";

#[divan::bench]
fn equality(bencher: Bencher<'_, '_>) {
    matches(bencher, &parse("{g: 17}"), &items(1)[0]);
}

#[divan::bench]
fn three_ranges(bencher: Bencher<'_, '_>) {
    matches(bencher, &parse(THREE_RANGES), &items(1)[0]);
}

#[divan::bench]
fn in_1000(bencher: Bencher<'_, '_>) {
    matches(bencher, &in_list(1000), &items(1)[0]);
}

#[divan::bench]
fn regex_prefix(bencher: Bencher<'_, '_>) {
    matches(bencher, &parse("{name: {$regex: '^abc'}}"), &items(1)[0]);
}

#[divan::bench]
fn regex_anywhere(bencher: Bencher<'_, '_>) {
    matches(bencher, &parse("{text: {$regex: 'mayfly[0-9]+'}}"), &items(1)[0]);
}

#[divan::bench]
fn array_item(bencher: Bencher<'_, '_>) {
    matches(bencher, &parse("{tags: 'nothing'}"), &with_arrays());
}

#[divan::bench]
fn array_elem_match(bencher: Bencher<'_, '_>) {
    let filter = parse("{list: {$elemMatch: {x: {$gt: 7}, y: 1}}}");
    matches(bencher, &filter, &with_arrays());
}

#[divan::bench]
fn array_dotted_path(bencher: Bencher<'_, '_>) {
    matches(bencher, &parse("{'list.x': {$gt: 9}}"), &with_arrays());
}

#[divan::bench]
fn disjunction(bencher: Bencher<'_, '_>) {
    matches(bencher, &parse("{$or: [{g: -1}, {x: -1}, {name: 'x'}]}"), &items(1)[0]);
}

#[divan::bench]
fn parse_three_ranges(bencher: Bencher<'_, '_>) {
    let filter = parse(THREE_RANGES);
    bencher.bench(|| matcher(black_box(&filter)));
}

#[divan::bench]
fn parse_in_1000(bencher: Bencher<'_, '_>) {
    let filter = in_list(1000);
    bencher.bench(|| matcher(black_box(&filter)));
}

fn matches(bencher: Bencher<'_, '_>, filter: &DocBuf, doc: &DocBuf) {
    let matcher = matcher(filter);
    bencher.bench(|| black_box(&matcher).matches(black_box(doc.as_doc())));
}

fn matcher(filter: &DocBuf) -> Matcher {
    Matcher::parse(filter.as_doc(), &ParseContext::default()).expect("a filter")
}

/// A list of even numbers; no item has one of them.
fn in_list(count: i32) -> DocBuf {
    let mut filter = DocBuilder::new();
    filter.start_document("x").start_array("$in");
    for at in 0..count {
        filter.push(-1 - 2 * at);
    }
    filter.finish()
}

fn with_arrays() -> DocBuf {
    parse(
        "{_id: 1, tags: ['red', 'green', 'blue', 'black', 'white', 'grey', 'pink', 'brown'], \
         list: [{x: 1, y: 1}, {x: 2, y: 1}, {x: 3, y: 1}, {x: 4, y: 1}, {x: 8, y: 2}]}",
    )
}
