//! A connection over a blocking socket that is sometimes cut.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mayfly_testkit::history::client::{Line, Lost, Run};
use mayfly_testkit::outside::Connection;
use mayfly_value::{DocBuf, RawDoc};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The time without an answer after which a server counts as hanging.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest time that a server may be unreachable.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// The address of the server, whose port changes at each start.
#[derive(Default)]
pub(crate) struct Network {
    pub(crate) port: AtomicU16,
    /// The number of connections that were cut.
    pub(crate) cuts: AtomicU64,
    /// The number of commands without a reply.
    pub(crate) lost: AtomicU64,
}

/// A client's connection.
pub(crate) struct Wire<'n> {
    network: &'n Network,
    run: &'n Run,
    connection: Option<Connection>,
    random: SmallRng,
    /// The probability of a cut, for each command.
    cutting: f64,
}

impl<'n> Wire<'n> {
    pub(crate) fn new(network: &'n Network, run: &'n Run, seed: u64, cutting: f64) -> Wire<'n> {
        let random = SmallRng::seed_from_u64(seed);
        Wire { network, run, connection: None, random, cutting }
    }

    /// Sends a command and receives the reply. Without a reply the connection is dropped.
    fn exchange(&mut self, db: &str, command: RawDoc<'_>) -> Option<DocBuf> {
        let mut connection = match self.connection.take() {
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
                self.connection = Some(connection);
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

    /// Connects; waits until the server is running.
    fn connect(&mut self) -> Option<Connection> {
        let began = Instant::now();
        while began.elapsed() < START_PATIENCE {
            let port = self.network.port.load(Ordering::Acquire);
            if let Ok(connection) = Connection::open(port, PATIENCE) {
                return Some(connection);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.run.complain(format!("no server within {START_PATIENCE:?}"));
        None
    }
}

impl Line for Wire<'_> {
    fn ask(&mut self, db: &str, command: RawDoc<'_>) -> Result<DocBuf, Lost> {
        self.exchange(db, command).ok_or_else(|| {
            self.network.lost.fetch_add(1, Ordering::Relaxed);
            Lost
        })
    }
}
