//! `--healthcheck`: asks a running server for a `ping`, for containers and supervisors.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use crate::failure::{Failure, FailureKind};

/// Longest wait for each step.
const TIMEOUT: Duration = Duration::from_secs(3);
const OP_MSG: i32 = 2013;
/// Header, flags and the kind byte of the one section.
const BEFORE_DOCUMENT: usize = 16 + 4 + 1;
/// Longest reply that is read; a `ping` is answered in far less.
const MAX_REPLY_BYTES: usize = 64 * 1024;

/// Whether a server answers on this port of this machine.
///
/// # Errors
/// What went wrong, for the standard error output.
pub fn check(port: u16) -> anyhow::Result<()> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    ask(address).with_context(|| {
        let advice = "start the server, or name its port with --port";
        Failure::new(FailureKind::General, format!("cannot ask the server on {address}"), advice)
    })
}

fn ask(address: SocketAddr) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(&ping())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if !(BEFORE_DOCUMENT..=MAX_REPLY_BYTES).contains(&length) {
        bail!("it does not speak this protocol");
    }
    let mut rest = vec![0; length - 4];
    stream.read_exact(&mut rest)?;
    match RawDoc::new(&rest[BEFORE_DOCUMENT - 4..]).and_then(|reply| reply.get("ok")) {
        Some(RawValue::Double(1.0)) => Ok(()),
        _ => bail!("it answers, but not with ok"),
    }
}

fn ping() -> Vec<u8> {
    let mut command = DocBuilder::new();
    command.append("ping", 1).append("$db", "admin");
    let command = command.finish();
    let length = BEFORE_DOCUMENT + command.as_bytes().len();
    let mut message = Vec::with_capacity(length);
    for word in [length as i32, 1, 0, OP_MSG, 0] {
        message.extend_from_slice(&word.to_le_bytes());
    }
    message.push(0);
    message.extend_from_slice(command.as_bytes());
    message
}
