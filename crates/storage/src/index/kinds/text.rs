//! Text indexes: an entry for each term of a document, with its score (manual, "Text Indexes on
//! Self-Managed Deployments").
//!
//! ```text
//! { a: 1, b: "text", c: "text", d: 1 }   as requested
//! { a: 1, _fts: "text", _ftsx: 1, d: 1 } as listed, with the text fields under "weights"
//! value of a | term | score | value of d entries of a document
//! ```
//!
//! A document without terms has no entries. [`TextSpec`] defines which strings are indexed, their
//! terms, and their scores.

use std::collections::BTreeMap;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_text::{Language, TextSpec, stored_term};
use mayfly_value::keys;
use mayfly_value::paths::array_index;
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawElement, RawValue};

use super::{
    FieldKind, IndexKind, KindCount, KindRow, Maintenance, Mark, OptionForm, OtherOptions,
    OverMeasurements, Requested, cannot_create, wrong_type,
};
use crate::index::keygen::KeySet;
use crate::index::spec::{IndexField, IndexSpec};
use crate::record::Record;

pub(super) const ROW: KindRow = KindRow {
    name: "text",
    mark: Mark::Value,
    field: FieldKind::Text,
    options: &[
        OptionForm::Weights.option("weights"),
        OptionForm::String.option("default_language"),
        OptionForm::String.option("language_override"),
        OptionForm::Number.option("textIndexVersion"),
    ],
    other_options: OtherOptions::Differ,
    over_measurements: OverMeasurements::Never("Text indexes"),
    count: KindCount::One,
    maintenance: Maintenance::Writes,
    request,
    from_catalog: |spec, _| Ok(Arc::new(TextIndex::from_catalog(spec)?)),
};

/// The version of new definitions. Indexes of older versions have the same entries.
const VERSION: i32 = 3;
/// Weights are greater than 0 and less than this.
const MAX_WEIGHT: i32 = 100_000;
/// The largest size of all terms of one document.
const MAX_TERMS_BYTES: usize = 4 * 1024 * 1024;
/// The name of a key's field that stands for all strings.
const WILDCARD: &str = "$**";

/// The compiled definition of a text index.
#[derive(Clone, Debug)]
pub struct TextIndex {
    spec: Arc<TextSpec>,
}

/// Checks a requested definition.
///
/// # Errors
/// 14 TypeMismatch, 67 CannotCreateIndex.
fn request(raw: RawDoc<'_>, key: RawDoc<'_>) -> Result<Requested> {
    let mut weights = BTreeMap::new();
    let listed = listed_key(key, &mut weights)?;
    add_weights(raw, &mut weights)?;
    let mut requested = Requested { key: Some(listed), ..Requested::default() };
    let options = &mut requested.options;
    options.start_document("weights");
    for (path, weight) in &weights {
        options.append(path, *weight);
    }
    options.end();
    options.append("default_language", default_language(raw)?);
    options.append("language_override", language_override(raw)?);
    options.append("textIndexVersion", version(raw)?);
    Ok(requested)
}

fn is_text(element: &RawElement<'_>) -> bool {
    element.value() == RawValue::String("text")
}

/// The key as it is listed: ordinary fields, the two text fields, ordinary fields.
fn listed_key(key: RawDoc<'_>, weights: &mut BTreeMap<String, i32>) -> Result<DocBuf> {
    let given = key.get("_fts").is_some();
    let mut out = DocBuilder::new();
    let (mut texts, mut behind) = (false, false);
    let mut fields = key.iter().peekable();
    while let Some(element) = fields.next() {
        match element.name() {
            "_fts" if is_text(&element) && !texts => {
                texts = true;
                let next = fields.next().filter(|next| next.name() == "_ftsx");
                let Some(next) = next else {
                    return Err(cannot_create("expected _ftsx after _fts"));
                };
                if Number::from_value(next.value()).and_then(Number::to_i64_exact) != Some(1) {
                    return Err(cannot_create("expecting _ftsx:1"));
                }
                out.append("_fts", "text").append("_ftsx", 1);
            }
            "_fts" => return Err(cannot_create("expecting _fts:\"text\"")),
            "_ftsx" => {
                return Err(cannot_create(
                    "text index with reserved fields _fts/_ftsx not allowed",
                ));
            }
            path if is_text(&element) => {
                if behind || given {
                    return Err(cannot_create("'text' fields in index must all be adjacent"));
                }
                if !texts {
                    out.append("_fts", "text").append("_ftsx", 1);
                }
                texts = true;
                weights.insert(path.to_owned(), 1);
            }
            _ => {
                behind = texts;
                ordinary(element)?;
                out.append_element(element);
            }
        }
    }
    Ok(out.finish())
}

