//! No document is lost: random documents are deleted by filters with every operator, by expiry with
//! holds and pauses, and by renames over other collections. An oracle computes which documents must
//! remain. Each case runs with and without indexes.
//!
//! A case is made from its seed. `DELETION_SEED=n` runs that case alone; `MORE=20` runs twenty
//! times as many.

mod filter;
mod random;
mod value;

use std::collections::BTreeMap;

use mayfly_testkit::{
    Fixture, OpenEngine, dialect, environment, expect, memory, memory_under_chaos,
};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::scripts::rocksdb;
use filter::{Filter, Test};
use value::{Fields, Value, document, field, number};

/// Failures that are reported together.
const MOST_FAILURES: usize = 40;
/// Cases that share a server.
const CASES_PER_SERVER: u64 = 250;

/// A collection with its indexes and its policy, and the steps of a case.
#[derive(Debug)]
struct Case {
    documents: Vec<Fields>,
    /// Definitions of indexes, for one of the two collections.
    indexes: Vec<&'static str>,
    policy: Option<Policy>,
    steps: Vec<Step>,
}

impl Case {
    fn show(&self) -> String {
        let documents = self.documents.iter().map(|it| dialect::show(document(it).as_doc()));
        let documents: Vec<String> = documents.collect();
        format!("{:?}\n{}", self.policy, documents.join("\n"))
    }
}

/// A TTL index on `at`.
#[derive(Clone, Debug)]
struct Policy {
    seconds: i64,
    options: Options,
}

#[derive(Clone, Copy, Debug)]
struct Options {
    hide: bool,
    paused: bool,
    hold: bool,
    archive: bool,
}

#[derive(Debug)]
enum Step {
    Insert(Fields),
    DeleteMany(Filter),
    DeleteOne(Filter),
    /// `findAndModify` with `remove`, of the first or the last by `_id`.
    Remove {
        filter: Filter,
        last: bool,
    },
    /// From every array in `a`.
    Pull(Pull),
    /// Advances the clock by these seconds.
    Advance(i64),
    Pass,
    SetOptions(Options),
    /// Renames over a collection that has documents.
    Rename,
    /// Renames over the archive of its own policy, which must be refused.
    RenameOverArchive,
}

/// The operand of `$pull`.
#[derive(Debug)]
enum Pull {
    Equal(Value),
    Items(Test),
    Documents(Filter),
}

impl Options {
    fn show(self, archive: &str) -> String {
        let hold = if self.hold { ", holdField: 'held'" } else { "" };
        let archive = match self.archive {
            true => format!(", archive: {{collection: 'test.{archive}'}}"),
            false => String::new(),
        };
        format!("{{hideExpired: {}, paused: {}{hold}{archive}}}", self.hide, self.paused)
    }
}

/// The expected documents.
struct Oracle {
    documents: BTreeMap<i32, Fields>,
    archive: BTreeMap<i32, Fields>,
    policy: Option<Policy>,
    /// How many filters selected some documents and left others.
    telling: u64,
}

impl Oracle {
    fn is_due(&self, fields: &Fields, now: i64) -> bool {
        let Some(policy) = &self.policy else { return false };
        let held = field(fields, "held").and_then(Value::raw) == Some(RawValue::Bool(true));
        if policy.options.hold && held {
            return false;
        }
        let date = |value: &Value| match value.raw() {
            Some(RawValue::Date(date)) => Some(date),
            _ => None,
        };
        let earliest = match field(fields, "at") {
            Some(Value::Array(items)) => items.iter().filter_map(date).min(),
            Some(value) => date(value),
            None => None,
        };
        earliest.is_some_and(|date| date.saturating_add(policy.seconds * 1000) <= now)
    }

    /// A policy that does not delete hides nothing.
    fn is_visible(&self, fields: &Fields, now: i64) -> bool {
        let hides = self.policy.as_ref().is_some_and(|it| it.options.hide && !it.options.paused);
        !(hides && self.is_due(fields, now))
    }

    fn selected(&mut self, filter: &Filter, now: i64) -> Vec<i32> {
        let ids = self.selecting(filter, now);
        self.telling += u64::from((1..self.documents.len()).contains(&ids.len()));
        ids
    }

