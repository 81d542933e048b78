//! `encryptedFields`: which paths of a collection are encrypted and how they are indexed, as the
//! collection's options and the clients' `encryptionInformation` have it. Manual: "create",
//! "encryptedFields".
//!
//! The command `create` checks the definition. Here only what the write path and the query path
//! need is read.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{Number, RawDoc, RawValue, type_name};

use crate::payload::{PayloadKind, RangeOptions, StoredKind, encrypted_bytes};

/// The encrypted fields of a collection.
#[derive(Clone, Debug, Default)]
pub struct EncryptedFields {
    fields: Vec<EncryptedField>,
}

/// An encrypted field.
#[derive(Clone, Debug)]
pub struct EncryptedField {
    /// Its path, with dots.
    pub path: String,
    /// Its data key.
    pub key_id: [u8; 16],
    /// The BSON type byte of its values, if it is declared.
    pub value_type: Option<u8>,
    /// Its index; `None` if it cannot be queried.
    pub index: Option<FieldIndex>,
    /// The parameters of a range index.
    pub range: RangeOptions,
}

/// How a field is indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the queries")]
pub enum FieldIndex {
    Equality,
    Range,
    /// Text search, which this crate does not have.
    Text,
}

impl EncryptedFields {
    /// Reads a definition that `create` has checked, or that a client sends.
    ///
    /// # Errors
    /// 9 FailedToParse.
    pub fn parse(definition: RawDoc<'_>) -> Result<EncryptedFields> {
        let fields = definition.get("fields").and_then(RawValue::as_array);
        let fields = fields.ok_or_else(|| fault("'fields' must be an array"))?;
        let field = |value: RawValue<'_>| {
            let document = value.as_document().ok_or_else(|| fault("a field must be an object"))?;
            EncryptedField::parse(document)
        };
        // The command `create` skips null, too.
        let given = fields.iter().map(|item| item.value()).filter(|value| *value != RawValue::Null);
        Ok(EncryptedFields { fields: given.map(field).collect::<Result<_>>()? })
    }

    /// Reads the definition for a collection in the `encryptionInformation` of a command:
    /// `{type: 1, schema: {"db.coll": {fields: [..]}}}`.
    ///
    /// # Errors
    /// 9 FailedToParse; 2 BadValue if it has no schema for the collection.
    pub fn of_command(information: RawDoc<'_>, namespace: &str) -> Result<EncryptedFields> {
        let kind = information.get("type").and_then(Number::from_value);
        if kind.and_then(Number::to_i64_exact) != Some(1) {
            return Err(fault("the 'type' of 'encryptionInformation' must be 1"));
        }
        let schema = information.get("schema").and_then(RawValue::as_document);
        let schema = schema.ok_or_else(|| fault("'schema' must be an object"))?;
        match schema.get(namespace).and_then(RawValue::as_document) {
            Some(definition) => EncryptedFields::parse(definition),
            None => Err(Error::bad_value(format!(
                "'encryptionInformation' has no schema for '{namespace}'"
            ))),
        }
    }

    /// The fields, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &EncryptedField> {
        self.fields.iter()
    }

    /// The fields that can be queried. Compaction needs a token for each of them.
    pub fn indexed(&self) -> impl Iterator<Item = &EncryptedField> {
        self.fields.iter().filter(|field| field.index.is_some())
    }

    /// The field at a path.
    pub fn at(&self, path: &str) -> Option<&EncryptedField> {
        self.fields.iter().find(|field| field.path == path)
    }

    /// Checks that the encrypted fields of a stored document are encrypted and have their types.
    /// Absent fields are allowed.
    ///
    /// # Errors
    /// 121 DocumentValidationFailure.
    pub fn check_stored(&self, document: RawDoc<'_>) -> Result<()> {
        for field in &self.fields {
            let Some(value) = value_at(document, &field.path) else { continue };
            let bytes = encrypted_bytes(value).unwrap_or_default();
            let expected = match field.index {
                None => PayloadKind::Unindexed,
                Some(FieldIndex::Equality) => PayloadKind::StoredEquality,
                Some(FieldIndex::Range) => PayloadKind::StoredRange,
                Some(FieldIndex::Text) => PayloadKind::StoredText,
            };
            // All stored kinds begin with the kind, the data key, and the type of the value.
            let has_type = field.value_type.is_none_or(|declared| bytes.get(17) == Some(&declared));
            if PayloadKind::of(bytes) != Some(expected) || !has_type {
                let declared = field.value_type.map_or("any type", type_name);
                return Err(Error::new(
                    ErrorCode::DocumentValidationFailure,
                    format!(
                        "Document failed validation: '{}' must be encrypted, with values of {declared}",
                        field.path
                    ),
                ));
            }
        }
        Ok(())
    }
}

