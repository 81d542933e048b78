//! Checks whether a history is possible under snapshot isolation.
//!
//! Clients run transactions that append numbers to lists and read lists; each number is appended
//! once in the whole history. The order of the numbers in a list is then the order of the writers,
//! and every read says which of them it saw (the idea is that of Elle: Kingsbury and Alvaro, "Elle:
//! Inferring Isolation Anomalies from Experimental Observations", 2020). What is forbidden:
//!
//! * a number that occurs twice, a number of a failed transaction, only some of the numbers that a
//!   transaction appended, an acknowledged number that is missing at the end;
//! * two reads of one list neither of which is a prefix of the other; reads of one transaction that
//!   disagree;
//! * a cycle of dependencies without two consecutive "read what the other overwrote": Adya's G0,
//!   G1c and G-single, lost updates, stale reads. Write skew is allowed ([`graph`]).
//!
//! # A history as text
//!
//! ```text
//! <begin> <end> <outcome> <operation> ...         a line for each transaction; microseconds of one clock
//! 120 460 ok a:3=17 r:3=1,2,17 r:5=               appended 17 to list 3, read list 3, read the empty list 5
//! 470 480 ok g:2=8 w:2=19 g:4=                    read 8 in register 2, wrote 19 there, read register 4, which has no value yet
//! ```
//!
//! A transaction reads a register before it writes it, so that the values of a register form a
//! chain, and are checked as a list ([`registers`]). The outcome is `ok`, `fail` (certainly without
//! effect) or `info` (unknown). The last line may read all lists once more.

pub mod client;
pub mod disturb;
pub mod events;
mod graph;
mod registers;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use graph::Graph;
use registers::as_lists;

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its commit was acknowledged.
    Ok,
    /// It certainly has no effect.
    Fail,
    /// It may have been committed.
    Info,
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Appended a number to a list.
    Append {
        /// The list.
        key: u32,
        /// The number.
        value: u64,
    },
    /// Read a list.
    Read {
        /// The list.
        key: u32,
        /// Its content.
        values: Vec<u64>,
    },
    /// Wrote a register that the same transaction has read before.
    Write {
        /// The register.
        key: u32,
        /// The number, which is unique in the history.
        value: u64,
    },
    /// Read a register.
    Get {
        /// The register.
        key: u32,
        /// Its content.
        value: Option<u64>,
    },
}

/// A transaction as its client recorded it.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// The time when its client began it, in microseconds.
    pub begin: u64,
    /// The time when its client knew the outcome, in microseconds.
    pub end: u64,
    /// The outcome, as its client knows it.
    pub outcome: Outcome,
    /// Its steps, in order.
    pub steps: Vec<Step>,
}

/// A violation of snapshot isolation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// The name of the anomaly in the literature, such as a lost update.
    pub kind: &'static str,
    /// A description with the transactions.
    pub text: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.text)
    }
}

/// The anomalies of a history; empty if it is possible under snapshot isolation.
pub fn check(history: &[Transaction]) -> Vec<Anomaly> {
    let (lists, anomalies) = as_lists(history);
    let history = lists.as_slice();
    let mut checker = Checker { history, anomalies, writers: HashMap::new() };
    checker.note_writers();
    for (at, transaction) in history.iter().enumerate() {
        if transaction.outcome != Outcome::Fail {
            checker.check_inside(at, transaction);
        }
    }
    let orders = checker.orders();
    checker.check_acknowledged(&orders);
    if checker.anomalies.is_empty() {
        checker.check_circles(&orders);
    }
    checker.anomalies
}

/// The numbers of a list in their order.
type Orders = BTreeMap<u32, Vec<u64>>;

struct Checker<'h> {
    history: &'h [Transaction],
    anomalies: Vec<Anomaly>,
    /// The origin of a number: transaction, list, and index among its appends to that list.
    writers: HashMap<u64, Writer>,
}

#[derive(Clone, Copy)]
struct Writer {
    transaction: usize,
    key: u32,
    /// Whether it is the transaction's last one to the list.
    last: bool,
}

