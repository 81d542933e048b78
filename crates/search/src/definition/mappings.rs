//! Definitions of the kind `search`: a tree of mappings.

use std::collections::BTreeMap;

use mayfly_base::Result;
use mayfly_value::{RawDoc, RawValue};

use super::dynamic::{self, Dynamic, TypeSets};
use super::field_types::{self, FieldType, TypeRow};
use super::{AnalyzerName, Definition, IndexKind, VectorField, check_partitions, stored_source};
use crate::fault::FieldPath;
use crate::limits::{MAX_DEPTH, MAX_FIELDS};
use crate::read::Fields;

/// The mapping of a document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DocumentMapping {
    /// The types of fields that `fields` does not name.
    pub dynamic: Dynamic,
    /// The mapped fields, by name.
    pub fields: BTreeMap<String, FieldMapping>,
}

/// The mapping of a field.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldMapping {
    /// The types of its values.
    pub types: Vec<FieldType>,
    /// The mapping of its documents.
    pub document: Option<DocumentMapping>,
}

impl FieldMapping {
    /// The fields of vectors in the mapping and in those inside it.
    fn collect_vectors(&self, vectors: &mut Vec<VectorField>) {
        for field_type in &self.types {
            if let FieldType::Vector(vector) = field_type {
                vectors.push(vector.clone());
            }
        }
        let fields = self.document.iter().flat_map(|document| document.fields.values());
        fields.for_each(|field| field.collect_vectors(vectors));
    }
}

pub(super) fn parse(mut fields: Fields<'_>) -> Result<Definition> {
    check_unsupported(&mut fields)?;
    let analyzer = analyzer(&mut fields, "analyzer")?.unwrap_or(AnalyzerName::STANDARD);
    let search_analyzer = self::analyzer(&mut fields, "searchAnalyzer")?;
    let sets = dynamic::parse_type_sets(&mut fields)?;
    let document = fields.document("mappings")?;
    let document = fields.required("mappings", document)?;
    let mut reader = MappingReader { sets: &sets, count: 0 };
    let members = Fields::new(document, fields.path_of("mappings"))?;
    let mappings = reader.document(members, "", 0)?;
    check_partitions(&mut fields)?;
    let stored_source = stored_source::parse(&mut fields)?;
    fields.finish()?;
    let mut vectors = Vec::new();
    mappings.fields.values().for_each(|field| field.collect_vectors(&mut vectors));
    Ok(Definition {
        kind: IndexKind::Search,
        vectors,
        filters: Vec::new(),
        mappings,
        analyzer,
        search_analyzer,
        stored_source,
        fingerprint: 0,
    })
}

fn analyzer(fields: &mut Fields<'_>, name: &str) -> Result<Option<AnalyzerName>> {
    let path = fields.path_of(name);
    fields.text(name)?.map(|text| AnalyzerName::find(&path, text)).transpose()
}

/// Refuses the members that this server does not have. An empty list asks for nothing.
fn check_unsupported(fields: &mut Fields<'_>) -> Result<()> {
    for (name, what) in [("analyzers", "a custom analyzer"), ("synonyms", "a synonym mapping")] {
        if fields.array(name)?.is_some_and(|items| !items.is_empty()) {
            return Err(fields.path_of(name).not_supported(what));
        }
    }
    match fields.document("sort")? {
        Some(sort) if !sort.is_empty() => {
            Err(fields.path_of("sort").not_supported("a sorted index"))
        }
        _ => Ok(()),
    }
}

struct MappingReader<'s> {
    sets: &'s TypeSets,
    count: usize,
}

