//! `getDefaultRWConcern` and `setDefaultRWConcern`: the concerns of operations that give none.
//! Manual: "setDefaultRWConcern", "getDefaultRWConcern".

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::{DefaultConcerns, Service};
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::context::{Command, CommandContext};
use crate::request::generic::meets;
use crate::request::row::{RowFlags, Writes};
use crate::request::{Fields, Needs, Request, WriteConcern};

pub(super) const GET: Command =
    Command::new("getDefaultRWConcern", "Returns the default read and write concern", run_get)
        .arguments(&[Argument::bool("inMemory").since("4.4")])
        .needs(Needs::Cluster(&[Action::GetDefaultRwConcern]))
        .since("4.4")
        .flags(RowFlags::ADMIN_ONLY);
pub(super) const SET: Command =
    Command::new("setDefaultRWConcern", "Sets the default read and write concern", run_set)
        .arguments(&[
            Argument::document("defaultReadConcern").parts(READ),
            Argument::document("defaultWriteConcern").parts(WRITE),
        ])
        .needs(Needs::Cluster(&[Action::SetDefaultRwConcern]))
        .since("4.4")
        .flags(RowFlags::ADMIN_ONLY)
        .writes(Writes::Settings);

fn run_get(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let in_memory = fields.bool("inMemory")?.unwrap_or(false);
    append(&ctx.service.defaults.get(), reply);
    if in_memory {
        reply.append("inMemory", true);
    }
    Ok(())
}

fn run_set(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let read = fields.document("defaultReadConcern")?.map(checked_read).transpose()?;
    let write = fields.document("defaultWriteConcern")?;
    let write = write.map(|given| checked_write(ctx.service, given)).transpose()?;
    if read.is_none() && write.is_none() {
        return Err(Error::bad_value(
            "At least one of the \"defaultReadConcern\" or \"defaultWriteConcern\" fields must be present",
        ));
    }
    let mut changed = ctx.service.defaults.get();
    if let Some(read) = read {
        changed.read = Some(read).filter(|read| !read.as_doc().is_empty());
    }
    if let Some(write) = write {
        if write.as_doc().is_empty() && changed.write.is_some() {
            let text = "The global default write concern cannot be unset once it is set.";
            return Err(Error::new(ErrorCode::IllegalOperation, text));
        }
        changed.write = Some(write).filter(|write| !write.as_doc().is_empty());
    }
    ctx.service.defaults.keep(&ctx.service.store, ctx.op, changed)?;
    append(&ctx.service.defaults.get(), reply);
    Ok(())
}

const READ: &[Argument] = &[Argument::string("level")];
const WRITE: &[Argument] = &[Argument::any("w"), Argument::bool("j"), Argument::any("wtimeout")];

/// Checks a read concern that is to be the default.
fn checked_read(given: RawDoc<'_>) -> Result<DocBuf> {
    let fields = Fields::read(given, "setDefaultRWConcern.defaultReadConcern", READ)?;
    match fields.string("level")? {
        None => Ok(DocBuf::empty()),
        Some(level @ ("local" | "available" | "majority")) => {
            let mut out = DocBuilder::new();
            out.append("level", level);
            Ok(out.finish())
        }
        Some(other) => Err(Error::bad_value(format!(
            "level: \"{other}\" is not suitable for the default read concern"
        ))),
    }
}

/// Checks a write concern that is to be the default, and adds its `wtimeout`.
fn checked_write(service: &Service, given: RawDoc<'_>) -> Result<DocBuf> {
    let fields = Fields::read(given, "setDefaultRWConcern.defaultWriteConcern", WRITE)?;
    if given.is_empty() {
        return Ok(DocBuf::empty());
    }
    let unsuitable = |text: &str| Err(Error::bad_value(text));
    let too_many = || {
        let text = "Not enough data-bearing nodes for the default write concern";
        Err(Error::new(ErrorCode::UnsatisfiableWriteConcern, text))
    };
    let mut out = DocBuilder::new();
    match given.get("w") {
        None => return unsuitable("The default write concern must have the field 'w'"),
        Some(RawValue::String("majority")) => out.append("w", "majority"),
        Some(mode @ (RawValue::String(_) | RawValue::Null | RawValue::Document(_))) => {
            match meets(service, mode) {
                Some(true) => out.append("w", mode),
                Some(false) => return too_many(),
                None => {
                    let text = "No write concern mode named in the default write concern was found";
                    return Err(Error::new(ErrorCode::UnknownReplWriteConcern, text));
                }
            }
        }
        Some(w) => match WriteConcern::parse_members(w)? {
            0 => return unsuitable("The default write concern cannot have 'w' 0"),
            1 => out.append("w", 1),
            _ => return too_many(),
        },
    };
    if let Some(synced) = fields.bool("j")? {
        out.append("j", synced);
    }
    let wtimeout = fields
        .get("wtimeout")
        .and_then(mayfly_value::arguments::convert::whole_number)
        .unwrap_or(0);
    out.append("wtimeout", i32::try_from(wtimeout.max(0)).unwrap_or(i32::MAX));
    Ok(out.finish())
}

fn append(concerns: &DefaultConcerns, reply: &mut DocBuilder) {
    let source = |set: bool| if set { "global" } else { "implicit" };
    match &concerns.read {
        Some(read) => reply.append("defaultReadConcern", read),
        None => reply.start_document("defaultReadConcern").append("level", "local").end(),
    };
    match &concerns.write {
        Some(write) => reply.append("defaultWriteConcern", write),
        None => {
            reply.start_document("defaultWriteConcern");
            reply.append("w", "majority").append("wtimeout", 0).end()
        }
    };
    if let Some((timestamp, wall_ms)) = concerns.updated {
        reply.append("updateOpTime", RawValue::Timestamp(timestamp));
        reply.append("updateWallClockTime", RawValue::Date(wall_ms));
    }
    reply.append("defaultWriteConcernSource", source(concerns.write.is_some()));
    reply.append("defaultReadConcernSource", source(concerns.read.is_some()));
    reply.append("localUpdateWallClockTime", RawValue::Date(concerns.loaded_ms));
}
