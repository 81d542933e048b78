//! The properties of a command in the table. Every list of commands is derived from rows: rules
//! read the properties and do not name commands.

use bitflags::bitflags;
use mayfly_base::ErrorCode;
use mayfly_value::arguments::Argument;
use mayfly_value::{RawDoc, RawValue};

use super::Needs;

/// The counter of `opcounters`, and the kind of operation in `currentOp`.
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
    /// The value of `op` in `currentOp`.
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
        /// Runs on the database `admin` only.
        const ADMIN_ONLY = 1;
        /// Also runs before authentication.
        const BEFORE_AUTH = 1 << 1;
        /// The handler interprets `maxTimeMS`, which sets no deadline.
        const OWN_MAX_TIME = 1 << 2;
        /// Unknown fields are ignored.
        const LENIENT = 1 << 3;
        /// Exists only on a server with test commands.
        const TEST_ONLY = 1 << 4;
        /// Belongs to the stable API, version 1.
        const STABLE = 1 << 5;
        /// May be run on a server without users, to create the first one; the handler checks this.
        const FIRST_USER = 1 << 6;
        /// The command contains the client's name.
        const HANDSHAKE = 1 << 7;
        /// Fail points ignore it.
        const NEVER_FAILS = 1 << 8;
        /// The stages in its field `pipeline` decide what it reads and writes.
        const PIPELINE = 1 << 9;
        /// Its queries have a shape and can have query settings.
        const SHAPED = 1 << 10;
        /// Creates a collection, for which a log entry can give a UUID.
        const CREATES = 1 << 11;
        /// The profiler does not record it.
        const NOT_PROFILED = 1 << 12;
        /// Deprecated in version 1 of the stable API, to which it belongs.
        const DEPRECATED = 1 << 13;
    }
}

bitflags! {
    /// How a command reads.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Reads: u8 {
        /// Accepts a read preference.
        const PREFERENCE = 1;
        /// The default read concern and the default time limit of reads apply to it.
        const DEFAULTS = 1 << 1;
        /// Counted as a read in `top`, although its counter is that of commands.
        const COUNTED = 1 << 2;
        /// Accepts the read concerns `available` and `majority`.
        const COMMITTED = 1 << 3;
        /// Accepts the read concern `linearizable`.
        const LINEARIZABLE = 1 << 4;
        /// Accepts the read concern `snapshot`.
        const SNAPSHOT = 1 << 5;
    }
}

/// The kind of writes of a command, and whether it accepts a write concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// Nothing; it accepts no write concern.
    Nothing,
    /// Documents, depending on its arguments; it accepts a write concern.
    Sometimes,
    /// Definitions, settings, or the end of a transaction; it accepts a write concern.
    Settings,
    /// Documents; it accepts a write concern.
    Documents,
    /// Documents, and it is retryable.
    Repeatable,
    /// The configuration of the replica set, which is always synced; it accepts no write concern.
    Configuration,
}

impl Writes {
    /// Whether it accepts a write concern.
    pub fn takes_concern(self) -> bool {
        !matches!(self, Writes::Nothing | Writes::Configuration)
    }

    /// Whether it needs the primary, and waits while `fsync` blocks writes.
    pub fn is_certain(self) -> bool {
        matches!(self, Writes::Settings | Writes::Documents | Writes::Repeatable)
    }

    /// Whether it writes documents with all arguments.
    pub fn is_documents(self) -> bool {
        matches!(self, Writes::Documents | Writes::Repeatable)
    }
}

/// How a command in a transaction is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InTransaction {
    /// It is refused.
    Refused,
    /// It is refused, with this advice in the error.
    RefusedWith(&'static str),
    /// It is a statement.
    Statement,
    /// It is a statement that defines something: the transaction must read locally.
    Definition,
    /// It is a statement, but not the first one.
    LaterStatement,
    /// It ends the transaction.
    Ends,
    /// It is informational: it may be sent between statements and does not belong to the
    /// transaction. Manual: "Transactions", "Informational Commands".
    Informational,
}

/// The expected duration of a command, as far as its row determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Short, unless its plan shows otherwise.
    Short,
    /// Long for all arguments.
    Long,
    /// Long, unless its value is the id of a cursor that has read everything and waits for more.
    Batch,
    /// Long, except for a single statement that selects its record by `_id`. The name is that of
    /// the field with the statements.
    Statements(&'static str),
}

/// Where a command names its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Its value is the name of a collection.
    Collection,
    /// Its value is the name of a collection, including the database.
    FullName,
    /// This field is the name of a collection.
    Field(&'static str),
    /// Its value is another name, for example that of a user.
    Word,
    /// `nsInfo` lists collections, including their databases.
    List,
    /// Log entries name collections, at any depth.
    Entries,
}

