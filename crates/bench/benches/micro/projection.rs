//! Projections of an item and of nested documents.

use divan::{Bencher, black_box};
use mayfly_mql::{Projection, ProjectionKind};
use mayfly_value::DocBuf;

use crate::{items, parse};

#[divan::bench]
fn include_two(bencher: Bencher<'_, '_>) {
    project(bencher, "{k: 1, name: 1}", &items(1)[0]);
}

#[divan::bench]
fn exclude_one(bencher: Bencher<'_, '_>) {
    project(bencher, "{text: 0}", &items(1)[0]);
}

#[divan::bench]
fn include_nested(bencher: Bencher<'_, '_>) {
    project(bencher, "{'a.b': 1, 'list.x': 1, _id: 0}", &nested());
}

#[divan::bench]
fn exclude_nested(bencher: Bencher<'_, '_>) {
    project(bencher, "{'a.b': 0, 'list.x': 0}", &nested());
}

#[divan::bench]
fn parse_two(bencher: Bencher<'_, '_>) {
    let spec = parse("{k: 1, name: 1}");
    bencher.bench(|| Projection::parse(black_box(spec.as_doc()), ProjectionKind::Find));
}

fn project(bencher: Bencher<'_, '_>, spec: &str, doc: &DocBuf) {
    let spec = parse(spec);
    let projection = Projection::parse(spec.as_doc(), ProjectionKind::Find).expect("a projection");
    bencher.bench(|| black_box(&projection).project(black_box(doc.as_doc())));
}

fn nested() -> DocBuf {
    parse("{_id: 1, a: {b: 1, c: 2}, list: [{x: 1, y: 1}, {x: 2, y: 2}, {x: 3, y: 3}], d: 'text'}")
}
