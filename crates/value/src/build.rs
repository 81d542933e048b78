//! Writes a document front to back into one buffer.

use crate::raw::{DocBuf, RawDoc, RawElement, RawValue, ty};

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
    /// Where each open document begins, and its next array index (nothing for a document).
    open: Vec<Frame>,
}

struct Frame {
    start: usize,
    next_index: Option<u32>,
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

    /// An empty document that goes on at the end of this buffer; [`DocBuilder::finish_buffer`]
    /// gives it back.
    #[inline]
    pub fn in_buffer(buf: Vec<u8>) -> DocBuilder {
        let mut builder = DocBuilder { buf, open: Vec::with_capacity(8) };
        builder.open_frame(None);
        builder
    }

    /// An empty array as the outermost level; push to it.
    pub fn new_array() -> DocBuilder {
        let mut builder = DocBuilder { buf: Vec::with_capacity(64), open: Vec::with_capacity(8) };
        builder.open_frame(Some(0));
        builder
    }

    fn open_frame(&mut self, next_index: Option<u32>) {
        self.open.push(Frame { start: self.buf.len(), next_index });
        self.buf.extend_from_slice(&[0; 4]);
    }

    #[inline]
    fn header(&mut self, type_byte: u8, name: &[u8]) {
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
        self.header(value.type_byte(), name.as_bytes());
        value.encode(&mut self.buf);
        self
    }

    /// Appends an element as it is.
    #[inline]
    pub fn append_element(&mut self, element: RawElement<'_>) -> &mut DocBuilder {
        self.append_renamed(element.name_bytes(), element)
    }

    /// Appends an element's value under another name.
    pub fn append_renamed(&mut self, name: &[u8], element: RawElement<'_>) -> &mut DocBuilder {
        self.header(element.type_byte(), name);
        self.buf.extend_from_slice(element.data());
        self
    }

    /// Appends all elements of a document.
    #[inline]
    pub fn append_all(&mut self, document: RawDoc<'_>) -> &mut DocBuilder {
        let bytes = document.as_bytes();
        self.buf.extend_from_slice(&bytes[4..bytes.len() - 1]);
        self
    }

    /// Writes over eight bytes of what was appended last, so many bytes before the end.
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
        self.index_header(value.type_byte());
        value.encode(&mut self.buf);
        self
    }

    /// Opens an embedded document.
    #[inline]
    pub fn start_document(&mut self, name: &str) -> &mut DocBuilder {
        self.header(ty::DOCUMENT, name.as_bytes());
        self.open_frame(None);
        self
    }

    /// Opens an embedded array.
    #[inline]
    pub fn start_array(&mut self, name: &str) -> &mut DocBuilder {
        self.header(ty::ARRAY, name.as_bytes());
        self.open_frame(Some(0));
        self
    }

    /// Opens a document as the next item of the open array.
    pub fn push_document(&mut self) -> &mut DocBuilder {
        self.index_header(ty::DOCUMENT);
        self.open_frame(None);
        self
    }

    /// Opens an array as the next item of the open array.
    pub fn push_array(&mut self) -> &mut DocBuilder {
        self.index_header(ty::ARRAY);
        self.open_frame(Some(0));
        self
    }

    /// Closes the innermost open document or array.
    #[inline]
    pub fn end(&mut self) -> &mut DocBuilder {
        if let Some(frame) = self.open.pop() {
            self.buf.push(0);
            let len = (self.buf.len() - frame.start) as u32;
            self.buf[frame.start..frame.start + 4].copy_from_slice(&len.to_le_bytes());
        }
        self
    }

    /// Bytes written so far.
    #[inline]
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// Whether nothing was appended to the outermost document yet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.open.len() == 1 && self.buf.len() == self.open[0].start + 4
    }

    /// A copy of what was written so far, closed.
    pub fn closed_copy(&self) -> DocBuf {
        let base = self.open.first().map_or(0, |frame| frame.start);
        let frame = |frame: &Frame| Frame { start: frame.start - base, ..*frame };
        let open = self.open.iter().map(frame).collect();
        DocBuilder { buf: self.buf[base..].to_vec(), open }.finish()
    }

    /// Closes everything that is open and gives the document.
    #[inline]
    pub fn finish(self) -> DocBuf {
        match DocBuf::from_bytes(self.finish_buffer()) {
            Some(doc) => doc,
            None => unreachable!("a builder over its own buffer makes exactly one document"),
        }
    }

    /// Closes everything that is open and gives the buffer, with what stood in it before.
    #[inline]
    pub fn finish_buffer(mut self) -> Vec<u8> {
        while !self.open.is_empty() {
            self.end();
        }
        self.buf
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
