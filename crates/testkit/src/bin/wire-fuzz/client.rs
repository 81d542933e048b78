//! One connection: plays scripts with mutated commands and checks each answer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use mayfly_base::ErrorCode;
use mayfly_base::limits::{MAX_BSON_DEPTH, MAX_USER_DOCUMENT_BYTES};
use mayfly_testkit::outside::Connection;
use mayfly_value::{DocBuf, RawDoc, RawValue, validate};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::corpus::{Step, collections, line, resolve};
use crate::mutate::{leaf, made, mutate};
use crate::shared::Shared;
use crate::tree::Node;

/// The time without an answer after which a server counts as hanging, also on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// The number of last commands of each connection that are printed after a failure.
const REMEMBERED: usize = 60;
/// The largest `maxTimeMS` of a command.
const LONGEST_MS: i32 = 1500;

/// Commands that end the server, or make it fail or wait on purpose.
const LEFT_OUT: &[&str] = &["shutdown", "configureFailPoint", "waitForFailPoint"];
/// Parameters that are not changed: with them the server would use more memory, or fill the log.
const KEPT_PARAMETERS: &[&str] = &[
    "maxOperationMemoryBytes",
    "memoryLimitMB",
    "maxIndexBuildMemoryUsageMegabytes",
    "jsHeapLimitMB",
    "internalQueryJavaScriptHeapSizeLimitMB",
    "logLevel",
    "logComponentVerbosity",
    "transactionLifetimeLimitSeconds",
];
/// Commands whose effect is reverted at the end of a script.
const TAKEN_BACK: &[&str] = &[
    "setParameter",
    "setUserWriteBlockMode",
    "setDefaultRWConcern",
    "setClusterParameter",
    "fsyncUnlock",
    "profile",
];

/// The fields that put a command into a transaction.
const OF_TRANSACTIONS: &[&str] =
    &["lsid", "txnNumber", "autocommit", "startTransaction", "readConcern", "writeConcern"];

pub(crate) struct Client<'s> {
    shared: &'s Shared,
    number: u8,
    random: SmallRng,
    connection: Option<Connection>,
    cursor: i64,
    time: u64,
    /// The number of the present transaction, and whether commands are sent in it.
    transaction: (i64, bool),
    remembered: VecDeque<(String, DocBuf)>,
}

