//! Clients that make histories by commands, over any [`Line`] to a server: in this process, or over
//! a network that loses replies.
//!
//! A client runs one transaction after the other, each with some statements on lists and registers,
//! and single retryable writes between them. It behaves as a driver does: without a reply, it sends
//! a single write again with the same number; if a statement fails, it abandons the transaction; if
//! the outcome of a commit is unknown, it sends `commitTransaction` again. Replies that the server
//! must never send are recorded ([`Run::complaints`]).

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{Outcome, Step, Transaction};
use crate::dialect::{self, parsed};

/// The number of lists, and of registers, in use at a time.
pub(super) const KEYS: u32 = 6;
/// The number of writes before other lists and registers are used.
const TURN: u64 = 60;
/// The default number of turns before other collections are used.
const GENERATION: u32 = 10;
/// The number of retries of a command whose outcome is unknown.
const ATTEMPTS: usize = 12;

/// Expected error codes: conflicts, kills, limits, a server that stops, and one that is not the
/// primary any more.
const EXPECTED: &[i32] =
    &[6, 24, 91, 112, 189, 246, 251, 290, 10107, 11000, 11600, 11601, 11602, 13435, 13436];
/// Codes after which a client may always retry its transaction; the reply must have the label for
/// it.
const TRANSIENT: &[i32] = &[24, 112, 246, 251];
/// The code of operations that `killOp` and `killSessions` have ended.
const INTERRUPTED: i32 = 11601;
/// Codes after which a write is sent again: its outcome is unknown, or another server is the
/// primary.
const DOUBTFUL: &[i32] = &[6, 91, 189, 10107, 11600, 11602, 13436];

/// It is unknown whether the command was executed.
#[derive(Clone, Copy, Debug)]
pub struct Lost;

/// A connection to a server.
pub trait Line {
    /// Runs a command without `$db`.
    ///
    /// # Errors
    /// There was no reply.
    fn ask(&mut self, db: &str, command: RawDoc<'_>) -> Result<DocBuf, Lost>;

    /// Whether the server may be a secondary.
    fn goes_to_any(&self) -> bool {
        false
    }
}

/// The state that all clients of a history share.
pub struct Run {
    began: Instant,
    next_value: AtomicU64,
    complaints: Mutex<Vec<String>>,
    refusals: Mutex<BTreeMap<i32, u64>>,
    repeats: Mutex<BTreeMap<&'static str, u64>>,
    /// The number of turns after which other collections are used.
    generation: u32,
    /// Whether a client is sometimes slower than `transactionLifetimeLimitSeconds` of 1.
    is_slow: bool,
    /// The greatest `operationTime` of a reply.
    time: AtomicU64,
    /// The number of reads that any member of a set answered.
    elsewhere: AtomicU64,
    /// Set at the end of the run, for the disturber and clients.
    pub over: AtomicBool,
}

impl Default for Run {
    fn default() -> Run {
        Run {
            began: Instant::now(),
            next_value: AtomicU64::new(0),
            complaints: Mutex::default(),
            refusals: Mutex::default(),
            repeats: Mutex::default(),
            generation: GENERATION,
            is_slow: false,
            time: AtomicU64::new(0),
            elsewhere: AtomicU64::new(0),
            over: AtomicBool::new(false),
        }
    }
}

impl Run {
    /// A history that uses the same few collections throughout.
    pub fn over_few_collections() -> Run {
        Run { generation: u32::MAX / KEYS, ..Run::default() }
    }

    /// A history of clients that are sometimes slower than a `transactionLifetimeLimitSeconds` of
    /// 1.
    pub fn with_slow_clients() -> Run {
        Run { is_slow: true, ..Run::default() }
    }

    /// The time since the first client began.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Records an event that must not occur.
    pub fn complain(&self, text: String) {
        if let Ok(mut complaints) = self.complaints.lock() {
            complaints.push(text);
        }
    }

    /// The events that must not occur, in their order.
    pub fn complaints(&self) -> Vec<String> {
        self.complaints.lock().map(|list| list.clone()).unwrap_or_default()
    }

