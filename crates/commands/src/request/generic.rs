//! Generic arguments, which every command accepts besides its own fields. They are parsed in one
//! pass.

use mayfly_auth::{Action, Target};
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::{Authority, SessionId, SessionOwner};
use mayfly_value::arguments::Argument;
use mayfly_value::arguments::error::{not_a_uuid, wrong_type};
use mayfly_value::{Number, RawDoc, RawValue};
use mayfly_work::OpCtx;

use super::{Fields, Row, RowFlags};

mod concern;
mod read_concern;
mod read_preference;

pub use concern::{Durability, WriteConcern};
pub(crate) use concern::{Unmet, meets};
pub use read_concern::{ReadConcern, ReadLevel};

/// The names of generic arguments, including `$`-prefixed and internal ones.
const NAMES: &[&str] = &[
    "$db",
    "lsid",
    "txnNumber",
    "autocommit",
    "startTransaction",
    "maxTimeMS",
    "maxTimeMSOpOnly",
    "readConcern",
    "writeConcern",
    "comment",
    "$readPreference",
    "$queryOptions",
    "$clusterTime",
    "$audit",
    "$client",
    "$configServerState",
    "$configTime",
    "$topologyTime",
    "$tenant",
    "$traceCtx",
    "$impersonatedUser",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
    "coordinator",
    "databaseVersion",
    "shardVersion",
    "mayBypassWriteBlocking",
    "rawData",
    "serialization_context",
    "expectPrefix",
];

/// The parsed generic arguments.
#[derive(Clone, Debug, Default)]
pub struct Generic<'a> {
    /// The logical session.
    pub lsid: Option<SessionId>,
    /// The `lsid` document as it was sent.
    pub lsid_doc: Option<RawDoc<'a>>,
    /// The transaction number of a retryable write or a transaction.
    pub txn_number: Option<i64>,
    /// The role of the command in its transaction, if it belongs to one.
    pub transaction: Option<TransactionPart>,
    /// The time limit in milliseconds; 0 for none.
    pub max_time_ms: i64,
    /// The read concern.
    pub read_concern: ReadConcern,
    /// The write concern.
    pub write_concern: WriteConcern,
    /// Whether the read preference lets a secondary answer.
    pub reads_anywhere: bool,
    /// A comment for logs and profiles.
    pub comment: Option<RawValue<'a>>,
    /// The client's cluster time; 0 for none.
    pub cluster_time: u64,
    /// Whether only commands of the stable API are accepted.
    pub api_strict: bool,
    /// `rawData`: a time series stands for its buckets.
    pub raw_data: bool,
    /// Whether the command has `encryptionInformation`, which only some commands accept.
    pub is_encrypted: bool,
}

/// The role of a command in its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionPart {
    /// It begins the transaction.
    Begins,
    /// It is a later statement, a commit or an abort.
    Continues,
}

/// Whether this is a generic argument.
pub(crate) fn is_generic(name: &[u8]) -> bool {
    NAMES.iter().any(|known| known.as_bytes() == name)
}

/// Parses the generic arguments.
///
/// # Errors
/// The reference's errors for each argument.
#[inline(always)]
pub(crate) fn parse<'a>(body: RawDoc<'a>, row: &Row) -> Result<Generic<'a>> {
    let mut generic = Generic::default();
    let (mut autocommit, mut starts) = (None, None);
    let mut api = Api::default();
    for element in body.iter().skip(1) {
        let value = || element.value();
        // Compared as bytes: most elements are the command's own, whose names are not decoded here.
        match element.name_bytes() {
            b"lsid" => {
                let doc = session_document(value())?;
                generic.lsid = doc.map(session_id).transpose()?;
                generic.lsid_doc = doc;
            }
            b"txnNumber" => generic.txn_number = txn_number(value())?,
            b"autocommit" => autocommit = present(value()),
            b"startTransaction" => starts = present(value()),
            b"maxTimeMS" => generic.max_time_ms = max_time_ms(value())?,
            b"readConcern" => generic.read_concern = ReadConcern::parse(value())?,
            b"writeConcern" => generic.write_concern = WriteConcern::parse(value())?,
            b"$readPreference" => generic.reads_anywhere = read_preference::parse(value())?,
            b"rawData" => generic.raw_data = flag("rawData", value())?.unwrap_or(false),
            b"encryptionInformation" => generic.is_encrypted = value() != RawValue::Null,
            b"comment" => generic.comment = Some(value()),
            b"$clusterTime" => generic.cluster_time = gossiped(value())?,
            b"apiVersion" => api.version = present(value()),
            b"apiStrict" => api.strict = flag("apiStrict", value())?,
            b"apiDeprecationErrors" => api.deprecation = flag("apiDeprecationErrors", value())?,
            _ => {}
        }
    }
    if generic.txn_number.is_some() && generic.lsid.is_none() {
        let text = "Transaction number requires a session ID to be specified";
        return Err(Error::new(ErrorCode::InvalidOptions, text));
    }
    if autocommit.is_some() || starts.is_some() {
        generic.transaction = Some(transaction_part(&generic, autocommit, starts)?);
    }
    api.check(row)?;
    generic.api_strict = api.strict == Some(true);
    Ok(generic)
}

