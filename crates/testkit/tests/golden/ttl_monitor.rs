//! The monitor's own thread: when it wakes. The clock is moved by the tests; no test waits for time
//! to pass.

use std::sync::Arc;

use mayfly_base::ManualClock;
use mayfly_base::testing::wait_until;
use mayfly_server::{Running, StartOptions, start};
use mayfly_value::RawValue;

/// A server whose monitor has begun its first sleep.
async fn server() -> (Running, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at_ms(1_800_000_000_000));
    let options =
        StartOptions { background: true, ..StartOptions::for_tests(clock.clone()).unwrap() };
    let server = start(options).await.unwrap();
    settle(&server);
    (server, clock)
}

/// Waits until the monitor has done what is due now.
fn settle(server: &Running) {
    let params = server.service.store.ttl_params();
    let change = params.wake();
    wait_until("the monitor sleeps", || params.slept_after(change));
}

/// The number of passes after this time has passed.
fn passes_after(server: &Running, clock: &ManualClock, ms: i64) -> i64 {
    clock.advance_ms(ms);
    settle(server);
    server.service.store.ttl_stats().passes.load(std::sync::atomic::Ordering::Relaxed)
}

fn set(server: &Running, name: &str, value: RawValue<'_>) {
    let parameter = mayfly_service::parameters::find(name).unwrap();
    parameter.set_running(&server.service, value).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t_42_a_shorter_sleep_wakes_the_monitor() {
    let (server, clock) = server().await;
    set(&server, "ttlMonitorSleepSecs", RawValue::Int32(1000));
    assert_eq!(passes_after(&server, &clock, 999_000), 0);
    let store = server.service.store.clone();
    set(&server, "ttlMonitorSleepSecs", RawValue::Int32(1));
    // It is woken by the change alone.
    wait_until("a pass", || {
        store.ttl_stats().passes.load(std::sync::atomic::Ordering::Relaxed) == 1
    });
    // A pass counts before the next sleep begins.
    settle(&server);
    assert_eq!(passes_after(&server, &clock, 999), 1, "a second lies between two passes");
    assert_eq!(passes_after(&server, &clock, 1), 2);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t_43_the_first_pass_comes_after_the_first_sleep() {
    let (server, clock) = server().await;
    assert_eq!(passes_after(&server, &clock, 59_999), 0);
    assert_eq!(passes_after(&server, &clock, 1), 1);
    assert_eq!(passes_after(&server, &clock, 0), 1, "the next pass is a sleep away");
    assert_eq!(passes_after(&server, &clock, 60_000), 2);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t_41_a_monitor_that_is_switched_off_counts_no_passes() {
    let (server, clock) = server().await;
    set(&server, "ttlMonitorEnabled", RawValue::Bool(false));
    set(&server, "ttlMonitorSleepSecs", RawValue::Int32(1));
    assert_eq!(passes_after(&server, &clock, 1500), 0);
    set(&server, "ttlMonitorEnabled", RawValue::Bool(true));
    assert_eq!(passes_after(&server, &clock, 1500), 1);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sleeping_monitor_ends_at_once() {
    let (server, _) = server().await;
    let begun = std::time::Instant::now();
    server.stop().await.unwrap();
    assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
}
