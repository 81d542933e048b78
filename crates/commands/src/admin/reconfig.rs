//! `replSetReconfig`: version and settings of the set, address, priority and tags of its members.
//!
//! The new configuration is stored in `local.system.replset` before the command replies. Members
//! cannot be added or removed (238), because the servers over the store are the members, and the
//! kind of a member cannot change: not an arbiter, not hidden, with a vote. All members have the
//! same priority and tags, and several ones keep their addresses. If the new address differs from
//! the one that this client uses, it is returned to all clients from then on; with `--advertise` it
//! cannot be changed.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::replica_set::NUMBERS;
use mayfly_service::{ReplicaSet, SetConfig};
use mayfly_value::arguments::Argument;
use mayfly_value::arguments::error::{mistyped, wrong_type};
use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawValue};

use super::replication::set;
use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, RowFlags, Writes};
use crate::request::{Fields, Needs, Request};
use mayfly_value::arguments::convert::whole_number;

pub(super) const ROW: Command =
    Command::new("replSetReconfig", "Changes the replica set's configuration", run)
        .needs(Needs::Cluster(&[Action::ReplSetConfigure]))
        .flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT))
        .writes(Writes::Configuration)
        .expected(Expected::Long);

/// The configuration of a set.
const OF_SET: &[Argument] = &[
    Argument::any("_id").required(),
    Argument::any("version").required(),
    Argument::any("members").required(),
    Argument::whole("term"),
    Argument::document("settings"),
    Argument::whole("protocolVersion"),
    Argument::flag("writeConcernMajorityJournalDefault"),
    Argument::flag("configsvr"),
];
/// The configuration of a member.
const OF_MEMBER: &[Argument] = &[
    Argument::any("_id").required(),
    Argument::string("host").required(),
    Argument::flag("arbiterOnly"),
    Argument::flag("buildIndexes"),
    Argument::flag("hidden"),
    Argument::number("priority"),
    Argument::document("tags"),
    Argument::whole("secondaryDelaySecs"),
    Argument::whole("votes"),
];
/// The settings of a set. [`NUMBERS`] has the bounds of its numbers.
const SETTINGS: &[Argument] = &[
    Argument::flag("chainingAllowed"),
    Argument::whole("heartbeatIntervalMillis"),
    Argument::whole("heartbeatTimeoutSecs"),
    Argument::whole("electionTimeoutMillis"),
    Argument::whole("catchUpTimeoutMillis"),
    Argument::whole("catchUpTakeoverDelayMillis"),
    Argument::document("getLastErrorModes"),
    Argument::document("getLastErrorDefaults"),
    Argument::any("replicaSetId"),
];
/// The largest version and the largest priority.
const MAX_VERSION: i64 = i32::MAX as i64;
const MAX_PRIORITY: f64 = 1000.0;

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidReplicaSetConfig, text.into())
}

fn incompatible(text: impl Into<String>) -> Error {
    Error::new(ErrorCode::NewReplicaSetConfigurationIncompatible, text.into())
}

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let set = set(ctx)?;
    let fields = Fields::new(request.body, request.row.name);
    let Some(given) = fields.document("replSetReconfig")? else {
        return Err(Error::bad_value("no configuration specified"));
    };
    let force = fields.bool("force")?.unwrap_or(false);
    if !force && !ctx.service.is_primary() {
        let text =
            "replSetReconfig should only be run on a writable PRIMARY. Current state SECONDARY;";
        return Err(Error::new(ErrorCode::NotWritablePrimary, text));
    }
    let _changing = set.reconfiguring.lock();
    let before = set.config();
    let mut config = parse(ctx, set, given)?;
    if force {
        // The reference increments by a large step, so that no two forced versions are equal.
        config.version = config.version.max(before.version + 1);
    } else if config.version <= before.version {
        return Err(incompatible(format!(
            "New replica set configuration version must be greater than old, but {} is not greater than {} for replica set {}",
            config.version, before.version, set.name
        )));
    }
    set.configure(config);
    if let Err(error) = ctx.service.keep_set_config() {
        set.configure(before);
        return Err(error);
    }
    ctx.service.topology.changed();
    tracing::info!(id = 21_392, version = set.config().version, "New replica set config in use");
    Ok(())
}

