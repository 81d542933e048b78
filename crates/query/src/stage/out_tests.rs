//! Changes of the target while `$out` and `$merge` write. The results are written in two units: the
//! target is read before the first, and changed before the last.

use mayfly_storage::ReadView;
use std::sync::Arc;

use mayfly_base::{ErrorCode, Namespace, Result};
use mayfly_storage::{
    CollModChange, CreateIndexesOptions, IndexSelector, NewExpireAfter, RenameTarget, SYSTEM_VIEWS,
    Store,
};
use mayfly_value::bson::{Bson, Document, doc};
use mayfly_value::{DocBuf, RawValue};
use mayfly_work::OpCtx;

use crate::fixture::Fixture;

/// More than one unit.
const RESULTS: i32 = 300;

fn ns(name: &str) -> Namespace {
    Namespace::new("test", name).unwrap()
}

fn index(store: &Store, op: &OpCtx, name: &str, index: Document) {
    let options = CreateIndexesOptions::default();
    let index = DocBuf::from_bson(&index);
    store.create_indexes((op, &ReadView::now()), &ns(name), &[index.as_doc()], options).unwrap();
}

fn create(store: &Store, name: &str, options: &Document) {
    store.create_collection(&ReadView::now(), &ns(name), DocBuf::from_bson(options)).unwrap();
}

/// Creates the target of most cases: one document, and a TTL index.
fn target(fixture: &Fixture) {
    let (store, op) = (fixture.store(), OpCtx::detached(Arc::new(mayfly_base::SystemClock::new())));
    create(store, "o", &doc! {});
    index(store, &op, "o", doc! { "key": { "a": 1 }, "name": "a", "expireAfterSeconds": 3600 });
    fixture.insert("o", &[DocBuf::from_bson(&doc! { "_id": "old" })]);
}

fn out(fixture: &Fixture, stage: Bson, act: impl FnOnce(&Store, &Arc<OpCtx>)) -> Result<()> {
    let stage = DocBuf::from_bson(&doc! { "s": [stage] });
    let stage = stage.as_doc().get("s").and_then(RawValue::as_array).unwrap();
    fixture.run_around(stage, RESULTS, act)
}

/// Code and message of a failing `$out` onto `o`, which is changed meanwhile. Checks that no
/// temporary collection remains.
fn changed(fixture: &Fixture, act: impl FnOnce(&Store, &Arc<OpCtx>)) -> (ErrorCode, String) {
    let error = out(fixture, Bson::Document(doc! { "$out": "o" }), act).unwrap_err();
    let left = fixture.store().collections(Some("test"));
    assert!(left.iter().all(|it| !it.namespace().collection().contains("tmp.")));
    (error.code(), error.message().to_owned())
}

fn ids(fixture: &Fixture, name: &str) -> Vec<String> {
    let source = DocBuf::from_bson(&doc! { "p": [{ "$unionWith": name }] });
    let stages = source.as_doc().get("p").and_then(RawValue::as_array).unwrap();
    let scope = mayfly_expr::Scope::default();
    let context = crate::PipelineContext::command("test", &scope);
    fixture.run(stages, &context, crate::RunSettings::default()).unwrap()
}

