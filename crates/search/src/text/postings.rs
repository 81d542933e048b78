//! The postings of a segment: written from documents, merged from other segments, and opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{io, iter};

use tantivy::directory::{MmapDirectory, OwnedBytes, RamDirectory};
use tantivy::fastfield::AliveBitSet;
use tantivy::fieldnorm::FieldNormsSerializer;
use tantivy::index::{SegmentId, SegmentReader};
use tantivy::indexer::merge_filtered_segments;
use tantivy::postings::Postings as _;
use tantivy::schema::document::{ReferenceValue, ReferenceValueLeaf};
use tantivy::schema::{Field, IndexRecordOption, Schema, TextFieldIndexing, TextOptions};
use tantivy::tokenizer::TokenizerManager;
use tantivy::{Directory, DocSet, Index, IndexSettings, Segment, TERMINATED};

use super::directory::Files;
use super::encoded::{EncodedTerms, EncodedTokenizer};
use crate::definition::PostingsDetail;
use crate::fields::{ByField, FieldTable};
use crate::filter::BitSet;

/// The files of a segment, in the order of their sections.
pub(crate) const FILES: [&str; 6] = ["term", "idx", "pos", "fieldnorm", "fast", "store"];

/// The least and the most memory for the tables of a writer, which are cleared and read as a whole.
const WRITER: std::ops::RangeInclusive<usize> = 100_000..=32 << 20;

/// Memory for the tables, for each byte of encoded terms.
const WRITER_FACTOR: usize = 16;

/// Postings as they stand in a file: the name of the files, and their bytes.
pub(crate) struct PostingsFiles {
    pub(crate) id: String,
    pub(crate) files: Vec<OwnedBytes>,
}

/// The postings of an open segment.
pub(crate) struct Postings {
    pub(crate) reader: SegmentReader,
    id: SegmentId,
    files: Files,
    /// The numbers of each field, by the field's number.
    counts: Vec<FieldCount>,
}

/// What Lucene counts of a field in all documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldCount {
    /// The number of documents with the field.
    pub(crate) documents: u32,
    /// The number of its words.
    pub(crate) words: u64,
}

impl FieldCount {
    pub(crate) const BYTES: usize = 12;

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        [&self.documents.to_le_bytes()[..], &self.words.to_le_bytes()[..]].concat()
    }

    pub(crate) fn from_bytes(bytes: &[u8; FieldCount::BYTES]) -> FieldCount {
        let [d0, d1, d2, d3, words @ ..] = *bytes;
        FieldCount {
            documents: u32::from_le_bytes([d0, d1, d2, d3]),
            words: u64::from_le_bytes(words),
        }
    }
}

/// The fields of a table as tantivy knows them.
pub(crate) fn schema(table: &FieldTable) -> Schema {
    let mut schema = Schema::builder();
    for (number, field) in table.text_fields() {
        let option = match field.detail {
            PostingsDetail::Documents => IndexRecordOption::Basic,
            PostingsDetail::Frequencies => IndexRecordOption::WithFreqs,
            PostingsDetail::Positions => IndexRecordOption::WithFreqsAndPositions,
        };
        let indexing = TextFieldIndexing::default()
            .set_tokenizer(EncodedTokenizer::NAME)
            .set_fieldnorms(field.has_norms)
            .set_index_option(option);
        let options = TextOptions::default().set_indexing_options(indexing);
        schema.add_text_field(&number.to_string(), options);
    }
    schema.build()
}

/// A document with terms.
pub(crate) trait WithTerms: Send + Sync + 'static {
    /// The terms of each text field.
    fn terms(&self) -> &ByField<EncodedTerms>;
}

/// A document as tantivy reads it.
struct Written<D> {
    document: Arc<D>,
    /// The number of each field among the text fields, if it is one.
    fields: Arc<[Option<u32>]>,
}

/// Encoded terms as a value that tantivy reads.
#[derive(Clone, Debug)]
struct Text<'t>(&'t str);

impl<'t> tantivy::schema::Value<'t> for Text<'t> {
    type ArrayIter = iter::Empty<Text<'t>>;
    type ObjectIter = iter::Empty<(&'t str, Text<'t>)>;

    fn as_value(&self) -> ReferenceValue<'t, Text<'t>> {
        ReferenceValue::Leaf(ReferenceValueLeaf::Str(self.0))
    }
}

