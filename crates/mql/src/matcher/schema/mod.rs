//! `$jsonSchema`: the draft 4 keywords that the reference supports, and its `bsonType`. A keyword
//! for one type of value does not restrict values of other types.

mod evaluate;
pub(super) mod explain;
mod parse;

use std::collections::HashSet;

use mayfly_base::Result;
use mayfly_value::{Names, Number, RawDoc, RawValue};

use super::{Regex, TypeSet};

/// A parsed schema.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    types: Option<TypeSet>,
    /// Keys of the allowed values, independent of the order of fields in documents.
    one_of_values: Option<HashSet<Vec<u8>>>,
    numbers: NumberRules,
    texts: StringRules,
    objects: ObjectRules,
    arrays: ArrayRules,
    all_of: Vec<Schema>,
    any_of: Option<Vec<Schema>>,
    one_of: Option<Vec<Schema>>,
    not: Option<Box<Schema>>,
}

/// Rules for numbers.
#[derive(Clone, Debug, Default)]
struct NumberRules {
    minimum: Option<Number>,
    exclusive_minimum: bool,
    maximum: Option<Number>,
    exclusive_maximum: bool,
    multiple_of: Option<Number>,
}

/// Rules for strings.
#[derive(Clone, Debug, Default)]
struct StringRules {
    least: Option<i64>,
    most: Option<i64>,
    pattern: Option<Regex>,
}

/// Rules for documents.
#[derive(Clone, Debug, Default)]
struct ObjectRules {
    required: Vec<Box<str>>,
    /// All schemas with the same name apply.
    properties: Names<Vec<Schema>>,
    pattern_properties: Vec<(Regex, Schema)>,
    additional: Option<AdditionalRule>,
    least: Option<i64>,
    most: Option<i64>,
    dependencies: Vec<(Box<str>, Dependency)>,
    /// Number of field names that may be looked up.
    named: usize,
}

/// Rules for arrays.
#[derive(Clone, Debug, Default)]
struct ArrayRules {
    items: Option<Items>,
    additional: Option<AdditionalRule>,
    least: Option<i64>,
    most: Option<i64>,
    unique: bool,
}

/// The rule for fields or items without a schema of their own.
#[derive(Clone, Debug)]
enum AdditionalRule {
    /// Whether they are allowed.
    Allowed(bool),
    /// They must satisfy this schema.
    Fit(Box<Schema>),
}

/// The rule for a document with a certain field.
#[derive(Clone, Debug)]
enum Dependency {
    /// It must have these fields too.
    Fields(Vec<Box<str>>),
    /// It must satisfy this schema.
    Fit(Box<Schema>),
}

/// The keyword `items`.
#[derive(Clone, Debug)]
enum Items {
    /// All items must satisfy this schema.
    Each(Box<Schema>),
    /// Each item must satisfy the schema with the same index.
    InTurn(Vec<Schema>),
}

impl Schema {
    /// Parses a schema.
    ///
    /// # Errors
    /// 9 FailedToParse for unknown keywords and values out of range, 14 TypeMismatch for values of
    /// the wrong type.
    pub fn parse(schema: RawDoc<'_>) -> Result<Schema> {
        parse::parse(schema, 0)
    }

    /// Whether a document satisfies the schema.
    ///
    /// # Errors
    /// Errors of regular expressions.
    pub fn fits_document(&self, document: RawDoc<'_>) -> Result<bool> {
        self.fits(RawValue::Document(document))
    }
}

#[cfg(test)]
mod tests;
