//! The history of the figures: sampling, and `/history` for the plots.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, Query, State};
use axum::http::{HeaderMap, StatusCode};
use mayfly_service::observe::{LATENCY_QUANTILES, Reading, STEP_MICROS, Series, Window, figures};
use serde_json::{Map, Value, json};
use tokio::time::MissedTickBehavior;

use super::guard::Refusal;
use super::peer::Peer;
use super::site::Site;

/// The figures that the page plots.
pub(super) const SHOWN: &[&str] = &[
    "mayflydb_operations_total",
    LATENCY_QUANTILES,
    "mayflydb_operations_running",
    "mayflydb_operations_queued",
    "mayflydb_connections",
    "mayflydb_process_resident_memory_bytes",
    "mayflydb_memory_held_bytes",
    "mayflydb_memory_cursor_bytes",
    "mayflydb_ttl_deleted_documents_total",
    "mayflydb_network_received_bytes_total",
    "mayflydb_network_sent_bytes_total",
    "mayflydb_storage_block_cache_bytes",
    "mayflydb_storage_record_cache_bytes",
    "mayflydb_storage_cache_hits_total",
    "mayflydb_storage_cache_misses_total",
    "mayflydb_storage_memtable_bytes",
    "mayflydb_storage_pending_compaction_bytes",
];
/// An hour in milliseconds.
pub(super) const HOUR_MS: i64 = 3_600_000;
/// The most points of a series, about the pixels of a plot.
const MAX_POINTS: usize = 450;

/// Samples the figures until the server stops.
pub(super) async fn sample(site: Arc<Site>) {
    let mut ticks = tokio::time::interval(Duration::from_micros(STEP_MICROS.unsigned_abs()));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = site.service.shutdown.begun() => return,
        }
        let site = site.clone();
        let recorded = tokio::task::spawn_blocking(move || {
            let reading = Reading::new(&site.service, &site.commands);
            site.samples.record(&reading);
            site.policies.record(&reading);
            site.is_disk_nearly_full.store(is_disk_nearly_full(&reading), Ordering::Relaxed);
        });
        let _ = recorded.await;
    }
}

fn is_disk_nearly_full(reading: &Reading<'_>) -> bool {
    let mut is_full = false;
    for row in figures().filter(|row| row.name == "mayflydb_disk_nearly_full") {
        row.read(reading, &mut |_, value| is_full = value != 0);
    }
    is_full
}

/// `GET /history?window=hour`, `day` or `week`.
pub(super) async fn history(
    State(site): State<Arc<Site>>,
    Extension(peer): Extension<Peer>,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refusal> {
    site.identify(&peer, &headers)?;
    site.check_right(&peer)?;
    let window = query.iter().find(|(name, _)| name == "window").map(|(_, value)| value.as_str());
    let hours = match window {
        None | Some("hour") => 1,
        Some("day") => 24,
        Some("week") => 24 * 7,
        Some(_) => {
            let text = "window is hour, day or week\n".to_owned();
            return Err((StatusCode::BAD_REQUEST, text));
        }
    };
    let now = site.service.clock.now_ms();
    let window = site.samples.series(SHOWN, now - hours * HOUR_MS, now);
    Ok(Json(to_json(&thinned(window))))
}

/// The names, labels and values of a window.
pub(super) fn to_json(window: &Window) -> Value {
    let series: Vec<Value> = window
        .series
        .iter()
        .map(|series| {
            let labels: Map<String, Value> = series
                .labels
                .iter()
                .map(|(name, value)| ((*name).to_owned(), json!(value)))
                .collect();
            let values: Vec<Value> = series.values.iter().map(|value| rounded(*value)).collect();
            json!({ "name": series.name, "labels": labels, "values": values })
        })
        .collect();
    json!({ "stepMs": window.step_ms, "times": window.times, "series": series })
}

/// A value with four digits, which a plot does not tell from the exact one.
fn rounded(value: f32) -> Value {
    let value = f64::from(value);
    if !value.is_finite() {
        return Value::Null;
    }
    if value == 0.0 {
        return json!(0);
    }
    let scale = 10f64.powi(3 - value.abs().log10().floor() as i32);
    let short = (value * scale).round() / scale;
    match short.fract() == 0.0 && short.abs() < 1e15 {
        true => json!(short as i64),
        false => json!(short),
    }
}

/// Combines points until there are few enough: by their mean, or for quantiles of latencies by the
/// largest, so that a plot shows each peak.
pub(super) fn thinned(window: Window) -> Window {
    let group = window.times.len().div_ceil(MAX_POINTS);
    if group <= 1 {
        return window;
    }
    let times = window.times.chunks(group).filter_map(|part| part.last().copied()).collect();
    let combine = |series: Series| {
        let takes_largest = series.name == LATENCY_QUANTILES;
        let values = series.values.chunks(group).map(|part| combined(part, takes_largest));
        Series { values: values.collect(), ..series }
    };
    let step_ms = window.step_ms * i64::try_from(group).unwrap_or(1);
    Window { step_ms, times, series: window.series.into_iter().map(combine).collect() }
}

fn combined(part: &[f32], takes_largest: bool) -> f32 {
    let known = part.iter().copied().filter(|value| !value.is_nan());
    if takes_largest {
        return known.reduce(f32::max).unwrap_or(f32::NAN);
    }
    let (sum, count) = known.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

#[cfg(test)]
mod tests {
    use mayfly_service::observe::FigureKind;

    use super::*;

    #[test]
    fn values_have_four_digits() {
        for (value, shown) in
            [(0.0, "0"), (1234567.0, "1235000"), (0.012345, "0.01235"), (-2.5, "-2.5"), (3.0, "3")]
        {
            assert_eq!(rounded(value).to_string(), shown);
        }
        assert_eq!(rounded(f32::NAN), Value::Null);
        assert_eq!(rounded(f32::INFINITY), Value::Null);
    }

    #[test]
    fn a_long_window_is_thinned_and_keeps_peaks_of_latencies() {
        let count = 2 * MAX_POINTS;
        let series = |name| Series {
            name,
            labels: Vec::new(),
            kind: FigureKind::Gauge,
            values: (0..count).map(|at| if at == 7 { f32::NAN } else { at as f32 }).collect(),
        };
        let times = (0..count as i64).collect();
        let all = vec![series("a"), series(LATENCY_QUANTILES)];
        let thin = thinned(Window { step_ms: 2, times, series: all });
        assert_eq!((thin.times.len(), thin.step_ms, thin.times[0]), (MAX_POINTS, 4, 1));
        assert_eq!(thin.series[0].values[..4], [0.5, 2.5, 4.5, 6.0]);
        assert_eq!(thin.series[1].values[..4], [1.0, 3.0, 5.0, 6.0]);
    }
}
