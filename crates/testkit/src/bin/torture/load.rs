//! Clients that write, and the states that the server may have afterwards.
//!
//! Each writer has its own documents and sends one command after the other. It keeps the state
//! after each of them. The state that is found after a crash must be the one after one of its
//! commands, at or after the last one that was acknowledged as durable; transactions must be
//! complete.

use std::collections::BTreeMap;
use std::time::Duration;

use mayfly_value::bson::{Bson, DateTime, Document, doc};
use mayfly_value::{DocBuf, RawDoc, RawValue};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use mayfly_testkit::outside::{self, batch};

pub(crate) const DB: &str = "torture";
/// Collections of documents that writers own.
pub(crate) const COLLECTIONS: [&str; 2] = ["c0", "c1"];
/// The time without an answer after which a server counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);
/// A date in the year 2100, for documents that do not expire.
const FAR_MS: i64 = 4_102_444_800_000;
/// The writer that changes definitions instead of documents.
pub(crate) const DEFINER: i64 = 0;
/// The writer with large documents.
const LARGE: i64 = 1;
/// The largest number of states that a writer keeps; after that it sends a durable write.
const MOST_OPEN: usize = 40;

/// The state of a writer's documents: the value of each, by collection and `_id`. For the writer of
/// definitions: the indexes of each collection, by its name.
pub(crate) type State = BTreeMap<(String, i64), i64>;

/// The changes of one command.
type Changes = Vec<((String, i64), Option<i64>)>;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// No reply: the connection is broken.
    Lost,
    /// The server did not answer in time.
    Hangs,
    /// An error, with its code.
    Refused(i32, String),
    /// A reply that must not occur.
    Wrong(String),
}

/// A connection.
pub(crate) struct Connection {
    inner: outside::Connection,
}

impl Connection {
    pub(crate) fn open(port: u16) -> std::io::Result<Connection> {
        Connection::patient(port, PATIENCE)
    }

    /// A connection that waits for a reply for this time.
    pub(crate) fn patient(port: u16, patience: Duration) -> std::io::Result<Connection> {
        Ok(Connection { inner: outside::Connection::open(port, patience)? })
    }

    /// Runs a command. Write errors and errors of the write concern are errors, too.
    pub(crate) fn run(&mut self, db: &str, command: &Document) -> Result<DocBuf, Failed> {
        let command = DocBuf::from_bson(command);
        let reply = self.inner.ask(db, command.as_doc());
        let reply = reply.map_err(|error| match outside::Connection::is_late(&error) {
            true => Failed::Hangs,
            false => Failed::Lost,
        })?;
        let document = reply.as_doc();
        let first = document.get("writeErrors").and_then(RawValue::as_array);
        let first = first.and_then(|errors| errors.iter().next()?.value().as_document());
        let concern = document.get("writeConcernError").and_then(RawValue::as_document);
        let wrong = match document.get("ok") {
            Some(RawValue::Double(1.0)) => first.or(concern),
            _ => Some(document),
        };
        match wrong {
            None => Ok(reply),
            Some(wrong) => {
                let text = match wrong.get("errmsg") {
                    Some(RawValue::String(text)) => text.to_owned(),
                    _ => String::new(),
                };
                Err(Failed::Refused(int(wrong, "code") as i32, text))
            }
        }
    }

    /// All documents of a cursor.
    pub(crate) fn all(&mut self, command: &Document) -> Result<Vec<DocBuf>, Failed> {
        let mut reply = self.run(DB, command)?;
        let mut found = Vec::new();
        loop {
            let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document);
            let cursor = cursor.unwrap_or(RawDoc::EMPTY);
            found.extend(batch(cursor));
            let id = int(cursor, "id");
            if id == 0 {
                return Ok(found);
            }
            let Some(RawValue::String(name)) = cursor.get("ns") else { return Ok(found) };
            let collection = name.split_once('.').map_or("", |(_, rest)| rest);
            reply = self.run(DB, &doc! { "getMore": id, "collection": collection })?;
        }
    }
}

pub(crate) fn int(document: RawDoc<'_>, name: &str) -> i64 {
    match document.get(name) {
        Some(RawValue::Int32(value)) => i64::from(value),
        Some(RawValue::Int64(value)) => value,
        Some(RawValue::Double(value)) => value as i64,
        _ => 0,
    }
}

