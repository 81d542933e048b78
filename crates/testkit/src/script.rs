//! A script: a file of blocks, each a command or a verb, most with the answer.
//!
//! ```text
//! # source: db.collection.find(), "Definition"      <- a page of the manual or a rule; holds until the next one
//! # indexes matter                                  <- tag: not to be run with indexes left out
//! # conflicts matter                                <- tag: not to be run where writes conflict at random
//! # insertion order matters                         <- tag: not to be run where records are clustered by _id
//!
//! test {insert: 'c', documents: [{_id: 1}]}         <- a command without an answer must succeed
//! test {find: 'c', filter: {}}
//! ----                                              <- normative: what the reference does; never regenerated
//! [{_id: 1}]
//!
//! test {find: 'c', hint: 'x_1'}
//! ====                                              <- recorded: regenerated with UPDATE_SCRIPTS=1, reviewed in the diff
//! !2 BadValue 'hint provided does not correspond to an existing index'
//! ```
//!
//! * `#` begins a comment. An answer ends at an empty line; a command where its brackets close.
//! * Verbs: `clock +1000` (milliseconds), `clock = 1800000000000`, `ttl pass`, `ttl subpass`,
//!   `restart` (a clean close and a new open), `crash` (no close), `sweep`, `follow` (search
//!   indexes get all writes; a search before that waits for a second), `member <name>` (of a
//!   replica set, until the next open), `start <parameter> <value>` (as if the server had been
//!   started with it, until the next open), `set <parameter> <value>`, `fill <db.collection>
//!   <count> {_id: @i}`.
//! * The dialect of commands and answers is in [`crate::dialect`], how answers are compared in
//!   [`crate::expect`].

use std::path::{Path, PathBuf};

/// A parsed file.
#[derive(Debug)]
pub struct Script {
    /// The path of the file.
    pub path: PathBuf,
    /// Whether its answers depend on the indexes (hints, index listings, plans).
    pub indexes_matter: bool,
    /// Whether conflicts change its answers: statements of transactions are not retried.
    pub conflicts_matter: bool,
    /// Whether its answers depend on the order of insertion or on record numbers.
    pub insertion_order_matters: bool,
    /// Whether its answers depend on the cost of a look-up, which is higher across a network.
    pub network_matters: bool,
    /// The blocks in their order.
    pub blocks: Vec<Block>,
    /// The file's lines.
    pub(crate) lines: Vec<String>,
}

/// A step of a script: a verb with its arguments, and the expected reply.
#[derive(Debug)]
pub struct Block {
    /// The number of its first line, from 1.
    pub line: usize,
    /// The command, or another action such as moving the clock.
    pub verb: Verb,
    /// The expected answer.
    pub answer: Option<Answer>,
}

/// An expected reply.
#[derive(Debug)]
pub struct Answer {
    /// Whether it is recorded, and can be regenerated.
    pub recorded: bool,
    /// The text in the file.
    pub text: String,
    /// The index of its first line, and of the line after its last one.
    pub(crate) lines: (usize, usize),
}

/// The action of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the module's text describes the verbs")]
pub enum Verb {
    Command { db: String, text: String },
    Advance { ms: i64 },
    SetClock { ms: i64 },
    TtlPass,
    TtlSubPass,
    Restart,
    Crash,
    Sweep,
    Follow,
    Member { set: String },
    SetParameter { name: String, value: String },
    StartParameter { name: String, value: String },
    Fill { namespace: String, count: i64, document: String },
}

impl Script {
    /// Reads and parses a file.
    ///
    /// # Errors
    /// `file:line: what is wrong`.
    pub fn read(path: &Path) -> Result<Script, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Script::parse(path, &text)
    }

    /// Parses a script.
    ///
    /// # Errors
    /// `file:line: what is wrong`.
    pub fn parse(path: &Path, text: &str) -> Result<Script, String> {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut parser = Parser { lines: &lines, at: 0, sourced: false };
        let mut blocks = Vec::new();
        while let Some(line) = lines.get(parser.at) {
            if line.trim().is_empty() || parser.comment() {
                parser.at += 1;
                continue;
            }
            let number = parser.at + 1;
            let block = parser.block();
            let block = block.map_err(|why| format!("{}:{number}: {why}", path.display()))?;
            blocks.push(block);
        }
        let has_tag = |tag: &str| lines.iter().any(|line| line.trim() == tag);
        Ok(Script {
            path: path.to_owned(),
            indexes_matter: has_tag("# indexes matter"),
            conflicts_matter: has_tag("# conflicts matter"),
            insertion_order_matters: has_tag("# insertion order matters"),
            network_matters: has_tag("# network matters"),
            blocks,
            lines,
        })
    }
}

struct Parser<'a> {
    lines: &'a [String],
    at: usize,
    /// Whether a source was named.
    sourced: bool,
}

