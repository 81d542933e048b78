//! What is known about a document beside its fields: the score of a text search, the distance of a geo search.
//!
//! Whoever finds a document notes it as a small document, `{ textScore: 1.5 }`, under the names that `$meta` uses. It then
//! travels beside the document: an argument of an executor's sink, a part of a sorter's rows, and in a pipeline the
//! [`InFlight`] of the stages' context. A pipeline is synchronous: the document that one stage shows to the next is the
//! only one on its way. So stages that hand results on at once need do nothing. Those that keep documents keep the
//! metadata with them and set it again before they show one; what is not set again is lost, as it is meant to be behind
//! `$group`. Queries without metadata pay a test for nothing.

use std::cell::RefCell;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_expr::{Frame, Scope};
use mayfly_mql::Matcher;
use mayfly_value::{DocBuf, RawDoc};

use crate::CanonicalQuery;
use crate::exec::scored;

/// The key of the index that led to the document.
pub(crate) const INDEX_KEY: &str = "indexKey";

/// The key of the document's record.
pub(crate) const RECORD_ID: &str = "recordId";

/// The score of a text search.
pub(crate) const TEXT_SCORE: &str = "textScore";

/// The distance from the point of a geo search, in its unit.
pub(crate) const GEO_NEAR_DISTANCE: &str = "geoNearDistance";

/// The place that the distance is of.
pub(crate) const GEO_NEAR_POINT: &str = "geoNearPoint";

/// What a geo search tells.
pub(crate) const GEO_NEAR: &[&str] = &[GEO_NEAR_DISTANCE, GEO_NEAR_POINT];

/// What is known about one document.
#[derive(Clone, Debug, Default)]
pub struct Metadata(Option<Arc<DocBuf>>);

impl Metadata {
    /// Nothing is known.
    pub const NONE: Metadata = Metadata(None);

    /// This is known.
    pub fn new(notes: DocBuf) -> Metadata {
        Metadata(Some(Arc::new(notes)))
    }

    /// Whether nothing is known.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// As `$meta` reads it.
    pub fn as_doc(&self) -> Option<RawDoc<'_>> {
        self.0.as_deref().map(DocBuf::as_doc)
    }

    /// The document with what is known about it, for expressions.
    pub fn frame<'a>(&'a self, document: RawDoc<'a>) -> Frame<'a> {
        Frame::new(document).with_metadata(self.as_doc())
    }
}

/// What is known about a document that a query found before, as far as it can be told from the document.
///
/// # Errors
/// Those of a document's languages.
pub fn metadata_of(query: &CanonicalQuery, document: RawDoc<'_>) -> Result<Metadata> {
    match query.matcher.text() {
        Some(text) => scored(&*text.bound()?, document),
        None => Ok(Metadata::NONE),
    }
}

/// What is known about the document that is on its way through a pipeline.
#[derive(Debug, Default)]
pub(crate) struct InFlight(RefCell<Metadata>);

impl InFlight {
    /// Of the document that came last.
    pub(crate) fn get(&self) -> Metadata {
        self.0.borrow().clone()
    }

    /// Of the document that comes next.
    pub(crate) fn set(&self, metadata: &Metadata) {
        let mut have = self.0.borrow_mut();
        if !(have.is_none() && metadata.is_none()) {
            *have = metadata.clone();
        }
    }

    /// Nothing is known about documents that come next.
    pub(crate) fn clear(&self) {
        self.set(&Metadata::NONE);
    }
}

/// What the documents that a filter finds have: the names for `$meta`.
pub(crate) fn given_by(matcher: &Matcher) -> &'static [&'static str] {
    match matcher.text() {
        Some(_) => &[TEXT_SCORE],
        None if matcher.seeks_by_distance() => GEO_NEAR,
        None => &[],
    }
}

/// The scope behind a filter.
pub(crate) fn scope_behind(scope: Scope, matcher: &Matcher) -> Scope {
    given_by(matcher).iter().fold(scope, |scope, name| scope.with_metadata(name))
}

