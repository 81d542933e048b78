//! Updates of one document, and their parsing.

use divan::{Bencher, black_box};
use mayfly_mql::{ParseContext, Update, UpdateContext};
use mayfly_value::{DocBuf, DocBuilder};

use crate::parse;

#[divan::bench]
fn inc(bencher: Bencher<'_, '_>) {
    apply(bencher, "{$inc: {field12: 1}}");
}

#[divan::bench]
fn set_1_of_16(bencher: Bencher<'_, '_>) {
    apply(bencher, "{$set: {field7: 'another text'}}");
}

#[divan::bench]
fn set_new_field(bencher: Bencher<'_, '_>) {
    apply(bencher, "{$set: {another: 1}}");
}

#[divan::bench]
fn set_nested(bencher: Bencher<'_, '_>) {
    apply(bencher, "{$set: {'sub.b.c': 5}}");
}

#[divan::bench]
fn push(bencher: Bencher<'_, '_>) {
    apply(bencher, "{$push: {list: 9}}");
}

#[divan::bench]
fn replace(bencher: Bencher<'_, '_>) {
    apply(bencher, "{a: 1, b: 'text', c: [1, 2, 3]}");
}

#[divan::bench]
fn parse_inc_and_set(bencher: Bencher<'_, '_>) {
    let spec = parse("{$inc: {field12: 1}, $set: {field7: 'another text'}}");
    bencher.bench(|| update(black_box(&spec)));
}

fn apply(bencher: Bencher<'_, '_>, spec: &str) {
    let (update, doc) = (update(&parse(spec)), sixteen_fields());
    let context = UpdateContext::default();
    let changed = update.apply(doc.as_doc(), &context).expect("an update that applies");
    assert!(changed.is_some(), "{spec} changes the document");
    bencher.bench(|| black_box(&update).apply(black_box(doc.as_doc()), &context));
}

fn update(spec: &DocBuf) -> Update {
    Update::parse(spec.as_doc(), &ParseContext::default()).expect("an update")
}

/// Sixteen fields: numbers and texts, a document, and an array of eight.
fn sixteen_fields() -> DocBuf {
    let mut doc = DocBuilder::new();
    doc.append("_id", 1);
    for field in 0..13 {
        let name = format!("field{field}");
        match field % 2 {
            0 => doc.append(&name, field),
            _ => doc.append(&name, "a text of 28 bytes, with end"),
        };
    }
    doc.append_all(parse("{sub: {a: 1, b: {c: 2}}, list: [1, 2, 3, 4, 5, 6, 7, 8]}").as_doc());
    doc.finish()
}
