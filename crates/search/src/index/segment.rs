//! A segment: documents with ordinals from 0. An index of the record keys finds the ordinal of a
//! document.

use mayfly_value::DocBuf;
use tantivy::directory::OwnedBytes;

use super::IndexError;
use super::best::BestPlaces;
use super::file::{SectionKind, Sections};
use super::folder::{Folder, segment_name};
use crate::definition::{Quantization, VectorField};
use crate::fields::FieldTable;
use crate::filter::Column;
use crate::filter::column::{bytes_at, number_at};
use crate::text::Postings;
use crate::text::postings::{FILES, FieldCount, PostingsFiles};
use crate::vector::ElementType;
use crate::vector::graph::Graph;
use crate::vector::kernel::prefetch;
use crate::{Definition, IndexKind};

/// A segment whose file is mapped into memory.
pub(super) struct Segment {
    number: u64,
    bytes: OwnedBytes,
    sections: Sections,
    documents: usize,
    table: FieldTable,
    postings: Option<Postings>,
    pub(super) best: BestPlaces,
}

/// The vectors of one field and one type of elements in a segment.
#[derive(Clone, Copy)]
pub(super) struct Vectors<'a> {
    ordinals: &'a [u8],
    data: &'a [u8],
    lengths: &'a [u8],
    /// Codes and steps, if the field is quantised.
    pub(super) codes: Option<(&'a [u8], &'a [u8])>,
    /// The graph over the vectors, if the segment is large.
    pub(super) graph: Option<Graph<'a>>,
    stride: usize,
}

/// The number of a field's vectors of one type, in the names of sections.
pub(super) fn vector_section(field: usize, element: ElementType) -> u16 {
    (field * ElementType::ALL.len() + element as usize) as u16
}

impl Segment {
    /// Maps a file and checks it.
    pub(super) fn open(
        folder: &Folder,
        number: u64,
        definition: &Definition,
    ) -> Result<Segment, IndexError> {
        let bytes = folder.map(&segment_name(number))?;
        Segment::read(number, bytes, definition)
    }

    pub(super) fn read(
        number: u64,
        bytes: OwnedBytes,
        definition: &Definition,
    ) -> Result<Segment, IndexError> {
        let sections = Sections::read(&bytes)?;
        let table = FieldTable::default();
        let best = BestPlaces::default();
        let mut segment =
            Segment { number, bytes, sections, documents: 0, table, postings: None, best };
        segment.documents = segment.section(SectionKind::Versions, 0).len() / 8;
        let unfit = || IndexError::Rebuild("a segment does not fit its definition".to_owned());
        let table = FieldTable::from_bytes(segment.section(SectionKind::FieldTable, 0));
        segment.table = table.ok_or_else(unfit)?;
        if !segment.is_consistent(definition) {
            return Err(unfit());
        }
        segment.postings = segment.open_postings()?;
        if (definition.kind == IndexKind::Search) != segment.postings.is_some() {
            return Err(unfit());
        }
        Ok(segment)
    }

    fn open_postings(&self) -> Result<Option<Postings>, IndexError> {
        let name = self.section(SectionKind::PostingsName, 0);
        if name.is_empty() {
            return Ok(None);
        }
        let counts = self.section(SectionKind::PostingsCounts, 0);
        let (counts, _) = counts.as_chunks::<{ FieldCount::BYTES }>();
        let counts: Vec<FieldCount> = counts.iter().map(FieldCount::from_bytes).collect();
        let file = |at: usize| {
            let range = self.sections.get((SectionKind::PostingsFile, at as u16));
            self.bytes.slice(range.unwrap_or_default())
        };
        let files = PostingsFiles {
            id: String::from_utf8_lossy(name).into_owned(),
            files: (0..FILES.len()).map(file).collect(),
        };
        let opened = Postings::open(&self.table, files, self.documents as u32, counts);
        let opened = opened
            .map_err(|error| IndexError::Rebuild(format!("the postings of a segment: {error}")))?;
        Ok(Some(opened))
    }

    pub(super) fn table(&self) -> &FieldTable {
        &self.table
    }

    /// The postings of a `search` index.
    pub(super) fn postings(&self) -> Option<&Postings> {
        self.postings.as_ref()
    }

    /// Whether the sections have the lengths and the orders that reads rely on.
    fn is_consistent(&self, definition: &Definition) -> bool {
        let offsets = self.section(SectionKind::KeyOffsets, 0);
        let has_keys = offsets.len() == (self.documents + 1) * 4
            && self.section(SectionKind::KeyOrder, 0).len() == self.documents * 4;
        let fits = |(at, field): (usize, &VectorField)| {
            let of = |element| self.are_vectors_consistent(at, field, element);
            ElementType::ALL.into_iter().all(of)
        };
        let columns = (0..self.table.len()).filter_map(|at| self.column(at));
        has_keys
            && self.table.is_related(&FieldTable::of(definition))
            && definition.vectors.iter().enumerate().all(fits)
            && columns
                .into_iter()
                .all(|column| column.list_offsets.len() == column.key_offsets.len())
    }

