//! New ObjectIds: seconds, five random bytes of this process, a counter. BSON specification,
//! "ObjectId".
//!
//! Not `ObjectId::new()` of `bson`, which reads the system clock: here the caller passes the time.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A new ObjectId for this wall time.
pub fn new_object_id(now_ms: i64) -> [u8; 12] {
    static PROCESS: LazyLock<([u8; 5], AtomicU32)> =
        LazyLock::new(|| (rand::random(), AtomicU32::new(rand::random())));
    let (process, counter) = &*PROCESS;
    let seconds = u32::try_from(now_ms / 1000).unwrap_or(0);
    let [_, count @ ..] = counter.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    bson::oid::ObjectId::from_parts(seconds, *process, count).bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_the_given_time_and_ascend_within_a_second() {
        let (first, second) = (new_object_id(1_800_000_000_999), new_object_id(1_800_000_000_000));
        assert_eq!(first[..9], second[..9]);
        assert_eq!(first[..4], 1_800_000_000_u32.to_be_bytes());
        assert_ne!(first[9..], second[9..]);
    }
}
