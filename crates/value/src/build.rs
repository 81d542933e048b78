//! Writes a document front to back into one buffer.
//!
//! The result is a valid document for any names: a name ends at its first NUL byte, so an element
//! whose name contains one is omitted with its content, and [`DocBuilder::refused`] reports it. A
//! regular expression with a NUL byte is omitted for the same reason. Code that takes a name from a
//! request or a document checks it first and returns an error of its own.

use crate::raw::{DocBuf, RawDoc, RawElement, RawValue, find_zero, ty, zero_in};

/// Builds one document, nested parts included, without an intermediate tree.
///
/// ```
/// use mayfly_value::DocBuilder;
/// let mut doc = DocBuilder::new();
/// doc.append("n", 1);
/// doc.start_document("sub");
/// doc.append("s", "x");
/// doc.end();
/// assert_eq!(doc.finish().as_doc().iter().count(), 2);
/// ```
pub struct DocBuilder {
    buf: Vec<u8>,
    open: OpenFrames,
    refused: bool,
}

/// Levels of open documents that are kept without an allocation. Few documents have more.
const INLINE_FRAMES: usize = 5;

/// The open documents and arrays.
#[derive(Clone, Default)]
struct OpenFrames {
    /// The outermost levels.
    first: [Frame; INLINE_FRAMES],
    /// The number of levels.
    count: usize,
    /// The levels below the first ones.
    deeper: Vec<Frame>,
}

impl OpenFrames {
    #[inline]
    fn push(&mut self, frame: Frame) {
        match self.first.get_mut(self.count) {
            Some(place) => *place = frame,
            None => self.deeper.push(frame),
        }
        self.count += 1;
    }

    #[inline]
    fn pop(&mut self) -> Option<Frame> {
        let at = self.count.checked_sub(1)?;
        self.count = at;
        self.first.get(at).copied().or_else(|| self.deeper.pop())
    }

    #[inline]
    fn last_mut(&mut self) -> Option<&mut Frame> {
        let at = self.count.checked_sub(1)?;
        match self.first.get_mut(at) {
            Some(frame) => Some(frame),
            None => self.deeper.last_mut(),
        }
    }

    /// The frames with all offsets moved to the front by this distance.
    fn moved(&self, distance: usize) -> OpenFrames {
        let mut moved = self.clone();
        for frame in moved.first.iter_mut().take(self.count).chain(&mut moved.deeper) {
            frame.start -= distance;
        }
        moved
    }
}

#[derive(Clone, Copy, Default)]
struct Frame {
    start: usize,
    next_index: Option<u32>,
    /// Its name was refused: its content is removed when it is closed.
    refused: bool,
}

impl Default for DocBuilder {
    fn default() -> DocBuilder {
        DocBuilder::new()
    }
}

impl DocBuilder {
    /// An empty document in a buffer of its own.
    #[inline]
    pub fn new() -> DocBuilder {
        DocBuilder::in_buffer(Vec::with_capacity(256))
    }

    /// An empty document that is appended to this buffer; [`DocBuilder::finish_buffer`] returns the
    /// buffer.
    #[inline]
    pub fn in_buffer(buf: Vec<u8>) -> DocBuilder {
        let mut builder = DocBuilder { buf, open: OpenFrames::default(), refused: false };
        builder.open_frame(None, false);
        builder
    }

    /// An empty array as the outermost level; push to it.
    pub fn new_array() -> DocBuilder {
        let buf = Vec::with_capacity(64);
        let mut builder = DocBuilder { buf, open: OpenFrames::default(), refused: false };
        builder.open_frame(Some(0), false);
        builder
    }

    fn open_frame(&mut self, next_index: Option<u32>, refused: bool) {
        self.open.push(Frame { start: self.buf.len(), next_index, refused });
        self.buf.extend_from_slice(&[0; 4]);
    }

    /// Begins an element. When the name contains a NUL byte, writes nothing and returns false.
    #[inline]
    fn header(&mut self, type_byte: u8, name: &[u8]) -> bool {
        if contains_zero(name) {
            self.refused = true;
            return false;
        }
        self.header_checked(type_byte, name);
        true
    }

