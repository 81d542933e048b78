//! Concurrent writes of one encrypted value: each plans again with the newest count.

use std::cell::Cell;
use std::collections::HashSet;

use mayfly_encryption::{EscContentionToken, SAFE_CONTENT, plan_compaction};
use mayfly_mql::{ParseContext, Update};
use mayfly_storage::{IdKey, WriteOptions};
use mayfly_value::DocBuilder;
use mayfly_value::RawValue;

use super::*;
use crate::fixture::Fixture;
use crate::memory::Budget;
use crate::modify::{UpdateSpec, update};
use crate::{CanonicalQuery, FindOptions};

const STATE_TOKEN: [u8; 32] = [2; 32];

struct World {
    fixture: Fixture,
    collection: Arc<Collection>,
    encrypted: Arc<EncryptedWrites>,
}

fn binary(bytes: &[u8]) -> RawValue<'_> {
    RawValue::Binary { subtype: 0, bytes }
}

/// A document with a payload, all of which have the same tokens.
fn document(id: i32) -> DocBuf {
    let mut payload = DocBuilder::new();
    payload.append("d", binary(&[1; 32])).append("s", binary(&STATE_TOKEN));
    payload.append("p", binary(&[3; 48])).append("l", binary(&[4; 32]));
    payload.append("u", RawValue::uuid(&[7; 16]));
    payload.append("t", 2).append("v", binary(&[5; 48])).append("e", binary(&[6; 32]));
    let bytes = [&[11], payload.append("k", 0i64).closed_copy().as_bytes()].concat();
    let mut document = DocBuilder::new();
    document.append("_id", id).append("name", RawValue::Binary { subtype: 6, bytes: &bytes });
    document.finish()
}

impl World {
    fn new() -> World {
        let fixture = Fixture::new();
        let mut options = DocBuilder::new();
        options.start_document("encryptedFields").start_array("fields").push_document();
        options.append("path", "name").append("bsonType", "string");
        options.append("keyId", RawValue::uuid(&[7; 16]));
        options.start_document("queries").append("queryType", "equality").end();
        options.end().end().end();
        let options = options.finish();
        let session = fixture.session();
        let made = |name: &str, options: DocBuf| {
            let ns = Namespace::new("test", name).unwrap();
            let made = session.store.create_collection(session.view, &ns, options).unwrap();
            (ns, made)
        };
        let definition = options.as_doc().get("encryptedFields").unwrap().as_document().unwrap();
        let fields = EncryptedFields::parse(definition).unwrap();
        let (_, collection) = made("c", options.clone());
        let (counts, queue) = (made("esc", DocBuf::empty()), made("ecoc", DocBuf::empty()));
        let encrypted = EncryptedWrites::new(fields, StateCollections { counts, queue }, 0);
        World { fixture, collection, encrypted: Arc::new(encrypted) }
    }

