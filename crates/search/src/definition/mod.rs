//! Definitions of indexes: which values of a document an index contains.
//!
//! | kind | parts |
//! |---|---|
//! | `vectorSearch` | [`vector_index`]: paths of vectors, and paths that filters may name |
//! | `search` | [`mappings`]: the types of each path; [`dynamic`]: the types of other paths |
//!
//! Members that the reference has and this server does not have are refused by name, never ignored.

mod analyzers;
mod dynamic;
mod field_types;
mod mappings;
mod stored_source;
mod string;
#[cfg(test)]
mod tests;
mod vector_field;
mod vector_index;

use mayfly_base::Result;
use mayfly_value::RawDoc;

pub use analyzers::{AnalyzerName, AnalyzerRule};
pub use dynamic::Dynamic;
pub use field_types::{FieldType, NumberField, TokenField};
pub use mappings::{DocumentMapping, FieldMapping};
pub use stored_source::StoredSource;
pub use string::{AutocompleteField, Grams, PostingsDetail, ScoreFunction, StringField};
pub use vector_field::{IndexingMethod, Quantization, Similarity, VectorField};

use crate::fault::FieldPath;
use crate::read::Fields;

/// The kind of an index, which is fixed when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexKind {
    /// Searched by `$search` and `$searchMeta`.
    Search,
    /// Searched by `$vectorSearch`.
    VectorSearch,
}

/// A checked definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// The kind of the index.
    pub kind: IndexKind,
    /// The vectors of a `vectorSearch` index, or the static ones of a `search` index.
    pub vectors: Vec<VectorField>,
    /// The paths that filters of a `$vectorSearch` may name.
    pub filters: Vec<String>,
    /// The mappings of a `search` index. Empty for the other kind.
    pub mappings: DocumentMapping,
    /// The analyzer of string fields that name none.
    pub analyzer: AnalyzerName,
    /// The analyzer of queries on these fields, if it is another one.
    pub search_analyzer: Option<AnalyzerName>,
    /// The fields that the index keeps for `returnStoredSource`.
    pub stored_source: StoredSource,
    /// A checksum of the document, by which an index recognises files of another definition.
    pub fingerprint: u32,
}

impl Definition {
    /// Parses the `definition` of `createSearchIndexes` or `updateSearchIndex`.
    ///
    /// # Errors
    /// Code 8, with the path of the field in the text.
    pub fn parse(document: RawDoc<'_>, kind: IndexKind) -> Result<Definition> {
        let fields = Fields::new(document, FieldPath::root())?;
        let mut definition = match kind {
            IndexKind::VectorSearch => vector_index::parse(fields)?,
            IndexKind::Search => mappings::parse(fields)?,
        };
        definition.fingerprint = crc32c::crc32c(document.as_bytes());
        Ok(definition)
    }

    /// The vector field at a path.
    pub fn vector(&self, path: &str) -> Option<&VectorField> {
        self.vectors.iter().find(|field| field.path == path)
    }
}

/// Refuses more than one partition, which only clusters have.
fn check_partitions(fields: &mut Fields<'_>) -> Result<()> {
    match fields.whole("numPartitions", 1..=64)? {
        None | Some(1) => Ok(()),
        Some(_) => Err(fields.path_of("numPartitions").not_supported("more than one partition")),
    }
}
