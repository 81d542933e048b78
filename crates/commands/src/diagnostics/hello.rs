//! The handshake: `hello` and its legacy name `isMaster`.
//!
//! 1. The first one has `client`, which is stored for `currentOp`, and `compression`.
//! 2. Monitoring connections send `topologyVersion` and `maxAwaitTimeMS`: if nothing has changed
//!    since that version, the handler asks to be run again after a change or the timeout.
//! 3. With the exhaust flag the connection's loop then runs it repeatedly; each reply is flagged to
//!    announce the next one.
//!
//! Unknown fields are ignored, because newer drivers add fields.

use std::time::Duration;

use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_service::ClientInfo;
use mayfly_value::arguments::Argument;
use mayfly_value::arguments::convert::whole_number;
use mayfly_value::arguments::error::wrong_type;
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use super::member::{Role, append_member};
use crate::access::authenticate;
use crate::context::{Command, CommandContext, Wait};
use crate::request::row::{Audited, Hides, InTransaction, RowFlags};
use crate::request::{Fields, Needs, Request};

/// The largest client metadata document, in bytes.
const MAX_CLIENT_BYTES: usize = 512;

// A handshake can contain a login, which has secrets.
pub(crate) const HELLO: Command =
    Command::new("hello", "Returns the server's role and capabilities", run_hello)
        .arguments(ARGUMENTS)
        .needs(Needs::Nothing)
        .audited(Audited::ClientMetadata)
        .since("4.4.2")
        .flags(
            RowFlags::BEFORE_AUTH
                .union(RowFlags::LENIENT)
                .union(RowFlags::STABLE)
                .union(RowFlags::HANDSHAKE),
        )
        .in_transaction(InTransaction::Informational)
        .hides(Hides::Secrets);
pub(crate) const IS_MASTER: Command =
    Command::new("isMaster", "The old name of hello", run_is_master)
        .arguments(ARGUMENTS)
        .needs(Needs::Nothing)
        .audited(Audited::ClientMetadata)
        .aliases(&["ismaster"])
        .flags(RowFlags::BEFORE_AUTH.union(RowFlags::LENIENT).union(RowFlags::HANDSHAKE))
        .in_transaction(InTransaction::Informational)
        .hides(Hides::Secrets);

/// The fields that are read; drivers send others, too.
const ARGUMENTS: &[Argument] = &[
    Argument::document("topologyVersion").since("4.4"),
    Argument::whole("maxAwaitTimeMS").since("4.4"),
    Argument::any("saslSupportedMechs").since("4.0"),
    Argument::any("speculativeAuthenticate").since("4.4"),
    Argument::any("client").since("3.4"),
    Argument::any("compression").since("3.4"),
    Argument::any("helloOk"),
    Argument::bool("loadBalanced").since("5.0"),
];
/// The fields of `topologyVersion`.
const TOPOLOGY_VERSION: &[Argument] =
    &[Argument::any("processId").required(), Argument::any("counter").required()];

/// Versions of the wire protocol.
const MIN_WIRE_VERSION: i32 = 0;
const MAX_WIRE_VERSION: i32 = 27;
/// The supported compressors.
const COMPRESSORS: [&str; 3] = ["snappy", "zstd", "zlib"];
/// The longest application name, in bytes.
const MAX_APP_NAME_BYTES: usize = 128;

fn run_hello(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    answer(ctx, request, "isWritablePrimary", doc)
}

fn run_is_master(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    answer(ctx, request, "ismaster", doc)
}

