//! The login on the page, and the users of requests.
//!
//! The server runs the client's side of SCRAM-SHA-256 against itself, through the commands
//! `saslStart` and `saslContinue`. The stored credentials, the delay after failures, the log and
//! the audit log are therefore the same as for a client that logs in.

use std::sync::Arc;

use axum::extract::{Extension, Json, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mayfly_auth::{Action, Mechanism, Target};
use mayfly_service::access::LoggedIn;
use mayfly_value::{DocBuf, RawValue};
use secrecy::{ExposeSecret, SecretString};

use super::guard::Refusal;
use super::peer::Peer;
use super::run::{CommandError, command};
use super::sessions::{LASTS_SECS, TOKEN_BYTES};
use super::site::Site;
use crate::client::{Exchange, UriUser};

/// The name of the cookie.
const COOKIE: &str = "mayflydb_session";
/// How long a login by Basic authentication is remembered, in seconds: checking a password takes
/// milliseconds, and metrics are read every few seconds.
const BASIC_SECS: i64 = 60;
/// The longest name or password.
const MAX_TEXT: usize = 1024;

/// The fields of the form.
#[derive(Default)]
pub(super) struct Form {
    user: String,
    password: SecretString,
    database: String,
}

impl Form {
    fn parse(body: &serde_json::Value) -> Option<Form> {
        let field = |name: &str| {
            let text = body.get(name)?.as_str()?;
            (text.len() <= MAX_TEXT).then(|| text.to_owned())
        };
        let database = field("database").filter(|name| !name.is_empty());
        Some(Form {
            user: field("user")?,
            password: field("password")?.into(),
            database: database.unwrap_or_else(|| "admin".to_owned()),
        })
    }
}

/// `POST /login`: checks the password and begins a session.
pub(super) async fn log_in(
    State(site): State<Arc<Site>>,
    Extension(peer): Extension<Peer>,
    Json(body): Json<serde_json::Value>,
) -> Response {
    let Some(form) = Form::parse(&body) else {
        return (StatusCode::BAD_REQUEST, "a name and a password are needed\n").into_response();
    };
    match site.check_password(&peer, form).await {
        Ok(user) => {
            let now = site.service.clock.monotonic_micros();
            let token = site.sessions.begin(user, peer.remote.ip(), now);
            (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie(&peer, &token, LASTS_SECS))])
                .into_response()
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// `POST /logout`: ends the session.
pub(super) async fn log_out(
    State(site): State<Arc<Site>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Response {
    if let Some(token) = token(&headers) {
        site.sessions.end(token);
    }
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie(&peer, "", 0))]).into_response()
}

fn cookie(peer: &Peer, token: &str, lasts: i64) -> HeaderValue {
    let secure = if peer.is_encrypted { "; Secure" } else { "" };
    let text =
        format!("{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={lasts}{secure}");
    // The token consists of letters, digits, `-` and `_`.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}

/// The token of the session in the request's cookies.
fn token(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|it| it.to_str().ok());
    let pairs = cookies.flat_map(|cookies| cookies.split(';'));
    let mut named = pairs.filter_map(|pair| pair.trim().split_once('='));
    named.find(|(name, token)| *name == COOKIE && token.len() == TOKEN_BYTES).map(|(_, it)| it)
}

fn unauthenticated(text: &str) -> Refusal {
    (StatusCode::UNAUTHORIZED, format!("{text}\n"))
}

impl Site {
    /// Sets the user on whose behalf the commands of a request run.
    ///
    /// # Errors
    /// 401 if the server needs a login and the request has no valid session.
    pub(super) fn identify(&self, peer: &Peer, headers: &HeaderMap) -> Result<(), Refusal> {
        if !self.service.access.is_enforced() {
            return Ok(());
        }
        let now = self.service.clock.monotonic_micros();
        let found = token(headers)
            .and_then(|token| self.sessions.find(token, peer.remote.ip(), now).map(|u| (token, u)));
        let Some((token, user)) = found else {
            peer.connection.access.set(None);
            return Err(unauthenticated("log in first"));
        };
        peer.connection.access.set(Some(user));
        if !self.is_identified(peer) {
            self.sessions.end(token);
            return Err(unauthenticated("the user has changed: log in again"));
        }
        Ok(())
    }

    /// Whether the user of the connection still exists; always without authorization.
    pub(super) fn is_identified(&self, peer: &Peer) -> bool {
        let access = &self.service.access;
        !access.is_enforced()
            || matches!(access.user(&self.service.store, &peer.connection), Ok(Some(_)))
    }

