//! Any bytes: the check says yes or no, and what it accepts can be walked to its end, printed,
//! compared and copied.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mayfly_value::{DocBuilder, RawDoc, RawValue, compare_docs, validate};

fn walk(document: RawDoc<'_>, depth: usize) -> usize {
    let mut end = 4;
    for element in document {
        end += 1 + element.name_bytes().len() + 1 + element.data().len();
        match element.value() {
            RawValue::Document(inner) | RawValue::Array(inner) if depth < 300 => {
                walk(inner, depth + 1);
            }
            _ => {}
        }
    }
    end + 1
}

fuzz_target!(|data: &[u8]| {
    // Without the check nothing may panic either.
    if let Some(unchecked) = RawDoc::new(data) {
        walk(unchecked, 0);
    }
    let Ok(document) = validate(data, 200) else { return };
    assert_eq!(walk(document, 0), data.len(), "the elements cover the document");
    assert!(compare_docs(document, document).is_eq());
    let _ = format!("{document:?}");
    let mut copy = DocBuilder::new();
    for element in document {
        copy.append(element.name(), element.value());
    }
    assert_eq!(copy.finish().as_bytes(), data, "decoding and encoding is the identity");
});
