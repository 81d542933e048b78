//! The types of a path, by the mappings of a definition.

use crate::Definition;
use crate::definition::{AnalyzerName, DocumentMapping, Dynamic, FieldMapping, FieldType};

impl Definition {
    /// The types with which the values at a path are indexed; empty if they are not.
    pub(crate) fn types_at(&self, path: &str) -> &[FieldType] {
        let (mut mapping, mut dynamic): (Option<&DocumentMapping>, Option<&Dynamic>) =
            (Some(&self.mappings), None);
        let mut types: &[FieldType] = &[];
        for part in path.split('.') {
            let field: Option<&FieldMapping> = mapping.and_then(|mapping| mapping.fields.get(part));
            match (field, mapping, dynamic) {
                (Some(field), _, _) => {
                    types = &field.types;
                    mapping = field.document.as_ref();
                }
                (None, Some(inside), _) => {
                    types = &inside.dynamic.types;
                    (mapping, dynamic) = (None, Some(&inside.dynamic));
                }
                (None, None, Some(dynamic)) => types = &dynamic.types,
                (None, None, None) => return &[],
            }
        }
        types
    }

    /// The analyzer of the words at a path; `None`: it has no words.
    pub(crate) fn document_analyzer_at(&self, path: &str, multi: &str) -> Option<AnalyzerName> {
        let of = |field_type: &FieldType| match field_type {
            FieldType::String(parent) => {
                let field = if multi.is_empty() { parent } else { parent.multi.get(multi)? };
                Some(field.analyzer.or(parent.analyzer).unwrap_or(self.analyzer))
            }
            _ => None,
        };
        self.types_at(path).iter().find_map(of)
    }

    /// The analyzer of queries on the words at a path; `None`: it has no words.
    pub(crate) fn analyzer_at(&self, path: &str, multi: &str) -> Option<AnalyzerName> {
        let of = |field_type: &FieldType| match field_type {
            FieldType::String(parent) => {
                let field = if multi.is_empty() { parent } else { parent.multi.get(multi)? };
                let named = field.search_analyzer.or(field.analyzer);
                let inherited = named.or(parent.search_analyzer).or(parent.analyzer);
                Some(inherited.or(self.search_analyzer).unwrap_or(self.analyzer))
            }
            _ => None,
        };
        self.types_at(path).iter().find_map(of)
    }
}