    /// Inserts a document. `meanwhile` runs in the first unit, after it has its snapshot. Returns
    /// how often the unit ran.
    fn insert(&self, id: i32, meanwhile: impl Fn()) -> u32 {
        let session = self.fixture.session();
        let options = WriteOptions::new(session.op, session.view, &self.collection);
        let runs = Cell::new(0);
        let write = |unit: &mut WriteUnit<'_>| {
            // The first read takes the snapshot, and locks a key of this unit alone.
            let unknown: IdKey = mayfly_storage::id_key(RawValue::Int32(-id));
            unit.locate(unknown)?;
            if runs.replace(runs.get() + 1) == 0 {
                meanwhile();
            }
            self.encrypted.insert(unit, document(id).as_doc())
        };
        session.store.write_with(options.with_others(self.encrypted.others()), write).unwrap();
        runs.get()
    }

    /// Replaces the counts by an anchor, as a compaction does.
    fn compact(&self) {
        let session = self.fixture.session();
        let (_, Ok(counts)) = &self.encrypted.others()[0] else { panic!("no counts") };
        let token = EscContentionToken::new(STATE_TOKEN);
        session
            .write(counts, |unit| {
                let iv = &mut || [9; 16];
                let change = plan_compaction(&[token], &mut UnitCounts::of(unit), iv)?;
                upkeep::apply(unit, &change, 0).map(|_| ())
            })
            .unwrap();
    }

    /// The tags of all documents.
    fn tags(&self) -> Vec<Vec<u8>> {
        let session = self.fixture.session();
        let mut tags = Vec::new();
        for id in 0..20 {
            let key = mayfly_storage::id_key(RawValue::Int32(id));
            let see = |_: &[u8], document: RawDoc<'_>| {
                let Some(RawValue::Array(found)) = document.get(SAFE_CONTENT) else { return };
                tags.extend(found.iter().map(|tag| tag.data().to_vec()));
            };
            session.store.read_by_id(session.view, &self.collection, &key, see).unwrap();
        }
        tags
    }

    fn count(&self, at: usize) -> i64 {
        let session = self.fixture.session();
        let (_, Ok(collection)) = &self.encrypted.others()[at] else { panic!("no collection") };
        session.store.count_documents(session.op, collection).unwrap()
    }

    fn check(&self, tags: usize) {
        let found = self.tags();
        assert_eq!(found.iter().collect::<HashSet<_>>().len(), tags);
        assert_eq!(found.len(), tags);
    }
}

#[test]
fn a_unit_plans_again_if_another_one_takes_its_count() {
    let world = World::new();
    assert_eq!(world.insert(1, || ()), 1);
    assert_eq!(world.insert(2, || assert_eq!(world.insert(3, || ()), 1)), 2);
    world.check(3);
    assert_eq!((world.count(0), world.count(1)), (3, 3));
}

#[test]
fn a_unit_plans_again_after_a_compaction() {
    let world = World::new();
    world.insert(1, || ());
    assert_eq!(world.insert(2, || world.compact()), 2);
    // The anchor and the new count.
    assert_eq!(world.count(0), 2);
    // A count that was inserted and replaced by an anchor since the snapshot is not used again.
    let taken = || {
        world.insert(3, || ());
        world.compact();
    };
    assert_eq!(world.insert(4, taken), 2);
    world.check(4);
}

#[test]
fn an_update_plans_in_its_unit() {
    let world = World::new();
    world.insert(1, || ());
    let before = world.tags();
    let mut set = DocBuilder::new();
    set.start_document("$set");
    set.append("name", document(1).as_doc().get("name").unwrap()).end();
    let context = ParseContext::default();
    let mut filter = DocBuilder::new();
    filter.append("_id", 1);
    let spec = UpdateSpec {
        query: CanonicalQuery::parse(filter.finish().as_doc(), FindOptions::default()).unwrap(),
        update: Update::parse_value(RawValue::Document(set.finish().as_doc()), &context).unwrap(),
        multi: false,
        upsert: false,
        supplied: None,
        new_id: [0; 12],
        repeatable: None,
        bypass_validation: false,
        budget: Budget::default(),
        encrypted: Some(world.encrypted.clone()),
    };
    let outcome = update(world.fixture.session(), &world.collection, &spec).unwrap();
    assert_eq!((outcome.matched, outcome.modified), (1, 1));
    world.check(1);
    assert_ne!(world.tags(), before);
    assert_eq!((world.count(0), world.count(1)), (2, 2));
}

#[test]
fn a_collection_without_encrypted_fields_is_refused() {
    let world = World::new();
    world.fixture.insert("plain", &[]);
    let plain = world.fixture.collection(&Namespace::new("test", "plain").unwrap());
    let session = world.fixture.session();
    let options = WriteOptions::new(session.op, session.view, &plain);
    let written = session.store.write_with(options.with_others(world.encrypted.others()), |unit| {
        world.encrypted.insert(unit, document(1).as_doc())
    });
    assert_eq!(written.unwrap_err().code(), ErrorCode(6346807));
    assert_eq!((world.count(0), world.count(1)), (0, 0));
}