    /// Whether a request may read the metrics: by the token, or by a user with the right.
    ///
    /// # Errors
    /// 401 without a login, 403 without the right.
    pub(super) async fn admit_reader(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
    ) -> Result<(), Refusal> {
        if !self.service.access.is_enforced() {
            return Ok(());
        }
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        match given.and_then(|text| text.split_once(' ')) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
                let is_it = self
                    .token
                    .as_ref()
                    .is_some_and(|known| is_same(known.expose_secret(), token.trim()));
                return if is_it { Ok(()) } else { Err(unauthenticated("the token is wrong")) };
            }
            Some((scheme, text)) if scheme.eq_ignore_ascii_case("basic") => {
                self.identify_basic(peer, text.trim()).await?;
            }
            _ => self.identify(peer, headers)?,
        }
        self.check_right(peer)
    }

    /// Checks that the user may read the server's figures.
    ///
    /// # Errors
    /// 403 without the right.
    pub(super) fn check_right(&self, peer: &Peer) -> Result<(), Refusal> {
        let service = &self.service;
        let authority = service.access.authority(&service.store, &peer.connection);
        match authority.is_ok_and(|it| it.allows(Target::Cluster, Action::ServerStatus)) {
            true => Ok(()),
            false => {
                let text = "needs the right serverStatus, which the role clusterMonitor has\n";
                Err((StatusCode::FORBIDDEN, text.to_owned()))
            }
        }
    }

    async fn identify_basic(&self, peer: &Peer, text: &str) -> Result<(), Refusal> {
        let (address, now) = (peer.remote.ip(), self.service.clock.monotonic_micros());
        // The prefix keeps it apart from tokens of sessions.
        let key = format!("Basic {text}");
        if let Some(user) = self.sessions.find(&key, address, now) {
            peer.connection.access.set(Some(user));
            if self.is_identified(peer) {
                return Ok(());
            }
        }
        let decoded = STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let Some((user, password)) = decoded.as_deref().and_then(|text| text.split_once(':'))
        else {
            return Err(unauthenticated("the header Authorization is invalid"));
        };
        let body = serde_json::json!({ "user": user, "password": password });
        let Some(form) = Form::parse(&body) else {
            return Err(unauthenticated("the header Authorization is invalid"));
        };
        let user = self.check_password(peer, form).await?;
        self.sessions.put(&key, user, address, (now, BASIC_SECS));
        Ok(())
    }

    /// Logs a user in on the peer's connection.
    async fn check_password(&self, peer: &Peer, form: Form) -> Result<Arc<LoggedIn>, Refusal> {
        let failed = |error: CommandError| {
            let (client, code) = (&*peer.connection.client, error.code);
            tracing::debug!(client, code, "a login on the status page failed");
            unauthenticated("the name or the password is wrong")
        };
        let wrong = || unauthenticated("the name or the password is wrong");
        peer.connection.access.set(None);
        let user =
            UriUser { name: form.user, password: form.password, source: form.database.clone() };
        let exchange = Exchange::begin(user, STANDARD.encode(rand::random::<[u8; 24]>()));
        let start = command(&form.database, "saslStart", 1, |doc| {
            doc.append("mechanism", Mechanism::ScramSha256.name());
            doc.append("payload", binary(&exchange.first()));
            doc.start_document("options").append("skipEmptyExchange", true).end();
        });
        let reply = self.run(peer, start).await.map_err(failed)?;
        let server_first = payload(&reply).ok_or_else(wrong)?;
        // Deriving a key from the password takes milliseconds.
        let proved = tokio::task::spawn_blocking(move || exchange.prove(&server_first)).await.ok();
        let proof = proved.and_then(Result::ok).ok_or_else(wrong)?;
        let next = command(&form.database, "saslContinue", 1, |doc| {
            doc.append("conversationId", 1).append("payload", binary(&proof.message));
        });
        self.run(peer, next).await.map_err(failed)?;
        peer.connection.access.user().ok_or_else(wrong)
    }
}

/// Compares two secrets in a time that does not depend on how much of them is equal.
fn is_same(one: &str, other: &str) -> bool {
    use sha2::{Digest, Sha256};
    Sha256::digest(one) == Sha256::digest(other)
}

fn binary(text: &str) -> RawValue<'_> {
    RawValue::Binary { subtype: 0, bytes: text.as_bytes() }
}

fn payload(reply: &DocBuf) -> Option<String> {
    match reply.as_doc().get("payload") {
        Some(RawValue::Binary { bytes, .. }) => String::from_utf8(bytes.to_vec()).ok(),
        _ => None,
    }
}
