//! Which paths the keys of an index depend on.

use mayfly_value::bson::{Document, doc};
use mayfly_value::{ChangedPath, DocBuf, PathWrite};

use super::IndexSpec;

fn reads(key: Document, path: &str) -> bool {
    let definition = doc! { "v": 2, "key": key, "name": "x" };
    let spec = IndexSpec::from_catalog(DocBuf::from_bson(&definition)).unwrap();
    let parts: Vec<Box<str>> = path.split('.').map(Box::from).collect();
    spec.reads(&[ChangedPath { parts: &parts, given: &parts, write: PathWrite::Whole }])
}

#[test]
fn an_index_reads_what_begins_with_the_names_of_its_fields() {
    for path in ["a", "a.b", "a.0", "a.0.b", "a.0.c"] {
        assert!(reads(doc! { "a.b": 1 }, path), "{path}");
        assert!(reads(doc! { "x": 1, "a": -1 }, path), "{path}");
    }
    for path in ["b", "ab", "b.a", "0", "A"] {
        assert!(!reads(doc! { "a.b": 1 }, path), "{path}");
        assert!(!reads(doc! { "x": 1, "a": -1 }, path), "{path}");
    }
}

#[test]
fn indexes_of_special_kinds_may_read_everything() {
    for key in [doc! { "$**": 1 }, doc! { "a": "hashed" }, doc! { "a": "2dsphere" }] {
        assert!(reads(key.clone(), "b"), "{key}");
    }
}
