//! `/healthz` and `/readyz`, for probes of service managers and load balancers.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use super::site::Site;

/// Answers as long as the process serves requests.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Answers 200 if the server accepts commands of clients.
pub(super) async fn readyz(State(site): State<Arc<Site>>) -> (StatusCode, &'static str) {
    match site.service.shutdown.has_begun() {
        true => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n"),
        false => (StatusCode::OK, "ready\n"),
    }
}
