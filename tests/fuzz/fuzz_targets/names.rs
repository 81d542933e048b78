//! A builder given names from the input, NUL bytes and all: what comes out is one whole document
//! that holds what was not refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mayfly_value::{DocBuilder, RawValue, validate};

fuzz_target!(|input: &[u8]| {
    let mut doc = DocBuilder::new();
    let mut depth = 0;
    let mut refused = 0;
    // What the outermost document must hold.
    let mut names: Vec<&str> = Vec::new();
    // What is open, from the outermost on: whether it is an array.
    let mut arrays = vec![false];
    for step in input.split_inclusive(|byte| *byte == b'\n') {
        let Some((kind, rest)) = step.split_first() else { continue };
        let Ok(text) = std::str::from_utf8(rest) else { continue };
        let in_array = arrays.last().copied().unwrap_or(false);
        let mut named = true;
        match (kind % 7, in_array) {
            (0, false) => drop(doc.append(text, 1)),
            (1, false) => drop(doc.append(text, text)),
            (2, false) if depth < 100 => {
                doc.start_document(text);
                arrays.push(false);
            }
            (3, false) if depth < 100 => {
                doc.start_array(text);
                arrays.push(true);
            }
            (4, false) => {
                let value = RawValue::Regex { pattern: text, options: "" };
                doc.append("regex", value);
                refused += usize::from(text.contains('\0'));
                if depth == 0 && !text.contains('\0') {
                    names.push("regex");
                }
                named = false;
            }
            (5, _) if depth > 0 => {
                doc.end();
                arrays.pop();
                named = false;
            }
            (_, true) => {
                doc.push(text);
                named = false;
            }
            _ => named = false,
        }
        if named {
            refused += usize::from(text.contains('\0'));
            if depth == 0 && !text.contains('\0') {
                names.push(text);
            }
        }
        depth = arrays.len() - 1;
    }
    assert_eq!(doc.refused(), refused > 0);
    let doc = doc.finish();
    assert!(validate(doc.as_bytes(), 200).is_ok(), "{:?}", doc.as_bytes());
    let found: Vec<&str> = doc.as_doc().iter().map(|element| element.name()).collect();
    assert_eq!(found, names);
});
