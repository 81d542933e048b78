//! Pauses between the tries of what another writer has prevented.

use std::time::Duration;

use mayfly_work::current;

/// Pauses before a retry; longer with each try.
pub(crate) fn back_off(tries: u32) {
    if tries < 4 {
        std::thread::yield_now();
    } else {
        let cap = 50u64 << tries.min(9);
        let micros = rand::random_range(cap / 4..=cap);
        // The other writer may be a transaction, whose next statement also needs a thread.
        current::wait(|| std::thread::sleep(Duration::from_micros(micros.min(20_000))));
    }
}
