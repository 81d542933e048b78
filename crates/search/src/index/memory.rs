//! The part of an index that is only in memory: the newest documents.

use std::collections::BTreeMap;
use std::sync::Arc;

use mayfly_value::{DocBuf, RawDoc, paths};
use parking_lot::Mutex;

use super::extract::extract;
use super::stored::stored;
use crate::fields::{Field, FieldTable};
use crate::filter::Values;
use crate::filter::value::keys_at;
use crate::text::encoded::EncodedTerms;
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
    /// The keys of each field with values.
    pub(super) values: Values,
    /// The terms of each text field.
    pub(super) terms: Vec<(u16, EncodedTerms)>,
    /// The fields that the index keeps.
    pub(super) source: Option<DocBuf>,
}

impl Document {
    fn bytes(&self) -> usize {
        let vectors = self.vectors.iter().flatten().map(|vector| vector.0.bytes.len() + 64);
        let values = self.values.values().flatten().map(|key| key.len() + 32);
        let terms = self.terms.iter().map(|(_, terms)| terms.as_str().len() + 32);
        let source = self.source.as_ref().map_or(0, |source| source.as_bytes().len());
        64 + source + vectors.sum::<usize>() + values.sum::<usize>() + terms.sum::<usize>()
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
    table: &Mutex<Arc<FieldTable>>,
    version_ms: i64,
    document: RawDoc<'_>,
) -> Option<Document> {
    let vectors = vectors_of(definition, document);
    let (mut values, mut terms) = (Values::new(), Vec::new());
    match definition.kind {
        IndexKind::VectorSearch => {
            if !has_vectors(&vectors) {
                return None;
            }
            for (number, path) in definition.filters.iter().enumerate() {
                let keys = keys_at(document, &path.split('.').collect::<Vec<_>>());
                values.insert(number as u16, keys);
            }
        }
        IndexKind::Search => {
            let extract = extract(definition, document);
            let mut table = table.lock();
            for (path, keys) in extract.values {
                if let Some(number) = number_of(&mut table, &FieldTable::values_field(&path)) {
                    values.insert(number, keys);
                }
            }
            for (field, found) in extract.terms.into_values() {
                if let Some(number) = number_of(&mut table, &field) {
                    terms.push((number, found.finish()));
                }
            }
        }
    }
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

/// The number of a field. The table is copied when it grows while a search or a commit uses it.
fn number_of(table: &mut Arc<FieldTable>, field: &Field) -> Option<u16> {
    let (kind, path, multi) = &field.name;
    table.find(*kind, path, multi).or_else(|| Arc::make_mut(table).add(field))
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

/// The newest documents, by record key.
pub(super) struct Memory {
    documents: BTreeMap<Vec<u8>, Arc<Document>>,
    bytes: usize,
}

/// Documents that a commit writes, in the order of their record keys.
pub(super) type Taken = Vec<(Vec<u8>, Arc<Document>)>;

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

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Vec<u8>, &Arc<Document>)> {
        self.documents.iter()
    }

    /// Replaces the document with this record key.
    pub(super) fn put(&mut self, key: Vec<u8>, document: Option<Document>) {
        self.remove(&key);
        if let Some(document) = document {
            self.bytes += key.len() + document.bytes();
            self.documents.insert(key, Arc::new(document));
        }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(document) = self.documents.remove(key) {
            self.bytes = self.bytes.saturating_sub(key.len() + document.bytes());
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
        for (key, document) in taken {
            match self.documents.get(key) {
                Some(current) if Arc::ptr_eq(current, document) => self.remove(key),
                _ => outdated.push(key.as_slice()),
            }
        }
        outdated
    }
}
