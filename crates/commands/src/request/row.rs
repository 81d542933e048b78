//! What the command table says about a command. Every list of commands is derived from rows: the rules read a row's facts, and
//! name no command.

use bitflags::bitflags;
use mayfly_base::ErrorCode;
use mayfly_value::{RawDoc, RawValue};

use super::Needs;

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

bitflags! {
    /// Properties of a command.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RowFlags: u16 {
        /// Only on the database `admin`.
        const ADMIN_ONLY = 1;
        /// Also before authentication.
        const BEFORE_AUTH = 1 << 1;
        /// `maxTimeMS` is read by the handler and sets no deadline.
        const OWN_MAX_TIME = 1 << 2;
        /// Unknown fields are not refused (the handshake).
        const LENIENT = 1 << 3;
        /// Known only to a server with test commands.
        const TEST_ONLY = 1 << 4;
        /// Belongs to the stable API, version 1.
        const STABLE = 1 << 5;
        /// The first user of a server without users may run it; the handler checks that there are none.
        const FIRST_USER = 1 << 6;
        /// Introduces the client: its name stands in the command.
        const HANDSHAKE = 1 << 7;
        /// No fail point makes it fail.
        const NEVER_FAILS = 1 << 8;
        /// Its field `pipeline` decides what it reads and writes.
        const PIPELINE = 1 << 9;
        /// Its queries have a shape, for which query settings can be made.
        const SHAPED = 1 << 10;
        /// Creates a collection, which an entry of a log can give a UUID.
        const CREATES = 1 << 11;
    }
}

bitflags! {
    /// How a command reads.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Reads: u8 {
        /// The read preference says which members may answer.
        const PREFERENCE = 1;
        /// The default read concern and the default time limit of reads hold for it.
        const DEFAULTS = 1 << 1;
        /// `top` counts it as a read, though it is counted as a command.
        const COUNTED = 1 << 2;
        /// Takes the read concerns `available` and `majority`.
        const COMMITTED = 1 << 3;
        /// Takes the read concern `linearizable`.
        const LINEARIZABLE = 1 << 4;
        /// Takes the read concern `snapshot`.
        const SNAPSHOT = 1 << 5;
    }
}

/// What a command writes, and whether a client can ask for an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// Nothing; it takes no write concern.
    Nothing,
    /// Documents, for some arguments; it takes a write concern.
    Sometimes,
    /// Definitions, settings, or the end of a transaction; it takes a write concern.
    Settings,
    /// Documents; it takes a write concern.
    Documents,
    /// Documents, and a client may send it again under its transaction number.
    Repeatable,
    /// The configuration of the replica set, which is always synced; it takes no write concern.
    Configuration,
}

impl Writes {
    /// Whether it takes a write concern.
    pub fn takes_concern(self) -> bool {
        !matches!(self, Writes::Nothing | Writes::Configuration)
    }

    /// Whether it needs the primary, and waits while `fsync` locks writers out.
    pub fn is_certain(self) -> bool {
        matches!(self, Writes::Settings | Writes::Documents | Writes::Repeatable)
    }

    /// Whether it writes documents, whatever its arguments are.
    pub fn is_documents(self) -> bool {
        matches!(self, Writes::Documents | Writes::Repeatable)
    }
}

/// Whether a command may be sent with the number of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InTransaction {
    /// No.
    Refused,
    /// No; the error ends with this advice.
    RefusedWith(&'static str),
    /// As a statement.
    Statement,
    /// It ends the transaction.
    Ends,
    /// It only informs: it may be sent between the statements and is none of them. Manual: "Transactions", "Informational
    /// Commands".
    Beside,
}

/// How long a command is expected to take, as far as its row can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Short, until its plan says otherwise.
    Short,
    /// Long.
    Long,
    /// Long, unless it is one statement that names its record by `_id`. The statements stand in this field.
    Statements(&'static str),
}

