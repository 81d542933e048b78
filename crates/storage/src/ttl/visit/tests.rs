//! Visits with changes of policies and documents during their units.

use mayfly_base::{ManualClock, Namespace};
use mayfly_value::bson::{Bson, DateTime, doc};

use super::*;
use crate::isolation::ReadView;
use crate::policy::TtlIndexRules;
use crate::testing::{self, NOW};
use crate::{CollModChange, CreateIndexesOptions, IndexSelector, NewExpireAfter};

/// A store with a policy `x_1` over documents that have been due for a second, few enough for
/// one visit.
struct Overdue {
    store: Arc<Store>,
    clock: Arc<ManualClock>,
    ns: Namespace,
    collection: Arc<Collection>,
    op: Arc<OpCtx>,
}

impl Overdue {
    fn with(documents: i32, key: &str) -> Overdue {
        let clock = Arc::new(ManualClock::at_ms(NOW - 1000));
        let testing::Fixture { store, op, .. } = testing::open(testing::memory(), clock.clone());
        let ns = Namespace::parse("d.c").unwrap();
        let seconds = i32::from(key == "_ts");
        let spec = doc! { "key": { key: 1 }, "name": "x_1", "expireAfterSeconds": seconds, "ttl": {
            "holdField": "hold",
        } };
        let spec = DocBuf::from_bson(&spec);
        store
            .create_indexes(
                (&op, &ReadView::now()),
                &ns,
                &[spec.as_doc()],
                CreateIndexesOptions::default(),
            )
            .unwrap();
        let collection = store.collection(&ReadView::now(), &ns).unwrap();
        let date = Bson::DateTime(DateTime::from_millis(NOW - 1000));
        for id in 0..documents {
            let document = DocBuf::from_bson(&doc! { "_id": id, "x": date.clone() });
            store
                .write(&op, &ReadView::now(), &collection, |unit| unit.insert(document.as_doc()))
                .unwrap();
        }
        clock.advance_ms(1000);
        // One document in a unit, and no pace.
        store.ttl_params().batch_docs.store(1, Ordering::Relaxed);
        Overdue { store, clock, ns, collection, op }
    }

    fn policy(&self) -> Rule {
        let index = self.collection.indexes()[0].id();
        Rule::now(&self.collection, index, TtlIndexRules::Manual).unwrap()
    }

    /// Runs one visit by this rule.
    fn visit(&self, rule: &Rule) -> Result<VisitEnd> {
        let visit = Visit {
            store: &self.store,
            collection: &self.collection,
            rule,
            pass: 1,
            sub_pass: 1,
            stopping: &AtomicBool::new(false),
            batched: true,
        };
        visit.run(None)
    }

    /// The number of stored documents, hidden or not.
    fn left(&self) -> i64 {
        self.store.count_documents(&self.op, &self.collection).unwrap()
    }

    fn set_policy(&self, change: CollModChange<'_>) {
        self.store.modify_index(&self.ns, IndexSelector::Name("x_1"), change).unwrap();
    }
}

/// Runs a visit that began before `change`, over a document that has been due for a second.
/// Returns how many documents are left.
fn left_after(change: impl FnOnce(&Store, &Namespace)) -> i64 {
    let overdue = Overdue::with(1, "x");
    let rule = overdue.policy();
    change(&overdue.store, &overdue.ns);
    // A dropped index is an error, upon which the pass ends the visit.
    let _ = overdue.visit(&rule);
    overdue.left()
}

/// Runs a pass over four documents, one in a unit, with `change` after the second unit. Returns
/// how many are left.
fn left_after_two(key: &str, change: impl Fn(&Overdue) + Send + 'static) -> i64 {
    let overdue = Arc::new(Overdue::with(4, key));
    let (units, weak) = (std::sync::atomic::AtomicU32::new(0), Arc::downgrade(&overdue));
    *overdue.store.between_units.lock() = Some(Box::new(move || {
        if units.fetch_add(1, Ordering::Relaxed) == 1 {
            change(&weak.upgrade().unwrap());
        }
    }));
    overdue.store.run_ttl_pass(&AtomicBool::new(false)).unwrap();
    overdue.left()
}

/// Collects log lines about slow visits, as their numbers of deletions.
#[derive(Clone, Default)]
struct SlowVisits(Arc<std::sync::Mutex<Vec<i64>>>);

impl tracing::Subscriber for SlowVisits {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = SlowVisit::default();
        event.record(&mut line);
        if line.id == 5479200 {
            self.0.lock().unwrap().push(line.deleted);
        }
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[derive(Default)]
struct SlowVisit {
    id: i64,
    deleted: i64,
}

impl tracing::field::Visit for SlowVisit {
    fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn std::fmt::Debug) {}

    fn record_i64(&mut self, field: &tracing::field::Field, value: i64) {
        match field.name() {
            "id" => self.id = value,
            "numDeleted" => self.deleted = value,
            _ => {}
        }
    }
}