#[test]
fn changes_of_indexes_are_not_undone() {
    type Act = fn(&Store, &OpCtx);
    let acts: [Act; 4] = [
        |store, op| index(store, op, "o", doc! { "key": { "b": 1 }, "name": "b" }),
        |store, _| {
            store.drop_indexes(&ns("o"), Some(&[IndexSelector::Name("a")])).unwrap();
        },
        |store, _| {
            let expire_after = Some(NewExpireAfter::Seconds(7200));
            let change = CollModChange { expire_after, ..CollModChange::default() };
            store.modify_index(&ns("o"), IndexSelector::Name("a"), change).unwrap();
        },
        |store, _| {
            let change = CollModChange { hidden: Some(true), ..CollModChange::default() };
            store.modify_index(&ns("o"), IndexSelector::Name("a"), change).unwrap();
        },
    ];
    for act in acts {
        let fixture = Fixture::new();
        target(&fixture);
        let mut listed = Vec::new();
        let failed = changed(&fixture, |store, op| {
            act(store, op);
            listed = store.collection(&ReadView::now(), &ns("o")).unwrap().list_indexes();
        });
        let text = "indexes of target collection test.o changed during processing.";
        assert_eq!(failed, (ErrorCode::CommandFailed, text.to_owned()));
        assert_eq!(
            fixture.store().collection(&ReadView::now(), &ns("o")).unwrap().list_indexes(),
            listed
        );
        assert_eq!(ids(&fixture, "o"), ["{ _id: \"old\" }"]);
    }
}

#[test]
fn changes_of_options_are_not_undone() {
    let fixture = Fixture::new();
    target(&fixture);
    let images = doc! { "changeStreamPreAndPostImages": { "enabled": true } };
    let (code, text) = changed(&fixture, |store, _| {
        let change = |_: mayfly_value::RawDoc<'_>| Ok(DocBuf::from_bson(&images));
        store.modify_options(&ns("o"), mayfly_value::RawDoc::EMPTY, change).unwrap();
    });
    assert_eq!(code, ErrorCode::CommandFailed);
    let expected = "collection options of target collection test.o changed during processing. Original options: {}, new \
                    options: { changeStreamPreAndPostImages: { enabled: true } }";
    assert_eq!(text, expected);
    let kept = fixture.store().collection(&ReadView::now(), &ns("o")).unwrap().options();
    assert_eq!(kept, DocBuf::from_bson(&images));
}

#[test]
fn a_target_that_became_capped_stays() {
    let fixture = Fixture::new();
    target(&fixture);
    let (code, _) = changed(&fixture, |store, op| {
        let capped = DocBuf::from_bson(&doc! { "capped": true, "size": 4096 });
        store.convert_collection(op, &ns("o"), capped.as_doc()).unwrap();
    });
    assert_eq!(code, ErrorCode::CommandFailed);
    assert!(fixture.store().collection(&ReadView::now(), &ns("o")).unwrap().capped().is_some());
    assert_eq!(ids(&fixture, "o"), ["{ _id: \"old\" }"]);
}

#[test]
fn a_target_that_went_stays_away_and_one_that_came_stays() {
    let fixture = Fixture::new();
    target(&fixture);
    let (code, _) = changed(&fixture, |store, _| {
        store.drop_collection(&ns("o")).unwrap();
    });
    assert_eq!(code, ErrorCode::CommandFailed);
    assert!(fixture.store().collection(&ReadView::now(), &ns("o")).is_none());
    let (code, _) = changed(&fixture, |store, _| create(store, "o", &doc! {}));
    assert_eq!(code, ErrorCode::CommandFailed);
    assert!(ids(&fixture, "o").is_empty());
    let (code, _) = changed(&fixture, |store, _| {
        store.rename_collection(&ns("o"), &ns("elsewhere"), RenameTarget::MustNotExist).unwrap();
    });
    assert_eq!(code, ErrorCode::CommandFailed);
    assert!(fixture.store().collection(&ReadView::now(), &ns("elsewhere")).is_some());
    assert!(fixture.store().collection(&ReadView::now(), &ns("o")).is_none());
}

#[test]
fn a_target_that_became_a_view_stays_one() {
    let fixture = Fixture::new();
    target(&fixture);
    let (code, _) = changed(&fixture, |store, op| {
        store.drop_collection(&ns("o")).unwrap();
        let view = DocBuf::from_bson(&doc! { "viewOn": "c", "pipeline": [] });
        store.create_view(op, &ns("o"), view.as_doc(), &crate::view_reads).unwrap();
    });
    assert_eq!(code, ErrorCode::NamespaceExists);
    assert!(fixture.store().view(&ReadView::now(), &ns("o")).unwrap().is_some());
    assert!(fixture.store().collection(&ReadView::now(), &ns(SYSTEM_VIEWS)).is_some());
}