impl MappingReader<'_> {
    fn document(
        &mut self,
        mut members: Fields<'_>,
        dotted: &str,
        depth: usize,
    ) -> Result<DocumentMapping> {
        if depth > MAX_DEPTH {
            let text = format!("is nested more than {MAX_DEPTH} levels deep");
            return Err(members.path().refuse(text));
        }
        let dynamic = dynamic::parse(&mut members, self.sets)?;
        let mut fields = BTreeMap::new();
        let path = members.path_of("fields");
        for element in members.document("fields")?.unwrap_or(RawDoc::EMPTY) {
            let name = element.name();
            let path = path.field(name);
            self.count += 1;
            if self.count > MAX_FIELDS {
                return Err(path.refuse(format_args!("is one of more than {MAX_FIELDS} fields")));
            }
            let dotted =
                if dotted.is_empty() { name.to_owned() } else { format!("{dotted}.{name}") };
            let mapping = self.field(element.value(), &path, &dotted, depth)?;
            if fields.insert(name.to_owned(), mapping).is_some() {
                return Err(path.refuse("is repeated"));
            }
        }
        members.finish()?;
        Ok(DocumentMapping { dynamic, fields })
    }

    /// The mapping of a field: one type, or an array of types.
    fn field(
        &mut self,
        value: RawValue<'_>,
        path: &FieldPath,
        dotted: &str,
        depth: usize,
    ) -> Result<FieldMapping> {
        let mut mapping = FieldMapping::default();
        let RawValue::Array(items) = value else {
            self.add_type(&mut mapping, (&[], value), path.clone(), (dotted, depth))?;
            return Ok(mapping);
        };
        let items: Vec<RawValue<'_>> = items.iter().map(|item| item.value()).collect();
        for (at, value) in items.iter().enumerate() {
            let here = (&items[..at], *value);
            self.add_type(&mut mapping, here, path.item(at), (dotted, depth))?;
        }
        Ok(mapping)
    }

    /// Adds a type of a field. `items_before` are the types of the field up to this one.
    fn add_type(
        &mut self,
        mapping: &mut FieldMapping,
        (items_before, value): (&[RawValue<'_>], RawValue<'_>),
        path: FieldPath,
        (dotted, depth): (&str, usize),
    ) -> Result<()> {
        match parse_type(value, path.clone(), dotted)? {
            Some(added) => {
                let same = |other: &&FieldType| {
                    std::mem::discriminant(*other) == std::mem::discriminant(&added)
                };
                match mapping.types.iter().find(same) {
                    None => mapping.types.push(added),
                    // Two names of one type, as `token` and `stringFacet`, make one field.
                    Some(known) if *known == added && !repeats(items_before, value) => {}
                    Some(_) if !repeats(items_before, value) => {
                        return Err(path.not_supported("a facet with other options than its field"));
                    }
                    Some(_) => return Err(path.refuse("repeats a type of the field")),
                }
            }
            None if mapping.document.is_some() => {
                return Err(path.refuse("repeats a type of the field"));
            }
            None => {
                let RawValue::Document(document) = value else { return Ok(()) };
                let mut members = Fields::new(document, path)?;
                members.ignore(&["type"]);
                mapping.document = Some(self.document(members, dotted, depth + 1)?);
            }
        }
        Ok(())
    }
}

/// Whether one of these types has the name of this one.
fn repeats(before: &[RawValue<'_>], value: RawValue<'_>) -> bool {
    let name = |item: RawValue<'_>| match item.as_document()?.get("type") {
        Some(RawValue::String(name)) => Some(name.to_owned()),
        _ => None,
    };
    let own = name(value);
    before.iter().any(|other| name(*other) == own)
}

/// Parses a type and its options. `None` stands for `document`, whose options are not read.
pub(super) fn parse_type(
    value: RawValue<'_>,
    path: FieldPath,
    dotted: &str,
) -> Result<Option<FieldType>> {
    let RawValue::Document(document) = value else {
        return Err(path.wrong_type("document", value));
    };
    let mut members = Fields::new(document, path)?;
    let row = members.choice("type", field_types::ROWS)?;
    let field_type = match members.required("type", row)? {
        TypeRow::Document => return Ok(None),
        TypeRow::Unsupported(what) => return Err(members.path_of("type").not_supported(what)),
        TypeRow::Supported(read) => read(&mut members, dotted)?,
    };
    members.finish()?;
    Ok(Some(field_type))
}
