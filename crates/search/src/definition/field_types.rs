//! The types of a path in a `search` index. A row reads the options of one type.

use mayfly_base::Result;

use super::string::{parse_autocomplete, parse_string};
use super::{AutocompleteField, StringField, VectorField, vector_field};
use crate::read::Fields;

/// A type of a path, with its options.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldType {
    /// Parts of words.
    Autocomplete(AutocompleteField),
    /// Booleans.
    Boolean,
    /// Dates.
    Date,
    /// Numbers, of these types.
    Number(NumberField),
    /// ObjectIds.
    ObjectId,
    /// Words of strings.
    String(StringField),
    /// Whole strings.
    Token(TokenField),
    /// UUIDs.
    Uuid,
    /// Vectors.
    Vector(VectorField),
}

/// Options of `number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberField {
    /// Whether int and long are indexed.
    pub integers: bool,
    /// Whether double is indexed.
    pub doubles: bool,
    /// Whether doubles are indexed without their fraction.
    pub truncates: bool,
}

/// Options of `token`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenField {
    /// Whether strings are indexed in lower case.
    pub is_lower_case: bool,
}

/// Reads the options of a type; the text is the dotted path of the field.
type ReadType = fn(&mut Fields<'_>, &str) -> Result<FieldType>;

/// What the name of a type stands for.
#[derive(Clone, Copy)]
pub(super) enum TypeRow {
    /// A type that this server has.
    Supported(ReadType),
    /// The mapping of an embedded document.
    Document,
    /// A type of the reference that this server does not have.
    Unsupported(&'static str),
}

use TypeRow::{Document, Supported, Unsupported};

/// All types of the reference. Those that it deprecates are accepted as the type they became.
pub(super) const ROWS: &[(&str, TypeRow)] = &[
    ("autocomplete", Supported(|f, _| parse_autocomplete(f).map(FieldType::Autocomplete))),
    ("boolean", Supported(|_, _| Ok(FieldType::Boolean))),
    ("date", Supported(|_, _| Ok(FieldType::Date))),
    ("dateFacet", Supported(|_, _| Ok(FieldType::Date))),
    ("document", Document),
    ("embeddedDocuments", Unsupported("the type \"embeddedDocuments\"")),
    ("geo", Unsupported("the type \"geo\"")),
    ("knnVector", Supported(|f, path| vector_field::parse_knn(f, path).map(FieldType::Vector))),
    ("number", Supported(|f, _| parse_number(f).map(FieldType::Number))),
    ("numberFacet", Supported(|f, _| parse_number(f).map(FieldType::Number))),
    ("objectId", Supported(|_, _| Ok(FieldType::ObjectId))),
    ("sortableDateBetaV1", Unsupported("the type \"sortableDateBetaV1\"")),
    ("sortableNumberBetaV1", Unsupported("the type \"sortableNumberBetaV1\"")),
    ("sortableStringBetaV1", Unsupported("the type \"sortableStringBetaV1\"")),
    ("string", Supported(|f, _| parse_string(f).map(FieldType::String))),
    ("stringFacet", Supported(|_, _| Ok(FieldType::Token(TokenField { is_lower_case: false })))),
    ("token", Supported(|f, _| parse_token(f).map(FieldType::Token))),
    ("uuid", Supported(|_, _| Ok(FieldType::Uuid))),
    ("vector", Supported(|f, path| vector_field::parse(f, path).map(FieldType::Vector))),
];

fn parse_number(fields: &mut Fields<'_>) -> Result<NumberField> {
    let choices = [("double", false), ("int64", true)];
    let field = NumberField {
        truncates: fields.choice("representation", &choices)?.unwrap_or(false),
        integers: fields.boolean("indexIntegers")?.unwrap_or(true),
        doubles: fields.boolean("indexDoubles")?.unwrap_or(true),
    };
    if !field.integers && !field.doubles {
        let text = "must index at least one of integers and doubles";
        return Err(fields.path().refuse(text));
    }
    Ok(field)
}

fn parse_token(fields: &mut Fields<'_>) -> Result<TokenField> {
    let choices = [("lowercase", true), ("none", false)];
    let is_lower_case = fields.choice("normalizer", &choices)?.unwrap_or(false);
    Ok(TokenField { is_lower_case })
}
