//! Open connections: who they are, and a way to tell each to end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use mayfly_value::DocBuf;
use parking_lot::Mutex;

use crate::Shutdown;

/// One connection.
pub struct Connection {
    /// `connectionId`, positive.
    pub id: i64,
    /// The client's `address:port`.
    pub client: Arc<str>,
    /// The address that it connected to.
    pub local: String,
    /// When it was opened, in milliseconds since 1970.
    pub opened_ms: i64,
    /// Tells its task to end.
    pub close: Shutdown,
    desc: Arc<str>,
    info: Mutex<ClientInfo>,
}

/// What the client said about itself in its handshake.
#[derive(Clone, Debug, Default)]
pub struct ClientInfo {
    /// The application's name, empty when it has none.
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
            desc: format!("conn{id}").into(),
            info: Mutex::new(ClientInfo::default()),
        }
    }

    /// `conn12`.
    pub fn desc(&self) -> &Arc<str> {
        &self.desc
    }

    /// What the client said about itself.
    pub fn info(&self) -> ClientInfo {
        self.info.lock().clone()
    }

    /// The application's name, empty when it has none.
    pub fn app_name(&self) -> String {
        self.info.lock().app_name.clone()
    }

    /// Takes what the client says about itself. False when it said so before.
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
    next_id: AtomicI64,
    open: Mutex<BTreeMap<i64, Arc<Connection>>>,
}

impl Connections {
    pub(crate) fn new(max: usize) -> Connections {
        Connections { max, next_id: AtomicI64::new(1), open: Mutex::new(BTreeMap::new()) }
    }

    /// Registers a connection; nothing when there are as many as may be.
    pub fn open(&self, client: String, local: String, now_ms: i64) -> Option<Arc<Connection>> {
        let mut open = self.open.lock();
        if open.len() >= self.max {
            return None;
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection::new(id, client, local, now_ms));
        open.insert(id, connection.clone());
        Some(connection)
    }

    /// The connection is gone.
    pub fn closed(&self, id: i64) {
        self.open.lock().remove(&id);
    }

    /// The open connection with this id.
    pub fn get(&self, id: i64) -> Option<Arc<Connection>> {
        self.open.lock().get(&id).cloned()
    }

    /// Those that are open, ascending by id.
    pub fn list(&self) -> Vec<Arc<Connection>> {
        self.open.lock().values().cloned().collect()
    }

    /// How many are open.
    pub fn current(&self) -> usize {
        self.open.lock().len()
    }

    /// How many more there may be.
    pub fn available(&self) -> usize {
        self.max.saturating_sub(self.current())
    }

    /// How many there ever were.
    pub fn total_created(&self) -> i64 {
        self.next_id.load(Ordering::Relaxed) - 1
    }
}
