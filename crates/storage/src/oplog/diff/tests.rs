//! Deltas of documents, and of operators by their paths.

use super::*;
use mayfly_value::arbitrary::any_document;
use mayfly_value::bson::{Binary, Document, doc, spec::BinarySubtype};
use proptest::prelude::*;

/// Applies a delta as a reader of the log does.
fn apply(old: RawDoc<'_>, delta: RawDoc<'_>) -> DocBuf {
    crate::oplog::apply_delta(old, delta).unwrap()
}

fn check(old: Document, new: Document, expected: Document) {
    let (old, new) = (DocBuf::from_bson(&old), DocBuf::from_bson(&new));
    let found = delta(old.as_doc(), new.as_doc(), UpdateStyle::Growth).unwrap();
    assert_eq!(found, DocBuf::from_bson(&expected));
    assert_eq!(apply(old.as_doc(), found.as_doc()), new);
}

#[test]
fn deltas_name_what_changed() {
    check(doc! {"a": 1, "b": 2}, doc! {"a": 1, "b": 3}, doc! {"u": {"b": 3}});
    check(doc! {"a": 1, "b": 2}, doc! {"b": 2}, doc! {"d": {"a": false}});
    check(doc! {"a": 1}, doc! {"a": 1, "b": 2}, doc! {"i": {"b": 2}});
    // The order of fields is part of a document.
    check(doc! {"a": 1, "b": 2}, doc! {"b": 2, "a": 1}, doc! {"i": {"a": 1}});
    check(doc! {"a": 1}, doc! {"a": 1i64}, doc! {"u": {"a": 1i64}});
    let long = "x".repeat(50);
    check(
        doc! {"a": {"b": 1, "c": &long}},
        doc! {"a": {"b": 2, "c": &long}},
        doc! {"sa": {"u": {"b": 2}}},
    );
    check(
        doc! {"a": [&long, 1, 2]},
        doc! {"a": [&long, 5]},
        doc! {"sa": {"a": true, "l": 2, "u1": 5}},
    );
    check(doc! {"a": [&long]}, doc! {"a": [&long, 7]}, doc! {"sa": {"a": true, "u1": 7}});
    check(doc! {"a": 1}, doc! {"a": [1]}, doc! {"u": {"a": [1]}});
}

#[test]
fn of_a_binary_value_with_another_end_only_the_end_is_named() {
    let binary = |bytes: &[u8]| Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() };
    let (old, longer) = ([7; 100], [[7; 100].as_slice(), &[1, 2]].concat());
    check(
        doc! {"a": binary(&old)},
        doc! {"a": binary(&longer)},
        doc! {"b": {"a": {"o": 100, "d": binary(&[1, 2])}}},
    );
    check(
        doc! {"a": binary(&longer)},
        doc! {"a": binary(&old)},
        doc! {"b": {"a": {"o": 100, "d": binary(&[])}}},
    );
    let short = doc! {"a": binary(&[1, 2])};
    check(short, doc! {"a": binary(&[1, 3])}, doc! {"u": {"a": binary(&[1, 3])}});
}

/// Checks the delta of operators with these paths; one that ends in `+` appends, and items that
/// `given` names by `$[]` were selected by it.
fn check_paths(given: &[(&str, &str)], old: Document, new: Document, expected: Document) {
    let split = |path: &str| path.split('.').map(Box::from).collect::<Vec<Box<str>>>();
    let paths: Vec<_> = given
        .iter()
        .map(|(path, given)| (split(path.trim_end_matches('+')), split(given), path))
        .collect();
    let paths: Vec<_> = paths
        .iter()
        .map(|(parts, given, path)| {
            let appends = path.ends_with('+');
            let write = if appends { PathWrite::Append } else { PathWrite::Whole };
            ChangedPath { parts, given, write }
        })
        .collect();
    let (old, new) = (DocBuf::from_bson(&old), DocBuf::from_bson(&new));
    let found = delta(old.as_doc(), new.as_doc(), UpdateStyle::Operators(&paths)).unwrap();
    assert_eq!(found, DocBuf::from_bson(&expected), "{given:?}");
    assert_eq!(apply(old.as_doc(), found.as_doc()), new);
}