    /// The number of failed commands, by code.
    pub fn refusals(&self) -> BTreeMap<i32, u64> {
        self.refusals.lock().map(|counts| counts.clone()).unwrap_or_default()
    }

    /// The outcome of writes and commits that were retried because it was unknown.
    pub fn repeats(&self) -> BTreeMap<&'static str, u64> {
        self.repeats.lock().map(|counts| counts.clone()).unwrap_or_default()
    }

    /// The number of reads that any member of a set answered.
    pub fn reads_elsewhere(&self) -> u64 {
        self.elsewhere.load(Ordering::Relaxed)
    }

    fn note_repeat(&self, attempt: usize, what: &'static str) {
        if attempt > 0
            && let Ok(mut repeats) = self.repeats.lock()
        {
            *repeats.entry(what).or_default() += 1;
        }
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    pub(super) fn turn(&self) -> u32 {
        (self.next_value.load(Ordering::Relaxed) / TURN) as u32
    }

    fn value(&self) -> u64 {
        self.next_value.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The database and collection of a list.
    pub(super) fn list_at(&self, key: u32) -> (&'static str, String) {
        let (db, name) = [("one", "lists"), ("one", "others"), ("two", "lists")][key as usize % 3];
        (db, format!("{name}{}", key / KEYS / self.generation))
    }

    /// The database and collection of a register.
    pub(super) fn register_at(&self, key: u32) -> (&'static str, String) {
        ("two", format!("registers{}", key / KEYS / self.generation))
    }

    /// A read of two lists at once.
    fn lookup(&self, key: u32) -> String {
        let other = neighbour(key);
        format!(
            "{{aggregate: '{}', pipeline: [{{$match: {{_id: {key}}}}}, {{$lookup: {{from: '{}', \
             pipeline: [{{$match: {{_id: {other}}}}}], as: 'other'}}}}], cursor: {{}}",
            self.list_at(key).1,
            self.list_at(other).1
        )
    }

    /// All collections that have been in use.
    pub fn namespaces(&self) -> Vec<(&'static str, String)> {
        let generations = 0..=self.turn() / self.generation;
        let of = |generation| {
            let first = generation * self.generation * KEYS;
            let lists = [first, first + 1, first + 2].map(|key| self.list_at(key));
            lists.into_iter().chain([self.register_at(first)])
        };
        generations.flat_map(of).collect()
    }

    /// Reads all lists and registers after the last write.
    ///
    /// # Errors
    /// A description of an unexpected reply.
    pub fn read_all(&self, line: &mut dyn Line) -> Result<Transaction, String> {
        let begin = self.now();
        let mut found: BTreeMap<String, BTreeMap<u32, DocBuf>> = BTreeMap::new();
        for (db, collection) in self.namespaces() {
            let command = format!("{{find: '{collection}', batchSize: 100000}}");
            let reply = line.ask(db, parsed(&command).as_doc()).map_err(|_| "no answer".to_owned());
            let reply = Reply::of(reply?);
            if reply.code != 0 {
                return Err(format!("{db}.{collection}: {}", reply.shown()));
            }
            let by_key =
                reply.batch().into_iter().map(|it| (number(it.as_doc(), "_id") as u32, it));
            found.insert(format!("{db}.{collection}"), by_key.collect());
        }
        let get = |(db, collection): (&str, String), key| {
            found.get(&format!("{db}.{collection}")).and_then(|all| all.get(&key))
        };
        let mut steps = Vec::new();
        for key in 0..(self.turn() + 1) * KEYS {
            let values =
                get(self.list_at(key), key).map(|it| list(it.as_doc())).unwrap_or_default();
            steps.push(Step::Read { key, values });
            let value = get(self.register_at(key), key).and_then(|it| register(it.as_doc()));
            steps.push(Step::Get { key, value });
        }
        Ok(Transaction { begin, end: self.now(), outcome: Outcome::Ok, steps })
    }
}

pub(super) fn number(document: RawDoc<'_>, name: &str) -> i64 {
    match document.get(name) {
        Some(RawValue::Int32(number)) => i64::from(number),
        Some(RawValue::Int64(number)) => number,
        _ => 0,
    }
}

pub(super) fn list(document: RawDoc<'_>) -> Vec<u64> {
    let values = document.get("list").and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY);
    let value = |value| match value {
        RawValue::Int64(value) => value as u64,
        _ => 0,
    };
    values.iter().map(|element| value(element.value())).collect()
}

pub(super) fn register(document: RawDoc<'_>) -> Option<u64> {
    Some(number(document, "value") as u64).filter(|value| *value > 0)
}

/// A reply of the server.
pub(super) struct Reply {
    document: DocBuf,
    /// 0 for success; otherwise the code of the error, or of the first write error.
    pub(super) code: i32,
}

impl Reply {
    pub(super) fn of(document: DocBuf) -> Reply {
        let reply = document.as_doc();
        let first = reply.get("writeErrors").and_then(RawValue::as_array);
        let first = first.and_then(|errors| errors.iter().next()?.value().as_document());
        let is_ok = reply.get("ok") == Some(RawValue::Double(1.0));
        let code = match (is_ok, first) {
            (true, None) => 0,
            (true, Some(first)) => number(first, "code") as i32,
            (false, _) => number(reply, "code") as i32,
        };
        // A reply without ok and without a code is an error, too.
        let code = if code == 0 && !is_ok { -1 } else { code };
        Reply { code, document }
    }