/// The length of the filler of a writer's document, which follows from its value. One writer has
/// large documents, so that tables are written.
fn filling(writer: i64, value: i64) -> usize {
    let most = if writer == LARGE { 80_000 } else { 2_000 };
    (value.unsigned_abs() as usize).wrapping_mul(7919) % most
}

/// A writer.
pub(crate) struct Writer {
    pub(crate) number: i64,
    random: SmallRng,
    /// The state that must be there at least.
    pub(crate) durable: State,
    /// The changes of each later command, in order.
    open: Vec<Changes>,
    /// The state after all of its commands.
    now: State,
    next_id: i64,
    next_value: i64,
    transaction: i64,
    /// A retryable write without a reply, as it was sent.
    pub(crate) unanswered: Option<(Document, Changes)>,
    /// The number of errors by code.
    pub(crate) refused: BTreeMap<i32, u64>,
    pub(crate) acknowledged: u64,
    pub(crate) wrong: Vec<String>,
}

/// The result of a command.
enum Sent {
    Done,
    /// The connection cannot be used any more.
    End,
}

impl Writer {
    pub(crate) fn new(number: i64, seed: u64) -> Writer {
        Writer {
            number,
            random: SmallRng::seed_from_u64(seed.wrapping_mul(1001).wrapping_add(number as u64)),
            durable: State::new(),
            open: Vec::new(),
            now: State::new(),
            next_id: number * 1_000_000_000,
            next_value: 1,
            transaction: 0,
            unanswered: None,
            refused: BTreeMap::new(),
            acknowledged: 0,
            wrong: Vec::new(),
        }
    }

    /// Takes over the state that was found after a crash. Fails if it is not one of the possible
    /// states.
    pub(crate) fn found(&mut self, found: State) -> Result<(), String> {
        let mut state = self.durable.clone();
        let mut nearest = differences(&state, &found);
        let mut fits = nearest.is_empty();
        for changes in &self.open {
            if fits {
                break;
            }
            change(&mut state, changes);
            let differences = differences(&state, &found);
            fits = differences.is_empty();
            if differences.len() < nearest.len() {
                nearest = differences;
            }
        }
        self.open.clear();
        self.durable.clone_from(&found);
        self.now = found;
        match fits {
            true => Ok(()),
            false => Err(format!(
                "writer {}: what is there is not the state behind any of its commands: {}",
                self.number,
                nearest.into_iter().take(5).collect::<Vec<_>>().join(", ")
            )),
        }
    }

    /// Sends the write without a reply again: it must be executed exactly once in total.
    pub(crate) fn send_again(&mut self, connection: &mut Connection) -> Result<(), Failed> {
        if let Some((command, changes)) = self.unanswered.take() {
            connection.run(DB, &command)?;
            change(&mut self.now, &changes);
            self.durable = self.now.clone();
        }
        Ok(())
    }

    /// Writes until the connection breaks or a stop is requested.
    pub(crate) fn write(&mut self, connection: &mut Connection, enough: &dyn Fn() -> bool) {
        while !enough() {
            if let Sent::End = self.step(connection) {
                return;
            }
        }
    }

    fn step(&mut self, connection: &mut Connection) -> Sent {
        if self.number == DEFINER {
            return self.define(connection);
        }
        let mut kind = self.random.random_range(0..12);
        if self.now.is_empty() {
            kind = 0;
        }
        let lazy = self.open.len() < MOST_OPEN && self.random.random_bool(0.4);
        let concern = match (lazy, self.random.random_bool(0.3)) {
            (true, _) => doc! { "w": 1 },
            (false, true) => doc! { "w": 1, "j": true },
            (false, false) => doc! { "w": "majority" },
        };
        let (command, changes) = match kind {
            0..=3 => {
                let count = self.random.random_range(1..=8);
                let into = self.collection();
                let (documents, changes) = self.new_documents(into, count);
                let command = doc! { "insert": into, "documents": documents };
                (command, changes)
            }
            4..=6 => {
                let Some((collection, id)) = self.any() else { return Sent::Done };
                self.update(&collection, id)
            }
            7 => {
                let Some((collection, id)) = self.any() else { return Sent::Done };
                let delete = doc! { "q": { "_id": id }, "limit": 1 };
                let command = doc! { "delete": &collection, "deletes": [delete] };
                (command, vec![((collection, id), None)])
            }
            8 => {
                let Some((collection, id)) = self.any() else { return Sent::Done };
                let (mut command, changes) = self.update(&collection, id);
                self.transaction += 1;
                let session = self.session();
                command.extend(doc! { "lsid": session, "txnNumber": self.transaction });
                command.insert("writeConcern", concern.clone());
                self.unanswered = Some((command.clone(), changes.clone()));
                let sent = self.send(connection, &command, changes, lazy);
                if matches!(sent, Sent::Done) {
                    self.unanswered = None;
                }
                return sent;
            }
            _ => return self.transaction(connection, &concern, lazy),
        };
        let mut command = command;
        command.insert("writeConcern", concern);
        self.send(connection, &command, changes, lazy)
    }

