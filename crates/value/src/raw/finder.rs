//! Look-up of many fields by name in the same documents.
//!
//! A look-up scans the document from its beginning, which is fastest for a few fields; looking up
//! as many fields as a document has is quadratic. A [`Finder`] counts the look-ups in each
//! document, and indexes a document after many of them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use super::{RawDoc, RawElement, RawIter, RawValue};

/// Up to this many look-ups a document is scanned; documents with at most this many fields are
/// never indexed.
const FEW: usize = 16;

/// Finds fields in a document and in the documents inside it.
pub struct Finder<'a> {
    /// All indexed documents are inside it, so that their addresses do not change.
    root: RawDoc<'a>,
    /// By the address of the document.
    states: RefCell<HashMap<usize, DocumentState>>,
    hasher: RandomState,
}

/// The state of a document.
enum DocumentState {
    /// The number of look-ups so far.
    Lookups(usize),
    /// It has few fields.
    Small,
    /// The offset of each field, by the hash of its name; for duplicate names that of the first.
    Indexed(HashMap<u64, usize>),
}

impl<'a> Finder<'a> {
    /// A finder for this document and the documents inside it.
    pub fn new(root: RawDoc<'a>) -> Finder<'a> {
        Finder { root, states: RefCell::default(), hasher: RandomState::new() }
    }

    /// The first element with this name. Documents outside the finder's own one are scanned.
    pub fn get_element<'d>(&self, doc: RawDoc<'d>, name: &str) -> Option<RawElement<'d>> {
        let address = doc.as_bytes().as_ptr() as usize;
        if !self.root.as_bytes().as_ptr_range().contains(&doc.as_bytes().as_ptr()) {
            return doc.get_element(name);
        }
        let mut states = self.states.borrow_mut();
        let states = states.entry(address).or_insert(DocumentState::Lookups(0));
        match states {
            DocumentState::Lookups(FEW) => *states = self.index(doc),
            DocumentState::Lookups(looks) => *looks += 1,
            DocumentState::Small | DocumentState::Indexed(_) => {}
        }
        let DocumentState::Indexed(places) = states else { return doc.get_element(name) };
        let at = *places.get(&self.hasher.hash_one(name.as_bytes()))?;
        let found = RawIter { rest: doc.as_bytes().get(at..)? }.next();
        match found.filter(|element| element.name_bytes() == name.as_bytes()) {
            Some(element) => Some(element),
            // Another name has the same hash.
            None => doc.get_element(name),
        }
    }

    /// The value of the first element with this name.
    pub fn get<'d>(&self, doc: RawDoc<'d>, name: &str) -> Option<RawValue<'d>> {
        self.get_element(doc, name).map(RawElement::value)
    }

    fn index(&self, doc: RawDoc<'_>) -> DocumentState {
        let mut places = HashMap::new();
        // The elements follow the length.
        let mut at = 4;
        for element in doc {
            places.entry(self.hasher.hash_one(element.name_bytes())).or_insert(at);
            at += element.encoded_len();
        }
        if places.len() > FEW { DocumentState::Indexed(places) } else { DocumentState::Small }
    }
}

impl fmt::Debug for Finder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finder").field("documents", &self.states.borrow().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DocBuf, DocBuilder};

    fn wide(fields: i32) -> DocBuf {
        let mut out = DocBuilder::new();
        for at in 0..fields {
            out.append(&format!("f{at}"), at);
        }
        out.append("f1", "again").start_document("inner");
        for at in 0..fields {
            out.append(&format!("g{at}"), at);
        }
        out.end();
        out.finish()
    }

    #[test]
    fn fields_of_a_document_are_found() {
        for fields in [2, 15, 16, 17, 300] {
            let (doc, other) = (wide(fields), wide(fields + 1));
            let doc = doc.as_doc();
            let finder = Finder::new(doc);
            let inner = doc.get("inner").and_then(RawValue::as_document).unwrap();
            for _ in 0..2 {
                for at in 0..fields + 20 {
                    for place in [doc, inner, other.as_doc()] {
                        for name in [format!("f{at}"), format!("g{at}"), "inner".to_owned()] {
                            let (found, expected) =
                                (finder.get_element(place, &name), place.get_element(&name));
                            assert_eq!(
                                found.map(RawElement::value),
                                expected.map(RawElement::value)
                            );
                        }
                    }
                }
            }
        }
    }
}