fn parse(ctx: &CommandContext<'_>, set: &ReplicaSet, given: RawDoc<'_>) -> Result<SetConfig> {
    let fields = Fields::read(given, "ReplSetConfig", OF_SET)?;
    match given.get("_id") {
        Some(RawValue::String(name)) if name == set.name => {}
        Some(RawValue::String(name)) => {
            return Err(incompatible(format!(
                "New and old configurations differ in replica set name; old was {}, and new is {name}",
                set.name
            )));
        }
        _ => return Err(fields.missing("_id")),
    }
    let version = fields.required("version")?;
    let version = whole_number(version).filter(|version| (1..=MAX_VERSION).contains(version));
    let version =
        version.ok_or_else(|| invalid("version field value must be from 1 to 2147483647"))?;
    if fields.long("protocolVersion")?.is_some_and(|version| version != 1) {
        return Err(invalid("protocolVersion of 1 is the only supported one"));
    }
    let Some(RawValue::Array(members)) = given.get("members") else {
        return Err(fields.missing("members"));
    };
    let settings = fields.document("settings")?.unwrap_or(RawDoc::EMPTY);
    let mut config = parse_members(ctx, set, members)?;
    config.version = version;
    config.settings = parse_settings(set, settings)?;
    check_modes(&config)?;
    Ok(config)
}

/// Checks the members; returns what they have in common.
fn parse_members(
    ctx: &CommandContext<'_>,
    set: &ReplicaSet,
    given: RawDoc<'_>,
) -> Result<SetConfig> {
    let me = set.me(ctx.connection, &ctx.service.host);
    let present = set.addresses(&me);
    let mut common: Option<SetConfig> = None;
    for (number, member) in given.iter().enumerate() {
        let RawValue::Document(member) = member.value() else {
            return Err(invalid("a member is not an object"));
        };
        let Some(known) = present.get(number) else { return Err(other_members()) };
        let config = parse_member(set, member, (number, known))?;
        if present.len() > 1 && config.host != set.config().host {
            return Err(other_members());
        }
        match &common {
            None => common = Some(config),
            Some(common) if *common == config => {}
            Some(_) => {
                return Err(invalid("the members of this set have equal priorities and tags"));
            }
        }
    }
    match common {
        None => Err(invalid("Replica set configuration must contain at least one member")),
        Some(_) if given.iter().count() < present.len() => Err(other_members()),
        Some(common) => Ok(common),
    }
}

/// The error for members that are added or removed.
fn other_members() -> Error {
    Error::not_implemented("a change of the members by a configuration; start or stop a server")
}

/// Checks that write concern modes count members by tags that the member has.
///
/// # Errors
/// 14 TypeMismatch, 4 NoSuchKey for another tag, 2 BadValue for a count that is not positive.
fn check_modes(config: &SetConfig) -> Result<()> {
    let modes = config.settings.as_doc().get("getLastErrorModes").and_then(RawValue::as_document);
    for mode in modes.unwrap_or(RawDoc::EMPTY) {
        let path = format!("settings.getLastErrorModes.{}", mode.name());
        let Some(counts) = mode.value().as_document() else {
            return Err(wrong_type(path, mode.value(), "object"));
        };
        for tag in counts {
            match whole_number(tag.value()) {
                None => {
                    let path = format!("{path}.{}", tag.name());
                    return Err(wrong_type(path, tag.value(), "number"));
                }
                Some(count) if count < 1 => {
                    let text = format!("the count of {path}.{} must be positive", tag.name());
                    return Err(Error::bad_value(text));
                }
                Some(_) => {}
            }
        }
        if config.meets_tags(counts).is_none() {
            let text = format!("{path} counts a tag that no member has");
            return Err(Error::new(ErrorCode::NoSuchKey, text));
        }
    }
    Ok(())
}