    fn are_vectors_consistent(&self, at: usize, field: &VectorField, element: ElementType) -> bool {
        let Some(vectors) = self.vectors(at, field, element) else { return true };
        let count = vectors.len();
        let (mut last, mut is_ascending) = (None, true);
        for place in 0..count {
            let ordinal = Some(vectors.ordinal(place));
            is_ascending &= ordinal > last;
            last = ordinal;
        }
        let is_quantised =
            field.quantization == Quantization::Scalar && element == ElementType::Float;
        is_ascending
            && last.is_none_or(|last| last < self.documents)
            && vectors.data.len() == count * vectors.stride
            && vectors.lengths.len() == count * 4
            && (vectors.codes.is_some() || !is_quantised)
            && vectors.codes.is_none_or(|(codes, steps)| {
                codes.len() == count * field.dimensions && steps.len() == count * 4
            })
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The number of documents, deleted ones included.
    pub(super) fn len(&self) -> usize {
        self.documents
    }

    pub(super) fn file_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn section(&self, kind: SectionKind, field: u16) -> &[u8] {
        let range = self.sections.get((kind, field));
        range.and_then(|range| self.bytes.get(range)).unwrap_or(&[])
    }

    /// The record key of a document.
    pub(super) fn key(&self, ordinal: usize) -> &[u8] {
        let keys = self.section(SectionKind::Keys, 0);
        bytes_at(self.section(SectionKind::KeyOffsets, 0), keys, ordinal).unwrap_or(&[])
    }

    /// The ordinal of the document with this record key.
    pub(super) fn find(&self, record_key: &[u8]) -> Option<usize> {
        let offsets = self.section(SectionKind::KeyOffsets, 0);
        let keys = self.section(SectionKind::Keys, 0);
        let order = self.section(SectionKind::KeyOrder, 0);
        let key_at = |at: usize| {
            let ordinal = number_at(order, at)? as usize;
            Some((ordinal, bytes_at(offsets, keys, ordinal).unwrap_or(&[])))
        };
        // Segments of different ages mostly have different ranges of keys.
        let (first, last) = (key_at(0)?.1, key_at(self.documents.checked_sub(1)?)?.1);
        if record_key < first || record_key > last {
            return None;
        }
        let (mut low, mut high) = (0, self.documents);
        while low < high {
            let middle = low + (high - low) / 2;
            let (ordinal, key) = key_at(middle)?;
            match key.cmp(record_key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Some(ordinal),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// The time of a document's version.
    pub(super) fn version(&self, ordinal: usize) -> i64 {
        let versions = self.section(SectionKind::Versions, 0).as_chunks::<8>().0;
        versions.get(ordinal).map_or(0, |bytes| i64::from_le_bytes(*bytes))
    }

    /// The stored fields of a document; `None`: the index keeps none.
    pub(super) fn stored(&self, ordinal: usize) -> Option<DocBuf> {
        let offsets = self.section(SectionKind::SourceOffsets, 0).as_chunks::<8>().0;
        let offset = |at: usize| offsets.get(at).map(|bytes| u64::from_le_bytes(*bytes) as usize);
        let range = offset(ordinal)?..offset(ordinal + 1)?;
        let bytes = self.section(SectionKind::Sources, 0).get(range)?;
        DocBuf::from_bytes(bytes.to_vec())
    }

    /// The values of a filter field; `None`: no document has one.
    pub(super) fn column(&self, field: usize) -> Option<Column<'_>> {
        let field = field as u16;
        self.sections.get((SectionKind::ValueOffsets, field))?;
        Some(Column {
            key_offsets: self.section(SectionKind::ValueOffsets, field),
            keys: self.section(SectionKind::Values, field),
            list_offsets: self.section(SectionKind::ListOffsets, field),
            lists: self.section(SectionKind::Lists, field),
        })
    }

    /// The vectors of a field with elements of this type; `None`: there are none.
    pub(super) fn vectors(
        &self,
        at: usize,
        field: &VectorField,
        element: ElementType,
    ) -> Option<Vectors<'_>> {
        let name = vector_section(at, element);
        self.sections.get((SectionKind::VectorOrdinals, name))?;
        let codes = self.sections.get((SectionKind::Codes, name)).map(|_| {
            (self.section(SectionKind::Codes, name), self.section(SectionKind::CodeSteps, name))
        });
        let ordinals = self.section(SectionKind::VectorOrdinals, name);
        let graph = Graph::read(
            self.section(SectionKind::GraphLinks, name),
            self.section(SectionKind::GraphUpper, name),
            ordinals.len() / 4,
        );
        Some(Vectors {
            graph,
            ordinals,
            data: self.section(SectionKind::VectorData, name),
            lengths: self.section(SectionKind::VectorLengths, name),
            codes,
            stride: element.bytes(field.dimensions),
        })
    }
}

/// A float of an array of them.
#[inline]
pub(super) fn float_at(numbers: &[u8], at: usize) -> f32 {
    numbers.as_chunks::<4>().0.get(at).map_or(0.0, |bytes| f32::from_le_bytes(*bytes))
}

impl<'a> Vectors<'a> {
    pub(super) fn len(&self) -> usize {
        self.ordinals.len() / 4
    }

    /// The ordinal of the document with the vector at this place.
    #[inline]
    pub(super) fn ordinal(&self, place: usize) -> usize {
        number_at(self.ordinals, place).unwrap_or(u32::MAX) as usize
    }

    /// The vector at this place.
    #[inline]
    pub(super) fn data(&self, place: usize) -> &'a [u8] {
        self.data.get(place * self.stride..(place + 1) * self.stride).unwrap_or(&[])
    }

    /// Loads the length of a vector that is compared soon.
    #[inline]
    pub(super) fn prefetch_length(&self, place: usize) {
        prefetch(self.lengths.get(place * 4..place * 4 + 4).unwrap_or(&[]));
    }

    /// The length of the vector at this place.
    #[inline]
    pub(super) fn length(&self, place: usize) -> f32 {
        float_at(self.lengths, place)
    }

    /// The place of a document's vector.
    pub(super) fn find(&self, ordinal: usize) -> Option<usize> {
        // Where every document has a vector, the place is the ordinal.
        if self.len() > ordinal && self.ordinal(ordinal) == ordinal {
            return Some(ordinal);
        }
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.ordinal(middle) < ordinal { low = middle + 1 } else { high = middle }
        }
        (low < self.len() && self.ordinal(low) == ordinal).then_some(low)
    }
}
