//! Writes a segment from documents in memory, or from other segments.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::iter;
use std::path::Path;

use mayfly_value::DocBuf;

use super::IndexError;
use super::Part;
use super::file::{SectionKind, Writer};
use super::memory::Taken;
use super::segment::vector_section;
use crate::definition::{IndexingMethod, Quantization, StoredSource, VectorField};
use crate::fields::{FieldKind, FieldTable};
use crate::filter::value::PRESENT;
use crate::limits::MAX_DOCUMENTS_IN_SEGMENT;
use crate::text::postings;
use crate::vector::ElementType;
use crate::vector::codes::Codes;
use crate::vector::faithful::are_codes_faithful;
use crate::vector::graph::{Graph, GraphBuilder, GraphOptions};
use crate::vector::score::to_floats;
use crate::vector::space::Space;
use crate::{Definition, IndexKind};

/// Where documents of a new segment come from.
pub(super) enum Source<'a> {
    Memory(&'a Taken),
    Segment(&'a Part),
}

impl Source<'_> {
    fn len(&self) -> usize {
        match self {
            Source::Memory(taken) => taken.len(),
            Source::Segment(part) => part.segment.len(),
        }
    }

    fn is_live(&self, ordinal: usize) -> bool {
        match self {
            Source::Memory(_) => true,
            Source::Segment(part) => !part.deleted.contains(ordinal),
        }
    }

    fn key(&self, ordinal: usize) -> &[u8] {
        match self {
            Source::Memory(taken) => &taken[ordinal].0,
            Source::Segment(part) => part.segment.key(ordinal),
        }
    }

    fn version(&self, ordinal: usize) -> i64 {
        match self {
            Source::Memory(taken) => taken[ordinal].1.version_ms,
            Source::Segment(part) => part.segment.version(ordinal),
        }
    }

    /// The stored fields of a document.
    fn stored(&self, ordinal: usize) -> Option<Cow<'_, DocBuf>> {
        match self {
            Source::Memory(taken) => taken[ordinal].1.source.as_ref().map(Cow::Borrowed),
            Source::Segment(part) => part.segment.stored(ordinal).map(Cow::Owned),
        }
    }

    fn vector(
        &self,
        (at, field): (usize, &VectorField),
        element: ElementType,
        ordinal: usize,
    ) -> Option<(&[u8], f32)> {
        match self {
            Source::Memory(taken) => taken[ordinal].1.vector(at, element),
            Source::Segment(part) => {
                let vectors = part.segment.vectors(at, field, element)?;
                let place = vectors.find(ordinal)?;
                Some((vectors.data(place), vectors.length(place)))
            }
        }
    }
}

/// Ends the writing of a segment by an error.
pub(super) type Check<'c> = &'c dyn Fn() -> Result<(), IndexError>;

/// What a new segment contains.
pub(super) struct Shape<'a> {
    pub(super) definition: &'a Definition,
    pub(super) table: &'a FieldTable,
    /// An empty folder for the merging of postings.
    pub(super) scratch: Option<&'a Path>,
    /// The fewest vectors that get a graph.
    pub(super) graph_from: usize,
}

/// The fewest vectors of a field without quantization that get codes, if the codes are faithful.
/// They only choose candidates, which are compared again in full precision.
const MIN_CODES: usize = 1_000;

/// The graph of a segment is used again if fewer than one document in this many was deleted.
const MAX_DELETED: usize = 20;

/// Documents between two calls of the check.
const BLOCK: usize = 1_024;

/// The documents of a new segment.
struct Order<'s> {
    sources: &'s [Source<'s>],
    /// Source and ordinal of each document, by its ordinal in the new segment.
    documents: Vec<(u32, u32)>,
    check: Check<'s>,
    /// The fewest vectors that get a graph.
    graph_from: usize,
}

