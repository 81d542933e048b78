//! OP_MSG over a blocking socket. It knows one section kind and no compression: what a test sends, no more.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use mayfly_value::{DocBuf, DocBuilder, RawDoc};
use rand::Rng;
use rand::rngs::SmallRng;

const OP_MSG: u32 = 2013;
/// Header, flags, the kind of the section.
const PREFIX_BYTES: usize = 21;
const MAX_REPLY_BYTES: usize = 48 << 20;

/// A command as a message to a database.
fn message(db: &str, command: RawDoc<'_>) -> Vec<u8> {
    let mut doc = DocBuilder::in_buffer(vec![0; PREFIX_BYTES]);
    doc.append_all(command).append("$db", db);
    let mut message = doc.finish_buffer();
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_le_bytes());
    message[4..8].copy_from_slice(&1u32.to_le_bytes());
    message[12..16].copy_from_slice(&OP_MSG.to_le_bytes());
    message
}

/// Waits for a reply and gives its document.
///
/// # Errors
/// Those of the socket, and a reply that is too large or no document.
fn receive(stream: &mut TcpStream) -> Result<DocBuf> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let size = u32::from_le_bytes(length) as usize;
    if !(PREFIX_BYTES + 5..=MAX_REPLY_BYTES).contains(&size) {
        return Err(Error::other(format!("a reply of {size} bytes")));
    }
    let mut rest = vec![0; size - 4];
    stream.read_exact(&mut rest)?;
    let document = rest.split_off(PREFIX_BYTES - 4);
    DocBuf::from_bytes(document).ok_or_else(|| Error::other("a reply that is no document"))
}

/// A connection to a server on this machine.
pub struct Connection {
    stream: TcpStream,
}

impl Connection {
    /// Connects. A server that does not take or answer a message for so long hangs.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn open(port: u16, patience: Duration) -> Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Connection { stream })
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// Those of the socket; [`is_late`](Connection::is_late) tells a server that hangs from one that hung up.
    pub fn ask(&mut self, db: &str, command: RawDoc<'_>) -> Result<DocBuf> {
        self.stream.write_all(&message(db, command))?;
        receive(&mut self.stream)
    }

    /// Sends all of a command, or a part, and hangs up without the answer.
    pub fn cut(mut self, db: &str, command: RawDoc<'_>, random: &mut SmallRng) {
        let message = message(db, command);
        let sent = match random.random_bool(0.2) {
            true => random.random_range(0..message.len()),
            false => message.len(),
        };
        let _sent = self.stream.write_all(&message[..sent]);
        if random.random_bool(0.5) {
            std::thread::sleep(Duration::from_micros(random.random_range(0..3_000)));
        }
        let _closed = self.stream.shutdown(Shutdown::Both);
    }

    /// Whether the error says that nothing came in time.
    pub fn is_late(error: &Error) -> bool {
        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
    }
}