/// Checks a field of the key that is not one of the text fields.
fn ordinary(element: RawElement<'_>) -> Result<()> {
    match FieldKind::of(element.name(), element.value()) {
        Some(FieldKind::Ordered) => {}
        _ => return Err(cannot_create("Can't use more than one index plugin for a single index.")),
    }
    match Number::from_value(element.value()).and_then(Number::to_i64_truncated) {
        Some(1 | -1) => Ok(()),
        _ => Err(cannot_create("expected value 1 or -1 for non-text key in compound index")),
    }
}

fn add_weights(raw: RawDoc<'_>, weights: &mut BTreeMap<String, i32>) -> Result<()> {
    match raw.get("weights") {
        None => {}
        Some(RawValue::Document(given)) => {
            for weight in given {
                let Some(number) = Number::from_value(weight.value()) else {
                    return Err(cannot_create("weight for text index needs numeric type"));
                };
                let number = number.to_i64_truncated().and_then(|it| i32::try_from(it).ok());
                weights.insert(weight.name().to_owned(), number.unwrap_or(i32::MAX));
            }
        }
        Some(RawValue::String(WILDCARD)) => {
            weights.insert(WILDCARD.to_owned(), 1);
        }
        Some(RawValue::String(_) | RawValue::Array(_)) => {
            return Err(cannot_create("text index option 'weights' must be an object"));
        }
        Some(other) => return Err(wrong_type("weights", other, "an object")),
    }
    if weights.is_empty() {
        let text = "text index option 'weights' must specify fields or the wildcard";
        return Err(cannot_create(text));
    }
    for (path, weight) in weights.iter() {
        if *weight <= 0 || *weight >= MAX_WEIGHT {
            return Err(cannot_create(format!(
                "text index weight must be in the exclusive interval (0,{MAX_WEIGHT}) but found: {weight}"
            )));
        }
        check_weighted(path)?;
    }
    Ok(())
}

fn check_weighted(path: &str) -> Result<()> {
    if path == WILDCARD {
        return Ok(());
    }
    if path.is_empty() {
        return Err(cannot_create("weight cannot be on an empty field"));
    }
    match path.split('.').find(|part| part.is_empty() || part.starts_with('$')) {
        None => Ok(()),
        Some("") => Err(cannot_create("weight cannot have empty path component")),
        Some(_) => Err(cannot_create("weight cannot have path component with $ prefix")),
    }
}

fn default_language(raw: RawDoc<'_>) -> Result<&str> {
    match raw.get("default_language") {
        None => Ok("english"),
        Some(RawValue::String(name)) if Language::find(name).is_some() => Ok(name),
        Some(RawValue::String(_)) => Err(cannot_create("default_language is not valid")),
        Some(other) => Err(wrong_type("default_language", other, "a string")),
    }
}

fn language_override(raw: RawDoc<'_>) -> Result<&str> {
    match raw.get("language_override") {
        None => Ok("language"),
        Some(RawValue::String(name)) => {
            match name.is_empty() || name.starts_with('$') || name.contains('.') {
                true => Err(cannot_create("language_override is not valid")),
                false => Ok(name),
            }
        }
        Some(other) => Err(wrong_type("language_override", other, "a string")),
    }
}

