//! Parses the stages of views that search indexes can be on.

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_expr::Scope;
use mayfly_storage::ResolvedView;
use mayfly_value::{Collation, RawDoc, RawElement, RawValue};

use super::row::StageRow;
use crate::language::searched_view::{SearchedView, ViewStage, refused};
use crate::language::validator::mentions;

impl SearchedView {
    /// Parses the stages of a view.
    ///
    /// # Errors
    /// 67 CannotCreateIndex for a view that search indexes cannot be on.
    pub fn of(view: &ResolvedView) -> Result<SearchedView> {
        SearchedView::parse(view.pipeline.as_doc(), view.collation.clone())
    }

    /// Parses the [`transformation`](ResolvedView::transformation) of a view.
    ///
    /// # Errors
    /// As [`SearchedView::of`].
    pub fn of_transformation(transformation: RawDoc<'_>) -> Result<SearchedView> {
        let stages = transformation.get("pipeline").and_then(RawValue::as_array);
        let stages = stages.ok_or_else(|| refused("it has no stages"))?;
        SearchedView::parse(stages, Collation::of_options(transformation)?)
    }

    fn parse(stages: RawDoc<'_>, collation: Option<Arc<Collation>>) -> Result<SearchedView> {
        let scope = Scope::default().collated(collation.clone()).waiting_for_documents();
        let stages = stages.iter().map(|stage| stage_of_view(stage, &scope));
        Ok(SearchedView { stages: stages.collect::<Result<_>>()?, collation })
    }
}

fn stage_of_view(stage: RawElement<'_>, scope: &Scope) -> Result<ViewStage> {
    let stage = stage.value().as_document().ok_or_else(|| refused("a stage is not an object"))?;
    // Parsed as a constant.
    if mentions(stage, "$$USER_ROLES") {
        return Err(refused("$$USER_ROLES differs from client to client"));
    }
    let (Some(spec), 1) = (stage.iter().next(), stage.iter().count()) else {
        return Err(refused("a stage does not have one name"));
    };
    match StageRow::find(spec.name()).and_then(|row| row.searched) {
        Some(parse) => parse(spec.name(), spec.value(), scope),
        None => Err(refused(&format!("{} is not supported", spec.name()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_base::ErrorCode;
    use mayfly_value::extjson::parse_document;

    fn view(stages: &str) -> Result<SearchedView> {
        let transformation = parse_document(&format!("{{pipeline: {stages}}}")).unwrap();
        SearchedView::of_transformation(transformation.as_doc())
    }

    #[track_caller]
    fn check(stages: &str, document: &str, expected: Option<&str>) {
        let document = parse_document(document).unwrap();
        let shown = view(stages).unwrap().show(document.as_doc()).unwrap();
        assert_eq!(shown, expected.map(|text| parse_document(text).unwrap()), "{stages}");
    }

    #[test]
    fn documents_are_shown_as_the_stages_make_them() {
        check("[]", "{_id: 1}", Some("{_id: 1}"));
        let stages = "[{$match: {$expr: {$gt: ['$n', 1]}}}, {$set: {a: {$add: ['$n', 1]}}}, \
                      {$match: {$expr: {$lt: ['$a', 9]}}}, {$addFields: {b: '$$ROOT.a'}}]";
        check(stages, "{_id: 1, n: 1}", None);
        check(stages, "{_id: 1, n: 2}", Some("{_id: 1, n: 2, a: 3, b: 3}"));
        check(stages, "{_id: 1, n: 8}", None);
        // The expression fails.
        check(stages, "{_id: 1, n: 'x'}", None);
        check("[{$set: {a: {$divide: [1, 0]}}}]", "{_id: 1}", None);
    }

    #[test]
    fn strings_compare_by_the_collation() {
        let text = "{pipeline: [{$match: {$expr: {$eq: ['$a', 'x']}}}, {$set: {b: {$eq: ['$a', 'x']}}}], \
                    collation: {locale: 'en', strength: 2}}";
        let view = SearchedView::of_transformation(parse_document(text).unwrap().as_doc()).unwrap();
        let document = parse_document("{a: 'X'}").unwrap();
        let shown = view.show(document.as_doc()).unwrap();
        assert_eq!(shown, Some(parse_document("{a: 'X', b: true}").unwrap()));
    }

    #[test]
    fn what_changes_without_the_document_is_refused() {
        for stages in [
            "[{$project: {a: 1}}]",
            "[{$unset: 'a'}]",
            "[{$limit: 1}]",
            "[{$match: {}}]",
            "[{$match: {a: 1}}]",
            "[{$match: {$expr: true, a: 1}}]",
            "[{$match: {$and: [{$expr: true}]}}]",
            "[{$match: {$expr: {$lt: ['$at', '$$NOW']}}}]",
            "[{$match: {$expr: {$lt: [{$rand: {}}, 0.5]}}}]",
            "[{$match: {$expr: {$in: ['a', '$$USER_ROLES.role']}}}]",
            "[{$set: {a: '$$NOW'}}]",
            "[{$set: {a: '$$CLUSTER_TIME'}}]",
            "[{$set: {a: {b: [{$cond: ['$x', {$rand: {}}, 1]}]}}}]",
            "[{$set: {a: {$meta: 'textScore'}}}]",
            "[{$set: {a: {$meta: 'searchScore'}}}]",
            "[{$set: {a: {$function: {body: 'function() { return 1 }', args: [], lang: 'js'}}}}]",
            "[{$set: {a: {$map: {input: '$b', in: {$rand: {}}}}}}]",
            "[1]",
            "[{}]",
            "[{$set: {a: 1}, $match: {$expr: true}}]",
        ] {
            let error = view(stages).expect_err(stages);
            assert_eq!(error.code(), ErrorCode::CannotCreateIndex, "{stages}");
        }
        let none = SearchedView::of_transformation(RawDoc::EMPTY).unwrap_err();
        assert_eq!(none.code(), ErrorCode::CannotCreateIndex);
    }
}
