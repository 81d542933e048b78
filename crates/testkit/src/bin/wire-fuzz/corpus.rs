//! Valid commands: those of the golden scripts, and those that earlier runs have kept.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use mayfly_testkit::script::Verb;
use mayfly_testkit::{Env, Script, dialect};
use mayfly_value::extjson;
use mayfly_value::{RawDoc, RawValue};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

use crate::tree::Node;

/// A placeholder for the id of the connection's last cursor.
pub(crate) const CURSOR: i64 = 7_777_777_777_777;
/// A placeholder for the time of the connection's last reply.
pub(crate) const SNAPSHOT: u64 = 0x7777_7777_7777_7777;
/// Rows of a script's `fill` that are inserted.
const FILLED_ROWS: i64 = 300;
/// The largest number of values for a name.
const VALUES_OF_A_NAME: usize = 300;

/// A command and its database.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) db: String,
    pub(crate) command: Node,
}

/// The material of commands.
pub(crate) struct Corpus {
    /// The scripts, whose commands belong together.
    pub(crate) scripts: Vec<Vec<Step>>,
    /// Single commands, those of the scripts and others.
    pub(crate) commands: Vec<Step>,
    /// Values by the name of their field.
    by_name: HashMap<String, Vec<Node>>,
    values: Vec<Node>,
    names: Vec<String>,
}

impl Corpus {
    /// Reads the scripts below a folder, and the files in the folder of kept commands.
    pub(crate) fn read(scripts: &Path, kept: Option<&Path>, now_ms: i64) -> Result<Corpus, String> {
        let mut corpus = Corpus {
            scripts: Vec::new(),
            commands: Vec::new(),
            by_name: HashMap::new(),
            values: Vec::new(),
            names: tables(),
        };
        for path in files(scripts, "txt")? {
            let steps = steps(&Script::read(&path)?, now_ms);
            steps.iter().for_each(|step| corpus.take(step.clone()));
            corpus.scripts.push(steps);
        }
        if corpus.commands.is_empty() {
            return Err(format!("{}: no scripts", scripts.display()));
        }
        for path in kept.map_or(Ok(Vec::new()), |kept| files(kept, "json"))? {
            let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
            text.lines().filter_map(read_line).for_each(|step| corpus.take(step));
        }
        let mut names: Vec<_> = corpus.by_name.keys().cloned().collect();
        names.append(&mut corpus.names);
        names.sort_unstable();
        names.dedup();
        corpus.names = names;
        Ok(corpus)
    }

    fn take(&mut self, step: Step) {
        let (by_name, values) = (&mut self.by_name, &mut self.values);
        step.command.each_field(&mut |name, value| {
            let known = by_name.entry(name.to_owned()).or_default();
            if known.len() < VALUES_OF_A_NAME {
                known.push(value.clone());
                values.push(value.clone());
            }
        });
        self.commands.push(step);
    }

    /// A name: of an argument, of an operator, of a field.
    pub(crate) fn name(&self, random: &mut SmallRng) -> &str {
        self.names.choose(random).map_or("a", String::as_str)
    }

    /// A value of a field with this name, or of any field.
    pub(crate) fn value(&self, name: &str, random: &mut SmallRng) -> Node {
        let known = self.by_name.get(name).filter(|_| random.random_bool(0.8));
        known.unwrap_or(&self.values).choose(random).cloned().unwrap_or(Node::leaf(1))
    }

    pub(crate) fn command(&self, random: &mut SmallRng) -> Step {
        let index = random.random_range(0..self.commands.len());
        self.commands[index].clone()
    }
}

/// A kept command: its database, a space, the command in extended JSON.
pub(crate) fn line(db: &str, command: RawDoc<'_>) -> String {
    format!("{db} {}", extjson::to_string(command, extjson::Style::Canonical))
}

pub(crate) fn read_line(line: &str) -> Option<Step> {
    let (db, command) = line.split_once(' ')?;
    let command = extjson::parse_document(command).ok()?;
    Some(Step { db: db.to_owned(), command: Node::of_document(command.as_doc()) })
}

fn files(folder: &Path, extension: &str) -> Result<Vec<std::path::PathBuf>, String> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        let text = |error: std::io::Error| format!("{}: {error}", folder.display());
        for entry in std::fs::read_dir(&folder).map_err(text)? {
            let path = entry.map_err(text)?.path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|it| it == extension) => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

