//! Embedded documents that are packed field by field.
//!
//! ```text
//! part      | 0xF0, 0xF1 or 0xF2 | reference document | part | part | ... | 0x00 |
//! ```
//!
//! The reference contains every field that some row has, in their order. Each of its leaves has a
//! stream of its own that begins with the leaf's value; whenever the stream of the next leaf is
//! exhausted, the next part belongs to it. The terminator is at the position where the first leaf
//! of a row would load a part. 0xF0: arrays are leaves; 0xF1: they are not; 0xF2: the rows are
//! arrays themselves.

use mayfly_value::{DocBuilder, RawDoc, RawElement, ty};

use super::{END, Rows, Stream, StreamStep, is_value};

/// Most leaves of all rows together.
const MAX_LEAVES: usize = 1 << 22;
/// Arrays are leaves.
const WHOLE_ARRAYS: u8 = 0xF0;
/// The rows are arrays.
const ARRAYS: u8 = 0xF2;

/// Decodes the rows after a first byte; returns the bytes after their terminator.
pub(super) fn read<'b>(first: u8, bytes: &'b [u8], rows: &mut Rows) -> Option<&'b [u8]> {
    let reference = RawDoc::at_front(bytes)?;
    let row_type = if first == ARRAYS { ty::ARRAY } else { ty::DOCUMENT };
    if !is_value(row_type, reference.as_bytes()) {
        return None;
    }
    let mut shape = Shape { streams: Vec::new(), whole_arrays: first == WHOLE_ARRAYS };
    shape.add(reference);
    let most = MAX_LEAVES / shape.streams.len().max(1);
    let mut rest = bytes.get(reference.as_bytes().len()..)?;
    for _ in 0..=rows.left().min(most) {
        if let [END, after @ ..] = rest
            && shape.begins_with_load()?
        {
            return Some(after);
        }
        let mut row = Row { shape: &mut shape, at: 0, rest };
        let mut out = DocBuilder::new();
        let found = row.build(reference, &mut out)?;
        rest = row.rest;
        match found {
            true => rows.push(row_type, out.finish().as_bytes())?,
            false => rows.skip()?,
        }
    }
    None
}

/// The leaves of a reference, each with its stream.
struct Shape<'b> {
    streams: Vec<Leaf<'b>>,
    whole_arrays: bool,
}

struct Leaf<'b> {
    stream: Stream<'b>,
    /// The result of a look-ahead.
    ahead: Option<StreamStep>,
}

impl<'b> Shape<'b> {
    /// The nested document of an element of the reference; `None` for a leaf.
    fn inner<'e>(&self, element: RawElement<'e>) -> Option<RawDoc<'e>> {
        match element.type_byte() {
            ty::DOCUMENT => element.value().as_document(),
            ty::ARRAY if !self.whole_arrays => element.value().as_array(),
            _ => None,
        }
    }

    fn add(&mut self, reference: RawDoc<'_>) {
        for element in reference {
            match self.inner(element) {
                Some(inner) => self.add(inner),
                None => {
                    self.streams
                        .push(Leaf { stream: Stream::starting_after(element), ahead: None });
                }
            }
        }
    }

    /// Whether the first leaf of the next row would load a part.
    fn begins_with_load(&mut self) -> Option<bool> {
        let Some(first) = self.streams.first_mut() else { return Some(true) };
        if first.ahead.is_none() {
            first.ahead = first.stream.step()?;
        }
        Some(first.ahead.is_none())
    }
}

/// Builds one row.
struct Row<'s, 'b> {
    shape: &'s mut Shape<'b>,
    at: usize,
    rest: &'b [u8],
}

