//! Writes a segment from documents in memory, or from other segments.

use std::collections::BTreeMap;
use std::io::Write;

use super::IndexError;
use super::Part;
use super::file::{SectionKind, Writer};
use super::memory::Taken;
use super::segment::vector_section;
use crate::Definition;
use crate::definition::{Quantization, VectorField};
use crate::limits::MAX_DOCUMENTS_IN_SEGMENT;
use crate::vector::ElementType;
use crate::vector::codes::Codes;
use crate::vector::score::to_floats;

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

/// Documents between two calls of the check.
const BLOCK: usize = 1_024;

/// The documents of a new segment.
struct Order<'s> {
    sources: &'s [Source<'s>],
    /// Source and ordinal of each document, by its ordinal in the new segment.
    documents: Vec<(u32, u32)>,
    check: Check<'s>,
}

/// Writes a segment with the live documents of the sources.
pub(super) fn write_segment<W: Write>(
    out: W,
    definition: &Definition,
    sources: &[Source<'_>],
    check: Check<'_>,
) -> Result<W, IndexError> {
    let order = Order::new(sources, check)?;
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
    for field in 0..definition.filters.len() {
        order.write_values(&mut writer, field)?;
    }
    Ok(writer.finish()?)
}

impl<'s> Order<'s> {
    fn new(sources: &'s [Source<'s>], check: Check<'s>) -> Result<Order<'s>, IndexError> {
        let mut documents = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            let live = (0..source.len()).filter(|ordinal| source.is_live(*ordinal));
            documents.extend(live.map(|ordinal| (number as u32, ordinal as u32)));
        }
        if documents.len() > MAX_DOCUMENTS_IN_SEGMENT {
            return Err(too_large());
        }
        check()?;
        Ok(Order { sources, documents, check })
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
        if field.1.quantization == Quantization::None || element != ElementType::Float {
            return Ok(());
        }
        let mut steps = Vec::new();
        writer.begin(SectionKind::Codes, name)?;
        for (at, data, _) in self.vectors(field, element) {
            if at % BLOCK == 0 {
                (self.check)()?;
            }
            let codes = Codes::of(&to_floats(data));
            writer.put(&codes.codes)?;
            steps.extend_from_slice(&codes.step.to_le_bytes());
        }
        writer.begin(SectionKind::CodeSteps, name)?;
        writer.put(&steps)?;
        Ok(())
    }

    fn write_values<W: Write>(
        &self,
        writer: &mut Writer<W>,
        field: usize,
    ) -> Result<(), IndexError> {
        // The ordinals in the new segment, by source and ordinal there.
        let mut renumbered: Vec<Vec<u32>> =
            self.sources.iter().map(|source| vec![u32::MAX; source.len()]).collect();
        for (at, (source, ordinal)) in self.documents.iter().enumerate() {
            renumbered[*source as usize][*ordinal as usize] = at as u32;
        }
        let mut values: BTreeMap<&[u8], Vec<u32>> = BTreeMap::new();
        for (source, renumbered) in self.sources.iter().zip(&renumbered) {
            (self.check)()?;
            collect_values(source, field, renumbered, &mut values);
        }
        if values.is_empty() {
            return Ok(());
        }
        let name = field as u16;
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
    field: usize,
    renumbered: &[u32],
    values: &mut BTreeMap<&'s [u8], Vec<u32>>,
) {
    match source {
        Source::Memory(taken) => {
            for ((_, document), at) in taken.iter().zip(renumbered) {
                for key in document.values.get(field).into_iter().flatten() {
                    values.entry(key).or_default().push(*at);
                }
            }
        }
        Source::Segment(part) => {
            let Some(column) = part.segment.column(field) else { return };
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

fn too_large() -> IndexError {
    IndexError::Io(std::io::Error::other("a segment of a search index has become too large"))
}
