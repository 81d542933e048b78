//! The monitor's own thread: when it wakes. Here, and only here, tests wait for real.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mayfly_base::{Clock, ManualClock, SystemClock};
use mayfly_server::{Running, StartOptions, start};
use mayfly_storage::Store;
use mayfly_value::RawValue;

/// Longest wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long something that must not happen is given to happen.
const SUSPICION: Duration = Duration::from_millis(400);

async fn server(clock: Arc<dyn Clock>) -> Running {
    let options = StartOptions { background: true, ..StartOptions::for_tests(clock).unwrap() };
    start(options).await.unwrap()
}

fn passes(store: &Store) -> i64 {
    store.ttl_stats().passes.load(std::sync::atomic::Ordering::Relaxed)
}

async fn wait_for_passes(store: &Store, wanted: i64) {
    let begun = Instant::now();
    while passes(store) < wanted {
        assert!(begun.elapsed() < PATIENCE, "{} passes of {wanted}", passes(store));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn set(server: &Running, name: &str, value: RawValue<'_>) {
    let parameter = mayfly_service::parameters::find(name).unwrap();
    parameter.set_running(&server.service, value).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t_42_a_shorter_sleep_wakes_the_monitor() {
    let server = server(Arc::new(SystemClock::new())).await;
    set(&server, "ttlMonitorSleepSecs", RawValue::Int32(1000));
    tokio::time::sleep(SUSPICION).await;
    assert_eq!(passes(&server.service.store), 0);
    let begun = Instant::now();
    set(&server, "ttlMonitorSleepSecs", RawValue::Int32(1));
    wait_for_passes(&server.service.store, 2).await;
    assert!(begun.elapsed() >= Duration::from_millis(1000), "a second lies between two passes");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t_43_the_first_pass_comes_after_the_first_sleep() {
    let clock = Arc::new(ManualClock::at_ms(1_800_000_000_000));
    let server = server(clock.clone()).await;
    let store = server.service.store.clone();
    // The monitor looks at its clock when it is woken.
    let wake = || set(&server, "ttlMonitorSleepSecs", RawValue::Int32(60));
    tokio::time::sleep(SUSPICION).await;
    clock.advance_ms(59_999);
    wake();
    tokio::time::sleep(SUSPICION).await;
    assert_eq!(passes(&store), 0);
    clock.advance_ms(1);
    wake();
    wait_for_passes(&store, 1).await;
    wake();
    tokio::time::sleep(SUSPICION).await;
    assert_eq!(passes(&store), 1, "the next pass is a sleep away");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t_41_a_monitor_that_is_switched_off_counts_no_passes() {
    let server = server(Arc::new(SystemClock::new())).await;
    set(&server, "ttlMonitorEnabled", RawValue::Bool(false));
    set(&server, "ttlMonitorSleepSecs", RawValue::Int32(1));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(passes(&server.service.store), 0);
    set(&server, "ttlMonitorEnabled", RawValue::Bool(true));
    wait_for_passes(&server.service.store, 1).await;
    let begun = Instant::now();
    server.stop().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "a sleeping monitor ends at once");
}