impl Row<'_, '_> {
    /// Appends the row's fields of a document of the reference; returns false when it has none.
    fn build(&mut self, reference: RawDoc<'_>, out: &mut DocBuilder) -> Option<bool> {
        // A document that is empty in the reference is empty in every row.
        let mut found = reference.is_empty();
        for element in reference {
            if let Some(inner) = self.shape.inner(element) {
                let mut below = DocBuilder::new();
                if self.build(inner, &mut below)? {
                    let below = below.finish();
                    out.append_element(RawElement::from_parts(
                        element.type_byte(),
                        element.name_bytes(),
                        below.as_bytes(),
                    ));
                    found = true;
                }
                continue;
            }
            let leaf = self.shape.streams.get_mut(self.at)?;
            self.at += 1;
            let step = loop {
                if let Some(step) = leaf.ahead.take() {
                    break step;
                }
                match leaf.stream.step()? {
                    Some(step) => break step,
                    None => self.rest = leaf.stream.load(self.rest)?,
                }
            };
            if let StreamStep::Value = step {
                let last = &leaf.stream.last;
                out.append_element(RawElement::from_parts(
                    last.type_byte,
                    element.name_bytes(),
                    &last.data,
                ));
                found = true;
            }
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use mayfly_value::arbitrary::any_document;
    use mayfly_value::bson::{Document, doc};
    use mayfly_value::{DocBuf, RawValue};
    use proptest::prelude::*;

    use super::super::{Column, decode};
    use super::*;

    fn bytes_of(first: u8, reference: &Document, parts: &[&[u8]]) -> Vec<u8> {
        let mut bytes = vec![first];
        bytes.extend_from_slice(DocBuf::from_bson(reference).as_bytes());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.extend_from_slice(&[END, END]);
        bytes
    }

    /// One block of three slots.
    fn block(slots: [u64; 3]) -> Vec<u8> {
        let word = 12 | slots[0] << 4 | slots[1] << 24 | slots[2] << 44;
        [&[0x80], word.to_le_bytes().as_slice()].concat()
    }

    const NONE: u64 = (1 << 20) - 1;

    fn column(rows: &[Option<Document>]) -> Column {
        let mut column = Column::default();
        for row in rows {
            match row {
                Some(row) => column.push(ty::DOCUMENT, DocBuf::from_bson(row).as_bytes()),
                None => column.push_none(),
            }
        }
        column
    }

    #[test]
    fn each_leaf_is_a_stream() {
        let reference = doc! { "a": 1, "b": { "x": 2, "y": {} }, "c": [5] };
        let parts = [block([0, 2, NONE]), block([0, NONE, NONE]), block([0, 0, NONE])];
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let expected = column(&[
            Some(doc! { "a": 1, "b": { "x": 2, "y": {} }, "c": [5] }),
            Some(doc! { "a": 2, "b": { "y": {} }, "c": [5] }),
            Some(doc! { "b": { "y": {} } }),
        ]);
        for first in [0xF0, 0xF1] {
            assert_eq!(decode(&bytes_of(first, &reference, &parts), 3), Some(expected.clone()));
        }
        assert_eq!(decode(&bytes_of(0xF1, &reference, &parts), 2), None, "too many rows");
        assert_eq!(decode(&bytes_of(0xF1, &reference, &parts[..2]), 3), None, "cut off");
    }

    #[test]
    fn a_row_without_any_field_is_none_and_a_leaf_may_change_its_type() {
        let mut literal = vec![ty::STRING, 0];
        RawValue::String("s").encode(&mut literal);
        let parts = [block([2, NONE, 0]), literal];
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let read = decode(&bytes_of(0xF1, &doc! { "a": 1 }, &parts), 4);
        let rows = [Some(doc! { "a": 2 }), None, Some(doc! { "a": 2 }), Some(doc! { "a": "s" })];
        assert_eq!(read, Some(column(&rows)));
    }

    proptest! {
        #[test]
        fn any_parts_are_taken(
            first in 0xF0u8..=0xF2,
            reference in any_document(),
            parts in prop::collection::vec((0x80u8..0x83, any::<[u64; 3]>()), 0..6),
        ) {
            let mut bytes = vec![first];
            bytes.extend_from_slice(reference.as_bytes());
            for (control, words) in parts {
                bytes.push(control);
                let words = &words[..usize::from(control & 0x0F) + 1];
                words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
            }
            bytes.extend_from_slice(&[END, END]);
            let _ = decode(&bytes, 1000);
        }
    }
}