    fn selecting(&self, filter: &Filter, now: i64) -> Vec<i32> {
        let selected = self
            .documents
            .iter()
            .filter(|(_, fields)| self.is_visible(fields, now) && filter.selects(fields));
        selected.map(|(id, _)| *id).collect()
    }

    fn pass(&mut self, now: i64) {
        let Some(Policy { options: Options { paused: false, archive, .. }, .. }) = self.policy
        else {
            return;
        };
        let due: Vec<i32> = self
            .documents
            .iter()
            .filter(|(_, it)| self.is_due(it, now))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            let gone = self.documents.remove(&id);
            self.archive.extend(gone.filter(|_| archive).map(|fields| (id, fields)));
        }
    }

    fn pull(&mut self, pull: &Pull, now: i64) {
        let visible: Vec<i32> = self.selecting(&Filter::Comment, now);
        for id in visible {
            let fields = self.documents.get_mut(&id).into_iter().flatten();
            for (name, value) in fields {
                if let ("a", Value::Array(items)) = (*name, value) {
                    items.retain(|item| !pull.takes(item));
                }
            }
        }
    }
}

impl Pull {
    fn takes(&self, item: &Value) -> bool {
        match self {
            Pull::Equal(value) => item.compare(value).is_eq(),
            // The item is tested as a field of its own.
            Pull::Items(test) => test.holds_at(&vec![("item", item.clone())], "item"),
            Pull::Documents(filter) => match item {
                Value::Document(fields) => filter.selects(fields),
                _ => false,
            },
        }
    }

    fn show(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.start_document("$pull");
        match self {
            Pull::Equal(value) => value.append("a", &mut out),
            Pull::Items(test) => {
                out.append("a", RawValue::Document(test.show().as_doc()));
            }
            Pull::Documents(filter) => {
                out.append("a", RawValue::Document(filter.show().as_doc()));
            }
        }
        out.finish()
    }
}

/// One of the two collections of a case.
struct Run<'f> {
    fixture: &'f mut Fixture,
    name: String,
    archive: String,
    oracle: Oracle,
}

type Checked<T = ()> = Result<T, String>;