/// Where a command names what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// The command's value is a collection.
    Collection,
    /// The command's value is a collection with its database.
    FullName,
    /// This field is a collection.
    Field(&'static str),
    /// The command's value is a word, for example the name of a user.
    Word,
    /// `nsInfo` lists collections with their databases.
    List,
    /// Entries of a log name collections, at any depth.
    Entries,
}

impl Names {
    /// The value that names a collection, or that is a word.
    pub(crate) fn value_in(self, body: RawDoc<'_>) -> Option<RawValue<'_>> {
        match self {
            Names::Field(name) => body.get(name),
            _ => body.iter().next().map(|element| element.value()),
        }
    }

    /// The names in `nsInfo` of the command's body.
    pub(crate) fn listed_in(self, body: RawDoc<'_>) -> impl Iterator<Item = &str> {
        let infos = body.get("nsInfo").filter(|_| self == Names::List);
        let infos = infos.and_then(RawValue::as_array).into_iter().flatten();
        infos.filter_map(|info| info.value().as_document()?.get("ns")?.as_str())
    }
}

/// What `currentOp`, the profiler, the log, and errors hide of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hides {
    /// Nothing, unless it writes to a collection of users.
    Nothing,
    /// Passwords and messages of logins.
    Secrets,
    /// The keys of users: the collection does not stand in the command's value.
    Users,
}

/// Which event of the audit log a command is by itself.
#[derive(Clone, Copy, Debug)]
pub enum Audited {
    /// None.
    No,
    /// One of its own name, about the user that is its value.
    User,
    /// The same, which says whether there is a new password.
    UserChange,
    /// One of its own name, about the role that is its value.
    Role,
    /// One of its own name, about the command's database.
    Database,
    /// `applicationMessage`.
    Message,
    /// `clientMetadata`, when the client sends it.
    ClientMetadata,
    /// One of its own name, with the command's value under this name.
    Value(&'static str),
    /// `directAuthMutation`, when it is about the documents of users or roles.
    Documents,
}

/// A command as an entry of a log.
#[derive(Clone, Copy, Debug)]
pub struct Replayed {
    /// How the entry differs from the command of a client.
    pub form: LogForm,
    /// The errors after which a replay goes on: what the entry wants is so already.
    pub acceptable: &'static [ErrorCode],
}

/// How an entry of a log differs from the command of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogForm {
    /// Not at all.
    Command,
    /// It has one index, whose fields stand in the entry itself.
    OneIndex,
    /// A time series stands in it as the collection of its buckets.
    Buckets,
    /// What was dropped is named by its UUID.
    DroppedByUuid,
    /// It repeats the definition that was dropped.
    WithDefinition,
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
    /// What it writes.
    pub writes: Writes,
    /// How it reads.
    pub reads: Reads,
    /// Whether it may be sent in a transaction.
    pub in_transaction: InTransaction,
    /// Where it names its collection.
    pub names: Names,
    /// What is hidden of it.
    pub hides: Hides,
    /// How long it takes.
    pub expected: Expected,
    /// Which event of the audit log it is.
    pub audited: Audited,
    /// How an entry of a log is such a command, where it can be.
    pub replayed: Option<Replayed>,
}

impl Row {
    /// A command without further spellings or properties, counted as a command.
    pub const fn new(name: &'static str, help: &'static str) -> Row {
        Row {
            name,
            aliases: &[],
            help,
            since: "<=2.6",
            flags: RowFlags::empty(),
            kind: OpKind::Command,
            needs: Needs::Undeclared,
            writes: Writes::Nothing,
            reads: Reads::COMMITTED,
            in_transaction: InTransaction::Refused,
            names: Names::Collection,
            hides: Hides::Nothing,
            expected: Expected::Short,
            audited: Audited::No,
            replayed: None,
        }
    }

    /// A command that the reference has and this server does not have yet.
    pub(crate) const fn missing(name: &'static str, since: &'static str) -> Row {
        Row {
            since,
            flags: RowFlags::LENIENT,
            needs: Needs::Nothing,
            ..Row::new(name, "not implemented yet")
        }
    }
}