impl Checker<'_> {
    fn found(&mut self, kind: &'static str, text: String) {
        self.anomalies.push(Anomaly { kind, text });
    }

    fn note_writers(&mut self) {
        for (transaction, it) in self.history.iter().enumerate() {
            let mut latest: HashMap<u32, u64> = HashMap::new();
            for step in &it.steps {
                let Step::Append { key, value } = *step else { continue };
                if let Some(before) = latest.insert(key, value)
                    && let Some(writer) = self.writers.get_mut(&before)
                {
                    writer.last = false;
                }
                self.writers.insert(value, Writer { transaction, key, last: true });
            }
        }
    }

    /// Checks the reads of a transaction, by themselves and with the writers.
    fn check_inside(&mut self, at: usize, transaction: &Transaction) {
        let mut seen: HashMap<u32, Vec<u64>> = HashMap::new();
        let mut own: HashMap<u32, Vec<u64>> = HashMap::new();
        for step in &transaction.steps {
            match step {
                Step::Append { key, value } => {
                    own.entry(*key).or_default().push(*value);
                    if let Some(seen) = seen.get_mut(key) {
                        seen.push(*value);
                    }
                }
                Step::Read { key, values } => {
                    if let Some(expected) = seen.get(key)
                        && expected != values
                    {
                        let text = format!(
                            "transaction {at} read list {key} as {values:?} where it must see {expected:?}"
                        );
                        self.found("unrepeatable read", text);
                    }
                    let own = own.get(key).map_or(&[][..], Vec::as_slice);
                    if !values.ends_with(own) {
                        let text = format!(
                            "transaction {at} read list {key} as {values:?} without its own {own:?}"
                        );
                        self.found("own write missing", text);
                    }
                    self.check_values(at, *key, values);
                    seen.insert(*key, values.clone());
                }
                // Registers were converted to lists before.
                Step::Write { .. } | Step::Get { .. } => {}
            }
        }
    }

    fn check_values(&mut self, at: usize, key: u32, values: &[u64]) {
        let mut once = HashSet::new();
        for value in values {
            if !once.insert(*value) {
                self.found("twice", format!("transaction {at} read {value} twice in list {key}"));
            }
            match self.writers.get(value).copied() {
                None => self.found(
                    "from nowhere",
                    format!("transaction {at} read {value} in list {key}, which nobody wrote"),
                ),
                Some(writer) if writer.key != key => self.found(
                    "from nowhere",
                    format!(
                        "transaction {at} read {value} in list {key} instead of {}",
                        writer.key
                    ),
                ),
                Some(writer) if self.history[writer.transaction].outcome == Outcome::Fail => {
                    let text = format!(
                        "transaction {at} read {value} in list {key} of transaction {}, which failed",
                        writer.transaction
                    );
                    self.found("aborted read (G1a)", text);
                }
                Some(_) => {}
            }
        }
        if let Some(writer) = values.last().and_then(|last| self.writers.get(last)).copied()
            && !writer.last
            && writer.transaction != at
        {
            let text = format!(
                "transaction {at} read a part of transaction {} in list {key}",
                writer.transaction
            );
            self.found("intermediate read (G1b)", text);
        }
    }

    /// The longest read of each list; all others must be prefixes of it.
    fn orders(&mut self) -> Orders {
        let mut orders = Orders::new();
        for (at, step) in self.steps() {
            if let Step::Read { key, values } = step {
                // The own appends of a transaction that may have failed may not be in the list.
                let known = self.history[at].outcome == Outcome::Ok;
                let order = orders.entry(*key).or_default();
                if known && values.len() > order.len() {
                    order.clone_from(values);
                }
            }
        }
        let mut wrong = Vec::new();
        for (at, step) in self.steps() {
            if let Step::Read { key, values } = step
                && self.history[at].outcome == Outcome::Ok
                && !orders[key].starts_with(values)
            {
                let whole = &orders[key];
                wrong.push(format!(
                    "transaction {at} read list {key} as {values:?} and another one as {whole:?}"
                ));
            }
        }
        wrong.into_iter().for_each(|text| self.found("incompatible order", text));
        orders
    }

    fn steps(&self) -> impl Iterator<Item = (usize, &Step)> {
        let kept = self.history.iter().enumerate().filter(|(_, it)| it.outcome != Outcome::Fail);
        kept.flat_map(|(at, it)| it.steps.iter().map(move |step| (at, step)))
    }

    /// Checks that the reads of the last transaction contain everything that was acknowledged.
    fn check_acknowledged(&mut self, orders: &Orders) {
        let Some(last) = self.history.last() else { return };
        let mut read = HashSet::new();
        for step in &last.steps {
            let Step::Read { key, .. } = step else { return };
            read.insert(*key);
        }
        let there: HashSet<u64> = orders.values().flatten().copied().collect();
        let mut missing = Vec::new();
        for (value, writer) in &self.writers {
            let acknowledged = self.history[writer.transaction].outcome == Outcome::Ok;
            if acknowledged && read.contains(&writer.key) && !there.contains(value) {
                missing.push((writer.transaction, writer.key, *value));
            }
        }
        for (transaction, key, value) in missing {
            let text =
                format!("{value}, which transaction {transaction} appended to list {key}, is gone");
            self.found("lost write", text);
        }
    }

    fn check_circles(&mut self, orders: &Orders) {
        let mut graph = Graph::new(self.history.len());
        let place: HashMap<u64, (u32, usize)> = orders
            .iter()
            .flat_map(|(key, order)| {
                order.iter().enumerate().map(|(at, value)| (*value, (*key, at)))
            })
            .collect();
        let writer = |value: u64| self.writers[&value].transaction;
        for order in orders.values() {
            for pair in order.windows(2) {
                graph.before(writer(pair[0]), writer(pair[1]), "wrote before");
            }
        }
        for (at, step) in self.steps() {
            let Step::Read { key, values } = step else { continue };
            if self.history[at].outcome != Outcome::Ok {
                continue;
            }
            let order = &orders[key];
            if let Some(last) = values.last() {
                graph.before(writer(*last), at, "was read by");
            }
            // Its own appends follow those that it saw.
            let next = values.last().map_or(0, |last| place[last].1 + 1);
            if let Some(next) = order.get(next) {
                graph.overwritten(at, writer(*next));
            }
        }
        graph.real_time(self.history.iter().map(|it| match it.outcome {
            Outcome::Ok => (it.begin, Some(it.end)),
            Outcome::Fail | Outcome::Info => (it.begin, None),
        }));
        for circle in graph.circles() {
            self.found("circle", circle);
        }
    }
}

impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            Outcome::Ok => "ok",
            Outcome::Fail => "fail",
            Outcome::Info => "info",
        };
        write!(f, "{} {} {outcome}", self.begin, self.end)?;
        for step in &self.steps {
            match step {
                Step::Append { key, value } => write!(f, " a:{key}={value}")?,
                Step::Read { key, values } => {
                    let values: Vec<_> = values.iter().map(u64::to_string).collect();
                    write!(f, " r:{key}={}", values.join(","))?;
                }
                Step::Write { key, value } => write!(f, " w:{key}={value}")?,
                Step::Get { key, value: Some(value) } => write!(f, " g:{key}={value}")?,
                Step::Get { key, value: None } => write!(f, " g:{key}=")?,
            }
        }
        Ok(())
    }
}

/// Parses a history.
///
/// # Errors
/// The line, and its fault.
pub fn parse(text: &str) -> Result<Vec<Transaction>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let transaction =
        |(at, line): (usize, &str)| line.parse().map_err(|why| format!("line {}: {why}", at + 1));
    lines.map(transaction).collect()
}

impl FromStr for Transaction {
    type Err = String;

    fn from_str(line: &str) -> Result<Transaction, String> {
        let mut words = line.split_whitespace();
        let mut number = || {
            let word = words.next().unwrap_or("");
            word.parse().map_err(|_| format!("not a time: '{word}'"))
        };
        let (begin, end) = (number()?, number()?);
        let outcome = match words.next() {
            Some("ok") => Outcome::Ok,
            Some("fail") => Outcome::Fail,
            Some("info") => Outcome::Info,
            other => return Err(format!("not an outcome: {other:?}")),
        };
        let steps = words.map(step).collect::<Result<_, _>>()?;
        Ok(Transaction { begin, end, outcome, steps })
    }
}

fn step(word: &str) -> Result<Step, String> {
    let wrong = || format!("not an operation: '{word}'");
    let (kind, rest) = word.split_once(':').ok_or_else(wrong)?;
    let (key, values) = rest.split_once('=').ok_or_else(wrong)?;
    let key = key.parse().map_err(|_| wrong())?;
    let values = values.split(',').filter(|value| !value.is_empty()).map(str::parse);
    let values: Vec<u64> = values.collect::<Result<_, _>>().map_err(|_| wrong())?;
    match (kind, values.as_slice()) {
        ("a", [value]) => Ok(Step::Append { key, value: *value }),
        ("r", _) => Ok(Step::Read { key, values }),
        ("w", [value]) => Ok(Step::Write { key, value: *value }),
        ("g", [] | [_]) => Ok(Step::Get { key, value: values.first().copied() }),
        _ => Err(wrong()),
    }
}