#[derive(Default)]
struct Api<'a> {
    version: Option<RawValue<'a>>,
    /// `apiStrict`, if it is given.
    strict: Option<bool>,
    /// `apiDeprecationErrors`, if it is given.
    deprecation: Option<bool>,
}

impl Api<'_> {
    #[inline(always)]
    fn check(&self, row: &Row) -> Result<()> {
        match self.version {
            Some(RawValue::String("1")) => {}
            Some(RawValue::String(_)) => {
                return Err(Error::new(ErrorCode::APIVersionError, "API version must be \"1\""));
            }
            Some(other) => return Err(wrong_type("apiVersion", other, "string")),
            None if self.strict.is_some() || self.deprecation.is_some() => {
                let text =
                    "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion";
                return Err(Error::new(ErrorCode(4_886_600), text));
            }
            None => {}
        }
        if self.strict == Some(true) && !row.flags.contains(RowFlags::STABLE) {
            let command = row.name;
            let text = format!(
                "Provided apiStrict:true, but the command {command} is not in API Version 1"
            );
            return Err(Error::new(ErrorCode::APIStrictError, text));
        }
        if self.deprecation == Some(true) && row.flags.contains(RowFlags::DEPRECATED) {
            let text = format!(
                "Provided apiDeprecationErrors:true, but the command {} is deprecated in API Version 1",
                row.name
            );
            return Err(Error::new(ErrorCode::APIDeprecationError, text));
        }
        Ok(())
    }
}

/// Checks `autocommit` and `startTransaction`, which depend on each other.
#[cold]
fn transaction_part(
    generic: &Generic<'_>,
    autocommit: Option<RawValue<'_>>,
    starts: Option<RawValue<'_>>,
) -> Result<TransactionPart> {
    let refused = |text: &str| Err(Error::new(ErrorCode::InvalidOptions, text));
    let flag = |name: &str, value: Option<RawValue<'_>>| match value {
        None => Ok(None),
        Some(RawValue::Bool(flag)) => Ok(Some(flag)),
        Some(other) => {
            let path = format!("OperationSessionInfo.{name}");
            Err(wrong_type(&path, other, "bool"))
        }
    };
    let (autocommit, starts) = (flag("autocommit", autocommit)?, flag("startTransaction", starts)?);
    if autocommit.is_some() && generic.txn_number.is_none() {
        return refused("'autocommit' field requires a transaction number to also be specified");
    }
    match (autocommit, starts) {
        (Some(true), _) => refused("Specifying autocommit=true is not allowed."),
        (None, _) if generic.txn_number.is_none() => {
            refused("'startTransaction' field requires a transaction number to also be specified")
        }
        (None, _) => {
            refused("'startTransaction' field requires 'autocommit' field to also be specified")
        }
        (_, Some(false)) => refused("Specifying startTransaction=false is not allowed."),
        (_, Some(true)) => Ok(TransactionPart::Begins),
        (_, None) => Ok(TransactionPart::Continues),
    }
}