    /// Creates, changes and drops collections and indexes.
    fn define(&mut self, connection: &mut Connection) -> Sent {
        let collections: Vec<String> =
            self.now.keys().filter(|key| key.1 == 0).map(|key| key.0.clone()).collect();
        let some = collections.choose(&mut self.random).cloned();
        let fresh = format!("d{}", self.value());
        let (command, changes) = match (self.random.random_range(0..8), some) {
            (0 | 1, _) | (2 | 3, None) => (doc! { "create": &fresh }, vec![((fresh, 0), Some(1))]),
            (2, Some(name)) => {
                let all = self.now.keys().filter(|key| key.0 == name);
                let gone = all.map(|key| (key.clone(), None)).collect();
                (doc! { "drop": name }, gone)
            }
            (3, Some(name)) => {
                let all = self.now.keys().filter(|key| key.0 == name);
                let moved =
                    all.flat_map(|key| [(key.clone(), None), ((fresh.clone(), key.1), Some(1))]);
                let (from, to) = (format!("{DB}.{name}"), format!("{DB}.{fresh}"));
                (doc! { "renameCollection": from, "to": to }, moved.collect())
            }
            (4, _) => {
                let name = self.collection();
                return match connection.run(DB, &doc! { "compact": name }) {
                    Ok(_) | Err(Failed::Refused(..)) => Sent::Done,
                    Err(why) => self.lost(&why),
                };
            }
            (kind, some) => {
                let on = some.filter(|_| kind < 7).unwrap_or_else(|| self.collection().to_owned());
                let number = self.random.random_range(1..5_i64);
                let (key, name) = ((on.clone(), number), format!("i{number}"));
                match self.now.contains_key(&key) {
                    true => (doc! { "dropIndexes": on, "index": name }, vec![(key, None)]),
                    false => {
                        let fields = doc! { "v": 1, format!("f{number}"): 1 };
                        let index = [doc! { "key": fields, "name": name }].to_vec();
                        (doc! { "createIndexes": on, "indexes": index }, vec![(key, Some(1))])
                    }
                }
            }
        };
        let db = if command.contains_key("renameCollection") { "admin" } else { DB };
        self.send_to(connection, db, &command, changes, false)
    }

    /// Several statements on both collections, all or nothing.
    fn transaction(&mut self, connection: &mut Connection, concern: &Document, lazy: bool) -> Sent {
        let (mut all, mut begins) = (Changes::new(), true);
        self.transaction += 1;
        for step in 0..self.random.random_range(2..5) {
            let (mut command, changes) = match (step % 2, self.any()) {
                (1, Some((collection, id))) if all.iter().all(|it| it.0.1 != id) => {
                    self.update(&collection, id)
                }
                _ => {
                    let into = COLLECTIONS[step as usize % COLLECTIONS.len()];
                    let (documents, changes) = self.new_documents(into, 2);
                    (doc! { "insert": into, "documents": documents }, changes)
                }
            };
            command.extend(self.in_transaction());
            if begins {
                command.insert("startTransaction", true);
            }
            begins = false;
            match connection.run(DB, &command) {
                Ok(_) => all.extend(changes),
                Err(Failed::Refused(code, _)) => {
                    // Any error ends it.
                    *self.refused.entry(code).or_default() += 1;
                    return Sent::Done;
                }
                Err(why) => return self.lost(&why),
            }
        }
        let mut commit = doc! { "commitTransaction": 1, "writeConcern": concern.clone() };
        commit.extend(self.in_transaction());
        self.send_to(connection, "admin", &commit, all, lazy)
    }

