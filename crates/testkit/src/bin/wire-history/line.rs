//! A connection that is cut now and then, over blocking sockets.

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
    connection: Option<Connection>,
    random: SmallRng,
    /// Of a cut, at each command.
    cutting: f64,
}

impl<'n> Wire<'n> {
    pub(crate) fn new(network: &'n Network, run: &'n Run, seed: u64, cutting: f64) -> Wire<'n> {
        let random = SmallRng::seed_from_u64(seed);
        Wire { network, run, connection: None, random, cutting }
    }

    /// Sends and receives. The connection is gone when nothing came.
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

    /// Waits for the server to be there.
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
