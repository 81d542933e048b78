//! A command of the table: its row and its handler. A handler's file defines both, by a chain of these methods.

use foldhash::{HashMap, HashMapExt};
use mayfly_base::{ErrorCode, Result};
use mayfly_query::Verbosity;
use mayfly_value::DocBuilder;

use super::CommandContext;
use crate::request::row::{
    Audited, Expected, Hides, InTransaction, LogForm, Names, OpKind, Reads, Replayed, Row,
    RowFlags, Writes,
};
use crate::request::{Needs, Request};

/// A handler appends the fields of its reply, without `ok`. When it fails, what it wrote is thrown away.
pub type Run = fn(&CommandContext<'_>, &Request<'_>, &mut DocBuilder) -> Result<()>;

/// Appends how a command would run; the request is the explained command's own.
pub(crate) type Explain =
    fn(&CommandContext<'_>, &Request<'_>, Verbosity, &mut DocBuilder) -> Result<()>;

/// What answers a command.
#[derive(Clone, Copy)]
pub enum Handler {
    /// This function.
    Run(Run),
    /// Nothing yet: the reference has it, this server does not.
    Missing,
}

/// How a command is explained.
#[derive(Clone, Copy)]
pub struct Explained {
    /// The command's arguments, its generic ones aside.
    pub arguments: &'static [&'static str],
    /// Appends the plan.
    pub explain: Explain,
}

/// One command of the table.
#[derive(Clone, Copy)]
pub struct Command {
    /// What is known about it.
    pub row: Row,
    /// What answers it.
    pub handler: Handler,
    /// What explains it, where it can be explained.
    pub explained: Option<Explained>,
}

impl Command {
    /// A command without further spellings or properties, counted as a command.
    pub const fn new(name: &'static str, help: &'static str, run: Run) -> Command {
        Command { row: Row::new(name, help), handler: Handler::Run(run), explained: None }
    }

    /// A command that the reference has and this server does not have yet.
    pub(crate) const fn missing(name: &'static str, since: &'static str) -> Command {
        Command { row: Row::missing(name, since), handler: Handler::Missing, explained: None }
    }

    /// The same with these spellings beside its name.
    #[must_use]
    pub const fn aliases(self, aliases: &'static [&'static str]) -> Command {
        Command { row: Row { aliases, ..self.row }, ..self }
    }

    /// The same with this first version.
    #[must_use]
    pub const fn since(self, since: &'static str) -> Command {
        Command { row: Row { since, ..self.row }, ..self }
    }

    /// The same with these needs.
    #[must_use]
    pub const fn needs(self, needs: Needs) -> Command {
        Command { row: Row { needs, ..self.row }, ..self }
    }

    /// The same as this event of the audit log.
    #[must_use]
    pub const fn audited(self, audited: Audited) -> Command {
        Command { row: Row { audited, ..self.row }, ..self }
    }

    /// The same with these properties beside those that it has.
    #[must_use]
    pub const fn flags(self, flags: RowFlags) -> Command {
        Command { row: Row { flags: self.row.flags.union(flags), ..self.row }, ..self }
    }

    /// The same with this counter.
    #[must_use]
    pub const fn kind(self, kind: OpKind) -> Command {
        Command { row: Row { kind, ..self.row }, ..self }
    }

    /// The same with these writes.
    #[must_use]
    pub const fn writes(self, writes: Writes) -> Command {
        Command { row: Row { writes, ..self.row }, ..self }
    }

    /// The same with these reads.
    #[must_use]
    pub const fn reads(self, reads: Reads) -> Command {
        Command { row: Row { reads, ..self.row }, ..self }
    }

    /// The same with this place in transactions.
    #[must_use]
    pub const fn in_transaction(self, in_transaction: InTransaction) -> Command {
        Command { row: Row { in_transaction, ..self.row }, ..self }
    }

    /// The same, naming its collection there.
    #[must_use]
    pub const fn names(self, names: Names) -> Command {
        Command { row: Row { names, ..self.row }, ..self }
    }

    /// The same with this hidden.
    #[must_use]
    pub const fn hides(self, hides: Hides) -> Command {
        Command { row: Row { hides, ..self.row }, ..self }
    }

    /// The same with this length.
    #[must_use]
    pub const fn expected(self, expected: Expected) -> Command {
        Command { row: Row { expected, ..self.row }, ..self }
    }

    /// The same as a command of logs, whose replay goes on after these errors.
    #[must_use]
    pub const fn replayed(self, form: LogForm, acceptable: &'static [ErrorCode]) -> Command {
        let replayed = Some(Replayed { form, acceptable });
        Command { row: Row { replayed, ..self.row }, ..self }
    }

    /// The same, explained by this function; `arguments` are all that it takes beside generic ones.
    #[must_use]
    pub const fn explained(self, arguments: &'static [&'static str], explain: Explain) -> Command {
        Command { explained: Some(Explained { arguments, explain }), ..self }
    }
}

/// A command and its place in the table, which is its counter's place in the metrics.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The place.
    pub index: usize,
    /// The command.
    pub command: &'static Command,
}

/// All commands, by name and in their order. Handlers that run, list or explain other commands look them up here.
pub struct Table {
    commands: Vec<&'static Command>,
    by_name: HashMap<&'static str, Entry>,
}

impl Table {
    /// The table of some groups. The first command with a name wins.
    pub(crate) fn new(groups: &[&'static [Command]]) -> Table {
        let mut table = Table { commands: Vec::new(), by_name: HashMap::new() };
        for command in groups.iter().copied().flatten() {
            if table.by_name.contains_key(command.row.name) {
                continue;
            }
            let entry = Entry { index: table.commands.len(), command };
            table.commands.push(command);
            table.by_name.insert(command.row.name, entry);
            for alias in command.row.aliases {
                table.by_name.insert(alias, entry);
            }
        }
        table
    }

    /// The command with this name or alias.
    pub fn find(&self, name: &str) -> Option<Entry> {
        self.by_name.get(name).copied()
    }

    /// All commands, each once.
    pub fn commands(&self) -> &[&'static Command] {
        &self.commands
    }
}