impl Parser<'_> {
    /// Whether the current line is a comment; records a source.
    fn comment(&mut self) -> bool {
        let line = self.lines[self.at].trim();
        if line.strip_prefix("# source:").is_some_and(|source| !source.trim().is_empty()) {
            self.sourced = true;
        }
        line.starts_with('#')
    }

    fn block(&mut self) -> Result<Block, String> {
        let line = self.at + 1;
        let first = self.lines[self.at].trim();
        self.at += 1;
        if let Some(verb) = verb(first)? {
            return Ok(Block { line, verb, answer: None });
        }
        let (db, start) = first.split_once(' ').ok_or("expected `<database> {...}` or a verb")?;
        let mut text = start.to_owned();
        while depth(&text) > 0 {
            let next = self.lines.get(self.at).ok_or("the command has no end")?;
            text.push('\n');
            text.push_str(next);
            self.at += 1;
        }
        let verb = Verb::Command { db: db.to_owned(), text };
        Ok(Block { line, verb, answer: self.answer()? })
    }

    fn answer(&mut self) -> Result<Option<Answer>, String> {
        let recorded = match self.lines.get(self.at).map(|line| line.trim()) {
            Some("----") => false,
            Some("====") => true,
            _ => return Ok(None),
        };
        if !recorded && !self.sourced {
            return Err("a normative answer needs a `# source:` before it".to_owned());
        }
        let first = self.at + 1;
        let rest = &self.lines[first..];
        let length = rest.iter().position(|line| line.trim().is_empty()).unwrap_or(rest.len());
        self.at = first + length;
        let text = rest[..length].join("\n");
        Ok(Some(Answer { recorded, text, lines: (first, self.at) }))
    }
}

/// The number of brackets that are open at the end of the text, outside of strings.
fn depth(text: &str) -> i32 {
    let (mut depth, mut quote, mut escaped) = (0, None, false);
    for c in text.chars() {
        match quote {
            Some(open) => {
                if c == open && !escaped {
                    quote = None;
                }
                escaped = c == '\\' && !escaped;
            }
            None => match c {
                '\'' | '"' => quote = Some(c),
                '{' | '[' | '(' => depth += 1,
                '}' | ']' | ')' => depth -= 1,
                _ => {}
            },
        }
    }
    depth
}

/// The verb on this line; `None` for a command.
fn verb(line: &str) -> Result<Option<Verb>, String> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let rest = rest.trim();
    let number =
        |text: &str| text.trim().parse::<i64>().map_err(|_| format!("not a number: {text}"));
    let verb = match word {
        "clock" => match rest.split_at_checked(1) {
            Some(("+", ms)) => Verb::Advance { ms: number(ms)? },
            Some(("=", ms)) => Verb::SetClock { ms: number(ms)? },
            _ => return Err("expected `clock +ms` or `clock = ms`".to_owned()),
        },
        "ttl" if rest == "pass" => Verb::TtlPass,
        "ttl" if rest == "subpass" => Verb::TtlSubPass,
        "restart" => Verb::Restart,
        "crash" => Verb::Crash,
        "sweep" => Verb::Sweep,
        "follow" => Verb::Follow,
        "member" => Verb::Member { set: rest.to_owned() },
        "set" => {
            let (name, value) = rest.split_once(' ').ok_or("expected `set <parameter> <value>`")?;
            Verb::SetParameter { name: name.to_owned(), value: value.to_owned() }
        }
        "start" => {
            let usage = "expected `start <parameter> <value>`";
            let (name, value) = rest.split_once(' ').ok_or(usage)?;
            Verb::StartParameter { name: name.to_owned(), value: value.to_owned() }
        }
        "fill" => {
            let mut parts = rest.splitn(3, ' ');
            let (namespace, count, document) = (parts.next(), parts.next(), parts.next());
            let usage = "expected `fill <db.collection> <count> {...}`";
            Verb::Fill {
                namespace: namespace.ok_or(usage)?.to_owned(),
                count: number(count.ok_or(usage)?)?,
                document: document.ok_or(usage)?.to_owned(),
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(verb))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# source: x\n\nclock +5\nset a 'b c'\nd {a: [\n 1]}\nd {b: '}'}\n----\n\
        {n: 1,\n ...}\n\nd {c: 1}\n====\n!2 BadValue\n";

    #[test]
    fn blocks_are_found() {
        let script = Script::parse(Path::new("x.txt"), TEXT).unwrap();
        assert_eq!(script.blocks.len(), 5);
        assert_eq!(script.blocks[0].verb, Verb::Advance { ms: 5 });
        assert_eq!(script.blocks[2].line, 5);
        assert!(script.blocks[2].answer.is_none());
        assert_eq!(script.blocks[3].answer.as_ref().unwrap().text, "{n: 1,\n ...}");
        assert!(script.blocks[4].answer.as_ref().unwrap().recorded);
        let unsourced = Script::parse(Path::new("x.txt"), "d {a: 1}\n----\n{}\n").unwrap_err();
        assert!(unsourced.starts_with("x.txt:1:"), "{unsourced}");
    }
}
