//! Open connections: their clients, and a signal to end each of them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use mayfly_value::DocBuf;
use parking_lot::Mutex;

use crate::clients::ConnectionAccess;
use crate::process::Shutdown;

/// A client's connection, as `currentOp` and the limits on connections see it.
pub struct Connection {
    /// The `connectionId` of `hello`; positive, and never used again.
    pub id: i64,
    /// The client's `address:port`.
    pub client: Arc<str>,
    /// The server's address that the client connected to.
    pub local: String,
    /// When it was opened, in milliseconds since 1970.
    pub opened_ms: i64,
    /// Signals the connection's task to end.
    pub close: Shutdown,
    /// Checks whether the client has disconnected while one of its commands runs; unset without a
    /// network.
    pub is_gone: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
    /// The login state.
    pub access: ConnectionAccess,
    /// The connection's key in `Open::unauthenticated` while it is there.
    unauthenticated_number: AtomicU64,
    desc: Arc<str>,
    info: Mutex<ClientInfo>,
}

/// The client's description of itself in the handshake.
#[derive(Clone, Debug, Default)]
pub struct ClientInfo {
    /// The application's name, or empty.
    pub app_name: String,
    /// The whole `client` document.
    pub metadata: Option<DocBuf>,
}

impl Connection {
    /// A connection outside any registry, for tests.
    pub fn detached(id: i64, client: &str) -> Arc<Connection> {
        Arc::new(Connection::new(id, client.to_owned(), String::new(), 0))
    }

    fn new(id: i64, client: String, local: String, opened_ms: i64) -> Connection {
        Connection {
            id,
            client: client.into(),
            local,
            opened_ms,
            close: Shutdown::default(),
            is_gone: OnceLock::new(),
            access: ConnectionAccess::default(),
            unauthenticated_number: AtomicU64::new(0),
            desc: format!("conn{id}").into(),
            info: Mutex::new(ClientInfo::default()),
        }
    }

    /// The name in the log and in `currentOp`: `conn` and the id, such as `conn12`.
    pub fn desc(&self) -> &Arc<str> {
        &self.desc
    }

    /// The client's description of itself.
    pub fn info(&self) -> ClientInfo {
        self.info.lock().clone()
    }

    /// The application's name, or empty.
    pub fn app_name(&self) -> String {
        self.info.lock().app_name.clone()
    }

    /// Stores the client's description of itself. Returns false when there is one already.
    pub fn set_info(&self, info: ClientInfo) -> bool {
        let mut current = self.info.lock();
        if current.metadata.is_some() {
            return false;
        }
        *current = info;
        true
    }
}

/// All open connections.
pub struct Connections {
    max: usize,
    /// `maxConnectionsPerAddress`; 0 for as many as there may be.
    pub max_per_address: AtomicI64,
    /// The largest number of connections without a login; 0 for no limit of their own.
    max_unauthenticated: AtomicUsize,
    next_id: AtomicI64,
    /// The number of ids of connections that are not of the wire protocol.
    outside: AtomicI64,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    by_id: BTreeMap<i64, Arc<Connection>>,
    /// The number of connections from each address.
    by_address: HashMap<String, i64>,
    /// Connections without a login, by an ascending number; only filled while their number is
    /// limited.
    unauthenticated: BTreeMap<u64, Arc<Connection>>,
    /// The number of the newest connection without a login.
    last_number: u64,
}

/// The address of a client without its port.
fn address(client: &str) -> &str {
    client.rsplit_once(':').map_or(client, |(address, _)| address)
}

impl Connections {
    pub(crate) fn new(max: usize) -> Connections {
        Connections {
            max,
            max_per_address: AtomicI64::new(0),
            max_unauthenticated: AtomicUsize::new(0),
            next_id: AtomicI64::new(1),
            outside: AtomicI64::new(0),
            open: Mutex::default(),
        }
    }