    fn has(&self, label: &str) -> bool {
        let labels = self.document.as_doc().get("errorLabels").and_then(RawValue::as_array);
        labels.is_some_and(|labels| labels.iter().any(|it| it.value() == RawValue::String(label)))
    }

    fn is_acknowledged(&self) -> bool {
        self.document.as_doc().get("writeConcernError").is_none()
    }

    fn batch(&self) -> Vec<DocBuf> {
        let cursor = self.document.as_doc().get("cursor").and_then(RawValue::as_document);
        let batch = cursor.and_then(|cursor| cursor.get("firstBatch")?.as_array());
        let batch = batch.unwrap_or(RawDoc::EMPTY);
        batch.iter().filter_map(|it| it.value().as_document().map(RawDoc::to_owned)).collect()
    }

    fn first(&self) -> Option<DocBuf> {
        self.batch().into_iter().next()
    }

    /// The document that `findAndModify` returned.
    fn value(&self) -> Option<DocBuf> {
        self.document.as_doc().get("value")?.as_document().map(RawDoc::to_owned)
    }

    pub(super) fn shown(&self) -> String {
        dialect::show(self.document.as_doc())
    }
}

/// Why a transaction ends before its commit.
enum Ended {
    /// The server refused a statement.
    Refused,
    /// There was no reply to a statement.
    Lost,
}

/// A client that runs transactions sequentially.
pub struct Client<'r, L> {
    run: &'r Run,
    line: L,
    /// A connection to any member of a set, for some of the reads.
    elsewhere: Option<L>,
    session: u8,
    number: i64,
    random: SmallRng,
    /// Whether the next statement begins the transaction.
    begins: bool,
}

impl<'r, L: Line> Client<'r, L> {
    /// A client with a session of its own.
    pub fn new(run: &'r Run, line: L, session: u8, seed: u64) -> Client<'r, L> {
        let random = SmallRng::seed_from_u64(seed.wrapping_add(u64::from(session)));
        Client { run, line, elsewhere: None, session, number: 0, random, begins: false }
    }

    /// The client sends half of its single reads to any member of a set. They name the greatest
    /// time that a client of the history has seen, so they must see all that was acknowledged
    /// before.
    pub fn reading_from(self, elsewhere: Option<L>) -> Client<'r, L> {
        Client { elsewhere, ..self }
    }

    /// Runs a transaction, or a single write.
    pub fn transaction(&mut self) -> Transaction {
        let begin = self.run.now();
        let mut steps = Vec::new();
        let outcome = match self.random.random_range(0..8) {
            0 => self.read_alone(&mut steps),
            1 => self.append_alone(&mut steps),
            2 => self.write_alone(&mut steps),
            _ => self.several(&mut steps),
        };
        Transaction { begin, end: self.run.now(), outcome, steps }
    }

