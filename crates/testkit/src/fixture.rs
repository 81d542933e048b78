//! A server without a network: an engine, a store, a service and one connection.
//!
//! There are no background threads: tests call functions to advance the time, for TTL passes and
//! the sweeper, for a restart and a crash.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use mayfly_base::ManualClock;
use mayfly_commands::{DataWait, Dispatched, Incoming, Next, Outcome, Wait, dispatch};
use mayfly_kv::{ChaosEngine, ChaosOptions};
use mayfly_kv::{Engine, MemoryEngine};
use mayfly_query::PartialFilters;
use mayfly_service::parameters;
use mayfly_service::{CommandLine, Connection, LogRing, ReplicaSet, Service, ServiceOptions};
use mayfly_storage::ttl::PassState;
use mayfly_storage::{Store, StoreOptions, StoreRole};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use mayfly_work::OpRegistry;

use crate::dialect::{self, Env};
use crate::expect::without_implied;
use crate::reopenable::Reopenable;

/// The initial time of a fixture's clock: 2027-01-15T08:00:00Z.
pub const START_MS: i64 = 1_800_000_000_000;

/// Opens the engine: at the beginning, and again after each clean close.
pub type OpenEngine = Box<dyn Fn() -> Arc<dyn Engine> + Send + Sync>;

/// A memory engine that outlives restarts.
pub fn memory() -> OpenEngine {
    let engine: Arc<dyn Engine> = Arc::new(Reopenable(Arc::new(MemoryEngine::new())));
    Box::new(move || engine.clone())
}

/// The same with random conflicts and short pages; no commit has an unknown outcome.
pub fn memory_under_chaos(seed: u64) -> OpenEngine {
    let options = ChaosOptions {
        seed,
        conflict_probability: 0.02,
        short_pages: true,
        is_remote: true,
        late_inserts: true,
        ..ChaosOptions::default()
    };
    let chaos = ChaosEngine::new(Arc::new(MemoryEngine::new()), options);
    let engine: Arc<dyn Engine> = Arc::new(Reopenable(Arc::new(chaos)));
    Box::new(move || engine.clone())
}

/// The same engine, with records that are clustered by `_id`.
pub fn clustered(open: OpenEngine) -> OpenEngine {
    let options = ChaosOptions { clusters_records: true, ..ChaosOptions::default() };
    Box::new(move || Arc::new(ChaosEngine::new(open(), options)))
}

/// A running server inside a test.
pub struct Fixture {
    open: OpenEngine,
    engine: Option<Arc<dyn Engine>>,
    /// A clock that only moves on demand.
    pub clock: Arc<ManualClock>,
    role: StoreRole,
    /// The state of the server; each restart creates a new one.
    pub service: Arc<Service>,
    connection: Arc<Connection>,
    sub_pass: PassState,
}

impl Fixture {
    /// A server with a new engine.
    pub fn new(open: OpenEngine) -> Fixture {
        let clock = Arc::new(ManualClock::at_ms(START_MS));
        Fixture::over((open, clock), StoreRole::Alone)
    }

    /// Another server, which reads what this one writes. `open` returns an engine with the same
    /// data.
    pub fn secondary(&self, open: OpenEngine) -> Fixture {
        Fixture::over((open, self.clock.clone()), StoreRole::Secondary)
    }

    fn over((open, clock): (OpenEngine, Arc<ManualClock>), role: StoreRole) -> Fixture {
        let engine = open();
        let service = service(engine.clone(), &clock, role);
        let connection = connect(&service);
        let engine = Some(engine);
        Fixture { open, engine, clock, role, service, connection, sub_pass: PassState::default() }
    }

    /// A server with a new memory engine.
    pub fn in_memory() -> Fixture {
        Fixture::new(memory())
    }

    /// The open store.
    pub fn store(&self) -> &Arc<Store> {
        &self.service.store
    }

