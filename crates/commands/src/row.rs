//! What the command table says about a command.

use mayfly_base::Result;
use mayfly_value::DocBuilder;

use crate::audit::Audited;
use crate::{CommandContext, Needs, Request};

/// A handler appends the fields of its reply, without `ok`. When it fails, what it wrote is thrown away.
pub type Run = fn(&mut CommandContext<'_>, &Request<'_>, &mut DocBuilder) -> Result<()>;

/// What answers a command.
#[derive(Clone, Copy)]
pub enum Handler {
    /// This function.
    Run(Run),
    /// Nothing yet: the reference has it, this server does not.
    Missing,
}

/// Which of `opcounters` it belongs to, and what `currentOp` calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of opcounters")]
pub enum OpKind {
    Insert,
    Query,
    Update,
    Delete,
    GetMore,
    Command,
}

impl OpKind {
    /// `op` in `currentOp`.
    pub fn op_name(self) -> &'static str {
        match self {
            OpKind::Insert => "insert",
            OpKind::Query => "query",
            OpKind::Update => "update",
            OpKind::Delete => "remove",
            OpKind::GetMore => "getmore",
            OpKind::Command => "command",
        }
    }
}

/// Properties of a command, combined with [`RowFlags::and`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowFlags(u16);

impl RowFlags {
    /// Nothing special.
    pub const NONE: RowFlags = RowFlags(0);
    /// Only on the database `admin`.
    pub const ADMIN_ONLY: RowFlags = RowFlags(1);
    /// Also before authentication.
    pub const BEFORE_AUTH: RowFlags = RowFlags(2);
    /// Takes a write concern.
    pub const WRITE_CONCERN: RowFlags = RowFlags(4);
    /// Changes data; takes a write concern.
    pub const WRITE: RowFlags = RowFlags(8 | 4);
    /// May take long: the runtime's thread is told so.
    pub const MAY_BLOCK: RowFlags = RowFlags(16);
    /// `maxTimeMS` is the handler's business and sets no deadline.
    pub const OWN_MAX_TIME: RowFlags = RowFlags(32);
    /// Unknown generic arguments and fields are nobody's business (the handshake).
    pub const LENIENT: RowFlags = RowFlags(64);
    /// Not counted in `opcounters.command` beside its own counter.
    pub const COUNTS_ITSELF: RowFlags = RowFlags(128);

    /// A client may send it again under its transaction number.
    pub const RETRYABLE: RowFlags = RowFlags(256);
    /// Changes data, and may be sent again.
    pub const RETRYABLE_WRITE: RowFlags = RowFlags::WRITE.and(RowFlags::RETRYABLE);
    /// Changes data only for some arguments; takes a write concern.
    pub const MAY_WRITE: RowFlags = RowFlags(512);

    /// Carries secrets, which nobody is shown.
    pub const SECRET: RowFlags = RowFlags(1024);

    /// Known only to a server with test commands.
    pub const TEST_ONLY: RowFlags = RowFlags(1 << 15);

    /// Both sets of properties.
    #[must_use]
    pub const fn and(self, other: RowFlags) -> RowFlags {
        RowFlags(self.0 | other.0)
    }

    /// Whether all of these properties are there.
    pub const fn has(self, other: RowFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// One command.
#[derive(Clone, Copy)]
pub struct Row {
    /// The name.
    pub name: &'static str,
    /// Further spellings.
    pub aliases: &'static [&'static str],
    /// One line for `listCommands`.
    pub help: &'static str,
    /// Since which version the reference has it.
    pub since: &'static str,
    /// Properties.
    pub flags: RowFlags,
    /// Its counter.
    pub kind: OpKind,
    /// Which rights it needs.
    pub needs: Needs,
    /// Which event of the audit log it is, by itself.
    pub(crate) audited: Audited,
    /// What answers it.
    pub handler: Handler,
}

impl Row {
    /// A command without further spellings or properties, counted as a command.
    pub const fn new(name: &'static str, help: &'static str, run: Run) -> Row {
        Row {
            name,
            aliases: &[],
            help,
            since: "<=2.6",
            flags: RowFlags::NONE,
            kind: OpKind::Command,
            needs: Needs::Undeclared,
            audited: Audited::No,
            handler: Handler::Run(run),
        }
    }

    /// The same with these spellings beside its name.
    #[must_use]
    pub const fn aliases(self, aliases: &'static [&'static str]) -> Row {
        Row { aliases, ..self }
    }

    /// The same with this first version.
    #[must_use]
    pub const fn since(self, since: &'static str) -> Row {
        Row { since, ..self }
    }

    /// The same with these needs.
    #[must_use]
    pub const fn needs(self, needs: Needs) -> Row {
        Row { needs, ..self }
    }

    /// The same as this event of the audit log.
    #[must_use]
    pub(crate) const fn audited(self, audited: Audited) -> Row {
        Row { audited, ..self }
    }

    /// The same with these properties.
    #[must_use]
    pub const fn flags(self, flags: RowFlags) -> Row {
        Row { flags, ..self }
    }

    /// The same with this counter.
    #[must_use]
    pub const fn kind(self, kind: OpKind) -> Row {
        Row { kind, ..self }
    }

    /// A command that the reference has and this server does not have yet.
    pub(crate) const fn missing(name: &'static str, since: &'static str) -> Row {
        Row {
            name,
            aliases: &[],
            help: "not implemented yet",
            since,
            flags: RowFlags::LENIENT,
            kind: OpKind::Command,
            needs: Needs::Nothing,
            audited: Audited::No,
            handler: Handler::Missing,
        }
    }
}