    fn in_transaction(&self) -> Document {
        doc! { "lsid": self.session(), "txnNumber": self.transaction, "autocommit": false }
    }

    fn session(&self) -> Document {
        let bytes = vec![self.number as u8; 16];
        let subtype = mayfly_value::bson::spec::BinarySubtype::Uuid;
        doc! { "id": Bson::Binary(mayfly_value::bson::Binary { subtype, bytes }) }
    }

    fn send(
        &mut self,
        connection: &mut Connection,
        command: &Document,
        changes: Changes,
        lazy: bool,
    ) -> Sent {
        self.send_to(connection, DB, command, changes, lazy)
    }

    fn send_to(
        &mut self,
        connection: &mut Connection,
        db: &str,
        command: &Document,
        changes: Changes,
        lazy: bool,
    ) -> Sent {
        // From here on, the change may be stored.
        change(&mut self.now, &changes);
        self.open.push(changes);
        match connection.run(db, command) {
            Ok(reply) => {
                self.acknowledged += 1;
                self.count(command, reply.as_doc());
                if !lazy {
                    self.open.clear();
                    self.durable.clone_from(&self.now);
                }
                Sent::Done
            }
            // It is unknown whether the write was executed: both states are possible until it is
            // looked up.
            Err(Failed::Refused(code, text)) => {
                *self.refused.entry(code).or_default() += 1;
                if code == 0 || text.is_empty() {
                    self.wrong.push(format!("an error without a code or a text: {code} {text}"));
                }
                match self.look(connection) {
                    Ok(state) => {
                        // The state that was found may not be durable: it stays one of the possible
                        // states.
                        let (durable, open) =
                            (self.durable.clone(), std::mem::take(&mut self.open));
                        let wrong = {
                            self.open = open.clone();
                            self.found(state.clone()).err()
                        };
                        if let Some(wrong) = wrong {
                            self.wrong.push(format!("after error {code} ({text}): {wrong}"));
                        }
                        let behind = changes_between(&replayed(&durable, &open), &state);
                        self.durable = durable;
                        self.open = open;
                        self.open.push(behind);
                        self.now = state;
                        Sent::Done
                    }
                    Err(why) => self.lost(&why),
                }
            }
            Err(why) => self.lost(&why),
        }
    }

    fn lost(&mut self, why: &Failed) -> Sent {
        match why {
            Failed::Hangs => {
                self.wrong.push(format!("writer {}: no answer within {PATIENCE:?}", self.number));
            }
            Failed::Wrong(text) => self.wrong.push(text.clone()),
            Failed::Lost | Failed::Refused(..) => {}
        }
        Sent::End
    }

    /// An acknowledged write that reports fewer changes than requested is wrong, too.
    fn count(&mut self, command: &Document, reply: RawDoc<'_>) {
        let lists = ["documents", "updates", "deletes"];
        let list = lists.iter().find_map(|name| command.get_array(name).ok());
        if let Some(list) = list
            && int(reply, "n") != list.len() as i64
        {
            self.wrong.push(format!("n: {} of {} were written", int(reply, "n"), list.len()));
        }
    }

    fn look(&self, connection: &mut Connection) -> Result<State, Failed> {
        if self.number == DEFINER {
            return definitions(connection);
        }
        let mut all = states(connection, &[self.number])?;
        Ok(all.remove(&self.number).unwrap_or_default())
    }

