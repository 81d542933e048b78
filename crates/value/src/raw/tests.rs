//! Reading of valid and malformed raw documents.

use crate::{DocBuilder, RawValue};

/// Names of all lengths with common prefixes, with and without bytes after them.
#[test]
fn elements_are_found_by_their_names() {
    let long = "abcdefghijklmnopqrstuvwxyz";
    for last in [RawValue::Null, RawValue::Bool(true), RawValue::Int64(7), RawValue::Int32(0)] {
        let mut doc = DocBuilder::new();
        for len in (0..long.len()).rev() {
            doc.append(&long[..len], len as i32);
        }
        doc.append("abcdefgX", -1).append("é", -2).append("z", last);
        let doc = doc.finish();
        let doc = doc.as_doc();
        for len in 0..long.len() {
            assert_eq!(doc.get(&long[..len]), Some(RawValue::Int32(len as i32)), "{len}");
            let element = doc.get_element(&long[..len]).unwrap();
            assert_eq!(element.name_bytes(), &long.as_bytes()[..len]);
        }
        assert_eq!(doc.get("abcdefgX"), Some(RawValue::Int32(-1)));
        assert_eq!(doc.get("é"), Some(RawValue::Int32(-2)));
        assert_eq!(doc.get("z"), Some(last));
        for absent in ["b", "abcdefgh\u{e9}", "zz", long, "abcdefgXY", "z\0", "\0", "abcdefghi\0j"]
        {
            assert_eq!(doc.get(absent), None, "{absent}");
        }
        // An impossible name must not match bytes of the value after a name.
        assert_eq!(doc.get("z\0\0\0"), None);
    }
}

#[test]
fn broken_documents_end() {
    let mut doc = DocBuilder::new();
    doc.append("a", 1).append("text", "x").append("b", 2);
    let good = doc.finish().into_bytes();
    for at in 4..good.len() - 1 {
        for byte in [0, 1, 2, 5, 0x7F, 0xFF] {
            let mut bytes = good.clone();
            bytes[at] = byte;
            let doc = super::RawDoc::new(&bytes).unwrap();
            for name in ["a", "text", "b", "c", "abcdefghijk"] {
                let found = doc.iter().find(|element| element.name_bytes() == name.as_bytes());
                let found = found.map(|element| (element.type_byte(), element.data()));
                let direct = doc.get_element(name);
                let direct = direct.map(|element| (element.type_byte(), element.data()));
                assert_eq!(direct, found, "{name} with {byte} at {at}");
            }
        }
    }
}
