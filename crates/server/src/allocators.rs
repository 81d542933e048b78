//! The two allocators of the process, each where it is the better one.
//!
//! **Rust** allocates from mimalloc: small objects, most of which are freed by the thread that
//! allocated them. With jemalloc, sorts and groups in memory took half as much time again.
//!
//! **RocksDB** and the other C libraries allocate from jemalloc, which replaces `malloc` where the
//! system allows that (Linux first of all). A block of the cache is allocated by the thread that
//! reads it and freed by the thread that evicts it. glibc puts it into one of many arenas, and
//! memory freed in one arena is not used by others: with a cache of 0.5 GB, 1.5 GB were free but
//! not returned after two scans and two index builds. mimalloc kept half as much again as was in
//! use. jemalloc returns pages that have not been needed for a while; its background thread does
//! this, so that an idle process shrinks, too. It uses one arena: after 5,000,000 inserts with
//! random ids, two scans and two index builds with a cache of 1 GB the process held 1.42 GB, with
//! four arenas 1.9 to 2.0.

use mayfly_server::allocator::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The memory below which freed pages are returned to the system at once: 1 GiB.
const SCARCE_BYTES: u64 = 1 << 30;

#[cfg(target_os = "linux")]
mod c {
    use std::ffi::c_void;

    /// Pages that are free for 300 ms are returned to the system at once, without the intermediate
    /// state in which it may reclaim them later.
    const OPTIONS: &[u8; 69] =
        b"background_thread:true,dirty_decay_ms:300,muzzy_decay_ms:0,narenas:1\0";

    /// jemalloc reads its options from this symbol before any Rust code runs.
    #[allow(
        unsafe_code,
        reason = "the symbol is jemalloc's own, a pointer to a string that ends with a zero; a reference to an array is one"
    )]
    #[unsafe(export_name = "malloc_conf")]
    static CONFIGURATION: &[u8; OPTIONS.len()] = OPTIONS;

    /// Makes the linker use jemalloc's `malloc` instead of the system's.
    #[used]
    static LINKED: unsafe extern "C" fn(usize) -> *mut c_void = tikv_jemalloc_sys::malloc;

    /// Returns freed pages to the system at once.
    pub(super) fn return_at_once() {
        let mut millis: isize = 0;
        for name in [c"arenas.dirty_decay_ms", c"arena.0.dirty_decay_ms"] {
            let place = (&raw mut millis).cast::<c_void>();
            #[allow(unsafe_code, reason = "calls jemalloc")]
            // SAFETY: both names are settings of this type, as jemalloc's manual says; the value
            // outlives the call, which copies it.
            unsafe {
                tikv_jemalloc_sys::mallctl(
                    name.as_ptr(),
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    place,
                    size_of::<isize>(),
                );
            }
        }
    }
}

/// Makes both allocators return freed pages to the system at once if the process may use little
/// memory, and what is resident is then measured.
pub(crate) fn adapt(usable_bytes: u64) {
    if (1..SCARCE_BYTES).contains(&usable_bytes) {
        mayfly_server::allocator::return_at_once();
        #[cfg(target_os = "linux")]
        c::return_at_once();
        mayfly_work::memory::begin_measuring();
    }
}
