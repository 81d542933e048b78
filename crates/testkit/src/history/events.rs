//! Comparison of a change stream with a history while it is made: the stream must return each
//! committed write once, and the writes of a list or a register in their order.

use std::collections::{HashMap, HashSet};

use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::client::{Line, Run, list, number, register};
use super::{Outcome, Step, Transaction};
use crate::dialect::parsed;

/// The time for which a `getMore` waits for events, in milliseconds.
const WAIT_MS: i32 = 100;
/// `ChangeStreamHistoryLost`, `ChangeStreamFatalError`: the stream cannot continue.
const FATAL: &[i64] = &[280, 286];
/// The collection whose first insert marks the end of the history.
const MARK: (&str, &str) = ("one", "marks");

/// A list or a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    List(u32),
    Register(u32),
}

/// A client that follows the changes of the whole server, and resumes after its connection was
/// lost.
pub struct Follower<'r> {
    run: &'r Run,
    cursor: i64,
    /// The resume token.
    token: Option<DocBuf>,
    /// The writes of a list or a register, in the order of the events.
    written: HashMap<Place, Vec<u64>>,
    time: u64,
    has_mark: bool,
    /// The number of events so far.
    pub events: u64,
    /// The number of times that the stream was opened.
    pub opened: u64,
}

impl<'r> Follower<'r> {
    /// A follower without an open stream.
    pub fn new(run: &'r Run) -> Follower<'r> {
        let (written, token) = (HashMap::new(), None);
        Follower { run, cursor: 0, token, written, time: 0, has_mark: false, events: 0, opened: 0 }
    }

    /// Whether the stream was opened and is not lost.
    pub fn is_open(&self) -> bool {
        self.cursor != 0
    }

    /// Opens the stream if it is not open, and reads available events. Returns false if there were
    /// none, or if the reply was lost.
    pub fn step<L: Line>(&mut self, line: &mut L) -> bool {
        let mut command = DocBuilder::new();
        if self.cursor == 0 {
            command.append("aggregate", 1).start_array("pipeline").push_document();
            command.start_document("$changeStream").append("allChangesForCluster", true);
            if let Some(token) = &self.token {
                command.append("resumeAfter", token);
            }
            command.end().end().end().start_document("cursor").end();
            self.opened += 1;
        } else {
            command.append("getMore", self.cursor).append("collection", "$cmd.aggregate");
            command.append("maxTimeMS", WAIT_MS);
        }
        if line.goes_to_any() {
            command.start_document("$readPreference").append("mode", "secondaryPreferred").end();
        }
        let Ok(reply) = line.ask("admin", command.finish().as_doc()) else {
            self.cursor = 0;
            return false;
        };
        let code = number(reply.as_doc(), "code");
        if FATAL.contains(&code) {
            let shown = crate::dialect::show(reply.as_doc());
            self.run.complain(format!("a change stream cannot go on: {shown}"));
        }
        let Some(cursor) = reply.as_doc().get("cursor").and_then(RawValue::as_document) else {
            self.cursor = 0;
            return false;
        };
        self.cursor = number(cursor, "id");
        let batch = cursor.get("firstBatch").or_else(|| cursor.get("nextBatch"));
        let batch = batch.and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY);
        let before = self.events;
        for event in batch.iter().filter_map(|it| it.value().as_document()) {
            self.take(event);
        }
        if let Some(token) = cursor.get("postBatchResumeToken").and_then(RawValue::as_document) {
            self.token = Some(token.to_owned());
        }
        self.events > before
    }

    /// Writes a mark and follows the stream to it.
    ///
    /// # Errors
    /// The stream did not return the mark.
    pub fn finish<L: Line>(&mut self, line: &mut L) -> Result<(), String> {
        let mark = parsed(&format!("{{insert: '{}', documents: [{{_id: 1}}]}}", MARK.1));
        line.ask(MARK.0, mark.as_doc()).map_err(|_| "no answer to the mark".to_owned())?;
        // Each step without events waits, so that this number limits the time.
        let mut idle = 0;
        while !self.has_mark {
            idle = if self.step(line) { 0 } else { idle + 1 };
            if idle > 300 {
                return Err("a change stream did not show the last write".to_owned());
            }
        }
        Ok(())
    }