/// Writes a segment with the live documents of the sources.
pub(super) fn write_segment<W: Write>(
    out: W,
    shape: &Shape<'_>,
    sources: &[Source<'_>],
    check: Check<'_>,
) -> Result<W, IndexError> {
    let Shape { definition, table, scratch, graph_from } = shape;
    let order = Order::new(sources, check, *graph_from)?;
    let mut writer = Writer::new(out)?;
    let keys = (0..order.documents.len()).map(|at| order.key(at));
    write_list(&mut writer, (SectionKind::KeyOffsets, SectionKind::Keys, 0), keys)?;
    order.write_key_order(&mut writer)?;
    writer.begin(SectionKind::Versions, 0)?;
    for (source, ordinal) in &order.documents {
        let version = sources[*source as usize].version(*ordinal as usize);
        writer.put(&version.to_le_bytes())?;
    }
    for field in definition.vectors.iter().enumerate() {
        for element in ElementType::ALL {
            order.write_vectors(&mut writer, field, element)?;
        }
    }
    for (number, field) in table.iter() {
        if field.name.0 == FieldKind::Values {
            order.write_values(&mut writer, number)?;
        }
    }
    if definition.stored_source != StoredSource::None {
        order.write_sources(&mut writer)?;
    }
    writer.begin(SectionKind::FieldTable, 0)?;
    writer.put(&table.to_bytes())?;
    if definition.kind == IndexKind::Search {
        write_postings(&mut writer, table, sources, *scratch)?;
    }
    Ok(writer.finish()?)
}

impl<'s> Order<'s> {
    fn new(
        sources: &'s [Source<'s>],
        check: Check<'s>,
        graph_from: usize,
    ) -> Result<Order<'s>, IndexError> {
        let mut documents = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            let live = (0..source.len()).filter(|ordinal| source.is_live(*ordinal));
            documents.extend(live.map(|ordinal| (number as u32, ordinal as u32)));
        }
        if documents.len() > MAX_DOCUMENTS_IN_SEGMENT {
            return Err(too_large());
        }
        check()?;
        Ok(Order { sources, documents, check, graph_from })
    }

    fn key(&self, at: usize) -> &[u8] {
        let (source, ordinal) = self.documents[at];
        self.sources[source as usize].key(ordinal as usize)
    }

    fn write_key_order<W: Write>(&self, writer: &mut Writer<W>) -> Result<(), IndexError> {
        let mut order: Vec<u32> = (0..self.documents.len() as u32).collect();
        order.sort_unstable_by(|left, right| {
            self.key(*left as usize).cmp(self.key(*right as usize))
        });
        writer.begin(SectionKind::KeyOrder, 0)?;
        for ordinal in order {
            writer.put(&ordinal.to_le_bytes())?;
        }
        Ok(())
    }

    /// Writes the stored fields. The offsets have 64 bits, since whole documents may be stored.
    fn write_sources<W: Write>(&self, writer: &mut Writer<W>) -> Result<(), IndexError> {
        let mut offsets = vec![0_u64];
        writer.begin(SectionKind::Sources, 0)?;
        for (at, (source, ordinal)) in self.documents.iter().enumerate() {
            if at % BLOCK == 0 {
                (self.check)()?;
            }
            let stored = self.sources[*source as usize].stored(*ordinal as usize);
            let bytes = stored.as_ref().map_or(&[][..], |stored| stored.as_bytes());
            writer.put(bytes)?;
            offsets.push(offsets[at] + bytes.len() as u64);
        }
        writer.begin(SectionKind::SourceOffsets, 0)?;
        for offset in offsets {
            writer.put(&offset.to_le_bytes())?;
        }
        Ok(())
    }

    /// The vectors of a field, with the ordinals of their documents.
    fn vectors<'a>(
        &'a self,
        field: (usize, &'a VectorField),
        element: ElementType,
    ) -> impl Iterator<Item = (usize, &'a [u8], f32)> {
        self.documents.iter().enumerate().filter_map(move |(at, (source, ordinal))| {
            let source = &self.sources[*source as usize];
            let (data, length) = source.vector(field, element, *ordinal as usize)?;
            Some((at, data, length))
        })
    }

    fn write_vectors<W: Write>(
        &self,
        writer: &mut Writer<W>,
        field: (usize, &VectorField),
        element: ElementType,
    ) -> Result<(), IndexError> {
        if self.vectors(field, element).next().is_none() {
            return Ok(());
        }
        let name = vector_section(field.0, element);
        writer.begin(SectionKind::VectorOrdinals, name)?;
        for (at, _, _) in self.vectors(field, element) {
            writer.put(&(at as u32).to_le_bytes())?;
        }
        writer.begin(SectionKind::VectorLengths, name)?;
        for (_, _, length) in self.vectors(field, element) {
            writer.put(&length.to_le_bytes())?;
        }
        writer.begin(SectionKind::VectorData, name)?;
        for (at, data, _) in self.vectors(field, element) {
            if at % BLOCK == 0 {
                (self.check)()?;
            }
            writer.put(data)?;
        }
        let vectors: Vec<(&[u8], f32)> =
            self.vectors(field, element).map(|(_, data, length)| (data, length)).collect();
        let similarity = field.1.similarity;
        let is_quantised = field.1.quantization == Quantization::Scalar;
        if element == ElementType::Float && (is_quantised || vectors.len() >= MIN_CODES) {
            let (codes, steps) = self.codes(field)?;
            let coded = Some((&codes[..], steps.clone()));
            let coded = Space::new(similarity, element, vectors.clone(), coded);
            let exact = || Space::new(similarity, element, vectors.clone(), None);
            if is_quantised || are_codes_faithful(&exact(), &coded) {
                writer.begin(SectionKind::Codes, name)?;
                writer.put(&codes)?;
                writer.begin(SectionKind::CodeSteps, name)?;
                for step in &steps {
                    writer.put(&step.to_le_bytes())?;
                }
                return self.write_graph(writer, field, name, &coded);
            }
        }
        let space = Space::new(similarity, element, vectors, None);
        self.write_graph(writer, field, name, &space)
    }

    /// The codes of the vectors of a field, and their steps.
    fn codes(&self, field: (usize, &VectorField)) -> Result<(Vec<u8>, Vec<f32>), IndexError> {
        let (mut codes, mut steps) = (Vec::new(), Vec::new());
        for (at, data, _) in self.vectors(field, ElementType::Float) {
            if at % BLOCK == 0 {
                (self.check)()?;
            }
            let own = Codes::of(&to_floats(data));
            codes.extend_from_slice(&own.codes);
            steps.push(own.step);
        }
        Ok((codes, steps))
    }

    /// Writes the graph over the vectors of a field, if there are enough.
    fn write_graph<W: Write>(
        &self,
        writer: &mut Writer<W>,
        field: (usize, &VectorField),
        name: u16,
        space: &Space<'_>,
    ) -> Result<(), IndexError> {
        let count = space.len();
        let is_needed = field.1.method == IndexingMethod::Hnsw
            && space.element() != ElementType::Bit
            && count >= self.graph_from;
        if !is_needed {
            return Ok(());
        }
        let options =
            GraphOptions { edges: field.1.max_edges, candidates: field.1.edge_candidates };
        let score = |left: u32, right: u32| space.score(left as usize, right as usize);
        let prefetch = |place: u32| space.prefetch(place as usize);
        let mut graph = GraphBuilder::new(options, count, score, prefetch);
        if let Some((old, places)) = self.first_graph(field, space.element()) {
            graph.start(&old, &places);
        }
        for at in graph.len()..count {
            if at % 64 == 0 {
                (self.check)()?;
            }
            graph.add();
        }
        let (links, upper) = graph.finish();
        writer.begin(SectionKind::GraphLinks, name)?;
        writer.put(&links)?;
        writer.begin(SectionKind::GraphUpper, name)?;
        writer.put(&upper)?;
        Ok(())
    }

    /// The graph of the first source, and the new places of its vectors, which are the first ones
    /// of this segment. `None`: too many of its documents were deleted, so that many vectors would
    /// have too few links.
    fn first_graph(
        &self,
        (at, field): (usize, &VectorField),
        element: ElementType,
    ) -> Option<(Graph<'_>, Vec<Option<u32>>)> {
        let Source::Segment(part) = self.sources.first()? else { return None };
        if part.deleted.count() * MAX_DELETED > part.segment.len() {
            return None;
        }
        let vectors = part.segment.vectors(at, field, element)?;
        let mut next = 0;
        let place = |old: usize| {
            let is_kept = !part.deleted.contains(vectors.ordinal(old));
            is_kept.then(|| {
                next += 1;
                next - 1
            })
        };
        Some((vectors.graph?, (0..vectors.len()).map(place).collect()))
    }

    fn write_values<W: Write>(&self, writer: &mut Writer<W>, name: u16) -> Result<(), IndexError> {
        // The ordinals in the new segment, by source and ordinal there.
        let mut renumbered: Vec<Vec<u32>> =
            self.sources.iter().map(|source| vec![u32::MAX; source.len()]).collect();
        for (at, (source, ordinal)) in self.documents.iter().enumerate() {
            renumbered[*source as usize][*ordinal as usize] = at as u32;
        }
        let mut values: BTreeMap<&[u8], Vec<u32>> = BTreeMap::new();
        for (source, renumbered) in self.sources.iter().zip(&renumbered) {
            (self.check)()?;
            collect_values(source, name, renumbered, &mut values);
        }
        if values.is_empty() {
            return Ok(());
        }
        values.values_mut().for_each(|list| list.sort_unstable());
        let keys = values.keys().copied();
        write_list(writer, (SectionKind::ValueOffsets, SectionKind::Values, name), keys)?;
        writer.begin(SectionKind::ListOffsets, name)?;
        let mut offset = 0_u32;
        writer.put(&offset.to_le_bytes())?;
        for list in values.values() {
            let next = u32::try_from(list.len()).ok().and_then(|len| offset.checked_add(len));
            offset = next.ok_or_else(too_large)?;
            writer.put(&offset.to_le_bytes())?;
        }
        writer.begin(SectionKind::Lists, name)?;
        for ordinal in values.values().flatten() {
            writer.put(&ordinal.to_le_bytes())?;
        }
        Ok(())
    }
}

