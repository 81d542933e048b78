//! Documents as bytes: finding fields, following paths, iterating, checking.

use divan::{Bencher, black_box};
use mayfly_base::limits::MAX_BSON_DEPTH;
use mayfly_value::paths::{get_path, get_plain};
use mayfly_value::{DocBuf, DocBuilder, RawValue, validate};

use crate::documents::{Random, record};
use crate::{items, parse};

/// Fields of small and of wide documents.
const WIDTHS: [usize; 2] = [16, 100];

#[divan::bench(args = WIDTHS)]
fn first_field(bencher: Bencher<'_, '_>, fields: usize) {
    look_up(bencher, fields, "field0");
}

#[divan::bench(args = WIDTHS)]
fn last_field(bencher: Bencher<'_, '_>, fields: usize) {
    look_up(bencher, fields, &format!("field{}", fields - 1));
}

#[divan::bench(args = WIDTHS)]
fn missing_field(bencher: Bencher<'_, '_>, fields: usize) {
    look_up(bencher, fields, "nothing");
}

#[divan::bench(args = WIDTHS)]
fn iterate(bencher: Bencher<'_, '_>, fields: usize) {
    let doc = wide(fields);
    let values = || black_box(doc.as_doc()).iter().map(|element| element.value());
    bencher.bench(|| values().filter(|value| matches!(value, RawValue::Int32(_))).count());
}

#[divan::bench]
fn dotted_path(bencher: Bencher<'_, '_>) {
    let doc = nested();
    bencher.bench(|| get_plain(black_box(doc.as_doc()), black_box("a.b.c")).is_some());
}

#[divan::bench]
fn dotted_path_through_array(bencher: Bencher<'_, '_>) {
    let doc = nested();
    bencher.bench(|| get_path(black_box(doc.as_doc()), black_box("list.x")));
}

#[divan::bench(args = WIDTHS)]
fn validate_wide(bencher: Bencher<'_, '_>, fields: usize) {
    check(bencher, &wide(fields));
}

#[divan::bench]
fn validate_item(bencher: Bencher<'_, '_>) {
    check(bencher, &items(1)[0]);
}

#[divan::bench]
fn validate_record(bencher: Bencher<'_, '_>) {
    check(bencher, &record(1, &mut Random::new(1)));
}

#[divan::bench(args = WIDTHS)]
fn build(bencher: Bencher<'_, '_>, fields: usize) {
    let names: Vec<String> = (0..fields).map(|field| format!("field{field}")).collect();
    bencher.bench(|| {
        let mut doc = DocBuilder::new();
        for (value, name) in black_box(&names).iter().enumerate() {
            doc.append(name, value as i32);
        }
        doc.finish()
    });
}

fn look_up(bencher: Bencher<'_, '_>, fields: usize, name: &str) {
    let doc = wide(fields);
    bencher.bench(|| black_box(doc.as_doc()).get(black_box(name)).is_some());
}

fn check(bencher: Bencher<'_, '_>, doc: &DocBuf) {
    bencher.bench(|| validate(black_box(doc.as_bytes()), MAX_BSON_DEPTH).is_ok());
}

/// A document whose fields are numbers, strings and dates alternately.
fn wide(fields: usize) -> DocBuf {
    let mut doc = DocBuilder::new();
    for field in 0..fields {
        let name = format!("field{field}");
        match field % 3 {
            0 => doc.append(&name, field as i32),
            1 => doc.append(&name, "a text of 28 bytes, with end"),
            _ => doc.append(&name, RawValue::Date(field as i64)),
        };
    }
    doc.finish()
}

fn nested() -> DocBuf {
    parse(
        "{_id: 1, name: 'n', a: {x: 1, b: {x: 2, y: 3, c: 4}}, \
         list: [{x: 1}, {x: 2}, {y: 3}, {x: 4}, {x: 5}, {x: 6}, {x: 7}, {x: 8}]}",
    )
}
