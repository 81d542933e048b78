//! Information about a member of a replica set, for the handshake, `serverStatus`, and the commands
//! about the set.

use mayfly_service::{ReplicaSet, Service};
use mayfly_value::{DocBuilder, RawValue};

use crate::context::CommandContext;

/// Appends the optime of the newest operation: `{ts, t}`.
pub(crate) fn append_op_time(
    doc: &mut DocBuilder,
    name: &str,
    service: &Service,
    set: &ReplicaSet,
) {
    doc.start_document(name);
    doc.append("ts", RawValue::Timestamp(service.store.last_timestamp()));
    doc.append("t", set.term()).end();
}

/// The time of the newest operation, in milliseconds since 1970.
pub(crate) fn last_write_ms(service: &Service) -> i64 {
    ((service.store.last_timestamp() >> 32) as i64).saturating_mul(1000)
}

/// The state of this node at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Primary,
    Secondary,
}

impl Role {
    pub(crate) fn of(service: &Service) -> Role {
        if service.is_primary() { Role::Primary } else { Role::Secondary }
    }

    pub(crate) fn is_primary(self) -> bool {
        self == Role::Primary
    }
}

/// Appends the fields of a member in `hello` and `serverStatus`.
pub(crate) fn append_member(
    ctx: &CommandContext<'_>,
    set: &ReplicaSet,
    role: Role,
    doc: &mut DocBuilder,
) {
    let me = set.me(ctx.connection, &ctx.service.host);
    doc.append("setName", set.name.as_str());
    append_whole(doc, "setVersion", set.config().version);
    doc.append("secondary", !role.is_primary());
    doc.start_array("hosts").push(me.as_str());
    doc.end();
    if role.is_primary() {
        doc.append("primary", me.as_str());
        doc.append("electionId", RawValue::ObjectId(set.election_id()));
    }
    doc.append("me", me.as_str()).start_document("lastWrite");
    append_op_time(doc, "opTime", ctx.service, set);
    let last_ms = last_write_ms(ctx.service);
    doc.append("lastWriteDate", RawValue::Date(last_ms));
    append_op_time(doc, "majorityOpTime", ctx.service, set);
    doc.append("majorityWriteDate", RawValue::Date(last_ms)).end();
}

/// Appends a number as an int32 if it fits, as the reference does with versions.
pub(crate) fn append_whole(doc: &mut DocBuilder, name: &str, number: i64) {
    match i32::try_from(number) {
        Ok(number) => doc.append(name, number),
        Err(_) => doc.append(name, number),
    };
}