fn collect_values<'s>(
    source: &'s Source<'_>,
    field: u16,
    renumbered: &[u32],
    values: &mut BTreeMap<&'s [u8], Vec<u32>>,
) {
    match source {
        Source::Memory(taken) => {
            for ((_, document), at) in taken.iter().zip(renumbered) {
                let Some(keys) = document.values.get(field) else { continue };
                for key in iter::once(PRESENT).chain(keys.iter().map(Vec::as_slice)) {
                    values.entry(key).or_default().push(*at);
                }
            }
        }
        Source::Segment(part) => {
            let Some(column) = part.segment.column(usize::from(field)) else { return };
            for place in 0..column.len() {
                let list = column.list(place);
                let list = list.filter_map(|old| renumbered.get(old as usize).copied());
                let list: Vec<u32> = list.filter(|new| *new != u32::MAX).collect();
                if !list.is_empty() {
                    values.entry(column.key(place)).or_default().extend(list);
                }
            }
        }
    }
}

/// Writes the offsets of items, then the items.
fn write_list<'k, W: Write>(
    writer: &mut Writer<W>,
    (offsets, items, field): (SectionKind, SectionKind, u16),
    list: impl Iterator<Item = &'k [u8]> + Clone,
) -> Result<(), IndexError> {
    writer.begin(offsets, field)?;
    let mut offset = 0_u32;
    writer.put(&offset.to_le_bytes())?;
    for item in list.clone() {
        let next = u32::try_from(item.len()).ok().and_then(|len| offset.checked_add(len));
        offset = next.ok_or_else(too_large)?;
        writer.put(&offset.to_le_bytes())?;
    }
    writer.begin(items, field)?;
    for item in list {
        writer.put(item)?;
    }
    Ok(())
}