    /// Runs a command without `$db`; returns the reply.
    pub fn run_document(&self, db: &str, command: RawDoc<'_>) -> DocBuf {
        self.answer(db, command).0
    }

    /// Runs a command in the shell dialect; returns the reply, and what the connection loop would
    /// do before it sends it.
    pub fn dispatched(&self, db: &str, command: &str) -> (DocBuf, Outcome) {
        match dialect::document(command, &self.env()) {
            Ok(document) => self.answer(db, document.as_doc()),
            Err(why) => panic!("{why}: {command}"),
        }
    }

    /// Runs a command in the shell dialect once; returns what the connection loop would wait for
    /// before it runs the command again.
    pub fn waits_for(&self, db: &str, command: &str) -> Option<DataWait> {
        let command = match dialect::document(command, &self.env()) {
            Ok(document) => document,
            Err(why) => panic!("{why}: {command}"),
        };
        let body = self.body(db, command.as_doc());
        match self.dispatch(&incoming(&body)).next {
            Next::Wait(Wait::Data(wait), _) => Some(wait),
            Next::Wait(Wait::Topology { .. }, _) | Next::Reply(_) | Next::HangUp => None,
        }
    }

    /// A command as a driver sends it; one that may read from a secondary, if this is one.
    fn body(&self, db: &str, command: RawDoc<'_>) -> DocBuf {
        let mut body = DocBuilder::new();
        body.append_all(command).append("$db", db);
        if self.role == StoreRole::Secondary {
            let mut preference = DocBuilder::new();
            preference.append("mode", "secondaryPreferred");
            body.append("$readPreference", preference.finish().as_doc());
        }
        body.finish()
    }

    fn dispatch(&self, incoming: &Incoming<'_>) -> Dispatched {
        dispatch(&self.service, &self.connection, incoming, DocBuilder::new())
    }

    fn answer(&self, db: &str, command: RawDoc<'_>) -> (DocBuf, Outcome) {
        let body = self.body(db, command);
        let (mut incoming, mut waiting) = (incoming(&body), None);
        loop {
            let Dispatched { doc, next, .. } = self.dispatch(&incoming.again(waiting.as_ref()));
            let wait = match next {
                Next::Reply(outcome) => return (doc.finish(), outcome),
                Next::Wait(wait, op) => {
                    waiting = op;
                    wait
                }
                // A document that is not returned to clients.
                Next::HangUp => return (doc.finish(), Outcome::default()),
            };
            // Only another thread can make new data available.
            std::thread::sleep(Duration::from_millis(1).min(wait.longest()));
            incoming.repeat.waited = true;
            incoming.repeat.waited_for += Duration::from_millis(1);
        }
    }

    /// Runs a command in the shell dialect; returns the reply without the fields that every reply
    /// has ([`without_implied`]).
    pub fn run(&self, db: &str, command: &str) -> DocBuf {
        let command = match dialect::document(command, &self.env()) {
            Ok(command) => command,
            Err(why) => panic!("{why}: {command}"),
        };
        without_implied(self.run_document(db, command.as_doc()).as_doc(), "")
    }

    /// Runs a command that must succeed, without write errors; returns the reply.
    pub fn ok(&self, db: &str, command: &str) -> DocBuf {
        let reply = self.run(db, command);
        assert!(succeeded(reply.as_doc()), "{command}: {}", dialect::show(reply.as_doc()));
        reply
    }

    /// The present values of the dialect's names.
    pub fn env(&self) -> Env {
        Env { now_ms: mayfly_base::Clock::now_ms(&*self.clock), ..Env::default() }
    }

    /// Runs a TTL pass.
    pub fn ttl_pass(&mut self) {
        self.sub_pass = PassState::default();
        let never = AtomicBool::new(false);
        if let Err(error) = self.store().run_ttl_pass(&never) {
            panic!("the pass ended with {error}");
        }
    }