#[test]
fn deltas_of_operators_have_the_values_at_their_paths() {
    // However small the array.
    check_paths(
        &[("a.0.1", "a.0.1")],
        doc! {"a": [{"1": 2}]},
        doc! {"a": [{"1": 9}]},
        doc! {"sa": {"a": true, "s0": {"u": {"1": 9}}}},
    );
    // However much of the value stays.
    let long = "x".repeat(50);
    check_paths(
        &[("a", "a")],
        doc! {"a": {"b": 1, "c": &long}},
        doc! {"a": {"b": 2, "c": &long}},
        doc! {"u": {"a": {"b": 2, "c": &long}}},
    );
    check_paths(
        &[("a.b", "a.b"), ("a.d", "a.d")],
        doc! {"a": {"b": {"c": 1, "x": 1}}},
        doc! {"a": {"b": {"c": 2, "x": 1}, "d": 1}},
        doc! {"sa": {"u": {"b": {"c": 2, "x": 1}}, "i": {"d": 1}}},
    );
    check_paths(
        &[("a+", "a")],
        doc! {"a": [1]},
        doc! {"a": [1, 2]},
        doc! {"sa": {"a": true, "u1": 2}},
    );
    check_paths(&[("a+", "a")], doc! {"a": [1]}, doc! {"a": [2, 1]}, doc! {"u": {"a": [2, 1]}});
    check_paths(&[("a", "a")], doc! {"a": [1, 2]}, doc! {"a": [1]}, doc! {"u": {"a": [1]}});
}

#[test]
fn several_selected_items_name_the_array() {
    let three = |a: i32, b: i32, c: i32| doc! {"a": [{"b": a}, {"b": b}, {"b": c}]};
    let two = [("a.0.b", "a.$[].b"), ("a.1.b", "a.$[].b")];
    check_paths(
        &two,
        three(1, 2, 3),
        three(4, 4, 3),
        doc! {"u": {"a": [{"b": 4}, {"b": 4}, {"b": 3}]}},
    );
    // Of several selected items one has changed.
    check_paths(&two, three(4, 2, 3), three(4, 4, 3), doc! {"sa": {"a": true, "u1": {"b": 4}}});
    check_paths(
        &two[..1],
        three(1, 2, 3),
        three(4, 2, 3),
        doc! {"sa": {"a": true, "s0": {"u": {"b": 4}}}},
    );
}

#[test]
fn ambiguous_names_have_no_delta() {
    let twice = |values: [i32; 2]| {
        let mut doc = DocBuilder::new();
        doc.append("a", values[0]).append("a", values[1]);
        doc.finish()
    };
    assert!(delta(twice([1, 2]).as_doc(), twice([1, 3]).as_doc(), UpdateStyle::Growth).is_none());
}

/// Some fields of `a`, some of `b`, and the common ones merged by parts.
fn mixed(a: RawDoc<'_>, b: RawDoc<'_>, mut picks: u64) -> DocBuf {
    let mut out = DocBuilder::new();
    let mut pick = || {
        picks = picks.rotate_right(1);
        picks & 1 == 1
    };
    for element in a.iter() {
        if pick() {
            continue;
        }
        if let (Some(inner), Some(other), true) =
            (element.value().as_document(), b.iter().find_map(|e| e.value().as_document()), pick())
        {
            out.append(element.name(), &mixed(inner, other, 0x5A5A_1234_9876_0F0F));
        } else {
            out.append_element(element);
        }
    }
    for element in b.iter() {
        if pick() && a.get_element(element.name()).is_none() {
            out.append_element(element);
        }
    }
    out.finish()
}

proptest! {
    #[test]
    fn applied_to_the_old_document_a_delta_gives_the_new_one(
        a in any_document(), b in any_document(), picks in any::<u64>()
    ) {
        for (old, new) in [(&a, &b), (&a, &mixed(a.as_doc(), b.as_doc(), picks))] {
            if let Some(delta) = delta(old.as_doc(), new.as_doc(), UpdateStyle::Growth) {
                prop_assert_eq!(&apply(old.as_doc(), delta.as_doc()), new);
            }
        }
    }
}