/// Writes the postings of the sources: of documents in memory, or merged ones.
fn write_postings<W: Write>(
    writer: &mut Writer<W>,
    table: &FieldTable,
    sources: &[Source<'_>],
    scratch: Option<&Path>,
) -> Result<(), IndexError> {
    let mut documents = Vec::new();
    let mut segments = Vec::new();
    for source in sources {
        match source {
            Source::Memory(taken) => {
                documents.extend(taken.iter().map(|(_, document)| document.clone()));
            }
            Source::Segment(part) => {
                let postings = part.segment.postings();
                segments.extend(postings.map(|postings| (postings, &*part.deleted)));
            }
        }
    }
    let written = match scratch {
        Some(scratch) if !segments.is_empty() => postings::merge(table, &segments, scratch),
        _ => postings::write(table, &documents),
    };
    let (files, counts) = written.map_err(std::io::Error::other)?;
    writer.begin(SectionKind::PostingsName, 0)?;
    writer.put(files.id.as_bytes())?;
    writer.begin(SectionKind::PostingsCounts, 0)?;
    for count in counts {
        writer.put(&count.to_bytes())?;
    }
    for (at, file) in files.files.iter().enumerate() {
        writer.begin(SectionKind::PostingsFile, at as u16)?;
        writer.put(file)?;
    }
    Ok(())
}

fn too_large() -> IndexError {
    IndexError::Io(std::io::Error::other("a segment of a search index has become too large"))
}
