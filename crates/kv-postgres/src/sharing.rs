//! What the servers over a store know of each other, and how the owner wakes the others.
//!
//! The owner announces with NOTIFY, on the channel that has the name of the schema. Each secondary
//! listens on a connection of its own. PostgreSQL sends a notification after the commit of the
//! transaction that it is in. An announcement is a transaction of its own: PostgreSQL executes
//! commits with notifications one at a time, and the commits of clients are not to wait.
//!
//! The owner also announces with each of its beats that finds other members, so a secondary hears
//! it at least once a second. A notification that is sent while a secondary does not listen is
//! lost, and an owner that has not seen the secondary yet sends none: announcements count as
//! arriving only after the first one on a connection.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use mayfly_kv::{Members, OnAnnouncement, Sharing};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{AbortHandle, JoinSet};
use tokio_postgres::{AsyncMessage, Client, Error, NoTls};

use crate::connection::{Connection, Connector};
use crate::engine::PostgresEngine;

/// The pause before a listener connects again.
const RETRY_EVERY: Duration = Duration::from_secs(1);

impl Sharing for PostgresEngine {
    fn is_taken_over(&self) -> bool {
        self.store.pool.is_taken_over()
    }

    fn is_cut_off(&self) -> bool {
        self.store.pool.is_cut_off()
    }

    fn begin_to_hand_over(&self) {
        self.store.pool.begin_to_hand_over();
    }

    fn await_take_over(&self) -> bool {
        self.store.pool.await_take_over()
    }

    fn members(&self) -> Members {
        self.store.pool.members()
    }

    fn announce(&self) {
        let (pool, schema) = (&self.store.pool, &self.store.schema);
        if pool.has_others()
            && let Ok(reader) = pool.reader(self.store.deadline())
        {
            announce(&reader, schema);
        }
    }

    fn listen(&self, call: OnAnnouncement) -> Arc<AtomicBool> {
        let listens = Arc::<AtomicBool>::default();
        let listener = Listener { call, listens: listens.clone() };
        *self.store.listening.lock() = Some(self.store.pool.connector.listen(listener));
        listens
    }
}

/// Wakes the secondaries that listen. Does not wait for a reply.
pub(crate) fn announce(connection: &Connection, schema: &str) {
    connection.send_and_forget(&format!("notify \"{schema}\""));
}

/// The function of a secondary that is called, and whether announcements reach it.
struct Listener {
    call: OnAnnouncement,
    listens: Arc<AtomicBool>,
}

impl Connector {
    /// Listens until the task is aborted.
    fn listen(&self, listener: Listener) -> AbortHandle {
        let (connector, listener) = (self.clone(), Arc::new(listener));
        let task = self.runtime.spawn(async move {
            loop {
                let (own, called) = (connector.clone(), listener.clone());
                // It ends with this task, and when all connections are given up.
                let mut connected = JoinSet::new();
                let task = connected.spawn(async move { own.listen_once(&called).await });
                connector.tasks.add(&task);
                if let Some(Ok(Err(error))) = connected.join_next().await {
                    tracing::debug!(%error, "announcements of the primary do not arrive");
                }
                listener.listens.store(false, Ordering::Release);
                (listener.call)();
                tokio::time::sleep(RETRY_EVERY).await;
            }
        });
        task.abort_handle()
    }

    /// Connects, and listens until the connection is lost.
    async fn listen_once(&self, listener: &Listener) -> Result<(), Error> {
        let (config, text) =
            (&self.target.config, format!("{}; listen \"{}\"", self.settings, self.schema));
        match self.target.tls.clone() {
            Some(tls) => {
                let (client, connection) = config.connect(tls).await?;
                follow(client, connection, &text, listener).await
            }
            None => {
                let (client, connection) = config.connect(NoTls).await?;
                follow(client, connection, &text, listener).await
            }
        }
    }
}

/// Executes the statements and calls the listener for each notification.
async fn follow<S, T>(
    client: Client,
    mut connection: tokio_postgres::Connection<S, T>,
    statements: &str,
    listener: &Listener,
) -> Result<(), Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut beginning = pin!(client.batch_execute(statements));
    let mut has_begun = false;
    poll_fn(|context| {
        loop {
            if !has_begun && let Poll::Ready(begun) = beginning.as_mut().poll(context) {
                begun?;
                has_begun = true;
                // Something may have been announced before.
                (listener.call)();
            }
            match connection.poll_message(context) {
                Poll::Ready(Some(Ok(AsyncMessage::Notification(_)))) => {
                    listener.listens.store(true, Ordering::Release);
                    (listener.call)();
                }
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}
