//! What a search says of all its documents together: their count, and the buckets of facets.
//! Hidden documents are in none of them.

use std::collections::BTreeMap;

use mayfly_base::Result;
use mayfly_value::keys::{TypeBits, TypeBitsReader, decode_value};
use mayfly_value::{DocBuf, DocBuilder, RawValue, SortOrder, ValueBuf};

use super::view::View;
use super::{Control, Index, Part};
use crate::fields::FieldKind;
use crate::filter::value::key_of;
use crate::filter::{BitSet, Column};
use crate::query::{Buckets, CountKind, Facet, Kind, Query, SearchQuery};

/// Keys between two calls of the check.
const BLOCK: usize = 4_096;

/// The numbers of documents in the buckets of a facet.
enum Counts {
    /// By the key of the string.
    Strings(BTreeMap<Vec<u8>, u64>),
    /// By the number of the bucket.
    Ranges(Vec<u64>),
}

impl Index {
    /// The document that `$searchMeta` returns, and that `$$SEARCH_META` is in a `$search`:
    /// `{count: {lowerBound | total: ..}, facet: {<name>: {buckets: [{_id, count}, ..]}}}`.
    ///
    /// # Errors
    /// Errors of [`Control::check`], and code 8 for a pattern that needs too much work.
    pub fn metadata(&self, query: &Query, control: &dyn Control) -> Result<DocBuf> {
        let Kind::Search(search) = &query.kind else { return Ok(DocBuf::empty()) };
        let view = self.view()?;
        let planner = view.planner(&self.definition, &search.node, control)?;
        let most = match search.count {
            CountKind::LowerBound(threshold) if search.facets.is_empty() => threshold + 1,
            _ => usize::MAX,
        };
        let set = |part: &Part| BitSet::new(part.segment.len());
        let mut shown: Vec<BitSet> = match search.facets.is_empty() {
            true => Vec::new(),
            false => view.parts.iter().map(set).collect(),
        };
        let count = view.each_visible(&planner, &search.node, most, |part, ordinal| {
            if let Some(shown) = shown.get_mut(part) {
                shown.insert(ordinal);
            }
        })?;
        let mut counts: Vec<Counts> =
            search.facets.iter().map(|(_, facet)| Counts::of(facet)).collect();
        for (part, shown) in view.parts.iter().zip(&shown) {
            for ((_, facet), counts) in search.facets.iter().zip(&mut counts) {
                control.check()?;
                counts.add(facet, &view, (part, shown), control)?;
            }
        }
        Ok(document(search, count as u64, &counts))
    }
}

impl Counts {
    fn of(facet: &Facet) -> Counts {
        match &facet.buckets {
            Buckets::Strings(_) => Counts::Strings(BTreeMap::new()),
            Buckets::Ranges(boundaries, _) => Counts::Ranges(vec![0; boundaries.len() - 1]),
        }
    }

    /// Counts documents of a part.
    fn add(
        &mut self,
        facet: &Facet,
        view: &View,
        (part, shown): (&Part, &BitSet),
        control: &dyn Control,
    ) -> Result<()> {
        let number = view.table.find(FieldKind::Values, &facet.path, "");
        let Some(column) = number.and_then(|number| part.segment.column(usize::from(number)))
        else {
            return Ok(());
        };
        match (self, &facet.buckets) {
            (Counts::Strings(counts), _) => add_strings(counts, &column, shown, control)?,
            (Counts::Ranges(counts), Buckets::Ranges(boundaries, _)) => {
                for (count, pair) in counts.iter_mut().zip(boundaries.windows(2)) {
                    let mut selected = BitSet::new(part.segment.len());
                    let range = key_of(pair[0].as_raw())..key_of(pair[1].as_raw());
                    column.select_range(&range, &mut selected, &|| control.check())?;
                    selected.intersect(shown);
                    *count += selected.count() as u64;
                }
            }
            (Counts::Ranges(_), Buckets::Strings(_)) => {}
        }
        Ok(())
    }
}

fn add_strings(
    counts: &mut BTreeMap<Vec<u8>, u64>,
    column: &Column<'_>,
    shown: &BitSet,
    control: &dyn Control,
) -> Result<()> {
    for place in 0..column.len() {
        if place % BLOCK == 0 {
            control.check()?;
        }
        let key = column.key(place);
        if !matches!(decode(key).as_ref().map(ValueBuf::as_raw), Some(RawValue::String(_))) {
            continue;
        }
        let documents = column.list(place).filter(|document| shown.contains(*document as usize));
        let count = documents.count() as u64;
        if count > 0 {
            *counts.entry(key.to_vec()).or_default() += count;
        }
    }
    Ok(())
}

/// The value of a key.
fn decode(key: &[u8]) -> Option<ValueBuf> {
    let bits = TypeBits::new();
    let mut bits = TypeBitsReader::new(bits.as_bytes());
    decode_value(key, SortOrder::Ascending, &mut bits).map(|(value, _)| value)
}

fn document(search: &SearchQuery, count: u64, counts: &[Counts]) -> DocBuf {
    let mut out = DocBuilder::new();
    out.start_document("count");
    let name = match search.count {
        CountKind::LowerBound(_) => "lowerBound",
        CountKind::Total => "total",
    };
    out.append(name, RawValue::Int64(count as i64)).end();
    if !search.facets.is_empty() {
        out.start_document("facet");
        for ((name, facet), counts) in search.facets.iter().zip(counts) {
            out.start_document(name).start_array("buckets");
            append_buckets(&mut out, facet, counts, count);
            out.end().end();
        }
        out.end();
    }
    out.finish()
}

fn append_buckets(out: &mut DocBuilder, facet: &Facet, counts: &Counts, total: u64) {
    match (counts, &facet.buckets) {
        (Counts::Strings(counts), Buckets::Strings(most)) => {
            let mut buckets: Vec<(&Vec<u8>, u64)> =
                counts.iter().map(|(key, count)| (key, *count)).collect();
            // The sort keeps the order of strings with equal counts.
            buckets.sort_by_key(|bucket| std::cmp::Reverse(bucket.1));
            for (key, count) in buckets.into_iter().take(*most) {
                if let Some(value) = decode(key) {
                    append_bucket(out, value.as_raw(), count);
                }
            }
        }
        (Counts::Ranges(counts), Buckets::Ranges(boundaries, default)) => {
            for (boundary, count) in boundaries.iter().zip(counts) {
                append_bucket(out, boundary.as_raw(), *count);
            }
            if let Some(name) = default {
                let inside: u64 = counts.iter().sum();
                append_bucket(out, RawValue::String(name), total.saturating_sub(inside));
            }
        }
        _ => {}
    }
}

fn append_bucket(out: &mut DocBuilder, id: RawValue<'_>, count: u64) {
    out.push_document().append("_id", id).append("count", RawValue::Int64(count as i64)).end();
}