    /// Registers a connection. Returns `None` when the limit of all connections or of the client's
    /// address is reached.
    pub fn open(&self, client: String, local: String, now_ms: i64) -> Option<Arc<Connection>> {
        let mut open = self.open.lock();
        if open.by_id.len() >= self.max {
            return None;
        }
        let most = self.max_per_address.load(Ordering::Relaxed);
        let of_address = open.by_address.entry(address(&client).to_owned()).or_default();
        if most > 0 && *of_address >= most {
            return None;
        }
        *of_address += 1;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection::new(id, client, local, now_ms));
        open.by_id.insert(id, connection.clone());
        self.add_unauthenticated(&mut open, &connection);
        Some(connection)
    }

    /// A connection that is not of the wire protocol, such as one of the status page. It has an id
    /// of its own, and no limit or count includes it.
    pub fn outside(&self, client: String, local: String, now_ms: i64) -> Arc<Connection> {
        self.outside.fetch_add(1, Ordering::Relaxed);
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Arc::new(Connection::new(id, client, local, now_ms))
    }

    /// Reserves half of the connections for clients that log in: when more are unauthenticated, the
    /// one that has been so for the longest time is closed.
    pub fn limit_unauthenticated(&self) {
        self.max_unauthenticated.store((self.max / 2).max(1), Ordering::Relaxed);
    }

    fn add_unauthenticated(&self, open: &mut Open, connection: &Arc<Connection>) {
        let most = self.max_unauthenticated.load(Ordering::Relaxed);
        if most == 0 {
            return;
        }
        open.last_number += 1;
        connection.unauthenticated_number.store(open.last_number, Ordering::Relaxed);
        open.unauthenticated.insert(open.last_number, connection.clone());
        while open.unauthenticated.len() > most
            && let Some((_, oldest)) = open.unauthenticated.pop_first()
        {
            oldest.close.request();
        }
    }

    /// Records a login on a connection.
    pub fn logged_in(&self, connection: &Connection) {
        let number = connection.unauthenticated_number.load(Ordering::Relaxed);
        self.open.lock().unauthenticated.remove(&number);
    }

    /// Records a logout on a connection.
    pub fn logged_out(&self, connection: &Arc<Connection>) {
        let mut open = self.open.lock();
        let number = connection.unauthenticated_number.load(Ordering::Relaxed);
        open.unauthenticated.remove(&number);
        self.add_unauthenticated(&mut open, connection);
    }

    /// Removes a closed connection.
    pub fn closed(&self, id: i64) {
        let mut open = self.open.lock();
        let Some(gone) = open.by_id.remove(&id) else { return };
        open.unauthenticated.remove(&gone.unauthenticated_number.load(Ordering::Relaxed));
        if let Entry::Occupied(mut left) = open.by_address.entry(address(&gone.client).to_owned()) {
            *left.get_mut() -= 1;
            if *left.get() == 0 {
                left.remove();
            }
        }
    }

    /// The open connection with this id.
    pub fn get(&self, id: i64) -> Option<Arc<Connection>> {
        self.open.lock().by_id.get(&id).cloned()
    }

    /// The open connections, ascending by id.
    pub fn list(&self) -> Vec<Arc<Connection>> {
        self.open.lock().by_id.values().cloned().collect()
    }

    /// The number of open connections.
    pub fn current(&self) -> usize {
        self.open.lock().by_id.len()
    }

    /// The number of connections that may still be opened.
    pub fn available(&self) -> usize {
        self.max.saturating_sub(self.current())
    }

    /// The number of connections since the start.
    pub fn total_created(&self) -> i64 {
        self.next_id.load(Ordering::Relaxed) - 1 - self.outside.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_give_their_places_to_newer_ones() {
        let all = Connections::new(6);
        all.limit_unauthenticated();
        let open = || all.open("10.0.0.1:5".to_owned(), String::new(), 0).unwrap();
        let (known, first, second) = (open(), open(), open());
        all.logged_in(&known);
        let _third = open();
        assert!(!first.close.is_requested());
        let _fourth = open();
        assert!(first.close.is_requested() && !second.close.is_requested());
        // `known` has been unauthenticated only since its logout.
        all.logged_out(&known);
        assert!(second.close.is_requested() && !known.close.is_requested());
        all.logged_out(&known);
        assert_eq!(all.open.lock().unauthenticated.len(), 3);
        all.list().iter().for_each(|one| all.closed(one.id));
        assert!(all.open.lock().unauthenticated.is_empty());
    }

    #[test]
    fn an_address_has_a_limit_of_its_own() {
        let all = Connections::new(4);
        let open = |client: &str| all.open(client.to_owned(), String::new(), 0);
        all.max_per_address.store(2, Ordering::Relaxed);
        let (first, _second) = (open("10.0.0.1:5").unwrap(), open("10.0.0.1:6").unwrap());
        assert!(open("10.0.0.1:7").is_none() && open("[::1]:7").is_some());
        all.closed(first.id);
        all.closed(first.id);
        assert!(open("10.0.0.1:8").is_some() && open("10.0.0.1:9").is_none());
        all.max_per_address.store(0, Ordering::Relaxed);
        assert!(open("10.0.0.1:9").is_some() && open("10.0.0.2:1").is_none());
        all.list().iter().for_each(|one| all.closed(one.id));
        assert!(all.open.lock().by_address.is_empty());
    }
}
