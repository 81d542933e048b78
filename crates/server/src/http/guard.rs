//! Checks of every request, and the security headers of every response.
//!
//! A page of another site that an operator has open can send requests to this server with the
//! operator's browser. Three checks refuse them:
//!
//! * `Host` must be a known name. If another site gives its own name the address of this server
//!   (DNS rebinding), the browser sends that name.
//! * A request that changes something needs the header `X-MayflyDB`, which a page can send to its
//!   own server only, and an `Origin` that is this server.
//! * The session's cookie is `SameSite=Strict`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::peer::Peer;
use super::site::Site;

/// The header of requests that change something.
pub(super) const ACTION_HEADER: &str = "x-mayflydb";
/// The time in which a client sends the body of a request.
const BODY_PATIENCE: Duration = Duration::from_secs(10);
/// The largest body in bytes.
const MAX_BODY_BYTES: usize = 16 * 1024;
/// The time in which a request is answered. A refused login is delayed by 10 s at most.
const PATIENCE: Duration = Duration::from_secs(30);

const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// A refused request: the status, and a sentence for the reader of the response.
pub(super) type Refusal = (StatusCode, String);

/// Checks a request and runs it.
pub(super) async fn guard(State(site): State<Arc<Site>>, request: Request, next: Next) -> Response {
    let mut response = match check(&site, &request) {
        Err(refusal) => refusal.into_response(),
        Ok(()) => match with_body(request).await {
            Err(status) => status.into_response(),
            Ok(request) => match tokio::time::timeout(PATIENCE, next.run(request)).await {
                Ok(response) => response,
                Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
            },
        },
    };
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Reads the whole body, so that a client that sends it slowly has no place for longer than others.
async fn with_body(request: Request) -> Result<Request, StatusCode> {
    let (head, body) = request.into_parts();
    let read = tokio::time::timeout(BODY_PATIENCE, to_bytes(body, MAX_BODY_BYTES)).await;
    match read {
        Ok(Ok(body)) => Ok(Request::from_parts(head, Body::from(body))),
        // A client that is gone gets no answer.
        Ok(Err(_)) => Err(StatusCode::PAYLOAD_TOO_LARGE),
        Err(_) => Err(StatusCode::REQUEST_TIMEOUT),
    }
}

fn check(site: &Site, request: &Request) -> Result<(), Refusal> {
    let Some(peer) = request.extensions().get::<Peer>() else {
        return Err((StatusCode::INTERNAL_SERVER_ERROR, "the client is not known".to_owned()));
    };
    // Probes use any name. Their responses are one word.
    if matches!(request.uri().path(), "/healthz" | "/readyz") {
        return Ok(());
    }
    let host = check_host(site, peer, request.headers())?;
    if site.service.access.is_enforced() && peer.is_readable_by_others() {
        let text =
            "the connection is not encrypted: use https, or connect from the server's machine\n";
        return Err((StatusCode::FORBIDDEN, text.to_owned()));
    }
    let is_cross_site = text(request.headers(), "sec-fetch-site") == Some("cross-site");
    match *request.method() {
        // A link to the page from elsewhere is fine. Its events are for the page alone.
        Method::GET | Method::HEAD if is_cross_site && request.uri().path() == "/events" => {
            Err(foreign())
        }
        Method::GET | Method::HEAD => Ok(()),
        _ => check_origin(request.headers(), host),
    }
}

/// Checks the name by which the client calls this server; returns the header.
fn check_host<'r>(site: &Site, peer: &Peer, headers: &'r HeaderMap) -> Result<&'r str, Refusal> {
    let mut all = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (all.next(), all.next()) else {
        return Err((StatusCode::BAD_REQUEST, "the request needs one header Host\n".to_owned()));
    };
    let host = host.to_str().unwrap_or_default();
    let name = without_port(host).to_ascii_lowercase();
    let is_known = match name.parse::<IpAddr>() {
        Ok(address) => {
            address.is_loopback() || address.to_canonical() == peer.local.ip().to_canonical()
        }
        Err(_) => name == "localhost" || site.hosts.contains(&name),
    };
    match is_known {
        true => Ok(host),
        false => Err((
            StatusCode::MISDIRECTED_REQUEST,
            "the name in the URL is not a known name of this server: add it to net.http.hosts \
             (--httpHosts), or use an address\n"
                .to_owned(),
        )),
    }
}

/// The name of a header `Host` without the port, and without the brackets of an IPv6 address.
fn without_port(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    }
}

fn check_origin(headers: &HeaderMap, host: &str) -> Result<(), Refusal> {
    let own_header = text(headers, ACTION_HEADER) == Some("1");
    let origin = text(headers, "origin").unwrap_or_default();
    let is_same = origin
        .strip_prefix("https://")
        .or_else(|| origin.strip_prefix("http://"))
        .is_some_and(|authority| authority.eq_ignore_ascii_case(host));
    let site = text(headers, "sec-fetch-site");
    match own_header && is_same && site.is_none_or(|site| site == "same-origin") {
        true => Ok(()),
        false => Err(foreign()),
    }
}

fn foreign() -> Refusal {
    (StatusCode::FORBIDDEN, "the request does not come from the status page\n".to_owned())
}

fn text<'r>(headers: &'r HeaderMap, name: &str) -> Option<&'r str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_may_have_a_port() {
        for (host, name) in
            [("a", "a"), ("a:1", "a"), ("[::1]:1", "::1"), ("[::1]", "::1"), ("", "")]
        {
            assert_eq!(without_port(host), name);
        }
    }

    #[test]
    fn an_action_has_the_header_and_the_origin_of_the_page() {
        let is_fine = |origin: Option<&'static str>, own: bool, site: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            origin.map(|it| headers.insert("origin", HeaderValue::from_static(it)));
            site.map(|it| headers.insert("sec-fetch-site", HeaderValue::from_static(it)));
            if own {
                headers.insert(ACTION_HEADER, HeaderValue::from_static("1"));
            }
            check_origin(&headers, "localhost:27018").is_ok()
        };
        let same = Some("http://localhost:27018");
        assert!(is_fine(same, true, None) && is_fine(same, true, Some("same-origin")));
        assert!(is_fine(Some("https://LOCALHOST:27018"), true, None));
        assert!(!is_fine(same, false, None) && !is_fine(same, true, Some("same-site")));
        for origin in [None, Some("null"), Some("http://localhost"), Some("http://evil.test")] {
            assert!(!is_fine(origin, true, None), "{origin:?}");
        }
        assert!(!is_fine(Some("http://localhost:27018.evil.test"), true, None));
    }
}