impl Names {
    /// The value with the name of a collection, or with another name.
    pub(crate) fn value_in(self, body: RawDoc<'_>) -> Option<RawValue<'_>> {
        match self {
            Names::Field(name) => body.get(name),
            _ => body.iter().next().map(|element| element.value()),
        }
    }

    /// The names of collections in `nsInfo`.
    pub(crate) fn listed_in(self, body: RawDoc<'_>) -> impl Iterator<Item = &str> {
        let infos = body.get("nsInfo").filter(|_| self == Names::List);
        let infos = infos.and_then(RawValue::as_array).into_iter().flatten();
        infos.filter_map(|info| info.value().as_document()?.get("ns")?.as_str())
    }
}

/// The parts of a command that `currentOp`, the profiler, the log, and errors hide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hides {
    /// None, unless it writes to a collection of users.
    Nothing,
    /// Passwords and messages of logins.
    Secrets,
    /// The credentials of users; the command's value does not name the collection.
    Users,
}

/// Where a command with encrypted fields has filters, which may contain encrypted values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encrypted {
    /// Nowhere.
    Nothing,
    /// This field is the filter.
    Filter(&'static str),
    /// This field is the pipeline.
    Pipeline(&'static str),
    /// Each document in the field `list` has a filter of this name. The definition of the fields
    /// is in the command, or in its `nsInfo`.
    Statements {
        /// The name of the field with the statements.
        list: &'static str,
        /// The name of the filter in a statement.
        filter: &'static str,
        /// Whether `nsInfo` has the definition.
        in_namespaces: bool,
    },
}

/// The event in the audit log that a command creates.
#[derive(Clone, Copy, Debug)]
pub enum Audited {
    /// No event.
    No,
    /// An event with the command's name, about the user in its value.
    User,
    /// The same with a field for a new password.
    UserChange,
    /// An event with the command's name, about the role in its value.
    Role,
    /// An event with the command's name, about its database.
    Database,
    /// `applicationMessage`.
    Message,
    /// `clientMetadata`, if the client sends it.
    ClientMetadata,
    /// An event with the command's name, and its value in this field.
    Value(&'static str),
    /// `directAuthMutation`, if it writes documents of users or roles.
    Documents,
}

/// A command that log entries contain.
#[derive(Clone, Copy, Debug)]
pub struct Replayed {
    /// The form of the log entry.
    pub form: LogForm,
    /// Errors that a replay ignores, because the effect of the entry already exists.
    pub acceptable: &'static [ErrorCode],
}

/// The form of a command in a log entry, compared with that of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogForm {
    /// The same form.
    Command,
    /// One index, whose definition is in the entry itself.
    OneIndex,
    /// A time series is named by the collection of its buckets.
    Buckets,
    /// The dropped target is named by its UUID.
    DroppedByUuid,
    /// The entry repeats the dropped definition.
    WithDefinition,
}

/// The row of a command.
#[derive(Clone, Copy)]
pub struct Row {
    /// The name in requests, as the reference spells it.
    pub name: &'static str,
    /// Further names that the reference accepts for the command.
    pub aliases: &'static [&'static str],
    /// A line of help for `listCommands`.
    pub help: &'static str,
    /// The version of the reference that introduced it.
    pub since: &'static str,
    /// Its arguments, without the generic ones.
    pub arguments: &'static [Argument],
    /// Yes-or-no properties, such as whether a login is needed.
    pub flags: RowFlags,
    /// The counter in `opcounters` that a request increments.
    pub kind: OpKind,
    /// The rights that it needs.
    pub needs: Needs,
    /// The kind of its writes.
    pub writes: Writes,
    /// How it reads.
    pub reads: Reads,
    /// How it is treated in a transaction.
    pub in_transaction: InTransaction,
    /// Where it names its collection.
    pub names: Names,
    /// The parts that are hidden in logs and in `currentOp`.
    pub hides: Hides,
    /// Its expected duration.
    pub expected: Expected,
    /// Its event in the audit log.
    pub audited: Audited,
    /// Where its filters are, if they may contain encrypted values.
    pub encrypted: Encrypted,
    /// Its form in log entries, if they can contain it.
    pub replayed: Option<Replayed>,
}

impl Row {
    /// A command without aliases and further properties, counted as [`OpKind::Command`].
    pub const fn new(name: &'static str, help: &'static str) -> Row {
        Row {
            name,
            aliases: &[],
            help,
            since: "<=2.6",
            arguments: &[],
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
            encrypted: Encrypted::Nothing,
            replayed: None,
        }
    }

    /// A command of the reference that is not implemented.
    pub(crate) const fn missing(name: &'static str, since: &'static str) -> Row {
        Row {
            since,
            flags: RowFlags::LENIENT,
            needs: Needs::Nothing,
            ..Row::new(name, "not implemented yet")
        }
    }
}
