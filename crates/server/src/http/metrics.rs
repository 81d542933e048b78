//! `/metrics`: the rows of the table of figures, latencies as histograms, and the lag of the TTL
//! policies.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use mayfly_service::Service;
use mayfly_service::observe::{FigureKind, LATENCY_QUANTILES, Reading, figures};

use super::guard::Refusal;
use super::metrics_text::{FamilyKind, MetricsText, TextFormat, append_number};
use super::peer::Peer;
use super::site::Site;

/// Buckets of latencies have each second bound of the histogram, a factor of 2 to 4 apart.
const EVERY_BOUND: usize = 2;

/// `GET /metrics`.
pub(super) async fn metrics(
    State(site): State<Arc<Site>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Response {
    if let Err(refusal) = site.admit_reader(&peer, &headers).await {
        return refused(refusal);
    }
    let accept = headers.get(header::ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let format = TextFormat::accepted(accept);
    let written = tokio::task::spawn_blocking(move || write(&site, format)).await;
    match written {
        Ok(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn refused(refusal: Refusal) -> Response {
    let wants_login = refusal.0 == StatusCode::UNAUTHORIZED;
    let mut response = refusal.into_response();
    if wants_login {
        let challenge = header::HeaderValue::from_static("Basic realm=\"MayflyDB\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

fn write(site: &Site, format: TextFormat) -> String {
    let mut text = MetricsText::new(format);
    write_figures(site, &mut text);
    write_latencies(&site.service, &mut text);
    write_single(&site.service, &mut text);
    text.finish()
}

/// The rows of the table. Those with the same name are one family.
fn write_figures(site: &Site, text: &mut MetricsText) {
    let reading = Reading::new(&site.service, &site.commands);
    let mut rows: Vec<_> = figures().filter(|row| row.kind != FigureKind::Expected).collect();
    rows.sort_by_key(|row| row.name);
    let mut begun = "";
    for row in rows {
        let kind = match row.kind {
            FigureKind::Counter => FamilyKind::Counter,
            FigureKind::Gauge | FigureKind::Expected => FamilyKind::Gauge,
        };
        let names: Vec<&str> = row.labels().collect();
        row.read(&reading, &mut |values, value| {
            if begun != row.name {
                text.family(row.name, kind, row.unit.base(), row.help);
                begun = row.name;
            }
            let labels: Vec<(&str, &str)> =
                names.iter().copied().zip(values.iter().copied()).collect();
            text.sample(row.name, &labels, row.unit.in_base(value));
        });
    }
}

fn write_latencies(service: &Service, text: &mut MetricsText) {
    let (name, top) = (LATENCY_QUANTILES, &service.top);
    let help = "Latencies of operations, by kind.";
    text.family(name, FamilyKind::Histogram, "seconds", help);
    let (bucket, sum, count) =
        (format!("{name}_bucket"), format!("{name}_sum"), format!("{name}_count"));
    for (kind, latency) in
        [("reads", &top.reads), ("writes", &top.writes), ("commands", &top.commands)]
    {
        let histogram = latency.histogram();
        for (at, (bound, below)) in histogram.cumulative().enumerate() {
            if bound.is_some() && at % EVERY_BOUND != 0 {
                continue;
            }
            let mut le = String::new();
            append_number(bound.map_or(f64::INFINITY, |micros| micros as f64 / 1e6), &mut le);
            text.sample(&bucket, &[("kind", kind), ("le", &le)], below as f64);
        }
        text.sample(&sum, &[("kind", kind)], histogram.micros() as f64 / 1e6);
        text.sample(&count, &[("kind", kind)], histogram.count() as f64);
    }
}

/// Figures that are text or times in `serverStatus` and `backupStatus`.
fn write_single(service: &Service, text: &mut MetricsText) {
    let mut gauge = |name: &str, unit: &str, help: &str, labels: &[(&str, &str)], value: f64| {
        text.family(name, FamilyKind::Gauge, unit, help);
        text.sample(name, labels, value);
    };
    let info = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("compatible_with", mayfly_commands::VERSION),
        ("engine", service.engine_name),
    ];
    let help = "The version, the version of MongoDB that clients see, and the storage engine. \
                Always 1.";
    gauge("mayflydb_build_info", "", help, &info, 1.0);
    let started = service.started_wall_ms() as f64 / 1e3;
    gauge("mayflydb_start_time_seconds", "seconds", "When the server started.", &[], started);
    let is_enabled = service.store.ttl_params().enabled.load(Ordering::Relaxed);
    let help = "1 while the TTL monitor is enabled (ttlMonitorEnabled).";
    gauge("mayflydb_ttl_monitor_enabled", "", help, &[], f64::from(u8::from(is_enabled)));
    if let Some(certificate) = service.transport.get().and_then(|it| it.certificate()) {
        let help = "When the server's certificate expires.";
        let ends = certificate.expires_ms as f64 / 1e3;
        gauge("mayflydb_certificate_expiry_timestamp_seconds", "seconds", help, &[], ends);
    }
    if let Some(last) = service.store.recorded_backups().ok().and_then(|all| all.last().cloned()) {
        let (help, finished) =
            ("When the last backup was complete.", last.finished_ms as f64 / 1e3);
        gauge("mayflydb_backup_finished_timestamp_seconds", "seconds", help, &[], finished);
        let (help, bytes) = ("Bytes of the files of the last backup.", last.bytes as f64);
        gauge("mayflydb_backup_size_bytes", "bytes", help, &[], bytes);
    }
    if let Some(lag) = archive_lag_secs(service) {
        let help = "How late the archive of the operation log is.";
        gauge("mayflydb_backup_log_lag_seconds", "seconds", help, &[], lag as f64);
    }
    if let Some(secs) = log_window_secs(service) {
        let help = "The time that the operation log covers. Missing until entries were cut.";
        gauge("mayflydb_oplog_window_seconds", "seconds", help, &[], secs as f64);
    }
}

/// The seconds of the log that the archive lacks; `None` without an archive.
fn archive_lag_secs(service: &Service) -> Option<i64> {
    let archive = service.backups.archive()?;
    // Without entries after it, the archive is up to date.
    let is_behind = archive.archived < service.store.oplog().settled();
    Some(if is_behind { seconds_since(service, archive.archived) } else { 0 })
}

/// The seconds for which a change stream may be interrupted; `None` if no entry was ever cut.
pub(super) fn log_window_secs(service: &Service) -> Option<i64> {
    let cut = service.store.oplog().cut();
    (cut > 0).then(|| seconds_since(service, cut))
}

fn seconds_since(service: &Service, timestamp: u64) -> i64 {
    let secs = i64::try_from(timestamp >> 32).unwrap_or(i64::MAX);
    (service.clock.now_ms() / 1000).saturating_sub(secs).max(0)
}