impl Run<'_> {
    fn command(&self, command: DocBuf) -> Checked<DocBuf> {
        let reply = self.fixture.run_document("test", command.as_doc());
        let failed = reply.as_doc().get("writeErrors").is_some();
        if reply.as_doc().get("ok") != Some(RawValue::Double(1.0)) || failed {
            let (command, reply) = (dialect::show(command.as_doc()), dialect::show(reply.as_doc()));
            return Err(format!("{command}\nanswers {reply}"));
        }
        Ok(reply)
    }

    fn set_up(&self, case: &Case, indexes: &[&str]) -> Checked {
        self.fixture.ok("test", &format!("{{create: '{}'}}", self.name));
        let mut definitions: Vec<String> =
            indexes.iter().map(|index| (*index).to_owned()).collect();
        if let Some(Policy { seconds, options }) = &case.policy {
            let expiry =
                format!("expireAfterSeconds: {seconds}, ttl: {}", options.show(&self.archive));
            definitions.push(format!("{{key: {{at: 1}}, name: 'at', {expiry}}}"));
        }
        if !definitions.is_empty() {
            let indexes = definitions.join(", ");
            let command = format!("{{createIndexes: '{}', indexes: [{indexes}]}}", self.name);
            self.fixture.ok("test", &command);
        }
        self.insert(&case.documents)
    }

    fn insert(&self, documents: &[Fields]) -> Checked {
        let mut command = DocBuilder::new();
        command.append("insert", self.name.as_str()).start_array("documents");
        for fields in documents {
            command.push(RawValue::Document(document(fields).as_doc()));
        }
        match documents {
            [] => Ok(()),
            _ => self.command(command.finish()).map(drop),
        }
    }

    fn delete(&self, filter: &Filter, limit: i32) -> Checked<i64> {
        let mut command = DocBuilder::new();
        command.append("delete", self.name.as_str()).start_array("deletes").push_document();
        command.append("q", RawValue::Document(filter.show().as_doc())).append("limit", limit);
        Ok(number(self.command(command.finish())?.as_doc(), "n"))
    }

    /// All documents that reads of a collection return, by their numbers.
    fn shown(&self, name: &str) -> Checked<BTreeMap<i32, DocBuf>> {
        let mut command = DocBuilder::new();
        command.append("find", name);
        let reply = self.command(command.finish())?;
        let batch = expect::batch(reply.as_doc()).and_then(RawValue::as_array).ok_or("no batch")?;
        let documents = batch.iter().filter_map(|element| element.value().as_document());
        Ok(documents.map(|found| (id_of(found), found.to_owned())).collect())
    }

    fn step(&mut self, step: &Step) -> Checked {
        let now = self.fixture.env().now_ms;
        match step {
            Step::Insert(fields) => {
                self.insert(std::slice::from_ref(fields))?;
                self.oracle.documents.insert(id_of(document(fields).as_doc()), fields.clone());
            }
            Step::DeleteMany(filter) => {
                let selected = self.oracle.selected(filter, now);
                let deleted = self.delete(filter, 0)?;
                selected.iter().for_each(|id| drop(self.oracle.documents.remove(id)));
                same("n", deleted, selected.len() as i64)?;
            }
            Step::DeleteOne(filter) => {
                let selected = self.oracle.selected(filter, now);
                same("n", self.delete(filter, 1)?, selected.len().min(1) as i64)?;
                // Any one of them may be deleted.
                let shown = self.shown(&self.name)?;
                let gone: Vec<i32> =
                    selected.into_iter().filter(|id| !shown.contains_key(id)).collect();
                gone.iter().for_each(|id| drop(self.oracle.documents.remove(id)));
                same("documents that are gone", gone.len().min(1), gone.len())?;
            }
            Step::Remove { filter, last } => {
                let selected = self.oracle.selected(filter, now);
                let selected = if *last { selected.last() } else { selected.first() };
                let mut command = DocBuilder::new();
                command.append("findAndModify", self.name.as_str()).append("remove", true);
                command.append("query", RawValue::Document(filter.show().as_doc()));
                command.start_document("sort").append("_id", if *last { -1 } else { 1 });
                let reply = self.command(command.finish())?;
                let removed = reply.as_doc().get("value").and_then(RawValue::as_document);
                same("the removed document", removed.map(id_of), selected.copied())?;
                selected.map(|id| self.oracle.documents.remove(id));
            }
            Step::Pull(pull) => {
                let mut command = DocBuilder::new();
                command.append("update", self.name.as_str()).start_array("updates").push_document();
                command
                    .start_document("q")
                    .start_document("a")
                    .append("$type", "array")
                    .end()
                    .end();
                command.append("u", RawValue::Document(pull.show().as_doc())).append("multi", true);
                self.command(command.finish())?;
                self.oracle.pull(pull, now);
            }
            Step::Advance(_) => {}
            Step::Pass => {
                self.fixture.ttl_pass();
                self.oracle.pass(now);
            }
            Step::SetOptions(options) => {
                if let Some(policy) = &mut self.oracle.policy {
                    policy.options = *options;
                    // The document of options is replaced as a whole.
                    let change = format!("{{name: 'at', ttl: {}}}", options.show(&self.archive));
                    let command = format!("{{collMod: '{}', index: {change}}}", self.name);
                    self.fixture.ok("test", &command);
                }
            }
            Step::Rename => {
                let to = format!("{}x", self.name);
                self.fixture.ok("test", &format!("{{insert: '{to}', documents: [{{_id: 0}}]}}"));
                let names = format!("renameCollection: 'test.{}', to: 'test.{to}'", self.name);
                self.fixture.ok("admin", &format!("{{{names}, dropTarget: true}}"));
                self.name = to;
            }
            Step::RenameOverArchive => {
                if self.oracle.policy.as_ref().is_some_and(|policy| policy.options.archive) {
                    let (from, to) = (&self.name, &self.archive);
                    let names = format!("renameCollection: 'test.{from}', to: 'test.{to}'");
                    let reply =
                        self.fixture.run("admin", &format!("{{{names}, dropTarget: true}}"));
                    same("a code", number(reply.as_doc(), "code"), 72)?;
                }
            }
        }
        Ok(())
    }

    fn check(&self) -> Checked {
        let now = self.fixture.env().now_ms;
        let visible =
            self.oracle.documents.iter().filter(|(_, it)| self.oracle.is_visible(it, now));
        let expected: BTreeMap<i32, DocBuf> = visible.map(|(id, it)| (*id, document(it))).collect();
        same("visible documents", self.shown(&self.name)?, expected)?;
        let archived = self.oracle.archive.iter().map(|(id, it)| (*id, document(it))).collect();
        same("archived documents", self.shown(&self.archive)?, archived)?;
        let mut command = DocBuilder::new();
        command.append("collStats", self.name.as_str());
        let stored = number(self.command(command.finish())?.as_doc(), "count");
        same("stored documents", stored, self.oracle.documents.len() as i64)
    }
}

