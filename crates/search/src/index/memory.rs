//! The part of an index that is only in memory: the newest documents.

use std::collections::BTreeMap;
use std::sync::Arc;

use mayfly_value::{RawDoc, paths};

use crate::Definition;
use crate::filter::value::keys_at;
use crate::vector::read::may_be_vector;
use crate::vector::score::{is_indexable, length};
use crate::vector::{ElementType, Vector};

/// What an index keeps of a document.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) version_ms: i64,
    /// The vector of each vector field, with its length.
    pub(super) vectors: Vec<Option<(Vector, f32)>>,
    /// The keys of each filter field.
    pub(super) values: Vec<Vec<Vec<u8>>>,
}

impl Document {
    fn bytes(&self) -> usize {
        let vectors = self.vectors.iter().flatten().map(|vector| vector.0.bytes.len() + 64);
        let values = self.values.iter().flatten().map(|key| key.len() + 32);
        64 + vectors.sum::<usize>() + values.sum::<usize>()
    }

    /// The bytes and the length of the vector of a field, if it has one of this type.
    pub(super) fn vector(&self, field: usize, element: ElementType) -> Option<(&[u8], f32)> {
        let (vector, length) = self.vectors.get(field)?.as_ref()?;
        (vector.element == element).then_some((vector.bytes.as_slice(), *length))
    }
}

/// Reads what an index keeps of a document. `None`: the document has no vector that the index
/// contains, so no search finds it.
pub(super) fn read(
    definition: &Definition,
    version_ms: i64,
    document: RawDoc<'_>,
) -> Option<Document> {
    let vectors: Vec<_> = definition
        .vectors
        .iter()
        .map(|field| {
            let parts: Vec<&str> = field.path.split('.').collect();
            let vector = vector_at(document, &parts)?;
            let fits =
                vector.dimensions() == field.dimensions && is_indexable(field.similarity, &vector);
            fits.then(|| {
                let length = length(&vector);
                (vector, length)
            })
        })
        .collect();
    if vectors.iter().all(Option::is_none) {
        return None;
    }
    let values = |path: &String| keys_at(document, &path.split('.').collect::<Vec<_>>());
    let values = definition.filters.iter().map(values).collect();
    Some(Document { version_ms, vectors, values })
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