impl<'s> Client<'s> {
    pub(crate) fn new(shared: &'s Shared, number: u8, seed: u64) -> Client<'s> {
        let random = SmallRng::seed_from_u64(seed.wrapping_mul(31).wrapping_add(u64::from(number)));
        let (connection, remembered) = (None, VecDeque::new());
        let transaction = (0, false);
        Client { shared, number, random, connection, cursor: 0, time: 0, transaction, remembered }
    }

    /// Plays scripts until the run is over; returns the last commands.
    pub(crate) fn run(mut self) -> Vec<String> {
        while !self.shared.is_over() {
            self.play();
        }
        self.remembered.iter().map(|(db, command)| line(db, command.as_doc())).collect()
    }

    fn play(&mut self) {
        let scripts = &self.shared.corpus.scripts;
        let Some(script) = scripts.choose(&mut self.random) else { return };
        let suffix = match self.random.random_bool(0.85) {
            true => format!("_{}", self.number),
            false => "_all".to_owned(),
        };
        let places = collections(script);
        let mut takes_back = false;
        for db in places.iter().map(|(db, _)| db) {
            self.send(with_suffix(db, &suffix), command("dropDatabase", Node::leaf(1)));
        }
        for step in script {
            if self.shared.is_over() {
                return;
            }
            if self.random.random_bool(0.25) {
                for _ in 0..self.random.random_range(1..4) {
                    takes_back |= self.other(&places, &suffix);
                }
            }
            let mut step = step.clone();
            if self.random.random_bool(0.3) {
                mutate(&mut step.command, &self.shared.corpus, &mut self.random);
            }
            self.begin_or_end();
            self.decorate(&mut step.command);
            takes_back |= self.send(with_suffix(&step.db, &suffix), step.command);
        }
        self.transaction.1 = false;
        if takes_back {
            self.shared.take_back().into_iter().for_each(|it| {
                self.send("admin".to_owned(), it);
            });
        }
    }

    /// Sends a command of another script to a collection of this one.
    fn other(&mut self, places: &[(String, String)], suffix: &str) -> bool {
        let place = places.choose(&mut self.random).cloned();
        let (db, collection) = place.unwrap_or(("test".to_owned(), "c".to_owned()));
        let corpus = &self.shared.corpus;
        let found = self.shared.interesting(&mut self.random);
        let mut step = match (self.random.random_range(0..4), found) {
            (0, Some(found)) => found,
            (0 | 1, _) => corpus.command(&mut self.random),
            _ => {
                let command = made(&collection, corpus, &mut self.random);
                Step { db: db.clone(), command }
            }
        };
        if let Node::Document(fields) = &mut step.command
            && let Some((_, Node::Leaf(target))) = fields.first_mut()
            && matches!(target.as_raw(), RawValue::String(_))
            && self.random.random_bool(0.8)
        {
            *target = RawValue::String(&collection).to_owned();
            step.db = db;
        }
        if self.random.random_bool(0.8) {
            mutate(&mut step.command, corpus, &mut self.random);
        }
        self.decorate(&mut step.command);
        self.send(with_suffix(&step.db, suffix), step.command)
    }

    /// Begins a transaction for the next commands, or ends it.
    fn begin_or_end(&mut self) {
        if !self.random.random_bool(if self.transaction.1 { 0.2 } else { 0.02 }) {
            return;
        }
        if self.transaction.1 {
            let end = match self.random.random_bool(0.6) {
                true => "commitTransaction",
                false => "abortTransaction",
            };
            let mut end = command(end, Node::leaf(1));
            self.put_into_transaction(&mut end);
            self.transaction.1 = false;
            self.send("admin".to_owned(), end);
        } else {
            self.transaction = (self.transaction.0 + 1, true);
        }
    }

    fn put_into_transaction(&self, command: &mut Node) {
        let id = RawValue::Binary { subtype: 4, bytes: &[self.number; 16] };
        let Node::Document(fields) = command else { return };
        fields.retain(|(name, _)| !OF_TRANSACTIONS.contains(&name.as_str()));
        fields.push(("lsid".to_owned(), Node::one("id", Node::leaf(id))));
        fields.push(("txnNumber".to_owned(), Node::leaf(self.transaction.0)));
        fields.push(("autocommit".to_owned(), Node::leaf(false)));
    }

    /// Adds what any command may have: a transaction, `explain`, a read concern, a collation.
    fn decorate(&mut self, it: &mut Node) {
        if self.transaction.1 {
            self.put_into_transaction(it);
            // Often there is no open transaction: the server refuses the command, and the next one
            // begins a transaction.
            if self.random.random_bool(0.4)
                && let Node::Document(fields) = it
            {
                fields.push(("startTransaction".to_owned(), Node::leaf(true)));
            }
            return;
        }
        let Node::Document(fields) = it else { return };
        match self.random.random_range(0..60) {
            0 | 1 => {
                let verbosities = ["queryPlanner", "executionStats", "allPlansExecution"];
                let verbosity = verbosities.choose(&mut self.random).copied().unwrap_or("x");
                let inner = std::mem::replace(it, Node::Array(Vec::new()));
                *it = Node::Document(vec![
                    ("explain".to_owned(), inner),
                    ("verbosity".to_owned(), Node::leaf(verbosity)),
                ]);
            }
            2 => {
                let levels = ["snapshot", "majority", "local", "linearizable"];
                let level = levels.choose(&mut self.random).copied().unwrap_or("local");
                fields.push(("readConcern".to_owned(), Node::one("level", Node::leaf(level))));
            }
            3 => {
                let collation = self.shared.corpus.value("collation", &mut self.random);
                fields.push(("collation".to_owned(), collation));
            }
            _ => {}
        }
    }

    /// Sends a command if it may be sent. Returns whether its effect must be reverted.
    fn send(&mut self, db: String, mut command: Node) -> bool {
        let Some((name, limit)) = self.prepare(&mut command) else { return false };
        resolve(&mut command, self.cursor, self.time, self.number);
        let document = command.document();
        if document.as_bytes().len() > MAX_USER_DOCUMENT_BYTES {
            return false;
        }
        self.remembered.push_back((db.clone(), document.clone()));
        if self.remembered.len() > REMEMBERED {
            self.remembered.pop_front();
        }
        let Some(mut connection) = self.connect() else { return false };
        let began = Instant::now();
        let reply = connection.ask(&db, document.as_doc());
        let took = began.elapsed();
        self.shared.note_sent();
        match reply {
            Ok(reply) => {
                self.connection = Some(connection);
                self.shared.check_time(&name, began, took, limit, &db, document.as_doc());
                self.check(&name, &db, document.as_doc(), reply.as_doc(), command);
            }
            Err(error) if Connection::is_late(&error) => {
                let why = format!("{name}: no answer within {PATIENCE:?}");
                self.shared.fail_for_good(why, &db, document.as_doc());
            }
            Err(error) => {
                let why = format!("{name}: the connection closed without an answer: {error}");
                self.shared.fail(why, &db, document.as_doc());
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        TAKEN_BACK.contains(&name.as_str()) || name.starts_with("fsync")
    }

    fn connect(&mut self) -> Option<Connection> {
        if let Some(connection) = self.connection.take() {
            return Some(connection);
        }
        match Connection::open(self.shared.port, PATIENCE) {
            Ok(connection) => Some(connection),
            Err(error) => {
                let why = format!("no connection: {error}");
                self.shared.fail_for_good(why, "admin", RawDoc::EMPTY);
                None
            }
        }
    }

    /// The command's name and its time limit; `None` if it is not sent.
    fn prepare(&mut self, command: &mut Node) -> Option<(String, Duration)> {
        let Node::Document(fields) = command else { return None };
        let name = fields.first()?.0.clone();
        if LEFT_OUT.contains(&name.as_str()) {
            return None;
        }
        if name == "fsync" && fields.iter().any(|(name, _)| name == "lock") {
            return None;
        }
        if name == "setParameter" {
            fields.retain(|(name, _)| !KEPT_PARAMETERS.contains(&name.as_str()));
        }
        let limits = ["$db", "maxTimeMS", "maxTimeMSOpOnly", "maxAwaitTimeMS"];
        let had = fields.iter().any(|(name, _)| name == "maxTimeMS" || name == "maxAwaitTimeMS");
        // The name of the first field is the command.
        let mut first = true;
        fields.retain(|(name, _)| std::mem::take(&mut first) || !limits.contains(&name.as_str()));
        let limit = match self.random.random_range(0..20) {
            0 => self.random.random_range(1..20),
            1 => self.random.random_range(20..200),
            _ => LONGEST_MS,
        };
        let (limit_name, limit) = match name.as_str() {
            "getMore" if had || self.random.random_bool(0.1) => ("maxTimeMS", limit),
            // The rest of the time limit of the command that opened the cursor is unknown here.
            "getMore" => return Some((name, PATIENCE)),
            "hello" | "isMaster" | "ismaster" => ("maxAwaitTimeMS", limit),
            _ => ("maxTimeMS", limit),
        };
        let value = match self.random.random_range(0..200) {
            0 => Node::leaf("x"),
            1 => match leaf(&mut self.random).as_raw() {
                value if value.is_number() => Node::leaf(limit),
                RawValue::Null | RawValue::Undefined => Node::leaf(limit),
                other => Node::leaf(other),
            },
            _ => Node::leaf(limit),
        };
        if !name.starts_with("hello") && !name.starts_with("is") || had {
            fields.push((limit_name.to_owned(), value));
        }
        Some((name, Duration::from_millis(limit as u64)))
    }

    fn check(&mut self, name: &str, db: &str, command: RawDoc<'_>, reply: RawDoc<'_>, node: Node) {
        let checked = match validate(reply.as_bytes(), MAX_BSON_DEPTH) {
            // A reply adds levels to a document that has the maximal depth.
            Err(error) if error.code() == ErrorCode::Overflow => batch(reply)
                .try_for_each(|document| validate(document.as_bytes(), MAX_BSON_DEPTH).map(drop)),
            checked => checked.map(drop),
        };
        if let Err(error) = checked {
            return self.shared.fail(
                format!("{name}: a reply that is no BSON: {error}"),
                db,
                command,
            );
        }
        let cursor = reply.get("cursor").and_then(RawValue::as_document);
        if let Some(RawValue::Int64(id)) = cursor.and_then(|cursor| cursor.get("id"))
            && id != 0
        {
            self.cursor = id;
        }
        if let Some(RawValue::Timestamp(time)) = reply.get("operationTime") {
            self.time = time;
        }
        let text =
            |doc: RawDoc<'_>| doc.get("errmsg").and_then(RawValue::as_str).unwrap_or("").to_owned();
        let code = |doc: RawDoc<'_>| match doc.get("code") {
            Some(RawValue::Int32(code)) => code,
            _ => 0,
        };
        let mut errors = vec![(code(reply), text(reply))];
        for list in ["writeErrors", "firstBatch"] {
            let list = reply.get(list).or_else(|| cursor.and_then(|it| it.get(list)));
            let list = list.and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY);
            let items = list.iter().take(20).filter_map(|it| it.value().as_document());
            errors.extend(items.filter(|_| name != "find").map(|it| (code(it), text(it))));
        }
        // Faulty searches have this code.
        let may_be_unknown = name == "applyOps" || format!("{node:?}").contains("earch");
        let is_fault = |(code, text): &&(i32, String)| {
            *code == 1 && !text.is_empty() || (*code == 8 && !may_be_unknown)
        };
        if let Some((code, text)) = errors.iter().find(is_fault) {
            self.shared.fail(format!("{name}: answered {code} {text}"), db, command);
        }
        if !matches!(reply.get("ok"), Some(RawValue::Double(_))) {
            self.shared.fail(format!("{name}: a reply without ok"), db, command);
        }
        for (code, text) in errors {
            self.shared.note(
                name,
                code,
                &text,
                reply,
                Step { db: db.to_owned(), command: node.clone() },
            );
        }
    }
}

pub(crate) fn command(name: &str, value: Node) -> Node {
    Node::one(name, value)
}

/// The documents of a reply with a cursor.
fn batch(reply: RawDoc<'_>) -> impl Iterator<Item = RawDoc<'_>> {
    let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY);
    let lists = ["firstBatch", "nextBatch"].into_iter().filter_map(move |list| cursor.get(list));
    lists
        .filter_map(RawValue::as_array)
        .flat_map(RawDoc::iter)
        .filter_map(|it| it.value().as_document())
}

fn with_suffix(db: &str, suffix: &str) -> String {
    let is_own = db.ends_with(suffix) || db.len() + suffix.len() > 60;
    match db {
        "admin" | "local" | "config" | "$external" => db.to_owned(),
        _ if is_own => db.to_owned(),
        _ => format!("{db}{suffix}"),
    }
}
