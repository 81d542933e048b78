//! Sort keys of index entries.

use mayfly_mql::SortPattern;
use mayfly_value::{SortOrder, keys};

use super::scan::IndexScan;

/// Converts index entries to sort keys, so that entries of different indexes can be compared.
pub(crate) struct SortKeys {
    /// For each sort field, its index among the index fields, and whether its bytes are inverted.
    places: Vec<(usize, bool)>,
    /// The order of each index field.
    orders: Vec<SortOrder>,
}

impl SortKeys {
    /// The conversion for a scan; `None` if the index lacks a sort field.
    pub(crate) fn of(scan: &IndexScan, pattern: &SortPattern) -> Option<SortKeys> {
        let fields = scan.fields();
        let place = |wanted: &mayfly_mql::SortField| {
            let at = fields.iter().position(|field| field.path == wanted.path.as_str())?;
            Some((at, fields[at].order != wanted.order))
        };
        let places = pattern.fields().iter().map(place).collect::<Option<_>>()?;
        Some(SortKeys { places, orders: fields.iter().map(|it| it.order).collect() })
    }

    /// Appends the sort key of an entry to `out`; `None` for malformed values.
    pub(crate) fn append(&self, values: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let mut ends = Vec::with_capacity(self.orders.len());
        let mut end = 0;
        for order in &self.orders {
            let length = keys::skip_value(values.get(end..)?, *order)?;
            ends.push((end, end + length));
            end += length;
        }
        for (at, turned) in &self.places {
            let (start, end) = *ends.get(*at)?;
            let value = values.get(start..end)?;
            match turned {
                true => out.extend(value.iter().map(|byte| !byte)),
                false => out.extend_from_slice(value),
            }
        }
        Some(())
    }
}