    fn key(&mut self) -> u32 {
        self.run.turn() * KEYS + self.random.random_range(0..KEYS)
    }

    fn ask(&mut self, db: &str, command: &DocBuf) -> Result<Reply, Lost> {
        let reply = self.line.ask(db, command.as_doc())?;
        self.checked(reply, command)
    }

    /// Sends a read to any member.
    fn ask_elsewhere(&mut self, db: &str, command: &str) -> Result<Reply, Lost> {
        let Some(line) = &mut self.elsewhere else { return Err(Lost) };
        let mut body = DocBuilder::new();
        body.append_all(parsed(&format!("{command}}}")).as_doc());
        body.start_document("$readPreference").append("mode", "secondaryPreferred").end();
        let time = RawValue::Timestamp(self.run.time.load(Ordering::Acquire));
        body.start_document("readConcern").append("level", "majority");
        body.append("afterClusterTime", time).end();
        // Drivers send it, too: the member may not have come to this time.
        body.start_document("$clusterTime").append("clusterTime", time).end();
        let body = body.finish();
        let reply = line.ask(db, body.as_doc())?;
        self.run.elsewhere.fetch_add(1, Ordering::Relaxed);
        self.checked(reply, &body)
    }

    fn checked(&mut self, reply: DocBuf, command: &DocBuf) -> Result<Reply, Lost> {
        if let Some(RawValue::Timestamp(time)) = reply.as_doc().get("operationTime") {
            self.run.time.fetch_max(time, Ordering::AcqRel);
        }
        let reply = Reply::of(reply);
        if reply.code != 0 {
            if let Ok(mut counts) = self.run.refusals.lock() {
                *counts.entry(reply.code).or_default() += 1;
            }
            if !EXPECTED.contains(&reply.code) {
                let command = dialect::show(command.as_doc());
                self.run.complain(format!("unexpected: {} to {command}", reply.shown()));
            }
        }
        Ok(reply)
    }

    fn read_alone(&mut self, steps: &mut Vec<Step>) -> Outcome {
        let key = self.key();
        let has_time = self.run.time.load(Ordering::Acquire) > 0;
        if self.elsewhere.is_some() && has_time && self.random.random_bool(0.5) {
            return self.read_elsewhere(key, steps);
        }
        match self.random.random_range(0..3) {
            0 => {
                let command = format!("{}}}", find(&self.run.list_at(key).1, key));
                let Ok(reply) = self.ask(self.run.list_at(key).0, &parsed(&command)) else {
                    return Outcome::Fail;
                };
                note_list(&reply, key, steps)
            }
            1 => {
                let command = format!("{}}}", find(&self.run.register_at(key).1, key));
                let Ok(reply) = self.ask(self.run.register_at(key).0, &parsed(&command)) else {
                    return Outcome::Fail;
                };
                note_register(&reply, key, steps)
            }
            _ => {
                let concern = "readConcern: {level: 'snapshot'}";
                let command = format!("{}, {concern}}}", self.run.lookup(key));
                let Ok(reply) = self.ask(self.run.list_at(key).0, &parsed(&command)) else {
                    return Outcome::Fail;
                };
                note_both(&reply, key, steps)
            }
        }
    }

    fn read_elsewhere(&mut self, key: u32, steps: &mut Vec<Step>) -> Outcome {
        let is_list = self.random.random_bool(0.5);
        let (db, collection) = match is_list {
            true => self.run.list_at(key),
            false => self.run.register_at(key),
        };
        match (self.ask_elsewhere(db, &find(&collection, key)), is_list) {
            (Err(Lost), _) => Outcome::Fail,
            (Ok(reply), true) => note_list(&reply, key, steps),
            (Ok(reply), false) => note_register(&reply, key, steps),
        }
    }