    fn collection(&mut self) -> &'static str {
        COLLECTIONS[self.random.random_range(0..COLLECTIONS.len())]
    }

    fn any(&mut self) -> Option<(String, i64)> {
        let all: Vec<_> = self.now.keys().collect();
        all.choose(&mut self.random).map(|key| (*key).clone())
    }

    fn value(&mut self) -> i64 {
        self.next_value += 1;
        self.next_value
    }

    fn new_documents(&mut self, into: &str, count: usize) -> (Vec<Document>, Changes) {
        let mut changes = Changes::new();
        let documents = (0..count).map(|_| {
            self.next_id += 1;
            let (id, value) = (self.next_id, self.value());
            changes.push(((into.to_owned(), id), Some(value)));
            let pad = "p".repeat(filling(self.number, value));
            let at = DateTime::from_millis(FAR_MS);
            doc! { "_id": id, "w": self.number, "v": value, "a": value % 13, "tags": ["x", value % 7], "at": at, "pad": pad }
        });
        (documents.collect(), changes)
    }

    fn update(&mut self, collection: &str, id: i64) -> (Document, Changes) {
        let value = self.value();
        let pad = "p".repeat(filling(self.number, value));
        let update = match self.random.random_bool(0.8) {
            true => doc! { "$set": { "v": value, "a": value % 13, "pad": pad } },
            false => doc! { "w": self.number, "v": value, "a": value % 13, "pad": pad },
        };
        let updates = [doc! { "q": { "_id": id }, "u": update }];
        let command = doc! { "update": collection, "updates": updates.to_vec() };
        (command, vec![((collection.to_owned(), id), Some(value))])
    }
}

fn change(state: &mut State, changes: &Changes) {
    for (key, value) in changes {
        match value {
            Some(value) => state.insert(key.clone(), *value),
            None => state.remove(key),
        };
    }
}

fn replayed(durable: &State, open: &[Changes]) -> State {
    let mut state = durable.clone();
    open.iter().for_each(|changes| change(&mut state, changes));
    state
}

fn changes_between(from: &State, to: &State) -> Changes {
    let gone = from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), None));
    let set = to.iter().filter(|(key, value)| from.get(*key) != Some(*value));
    gone.chain(set.map(|(key, value)| (key.clone(), Some(*value)))).collect()
}

/// The differences, as text.
pub(crate) fn differences(expected: &State, found: &State) -> Vec<String> {
    let keys = expected.keys().chain(found.keys().filter(|key| !expected.contains_key(*key)));
    let differs = keys.filter(|key| expected.get(*key) != found.get(*key));
    let show = |key: &(String, i64)| {
        let (expected, found) = (expected.get(key), found.get(key));
        format!("{} {}: {found:?} instead of {expected:?}", key.0, key.1)
    };
    differs.map(show).collect()
}

/// The stored documents of these writers.
pub(crate) fn states(
    connection: &mut Connection,
    writers: &[i64],
) -> Result<BTreeMap<i64, State>, Failed> {
    let mut states: BTreeMap<i64, State> = BTreeMap::new();
    for collection in COLLECTIONS {
        let filter = doc! { "w": { "$in": writers.to_vec() } };
        let shown =
            doc! { "w": 1, "v": 1, "length": { "$strLenBytes": { "$ifNull": ["$pad", ""] } } };
        let find = doc! { "find": collection, "filter": filter, "projection": shown, "hint": { "$natural": 1 }, "batchSize": 100_000 };
        for document in connection.all(&find)? {
            let document = document.as_doc();
            let (id, writer, value) =
                (int(document, "_id"), int(document, "w"), int(document, "v"));
            // A document whose filler has the wrong length.
            if int(document, "length") != filling(writer, value) as i64 {
                let length = int(document, "length");
                let text =
                    format!("{collection} {id}: {length} bytes do not go with value {value}");
                return Err(Failed::Wrong(text));
            }
            states.entry(writer).or_default().insert((collection.to_owned(), id), value);
        }
    }
    Ok(states)
}

/// Collections and their indexes, as the state of the writer of definitions: 1 at number 0 for the
/// collection, and at other numbers for an index.
pub(crate) fn definitions(connection: &mut Connection) -> Result<State, Failed> {
    let mut state = State::new();
    let list = doc! { "listCollections": 1, "nameOnly": true, "filter": { "name": { "$regex": "^[cd][0-9]" } } };
    for collection in connection.all(&list)? {
        let Some(RawValue::String(name)) = collection.as_doc().get("name") else { continue };
        if name.starts_with('d') {
            state.insert((name.to_owned(), 0), 1);
        }
        for index in connection.all(&doc! { "listIndexes": name })? {
            let Some(RawValue::String(index)) = index.as_doc().get("name") else { continue };
            if let Some(number) = index.strip_prefix('i').and_then(|it| it.parse().ok()) {
                state.insert((name.to_owned(), number), 1);
            }
        }
    }
    Ok(state)
}
