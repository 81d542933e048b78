//! The clients: a mixed load, much of which is abandoned.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mayfly_testkit::dialect::{self, parsed};
use mayfly_testkit::outside::Connection;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// The time without an answer after which a server counts as hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// Number of sessions that a client uses in turn and leaves open.
const SESSIONS: u8 = 8;

/// The state that clients share.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) port: u16,
    pub(crate) over: AtomicBool,
    /// The offset of the server's clock.
    pub(crate) offset_ms: AtomicI64,
    pub(crate) commands: AtomicU64,
    pub(crate) cuts: AtomicU64,
    /// The number of errors by code.
    pub(crate) refusals: Mutex<BTreeMap<i32, u64>>,
    pub(crate) complaints: Mutex<Vec<String>>,
}

impl Run {
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(crate) fn complain(&self, text: String) {
        if let Ok(mut complaints) = self.complaints.lock()
            && complaints.len() < 50
        {
            complaints.push(text);
        }
    }

    pub(crate) fn complaints(&self) -> Vec<String> {
        self.complaints.lock().map(|list| list.clone()).unwrap_or_default()
    }

    /// The server's time.
    fn now_ms(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_millis());
        now as i64 + self.offset_ms.load(Ordering::Relaxed)
    }
}

/// A whole number of a document.
pub(crate) fn number(document: RawDoc<'_>, name: &str) -> i64 {
    match document.get(name) {
        Some(RawValue::Int32(number)) => i64::from(number),
        Some(RawValue::Int64(number)) => number,
        Some(RawValue::Double(number)) => number as i64,
        _ => 0,
    }
}

/// Commands that run before the clients start.
pub(crate) fn preparations() -> [&'static str; 7] {
    [
        "{createIndexes: 'docs', indexes: [{key: {at: 1}, name: 'at', expireAfterSeconds: 0}, \
         {key: {n: 1}, name: 'n'}, {key: {tags: 1}, name: 'tags'}]}",
        "{create: 'hidden'}",
        "{createIndexes: 'hidden', indexes: [{key: {at: 1}, name: 'at', expireAfterSeconds: 0, \
         ttl: {hideExpired: true}}]}",
        "{create: 'measured', timeseries: {timeField: 'at', metaField: 'm'}, expireAfterSeconds: 10}",
        "{createIndexes: 'moved', indexes: [{key: {at: 1}, name: 'at', expireAfterSeconds: 0, \
         ttl: {archive: {collection: 'soak.old'}}}]}",
        "{createIndexes: 'old', indexes: [{key: {_ts: 1}, name: 'ts', expireAfterSeconds: 5}]}",
        "{createIndexes: 'sent', indexes: [{key: {at: 1}, name: 'at', expireAfterSeconds: 0, \
         ttl: {archive: {path: 's3://bucket/soak', format: 'bson.zst'}}}]}",
    ]
}

pub(crate) struct Client<'r> {
    run: &'r Run,
    number: u8,
    random: SmallRng,
    connection: Option<Connection>,
    transaction: i64,
}