/// Answers a handshake; `primary` is the name of the field that states whether this node is the
/// primary.
fn answer(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    primary: &str,
    doc: &mut DocBuilder,
) -> Result<()> {
    let fields = request.arguments()?;
    // A repeated run of a streamed request has the same handshake.
    let repeated = ctx.exhaust.waited || ctx.exhaust.last_counter.is_some();
    let awaited = awaited_counter(ctx, &fields)?;
    if awaited.is_some() && ctx.service.shutdown.has_begun() {
        ctx.effects.close_connection();
        let text = "The server is in quiesce mode and will shut down";
        return Err(Error::new(ErrorCode::ShutdownInProgress, text));
    }
    // Called first, because it may change the topology counter.
    ctx.service.is_primary();
    let counter = ctx.service.topology.counter();
    if let Some(AwaitedEvent { counter: seen, max_ms }) = awaited {
        if seen == Some(counter) && !ctx.exhaust.waited {
            // The only member of a set is elected by a timeout, so the wait ends then at the
            // latest.
            let election = ctx.service.store.ms_until_primary();
            let longest = Duration::from_millis(election.map_or(max_ms, |ms| ms.min(max_ms)));
            ctx.effects.wait_for(Wait::Topology { seen: counter, longest });
            return Ok(());
        }
        if ctx.exhaust.allowed {
            ctx.effects.stream();
        }
        ctx.effects.show_counter(counter);
    }
    if let (Some(client), false) = (fields.get("client"), repeated) {
        take_client(ctx, client)?;
    }
    let is_load_balanced = fields.bool("loadBalanced")?.unwrap_or(false);
    write_reply(ctx, primary, &fields, counter, doc);
    // A driver then keeps cursors and transactions on the connection that began them. It reports
    // that a member of a set does not support this.
    if is_load_balanced && ctx.service.replica_set.get().is_none() {
        doc.append("serviceId", RawValue::ObjectId(ctx.service.topology.process_id()));
    }
    let descriptor = ctx.service.settings.automation_descriptor();
    if !descriptor.is_empty() {
        doc.append("automationServiceDescriptor", descriptor.as_str());
    }
    match repeated {
        true => Ok(()),
        false => authenticate::append_handshake(ctx, &fields, doc),
    }
}

struct AwaitedEvent {
    /// The counter that the client knows; `None` if it belongs to another process.
    counter: Option<i64>,
    max_ms: u64,
}

fn awaited_counter(ctx: &CommandContext<'_>, fields: &Fields<'_>) -> Result<Option<AwaitedEvent>> {
    let located = |code: i32, text: String| Err(Error::new(ErrorCode(code), text));
    let max_ms = match (fields.document("topologyVersion")?, fields.long("maxAwaitTimeMS")?) {
        (None, None) => return Ok(None),
        (Some(_), Some(max_ms)) => max_ms,
        (Some(_), None) => {
            let text = "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'";
            return located(31368, text.to_owned());
        }
        (None, Some(_)) => {
            let text = "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'";
            return located(31368, text.to_owned());
        }
    };
    let Ok(max_ms) = u64::try_from(max_ms) else {
        return located(31373, "'maxAwaitTimeMS' must be a non-negative integer".to_owned());
    };
    let version = fields.document("topologyVersion")?.unwrap_or(RawDoc::EMPTY);
    let version = Fields::read_lenient(version, "TopologyVersion", TOPOLOGY_VERSION)?;
    let process_id = version.required("processId")?;
    let counter = version.required("counter")?;
    let RawValue::ObjectId(process_id) = process_id else {
        return Err(version.wrong("processId", process_id, "objectId"));
    };
    let RawValue::Int64(mut counter) = counter else {
        return Err(version.wrong("counter", counter, "long"));
    };
    if let Some(last) = ctx.exhaust.last_counter {
        counter = last;
    } else if process_id != ctx.service.topology.process_id() {
        return Ok(Some(AwaitedEvent { counter: None, max_ms }));
    }
    let ours = ctx.service.topology.counter();
    if counter > ours {
        return located(
            31382,
            format!(
                "Received a topology version with counter: {counter} which is greater than the \
                 server topology version counter: {ours}"
            ),
        );
    }
    Ok(Some(AwaitedEvent { counter: Some(counter), max_ms }))
}