    fn take(&mut self, event: RawDoc<'_>) {
        self.events += 1;
        if let Some(token) = event.get("_id").and_then(RawValue::as_document) {
            self.token = Some(token.to_owned());
        }
        if let Some(RawValue::Timestamp(time)) = event.get("clusterTime") {
            if time < self.time {
                let shown = crate::dialect::show(event);
                self.run.complain(format!("an event after later ones: {shown}"));
            }
            self.time = time;
        }
        let part = |name| event.get(name).and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY);
        let text = |name| part("ns").get(name).and_then(RawValue::as_str).unwrap_or("");
        let (db, collection) = (text("db"), text("coll"));
        self.has_mark |= (db, collection) == MARK;
        let key = number(part("documentKey"), "_id") as u32;
        let place = match (db, collection) {
            ("two", name) if name.starts_with("registers") => Place::Register(key),
            ("one" | "two", name) if name.starts_with("lists") || name.starts_with("others") => {
                Place::List(key)
            }
            _ => return,
        };
        let whole = event.get("fullDocument").and_then(RawValue::as_document);
        let changed = part("updateDescription").get("updatedFields");
        let fields = changed.and_then(RawValue::as_document).or(whole).unwrap_or(RawDoc::EMPTY);
        let written = self.written.entry(place).or_default();
        match place {
            Place::Register(_) => written.extend(register(fields)),
            Place::List(_) => {
                for field in fields.iter().filter(|it| it.name().starts_with("list.")) {
                    if let RawValue::Int64(value) = field.value() {
                        written.push(value as u64);
                    }
                }
                // The event has the whole list: only unknown numbers are new.
                let known: HashSet<u64> = written.iter().copied().collect();
                written.extend(list(fields).iter().filter(|value| !known.contains(value)));
            }
        }
    }

    /// The differences between the stream and the history. The last transaction of the history has
    /// read everything.
    pub fn check(&self, history: &[Transaction]) -> Vec<String> {
        let mut wrong = Vec::new();
        let shown = |place| self.written.get(&place).map_or(&[][..], Vec::as_slice);
        for step in history.last().map_or(&[][..], |it| it.steps.as_slice()) {
            match step {
                Step::Read { key, values } if shown(Place::List(*key)) != values => {
                    let events = shown(Place::List(*key));
                    wrong.push(format!("list {key} is {values:?}, its events were {events:?}"));
                }
                Step::Get { key, value }
                    if shown(Place::Register(*key)).last() != value.as_ref() =>
                {
                    let events = shown(Place::Register(*key));
                    wrong.push(format!("register {key} is {value:?}, its events were {events:?}"));
                }
                _ => {}
            }
        }
        for (at, transaction) in history.iter().enumerate() {
            self.check_registers(at, transaction, &mut wrong);
        }
        wrong
    }

    /// Checks a register. Each client reads it before it writes it, so that its events form a
    /// chain.
    fn check_registers(&self, at: usize, transaction: &Transaction, wrong: &mut Vec<String>) {
        let mut read: HashMap<u32, Option<u64>> = HashMap::new();
        for step in &transaction.steps {
            match *step {
                Step::Get { key, value } => {
                    read.insert(key, value);
                }
                Step::Write { key, value } => {
                    let before = read.insert(key, Some(value)).flatten();
                    let events = self.written.get(&Place::Register(key));
                    let events = events.map_or(&[][..], Vec::as_slice);
                    let places: Vec<usize> =
                        (0..events.len()).filter(|index| events[*index] == value).collect();
                    let is_right = match (transaction.outcome, places.as_slice()) {
                        (Outcome::Ok | Outcome::Info, [index]) => {
                            index.checked_sub(1).map(|before| events[before]) == before
                        }
                        (Outcome::Fail | Outcome::Info, []) => true,
                        _ => false,
                    };
                    if !is_right {
                        wrong.push(format!(
                            "transaction {at} ({:?}) wrote {value} to register {key} where it read {before:?}, \
                             the events were {events:?}",
                            transaction.outcome
                        ));
                    }
                }
                Step::Append { .. } | Step::Read { .. } => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use crate::history::client::Lost;

    /// A server with one batch of events.
    struct Batch(&'static str);

    impl Line for Batch {
        fn ask(&mut self, _: &str, command: RawDoc<'_>) -> Result<DocBuf, Lost> {
            let is_first = command.get("aggregate").is_some();
            let events = if is_first { self.0 } else { "" };
            let batch = if is_first { "firstBatch" } else { "nextBatch" };
            Ok(parsed(&format!(
                "{{cursor: {{id: NumberLong(7), {batch}: [{events}], postBatchResumeToken: {{t: 1}}}}, ok: 1.0}}"
            )))
        }
    }

    const HISTORY: &str = "1 2 ok a:0=11\n3 4 ok a:0=12\n5 6 fail a:0=13\n5 6 ok g:0= w:0=21\n7 8 ok g:0=21 w:0=22\n\
                           9 9 info a:0=14\n10 11 ok r:0=11,12 g:0=22\n";
    const FIRST: &str = "{_id: {t: 1}, operationType: 'insert', clusterTime: Timestamp(1, 1), ns: {db: 'one', coll: 'lists0'}, \
                         documentKey: {_id: 0}, fullDocument: {_id: 0, list: [NumberLong(11)]}}";
    const SECOND: &str = "{_id: {t: 2}, operationType: 'update', clusterTime: Timestamp(1, 2), ns: {db: 'one', coll: 'lists0'}, \
                          documentKey: {_id: 0}, updateDescription: {updatedFields: {'list.1': NumberLong(12), length: 2}}}";
    const THIRD: &str = "{_id: {t: 3}, operationType: 'insert', clusterTime: Timestamp(1, 3), ns: {db: 'two', coll: 'registers0'}, \
                         documentKey: {_id: 0}, fullDocument: {_id: 0, value: NumberLong(21)}}";
    const FOURTH: &str = "{_id: {t: 4}, operationType: 'replace', clusterTime: Timestamp(1, 4), ns: {db: 'two', coll: 'registers0'}, \
                          documentKey: {_id: 0}, fullDocument: {_id: 0, value: NumberLong(22)}}";

    fn wrong(events: &[&str]) -> usize {
        let run = Run::default();
        let mut follower = Follower::new(&run);
        let events: &'static str = Box::leak(events.join(", ").into_boxed_str());
        follower.step(&mut Batch(events));
        assert!(follower.is_open());
        follower.check(&parse(HISTORY).unwrap()).len() + run.complaints().len()
    }

    #[test]
    fn events_agree_with_their_history_or_not() {
        assert_eq!(wrong(&[FIRST, SECOND, THIRD, FOURTH]), 0);
        assert_ne!(wrong(&[FIRST, THIRD, FOURTH]), 0, "one is missing");
        assert_ne!(wrong(&[FIRST, SECOND, SECOND, THIRD, FOURTH]), 0, "one came twice");
        assert_ne!(wrong(&[SECOND, FIRST, THIRD, FOURTH]), 0, "another order");
        assert_ne!(wrong(&[FIRST, SECOND, FOURTH]), 0, "a register's first value is missing");
        assert_ne!(
            wrong(&[FIRST, SECOND, FOURTH, THIRD]),
            0,
            "a register's values in another order"
        );
    }
}