impl<'r> Client<'r> {
    pub(crate) fn new(run: &'r Run, number: u8, seed: u64) -> Client<'r> {
        let random = SmallRng::seed_from_u64(seed.wrapping_mul(31).wrapping_add(u64::from(number)));
        Client { run, number, random, connection: None, transaction: 0 }
    }

    pub(crate) fn run(mut self) {
        while !self.run.is_over() {
            self.something();
        }
    }

    fn something(&mut self) {
        let collection = self.collection();
        let (n, random) = (self.random.random_range(0..1000), self.random.random_range(0..18));
        match random {
            0..4 => self.insert(collection),
            4 => {
                let command = format!("{{find: '{collection}', filter: {{n: {{$gte: {n}}}}}, sort: {{n: 1}}, batchSize: 20}}");
                self.pages(&command, "nextBatch");
            }
            5 => {
                let command = format!("{{find: '{collection}', filter: {{tags: {}}}, limit: 5}}", n % 10);
                self.ask(&parsed(&command));
            }
            6 => {
                let command = format!(
                    "{{update: '{collection}', updates: [{{q: {{n: {{$lt: {n}}}}}, u: {{$inc: {{n: 1}}, $push: {{tags: {{$each: [1, 2], $slice: -4}}}}}}, multi: {}}}]}}",
                    self.random.random_bool(0.3)
                );
                self.ask(&parsed(&command));
            }
            7 => {
                let command = format!("{{delete: '{collection}', deletes: [{{q: {{n: {n}}}, limit: 0}}]}}");
                self.ask(&parsed(&command));
            }
            8 => self.pages(
                "{aggregate: 'docs', pipeline: [{$sort: {text: 1, n: -1}}, {$group: {_id: '$n', all: {$push: '$text'}, c: {$sum: 1}}}, \
                 {$sort: {c: 1}}], cursor: {batchSize: 5}, allowDiskUse: true}",
                "nextBatch",
            ),
            9 => self.pages(
                "{aggregate: 'docs', pipeline: [{$limit: 50}, {$lookup: {from: 'hidden', localField: 'n', foreignField: 'n', as: 'x'}}, \
                 {$setWindowFields: {sortBy: {n: 1}, output: {s: {$sum: '$n', window: {documents: [-5, 0]}}}}}], cursor: {batchSize: 5}}",
                "nextBatch",
            ),
            10 => self.pages("{aggregate: 1, pipeline: [{$changeStream: {}}], cursor: {batchSize: 0}}", "stream"),
            11 => {
                let command = format!("{{aggregate: '{collection}', pipeline: [{{$changeStream: {{fullDocument: 'updateLookup'}}}}], cursor: {{}}}}");
                self.pages(&command, "stream");
            }
            12 | 13 => self.transaction(),
            14 => {
                let index = self.random.random_range(0..3);
                let command = match self.random.random_bool(0.5) {
                    true => format!("{{createIndexes: 'side', indexes: [{{key: {{a{index}: 1}}, name: 'a{index}'}}]}}"),
                    false => format!("{{dropIndexes: 'side', index: 'a{index}'}}"),
                };
                self.ask(&parsed(&command));
            }
            15 => {
                let command = match self.random.random_range(0..3) {
                    0 => "{drop: 'side'}".to_owned(),
                    1 => "{aggregate: 'docs', pipeline: [{$match: {n: {$lt: 100}}}, {$out: 'side'}], cursor: {}}".to_owned(),
                    _ => "{aggregate: 'docs', pipeline: [{$limit: 50}, {$merge: {into: 'side'}}], cursor: {}}".to_owned(),
                };
                self.ask(&parsed(&command));
            }
            16 => {
                let command = format!(
                    "{{findAndModify: '{collection}', query: {{n: {n}}}, update: {{$set: {{m: {n}}}}}, upsert: false, new: true}}"
                );
                self.ask(&parsed(&command));
            }
            _ => {
                let command = ["{ttlStatus: 1}", "{serverStatus: 1}", "{currentOp: 1}"];
                let command = command.choose(&mut self.random).copied().unwrap_or("{ping: 1}");
                self.ask_in("admin", &parsed(command));
            }
        }
    }

    fn collection(&mut self) -> &'static str {
        let all = ["docs", "docs", "docs", "hidden", "moved", "sent"];
        all.choose(&mut self.random).copied().unwrap_or("docs")
    }

    fn insert(&mut self, collection: &str) {
        let measures = self.random.random_bool(0.1);
        let collection = if measures { "measured" } else { collection };
        let count = match collection {
            "docs" => self.random.random_range(1..60),
            _ => self.random.random_range(1..10),
        };
        let now = self.run.now_ms();
        let mut command = DocBuilder::new();
        command.append("insert", collection).start_array("documents");
        for _ in 0..count {
            let n: i32 = self.random.random_range(0..1000);
            let life_ms = if measures { 0 } else { self.random.random_range(500..4000) };
            let text = "x".repeat(self.random.random_range(0..2000));
            command.push_document().append("at", RawValue::Date(now + life_ms)).append("n", n);
            command.append("m", n % 5).append("text", text.as_str()).start_array("tags");
            command.push(n % 10).push(n % 7).end().end();
        }
        command.end();
        self.ask(&command.finish());
    }