fn take_client(ctx: &CommandContext<'_>, client: RawValue<'_>) -> Result<()> {
    let RawValue::Document(client) = client else {
        return Err(wrong_type("client", client, "object"));
    };
    let most = MAX_CLIENT_BYTES;
    if client.as_bytes().len() > most {
        let text =
            format!("The client metadata document must be less then or equal to {most} bytes");
        return Err(Error::new(ErrorCode::ClientMetadataDocumentTooLarge, text));
    }
    let missing = |name: &str| {
        let text = format!("Missing required field '{name}' in the client metadata document");
        Error::new(ErrorCode::ClientMetadataMissingField, text)
    };
    let part = |name: &str| client.get(name).and_then(RawValue::as_document);
    let driver = part("driver").ok_or_else(|| missing("driver"))?;
    for name in ["name", "version"] {
        if driver.get(name).and_then(RawValue::as_str).is_none() {
            return Err(missing(&format!("driver.{name}")));
        }
    }
    let os = part("os").ok_or_else(|| missing("os"))?;
    if os.get("type").and_then(RawValue::as_str).is_none() {
        return Err(missing("os.type"));
    }
    let app_name = part("application")
        .and_then(|application| application.get("name"))
        .and_then(RawValue::as_str)
        .unwrap_or_default();
    if app_name.len() > MAX_APP_NAME_BYTES {
        let text =
            format!("The 'application.name' field must be at most {MAX_APP_NAME_BYTES} bytes");
        return Err(Error::new(ErrorCode::ClientMetadataAppNameTooLarge, text));
    }
    let info = ClientInfo { app_name: app_name.to_owned(), metadata: Some(client.to_owned()) };
    if !ctx.connection.set_info(info) {
        let text = "The client metadata document may only be sent in the first hello";
        return Err(Error::new(ErrorCode::ClientMetadataCannotBeMutated, text));
    }
    Ok(())
}

fn write_reply(
    ctx: &CommandContext<'_>,
    name: &str,
    fields: &Fields<'_>,
    counter: i64,
    doc: &mut DocBuilder,
) {
    if fields.get("helloOk").is_some_and(truthy) {
        doc.append("helloOk", true);
    }
    let role = Role::of(ctx.service);
    doc.append(name, role.is_primary());
    match ctx.service.replica_set.get() {
        Some(set) => append_member(ctx, set, role, doc),
        // A router: drivers send retryable writes to it and do not discover other addresses.
        None => {
            doc.append("msg", "isdbgrid");
        }
    }
    doc.start_document("topologyVersion");
    doc.append("processId", RawValue::ObjectId(ctx.service.topology.process_id()));
    doc.append("counter", counter);
    doc.end();
    doc.append("maxBsonObjectSize", limits::MAX_USER_DOCUMENT_BYTES as i32);
    doc.append("maxMessageSizeBytes", limits::MAX_MESSAGE_BYTES as i32);
    doc.append("maxWriteBatchSize", limits::MAX_WRITE_BATCH_ITEMS as i32);
    doc.append("localTime", RawValue::Date(ctx.service.clock.now_ms()));
    doc.append("logicalSessionTimeoutMinutes", limits::SESSION_TIMEOUT_MINUTES);
    doc.append("connectionId", i32::try_from(ctx.connection.id).unwrap_or(i32::MAX));
    doc.append("minWireVersion", MIN_WIRE_VERSION);
    doc.append("maxWireVersion", MAX_WIRE_VERSION);
    doc.append("readOnly", false);
    append_compression(fields, doc);
}

/// Appends the compressors that both support, in the client's order.
fn append_compression(fields: &Fields<'_>, doc: &mut DocBuilder) {
    let Some(RawValue::Array(offered)) = fields.get("compression") else { return };
    let names = || offered.iter().filter_map(|e| e.value().as_str());
    if names().any(|name| COMPRESSORS.contains(&name)) {
        doc.start_array("compression");
        for name in names().filter(|name| COMPRESSORS.contains(name)) {
            doc.push(name);
        }
        doc.end();
    }
}

fn truthy(value: RawValue<'_>) -> bool {
    match value {
        RawValue::Bool(flag) => flag,
        other => whole_number(other).is_some_and(|number| number != 0),
    }
}