/// The value, unless it is null or undefined.
fn present(value: RawValue<'_>) -> Option<RawValue<'_>> {
    Some(value).filter(|value| !matches!(value, RawValue::Null | RawValue::Undefined))
}

/// A flag that is not a number; null counts as absent.
#[cold]
fn flag(name: &str, value: RawValue<'_>) -> Result<Option<bool>> {
    match value {
        RawValue::Bool(flag) => Ok(Some(flag)),
        RawValue::Null | RawValue::Undefined => Ok(None),
        other => Err(wrong_type(name, other, "bool")),
    }
}

/// `txnNumber`; null counts as absent.
fn txn_number(value: RawValue<'_>) -> Result<Option<i64>> {
    match value {
        RawValue::Int64(number) if number >= 0 => Ok(Some(number)),
        RawValue::Null | RawValue::Undefined => Ok(None),
        RawValue::Int64(_) => {
            let text = "Transaction number cannot be negative";
            Err(Error::new(ErrorCode::InvalidOptions, text))
        }
        other => Err(wrong_type("OperationSessionInfo.txnNumber", other, "long")),
    }
}

fn max_time_ms(value: RawValue<'_>) -> Result<i64> {
    let number = match value {
        RawValue::Int32(number) => i64::from(number),
        RawValue::Int64(number) => number,
        other => return max_time_ms_of(other),
    };
    if !(0..=i64::from(i32::MAX)).contains(&number) {
        let text = format!("{number} value for maxTimeMS is out of range [0, {}]", i32::MAX);
        return Err(Error::bad_value(text));
    }
    Ok(number)
}

/// `maxTimeMS` of another type than an integer: null counts as absent, and other numbers must be
/// equal to a long.
#[cold]
fn max_time_ms_of(value: RawValue<'_>) -> Result<i64> {
    match (value, Number::from_value(value)) {
        (RawValue::Null | RawValue::Undefined, _) => Ok(0),
        (_, None) => Err(wrong_type("maxTimeMS", value, "[long, int, decimal, double]")),
        (_, Some(number)) => match number.to_i64_exact() {
            Some(whole) => max_time_ms(RawValue::Int64(whole)),
            None => Err(Error::failed_to_parse("maxTimeMS has non-integral value")),
        },
    }
}

/// The client's cluster time; 0 without one.
///
/// # Errors
/// 14 TypeMismatch.
fn gossiped(value: RawValue<'_>) -> Result<u64> {
    let wrong =
        |path: &str, value: RawValue<'_>, expected: &str| Err(wrong_type(path, value, expected));
    let gossip = match value {
        RawValue::Document(gossip) => gossip,
        RawValue::Null | RawValue::Undefined => return Ok(0),
        other => return wrong("$clusterTime", other, "object"),
    };
    match gossip.get("clusterTime") {
        None => Ok(0),
        Some(RawValue::Timestamp(time)) => Ok(time),
        Some(other) => wrong("$clusterTime.clusterTime", other, "timestamp"),
    }
}

fn session_document(value: RawValue<'_>) -> Result<Option<RawDoc<'_>>> {
    match value {
        RawValue::Document(doc) => Ok(Some(doc)),
        RawValue::Null | RawValue::Undefined => Ok(None),
        other => Err(wrong_type("OperationSessionInfo.lsid", other, "object")),
    }
}

/// The session of an operation.
pub(crate) fn session_of(op: &OpCtx) -> Option<SessionId> {
    let mut session = None;
    op.update_info(|info| {
        session = RawDoc::new(&info.lsid).and_then(|lsid| session_id(lsid).ok());
    });
    session
}

/// The fields of a session's id.
pub(crate) const OF_SESSION: &[Argument] = &[
    Argument::any("id").required(),
    Argument::any("uid"),
    Argument::any("txnNumber"),
    Argument::any("txnUUID"),
];

/// Reads a session from `{id: UUID, uid?: digest}`; without a digest it has no owner.
///
/// # Errors
/// 40414 without an id, 207 InvalidUUID, 12 UnsupportedFormat for an invalid digest, 14 for another
/// type.
pub(crate) fn session_id(doc: RawDoc<'_>) -> Result<SessionId> {
    // The form that drivers send with every command.
    let mut parts = doc.iter();
    if let (Some(only), None) = (parts.next(), parts.next())
        && only.name() == "id"
        && let RawValue::Binary { subtype: 4, bytes } = only.value()
        && let Ok(id) = <[u8; 16]>::try_from(bytes)
    {
        return Ok(SessionId { id, owner: SessionOwner::NONE });
    }
    let fields = Fields::read(doc, "LogicalSessionFromClient", OF_SESSION)?;
    let id = match fields.required("id")? {
        RawValue::Binary { subtype: 4, bytes } => {
            <[u8; 16]>::try_from(bytes).map_err(|_| not_a_uuid())?
        }
        other => return Err(fields.wrong("id", other, "binData")),
    };
    Ok(SessionId { id, owner: session_owner(&fields)?.unwrap_or(SessionOwner::NONE) })
}

/// `uid`: the owner of a session.
///
/// # Errors
/// 12 UnsupportedFormat for an invalid digest, 14 for another type.
pub(crate) fn session_owner(fields: &Fields<'_>) -> Result<Option<SessionOwner>> {
    match fields.get("uid") {
        None => Ok(None),
        Some(RawValue::Binary { bytes, .. }) => match <[u8; 32]>::try_from(bytes) {
            Ok(digest) => Ok(Some(SessionOwner(digest))),
            Err(_) => Err(Error::new(
                ErrorCode::UnsupportedFormat,
                format!("a uid is a digest of 32 bytes, not of {}", bytes.len()),
            )),
        },
        Some(other) => Err(fields.wrong("uid", other, "binData")),
    }
}

/// The session in a client's document: one of its own, or of another user if the client may do the
/// action on the cluster.
///
/// # Errors
/// 13 Unauthorized.
pub(crate) fn claimed(
    session: SessionId,
    authority: &Authority,
    others: Action,
) -> Result<SessionId> {
    let own = SessionOwner::of(authority);
    if session.owner == SessionOwner::NONE {
        return Ok(SessionId { owner: own, ..session });
    }
    match session.owner == own || authority.allows(Target::Cluster, others) {
        true => Ok(session),
        false => {
            let text = "Unauthorized to set user digest in LogicalSessionId";
            Err(Error::new(ErrorCode::Unauthorized, text))
        }
    }
}

impl Generic<'_> {
    /// Binds the session to the client's user. Before a login the session is dropped, so that
    /// unauthenticated clients cannot fill the server with sessions.
    ///
    /// # Errors
    /// 13 Unauthorized for a session of another user.
    #[inline]
    pub(crate) fn claim_session(&mut self, authority: &Authority) -> Result<()> {
        let Some(session) = self.lsid else { return Ok(()) };
        if matches!(authority, Authority::NotAuthenticated | Authority::FirstUser) {
            (self.lsid, self.lsid_doc) = (None, None);
            return Ok(());
        }
        self.lsid = Some(claimed(session, authority, Action::Impersonate)?);
        Ok(())
    }
}