#[cfg(test)]
mod tests {
    use mayfly_value::extjson::parse_document;
    use mayfly_value::{DocBuilder, RawValue};

    use super::*;
    use crate::fixture::Fixture;
    use crate::{Around, RunSettings};

    /// Six documents with scores, through these stages.
    fn check(stages: &str, settings: RunSettings, expected: &str) {
        let documents: Vec<(DocBuf, Metadata)> = (0..6)
            .map(|id: i32| {
                let mut document = DocBuilder::new();
                document.append("_id", id).append("g", id % 2);
                document.start_array("a").push("x").push("y").end();
                let mut notes = DocBuilder::new();
                notes.append("textScore", f64::from(id * 7 % 6));
                (document.finish(), Metadata::new(notes.finish()))
            })
            .collect();
        let stages = parse_document(&format!("{{p: [{stages}]}}")).unwrap();
        let stages = stages.as_doc().get("p").and_then(RawValue::as_array).unwrap();
        let scope = Scope::default().with_metadata("textScore");
        let around = Around::command("test", &scope);
        let results = Fixture::new().run_over(stages, &around, &settings, &documents);
        assert_eq!(results.join(" "), expected);
    }

    /// Manual: "$meta (aggregation)", "Text Search in the Aggregation Pipeline".
    #[test]
    fn scores_travel_with_their_documents() {
        let plain = RunSettings::default;
        let score = "{$project: {s: {$meta: 'textScore'}}}";
        check(
            &format!("{{$match: {{g: 1}}}}, {{$limit: 2}}, {score}"),
            plain(),
            "{ _id: 1, s: 1.0 } { _id: 3, s: 3.0 }",
        );
        let sorted = "{$sort: {s: {$meta: 'textScore'}}}, {$skip: 1}, {$limit: 2}";
        let expected = "{ _id: 4, s: 4.0 } { _id: 3, s: 3.0 }";
        check(&format!("{sorted}, {score}"), plain(), expected);
        check(&format!("{{$replaceWith: {{_id: '$_id'}}}}, {sorted}, {score}"), plain(), expected);
        let unwound = "{$limit: 2}, {$unwind: '$a'}, {$project: {a: 1, s: {$meta: 'textScore'}}}";
        let expected = "{ _id: 0, a: \"x\", s: 0.0 } { _id: 0, a: \"y\", s: 0.0 } { _id: 1, a: \"x\", s: 1.0 } \
                        { _id: 1, a: \"y\", s: 1.0 }";
        check(unwound, plain(), expected);
        let added = "{$match: {_id: 5}}, {$addFields: {a: {$add: [1, {$meta: 'textScore'}]}}}";
        check(added, plain(), "{ _id: 5, g: 1, a: 6.0 }");
    }

    #[test]
    fn groups_have_none_but_see_those_of_their_documents() {
        let group = "{$group: {_id: '$g', s: {$sum: {$meta: 'textScore'}}}}, {$sort: {_id: 1}}";
        let again = "{$addFields: {t: {$meta: 'textScore'}}}";
        let expected = "{ _id: 0, s: 6.0 } { _id: 1, s: 9.0 }";
        check(&format!("{group}, {again}"), RunSettings::default(), expected);
    }

    #[test]
    fn scores_are_in_files_too() {
        let folder = Some(std::env::temp_dir().join("mayfly-metadata-test"));
        let small = RunSettings::limited(200, folder);
        let stages =
            "{$sort: {g: 1, s: {$meta: 'textScore'}}}, {$project: {s: {$meta: 'textScore'}}}";
        let expected = "{ _id: 4, s: 4.0 } { _id: 2, s: 2.0 } { _id: 0, s: 0.0 } { _id: 5, s: 5.0 } \
                        { _id: 3, s: 3.0 } { _id: 1, s: 1.0 }";
        check(stages, small, expected);
    }
}
