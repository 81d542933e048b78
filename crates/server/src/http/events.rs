//! `/events`: the data of the page's panels, as server-sent events.
//!
//! A task of each page reads one panel after the other, on a blocking thread, and sends what it has
//! read. An event has the panel's name and either `data`, or `error` and the `right` that the user
//! lacks.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_core::Stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::guard::Refusal;
use super::panels::{PANELS, Panel, Place};
use super::peer::Peer;
use super::run::Reader;
use super::site::Site;

/// A panel is read again after this many times the time that reading it took, or after
/// [`SHORT_REST`] if that is less: one slow read on a busy machine stops the panel for a moment.
const USUAL_REST: u32 = 500;
const SHORT_REST: Duration = Duration::from_secs(10);
/// It is never read again before this many times the time that reading it took.
const LEAST_REST: u32 = 100;
/// The interval of comments that show that the connection is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The events of one page.
pub(super) struct Feed(mpsc::Receiver<Event>);

impl Stream for Feed {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|event| event.map(Ok))
    }
}

/// `GET /events`.
pub(super) async fn events(
    State(site): State<Arc<Site>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    site.identify(&peer, &headers)?;
    // A page that does not take its events stops the task from reading more.
    let (to, from) = mpsc::channel(1);
    tokio::spawn(async move {
        tokio::select! {
            () = send_all(&site, &peer, &headers, &to) => {}
            () = to.closed() => {}
            () = site.service.shutdown.begun() => {}
        }
    });
    Ok(Sse::new(Feed(from)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// Sends the events of all panels until the session ends or the page is closed.
async fn send_all(site: &Arc<Site>, peer: &Peer, headers: &HeaderMap, to: &mpsc::Sender<Event>) {
    let mut due = vec![Instant::now(); PANELS.len()];
    let place = Arc::new(Place::default());
    loop {
        for (panel, due) in PANELS.iter().zip(&mut due) {
            let began = Instant::now();
            if *due > began {
                continue;
            }
            let (content, took) = read(site, peer, panel, &place).await;
            *due = began + panel.every.max(rest(took));
            let Ok(event) = Event::default().event(panel.name).json_data(content) else { continue };
            if to.send(event).await.is_err() {
                return;
            }
        }
        let next = due.iter().min().copied().unwrap_or_else(Instant::now);
        tokio::time::sleep_until(next).await;
        if site.identify(peer, headers).is_err() {
            let _ = to.send(Event::default().event("login").data("{}")).await;
            return;
        }
    }
}

fn rest(took: Duration) -> Duration {
    (took * USUAL_REST).min(SHORT_REST).max(took * LEAST_REST)
}

/// Reads a panel. Returns the content of its event, and how long that took.
async fn read(
    site: &Arc<Site>,
    peer: &Peer,
    panel: &'static Panel,
    place: &Arc<Place>,
) -> (Value, Duration) {
    let reader = Reader { service: site.service.clone(), connection: peer.connection.clone() };
    let (site, peer, place) = (site.clone(), peer.clone(), place.clone());
    let read = move || {
        let began = Instant::now();
        let content = match (panel.read)(&site, &peer, &reader, &place) {
            Ok(data) => json!({ "data": data }),
            Err(error) if error.is_missing_right() => json!({ "right": panel.right }),
            Err(error) => json!({ "error": error.text }),
        };
        (content, began.elapsed())
    };
    let interrupted = |_| (json!({ "error": "the server is stopping" }), Duration::ZERO);
    tokio::task::spawn_blocking(read).await.unwrap_or_else(interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_read_is_repeated_within_ten_seconds_unless_it_is_very_slow() {
        for (took_ms, rest_ms) in [(1, 500), (10, 5000), (50, 10_000), (100, 10_000), (200, 20_000)]
        {
            assert_eq!(rest(Duration::from_millis(took_ms)), Duration::from_millis(rest_ms));
        }
    }
}
