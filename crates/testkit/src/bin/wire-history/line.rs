//! A connection that is cut now and then, over blocking sockets.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mayfly_testkit::history::client::{Line, Lost, Run};
use mayfly_value::{DocBuf, DocBuilder, RawDoc};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const OP_MSG: u32 = 2013;
/// Header, flags, the kind of the section.
const PREFIX_BYTES: usize = 21;
const MAX_REPLY_BYTES: usize = 48 << 20;
/// A server that does not answer for so long hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// So long a server may be away.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// Where the server is now, which another port is after each start.
#[derive(Default)]
pub(crate) struct Network {
    pub(crate) port: AtomicU16,
    /// Connections that were cut.
    pub(crate) cuts: AtomicU64,
    /// Commands whose answers did not come, cut or not.
    pub(crate) lost: AtomicU64,
}

/// A client's connection.
pub(crate) struct Wire<'n> {
    network: &'n Network,
    run: &'n Run,
    stream: Option<TcpStream>,
    random: SmallRng,
    /// Of a cut, at each command.
    cutting: f64,
}

impl<'n> Wire<'n> {
    pub(crate) fn new(network: &'n Network, run: &'n Run, seed: u64, cutting: f64) -> Wire<'n> {
        let random = SmallRng::seed_from_u64(seed);
        Wire { network, run, stream: None, random, cutting }
    }

    /// Sends and receives. The connection is gone when nothing came.
    fn exchange(&mut self, message: &[u8]) -> Option<DocBuf> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        if self.random.random_bool(self.cutting) {
            self.cut(&mut stream, message);
            return None;
        }
        let reply = stream.write_all(message).and_then(|()| receive(&mut stream));
        match reply {
            Ok(reply) => {
                self.stream = Some(stream);
                RawDoc::new(reply.get(PREFIX_BYTES..)?).map(RawDoc::to_owned)
            }
            Err(error) => {
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) {
                    self.run.complain(format!("no answer within {PATIENCE:?}"));
                }
                None
            }
        }
    }

    /// Sends all of a command, or a part, and hangs up without the answer.
    fn cut(&mut self, stream: &mut TcpStream, message: &[u8]) {
        self.network.cuts.fetch_add(1, Ordering::Relaxed);
        let sent = match self.random.random_bool(0.2) {
            true => self.random.random_range(0..message.len()),
            false => message.len(),
        };
        let _sent = stream.write_all(&message[..sent]);
        if self.random.random_bool(0.5) {
            std::thread::sleep(Duration::from_micros(self.random.random_range(0..3_000)));
        }
        let _closed = stream.shutdown(Shutdown::Both);
    }

    /// Waits for the server to be there.
    fn connect(&mut self) -> Option<TcpStream> {
        let began = Instant::now();
        while began.elapsed() < START_PATIENCE {
            let port = self.network.port.load(Ordering::Acquire);
            let connected = TcpStream::connect(("127.0.0.1", port)).and_then(|stream| {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(stream)
            });
            if let Ok(stream) = connected {
                return Some(stream);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.run.complain(format!("no server within {START_PATIENCE:?}"));
        None
    }
}

impl Line for Wire<'_> {
    fn ask(&mut self, db: &str, command: RawDoc<'_>) -> Result<DocBuf, Lost> {
        let message = message(db, command);
        self.exchange(&message).ok_or_else(|| {
            self.network.lost.fetch_add(1, Ordering::Relaxed);
            Lost
        })
    }
}

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

fn receive(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let size = u32::from_le_bytes(length) as usize;
    if !(PREFIX_BYTES + 5..=MAX_REPLY_BYTES).contains(&size) {
        return Err(std::io::Error::other(format!("a reply of {size} bytes")));
    }
    let mut reply = vec![0; size];
    reply[..4].copy_from_slice(&length);
    stream.read_exact(&mut reply[4..])?;
    Ok(reply)
}
