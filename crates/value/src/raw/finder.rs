//! Fields by name, for work that looks for many of them in the same documents.
//!
//! A look for one field goes over the document from its beginning, which is the fastest way to a few fields. Whoever looks for
//! as many fields as a document has would go over it as often. A [`Finder`] counts the looks into each document, and makes an
//! index of a document that is looked into often.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use super::{RawDoc, RawElement, RawIter, RawValue};

/// As many looks into a document do without an index, and so does a document with as many fields.
const FEW: usize = 16;

/// Finds fields in a document and in the documents inside it.
pub struct Finder<'a> {
    /// Everything that is indexed lies in it, so that its addresses stay what they are.
    root: RawDoc<'a>,
    /// By the address of the document.
    known: RefCell<HashMap<usize, Known>>,
    hasher: RandomState,
}

/// What is known of a document.
enum Known {
    /// How often it was looked into.
    Looks(usize),
    /// It has few fields.
    Small,
    /// The distance of its fields from its beginning, by the hash of the name; the first field of each name.
    Indexed(HashMap<u64, usize>),
}

impl<'a> Finder<'a> {
    /// Finds fields in this document.
    pub fn new(root: RawDoc<'a>) -> Finder<'a> {
        Finder { root, known: RefCell::default(), hasher: RandomState::new() }
    }

    /// The first element with this name. The document is the finder's own, or lies in it; others are looked through.
    pub fn get_element<'d>(&self, doc: RawDoc<'d>, name: &str) -> Option<RawElement<'d>> {
        let address = doc.as_bytes().as_ptr() as usize;
        if !self.root.as_bytes().as_ptr_range().contains(&doc.as_bytes().as_ptr()) {
            return doc.get_element(name);
        }
        let mut known = self.known.borrow_mut();
        let known = known.entry(address).or_insert(Known::Looks(0));
        match known {
            Known::Looks(FEW) => *known = self.index(doc),
            Known::Looks(looks) => *looks += 1,
            Known::Small | Known::Indexed(_) => {}
        }
        let Known::Indexed(places) = known else { return doc.get_element(name) };
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

    fn index(&self, doc: RawDoc<'_>) -> Known {
        let mut places = HashMap::new();
        // The length comes first.
        let mut at = 4;
        for element in doc {
            places.entry(self.hasher.hash_one(element.name_bytes())).or_insert(at);
            at += element.encoded_len();
        }
        if places.len() > FEW { Known::Indexed(places) } else { Known::Small }
    }
}

impl fmt::Debug for Finder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finder").field("documents", &self.known.borrow().len()).finish()
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
    fn finds_what_a_document_has() {
        for fields in [2, 15, 16, 17, 300] {
            let (doc, other) = (wide(fields), wide(fields + 1));
            let doc = doc.as_doc();
            let finder = Finder::new(doc);
            let inner = doc.get("inner").and_then(RawValue::as_document).unwrap();
            for _ in 0..2 {
                for at in 0..fields + 20 {
                    for place in [doc, inner, other.as_doc()] {
                        for name in [format!("f{at}"), format!("g{at}"), "inner".to_owned()] {
                            let (found, wanted) =
                                (finder.get_element(place, &name), place.get_element(&name));
                            assert_eq!(found.map(RawElement::value), wanted.map(RawElement::value));
                        }
                    }
                }
            }
        }
    }
}