impl<D: WithTerms> tantivy::Document for Written<D> {
    type Value<'a> = Text<'a>;
    type FieldsValuesIter<'a> = Box<dyn Iterator<Item = (Field, Text<'a>)> + 'a>;

    fn iter_fields_and_values(&self) -> Self::FieldsValuesIter<'_> {
        Box::new(self.document.terms().iter().filter_map(|(number, terms)| {
            let field = (*self.fields.get(usize::from(*number))?)?;
            (!terms.is_empty()).then(|| (Field::from_field_id(field), Text(terms.as_str())))
        }))
    }
}

/// Writes the postings of documents, in their order.
pub(crate) fn write<D: WithTerms>(
    table: &FieldTable,
    documents: &[Arc<D>],
) -> tantivy::Result<(PostingsFiles, Vec<FieldCount>)> {
    let directory = RamDirectory::create();
    let mut counts = vec![FieldCount::default(); table.len()];
    let mut bytes = 0_usize;
    for (number, terms) in documents.iter().flat_map(|document| document.terms().iter()) {
        bytes += terms.as_str().len();
        if let (Some(count), false) = (counts.get_mut(usize::from(*number)), terms.is_empty()) {
            count.documents += 1;
        }
    }
    let budget = bytes.saturating_mul(WRITER_FACTOR).clamp(*WRITER.start(), *WRITER.end());
    let tokenizers = TokenizerManager::new();
    tokenizers.register(EncodedTokenizer::NAME, EncodedTokenizer);
    let mut writer = Index::builder()
        .schema(schema(table))
        .settings(IndexSettings::default())
        .tokenizers(tokenizers)
        .single_segment_index_writer::<Written<D>>(directory.clone(), budget)?;
    let fields: Arc<[Option<u32>]> =
        table.iter().map(|(number, _)| table.text_number(number)).collect();
    for document in documents {
        let (document, fields) = (document.clone(), fields.clone());
        writer.add_document(Written { document, fields })?;
    }
    let index = writer.finalize()?;
    for segment in &index.searchable_segments()? {
        let reader = SegmentReader::open(segment)?;
        for (number, _) in table.text_fields() {
            let id = Field::from_field_id(table.text_number(number).unwrap_or(0));
            counts[number as usize].words = reader.inverted_index(id)?.total_num_tokens();
        }
    }
    Ok((collect(&index, &directory)?, counts))
}

/// Merges the postings of segments, without the documents that were deleted. The documents keep
/// their order, one segment after another. tantivy writes into the folder, which is empty.
pub(crate) fn merge(
    table: &FieldTable,
    sources: &[(&Postings, &BitSet)],
    folder: &Path,
) -> tantivy::Result<(PostingsFiles, Vec<FieldCount>)> {
    let mut segments = Vec::new();
    let mut alive = Vec::new();
    for (postings, deleted) in sources {
        segments.push(postings.with_fields(table)?);
        let mut bits = BitSet::clone(deleted);
        bits.invert();
        let mut bytes = postings.reader.max_doc().to_le_bytes().to_vec();
        bytes.extend_from_slice(&bits.to_bytes());
        alive.push((deleted.count() > 0).then(|| AliveBitSet::open(OwnedBytes::new(bytes))));
    }
    let directory =
        MmapDirectory::open(folder).map_err(|error| io::Error::other(error.to_string()))?;
    let settings = IndexSettings::default();
    let index = merge_filtered_segments(&segments, settings, alive, directory.clone())?;
    let files = collect(&index, &directory)?;
    let mut counts = vec![FieldCount::default(); table.len()];
    if sources.iter().all(|(_, deleted)| deleted.count() == 0) {
        for (postings, _) in sources {
            for (sum, count) in counts.iter_mut().zip(&postings.counts) {
                sum.documents += count.documents;
                sum.words += count.words;
            }
        }
        return Ok((files, counts));
    }
    for segment in &index.searchable_segments()? {
        let reader = SegmentReader::open(segment)?;
        for (number, _) in table.text_fields() {
            let field = Field::from_field_id(table.text_number(number).unwrap_or(0));
            counts[number as usize] = count(&reader, field)?;
        }
    }
    Ok((files, counts))
}