    /// Sends a single write until there is a reply; `None` if its outcome stays unknown.
    ///
    /// `killOp` may end a repeated write before the server looks up whether the first attempt was
    /// executed, so its refusal then says nothing about the outcome.
    fn repeated(&mut self, db: &str, command: &str) -> Option<Reply> {
        self.number += 1;
        let command = parsed(&format!("{command}}}"));
        let mut body = DocBuilder::new();
        body.append_all(command.as_doc()).start_document("lsid");
        body.append("id", RawValue::uuid(&[self.session; 16])).end();
        body.append("txnNumber", self.number);
        let body = body.finish();
        for attempt in 0..ATTEMPTS {
            if attempt > 2 {
                std::thread::sleep(Duration::from_millis(5 << attempt.min(6)));
            }
            match self.ask(db, &body) {
                Ok(reply) if reply.code == 0 && !reply.is_acknowledged() => {}
                Ok(reply) if DOUBTFUL.contains(&reply.code) || reply.has("RetryableWriteError") => {
                }
                Ok(reply) if attempt > 0 && reply.code == INTERRUPTED => {}
                Ok(reply) => {
                    let recalled = reply.document.as_doc();
                    let was_executed = ["retriedStmtId", "retriedStmtIds"]
                        .iter()
                        .any(|name| recalled.get(name).is_some());
                    self.run.note_repeat(
                        attempt,
                        if was_executed { "writes recalled" } else { "writes executed then" },
                    );
                    return Some(reply);
                }
                Err(Lost) => {}
            }
        }
        None
    }

    fn append_alone(&mut self, steps: &mut Vec<Step>) -> Outcome {
        let (key, value) = (self.key(), self.run.value());
        let (db, collection) = self.run.list_at(key);
        let shows = self.random.random_bool(0.5);
        steps.push(Step::Append { key, value });
        match self.repeated(db, &append(&collection, key, value, shows)) {
            None => Outcome::Info,
            Some(reply) if reply.code != 0 => Outcome::Fail,
            Some(reply) => {
                note_shown(&reply, key, shows, steps);
                Outcome::Ok
            }
        }
    }

    /// Writes a register if it still has the value that was read.
    fn write_alone(&mut self, steps: &mut Vec<Step>) -> Outcome {
        let (key, value) = (self.key(), self.run.value());
        let (db, collection) = self.run.register_at(key);
        let command = format!("{}}}", find(&collection, key));
        let Ok(reply) = self.ask(db, &parsed(&command)) else { return Outcome::Fail };
        if reply.code != 0 {
            return Outcome::Fail;
        }
        let before = reply.first().and_then(|it| register(it.as_doc()));
        steps.push(Step::Get { key, value: before });
        let command = match before {
            Some(before) => format!(
                "{{update: '{collection}', updates: [{{q: {{_id: {key}, value: NumberLong({before})}}, \
                 u: {{$set: {{value: NumberLong({value})}}}}}}]"
            ),
            None => format!(
                "{{insert: '{collection}', documents: [{{_id: {key}, value: NumberLong({value})}}]"
            ),
        };
        match self.repeated(db, &command) {
            None => {
                steps.push(Step::Write { key, value });
                Outcome::Info
            }
            Some(reply) if reply.code != 0 => {
                steps.push(Step::Write { key, value });
                Outcome::Fail
            }
            // Another client was faster: this one has only read.
            Some(reply) if number(reply.document.as_doc(), "n") == 0 => Outcome::Ok,
            Some(_) => {
                steps.push(Step::Write { key, value });
                Outcome::Ok
            }
        }
    }

    /// A statement of the open transaction.
    fn statement(&mut self, db: &str, command: &str) -> Result<Reply, Ended> {
        let reply = self.statement_or_end(db, command).map_err(|_| Ended::Lost)?;
        if reply.code == 0 {
            return Ok(reply);
        }
        if TRANSIENT.contains(&reply.code) && !reply.has("TransientTransactionError") {
            self.run.complain(format!("no label: {} to {command}", reply.shown()));
        }
        Err(Ended::Refused)
    }

    fn statement_or_end(&mut self, db: &str, command: &str) -> Result<Reply, Lost> {
        let command = parsed(&format!("{command}}}"));
        let mut body = DocBuilder::new();
        body.append_all(command.as_doc()).start_document("lsid");
        body.append("id", RawValue::uuid(&[self.session; 16])).end();
        body.append("txnNumber", self.number).append("autocommit", false);
        if std::mem::take(&mut self.begins) {
            body.append("startTransaction", true);
        }
        self.ask(db, &body.finish())
    }

