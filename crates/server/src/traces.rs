//! Sends traces of commands to a collector, as OTLP over HTTP in JSON.
//!
//! Each traced command is a span with the command's name, database and collection, and has up to
//! two spans inside: `plan`, the choice of its plans, and `sync`, the wait of its reply for the
//! log. Values of clients are in none of them.
//!
//! The format is written by hand: the crates of OpenTelemetry take as long to compile as the whole
//! status page, their layer would see every event of the log, and their queue does not count what
//! it drops. A batch that the collector does not take is dropped, so that traces need a bounded
//! memory whatever the collector does.

mod format;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use mayfly_service::{CommandTrace, Service};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::config::TraceOptions;
use crate::failure::{Failure, FailureKind};

/// The most commands that wait for the exporter; the traces of others are dropped.
const QUEUE: usize = 4096;
/// The most commands of one request, and the longest time that a trace waits for others.
const BATCH: usize = 256;
const BATCH_EVERY: Duration = Duration::from_secs(1);
/// The time of one request.
const PATIENCE: Duration = Duration::from_secs(10);
/// The interval of log lines about a collector that fails.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// The time for the last batches when the server stops.
const FAREWELL: Duration = Duration::from_secs(2);

/// The running exporter.
pub(crate) struct Exporter {
    task: JoinHandle<()>,
    stop: Arc<Notify>,
}

/// The state of the exporter's task.
struct Sender {
    service: Arc<Service>,
    client: reqwest::Client,
    url: reqwest::Url,
    /// When a failure may be logged again.
    next_line: Option<Instant>,
}

impl Exporter {
    /// Begins to trace commands, if the configuration names a collector.
    ///
    /// # Errors
    /// A header that HTTP does not allow; no certificates of authorities, for `https`.
    pub(crate) fn start(
        service: &Arc<Service>,
        options: Option<&TraceOptions>,
    ) -> anyhow::Result<Option<Exporter>> {
        let Some(options) = options else { return Ok(None) };
        let client = client(options).with_context(|| {
            let advice = "correct traces.endpoint and traces.headers";
            Failure::new(FailureKind::Options, "cannot send traces to a collector", advice)
        })?;
        let (to, from) = mpsc::channel(QUEUE);
        let stop = Arc::new(Notify::new());
        let url = options.url.clone();
        let sender = Sender { service: service.clone(), client, url, next_line: None };
        let task = tokio::spawn(sender.run(from, stop.clone()));
        service.traces.start(to, options.share);
        let host = options.url.host_str().unwrap_or_default();
        tracing::info!(host, share = options.share, "commands are traced");
        Ok(Some(Exporter { task, stop }))
    }

    /// Sends what is left, for as long as [`FAREWELL`].
    pub(crate) async fn stop(self) {
        self.stop.notify_one();
        let mut task = self.task;
        if tokio::time::timeout(FAREWELL, &mut task).await.is_err() {
            task.abort();
        }
    }
}

fn client(options: &TraceOptions) -> anyhow::Result<reqwest::Client> {
    // `reqwest` is built without a cryptographic library and uses that of the process. An error
    // means that one was installed before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in &options.headers {
        let mut value = HeaderValue::from_str(value.expose_secret())
            .with_context(|| format!("the value of the header '{name}'"))?;
        value.set_sensitive(true);
        headers.insert(name.parse::<HeaderName>()?, value);
    }
    let builder = reqwest::Client::builder().default_headers(headers).timeout(PATIENCE);
    Ok(builder.redirect(reqwest::redirect::Policy::none()).build()?)
}

impl Sender {
    async fn run(mut self, mut from: mpsc::Receiver<CommandTrace>, stop: Arc<Notify>) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            tokio::select! {
                () = stop.notified() => break,
                _ = from.recv_many(&mut batch, BATCH) => {}
            }
            let until = Instant::now() + BATCH_EVERY;
            let mut is_last = false;
            while batch.len() < BATCH && !is_last {
                let left = BATCH - batch.len();
                tokio::select! {
                    () = stop.notified() => is_last = true,
                    () = tokio::time::sleep_until(until) => break,
                    _ = from.recv_many(&mut batch, left) => {}
                }
            }
            self.send(&mut batch).await;
            if is_last {
                break;
            }
        }
        while let Ok(trace) = from.try_recv() {
            batch.push(trace);
            if batch.len() == BATCH {
                self.send(&mut batch).await;
            }
        }
        self.send(&mut batch).await;
    }

    /// Sends the commands of a batch, and empties it.
    async fn send(&mut self, batch: &mut Vec<CommandTrace>) {
        if batch.is_empty() {
            return;
        }
        let count = batch.len() as u64;
        let body = format::request(&self.service, batch);
        batch.clear();
        let counts = &self.service.traces;
        match self.post(body).await {
            Ok(()) => {
                counts.sent.fetch_add(count, Ordering::Relaxed);
            }
            Err(error) => {
                counts.refused.fetch_add(count, Ordering::Relaxed);
                self.log(&error);
            }
        }
    }

    async fn post(&self, body: String) -> anyhow::Result<()> {
        // The address may have a password.
        let sent = self.client.post(self.url.clone()).body(body).send().await;
        let answer = sent.map_err(reqwest::Error::without_url)?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => anyhow::bail!("the collector answers {status}"),
        }
    }

    fn log(&mut self, error: &anyhow::Error) {
        let now = Instant::now();
        if self.next_line.is_some_and(|next| now < next) {
            return;
        }
        self.next_line = Some(now + LOG_EVERY);
        let counts = &self.service.traces;
        tracing::warn!(
            error = format!("{error:#}"),
            refused = counts.refused.load(Ordering::Relaxed),
            overflowed = counts.overflowed.load(Ordering::Relaxed),
            "traces are lost, because the collector does not take them"
        );
    }
}
