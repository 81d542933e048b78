//! A connection over a blocking socket that is sometimes cut.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mayfly_testkit::history::client::{Line, Lost, Run};
use mayfly_testkit::outside::Connection;
use mayfly_value::{DocBuf, RawDoc};
use parking_lot::RwLock;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The time without an answer after which a server counts as hanging.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest time that a server may be unreachable.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// The addresses of the servers, whose ports change at starts and takeovers.
#[derive(Default)]
pub(crate) struct Network {
    /// The only server, or the primary.
    pub(crate) port: AtomicU16,
    pub(crate) secondaries: RwLock<Vec<u16>>,
    /// The number of connections that were cut.
    pub(crate) cuts: AtomicU64,
    /// The number of commands without a reply.
    pub(crate) lost: AtomicU64,
}

/// A client's connection.
pub(crate) struct Wire<'n> {
    network: &'n Network,
    run: &'n Run,
    connection: Option<(u16, Connection)>,
    /// Whether it connects to any member rather than to the primary.
    to_any: bool,
    random: SmallRng,
    /// The probability of a cut, for each command.
    cutting: f64,
}

impl<'n> Wire<'n> {
    pub(crate) fn new(network: &'n Network, run: &'n Run, seed: u64, cutting: f64) -> Wire<'n> {
        let random = SmallRng::seed_from_u64(seed);
        Wire { network, run, connection: None, to_any: false, random, cutting }
    }

    /// The same to any member.
    pub(crate) fn to_any(network: &'n Network, run: &'n Run, seed: u64, cutting: f64) -> Wire<'n> {
        Wire { to_any: true, ..Wire::new(network, run, seed, cutting) }
    }

    /// Sends a command and receives the reply. Without a reply the connection is dropped.
    fn exchange(&mut self, db: &str, command: RawDoc<'_>) -> Option<DocBuf> {
        // After a takeover, a connection to the former primary is given up.
        let primary = self.network.port.load(Ordering::Acquire);
        let known = self.connection.take().filter(|(port, _)| self.to_any || *port == primary);
        let (port, mut connection) = match known {
            Some(connection) => connection,
            None => self.connect()?,
        };
        if self.random.random_bool(self.cutting) {
            self.network.cuts.fetch_add(1, Ordering::Relaxed);
            connection.cut(db, command, &mut self.random);
            return None;
        }
        match connection.ask(db, command) {
            Ok(reply) => {
                self.connection = Some((port, connection));
                Some(reply)
            }
            Err(error) => {
                if Connection::is_late(&error) {
                    self.run.complain(format!("no answer within {PATIENCE:?}"));
                }
                None
            }
        }
    }

    fn port(&mut self) -> u16 {
        let primary = self.network.port.load(Ordering::Acquire);
        let secondaries = self.network.secondaries.read();
        match secondaries.len() {
            others if self.to_any && others > 0 => {
                let at = self.random.random_range(0..=others);
                secondaries.get(at).copied().unwrap_or(primary)
            }
            _ => primary,
        }
    }

    /// Connects; waits until the server is running.
    fn connect(&mut self) -> Option<(u16, Connection)> {
        let began = Instant::now();
        while began.elapsed() < START_PATIENCE {
            let port = self.port();
            if let Ok(connection) = Connection::open(port, PATIENCE) {
                return Some((port, connection));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.run.complain(format!("no server within {START_PATIENCE:?}"));
        None
    }
}

impl Line for Wire<'_> {
    fn goes_to_any(&self) -> bool {
        self.to_any
    }

    fn ask(&mut self, db: &str, command: RawDoc<'_>) -> Result<DocBuf, Lost> {
        self.exchange(db, command).ok_or_else(|| {
            self.network.lost.fetch_add(1, Ordering::Relaxed);
            Lost
        })
    }
}
