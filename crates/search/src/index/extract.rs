//! Reads what a `search` index keeps of a document, by the mappings of its definition.

use std::collections::BTreeMap;

use mayfly_value::{RawDoc, RawValue};

use crate::Definition;
use crate::definition::{DocumentMapping, Dynamic, FieldType, PostingsDetail, StringField};
use crate::fields::{Field, FieldKind, FieldName};
use crate::filter::value::{PRESENT, key_of};
use crate::limits::{MAX_DEPTH, MAX_VALUE_BYTES};
use crate::text::encoded::TermEncoder;
use crate::text::lower_case;

/// The values and the terms of a document, by field.
#[derive(Default)]
pub(super) struct Extract {
    pub(super) values: BTreeMap<String, Vec<Vec<u8>>>,
    pub(super) terms: BTreeMap<FieldName, (Field, TermEncoder)>,
}

/// The mapping of the documents at some path: its own one, or only dynamic types.
#[derive(Clone, Copy)]
enum Mapping<'m> {
    Fixed(&'m DocumentMapping),
    Dynamic(&'m Dynamic),
}

/// Reads a document.
pub(super) fn extract(definition: &Definition, document: RawDoc<'_>) -> Extract {
    let mut extractor = Extractor { definition, extract: Extract::default() };
    extractor.document(document, Mapping::Fixed(&definition.mappings), "", 0);
    let mut extract = extractor.extract;
    for keys in extract.values.values_mut() {
        keys.retain(|key| key.len() <= MAX_VALUE_BYTES);
        keys.sort_unstable();
        keys.dedup();
    }
    extract
}

struct Extractor<'d> {
    definition: &'d Definition,
    extract: Extract,
}

impl Extractor<'_> {
    fn document(&mut self, document: RawDoc<'_>, mapping: Mapping<'_>, prefix: &str, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        for element in document {
            let name = element.name();
            let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
            let (types, inner) = match mapping {
                Mapping::Fixed(mapping) => match mapping.fields.get(name) {
                    Some(field) => (&field.types[..], field.document.as_ref().map(Mapping::Fixed)),
                    None => (&mapping.dynamic.types[..], Some(Mapping::Dynamic(&mapping.dynamic))),
                },
                Mapping::Dynamic(dynamic) => (&dynamic.types[..], Some(mapping)),
            };
            let is_dynamic = matches!(inner, Some(Mapping::Dynamic(_)));
            if types.is_empty() && (inner.is_none() || is_dynamic) {
                continue;
            }
            self.add_key(&path, PRESENT.to_vec());
            self.value(element.value(), types, inner, &path, depth);
        }
    }

    fn value(
        &mut self,
        value: RawValue<'_>,
        types: &[FieldType],
        inner: Option<Mapping<'_>>,
        path: &str,
        depth: usize,
    ) {
        match value {
            RawValue::Array(items) if depth <= MAX_DEPTH => {
                for item in items {
                    self.value(item.value(), types, inner, path, depth + 1);
                }
            }
            RawValue::Document(document) => {
                if let Some(inner) = inner {
                    self.document(document, inner, path, depth + 1);
                }
            }
            RawValue::Null => self.add_key(path, key_of(RawValue::Null)),
            value => types.iter().for_each(|field_type| self.typed(value, field_type, path)),
        }
    }

    fn typed(&mut self, value: RawValue<'_>, field_type: &FieldType, path: &str) {
        match (field_type, value) {
            (FieldType::Boolean, RawValue::Bool(_))
            | (FieldType::Date, RawValue::Date(_))
            | (FieldType::ObjectId, RawValue::ObjectId(_)) => self.add_key(path, key_of(value)),
            (FieldType::Uuid, RawValue::Binary { subtype: 4, bytes }) if bytes.len() == 16 => {
                self.add_key(path, key_of(value));
            }
            (FieldType::Number(field), RawValue::Int32(_) | RawValue::Int64(_))
                if field.integers =>
            {
                self.add_key(path, key_of(value));
            }
            (FieldType::Number(field), RawValue::Double(number)) if field.doubles => {
                let number = if field.truncates { number.trunc() } else { number };
                self.add_key(path, key_of(RawValue::Double(number)));
            }
            (FieldType::Token(field), RawValue::String(text)) => match field.is_lower_case {
                true => self.add_key(path, key_of(RawValue::String(&lower_case(text)))),
                false => self.add_key(path, key_of(value)),
            },
            (FieldType::String(field), RawValue::String(text)) => {
                self.add_words(path, "", field, field, text);
                for (name, multi) in &field.multi {
                    self.add_words(path, name, multi, field, text);
                }
            }
            (FieldType::Autocomplete(field), RawValue::String(text)) => {
                let name = (FieldKind::Parts, path.to_owned(), String::new());
                let detail = PostingsDetail::Positions;
                self.terms_of(name, detail, true).add_parts(field, text);
            }
            _ => {}
        }
    }

    fn add_words(
        &mut self,
        path: &str,
        multi: &str,
        field: &StringField,
        parent: &StringField,
        text: &str,
    ) {
        if field.ignore_above.is_some_and(|most| text.chars().nth(most).is_some()) {
            return;
        }
        let analyzer = field.analyzer.or(parent.analyzer).unwrap_or(self.definition.analyzer);
        let name = (FieldKind::Words, path.to_owned(), multi.to_owned());
        self.terms_of(name, field.detail, field.has_norms).add(analyzer, text);
    }

    fn terms_of(
        &mut self,
        name: FieldName,
        detail: PostingsDetail,
        has_norms: bool,
    ) -> &mut TermEncoder {
        let field = Field { name: name.clone(), detail, has_norms };
        let entry = self.extract.terms.entry(name);
        &mut entry.or_insert_with(|| (field, TermEncoder::new(detail))).1
    }

    fn add_key(&mut self, path: &str, key: Vec<u8>) {
        match self.extract.values.get_mut(path) {
            Some(keys) => keys.push(key),
            None => _ = self.extract.values.insert(path.to_owned(), vec![key]),
        }
    }
}
