//! Reads what a `search` index keeps of a document, by the mappings of its definition.

use std::collections::BTreeMap;

use mayfly_value::{RawDoc, RawValue};

use crate::Definition;
use crate::definition::{DocumentMapping, Dynamic, FieldType, PostingsDetail, StringField};
use crate::fields::{FieldKind, FieldRef, GrowingTable};
use crate::filter::value::{key_of, order_keys};
use crate::limits::MAX_DEPTH;
use crate::text::encoded::TermEncoder;
use crate::text::lower_case;

/// The values and the terms of a document, by field.
#[derive(Default)]
pub(super) struct Extract {
    pub(super) values: BTreeMap<u16, Vec<Vec<u8>>>,
    pub(super) terms: BTreeMap<u16, TermEncoder>,
}

impl Extract {
    /// Reads a document, and adds its fields to the table.
    pub(super) fn of(
        definition: &Definition,
        table: &mut GrowingTable<'_>,
        document: RawDoc<'_>,
    ) -> Extract {
        let (path, term) = (String::new(), String::new());
        let mut extractor =
            Extractor { definition, table, path, term, extract: Extract::default() };
        extractor.document(document, Mapping::Fixed(&definition.mappings), 0);
        let mut extract = extractor.extract;
        extract.values.values_mut().for_each(order_keys);
        extract
    }
}

/// The mapping of the documents at some path: its own one, or only dynamic types.
#[derive(Clone, Copy)]
enum Mapping<'m> {
    Fixed(&'m DocumentMapping),
    Dynamic(&'m Dynamic),
}

struct Extractor<'d, 't> {
    definition: &'d Definition,
    table: &'d mut GrowingTable<'t>,
    /// The path of the value that is read.
    path: String,
    /// A buffer for terms.
    term: String,
    extract: Extract,
}

impl Extractor<'_, '_> {
    fn document(&mut self, document: RawDoc<'_>, mapping: Mapping<'_>, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        let prefix = self.path.len();
        for element in document {
            let name = element.name();
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
            if prefix > 0 {
                self.path.push('.');
            }
            self.path.push_str(name);
            if let Some(number) = self.table.number_of_values(&self.path) {
                self.extract.values.entry(number).or_default();
                self.value(element.value(), (types, inner), number, depth);
            }
            self.path.truncate(prefix);
        }
    }

    /// Reads a value at the path, whose values have this number.
    fn value(
        &mut self,
        value: RawValue<'_>,
        (types, inner): (&[FieldType], Option<Mapping<'_>>),
        number: u16,
        depth: usize,
    ) {
        match value {
            RawValue::Array(items) if depth <= MAX_DEPTH => {
                for item in items {
                    self.value(item.value(), (types, inner), number, depth + 1);
                }
            }
            RawValue::Document(document) => {
                if let Some(inner) = inner {
                    self.document(document, inner, depth + 1);
                }
            }
            RawValue::Null => self.add_key(number, key_of(RawValue::Null)),
            value => types.iter().for_each(|field_type| self.typed(value, field_type, number)),
        }
    }

    fn typed(&mut self, value: RawValue<'_>, field_type: &FieldType, number: u16) {
        match (field_type, value) {
            (FieldType::Boolean, RawValue::Bool(_))
            | (FieldType::Date, RawValue::Date(_))
            | (FieldType::ObjectId, RawValue::ObjectId(_)) => self.add_key(number, key_of(value)),
            (FieldType::Uuid, RawValue::Binary { subtype: 4, bytes }) if bytes.len() == 16 => {
                self.add_key(number, key_of(value));
            }
            (FieldType::Number(field), RawValue::Int32(_) | RawValue::Int64(_))
                if field.integers =>
            {
                self.add_key(number, key_of(value));
            }
            (FieldType::Number(field), RawValue::Double(double)) if field.doubles => {
                let double = if field.truncates { double.trunc() } else { double };
                self.add_key(number, key_of(RawValue::Double(double)));
            }
            (FieldType::Token(field), RawValue::String(text)) => match field.is_lower_case {
                true => self.add_key(number, key_of(RawValue::String(&lower_case(text)))),
                false => self.add_key(number, key_of(value)),
            },
            (FieldType::String(field), RawValue::String(text)) => {
                self.add_words("", field, field, text);
                for (name, multi) in &field.multi {
                    self.add_words(name, multi, field, text);
                }
            }
            (FieldType::Autocomplete(field), RawValue::String(text)) => {
                let name = (FieldKind::Parts, "");
                if let Some((terms, _)) = self.terms_of(name, PostingsDetail::Positions, true) {
                    terms.add_parts(field, text);
                }
            }
            _ => {}
        }
    }

    fn add_words(&mut self, multi: &str, field: &StringField, parent: &StringField, text: &str) {
        if field.ignore_above.is_some_and(|most| text.chars().nth(most).is_some()) {
            return;
        }
        let analyzer = field.analyzer.or(parent.analyzer).unwrap_or(self.definition.analyzer);
        let name = (FieldKind::Words, multi);
        if let Some((terms, buffer)) = self.terms_of(name, field.detail, field.has_norms) {
            terms.add(analyzer, text, buffer);
        }
    }

    /// The terms of a field at the path, and the buffer. `None`: the table is full.
    fn terms_of(
        &mut self,
        (kind, multi): (FieldKind, &str),
        detail: PostingsDetail,
        has_norms: bool,
    ) -> Option<(&mut TermEncoder, &mut String)> {
        let path = &*self.path;
        let number = self.table.number(&FieldRef { kind, path, multi, detail, has_norms })?;
        let terms = self.extract.terms.entry(number);
        let terms = terms.or_insert_with(|| TermEncoder::new(detail));
        Some((terms, &mut self.term))
    }

    fn add_key(&mut self, number: u16, key: Vec<u8>) {
        self.extract.values.entry(number).or_default().push(key);
    }
}