/// Counts a field by its postings. tantivy estimates the words that are left after deletions by the
/// encoded lengths of fields, which are not exact.
fn count(reader: &SegmentReader, field: Field) -> tantivy::Result<FieldCount> {
    let index = reader.inverted_index(field)?;
    let mut found = BitSet::new(reader.max_doc() as usize);
    let mut words = 0;
    let mut terms = index.terms().stream()?;
    while terms.advance() {
        let option = IndexRecordOption::WithFreqs;
        let mut postings = index.read_postings_from_terminfo(terms.value(), option)?;
        while postings.doc() != TERMINATED {
            found.insert(postings.doc() as usize);
            words += u64::from(postings.term_freq());
            postings.advance();
        }
    }
    Ok(FieldCount { documents: found.count() as u32, words })
}

fn collect(index: &Index, directory: &dyn Directory) -> tantivy::Result<PostingsFiles> {
    let metas = index.searchable_segment_metas()?;
    let Some(meta) = metas.first() else {
        return Err(io::Error::other("a segment of words has no documents").into());
    };
    let id = meta.id().uuid_string();
    let mut files = Vec::new();
    for ending in FILES {
        let path = PathBuf::from(format!("{id}.{ending}"));
        files.push(match directory.exists(&path)? {
            true => directory.open_read(&path)?.read_bytes()?,
            false => OwnedBytes::empty(),
        });
    }
    Ok(PostingsFiles { id, files })
}

impl Postings {
    /// Opens postings with `documents` documents.
    pub(crate) fn open(
        table: &FieldTable,
        files: PostingsFiles,
        documents: u32,
        counts: Vec<FieldCount>,
    ) -> tantivy::Result<Postings> {
        let id = SegmentId::from_uuid_string(&files.id)
            .map_err(|error| io::Error::other(error.to_string()))?;
        let names = FILES.iter().map(|ending| PathBuf::from(format!("{}.{ending}", files.id)));
        let named = names.zip(files.files).filter(|(_, bytes)| !bytes.is_empty());
        let files = Files::new(named);
        let index = Index::create(files.clone(), schema(table), IndexSettings::default())?;
        let segment = index.segment(index.new_segment_meta(id, documents));
        Ok(Postings { reader: SegmentReader::open(&segment)?, id, files, counts })
    }

    /// The same segment, as one of an index with more fields.
    fn with_fields(&self, table: &FieldTable) -> tantivy::Result<Segment> {
        let files = match self.counts.len() == table.len() {
            true => self.files.fresh(),
            false => {
                let path = PathBuf::from(format!("{}.fieldnorm", self.id.uuid_string()));
                self.files.with(path, self.lengths(table)?)
            }
        };
        let index = Index::create(files, schema(table), IndexSettings::default())?;
        Ok(index.segment(index.new_segment_meta(self.id, self.reader.max_doc())))
    }

    /// The file with the lengths of fields, of which all documents have the length 0 in new fields.
    /// A merge needs lengths for each field of its schema.
    fn lengths(&self, table: &FieldTable) -> tantivy::Result<OwnedBytes> {
        let (directory, path) = (RamDirectory::create(), Path::new("lengths"));
        let index = Index::create(directory.clone(), schema(table), IndexSettings::default())?;
        let write = index.directory().open_write(path).map_err(io::Error::other)?;
        let mut serializer = FieldNormsSerializer::from_write(write)?;
        for (number, _) in table.text_fields().filter(|(_, field)| field.has_norms) {
            let id = Field::from_field_id(table.text_number(number).unwrap_or(0));
            let lengths: Vec<u8> = match usize::from(number) < self.counts.len() {
                true => {
                    let reader = self.reader.get_fieldnorms_reader(id)?;
                    (0..self.reader.max_doc()).map(|at| reader.fieldnorm_id(at)).collect()
                }
                false => vec![0; self.reader.max_doc() as usize],
            };
            serializer.serialize_field(id, &lengths)?;
        }
        serializer.close()?;
        Ok(directory.open_read(path)?.read_bytes()?)
    }

    /// The numbers of a field.
    pub(crate) fn count(&self, number: u16) -> FieldCount {
        self.counts.get(number as usize).copied().unwrap_or_default()
    }

    /// The number of fields that the segment knows.
    pub(crate) fn fields(&self) -> usize {
        self.counts.len()
    }
}
