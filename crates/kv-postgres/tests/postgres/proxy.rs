//! A proxy that cuts a connection before, in the middle of, or after a message of PostgreSQL's
//! protocol, or stops forwarding.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use mayfly_base::testing::wait_until;

/// Where a connection is cut, relative to a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Before,
    Middle,
    After,
    /// It is not cut: the message is held until it is released, and all connections are stalled.
    Hold,
}

/// One cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Whether a message of the client is meant, not one of the server.
    pub(crate) of_client: bool,
    /// The number of the message since the cut was armed.
    pub(crate) message: usize,
    pub(crate) part: Part,
}

#[derive(Default)]
struct Rules {
    cut: Mutex<Option<Cut>>,
    /// Forwards nothing, and accepts connections.
    is_stalled: AtomicBool,
    /// A message of one connection is held.
    is_held: AtomicBool,
    /// The sockets of all connections so far.
    sockets: Mutex<Vec<TcpStream>>,
}

/// A running proxy. Its threads end with the test process.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    rules: Arc<Rules>,
}

impl Proxy {
    pub(crate) fn start(server: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, rules) = (listener.local_addr().unwrap().port(), Arc::<Rules>::default());
        let shared = rules.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                for socket in [&client, &server] {
                    socket.set_nodelay(true).unwrap();
                    shared.sockets.lock().unwrap().push(socket.try_clone().unwrap());
                }
                for of_client in [true, false] {
                    let (mut from, mut to) =
                        (client.try_clone().unwrap(), server.try_clone().unwrap());
                    if !of_client {
                        std::mem::swap(&mut from, &mut to);
                    }
                    let rules = shared.clone();
                    thread::spawn(move || {
                        forward(&rules, of_client, &mut from, &mut to);
                        let _ = from.shutdown(Shutdown::Both);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Proxy { port, rules }
    }

    /// The next messages are counted, and a connection is cut once.
    pub(crate) fn arm(&self, cut: Cut) {
        *self.rules.cut.lock().unwrap() = Some(cut);
    }

    /// Removes the cut; returns whether it has happened.
    pub(crate) fn disarm(&self) -> bool {
        self.rules.cut.lock().unwrap().take().is_none()
    }

    /// The number of messages since a cut was armed that was to come after `most` of them.
    pub(crate) fn messages(&self, most: usize) -> usize {
        most - self.rules.cut.lock().unwrap().take().unwrap().message
    }

    /// Sends the message that is held.
    pub(crate) fn release(&self) {
        self.rules.is_held.store(false, Ordering::SeqCst);
    }

    /// Cuts all connections.
    pub(crate) fn cut_all(&self) {
        for socket in self.rules.sockets.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn stall(&self, is_stalled: bool) {
        self.rules.is_stalled.store(is_stalled, Ordering::SeqCst);
    }
}

impl Rules {
    /// Where to cut the next message of this direction.
    fn next(&self, of_client: bool) -> Option<Part> {
        let mut place = self.cut.lock().unwrap();
        let cut = place.as_mut().filter(|cut| cut.of_client == of_client)?;
        if cut.message == 0 {
            return place.take().map(|cut| cut.part);
        }
        cut.message -= 1;
        None
    }
}

/// Forwards messages until an end of the connection or a cut.
fn forward(rules: &Rules, of_client: bool, from: &mut TcpStream, to: &mut TcpStream) {
    // The first message of a client has no type.
    let (mut pending, mut header) = (Vec::new(), if of_client { 0 } else { 1 });
    let mut bytes = [0; 1 << 16];
    loop {
        let Ok(read @ 1..) = from.read(&mut bytes) else { return };
        pending.extend_from_slice(&bytes[..read]);
        wait_until("the proxy goes on", || !rules.is_stalled.load(Ordering::SeqCst));
        while pending.len() >= header + 4 {
            let length: [u8; 4] = pending[header..header + 4].try_into().unwrap();
            let length = header + u32::from_be_bytes(length) as usize;
            if pending.len() < length {
                break;
            }
            let rest = pending.split_off(length);
            let mut cut = rules.next(of_client);
            if matches!(cut, Some(Part::Hold)) {
                rules.is_held.store(true, Ordering::SeqCst);
                rules.is_stalled.store(true, Ordering::SeqCst);
                wait_until("the message is released", || !rules.is_held.load(Ordering::SeqCst));
                cut = None;
            }
            let sent = match cut {
                Some(Part::Before) => 0,
                Some(Part::Middle) => length / 2,
                _ => length,
            };
            if to.write_all(&pending[..sent]).is_err() || cut.is_some() {
                return;
            }
            (pending, header) = (rest, 1);
        }
    }
}