    fn several(&mut self, steps: &mut Vec<Step>) -> Outcome {
        (self.number, self.begins) = (self.number + 1, true);
        for _ in 0..self.random.random_range(1..6) {
            match self.step(steps) {
                Ok(()) => {}
                Err(Ended::Refused) if self.random.random_bool(0.3) => {
                    // The transaction has ended: a commit must fail.
                    if let Ok(reply) = self.statement_or_end("admin", "{commitTransaction: 1")
                        && reply.code == 0
                    {
                        let number = self.number;
                        self.run.complain(format!("a failed transaction was committed: {number}"));
                    }
                    return Outcome::Fail;
                }
                Err(Ended::Refused | Ended::Lost) => {
                    if self.random.random_bool(0.5) {
                        let _answer = self.statement_or_end("admin", "{abortTransaction: 1");
                    }
                    return Outcome::Fail;
                }
            }
            if self.random.random_bool(0.1) {
                std::thread::yield_now();
            }
            if self.run.is_slow && self.random.random_bool(0.0002) {
                std::thread::sleep(Duration::from_millis(1300));
            }
        }
        if self.random.random_bool(0.07) {
            let _answer = self.statement_or_end("admin", "{abortTransaction: 1");
            return Outcome::Fail;
        }
        let has_written =
            steps.iter().any(|it| matches!(it, Step::Append { .. } | Step::Write { .. }));
        self.commit(has_written)
    }

    fn commit(&mut self, has_written: bool) -> Outcome {
        for attempt in 0..ATTEMPTS {
            if attempt > 2 {
                std::thread::sleep(Duration::from_millis(5 << attempt.min(6)));
            }
            match self.statement_or_end("admin", "{commitTransaction: 1") {
                Ok(reply) if reply.code == 0 && reply.is_acknowledged() => {
                    self.run.note_repeat(attempt, "commits known");
                    // A transaction that wrote nothing leaves no record, and is unknown after a
                    // crash.
                    if has_written && self.random.random_bool(0.1) {
                        self.commit_again();
                    }
                    return Outcome::Ok;
                }
                Ok(reply) if reply.has("TransientTransactionError") => {
                    self.run.note_repeat(attempt, "commits denied");
                    return Outcome::Fail;
                }
                // Unknown, interrupted, or possibly not durable: the next reply must be correct.
                Ok(_) | Err(Lost) => {}
            }
        }
        Outcome::Info
    }

    /// Repeats an acknowledged commit: it must be acknowledged again.
    fn commit_again(&mut self) {
        if let Ok(reply) = self.statement_or_end("admin", "{commitTransaction: 1")
            && reply.code != 0
            && !DOUBTFUL.contains(&reply.code)
            && reply.code != INTERRUPTED
        {
            self.run.complain(format!("an acknowledged commit was denied: {}", reply.shown()));
        }
    }

    fn step(&mut self, steps: &mut Vec<Step>) -> Result<(), Ended> {
        let key = self.key();
        let (db, collection) = self.run.list_at(key);
        let (register_db, registers) = self.run.register_at(key);
        match self.random.random_range(0..7) {
            0 => {
                let reply = self.statement(db, &find(&collection, key))?;
                note_list(&reply, key, steps);
            }
            1 => {
                let reply = self.statement(db, &self.run.lookup(key))?;
                note_both(&reply, key, steps);
            }
            it @ (2 | 3) => {
                let (value, shows) = (self.run.value(), it == 2);
                steps.push(Step::Append { key, value });
                let reply = self.statement(db, &append(&collection, key, value, shows))?;
                note_shown(&reply, key, shows, steps);
            }
            4 => {
                let reply = self.statement(register_db, &find(&registers, key))?;
                note_register(&reply, key, steps);
            }
            5 => {
                let reply = self.statement(register_db, &find(&registers, key))?;
                note_register(&reply, key, steps);
                let value = self.run.value();
                let command = format!(
                    "{{update: '{registers}', updates: [{{q: {{_id: {key}}}, \
                     u: {{$set: {{value: NumberLong({value})}}}}, upsert: true}}]"
                );
                self.statement(register_db, &command)?;
                steps.push(Step::Write { key, value });
            }
            _ => {
                let value = self.run.value();
                let command = format!(
                    "{{findAndModify: '{registers}', query: {{_id: {key}}}, \
                     update: {{$set: {{value: NumberLong({value})}}}}, upsert: true"
                );
                let reply = self.statement(register_db, &command)?;
                let before = reply.value().and_then(|it| register(it.as_doc()));
                steps.push(Step::Get { key, value: before });
                steps.push(Step::Write { key, value });
            }
        }
        Ok(())
    }
}

