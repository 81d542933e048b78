//! Refuses archives in a circle: a policy must not archive into its own collection, neither
//! directly nor through the policies of its archives.
//!
//! A policy names its archive, and names can move to other collections: by `renameCollection`, and
//! by replacements (`$out`, `convertToCapped`). Each operation that gives a collection a policy or
//! a name therefore makes this check, under the catalog's lock. Circles from before, or of an older
//! server, are detected where documents are deleted ([`crate::write`]).

use std::collections::HashMap;

use mayfly_base::{Error, ErrorCode, Namespace, Result};

use crate::Store;
use crate::policy::TtlOptions;
use crate::write::archive_names;

impl Store {
    /// The names on the way, if a collection of this name with these policies would archive into
    /// itself. Policies of the collections in `gone` do not count.
    pub(crate) fn archives_in_circle(
        &self,
        ns: &Namespace,
        policies: &[&TtlOptions],
        gone: &[&Namespace],
    ) -> Option<Vec<Namespace>> {
        // Maps each name to the collection from which it was reached first.
        let mut reached_from: HashMap<Namespace, Namespace> = HashMap::new();
        let mut open = vec![ns.clone()];
        while let Some(from) = open.pop() {
            let targets = match self.catalog.get(&from) {
                _ if from == *ns => archive_names(policies.iter().copied()),
                Some(collection) if !gone.contains(&&from) => collection.archive_names(),
                _ => Vec::new(),
            };
            for target in targets {
                if target == *ns {
                    let mut way = vec![target, from];
                    while let Some(before) = way.last().and_then(|last| reached_from.get(last)) {
                        way.push(before.clone());
                    }
                    way.reverse();
                    return Some(way);
                }
                if !reached_from.contains_key(&target) {
                    reached_from.insert(target.clone(), from.clone());
                    open.push(target);
                }
            }
        }
        None
    }

    /// Checks that the policies of a collection of this name do not archive in a circle.
    ///
    /// # Errors
    /// 72 InvalidOptions when they do.
    pub(crate) fn check_no_circle(
        &self,
        ns: &Namespace,
        policies: &[&TtlOptions],
        gone: &[&Namespace],
    ) -> Result<()> {
        let Some(way) = self.archives_in_circle(ns, policies, gone) else { return Ok(()) };
        let text = match way.as_slice() {
            [_, _] => format!("'ttl.archive.collection' must be another collection than {ns}"),
            _ => {
                let names: Vec<&str> = way.iter().map(Namespace::as_str).collect();
                format!(
                    "'ttl.archive.collection' would archive in a circle: {}",
                    names.join(" -> ")
                )
            }
        };
        Err(Error::new(ErrorCode::InvalidOptions, text))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use mayfly_base::ManualClock;
    use mayfly_kv::MemoryEngine;
    use mayfly_value::DocBuf;
    use mayfly_value::bson::{Bson, DateTime, doc};
    use mayfly_work::OpCtx;

    use super::*;
    use crate::CreateIndexesOptions;
    use crate::ddl::put_collection;
    use crate::isolation::ReadView;
    use crate::testing;
    use crate::ttl::DueCount;

    /// A data folder of an older server: names of its collections are changed without the checks.
    struct Folder {
        engine: Arc<MemoryEngine>,
        clock: Arc<ManualClock>,
    }

    impl Folder {
        fn new() -> Folder {
            Folder { engine: Arc::new(MemoryEngine::new()), clock: testing::clock() }
        }

        fn open(&self) -> (Arc<Store>, Arc<OpCtx>) {
            let testing::Fixture { store, op, .. } =
                testing::open(self.engine.clone(), self.clock.clone());
            (store, op)
        }
    }

    fn namespace(name: &str) -> Namespace {
        Namespace::parse(name).unwrap()
    }

    fn archive(store: &Store, op: &OpCtx, from: &str, into: &str) {
        let ttl = doc! { "hideExpired": true, "archive": { "collection": into } };
        let spec = doc! { "key": { "x": 1 }, "name": "x_1", "expireAfterSeconds": 0, "ttl": ttl };
        let spec = DocBuf::from_bson(&spec);
        let options = CreateIndexesOptions::default();
        store
            .create_indexes((op, &ReadView::now()), &namespace(from), &[spec.as_doc()], options)
            .unwrap();
    }

    fn name_on_record(store: &Store, from: &str, to: &str) {
        let collection = store.collection(&ReadView::now(), &namespace(from)).unwrap();
        let state = collection.state.read();
        let to = namespace(to);
        store.change(|txn, _| put_collection(txn, &collection, &to, &state)).unwrap();
    }

    fn insert(store: &Store, op: &OpCtx, into: &str) -> Result<()> {
        let date = Bson::DateTime(DateTime::from_millis(0));
        let document = DocBuf::from_bson(&doc! { "_id": 1, "x": date });
        let collection = store.collection(&ReadView::now(), &namespace(into)).unwrap();
        store.write(op, &ReadView::now(), &collection, |unit| unit.insert(document.as_doc()))
    }

    fn stored(store: &Store, op: &OpCtx, name: &str) -> i64 {
        let collection = store.collection(&ReadView::now(), &namespace(name)).unwrap();
        store.count_documents(op, &collection).unwrap()
    }

    #[test]
    fn a_folder_with_an_archive_in_itself_opens_and_nothing_goes() {
        let folder = Folder::new();
        let (store, op) = folder.open();
        archive(&store, &op, "d.c", "d.b");
        store.drop_collection(&namespace("d.b")).unwrap();
        insert(&store, &op, "d.c").unwrap();
        store.drop_collection(&namespace("d.b")).unwrap();
        name_on_record(&store, "d.c", "d.b");
        drop(store);
        let (store, op) = folder.open();
        store.run_ttl_pass(&AtomicBool::new(false)).unwrap();
        assert_eq!(stored(&store, &op, "d.b"), 1);
        let status = store
            .ttl_status(
                &op,
                &store.collection(&ReadView::now(), &namespace("d.b")).unwrap(),
                DueCount::All,
            )
            .unwrap();
        let error = status[0].last_error.as_deref().unwrap();
        assert_eq!(error, "'ttl.archive.collection' must be another collection than d.b");
        // A hidden document that blocks an insert stays as well.
        let error = insert(&store, &op, "d.b").unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidOptions);
        assert_eq!(stored(&store, &op, "d.b"), 1);
    }

    #[test]
    fn in_a_folder_with_a_circle_documents_go_around_and_none_is_lost() {
        let folder = Folder::new();
        let (store, op) = folder.open();
        archive(&store, &op, "d.c", "d.b");
        archive(&store, &op, "d.e", "d.c");
        store.drop_collection(&namespace("d.b")).unwrap();
        insert(&store, &op, "d.c").unwrap();
        store.drop_collection(&namespace("d.b")).unwrap();
        name_on_record(&store, "d.e", "d.b");
        drop(store);
        let (store, op) = folder.open();
        for _ in 0..3 {
            store.run_ttl_pass(&AtomicBool::new(false)).unwrap();
            assert_eq!(stored(&store, &op, "d.b") + stored(&store, &op, "d.c"), 1);
        }
    }
}
