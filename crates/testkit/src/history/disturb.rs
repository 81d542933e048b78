//! Disturbances concurrent to the clients of a history: kills, changes of definitions, expiry.

use std::sync::atomic::Ordering;
use std::time::Duration;

use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::client::{KEYS, Line, Lost, Reply, Run, number};
use crate::dialect::parsed;

/// Whether indexes are created and dropped concurrently to the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexChanges {
    /// They are created and dropped.
    Made,
    /// The indexes stay as they are.
    None,
}

/// Makes and drops indexes if `indexes` says so, and kills operations and sessions, until the run
/// is over.
pub fn disturb<L: Line>(run: &Run, line: &mut L, indexes: IndexChanges, clients: u8, seed: u64) {
    let mut random = SmallRng::seed_from_u64(!seed);
    let least = if indexes == IndexChanges::Made { 0 } else { 5 };
    while !run.over.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(random.random_range(1..20)));
        let key = run.turn() * KEYS + random.random_range(0..KEYS);
        let (db, collection) = match random.random_bool(0.3) {
            true => run.register_at(key),
            false => run.list_at(key),
        };
        // It does not matter whether the target exists.
        let _answer = match random.random_range(least..8) {
            0..3 => {
                let index = "{key: {length: 1}, name: 'length'}";
                line.ask(
                    db,
                    parsed(&format!("{{createIndexes: '{collection}', indexes: [{index}]}}"))
                        .as_doc(),
                )
            }
            3..5 => line.ask(
                db,
                parsed(&format!("{{dropIndexes: '{collection}', index: 'length'}}")).as_doc(),
            ),
            5 => {
                let mut command = DocBuilder::new();
                command.start_array("killSessions").push_document();
                let id = [random.random_range(1..=clients); 16];
                command.append("id", RawValue::uuid(&id)).end().end();
                line.ask("admin", command.finish().as_doc())
            }
            _ => kill_one(line, &mut random),
        };
    }
}

/// Changes definitions, fills and empties other collections, and lets documents expire, until the
/// run is over. It changes definitions of lists and registers only in ways that their clients do
/// not notice.
pub fn upheave<L: Line>(run: &Run, line: &mut L, seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed.rotate_left(17));
    while !run.over.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(random.random_range(5..60)));
        let key = run.turn() * KEYS + random.random_range(0..KEYS);
        let (db, collection) = match random.random_bool(0.3) {
            true => run.register_at(key),
            false => run.list_at(key),
        };
        let (db, command) = upheaval(&mut random, (db, &collection));
        let Ok(reply) = line.ask(db, parsed(&command).as_doc()) else { continue };
        let reply = Reply::of(reply);
        if [1, 8].contains(&reply.code) {
            run.complain(format!("{} to {command}", reply.shown()));
        }
    }
}

/// A command of [`upheave`] on a collection of lists or registers, or on others: its database and
/// its text.
fn upheaval<'r>(random: &mut SmallRng, (db, collection): (&'r str, &str)) -> (&'r str, String) {
    let flag = random.random_bool(0.5);
    match random.random_range(0..16) {
        0 => ("three", "{drop: 'side'}".to_owned()),
        1 => ("three", "{create: 'side', validator: {a: {$gte: 0}}}".to_owned()),
        2 => ("three", "{createIndexes: 'side', indexes: [{key: {a: 1}, name: 'a'}]}".to_owned()),
        3 => ("three", "{dropIndexes: 'side', index: 'a'}".to_owned()),
        4 => ("three", "{collMod: 'side', validationLevel: 'moderate'}".to_owned()),
        5 | 6 => {
            let documents = "{at: Date(0)}, ".repeat(random.random_range(1..20));
            ("three", format!("{{insert: 'due', documents: [{documents}]}}").replace(", ]", "]"))
        }
        7 => {
            let index = "{key: {at: 1}, name: 'at', expireAfterSeconds: 0}";
            ("three", format!("{{createIndexes: 'due', indexes: [{index}]}}"))
        }
        8 => (
            db,
            format!(
                "{{aggregate: '{collection}', pipeline: [{{$out: {{db: 'three', coll: 'copy'}}}}], cursor: {{}}}}"
            ),
        ),
        9 => {
            let into = "{db: 'three', coll: 'copies'}";
            (
                db,
                format!(
                    "{{aggregate: '{collection}', pipeline: [{{$merge: {{into: {into}}}}}], cursor: {{}}}}"
                ),
            )
        }
        10 => (
            "admin",
            "{renameCollection: 'three.copy', to: 'three.renamed', dropTarget: true}".to_owned(),
        ),
        11 => (
            db,
            format!(
                "{{collMod: '{collection}', changeStreamPreAndPostImages: {{enabled: {flag}}}}}"
            ),
        ),
        12 => {
            (db, format!("{{collMod: '{collection}', index: {{name: 'length', hidden: {flag}}}}}"))
        }
        13 => {
            let index = "{key: {never: 1}, name: 'never', expireAfterSeconds: 0}";
            (db, format!("{{createIndexes: '{collection}', indexes: [{index}]}}"))
        }
        14 => (db, format!("{{dropIndexes: '{collection}', index: 'never'}}")),
        _ => ("three", "{dropDatabase: 1}".to_owned()),
    }
}

fn kill_one<L: Line>(line: &mut L, random: &mut SmallRng) -> Result<DocBuf, Lost> {
    let reply = line.ask("admin", parsed("{currentOp: 1, active: true}").as_doc())?;
    let running =
        reply.as_doc().get("inprog").and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY);
    let running = running.iter().filter_map(|it| it.value().as_document());
    let of_sessions = running.filter(|it| it.get("lsid").is_some());
    let ids: Vec<i64> = of_sessions.map(|it| number(it, "opid")).filter(|id| *id != 0).collect();
    if ids.is_empty() {
        return Ok(DocBuf::empty());
    }
    let id = ids[random.random_range(0..ids.len())];
    line.ask("admin", parsed(&format!("{{killOp: 1, op: {id}}}")).as_doc())
}