#[test]
fn changes_that_leave_options_and_indexes_as_they_were_are_no_conflict() {
    let fixture = Fixture::new();
    target(&fixture);
    out(&fixture, Bson::Document(doc! { "$out": "o" }), |store, op| {
        store.drop_collection(&ns("o")).unwrap();
        let spec = doc! { "key": { "a": 1 }, "name": "a", "expireAfterSeconds": 3600 };
        index(store, op, "o", spec);
    })
    .unwrap();
    assert_eq!(ids(&fixture, "o").len(), RESULTS as usize);
}

#[test]
fn what_a_client_drops_besides_the_target_is_missed() {
    let temporary = |store: &Store| {
        let all = store.collections(Some("test"));
        let found = all.iter().map(|it| it.namespace()).find(|it| it.collection().contains("tmp."));
        found.unwrap()
    };
    let fixture = Fixture::new();
    target(&fixture);
    let (code, _) = changed(&fixture, |store, _| {
        store.drop_collection(&temporary(store)).unwrap();
    });
    assert_eq!(code, ErrorCode::NamespaceNotFound);
    let (code, _) = changed(&fixture, |store, _| {
        store
            .rename_collection(&temporary(store), &ns("mine"), RenameTarget::MustNotExist)
            .unwrap();
    });
    assert_eq!(code, ErrorCode::NamespaceNotFound);
    assert!(fixture.store().collection(&ReadView::now(), &ns("mine")).is_some());
    assert_eq!(ids(&fixture, "o"), ["{ _id: \"old\" }"]);
}

/// So few measurements are one unit, so the test performs the steps itself.
#[test]
fn changes_of_a_time_series_are_not_undone() {
    let series = doc! { "timeseries": { "timeField": "t", "metaField": "m" } };
    let fixture = Fixture::new();
    let (store, op) = (fixture.store(), OpCtx::detached(Arc::new(mayfly_base::SystemClock::new())));
    let buckets = ns("system.buckets.s");
    create(store, "system.buckets.s", &series);
    let target = store.collection(&ReadView::now(), &buckets).unwrap();
    let begun = store.begin_replacement(&buckets, Some(&target), DocBuf::empty()).unwrap();
    assert_eq!(begun.collection().list_indexes(), target.list_indexes());
    index(store, &op, "s", doc! { "key": { "m": -1 }, "name": "further" });
    let failed = store.finish_replacement(&begun).unwrap_err();
    assert_eq!(failed.code(), ErrorCode::CommandFailed);
    store.abandon_replacement(&begun).unwrap();
    assert_eq!(target.list_indexes().len(), 2);
    // A collection under the name of the time series.
    store.drop_collection(&buckets).unwrap();
    let begun = store.begin_replacement(&buckets, None, DocBuf::from_bson(&series)).unwrap();
    create(store, "s", &doc! {});
    let failed = store.finish_replacement(&begun).unwrap_err();
    assert_eq!(failed.code(), ErrorCode::NamespaceExists);
    store.abandon_replacement(&begun).unwrap();
    assert_eq!(store.collections(Some("test")).len(), 1);
}

#[test]
fn what_is_merged_goes_to_the_name_not_to_a_collection_that_had_it() {
    let fixture = Fixture::new();
    target(&fixture);
    let merge = Bson::Document(doc! { "$merge": { "into": "o", "whenMatched": "fail" } });
    out(&fixture, merge, |store, _| {
        store.rename_collection(&ns("o"), &ns("elsewhere"), RenameTarget::MustNotExist).unwrap();
    })
    .unwrap();
    let (before, after) = (ids(&fixture, "elsewhere").len(), ids(&fixture, "o").len());
    // 257: the first unit and the old document. 44: the last unit.
    assert_eq!((before, after), (257, 44));
}
