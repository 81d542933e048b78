//! Dynamic mappings: the types of paths that have no mapping.

use std::collections::BTreeMap;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_value::RawValue;

use super::field_types::{FieldType, NumberField};
use super::mappings::parse_type;
use super::string::StringField;
use crate::fault::FieldPath;
use crate::read::Fields;

/// The types of paths that have no mapping. Empty: such paths are not indexed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dynamic {
    /// The types of every such path.
    pub types: Arc<[FieldType]>,
}

/// The sets of types that `dynamic` may name.
pub(super) type TypeSets = BTreeMap<String, Dynamic>;

/// What `dynamic: true` stands for.
fn default_types() -> Dynamic {
    let number = NumberField { integers: true, doubles: true, truncates: false };
    let types = [
        FieldType::Boolean,
        FieldType::Date,
        FieldType::Number(number),
        FieldType::ObjectId,
        FieldType::String(StringField::default()),
        FieldType::Uuid,
    ];
    Dynamic { types: Arc::from(types) }
}

/// Parses `typeSets` of a definition.
pub(super) fn parse_type_sets(fields: &mut Fields<'_>) -> Result<TypeSets> {
    let mut sets = TypeSets::new();
    let Some(items) = fields.array("typeSets")? else { return Ok(sets) };
    let path = fields.path_of("typeSets");
    if items.is_empty() {
        return Err(path.refuse("cannot be empty"));
    }
    for (at, element) in items.iter().enumerate() {
        let path = path.item(at);
        let RawValue::Document(document) = element.value() else {
            return Err(path.wrong_type("document", element.value()));
        };
        let mut members = Fields::new(document, path)?;
        let name = members.text("name")?;
        let name = members.required("name", name)?;
        let types = parse_types(&mut members)?;
        let path = members.path_of("name");
        members.finish()?;
        if sets.insert(name.to_owned(), types).is_some() {
            return Err(path.refuse(format_args!("\"{name}\" is the name of two type sets")));
        }
    }
    Ok(sets)
}

fn parse_types(members: &mut Fields<'_>) -> Result<Dynamic> {
    let items = members.array("types")?;
    let items = members.required("types", items)?;
    let path = members.path_of("types");
    if items.is_empty() {
        return Err(path.refuse("cannot be empty"));
    }
    let mut types = Vec::new();
    for (at, element) in items.iter().enumerate() {
        types.push(parse_dynamic_type(element.value(), path.item(at))?);
    }
    for (at, left) in types.iter().enumerate() {
        let is_same = |right| std::mem::discriminant(left) == std::mem::discriminant(right);
        if types[..at].iter().any(is_same) {
            return Err(path.item(at).refuse("repeats a type"));
        }
    }
    Ok(Dynamic { types: Arc::from(types) })
}

fn parse_dynamic_type(value: RawValue<'_>, path: FieldPath) -> Result<FieldType> {
    let kind_path = path.field("type");
    match parse_type(value, path, "")? {
        Some(FieldType::Vector(_)) | None => {
            Err(kind_path.refuse("must be a type that can be indexed dynamically"))
        }
        Some(field_type) => Ok(field_type),
    }
}

/// Parses `dynamic` of a mapping: a boolean, or a document that names a type set.
pub(super) fn parse(fields: &mut Fields<'_>, sets: &TypeSets) -> Result<Dynamic> {
    let path = fields.path_of("dynamic");
    let document = match fields.value("dynamic") {
        None | Some(RawValue::Bool(false)) => return Ok(Dynamic::default()),
        Some(RawValue::Bool(true)) => return Ok(default_types()),
        Some(RawValue::Document(document)) => document,
        Some(value) => return Err(path.wrong_type("boolean or document", value)),
    };
    let mut members = Fields::new(document, path)?;
    let name = members.text("typeSet")?;
    let name = members.required("typeSet", name)?;
    let path = members.path_of("typeSet");
    members.finish()?;
    match sets.get(name) {
        Some(types) => Ok(types.clone()),
        None => Err(path.refuse(format_args!("references the undefined type set \"{name}\""))),
    }
}