fn id_of(document: RawDoc<'_>) -> i32 {
    i32::try_from(number(document, "_id")).unwrap_or(-1)
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Checked {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what}: {found:?}\ninstead of {expected:?}")),
    }
}

/// Runs a case; returns the number of filters that matched some but not all documents.
fn run(fixture: &mut Fixture, case: &Case, name: String, indexes: &[&str]) -> Checked<u64> {
    let documents = case.documents.iter();
    let documents = documents.map(|fields| (id_of(document(fields).as_doc()), fields.clone()));
    let oracle = Oracle {
        documents: documents.collect(),
        archive: BTreeMap::new(),
        policy: case.policy.clone(),
        telling: 0,
    };
    let archive = format!("{name}archive");
    let mut run = Run { fixture, name, archive, oracle };
    run.set_up(case, indexes)?;
    run.check()?;
    for step in &case.steps {
        if let Step::Advance(seconds) = step {
            run.fixture.clock.advance_ms(seconds * 1000);
        }
        let shown = |step: &Step| match step {
            Step::DeleteMany(filter) | Step::DeleteOne(filter) | Step::Remove { filter, .. } => {
                dialect::show(filter.show().as_doc())
            }
            Step::Pull(pull) => dialect::show(pull.show().as_doc()),
            step => format!("{step:?}"),
        };
        let checked = run.step(step).and_then(|()| run.check());
        checked.map_err(|why| format!("{why}\nafter {}", shown(step)))?;
    }
    for name in [&run.name, &run.archive] {
        run.fixture.ok("test", &format!("{{drop: '{name}'}}"));
    }
    Ok(run.oracle.telling)
}

/// Runs this many cases, beginning with this seed.
fn agrees(first: u64, cases: u64, open: impl Fn() -> OpenEngine) {
    let seeds = match environment::number("DELETION_SEED") {
        Some(seed) => seed..seed + 1,
        None => first..first + cases * environment::number("MORE").unwrap_or(1),
    };
    println!("seeds {seeds:?}");
    let mut fixture = Fixture::new(open());
    let (mut failures, mut telling) = (Vec::new(), 0);
    let cases = seeds.end - seeds.start;
    for seed in seeds {
        if seed % CASES_PER_SERVER == 0 {
            fixture = Fixture::new(open());
        }
        let case = random::case(seed);
        for (name, indexes) in [("with", &case.indexes[..]), ("without", &[])] {
            let result = run(&mut fixture, &case, format!("{name}{seed}"), indexes);
            telling += result.as_ref().unwrap_or(&0);
            if let Err(why) = result {
                failures.push(format!("seed {seed}, indexes {indexes:?}: {why}\n{}", case.show()));
            }
        }
        if failures.len() > MOST_FAILURES {
            break;
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    println!("{telling} filters selected some documents and left others");
    assert!(cases == 1 || telling > cases / 4, "the filters say too little: {telling}");
}

#[test]
fn what_should_stay_stays() {
    agrees(0, 12_000, memory);
}

#[test]
fn what_should_stay_stays_under_chaos() {
    agrees(1_000_000, 5_000, || memory_under_chaos(3));
}

#[test]
fn what_should_stay_stays_on_rocksdb() {
    agrees(2_000_000, 3_000, rocksdb);
}