/// The log lines of a visit over four due documents that takes `millis`, with a threshold of
/// 100 ms.
fn logged(millis: i64, holds: bool) -> Vec<i64> {
    let overdue = Overdue::with(if holds { 0 } else { 4 }, "x");
    for id in 0..if holds { 4 } else { 0 } {
        let date = Bson::DateTime(DateTime::from_millis(NOW - 1000));
        let held = DocBuf::from_bson(&doc! { "_id": id, "x": date, "hold": true });
        let (store, collection) = (&overdue.store, &overdue.collection);
        store
            .write(&overdue.op, &ReadView::now(), collection, |unit| unit.insert(held.as_doc()))
            .unwrap();
    }
    let lines = SlowVisits::default();
    let clock = overdue.clock.clone();
    *overdue.store.between_units.lock() = Some(Box::new(move || clock.advance_ms(millis)));
    tracing::subscriber::with_default(lines.clone(), || {
        overdue.visit(&overdue.policy()).unwrap();
    });
    lines.0.lock().unwrap().clone()
}

#[test]
fn slow_visits_are_logged_also_without_deletions() {
    assert_eq!(logged(100, false), [4]);
    assert_eq!(logged(1, false), [0; 0]);
    assert_eq!(logged(100, true), [0]);
}

#[test]
fn what_stops_expiry_stops_a_visit_after_its_unit() {
    for key in ["x", "_ts"] {
        assert_eq!(left_after_two(key, |_| {}), 0);
        let disabled = |it: &Overdue| it.store.ttl_params().enabled.store(false, Ordering::Relaxed);
        assert_eq!(left_after_two(key, disabled), 2, "ttlMonitorEnabled: false");
        let paused = |it: &Overdue| {
            let paused = DocBuf::from_bson(&doc! { "paused": true });
            it.set_policy(CollModChange { ttl: Some(paused.as_doc()), ..CollModChange::default() });
        };
        assert_eq!(left_after_two(key, paused), 2, "paused");
        let hold = |it: &Overdue| {
            let id = it
                .store
                .locate(&ReadView::now(), &it.collection, RawValue::Int32(3))
                .unwrap()
                .unwrap();
            let held = DocBuf::from_bson(
                &doc! { "_id": 3, "x": Bson::DateTime(DateTime::from_millis(NOW - 1000)), "hold": true },
            );
            let written = it.store.write(&it.op, &ReadView::now(), &it.collection, |unit| {
                let old = unit.read_stored(&id)?.unwrap();
                unit.update(&id, &old, held.as_doc(), crate::UpdateStyle::Replacement)
            });
            written.unwrap();
        };
        assert_eq!(left_after_two(key, hold), 1, "hold");
    }
    for to in [NOW + 86_400_000, NOW - 86_400_000] {
        let jumped = move |it: &Overdue| it.clock.set_wall_ms(to);
        assert_eq!(left_after_two("x", jumped), 2, "the clock jumps to {to}");
    }
    let within = |it: &Overdue| it.clock.set_wall_ms(NOW + 300_000);
    assert_eq!(left_after_two("x", within), 0, "the clock jumps by the limit");
    let resting =
        |it: &Overdue| it.store.ttl_params().last_modified.store(false, Ordering::Relaxed);
    assert_eq!(left_after_two("_ts", resting), 2, "lastModifiedTTL: false");
    assert_eq!(left_after_two("x", resting), 0, "lastModifiedTTL: false, another policy");
}

#[test]
fn a_visit_deletes_by_the_policy_of_the_moment() {
    assert_eq!(left_after(|_, _| {}), 0);
    let set = |seconds| {
        move |store: &Store, ns: &Namespace| {
            let change = CollModChange {
                expire_after: Some(NewExpireAfter::Seconds(seconds)),
                ..CollModChange::default()
            };
            store.modify_index(ns, IndexSelector::Name("x_1"), change).unwrap();
        }
    };
    assert_eq!(left_after(set(3600)), 1);
    assert_eq!(left_after(set(0)), 0);
    let hide = CollModChange { hidden: Some(true), ..CollModChange::default() };
    let hide = |store: &Store, ns: &Namespace| {
        store.modify_index(ns, IndexSelector::Name("x_1"), hide).unwrap();
    };
    assert_eq!(left_after(hide), 0);
    let drop = |store: &Store, ns: &Namespace| {
        store.drop_indexes(ns, None).unwrap();
    };
    assert_eq!(left_after(drop), 1);
}

#[test]
fn units_grow_with_the_default_and_keep_a_limit_that_was_set() {
    for (limit, units) in [(10, 7..8), (20, 50..60), (0, 1..10), (1000, 1..10)] {
        let f = Overdue::with(1000, "x");
        let params = f.store.ttl_params();
        params.batch_docs.store(limit, Ordering::Relaxed);
        // Only the number of documents ends a unit.
        params.batch_ms.store(0, Ordering::Relaxed);
        let ended = f.visit(&f.policy()).unwrap();
        assert!(matches!(ended, VisitEnd::Drained) && f.left() == 0);
        let batches = f.store.ttl_stats().batches.load(Ordering::Relaxed);
        assert!(units.contains(&batches), "{batches} units with a limit of {limit}");
    }
}