impl EncryptedField {
    fn parse(field: RawDoc<'_>) -> Result<EncryptedField> {
        let path = field.get("path").and_then(RawValue::as_str);
        let path = path.ok_or_else(|| fault("the 'path' of a field must be a string"))?;
        let key_id = match field.get("keyId") {
            Some(RawValue::Binary { subtype: 4, bytes }) => bytes.try_into().ok(),
            _ => None,
        };
        let key_id = key_id.ok_or_else(|| fault("the 'keyId' of a field must be a UUID"))?;
        let value_type = match field.get("bsonType") {
            None => None,
            Some(RawValue::String(name)) => {
                let found = (1..=u8::MAX).find(|byte| type_name(*byte) == name);
                Some(found.ok_or_else(|| fault(format_args!("unknown type '{name}'")))?)
            }
            Some(_) => return Err(fault("the 'bsonType' of a field must be a string")),
        };
        let query = match field.get("queries") {
            Some(RawValue::Array(queries)) => {
                queries.iter().find_map(|item| item.value().as_document())
            }
            Some(RawValue::Document(query)) => Some(query),
            _ => None,
        };
        let index = match query.map(|query| query.get("queryType").and_then(RawValue::as_str)) {
            None => None,
            Some(Some("equality")) => Some(FieldIndex::Equality),
            Some(Some("range" | "rangePreview")) => Some(FieldIndex::Range),
            Some(Some(name)) if is_text_query(name) => Some(FieldIndex::Text),
            Some(name) => {
                let name = name.unwrap_or_default();
                return Err(fault(format_args!("unknown query type '{name}'")));
            }
        };
        let names = ["sparsity", "precision", "trimFactor", "min", "max"];
        let range = query.map(|query| RangeOptions::read(query, names)).unwrap_or_default();
        Ok(EncryptedField { path: path.to_owned(), key_id, value_type, index, range })
    }

    /// Checks that the index of the field is one for such values, with the same parameters.
    ///
    /// # Errors
    /// 2 BadValue.
    pub(crate) fn check_index(&self, kind: StoredKind, range: &RangeOptions) -> Result<()> {
        let (expected, name) = match kind {
            StoredKind::Equality => (FieldIndex::Equality, "equality"),
            StoredKind::Range => (FieldIndex::Range, "range"),
        };
        if self.index == Some(expected) {
            return self.range.check(range, &self.path);
        }
        let path = &self.path;
        Err(Error::bad_value(format!("encrypted field '{path}' has no index for {name} queries")))
    }
}

/// Names of queries that search text: `prefix`, and `prefixPreview` in servers before 8.3.
fn is_text_query(name: &str) -> bool {
    let kind = name.strip_suffix("Preview").unwrap_or(name);
    matches!(kind, "substring" | "suffix" | "prefix")
}

fn fault(text: impl std::fmt::Display) -> Error {
    Error::failed_to_parse(format!("invalid encrypted fields: {text}"))
}

/// The value at a path through documents. Encrypted fields are not inside of arrays.
fn value_at<'a>(document: RawDoc<'a>, path: &str) -> Option<RawValue<'a>> {
    match path.split_once('.') {
        None => document.get(path),
        Some((first, rest)) => value_at(document.get(first)?.as_document()?, rest),
    }
}