fn steps(script: &Script, now_ms: i64) -> Vec<Step> {
    let env = Env { now_ms, row: 0, cursor: CURSOR, snapshot: SNAPSHOT };
    let step = |verb: &Verb| match verb {
        Verb::Command { db, text } => {
            let command = dialect::document(text, &env).ok()?;
            Some(Step { db: db.clone(), command: Node::of_document(command.as_doc()) })
        }
        Verb::Fill { namespace, count, document } => {
            let (db, collection) = namespace.split_once('.')?;
            let row = |row| {
                let document = dialect::document(document, &Env { row, ..env }).ok()?;
                Some(Node::of_document(document.as_doc()))
            };
            let rows = (0..(*count).min(FILLED_ROWS)).filter_map(row).collect();
            let command = Node::Document(vec![
                ("insert".to_owned(), Node::leaf(collection)),
                ("documents".to_owned(), Node::Array(rows)),
            ]);
            Some(Step { db: db.to_owned(), command })
        }
        Verb::SetParameter { name, value } | Verb::StartParameter { name, value } => {
            let value = dialect::value(value, &env).ok()?;
            let command = Node::Document(vec![
                ("setParameter".to_owned(), Node::leaf(1)),
                (name.clone(), Node::Leaf(value)),
            ]);
            Some(Step { db: "admin".to_owned(), command })
        }
        _ => None,
    };
    script.blocks.iter().filter_map(|block| step(&block.verb)).collect()
}

/// The names in the server's own tables.
fn tables() -> Vec<String> {
    let mut names: Vec<&str> = Vec::new();
    names.extend(mayfly_commands::registry::commands().iter().map(|command| command.row.name));
    names.extend(mayfly_query::STAGES.iter().map(|row| row.name));
    names.extend(mayfly_expr::op::rows().map(|row| row.name));
    names.extend(mayfly_expr::accum::ROWS.iter().map(|row| row.name));
    names.extend(mayfly_expr::window::ROWS.iter().map(|row| row.name));
    names.extend(mayfly_mql::matcher::op::ROWS.iter().map(|row| row.name));
    names.extend(mayfly_mql::update::op::ROWS.iter().map(|row| row.name));
    names.extend(mayfly_mql::update::op::CLAUSES.iter().copied());
    names.extend(mayfly_mql::projection::row::ROWS.iter().map(|row| row.name));
    names.extend(mayfly_value::collation::FIELDS.iter().map(|field| field.name));
    names.extend(mayfly_service::parameters::TABLE.iter().map(|row| row.name));
    names.into_iter().map(str::to_owned).collect()
}

/// Replaces the placeholders of a cursor and of a time, and separates the sessions of connections.
pub(crate) fn resolve(command: &mut Node, cursor: i64, time: u64, connection: u8) {
    command.each_leaf(&mut |leaf| match leaf.as_raw() {
        RawValue::Int64(CURSOR) => *leaf = RawValue::Int64(cursor).to_owned(),
        RawValue::Timestamp(SNAPSHOT) => *leaf = RawValue::Timestamp(time).to_owned(),
        _ => {}
    });
    let Node::Document(fields) = command else { return };
    for (name, value) in fields.iter_mut().filter(|(name, _)| name == "lsid") {
        debug_assert_eq!(name, "lsid");
        value.each_leaf(&mut |leaf| {
            if let RawValue::Binary { subtype: 4, bytes } = leaf.as_raw()
                && let Some((first, rest)) = bytes.split_first()
            {
                let mut bytes = vec![first.wrapping_add(connection)];
                bytes.extend_from_slice(rest);
                *leaf = RawValue::Binary { subtype: 4, bytes: &bytes }.to_owned();
            }
        });
    }
}

/// The collections of a script, for commands of other scripts.
pub(crate) fn collections(steps: &[Step]) -> Vec<(String, String)> {
    let mut found = HashSet::new();
    for step in steps {
        if let Node::Document(fields) = &step.command
            && let Some((_, Node::Leaf(target))) = fields.first()
            && let RawValue::String(name) = target.as_raw()
        {
            found.insert((step.db.clone(), name.to_owned()));
        }
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort();
    found
}
