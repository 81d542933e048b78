//! The connections of the engine: a bounded pool for transactions, and a few that threads share
//! for single reads.
//!
//! A transaction leases a connection from its first statement to its end. When all are leased, the
//! next operation waits until one is free, or fails with [`KvError::Busy`] at its deadline, and
//! with [`KvError::Timeout`] when it is killed. An operation that holds one does not wait for
//! another, nor does a transaction that stays open between operations: those in the queue may wait
//! for what they hold. The pool then grows beyond its size, and shrinks again when they are
//! returned. Single reads use connections of their own, because a thread may read a key while it
//! has a transaction: if both came from the pool, threads could wait for each other.

mod lease;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mayfly_kv::{KvError, KvResult, Members};
use mayfly_work::current;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::connection::{Connection, Connector};
use crate::members;
use crate::open_error::OpenError;
use crate::options::PostgresOptions;
use crate::owner::{self, Ownership};
use crate::sharing::announce;
use crate::standby;
use crate::wait::{CHECK_EVERY, has_ended, lock_until};

pub(crate) use lease::{Admission, Lease};

/// Connections for single reads. The statements of several threads are pipelined on each.
const READ_CONNECTIONS: usize = 2;

/// The pause before the first attempt to reach a database again. Later ones are longer.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// All connections but that of the owner lock are made here.
pub(crate) struct Pool {
    pub(crate) connector: Connector,
    /// The number of this owner of the store.
    owner_number: i64,
    owner: Mutex<Ownership>,
    /// Whether this server only reads what the owner writes.
    is_secondary: bool,
    /// The address of this server for clients.
    address: Option<String>,
    lease: Duration,
    members: Mutex<Members>,
    /// Whether another server owns the store now.
    is_taken_over: AtomicBool,
    /// Whether it is closed because another server is to own the store.
    hands_over: AtomicBool,
    contact: Contact,
    /// Notified when that is noted, and when the pool is closed.
    ended: Condvar,
    most: usize,
    /// How long operations wait while the database cannot be reached.
    outage: Duration,
    state: Mutex<PoolState>,
    freed: Condvar,
    readers: [Mutex<Option<Arc<Connection>>>; READ_CONNECTIONS],
    next_reader: AtomicUsize,
}

/// Whether the database answers.
struct Contact {
    /// When the last beat began that succeeded.
    last_beat: Mutex<Instant>,
    is_lost: AtomicBool,
}

impl Default for Contact {
    fn default() -> Contact {
        Contact { last_beat: Mutex::new(Instant::now()), is_lost: AtomicBool::new(false) }
    }
}

#[derive(Default)]
struct PoolState {
    idle: Vec<Connection>,
    /// Idle and leased connections, and those that are being made.
    open: usize,
    /// Leased connections, and those that are being made, whose operations were queued for them.
    admitted: usize,
    is_closed: bool,
}

fn closed() -> KvError {
    KvError::Unavailable("the store is closed".into())
}

impl Pool {
    /// A pool of the owner, or of a secondary without it.
    pub(crate) fn new(
        connector: Connector,
        owner: Option<Ownership>,
        options: &PostgresOptions,
    ) -> Arc<Pool> {
        let is_secondary = owner.is_none();
        let owner = owner.unwrap_or(Ownership { connection: None, number: 0 });
        Arc::new(Pool {
            connector,
            owner_number: owner.number,
            owner: Mutex::new(owner),
            is_secondary,
            address: options.address.clone(),
            lease: options.lease,
            members: Mutex::default(),
            is_taken_over: AtomicBool::new(false),
            hands_over: AtomicBool::new(false),
            contact: Contact::default(),
            ended: Condvar::new(),
            most: options.connections,
            outage: options.outage,
            state: Mutex::default(),
            freed: Condvar::new(),
            readers: Default::default(),
            next_reader: AtomicUsize::new(0),
        })
    }

    pub(crate) fn check_open(&self) -> KvResult<()> {
        if self.state.lock().is_closed { Err(closed()) } else { Ok(()) }
    }

    /// The number of this owner of the store.
    pub(crate) fn owner_number(&self) -> i64 {
        self.owner_number
    }

    /// A connection for a transaction.
    pub(crate) fn lease(
        self: &Arc<Pool>,
        admission: Admission,
        deadline: Instant,
    ) -> KvResult<Lease> {
        let op = current::current().op;
        // Those before it in the queue may wait for what this operation holds.
        let is_nested = op.as_ref().is_none_or(|op| op.connections.load(Ordering::Relaxed) > 0);
        let admission = if is_nested { Admission::AtOnce } else { admission };
        let is_queued = admission == Admission::Queued;
        let idle = self.take_idle(is_queued, deadline)?;
        let connection = match idle {
            Some(idle) => Ok(idle),
            None => self.connect(deadline).map(Box::new),
        };
        match connection {
            Ok(connection) => Ok(Lease::new(connection, self, admission, op)),
            Err(error) => {
                self.forget_one(is_queued);
                Err(error)
            }
        }
    }

