//! A command of the table: its row and its handler. The file of a handler defines both with a chain
//! of these methods.

use foldhash::{HashMap, HashMapExt};
use mayfly_base::{ErrorCode, Result};
use mayfly_query::Verbosity;
use mayfly_value::DocBuilder;
use mayfly_value::arguments::Argument;

use super::CommandContext;
use crate::request::row::{
    Audited, Encrypted, Expected, Hides, InTransaction, LogForm, Names, OpKind, Reads, Replayed,
    Row, RowFlags, Writes,
};
use crate::request::{Needs, Request};

/// A handler. It appends the fields of its reply, without `ok`; after an error they are discarded.
pub type Run = fn(&CommandContext<'_>, &Request<'_>, &mut DocBuilder) -> Result<()>;

/// Appends the explanation of a command; `request` is that of the explained command.
pub(crate) type Explain =
    fn(&CommandContext<'_>, &Request<'_>, Verbosity, &mut DocBuilder) -> Result<()>;

/// The implementation of a command.
#[derive(Clone, Copy)]
pub enum Handler {
    /// This function.
    Run(Run),
    /// The reference has the command, this server does not.
    Missing,
}

/// One command of the table.
#[derive(Clone, Copy)]
pub struct Command {
    /// The properties of the command for dispatch: names, rights, and how it reads and writes.
    pub row: Row,
    /// The function that runs the command, or a mark that it is not implemented.
    pub handler: Handler,
    /// Its explanation, if it can be explained.
    pub explained: Option<Explain>,
}

impl Command {
    /// A command without aliases and further properties, counted as [`OpKind::Command`].
    pub const fn new(name: &'static str, help: &'static str, run: Run) -> Command {
        Command { row: Row::new(name, help), handler: Handler::Run(run), explained: None }
    }

    /// A command of the reference that is not implemented.
    pub(crate) const fn missing(name: &'static str, since: &'static str) -> Command {
        Command { row: Row::missing(name, since), handler: Handler::Missing, explained: None }
    }

    /// Sets further names.
    #[must_use]
    pub const fn aliases(self, aliases: &'static [&'static str]) -> Command {
        Command { row: Row { aliases, ..self.row }, ..self }
    }

    /// Sets the reference's version that introduced it.
    #[must_use]
    pub const fn since(self, since: &'static str) -> Command {
        Command { row: Row { since, ..self.row }, ..self }
    }

    /// Sets the rights that it needs.
    #[must_use]
    pub const fn needs(self, needs: Needs) -> Command {
        Command { row: Row { needs, ..self.row }, ..self }
    }

    /// Sets its event in the audit log.
    #[must_use]
    pub const fn audited(self, audited: Audited) -> Command {
        Command { row: Row { audited, ..self.row }, ..self }
    }

    /// Adds flags to those that the row already has.
    #[must_use]
    pub const fn flags(self, flags: RowFlags) -> Command {
        Command { row: Row { flags: self.row.flags.union(flags), ..self.row }, ..self }
    }

    /// Sets its counter.
    #[must_use]
    pub const fn kind(self, kind: OpKind) -> Command {
        Command { row: Row { kind, ..self.row }, ..self }
    }

    /// Sets what it writes.
    #[must_use]
    pub const fn writes(self, writes: Writes) -> Command {
        Command { row: Row { writes, ..self.row }, ..self }
    }

    /// Sets how it reads.
    #[must_use]
    pub const fn reads(self, reads: Reads) -> Command {
        Command { row: Row { reads, ..self.row }, ..self }
    }

    /// Sets how transactions treat it.
    #[must_use]
    pub const fn in_transaction(self, in_transaction: InTransaction) -> Command {
        Command { row: Row { in_transaction, ..self.row }, ..self }
    }

    /// Sets where it names its collection.
    #[must_use]
    pub const fn names(self, names: Names) -> Command {
        Command { row: Row { names, ..self.row }, ..self }
    }

    /// Sets what is hidden of it in logs.
    #[must_use]
    pub const fn hides(self, hides: Hides) -> Command {
        Command { row: Row { hides, ..self.row }, ..self }
    }

    /// Sets its expected duration.
    #[must_use]
    pub const fn expected(self, expected: Expected) -> Command {
        Command { row: Row { expected, ..self.row }, ..self }
    }

    /// Sets where its filters are, which may contain encrypted values.
    #[must_use]
    pub const fn encrypted(self, encrypted: Encrypted) -> Command {
        Command { row: Row { encrypted, ..self.row }, ..self }
    }

    /// Marks it as a command of operation logs; its replay continues after these errors.
    #[must_use]
    pub const fn replayed(self, form: LogForm, acceptable: &'static [ErrorCode]) -> Command {
        let replayed = Some(Replayed { form, acceptable });
        Command { row: Row { replayed, ..self.row }, ..self }
    }

    /// Sets its arguments, without the generic ones.
    #[must_use]
    pub const fn arguments(self, arguments: &'static [Argument]) -> Command {
        Command { row: Row { arguments, ..self.row }, ..self }
    }

    /// Sets its explanation.
    #[must_use]
    pub const fn explained(self, explain: Explain) -> Command {
        Command { explained: Some(explain), ..self }
    }
}

/// A command and its index in the table, which is also the index of its counters.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The index in the table.
    pub index: usize,
    /// The row of the table with its handler.
    pub command: &'static Command,
}

/// All commands, in order and by name. Handlers that run, list or explain other commands use it.
pub struct Table {
    commands: Vec<&'static Command>,
    by_name: HashMap<&'static str, Entry>,
}

impl Table {
    /// Builds the table of some groups. The first command with a name wins.
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

    /// Finds a command by its name or an alias.
    pub fn find(&self, name: &str) -> Option<Entry> {
        self.by_name.get(name).copied()
    }

    /// All commands, without repetitions for aliases.
    pub fn commands(&self) -> &[&'static Command] {
        &self.commands
    }
}
