//! `$jsonSchema`: the draft 4 keywords that the reference has, with its `bsonType`. A keyword about one type of value says
//! nothing about values of other types.

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
    /// Keys of the allowed values, fields of documents in no order.
    one_of_values: Option<HashSet<Vec<u8>>>,
    numbers: Numbers,
    texts: Texts,
    objects: Objects,
    arrays: Arrays,
    all_of: Vec<Schema>,
    any_of: Option<Vec<Schema>>,
    one_of: Option<Vec<Schema>>,
    not: Option<Box<Schema>>,
}

/// What is asked of numbers.
#[derive(Clone, Debug, Default)]
struct Numbers {
    minimum: Option<Number>,
    exclusive_minimum: bool,
    maximum: Option<Number>,
    exclusive_maximum: bool,
    multiple_of: Option<Number>,
}

/// What is asked of texts.
#[derive(Clone, Debug, Default)]
struct Texts {
    least: Option<i64>,
    most: Option<i64>,
    pattern: Option<Regex>,
}

/// What is asked of documents.
#[derive(Clone, Debug, Default)]
struct Objects {
    required: Vec<Box<str>>,
    /// Those of one name all count.
    properties: Names<Vec<Schema>>,
    pattern_properties: Vec<(Regex, Schema)>,
    additional: Option<Additional>,
    least: Option<i64>,
    most: Option<i64>,
    dependencies: Vec<(Box<str>, Dependency)>,
    /// How many names of fields these have that may be looked for.
    named: usize,
}

/// What is asked of arrays.
#[derive(Clone, Debug, Default)]
struct Arrays {
    items: Option<Items>,
    additional: Option<Additional>,
    least: Option<i64>,
    most: Option<i64>,
    unique: bool,
}

/// What is asked of fields or items that nothing else speaks of.
#[derive(Clone, Debug)]
enum Additional {
    /// There may be some, or not.
    Allowed(bool),
    /// They fit this.
    Fit(Box<Schema>),
}

/// What is asked of a document that has some field.
#[derive(Clone, Debug)]
enum Dependency {
    /// It has these, too.
    Fields(Vec<Box<str>>),
    /// It fits this.
    Fit(Box<Schema>),
}

/// `items`.
#[derive(Clone, Debug)]
enum Items {
    /// Every item fits this.
    Each(Box<Schema>),
    /// The first item fits the first, and so on.
    InTurn(Vec<Schema>),
}

impl Schema {
    /// Parses a schema.
    ///
    /// # Errors
    /// 9 FailedToParse for unknown keywords and values out of range, 14 TypeMismatch for values of the wrong type.
    pub fn parse(schema: RawDoc<'_>) -> Result<Schema> {
        parse::parse(schema, 0)
    }

    /// Whether a document fits.
    ///
    /// # Errors
    /// Those of a pattern.
    pub fn fits_document(&self, document: RawDoc<'_>) -> Result<bool> {
        self.fits(RawValue::Document(document))
    }
}

#[cfg(test)]
mod tests;
