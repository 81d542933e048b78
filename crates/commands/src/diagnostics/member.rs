//! Information about a member of a replica set, for the handshake, `serverStatus`, and the commands
//! about the set.

use mayfly_service::{Member, ReplicaSet, Service};
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
    /// The store cannot be reached.
    Recovering,
}

impl Role {
    pub(crate) fn of(service: &Service) -> Role {
        match service.is_primary() {
            true => Role::Primary,
            false if service.is_cut_off() => Role::Recovering,
            false => Role::Secondary,
        }
    }

    pub(crate) fn is_primary(self) -> bool {
        self == Role::Primary
    }

    /// The number and the name in `replSetGetStatus`.
    fn state(self) -> (i32, &'static str) {
        match self {
            Role::Primary => (1, "PRIMARY"),
            Role::Secondary => (2, "SECONDARY"),
            Role::Recovering => (3, "RECOVERING"),
        }
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
    let members = set.members(Member { address: me.clone(), is_owner: role.is_primary() });
    doc.append("setName", set.name.as_str());
    append_whole(doc, "setVersion", set.config().version);
    doc.append("secondary", role == Role::Secondary);
    doc.start_array("hosts");
    for member in &members {
        doc.push(member.address.as_str());
    }
    doc.end();
    if let Some(primary) = members.iter().find(|member| member.is_owner) {
        doc.append("primary", primary.address.as_str());
    }
    if role.is_primary() {
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

/// Appends the fields of `replSetGetStatus`.
pub(crate) fn append_set_status(ctx: &CommandContext<'_>, set: &ReplicaSet, doc: &mut DocBuilder) {
    let service = ctx.service;
    let role = Role::of(service);
    let me = set.me(ctx.connection, &service.host);
    let members = set.members(Member { address: me.clone(), is_owner: role.is_primary() });
    let count = i32::try_from(members.len()).unwrap_or(i32::MAX);
    let last = RawValue::Date(last_write_ms(service));
    doc.append("set", set.name.as_str());
    doc.append("date", RawValue::Date(service.clock.now_ms()));
    doc.append("myState", role.state().0).append("term", set.term());
    // All members read the same store, and none copies from another.
    doc.append("syncSourceHost", "").append("syncSourceId", -1);
    doc.append("heartbeatIntervalMillis", 2000_i64).append("majorityVoteCount", 1);
    doc.append("writeMajorityCount", 1).append("votingMembersCount", count);
    doc.append("writableVotingMembersCount", count).start_document("optimes");
    append_op_time(doc, "lastCommittedOpTime", service, set);
    doc.append("lastCommittedWallTime", last);
    for time in ["readConcernMajorityOpTime", "appliedOpTime", "durableOpTime"] {
        append_op_time(doc, time, service, set);
    }
    doc.append("lastAppliedWallTime", last).append("lastDurableWallTime", last).end();
    doc.start_array("members");
    for (id, member) in (0_i32..).zip(&members) {
        let is_self = member.address == me;
        let role = match member.is_owner {
            true => Role::Primary,
            false if is_self => role,
            false => Role::Secondary,
        };
        doc.push_document();
        doc.append("_id", id).append("name", member.address.as_str());
        let (state, name) = role.state();
        doc.append("health", 1.0).append("state", state).append("stateStr", name);
        if is_self {
            doc.append("uptime", i32::try_from(service.uptime_ms() / 1000).unwrap_or(i32::MAX));
        }
        append_op_time(doc, "optime", service, set);
        doc.append("optimeDate", last).append("lastAppliedWallTime", last);
        doc.append("lastDurableWallTime", last).append("syncSourceHost", "");
        doc.append("syncSourceId", -1).append("infoMessage", "");
        if member.is_owner {
            let elected = set.elected_ms();
            let time = u64::try_from(elected / 1000).unwrap_or_default() << 32 | 1;
            doc.append("electionTime", RawValue::Timestamp(time));
            doc.append("electionDate", RawValue::Date(elected));
        }
        append_whole(doc, "configVersion", set.config().version);
        doc.append("configTerm", set.term());
        if is_self {
            doc.append("self", true);
        }
        doc.append("lastHeartbeatMessage", "").end();
    }
    doc.end();
}
