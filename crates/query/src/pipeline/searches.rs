//! The rows of stages that read search indexes, and the pipelines that begin with a search.

use mayfly_auth::Action;
use mayfly_value::RawDoc;

use super::row::{ParseStage, StageRow, row, source as of_source};
use crate::language::metadata::{SEARCH_SCORE, VECTOR_SEARCH_SCORE};
use crate::stage::{Needs, SearchKind, search, source};

/// Whether a pipeline begins with a search, also as the first pipeline of a fusion. Over a view, it
/// reads a search index of the view instead of the view's stages.
pub fn begins_with_search(stages: RawDoc<'_>) -> bool {
    let Some(row) = StageRow::first_of(stages) else { return false };
    let first = || stages.iter().next()?.value().as_document()?.iter().next();
    let fused = || {
        let input = first()?.value().as_document()?.get("input")?.as_document()?;
        input.get("pipelines")?.as_document()?.iter().next()?.value().as_array()
    };
    let searches = |stages| StageRow::first_of(stages).is_some_and(|row| row.searches);
    row.searches || row.fuses && fused().is_some_and(searches)
}

/// The row of a search.
const fn searching(
    (name, help, since): (&'static str, &'static str, &'static str),
    parse: ParseStage,
) -> StageRow {
    row((name, help, since, Needs::Input), parse).search().unstable()
}

pub(super) const SEARCH: StageRow = searching(
    ("$search", "Gives documents that a full-text search finds, best first", "4.2"),
    |value, context| search::parse(SearchKind::Search, value, context),
)
.ranked(SEARCH_SCORE);

pub(super) const SEARCH_BETA: StageRow =
    searching(("$searchBeta", "The former name of $search", "4.2"), |value, context| {
        search::parse(SearchKind::Search, value, context)
    })
    .ranked(SEARCH_SCORE);

pub(super) const SEARCH_META: StageRow = searching(
    ("$searchMeta", "Gives the number of documents that a search finds", "4.4"),
    |value, context| search::parse(SearchKind::Meta, value, context),
);

pub(super) const VECTOR_SEARCH: StageRow = searching(
    ("$vectorSearch", "Gives documents whose vectors are nearest, best first", "7.0.2"),
    |value, context| search::parse(SearchKind::Vector, value, context),
)
.ranked(VECTOR_SEARCH_SCORE);

pub(super) const LIST_SEARCH_INDEXES: StageRow = of_source(
    (
        "$listSearchIndexes",
        "Lists the search indexes of the collection",
        "7.0",
        Needs::Collection(Action::ListSearchIndexes),
    ),
    source::list_search_indexes,
)
.options(source::LIST_SEARCH_INDEXES)
.unstable()
.not_in_transactions();