fn version(raw: RawDoc<'_>) -> Result<i32> {
    let Some(value) = raw.get("textIndexVersion") else { return Ok(VERSION) };
    let Some(number) = Number::from_value(value) else {
        return Err(wrong_type("textIndexVersion", value, "a number"));
    };
    if matches!(value, RawValue::Decimal128(_)) {
        return Err(cannot_create("text index option 'textIndexVersion' must not be a decimal"));
    }
    match number.to_i64_truncated() {
        Some(version @ 1..=3) => Ok(version as i32),
        other => Err(cannot_create(format!("bad textIndexVersion: {}", other.unwrap_or_default()))),
    }
}

/// Refuses collations: terms are not compared by one.
///
/// # Errors
/// 67 CannotCreateIndex.
fn check_collation(spec: &IndexSpec) -> Result<()> {
    match spec.collation() {
        Some(collation) => Err(cannot_create(format!(
            "Index type 'text' does not support collation: {}",
            Shell(collation.document())
        ))),
        None => Ok(()),
    }
}

impl IndexKind for TextIndex {
    fn row(&self) -> &'static KindRow {
        &ROW
    }

    fn check_in_collection(&self, spec: &IndexSpec) -> Result<()> {
        check_collation(spec)
    }

    fn keys(&self, spec: &IndexSpec, record: Record<'_>, out: &mut KeySet) -> Result<()> {
        let document = record.document;
        let scores = self.spec.score(document)?;
        if scores.is_empty() {
            return Ok(());
        }
        if scores.iter().map(|(term, _)| term.len()).sum::<usize>() > MAX_TERMS_BYTES {
            let id = document.get("_id").unwrap_or(RawValue::Null);
            return Err(Error::new(
                ErrorCode(16733),
                format!(
                    "trying to index text where term list is too big, max is {}MB _id:{}",
                    MAX_TERMS_BYTES / (1024 * 1024),
                    mayfly_value::shell::ShellValue(id)
                ),
            ));
        }
        let mut values = Vec::with_capacity(spec.fields().len());
        for field in spec.fields() {
            values.push(plain_value(document, field)?);
        }
        for (term, score) in scores.iter() {
            let term = stored_term(term);
            out.push(|key, bits| {
                for (field, value) in spec.fields().iter().zip(&values) {
                    let value = match (field.kind, field.path.as_str()) {
                        (FieldKind::Text, _) => RawValue::String(&term),
                        (_, "_ftsx") => RawValue::Double(score),
                        _ => *value,
                    };
                    keys::append_value(key, bits, value, field.order);
                }
            });
        }
        Ok(())
    }
}

impl TextIndex {
    /// Reads the definition in the catalog.
    fn from_catalog(spec: RawDoc<'_>) -> Result<TextIndex> {
        Ok(TextIndex { spec: Arc::new(TextSpec::parse(spec)?) })
    }

    /// The fields, weights and languages of the index.
    pub fn spec(&self) -> &Arc<TextSpec> {
        &self.spec
    }
}

/// The value of an ordinary field, which may not be an array, nor lie in one unless the path names
/// its position.
fn plain_value<'d>(document: RawDoc<'d>, field: &IndexField) -> Result<RawValue<'d>> {
    let mut value = RawValue::Document(document);
    for part in &field.parts {
        value = match value {
            RawValue::Document(inner) => inner.get(part).unwrap_or(RawValue::Null),
            RawValue::Array(items) => match array_index(part) {
                Some(at) => match items.iter().nth(at) {
                    Some(item) => item.value(),
                    None => return Ok(RawValue::Null),
                },
                None => break,
            },
            _ => return Ok(RawValue::Null),
        };
    }
    match value {
        RawValue::Array(_) => {
            let text = "cannot have a multi-key as a prefix to a text index";
            Err(Error::new(ErrorCode::CannotBuildIndexKeys, text))
        }
        value => Ok(value),
    }
}