    /// Opens a cursor and reads some of it; often it is left open.
    fn pages(&mut self, command: &str, kind: &str) {
        let Some(reply) = self.ask(&parsed(command)) else { return };
        let cursor = |reply: &DocBuf| -> Option<(i64, String)> {
            let cursor = reply.as_doc().get("cursor")?.as_document()?;
            let (_, collection) = cursor.get("ns")?.as_str()?.split_once('.')?;
            Some((number(cursor, "id"), collection.to_owned()))
        };
        let Some((mut id, collection)) = cursor(&reply) else { return };
        let pages = self.random.random_range(0..6);
        for _ in 0..pages {
            if id == 0 {
                return;
            }
            let mut command = DocBuilder::new();
            command.append("getMore", id).append("collection", collection.as_str());
            if kind == "stream" {
                command.append("maxTimeMS", self.random.random_range(1..300));
            }
            let Some(reply) = self.ask(&command.finish()) else { return };
            id = cursor(&reply).map_or(0, |(id, _)| id);
        }
        if id != 0 && self.random.random_bool(0.3) {
            let mut command = DocBuilder::new();
            command
                .append("killCursors", collection.as_str())
                .start_array("cursors")
                .push(id)
                .end();
            self.ask(&command.finish());
        }
    }

    /// A transaction that is committed, aborted, or left open.
    fn transaction(&mut self) {
        self.transaction += 1;
        let session = [self.number, self.random.random_range(0..SESSIONS)].repeat(8);
        let mut begins = true;
        for _ in 0..self.random.random_range(1..5) {
            let n = self.random.random_range(0..1000);
            let collection = self.collection();
            let command = match self.random.random_range(0..4) {
                0 => format!("{{find: '{collection}', filter: {{n: {n}}}, batchSize: 1}}"),
                1 => format!(
                    "{{update: '{collection}', updates: [{{q: {{n: {n}}}, u: {{$set: {{m: 1}}}}}}]}}"
                ),
                2 => format!("{{delete: '{collection}', deletes: [{{q: {{n: {n}}}, limit: 1}}]}}"),
                _ => {
                    let at = self.run.now_ms() + 1000;
                    format!("{{insert: '{collection}', documents: [{{n: {n}, at: Date({at})}}]}}")
                }
            };
            let command = self.of_transaction(&parsed(&command), &session, begins);
            begins = false;
            let Some(reply) = self.ask(&command) else { return };
            if reply.as_doc().get("ok") != Some(RawValue::Double(1.0)) {
                return;
            }
        }
        let end = match self.random.random_range(0..10) {
            0..5 => "{commitTransaction: 1}",
            5..7 => "{abortTransaction: 1}",
            _ => return,
        };
        let command = self.of_transaction(&parsed(end), &session, false);
        self.ask_in("admin", &command);
    }

    fn of_transaction(&self, command: &DocBuf, session: &[u8], begins: bool) -> DocBuf {
        let mut body = DocBuilder::new();
        body.append_all(command.as_doc()).start_document("lsid");
        body.append("id", RawValue::Binary { subtype: 4, bytes: session }).end();
        body.append("txnNumber", self.transaction).append("autocommit", false);
        if begins {
            body.append("startTransaction", true);
        }
        body.finish()
    }

    fn ask(&mut self, command: &DocBuf) -> Option<DocBuf> {
        self.ask_in("soak", command)
    }

    /// Sends a command; `None` if the connection was cut.
    fn ask_in(&mut self, db: &str, command: &DocBuf) -> Option<DocBuf> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => match Connection::open(self.run.port, PATIENCE) {
                Ok(connection) => connection,
                Err(error) => {
                    self.run.complain(format!("no connection: {error}"));
                    std::thread::sleep(Duration::from_millis(100));
                    return None;
                }
            },
        };
        self.run.commands.fetch_add(1, Ordering::Relaxed);
        if self.random.random_bool(0.03) {
            self.run.cuts.fetch_add(1, Ordering::Relaxed);
            connection.cut(db, command.as_doc(), &mut self.random);
            return None;
        }
        match connection.ask(db, command.as_doc()) {
            Ok(reply) => {
                self.connection = Some(connection);
                self.check(command, &reply);
                Some(reply)
            }
            Err(error) => {
                let shown = dialect::show(command.as_doc());
                self.run.complain(format!("no answer: {error}: {shown}"));
                None
            }
        }
    }

    fn check(&self, command: &DocBuf, reply: &DocBuf) {
        let code = number(reply.as_doc(), "code") as i32;
        if code == 0 {
            return;
        }
        if let Ok(mut refusals) = self.run.refusals.lock() {
            *refusals.entry(code).or_default() += 1;
        }
        if code == 1 || code == 8 {
            let (command, reply) = (dialect::show(command.as_doc()), dialect::show(reply.as_doc()));
            self.run.complain(format!("{reply} to {command}"));
        }
    }
}