    #[inline]
    fn header_checked(&mut self, type_byte: u8, name: &[u8]) {
        self.buf.push(type_byte);
        self.buf.extend_from_slice(name);
        self.buf.push(0);
    }

    fn index_header(&mut self, type_byte: u8) {
        let index = match self.open.last_mut() {
            Some(Frame { next_index: Some(next), .. }) => {
                *next += 1;
                *next - 1
            }
            _ => 0,
        };
        self.buf.push(type_byte);
        push_decimal(&mut self.buf, index);
        self.buf.push(0);
    }

    /// Appends a value under a name.
    #[inline]
    pub fn append<'v>(&mut self, name: &str, value: impl Into<RawValue<'v>>) -> &mut DocBuilder {
        let value = value.into();
        if self.accepts(value) && self.header(value.type_byte(), name.as_bytes()) {
            value.encode(&mut self.buf);
        }
        self
    }

    /// Whether the value can be written: pattern and options of a regular expression must not
    /// contain a NUL byte.
    #[inline]
    fn accepts(&mut self, value: RawValue<'_>) -> bool {
        match value {
            RawValue::Regex { pattern, options } => {
                let refused = [pattern, options].iter().any(|text| text.contains('\0'));
                self.refused |= refused;
                !refused
            }
            _ => true,
        }
    }

    /// Appends an element unchanged.
    #[inline]
    pub fn append_element(&mut self, element: RawElement<'_>) -> &mut DocBuilder {
        self.header_checked(element.type_byte(), element.name_bytes());
        self.buf.extend_from_slice(element.data());
        self
    }

    /// Appends an element's value under another name.
    pub fn append_renamed(&mut self, name: &[u8], element: RawElement<'_>) -> &mut DocBuilder {
        if self.header(element.type_byte(), name) {
            self.buf.extend_from_slice(element.data());
        }
        self
    }

    /// Appends all elements of a document.
    #[inline]
    pub fn append_all(&mut self, document: RawDoc<'_>) -> &mut DocBuilder {
        let bytes = document.as_bytes();
        self.buf.extend_from_slice(&bytes[4..bytes.len() - 1]);
        self
    }

    /// Overwrites eight bytes of what was appended last, starting this many bytes before the end.
    #[inline]
    pub fn overwrite(&mut self, before_end: usize, bytes: [u8; 8]) {
        let at = self.buf.len().checked_sub(before_end);
        if let Some(place) = at.and_then(|at| self.buf.get_mut(at..)?.first_chunk_mut()) {
            *place = bytes;
        }
    }

    /// Appends a value to the open array.
    #[inline]
    pub fn push<'v>(&mut self, value: impl Into<RawValue<'v>>) -> &mut DocBuilder {
        let value = value.into();
        if self.accepts(value) {
            self.index_header(value.type_byte());
            value.encode(&mut self.buf);
        }
        self
    }

    /// Opens an embedded document.
    #[inline]
    pub fn start_document(&mut self, name: &str) -> &mut DocBuilder {
        let accepted = self.header(ty::DOCUMENT, name.as_bytes());
        self.open_frame(None, !accepted);
        self
    }

    /// Opens an embedded array.
    #[inline]
    pub fn start_array(&mut self, name: &str) -> &mut DocBuilder {
        let accepted = self.header(ty::ARRAY, name.as_bytes());
        self.open_frame(Some(0), !accepted);
        self
    }

    /// Opens a document as the next item of the open array.
    pub fn push_document(&mut self) -> &mut DocBuilder {
        self.index_header(ty::DOCUMENT);
        self.open_frame(None, false);
        self
    }

    /// Opens an array as the next item of the open array.
    pub fn push_array(&mut self) -> &mut DocBuilder {
        self.index_header(ty::ARRAY);
        self.open_frame(Some(0), false);
        self
    }

    /// Closes the innermost open document or array.
    #[inline]
    pub fn end(&mut self) -> &mut DocBuilder {
        if let Some(frame) = self.open.pop() {
            if frame.refused {
                self.buf.truncate(frame.start);
                return self;
            }
            self.buf.push(0);
            let len = (self.buf.len() - frame.start) as u32;
            self.buf[frame.start..frame.start + 4].copy_from_slice(&len.to_le_bytes());
        }
        self
    }

    /// Whether an element was omitted because its name, or a regular expression, contains a NUL
    /// byte.
    #[inline]
    pub fn refused(&self) -> bool {
        self.refused
    }

    /// Bytes written so far, including earlier content of the buffer.
    #[inline]
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// Capacity of the buffer in bytes.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.buf.capacity()
    }

    /// Whether nothing was appended to the outermost document.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.open.count == 1 && self.buf.len() == self.open.first[0].start + 4
    }

    /// A copy of the content written so far, with all open documents closed.
    pub fn closed_copy(&self) -> DocBuf {
        // The outermost level is open until the builder is finished.
        let base = self.open.first[0].start;
        let open = self.open.moved(base);
        DocBuilder { buf: self.buf[base..].to_vec(), open, refused: self.refused }.finish()
    }

    /// Closes all open documents and returns the outermost one.
    #[inline]
    pub fn finish(self) -> DocBuf {
        match DocBuf::from_bytes(self.finish_buffer()) {
            Some(doc) => doc,
            None => unreachable!("a builder over its own buffer makes exactly one document"),
        }
    }

    /// Closes all open documents and returns the buffer, including its earlier content.
    #[inline]
    pub fn finish_buffer(mut self) -> Vec<u8> {
        while self.open.count > 0 {
            self.end();
        }
        self.buf
    }
}