    /// An idle connection, or `None` when another one has to be made, which is counted already.
    fn take_idle(&self, is_queued: bool, deadline: Instant) -> KvResult<Option<Box<Connection>>> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return Err(closed());
            }
            if !is_queued || state.admitted < self.most {
                state.admitted += usize::from(is_queued);
                while let Some(connection) = state.idle.pop() {
                    if connection.is_usable() {
                        return Ok(Some(Box::new(connection)));
                    }
                    state.open -= 1;
                }
                state.open += 1;
                return Ok(None);
            }
            if Instant::now() >= deadline {
                return Err(KvError::Busy(format!(
                    "all {} connections to PostgreSQL are in use",
                    self.most
                )));
            }
            if has_ended() {
                return Err(KvError::Timeout);
            }
            // The guard is moved into the wait and back.
            let mut guard = state;
            let until = deadline.min(Instant::now() + CHECK_EVERY);
            state = current::wait(move || {
                self.freed.wait_until(&mut guard, until);
                guard
            });
        }
    }

    /// Makes a connection that belongs to the owner of the store. While the database cannot be
    /// reached, it tries again for some time.
    pub(crate) fn connect(&self, deadline: Instant) -> KvResult<Connection> {
        let give_up = deadline.min(Instant::now() + self.outage);
        let mut pause = FIRST_PAUSE;
        loop {
            self.check_contact()?;
            match self.try_connect(deadline) {
                Err(KvError::Unavailable(_)) if Instant::now() + pause < give_up => {}
                other => return other,
            }
            current::wait(|| thread::sleep(pause));
            pause = (pause * 2).min(CHECK_EVERY);
            if has_ended() {
                return Err(KvError::Timeout);
            }
            self.check_open()?;
        }
    }

    /// # Errors
    /// [`KvError::Unavailable`] while the database could not be reached for the length of the
    /// lease.
    fn check_contact(&self) -> KvResult<()> {
        match self.has_lost_contact() {
            false => Ok(()),
            true => Err(KvError::Unavailable("PostgreSQL cannot be reached".into())),
        }
    }

    fn try_connect(&self, deadline: Instant) -> KvResult<Connection> {
        let number = self.owner_number;
        if self.is_secondary {
            self.check_open()?;
            let connection = self.connector.connect(deadline).map_err(OpenError::unavailable)?;
            return owner::identify(connection, deadline);
        }
        let owner = lock_until(&self.owner, deadline)?;
        // It may have been lost while another thread had the lock.
        self.check_contact()?;
        self.with_ownership(owner, deadline, |_| Ok(()))?;
        let mut connection = self.connector.connect(deadline).map_err(OpenError::unavailable)?;
        let joined = owner::join(&mut connection, &self.connector.schema, number, deadline);
        self.note_owner(&joined);
        joined.map(|()| connection)
    }

    /// Shows other servers over the store that this one lives, and sees which others do. Returns
    /// for how long it has been one of them.
    ///
    /// # Errors
    /// [`KvError::Fenced`] when another server has taken the store over.
    pub(crate) fn beat(&self, deadline: Instant) -> KvResult<Duration> {
        let (schema, number) = (&self.connector.schema, self.owner_number);
        if self.is_secondary {
            let connection = match self.has_lost_contact() {
                false => self.reader(deadline)?,
                // Operations make no connections then.
                true => Arc::new(self.try_connect(deadline)?),
            };
            return self.note_members(&connection, deadline);
        }
        let owner = lock_until(&self.owner, deadline)?;
        self.with_ownership(owner, deadline, |connection| {
            match standby::beat(connection, schema, number, deadline) {
                Ok(true) => self.note_members(connection, deadline),
                Ok(false) => Err(owner::fenced()),
                Err(error) => Err(error.unavailable()),
            }
        })
    }

    fn note_members(&self, connection: &Connection, deadline: Instant) -> KvResult<Duration> {
        let Some(address) = &self.address else { return Ok(Duration::ZERO) };
        let (schema, me) = (&*self.connector.schema, (&**address, self.owner_number));
        let noted = members::note(connection, (schema, self.lease), me, deadline);
        let noted = noted.map_err(OpenError::unavailable)?;
        *self.members.lock() = noted.members;
        if !self.is_secondary && self.has_others() {
            announce(connection, schema);
        }
        Ok(noted.since)
    }

    /// Notes that a beat which began at this time has succeeded.
    pub(crate) fn note_beat(&self, began: Instant) {
        *self.contact.last_beat.lock() = began;
        if self.contact.is_lost.swap(false, Ordering::AcqRel) {
            tracing::info!("PostgreSQL can be reached again");
        }
    }

    /// Notes that a beat has failed. A member of a set that could not beat for the length of the
    /// lease loses its connections: another member may own the store since then, and the clients
    /// should try again there instead of waiting for the network of this one.
    pub(crate) fn note_missed_beat(&self) {
        let is_late = self.contact.last_beat.lock().elapsed() >= self.lease;
        if is_late && self.address.is_some() && !self.contact.is_lost.swap(true, Ordering::AcqRel) {
            tracing::warn!(
                lease_ms = self.lease.as_millis(),
                "PostgreSQL could not be reached for the length of the lease; until it can be, this \
                 member is neither primary nor secondary, and its operations end"
            );
            self.connector.drop_all();
            self.drop_idle();
        }
    }

    /// This server stays a member when it closes the store. It is cut off from now on.
    pub(crate) fn begin_to_hand_over(&self) {
        self.hands_over.store(true, Ordering::Release);
    }

    /// Whether this member of a set could not beat for the length of the lease.
    pub(crate) fn has_lost_contact(&self) -> bool {
        self.contact.is_lost.load(Ordering::Acquire)
    }

    /// The same, or whether it leaves the store to another member.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.has_lost_contact() || self.hands_over.load(Ordering::Acquire)
    }

    /// Whether no call reaches the database any more, as far as is known.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        self.has_lost_contact() || self.check_open().is_err()
    }

    /// The servers over the store at the last beat.
    pub(crate) fn members(&self) -> Members {
        self.members.lock().clone()
    }

    /// Whether other servers over the store lived at the last beat.
    pub(crate) fn has_others(&self) -> bool {
        self.members.lock().list.len() > 1
    }

    /// The pause between two beats.
    pub(crate) fn beats_every(&self) -> Duration {
        if self.address.is_some() { members::BEAT_EVERY } else { standby::BEAT_EVERY }
    }

    /// Whether this server only reads what the owner writes.
    pub(crate) fn is_secondary(&self) -> bool {
        self.is_secondary
    }

    /// Whether another server has taken the store over.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.is_taken_over.load(Ordering::Acquire)
    }

    /// Waits until another server has taken the store over; returns false when the pool is closed.
    pub(crate) fn await_take_over(&self) -> bool {
        let mut state = self.state.lock();
        while !self.is_taken_over() && !state.is_closed {
            self.ended.wait(&mut state);
        }
        self.is_taken_over()
    }

    /// Notes that another server has taken the store over, if this result says so.
    fn note_owner<T>(&self, result: &KvResult<T>) {
        if matches!(result, Err(KvError::Fenced(_))) {
            let _state = self.state.lock();
            self.is_taken_over.store(true, Ordering::Release);
            self.ended.notify_all();
        }
    }

    /// Calls a function with the session of the owner lock, which is taken again if its session was
    /// lost.
    fn with_ownership<T>(
        &self,
        mut owner: MutexGuard<'_, Ownership>,
        deadline: Instant,
        act: impl FnOnce(&Connection) -> KvResult<T>,
    ) -> KvResult<T> {
        let retaken = match &owner.connection {
            Some(connection) if connection.is_usable() => Ok(()),
            Some(lost) => {
                let former = lost.session;
                Ownership::retake(&self.connector, self.owner_number, former, deadline)
                    .map(|retaken| *owner = retaken)
            }
            None => Err(closed()),
        };
        let result = retaken.and_then(|()| owner.connection.as_ref().map_or(Err(closed()), act));
        self.note_owner(&result);
        result
    }

    /// A connection that several threads use for single statements.
    pub(crate) fn reader(&self, deadline: Instant) -> KvResult<Arc<Connection>> {
        self.check_open()?;
        let at = self.next_reader.fetch_add(1, Ordering::Relaxed) % READ_CONNECTIONS;
        let mut place = lock_until(&self.readers[at], deadline)?;
        match &*place {
            Some(reader) if reader.is_usable() => Ok(reader.clone()),
            _ => {
                let reader = self.connect(deadline)?;
                reader.share();
                Ok(place.insert(Arc::new(reader)).clone())
            }
        }
    }

    /// Ends the idle connections: after one was found dead, the others probably are, too.
    pub(crate) fn drop_idle(&self) {
        let mut state = self.state.lock();
        let idle = std::mem::take(&mut state.idle);
        state.open -= idle.len();
        drop(state);
        self.freed.notify_all();
    }

    fn forget_one(&self, is_queued: bool) {
        let mut state = self.state.lock();
        state.open -= 1;
        state.admitted -= usize::from(is_queued);
        drop(state);
        self.freed.notify_one();
    }

    /// Ends all connections and makes no others, so that every call fails that is under way.
    pub(crate) fn cut(&self) {
        self.state.lock().is_closed = true;
        self.ended.notify_all();
        self.connector.end();
    }

    /// Ends idle connections, leased ones when they are returned, and the ownership.
    pub(crate) fn close(&self) {
        if let Some(address) = &self.address
            && !self.hands_over.load(Ordering::Acquire)
            && let Ok(reader) = self.reader(Instant::now() + CHECK_EVERY)
        {
            members::forget(&reader, &self.connector.schema, address);
        }
        self.state.lock().is_closed = true;
        self.ended.notify_all();
        if let Some(connection) = self.owner.lock().connection.take() {
            owner::release(&connection);
        }
        self.drop_idle();
        for reader in &self.readers {
            *reader.lock() = None;
        }
    }
}