/// Checks a member, with its number and its present address.
fn parse_member(
    set: &ReplicaSet,
    member: RawDoc<'_>,
    (number, known): (usize, &str),
) -> Result<SetConfig> {
    let fields = Fields::read(member, "MemberConfig", OF_MEMBER)?;
    if whole_number(fields.required("_id")?) != i64::try_from(number).ok() {
        return Err(incompatible(format!(
            "the members of this set have the _ids from 0; this one has {number}"
        )));
    }
    let host = fields.string("host")?.ok_or_else(|| fields.missing("host"))?;
    let (name, port) = host.rsplit_once(':').unwrap_or((host, "27017"));
    let wrong_port = port.parse::<u16>().ok().is_none_or(|port| port == 0);
    if name.is_empty() || wrong_port || host.contains([',', '/', ' ', '@']) {
        return Err(invalid(format!("'{host}' is not an address of a member (host:port)")));
    }
    for (name, required) in [("arbiterOnly", false), ("hidden", false), ("buildIndexes", true)] {
        if fields.bool(name)?.is_some_and(|is| is != required) {
            return Err(invalid(format!("a member of this set must have {name}: {required}")));
        }
    }
    let fixed = [("secondaryDelaySecs", 0), ("votes", 1)];
    for (name, required) in fixed {
        if fields.long(name)?.is_some_and(|number| number != required) {
            return Err(invalid(format!("a member of this set must have {name}: {required}")));
        }
    }
    let priority = match fields.get("priority") {
        None => 1.0,
        Some(value) => match Number::from_value(value).map(Number::to_f64) {
            Some(priority) if priority > 0.0 && priority <= MAX_PRIORITY => priority,
            Some(_) => {
                return Err(invalid(
                    "Replica set configuration must contain at least one non-arbiter member with priority > 0 and <= 1000",
                ));
            }
            None => return Err(fields.wrong("priority", value, "number")),
        },
    };
    let tags = fields.document("tags")?.unwrap_or(RawDoc::EMPTY);
    if let Some(tag) = tags.iter().find(|tag| tag.value().as_str().is_none()) {
        return Err(mistyped(format!("tags.{} field has non-string value", tag.name())));
    }
    let host = host.to_lowercase();
    let config = SetConfig { priority, tags: tags.to_owned(), ..SetConfig::default() };
    match (host == known, set.advertised()) {
        // The address does not change: set before, or the one that each client uses.
        (true, _) => Ok(SetConfig { host: set.config().host, ..config }),
        (false, None) => Ok(SetConfig { host: Some(host), ..config }),
        (false, Some(advertised)) => {
            Err(invalid(format!("the address of the member is given by --advertise: {advertised}")))
        }
    }
}

/// Checks the settings and keeps the known ones.
fn parse_settings(set: &ReplicaSet, settings: RawDoc<'_>) -> Result<DocBuf> {
    let fields = Fields::read(settings, "ReplSetConfigSettings", SETTINGS)?;
    let mut out = DocBuilder::new();
    if let Some(chaining) = fields.bool("chainingAllowed")? {
        out.append("chainingAllowed", chaining);
    }
    for (name, default) in NUMBERS {
        let Some(number) = fields.long(name)? else { continue };
        let least = if *default < 0 { -1 } else { 1 };
        match i32::try_from(number).ok().filter(|number| *number >= least) {
            Some(number) => out.append(name, number),
            None => return Err(invalid(format!("settings.{name} must be at least {least}"))),
        };
    }
    for name in ["getLastErrorModes", "getLastErrorDefaults"] {
        if let Some(document) = fields.document(name)? {
            out.append(name, document);
        }
    }
    match fields.get("replicaSetId") {
        None => {}
        Some(RawValue::ObjectId(id)) if id == set.id() => {}
        Some(_) => {
            return Err(incompatible("New and old configurations differ in replica set ID"));
        }
    }
    Ok(out.finish())
}