fn find(collection: &str, key: u32) -> String {
    format!("{{find: '{collection}', filter: {{_id: {key}}}")
}

/// Another list in the same database.
fn neighbour(key: u32) -> u32 {
    match key % 6 {
        0 | 3 => key + 1,
        1 | 4 => key - 1,
        2 => key + 3,
        _ => key - 3,
    }
}

fn append(collection: &str, key: u32, value: u64, shows: bool) -> String {
    let change = format!("{{$push: {{list: NumberLong({value})}}, $inc: {{length: 1}}}}");
    match shows {
        true => format!(
            "{{findAndModify: '{collection}', query: {{_id: {key}}}, update: {change}, upsert: true, new: true"
        ),
        false => format!(
            "{{update: '{collection}', updates: [{{q: {{_id: {key}}}, u: {change}, upsert: true}}]"
        ),
    }
}

fn note_list(reply: &Reply, key: u32, steps: &mut Vec<Step>) -> Outcome {
    if reply.code != 0 {
        return Outcome::Fail;
    }
    let values = reply.first().map(|it| list(it.as_doc())).unwrap_or_default();
    steps.push(Step::Read { key, values });
    Outcome::Ok
}

fn note_register(reply: &Reply, key: u32, steps: &mut Vec<Step>) -> Outcome {
    if reply.code != 0 {
        return Outcome::Fail;
    }
    let value = reply.first().and_then(|it| register(it.as_doc()));
    steps.push(Step::Get { key, value });
    Outcome::Ok
}

fn note_both(reply: &Reply, key: u32, steps: &mut Vec<Step>) -> Outcome {
    let outcome = note_list(reply, key, steps);
    if let Some(first) = reply.first() {
        let others = first.as_doc().get("other").and_then(RawValue::as_array);
        let other = others.and_then(|others| others.iter().next()?.value().as_document());
        let values = other.map(list).unwrap_or_default();
        steps.push(Step::Read { key: neighbour(key), values });
    }
    outcome
}

/// Records the list that `findAndModify` returned after an append.
fn note_shown(reply: &Reply, key: u32, shows: bool, steps: &mut Vec<Step>) {
    if shows {
        let values = reply.value().map(|it| list(it.as_doc())).unwrap_or_default();
        steps.push(Step::Read { key, values });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that loses the reply to the first attempt, fails the second as killed, and
    /// confirms the third.
    struct Scripted(u32);

    impl Line for Scripted {
        fn ask(&mut self, _db: &str, _command: RawDoc<'_>) -> Result<DocBuf, Lost> {
            self.0 += 1;
            match self.0 {
                1 => Err(Lost),
                2 => Ok(parsed("{ok: 0.0, code: 11601}")),
                _ => Ok(parsed("{ok: 1.0, n: 1, nModified: 1, retriedStmtIds: [0]}")),
            }
        }
    }

    #[test]
    fn a_killed_repetition_leaves_the_outcome_unknown() {
        let run = Run::default();
        let mut client = Client::new(&run, Scripted(0), 1, 7);
        let reply = client.repeated("one", "{update: 'lists', updates: []");
        assert_eq!(reply.map(|reply| reply.code), Some(0));
        assert_eq!(run.repeats(), BTreeMap::from([("writes recalled", 1)]));
    }
}
