//! Runs a script over a fixture, block after block.

use std::fmt;

use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::dialect::{self, Env};
use crate::expect::{Expected, without_implied};
use crate::fixture::succeeded;
use crate::script::{Answer, Block, Script, Verb};
use crate::{Fixture, OpenEngine};

/// Documents in one insert of a `fill`: few enough that an insert succeeds on an engine with random
/// conflicts.
const FILL_BATCH: i64 = 50;

/// Which indexes a run creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexes {
    /// All indexes of the script.
    All,
    /// Only unique and TTL indexes, which affect what is stored. The answers must be the same.
    OnlyMeaningful,
}

/// A block whose answer is not the expected one.
pub struct Failure {
    /// The file and the line of the block, as `file:line`.
    pub place: String,
    /// The first difference, as a sentence.
    pub why: String,
    /// The reply that the script expects, in its dialect.
    pub expected: String,
    /// The reply of the server, in the script's dialect.
    pub found: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.place, self.why)?;
        writeln!(f, "  expected: {}", self.expected)?;
        write!(f, "  found:    {}", self.found)
    }
}

/// The result of a run.
pub struct Outcome {
    /// The number of blocks with an answer.
    pub checked: usize,
    /// The failed blocks. The run ends at a block without an expected answer that fails.
    pub failures: Vec<Failure>,
    /// The file with updated recorded answers, if they differ.
    pub updated: Option<String>,
}

/// Runs the blocks of a script in order, and compares the replies.
pub struct Runner {
    /// Which indexes are created.
    pub indexes: Indexes,
    /// Whether recorded answers are updated instead of compared.
    pub update: bool,
}

impl Runner {
    /// Runs a script over a new fixture.
    pub fn run(&self, script: &Script, open: OpenEngine) -> Outcome {
        let mut run = Run {
            script,
            fixture: Fixture::new(open),
            indexes: self.indexes,
            cursor: 0,
            snapshot: 0,
            outcome: Outcome { checked: 0, failures: Vec::new(), updated: None },
        };
        let mut recorded: Vec<(&Answer, String)> = Vec::new();
        for block in &script.blocks {
            match run.block(block) {
                Ok(Some(reply)) => {
                    let Some(answer) = &block.answer else { continue };
                    run.outcome.checked += 1;
                    if answer.recorded && self.update {
                        recorded.push((answer, shown_answer(reply.as_doc())));
                    } else {
                        run.check(block, answer, reply.as_doc());
                    }
                }
                Ok(None) => {}
                Err(failure) => {
                    run.outcome.failures.push(failure);
                    break;
                }
            }
        }
        run.outcome.updated = updated(script, &recorded);
        run.outcome
    }
}

/// A reply in the form of an expected answer.
fn shown_answer(reply: RawDoc<'_>) -> String {
    if reply.get("ok") == Some(RawValue::Double(1.0)) {
        let mut rest = DocBuilder::new();
        reply.iter().filter(|element| element.name() != "ok").for_each(|element| {
            rest.append_element(element);
        });
        return dialect::show(rest.finish().as_doc());
    }
    let text = |field: &str| reply.get(field).map(dialect::show_value).unwrap_or_default();
    let name = reply.get("codeName").and_then(RawValue::as_str).unwrap_or_default();
    format!("!{} {name} {}", text("code"), text("errmsg"))
}

fn updated(script: &Script, recorded: &[(&Answer, String)]) -> Option<String> {
    let mut lines = script.lines.clone();
    for (answer, text) in recorded.iter().rev() {
        lines.splice(answer.lines.0..answer.lines.1, [text.clone()]);
    }
    (lines != script.lines).then(|| lines.join("\n") + "\n")
}

fn failure(script: &Script, block: &Block, why: &str, expected: &str, found: String) -> Failure {
    let place = format!("{}:{}", script.path.display(), block.line);
    Failure { place, why: why.to_owned(), expected: expected.to_owned(), found }
}

struct Run<'s> {
    script: &'s Script,
    fixture: Fixture,
    indexes: Indexes,
    /// The last cursor that stayed open.
    cursor: i64,
    /// The time of the last snapshot read that did not specify a time.
    snapshot: u64,
    outcome: Outcome,
}

