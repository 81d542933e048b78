//! Sort keys, which a sort without an index builds for each document.

use divan::{Bencher, black_box};
use mayfly_mql::SortPattern;
use mayfly_value::DocBuf;

use crate::{items, parse};

#[divan::bench]
fn one_field(bencher: Bencher<'_, '_>) {
    sort_key(bencher, "{x: 1}", &items(1)[0]);
}

#[divan::bench]
fn three_fields(bencher: Bencher<'_, '_>) {
    sort_key(bencher, "{g: 1, name: -1, at: 1}", &items(1)[0]);
}

#[divan::bench]
fn through_array(bencher: Bencher<'_, '_>) {
    let doc = parse("{_id: 1, list: [{x: 5}, {x: 2}, {x: 7}, {x: 1}, {x: 9}]}");
    sort_key(bencher, "{'list.x': -1}", &doc);
}

fn sort_key(bencher: Bencher<'_, '_>, pattern: &str, doc: &DocBuf) {
    let pattern = SortPattern::parse(parse(pattern).as_doc()).expect("a pattern");
    let mut key = Vec::with_capacity(128);
    bencher.bench_local(|| {
        key.clear();
        pattern.append_sort_key(black_box(doc.as_doc()), &mut key);
        black_box(&key);
    });
}
