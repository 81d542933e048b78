//! Queries on values: sets of documents, distances, and the numbers of documents.

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_value::keys::{TypeBits, TypeBitsReader, decode_value};
use mayfly_value::{RawValue, SortOrder};

use super::Planner;
use crate::fields::FieldKind;
use crate::filter::{BitSet, Test};
use crate::index::segment::Segment;
use crate::query::NumberKind;
use crate::text::weight::{ScoredQuery, SetQuery};

/// Keys between two calls of the check.
const BLOCK: usize = 4_096;

impl Planner<'_> {
    pub(super) fn values(
        &self,
        paths: &[String],
        test: &Test,
        segment: &Segment,
    ) -> Result<SetQuery> {
        let mut selected = BitSet::new(segment.len());
        for path in paths {
            let number = self.table.find(FieldKind::Values, path, "");
            let column = number.and_then(|number| segment.column(usize::from(number)));
            if let Some(column) = column {
                test.select(&column, &mut selected, &|| self.control.check())?;
            }
        }
        Ok(SetQuery(Arc::new(selected), self.watch.clone()))
    }

    /// The documents with a number or a date, scored by `pivot / (pivot + distance)`. Of several
    /// values of a document the nearest counts.
    pub(super) fn near(
        &self,
        paths: &[String],
        (origin, pivot): (f64, f64),
        kind: NumberKind,
        segment: &Segment,
    ) -> Result<ScoredQuery> {
        // A score is never negative.
        let mut scores = vec![-1.0_f32; segment.len()];
        for path in paths {
            let number = self.table.find(FieldKind::Values, path, "");
            let column = number.and_then(|number| segment.column(usize::from(number)));
            let Some(column) = column else { continue };
            for at in 0..column.len() {
                if at % BLOCK == 0 {
                    self.control.check()?;
                }
                let Some(value) = number_in(column.key(at), kind) else { continue };
                let score = (pivot / (pivot + (value - origin).abs())).max(0.0) as f32;
                for document in column.list(at) {
                    if let Some(best) = scores.get_mut(document as usize) {
                        *best = best.max(score);
                    }
                }
            }
        }
        let found = (0..).zip(scores).filter(|(_, score)| *score >= 0.0);
        Ok(ScoredQuery(Arc::new(found.collect()), self.watch.clone()))
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
