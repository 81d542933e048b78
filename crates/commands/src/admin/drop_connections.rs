//! `dropConnections`: closes outgoing connections to the named hosts. A server without other
//! members has none, so that the command only checks its arguments. Manual: "dropConnections".

use mayfly_auth::Action;
use mayfly_base::{Error, Result};
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use crate::context::{Command, CommandContext};
use crate::request::row::RowFlags;
use crate::request::{Needs, Request};

pub(super) const ROW: Command =
    Command::new("dropConnections", "Closes outgoing connections to other hosts", run)
        .arguments(&[Argument::array("hostAndPort").required()])
        .needs(Needs::Cluster(&[Action::DropConnections]))
        .since("4.2")
        .flags(RowFlags::ADMIN_ONLY);

fn run(_: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    for element in fields.array("hostAndPort")?.unwrap_or(RawDoc::EMPTY) {
        match element.value() {
            RawValue::Null | RawValue::Undefined => {}
            RawValue::String(host) => check_host(host)?,
            other => {
                let name = format!("hostAndPort.{}", element.name());
                return Err(fields.wrong(&name, other, "string"));
            }
        }
    }
    Ok(())
}

/// Checks a host with or without a port. An IPv6 address with a port is in brackets.
///
/// # Errors
/// 9 FailedToParse.
fn check_host(text: &str) -> Result<()> {
    let fail = |why: &str| Err(Error::failed_to_parse(format!("{why} in \"{text}\"")));
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            None => return fail("a bracket is not closed"),
            Some((host, "")) => (host, None),
            Some((host, port)) => match port.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None => return fail("characters after the closing bracket"),
            },
        },
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return fail("Empty host component");
    }
    let is_port = |port: &str| {
        port.bytes().all(|byte| byte.is_ascii_digit())
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    match port {
        Some(port) if !is_port(port) => fail("Port number is not between 1 and 65535"),
        _ => Ok(()),
    }
}