    /// Runs a sub-pass, which continues where the last one stopped. Returns whether there may be
    /// more due documents.
    pub fn ttl_sub_pass(&mut self) -> bool {
        let never = AtomicBool::new(false);
        let store = self.service.store.clone();
        match store.run_ttl_sub_pass(&mut self.sub_pass, &never) {
            Ok(more) => more,
            Err(error) => panic!("the sub-pass ended with {error}"),
        }
    }

    /// Makes the server the member of a replica set.
    pub fn join(&self, set: &str) {
        let now_ms = mayfly_base::Clock::now_ms(&*self.clock);
        let set = ReplicaSet::new(set.to_owned(), None, now_ms);
        assert!(self.service.replica_set.set(set).is_ok(), "it is the member of a set already");
    }

    /// Sets a parameter as a start with `--setParameter` does, until the next open.
    ///
    /// # Errors
    /// The name or the value is invalid.
    pub fn start_with(&self, name: &str, value: &str) -> Result<(), String> {
        let parameter = parameters::find(name).ok_or_else(|| format!("no parameter '{name}'"))?;
        parameter.set_starting(&self.service, value).map_err(|error| error.message().to_owned())
    }

    /// Clears the data of dropped collections and indexes.
    pub fn sweep(&self) {
        if let Err(error) = self.store().sweep_once() {
            panic!("sweeping ended with {error}");
        }
    }

    /// Brings search indexes up to date.
    pub fn follow(&self) {
        if let Err(error) = self.service.follow_now() {
            panic!("following the log ended with {error}");
        }
    }

    /// Closes the store and opens it again with the same engine or folder.
    pub fn restart(&mut self) {
        if let Err(error) = self.store().close() {
            panic!("closing ended with {error}");
        }
        self.engine = None;
        self.service = service_placeholder(&self.clock);
        let engine = (self.open)();
        self.reopen(engine);
    }

    /// Drops the store without closing it, and opens it again with the present state of the engine.
    pub fn crash(&mut self) {
        let Some(engine) = self.engine.clone() else {
            unreachable!("a fixture has an engine but while it restarts")
        };
        self.reopen(engine);
    }

    fn reopen(&mut self, engine: Arc<dyn Engine>) {
        self.service = service(engine.clone(), &self.clock, self.role);
        self.connection = connect(&self.service);
        self.engine = Some(engine);
        self.sub_pass = PassState::default();
    }
}

fn incoming(body: &DocBuf) -> Incoming<'_> {
    Incoming::new(body.as_doc())
}

/// Whether a reply is ok and has no write errors.
pub(crate) fn succeeded(reply: RawDoc<'_>) -> bool {
    reply.get("ok") == Some(RawValue::Double(1.0)) && reply.get("writeErrors").is_none()
}

/// A service without data while no store is open, so that the lock of the data folder is released.
fn service_placeholder(clock: &Arc<ManualClock>) -> Arc<Service> {
    service(Arc::new(MemoryEngine::new()), clock, StoreRole::Alone)
}

fn service(engine: Arc<dyn Engine>, clock: &Arc<ManualClock>, role: StoreRole) -> Arc<Service> {
    let ops = OpRegistry::new(clock.clone());
    let options = StoreOptions {
        background: false,
        role,
        filters: Arc::new(PartialFilters),
        ..StoreOptions::default()
    };
    let engine_name = engine.name();
    let store = match Store::open(engine, options, clock.clone(), ops.clone()) {
        Ok(store) => store,
        Err(error) => panic!("the store did not open: {error}"),
    };
    Service::new(ServiceOptions {
        store,
        ops,
        clock: clock.clone(),
        log: Arc::new(LogRing::default()),
        command_line: CommandLine { argv: vec!["mayflydb".into()], parsed: DocBuf::empty() },
        host: "test:27017".into(),
        engine_name,
        max_connections: 10,
    })
}

fn connect(service: &Service) -> Arc<Connection> {
    match service.connections.open("127.0.0.1:1".into(), String::new(), START_MS) {
        Some(connection) => connection,
        None => unreachable!("the first connection has room"),
    }
}