impl Run<'_> {
    fn env(&self) -> Env {
        Env { cursor: self.cursor, snapshot: self.snapshot, ..self.fixture.env() }
    }

    /// Runs the block; returns the reply of a command with an expected answer.
    fn block(&mut self, block: &Block) -> Result<Option<DocBuf>, Failure> {
        let script = self.script;
        let malformed = |why: String| failure(script, block, &why, "", String::new());
        match &block.verb {
            Verb::Command { db, text } => {
                let command = dialect::document(text, &self.env()).map_err(malformed)?;
                return self.command(block, db, &command);
            }
            Verb::Advance { ms } => self.fixture.clock.advance_ms(*ms),
            Verb::SetClock { ms } => self.fixture.clock.set_wall_ms(*ms),
            Verb::TtlPass => self.fixture.ttl_pass(),
            Verb::TtlSubPass => {
                self.fixture.ttl_sub_pass();
            }
            Verb::Restart => self.fixture.restart(),
            Verb::Crash => self.fixture.crash(),
            Verb::Sweep => self.fixture.sweep(),
            Verb::Follow => self.fixture.follow(),
            Verb::Member { set } => self.fixture.join(set),
            Verb::SetParameter { name, value } => {
                let text = format!("{{setParameter: 1, {name}: {value}}}");
                let command = dialect::document(&text, &self.env()).map_err(malformed)?;
                self.command(block, "admin", &command)?;
            }
            Verb::StartParameter { name, value } => {
                self.fixture.start_with(name, value).map_err(malformed)?;
            }
            Verb::Fill { namespace, count, document } => {
                self.fill(block, namespace, *count, document)?;
            }
        }
        Ok(None)
    }

    fn command(
        &mut self,
        block: &Block,
        db: &str,
        command: &DocBuf,
    ) -> Result<Option<DocBuf>, Failure> {
        let mut changed = false;
        let command = match self.indexes {
            Indexes::All => command.clone(),
            Indexes::OnlyMeaningful => match meaningful(command.as_doc()) {
                Kept::All => command.clone(),
                Kept::Some(command) => {
                    changed = true;
                    command
                }
                Kept::Nothing => return Ok(None),
            },
        };
        let reply = self.fixture.run_document(db, command.as_doc());
        let expected = block.answer.as_ref().map_or("", |answer| answer.text.as_str());
        let reply = without_implied(reply.as_doc(), expected);
        let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document);
        if let Some(RawValue::Int64(id @ 1..)) = cursor.and_then(|cursor| cursor.get("id")) {
            self.cursor = id;
        }
        let concern = command.as_doc().get("readConcern").and_then(RawValue::as_document);
        let asks = concern.is_some_and(|concern| concern.get("atClusterTime").is_some());
        if let Some(RawValue::Timestamp(time)) =
            cursor.unwrap_or(reply.as_doc()).get("atClusterTime").filter(|_| !asks)
        {
            self.snapshot = time;
        }
        if block.answer.is_none() && !succeeded(reply.as_doc()) {
            let found = dialect::show(reply.as_doc());
            let expected = "{ok: 1.0, ...}";
            return Err(failure(self.script, block, "it must succeed", expected, found));
        }
        Ok((!changed).then_some(reply))
    }

    fn fill(
        &mut self,
        block: &Block,
        namespace: &str,
        count: i64,
        document: &str,
    ) -> Result<(), Failure> {
        let script = self.script;
        let malformed = |why: String| failure(script, block, &why, "", String::new());
        let (db, collection) = namespace
            .split_once('.')
            .ok_or_else(|| malformed("expected `<db.collection>`".to_owned()))?;
        let mut row = 0;
        while row < count {
            let mut command = DocBuilder::new();
            command.append("insert", collection).start_array("documents");
            let end = count.min(row + FILL_BATCH);
            while row < end {
                let env = Env { row, ..self.env() };
                command.push(&dialect::document(document, &env).map_err(malformed)?);
                row += 1;
            }
            command.end();
            self.command(block, db, &command.finish())?;
        }
        Ok(())
    }

    fn check(&mut self, block: &Block, answer: &Answer, reply: RawDoc<'_>) {
        let checked = Expected::parse(&answer.text, &self.env())
            .map_err(|why| format!("the expectation is malformed: {why}"))
            .and_then(|expected| expected.check(reply));
        if let Err(why) = checked {
            let found = dialect::show(reply);
            let failure = failure(self.script, block, &why, &answer.text, found);
            self.outcome.failures.push(failure);
        }
    }
}

/// A command without the indexes that only make queries fast.
enum Kept {
    All,
    Some(DocBuf),
    Nothing,
}

fn meaningful(command: RawDoc<'_>) -> Kept {
    let is_create = command.iter().next().is_some_and(|first| first.name() == "createIndexes");
    let (true, Some(RawValue::Array(specs))) = (is_create, command.get("indexes")) else {
        return Kept::All;
    };
    let keeps = |spec: RawValue<'_>| {
        spec.as_document().is_none_or(|spec| {
            spec.get("unique").is_some() || spec.get("expireAfterSeconds").is_some()
        })
    };
    let kept: Vec<RawValue<'_>> =
        specs.iter().map(|element| element.value()).filter(|spec| keeps(*spec)).collect();
    if kept.len() == specs.iter().count() {
        return Kept::All;
    }
    if kept.is_empty() {
        return Kept::Nothing;
    }
    let mut out = DocBuilder::new();
    for element in command {
        if element.name() == "indexes" {
            out.start_array("indexes");
            kept.iter().for_each(|spec| {
                out.push(*spec);
            });
            out.end();
        } else {
            out.append_element(element);
        }
    }
    Kept::Some(out.finish())
}
