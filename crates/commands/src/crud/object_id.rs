//! New ObjectIds: seconds, five random bytes of this process, a counter. BSON specification, "ObjectId".

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A new ObjectId at this wall time.
pub(crate) fn new_object_id(now_ms: i64) -> [u8; 12] {
    static PROCESS: OnceLock<([u8; 5], AtomicU32)> = OnceLock::new();
    let (process, counter) =
        PROCESS.get_or_init(|| (rand::random(), AtomicU32::new(rand::random())));
    let mut id = [0; 12];
    let seconds = u32::try_from(now_ms / 1000).unwrap_or(0);
    id[..4].copy_from_slice(&seconds.to_be_bytes());
    id[4..9].copy_from_slice(process);
    let count = counter.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    id[9..].copy_from_slice(&count[1..]);
    id
}
