//! The wait of a reply for the log.

use mayfly_base::Result;
use mayfly_commands::Outcome;
use mayfly_service::{CommandTrace, Service, TraceTime};

/// Waits until the data that a reply contains or acknowledges is durable. The wait is a part of the
/// command's trace.
pub(crate) async fn wait(
    service: &Service,
    outcome: &Outcome,
    trace: Option<&mut CommandTrace>,
) -> Result<()> {
    let (store, clock) = (&service.store, &service.clock);
    if !outcome.wait_durable && outcome.wait_shown == 0 {
        return Ok(());
    }
    let began = clock.monotonic_micros();
    let durable = match outcome.wait_durable {
        true => store.wait_durable().await,
        false => store.wait_durable_up_to(outcome.wait_shown).await,
    };
    let micros = (clock.monotonic_micros() - began).max(0);
    if outcome.wait_durable {
        let waits = &service.metrics.write_concern_waits;
        waits.count.add(1);
        waits.micros.add(micros.unsigned_abs());
    }
    if let Some(trace) = trace {
        trace.sync = Some(TraceTime { began, micros });
        trace.time.micros = began + micros - trace.time.began;
    }
    durable
}
