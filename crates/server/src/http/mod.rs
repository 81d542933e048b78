//! The status page, the metrics and the checks of health, over HTTP.
//!
//! Without `net.http.address` nothing of this module runs. The way of a request:
//!
//! 1. [`listen`] accepts the connection, one of 64, with TLS if the server has a certificate. hyper
//!    reads the request within limits of size and time.
//! 2. [`guard`] checks the name in `Host`, and for actions `Origin` and a header that other pages
//!    cannot send. It reads the body within a time, and adds the security headers to the response.
//! 3. [`login`] finds the user: by the cookie of a session, or by Basic authentication for the
//!    metrics.
//! 4. A page's data comes from commands, which [`run`] dispatches as that user, so that rights,
//!    audit and redaction are those of a client. [`panels`] is the table of the page's panels, and
//!    [`events`] sends them as server-sent events.
//! 5. [`metrics`] writes the rows of `service/src/observe` as text for Prometheus.
//!
//! The files of the page are in `page/` and are part of the binary.

mod actions;
mod assets;
mod events;
mod guard;
mod health;
mod history;
mod json;
mod listen;
mod login;
mod metrics;
mod metrics_text;
mod panels;
mod peer;
mod policies;
mod run;
mod sessions;
mod site;

use std::sync::Arc;

use mayfly_service::Service;
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::config::{Config, HttpOptions};
use crate::tls::Transport;
use site::Site;

/// What the start of the server checks before it opens the data.
pub(crate) struct Prepared {
    pub(crate) listeners: Vec<TcpListener>,
    options: HttpOptions,
    token: Option<SecretString>,
}

impl Prepared {
    /// Listens, and reads the file with the token.
    ///
    /// # Errors
    /// An address that is in use, or not allowed without a login and encryption; a token file that
    /// cannot be used.
    pub(crate) async fn open(config: &Config) -> anyhow::Result<Prepared> {
        let options = config.http.clone();
        let token = match options.addresses.is_empty() {
            true => None,
            false => site::read_token(&options)?,
        };
        Ok(Prepared { listeners: listen::listen(config).await?, options, token })
    }

    /// Starts to serve; does nothing if no address is configured.
    pub(crate) fn start(
        self,
        tasks: &mut JoinSet<()>,
        service: &Arc<Service>,
        transport: &Arc<Transport>,
    ) {
        if self.listeners.is_empty() {
            return;
        }
        let site = Arc::new(Site::new(service, transport, (&self.options, self.token)));
        tasks.spawn(history::sample(site.clone()));
        let places = listen::places();
        for listener in self.listeners {
            if let Ok(address) = listener.local_addr() {
                tracing::info!(%address, "the status page and the metrics are served");
            }
            tasks.spawn(listen::serve(listener, site.clone(), places.clone()));
        }
    }
}
