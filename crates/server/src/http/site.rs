//! The state that all HTTP connections of a server share, and the routes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use axum::routing::{get, post};
use axum::{Router, middleware};
use mayfly_service::Service;
use mayfly_service::observe::Samples;
use secrecy::SecretString;

use super::policies::Policies;
use super::sessions::Sessions;
use super::{actions, assets, events, guard, health, history, login, metrics};
use crate::config::HttpOptions;
use crate::failure::{Failure, FailureKind};
use crate::tls::Transport;

/// The shortest token for the metrics.
const LEAST_TOKEN: usize = 16;

/// The state that all HTTP connections of a server share.
pub(super) struct Site {
    pub(super) service: Arc<Service>,
    pub(super) transport: Arc<Transport>,
    /// Names of this server in URLs, in addition to its addresses.
    pub(super) hosts: Vec<String>,
    pub(super) is_read_only: bool,
    /// The token that gives access to the metrics.
    pub(super) token: Option<SecretString>,
    pub(super) sessions: Sessions,
    /// The history of the figures.
    pub(super) samples: Samples,
    /// The lag of the TTL policies, and its history.
    pub(super) policies: Policies,
    /// Whether the disk was nearly full at the last sample.
    pub(super) is_disk_nearly_full: AtomicBool,
    /// The names of the commands, by their index in the command table.
    pub(super) commands: Vec<&'static str>,
}

impl Site {
    pub(super) fn new(
        service: &Arc<Service>,
        transport: &Arc<Transport>,
        (options, token): (&HttpOptions, Option<SecretString>),
    ) -> Site {
        Site {
            service: service.clone(),
            transport: transport.clone(),
            hosts: options.hosts.clone(),
            is_read_only: options.read_only,
            token,
            sessions: Sessions::default(),
            samples: Samples::default(),
            policies: Policies::default(),
            is_disk_nearly_full: AtomicBool::new(false),
            commands: mayfly_commands::registry::commands()
                .iter()
                .map(|command| command.row.name)
                .collect(),
        }
    }

    /// The routes of the site.
    pub(super) fn router(self: &Arc<Site>) -> Router {
        Router::new()
            .route("/", get(assets::index))
            .route("/login", get(assets::login).post(login::log_in))
            .route("/logout", post(login::log_out))
            .route("/events", get(events::events))
            .route("/history", get(history::history))
            .route("/actions/{name}", post(actions::act))
            .route("/page/{name}", get(assets::file))
            .route("/robots.txt", get(assets::robots))
            .route("/favicon.ico", get(assets::icon))
            .route("/metrics", get(metrics::metrics))
            .route("/healthz", get(health::healthz))
            .route("/readyz", get(health::readyz))
            .layer(middleware::from_fn_with_state(self.clone(), guard::guard))
            .with_state(self.clone())
    }
}

/// Reads the token for the metrics.
///
/// # Errors
/// A file that cannot be read, or whose token is too short.
pub(super) fn read_token(options: &HttpOptions) -> anyhow::Result<Option<SecretString>> {
    let Some(path) = &options.token_file else { return Ok(None) };
    let failure = |advice: &str| {
        let tried = format!("cannot use the token file {}", path.display());
        Failure::new(FailureKind::Options, tried, advice)
    };
    let text = std::fs::read_to_string(path)
        .with_context(|| failure("correct net.http.tokenFile or --httpTokenFile"))?;
    let token = text.trim();
    if token.len() < LEAST_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(anyhow::anyhow!("the token is too short, or has characters other than ASCII"))
            .context(failure("write at least 16 random characters into it"));
    }
    Ok(Some(SecretString::from(token)))
}
