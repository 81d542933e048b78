//! The stages `$search` and `$searchMeta`: their options, and the tree of their operators.

mod compound;
mod facets;
mod fields;
mod highlight;
mod node;
mod operators;
mod options;
mod pagination;
mod score;
mod sort;
mod values;
mod vectors;
mod words;

use mayfly_base::Result;
use mayfly_value::RawDoc;

pub(crate) use facets::{Buckets, Facet};
pub(crate) use highlight::HighlightOptions;
pub(crate) use node::{
    CasedPattern, Compound, Criteria, Fuzzy, Nearest, Node, NumberKind, Pattern, WordPath,
};
pub(crate) use pagination::{Pagination, Place, checksum, token};
pub(crate) use score::{Expression, Gauss, PathValue, Score};
pub(crate) use sort::{SortField, SortKey, ValueChoice, invert};

use super::{Kind, Query};
use crate::fault::{FieldPath, refused};
use crate::limits::MAX_CLAUSES;
use crate::read::{Fields, UNBOUNDED};
use crate::{Definition, IndexKind};

/// A search by operators.
#[derive(Clone, Debug)]
pub(crate) struct SearchQuery {
    pub(crate) node: Node,
    /// The facets, by name. Empty: there is no collector.
    pub(crate) facets: Vec<(String, Facet)>,
    pub(crate) count: CountKind,
    /// Empty: by score, the greatest first.
    pub(crate) sort: Vec<SortField>,
    pub(crate) pagination: Option<Pagination>,
    pub(crate) highlight: Option<HighlightOptions>,
    /// Whether hits explain their scores.
    pub(crate) explains_scores: bool,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountKind {
    /// Up to this number; the count is then a lower bound.
    LowerBound(usize),
    /// All documents.
    Total,
}

/// Reads operators, and bounds their number.
pub(super) struct Reader<'d> {
    definition: &'d Definition,
    count: usize,
}

impl Reader<'_> {
    /// Counts a clause.
    fn count(&mut self, path: &FieldPath) -> Result<()> {
        self.count += 1;
        if self.count > MAX_CLAUSES {
            return Err(path.refuse(format_args!("is one of more than {MAX_CLAUSES} clauses")));
        }
        Ok(())
    }
}

/// Options that this server does not have, with what their errors say.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("returnScope", "a scope of returned documents"),
    ("sortBetaV1", "the older form of sorting"),
];

pub(super) fn parse(stage: RawDoc<'_>, definition: &Definition) -> Result<Query> {
    if definition.kind != IndexKind::Search {
        let text = "$search needs an index of type search, not one of type vectorSearch";
        return Err(refused(text));
    }
    let mut fields = Fields::new(stage, FieldPath::root())?;
    let index = fields.text("index")?.map(str::to_owned);
    for (name, what) in UNSUPPORTED {
        if fields.value(name).is_some() {
            return Err(fields.path_of(name).not_supported(what));
        }
    }
    check_ignored(&mut fields)?;
    let returns_stored_source = super::returns_stored_source(&mut fields, definition)?;
    let mut reader = Reader { definition, count: 0 };
    let (node, facets) = match fields.has("facet") {
        true => reader.collector(&mut fields)?,
        false => (reader.operator(&mut fields, 0)?, Vec::new()),
    };
    let sort = sort::parse(&mut fields)?;
    let search = SearchQuery {
        count: count(&mut fields)?,
        pagination: pagination::parse(&mut fields, &sort)?,
        highlight: highlight::parse(&mut fields, definition)?,
        explains_scores: fields.boolean("scoreDetails")?.unwrap_or(false),
        node,
        facets,
        sort,
    };
    vectors::check_options(&search, &fields)?;
    fields.finish()?;
    Ok(Query { kind: Kind::Search(Box::new(search)), index, limit: None, returns_stored_source })
}

/// Checks the options that have no effect here.
fn check_ignored(fields: &mut Fields<'_>) -> Result<()> {
    fields.boolean("concurrent")?;
    fields.string("searchNodePreference")?;
    if let Some(document) = fields.document("tracking")? {
        let mut members = Fields::new(document, fields.path_of("tracking"))?;
        let terms = members.string("searchTerms")?;
        members.required("searchTerms", terms)?;
        members.finish()?;
    }
    Ok(())
}

fn count(fields: &mut Fields<'_>) -> Result<CountKind> {
    /// The count from which on a lower bound is no exact count, unless the query names another one.
    const THRESHOLD: i64 = 1_000;
    let default = CountKind::LowerBound(THRESHOLD as usize);
    let Some(document) = fields.document("count")? else { return Ok(default) };
    let mut members = Fields::new(document, fields.path_of("count"))?;
    let is_total = members.choice("type", &[("lowerBound", false), ("total", true)])?;
    let threshold = members.whole("threshold", 0..=UNBOUNDED)?.unwrap_or(THRESHOLD);
    members.finish()?;
    Ok(match is_total {
        Some(true) => CountKind::Total,
        _ => CountKind::LowerBound(threshold as usize),
    })
}
