//! Queries on values: sets of documents, distances, and the numbers of documents.

use std::collections::HashMap;
use std::sync::Arc;

use mayfly_value::keys::{TypeBits, TypeBitsReader, decode_value};
use mayfly_value::{RawValue, SortOrder};

use super::Planner;
use crate::fields::FieldKind;
use crate::filter::{BitSet, Test};
use crate::index::segment::Segment;
use crate::query::NumberKind;
use crate::text::weight::{ScoredQuery, SetQuery};

impl Planner<'_> {
    pub(super) fn values(&self, paths: &[String], test: &Test, segment: &Segment) -> SetQuery {
        let mut selected = BitSet::new(segment.len());
        for path in paths {
            let number = self.table.find(FieldKind::Values, path, "");
            let column = number.and_then(|number| segment.column(usize::from(number)));
            if let Some(column) = column {
                test.select(&column, &mut selected);
            }
        }
        SetQuery(Arc::new(selected))
    }

    /// The documents with a number or a date, scored by `pivot / (pivot + distance)`. Of several
    /// values of a document the nearest counts.
    pub(super) fn near(
        &self,
        paths: &[String],
        (origin, pivot): (f64, f64),
        kind: NumberKind,
        segment: &Segment,
    ) -> ScoredQuery {
        let mut scores: HashMap<u32, f32> = HashMap::new();
        for path in paths {
            let number = self.table.find(FieldKind::Values, path, "");
            let column = number.and_then(|number| segment.column(usize::from(number)));
            let Some(column) = column else { continue };
            for at in 0..column.len() {
                let Some(value) = number_in(column.key(at), kind) else { continue };
                let score = (pivot / (pivot + (value - origin).abs())) as f32;
                for document in column.list(at) {
                    let best = scores.entry(document).or_insert(score);
                    *best = best.max(score);
                }
            }
        }
        let mut scores: Vec<(u32, f32)> = scores.into_iter().collect();
        scores.sort_unstable_by_key(|score| score.0);
        ScoredQuery(Arc::new(scores))
    }
}

/// The number, or the milliseconds of the date, in a key.
pub(in crate::index) fn number_in(key: &[u8], kind: NumberKind) -> Option<f64> {
    let bits = TypeBits::new();
    let mut bits = TypeBitsReader::new(bits.as_bytes());
    let (value, _) = decode_value(key, SortOrder::Ascending, &mut bits)?;
    match value.as_raw() {
        RawValue::Date(time) if kind == NumberKind::Date => Some(time as f64),
        RawValue::Int32(number) if kind == NumberKind::Number => Some(f64::from(number)),
        RawValue::Int64(number) if kind == NumberKind::Number => Some(number as f64),
        RawValue::Double(number) if kind == NumberKind::Number && !number.is_nan() => Some(number),
        _ => None,
    }
}
