//! Definitions of the kind `vectorSearch`: a list of paths.

use mayfly_base::Result;
use mayfly_value::RawValue;

use super::{AnalyzerName, Definition, DocumentMapping, IndexKind, StoredSource, VectorField};
use super::{check_partitions, stored_source, vector_field};
use crate::fault::FieldPath;
use crate::limits::MAX_FIELDS;
use crate::read::Fields;

/// A member of `fields`.
enum Member {
    Vector(VectorField),
    Filter(String),
}

/// The types of members. The error of an unsupported one is its name.
#[derive(Clone, Copy)]
enum MemberType {
    Vector,
    Filter,
    Unsupported(&'static str),
}

const TYPES: &[(&str, MemberType)] = &[
    ("autoEmbed", MemberType::Unsupported("automatic embedding")),
    ("filter", MemberType::Filter),
    ("text", MemberType::Unsupported("automatic embedding")),
    ("vector", MemberType::Vector),
];

pub(super) fn parse(mut fields: Fields<'_>) -> Result<Definition> {
    let path = fields.path_of("fields");
    let members = fields.array("fields")?;
    let members = fields.required("fields", members)?;
    if members.is_empty() {
        return Err(path.refuse("cannot be empty"));
    }
    let (mut vectors, mut filters) = (Vec::new(), Vec::new());
    for (at, element) in members.iter().enumerate() {
        match parse_member(element.value(), path.item(at))? {
            Member::Vector(vector) => vectors.push(vector),
            Member::Filter(filter) => filters.push(filter),
        }
    }
    if vectors.len() + filters.len() > MAX_FIELDS {
        return Err(path.refuse(format_args!("has more than {MAX_FIELDS} fields")));
    }
    let paths = vectors.iter().map(|vector| &vector.path).chain(&filters);
    let mut paths: Vec<&String> = paths.collect();
    paths.sort_unstable();
    if paths.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(fields.path().refuse("Vector and filter fields should have distinct paths"));
    }
    if vectors.is_empty() {
        return Err(path.refuse("must contain a field of type vector"));
    }
    if fields.value("nestedRoot").is_some() {
        return Err(fields.path_of("nestedRoot").not_supported("a nested root"));
    }
    check_partitions(&mut fields)?;
    let stored_source = stored_source::parse(&mut fields)?;
    if stored_source == StoredSource::All {
        let text = "storedSource true not allowed for vector indexes";
        return Err(fields.path().refuse(text));
    }
    fields.finish()?;
    Ok(Definition {
        kind: IndexKind::VectorSearch,
        vectors,
        filters,
        mappings: DocumentMapping::default(),
        analyzer: AnalyzerName::STANDARD,
        search_analyzer: None,
        stored_source,
        fingerprint: 0,
    })
}

fn parse_member(value: RawValue<'_>, path: FieldPath) -> Result<Member> {
    let RawValue::Document(document) = value else {
        return Err(path.wrong_type("document", value));
    };
    let mut fields = Fields::new(document, path)?;
    let kind = fields.choice("type", TYPES)?;
    let kind = fields.required("type", kind)?;
    if let MemberType::Unsupported(what) = kind {
        return Err(fields.path_of("type").not_supported(what));
    }
    let name = fields.text("path")?;
    let name = fields.required("path", name)?;
    if !is_path(name) {
        return Err(fields.path_of("path").refuse("must be a path without empty parts"));
    }
    let member = match kind {
        MemberType::Vector => Member::Vector(vector_field::parse(&mut fields, name)?),
        _ => Member::Filter(name.to_owned()),
    };
    fields.finish()?;
    Ok(member)
}

/// Whether a dotted path has a bounded number of parts and none of them is empty.
fn is_path(dotted: &str) -> bool {
    dotted.split('.').all(|part| !part.is_empty())
        && dotted.split('.').count() <= mayfly_value::paths::MAX_PATH_PARTS
}