/// Whether one of the bytes is zero. Most names fit into two overlapping words.
#[inline]
fn contains_zero(name: &[u8]) -> bool {
    match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        (Some(first), Some(last)) if name.len() <= 16 => {
            zero_in(*first).is_some() || zero_in(*last).is_some()
        }
        (Some(_), _) => find_zero(name).is_some(),
        _ => match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
            (Some([a, b, c, d]), Some([e, f, g, h])) => {
                zero_in([*a, *b, *c, *d, *e, *f, *g, *h]).is_some()
            }
            _ => name.contains(&0),
        },
    }
}

/// Appends an array index as text.
pub(crate) fn push_decimal(buf: &mut Vec<u8>, index: u32) {
    let mut digits = [0u8; 10];
    let mut at = digits.len();
    let mut rest = index;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    buf.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate;

    #[test]
    fn names_with_zeros_are_omitted() {
        let mut doc = DocBuilder::new();
        doc.append("a", 1).append("b\0c", 2);
        doc.start_document("\0").append("inner", 3).start_array("deep").push(4).end().end();
        doc.start_array("list\0").push(5).end();
        let regex = RawValue::Regex { pattern: "a\0b", options: "" };
        doc.append("regex", regex).append("z", 6);
        assert!(doc.refused());
        let doc = doc.finish();
        assert!(validate(doc.as_bytes(), 200).is_ok());
        let names: Vec<&str> = doc.as_doc().iter().map(|element| element.name()).collect();
        assert_eq!(names, ["a", "z"]);
    }

    #[test]
    fn a_zero_is_found_at_every_offset() {
        for len in 0..40 {
            let mut name = vec![b'a'; len];
            assert!(!contains_zero(&name), "{len}");
            for at in 0..len {
                name[at] = 0;
                assert!(contains_zero(&name), "{at} of {len}");
                name[at] = b'a';
            }
        }
    }

    #[test]
    fn strings_may_contain_zeros() {
        let mut doc = DocBuilder::new();
        doc.append("a", "b\0c").append("twelve chars", "\0");
        assert!(!doc.refused());
        assert_eq!(doc.finish().as_doc().get("a"), Some(RawValue::String("b\0c")));
    }

    #[test]
    fn an_owned_regular_expression_is_one_value() {
        let value = RawValue::Regex { pattern: "a\0b", options: "i\0" }.to_owned();
        assert_eq!(value.as_raw(), RawValue::Regex { pattern: "a", options: "i" });
    }
}
