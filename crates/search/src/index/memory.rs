//! The part of an index that is only in memory: the newest documents.

use std::collections::BTreeMap;
use std::sync::Arc;

use mayfly_value::{DocBuf, RawDoc, paths};

use super::extract::Extract;
use super::stored::stored;
use crate::fields::{ByField, GrowingTable};
use crate::filter::Values;
use crate::filter::value::keys_at;
use crate::text::encoded::{EncodedTerms, TermEncoder};
use crate::text::postings::WithTerms;
use crate::vector::read::may_be_vector;
use crate::vector::score::{is_indexable, length};
use crate::vector::{ElementType, Vector};
use crate::{Definition, IndexKind};

/// The vector of each vector field of a definition, with its length.
pub(super) type FieldVectors = Vec<Option<(Vector, f32)>>;

/// What an index keeps of a document.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) version_ms: i64,
    /// The vector of each vector field, with its length.
    pub(super) vectors: FieldVectors,
    pub(super) values: Values,
    /// The terms of each text field.
    pub(super) terms: ByField<EncodedTerms>,
    /// The fields that the index keeps.
    pub(super) source: Option<DocBuf>,
}

/// The memory of a document without its values: itself, its key, and their places in two maps.
const DOCUMENT_BYTES: usize = 208;

impl WithTerms for Document {
    fn terms(&self) -> &ByField<EncodedTerms> {
        &self.terms
    }
}

impl Document {
    fn bytes(&self) -> usize {
        let vectors = self.vectors.iter().flatten().map(|vector| vector.0.bytes.len() + 64);
        let values = self
            .values
            .iter()
            .map(|(_, keys)| 32 + keys.iter().map(|key| key.len() + 32).sum::<usize>());
        let terms = self.terms.iter().map(|(_, terms)| terms.as_str().len() + 32);
        let source = self.source.as_ref().map_or(0, |source| source.as_bytes().len());
        DOCUMENT_BYTES
            + source
            + vectors.sum::<usize>()
            + values.sum::<usize>()
            + terms.sum::<usize>()
    }

    /// The bytes and the length of the vector of a field, if it has one of this type.
    pub(super) fn vector(&self, field: usize, element: ElementType) -> Option<(&[u8], f32)> {
        let (vector, length) = self.vectors.get(field)?.as_ref()?;
        (vector.element == element).then_some((vector.bytes.as_slice(), *length))
    }
}

/// Reads what an index keeps of a document, and adds its fields to the table. `None`: no search can
/// find the document, since it has no vector that the index contains.
pub(super) fn read(
    definition: &Definition,
    table: &mut GrowingTable<'_>,
    version_ms: i64,
    document: RawDoc<'_>,
) -> Option<Document> {
    let vectors = vectors_of(definition, document);
    let mut extract = Extract::default();
    match definition.kind {
        IndexKind::VectorSearch => {
            if !has_vectors(&vectors) {
                return None;
            }
            for (number, path) in definition.filters.iter().enumerate() {
                if let Some(keys) = keys_at(document, &path.split('.').collect::<Vec<_>>()) {
                    extract.values.insert(number as u16, keys);
                }
            }
        }
        IndexKind::Search => extract = Extract::of(definition, table, document),
    }
    let values = ByField::of(extract.values, |keys| keys);
    let terms = ByField::of(extract.terms, TermEncoder::finish);
    let source = stored(document, &definition.stored_source);
    Some(Document { version_ms, vectors, values, terms, source })
}

/// The vectors of a document that fit their fields.
pub(super) fn vectors_of(definition: &Definition, document: RawDoc<'_>) -> FieldVectors {
    let fields = definition.vectors.iter();
    let vector = fields.map(|field| {
        let parts: Vec<&str> = field.path.split('.').collect();
        let vector = vector_at(document, &parts)?;
        let fits =
            vector.dimensions() == field.dimensions && is_indexable(field.similarity, &vector);
        fits.then(|| {
            let length = length(&vector);
            (vector, length)
        })
    });
    vector.collect()
}

pub(super) fn has_vectors(vectors: &FieldVectors) -> bool {
    vectors.iter().any(Option::is_some)
}

/// The first vector that a path reaches.
fn vector_at(document: RawDoc<'_>, parts: &[&str]) -> Option<Vector> {
    let mut found = None;
    let _ = paths::visit_path_with(document, parts, paths::LeafArrays::Keep, &mut |hit| {
        let paths::Hit::Value(value, _) = hit else { return std::ops::ControlFlow::Continue(()) };
        if may_be_vector(value.type_byte())
            && let Ok(vector) = Vector::read(value)
        {
            found = Some(vector);
            return std::ops::ControlFlow::Break(());
        }
        std::ops::ControlFlow::Continue(())
    });
    found
}

/// A record key.
pub(super) type RecordKey = Arc<[u8]>;

/// The newest documents, by record key.
pub(super) struct Memory {
    documents: BTreeMap<RecordKey, Arc<Document>>,
    bytes: usize,
}

/// Documents that a commit writes, in the order of their record keys.
pub(super) type Taken = Vec<(RecordKey, Arc<Document>)>;

impl Memory {
    pub(super) fn new() -> Memory {
        Memory { documents: BTreeMap::new(), bytes: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.documents.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Arc<Document>> {
        self.documents.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&RecordKey, &Arc<Document>)> {
        self.documents.iter()
    }

    /// Replaces the document with this record key.
    pub(super) fn put(&mut self, key: RecordKey, document: Option<Document>) {
        let length = key.len();
        let replaced = match document {
            Some(document) => {
                self.bytes += length + document.bytes();
                self.documents.insert(key, Arc::new(document))
            }
            None => self.documents.remove(&key),
        };
        self.subtract(length, replaced);
    }

    /// Notes that a document is gone whose key has this length.
    fn subtract(&mut self, key_bytes: usize, document: Option<Arc<Document>>) {
        if let Some(document) = document {
            self.bytes = self.bytes.saturating_sub(key_bytes + document.bytes());
        }
    }

    /// The documents, which stay until [`Memory::remove_taken`].
    pub(super) fn take(&self) -> Taken {
        self.documents.iter().map(|(key, document)| (key.clone(), document.clone())).collect()
    }

    /// Removes documents that are now in a segment. Returns the keys of those that were replaced or
    /// deleted since they were taken.
    pub(super) fn remove_taken<'t>(&mut self, taken: &'t Taken) -> Vec<&'t [u8]> {
        let mut outdated = Vec::new();
        let is_unchanged = self.documents.len() == taken.len()
            && self.documents.values().zip(taken).all(|(now, (_, then))| Arc::ptr_eq(now, then));
        if is_unchanged {
            *self = Memory::new();
            return outdated;
        }
        for (key, document) in taken {
            match self.documents.get(key) {
                Some(current) if Arc::ptr_eq(current, document) => {
                    let removed = self.documents.remove(key);
                    self.subtract(key.len(), removed);
                }
                _ => outdated.push(&**key),
            }
        }
        outdated
    }
}
