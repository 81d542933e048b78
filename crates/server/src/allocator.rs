//! The global allocator: mimalloc with a count of the allocated bytes ([`mayfly_work::memory`]),
//! which costs a few instructions per call.

use std::alloc::{GlobalAlloc, Layout};

use mayfly_work::memory;
use mimalloc::MiMalloc;

/// Counts each call and forwards it to mimalloc.
pub struct Counting;

#[allow(
    unsafe_code,
    reason = "passes everything on; counting neither allocates nor looks at what was allocated"
)]
// SAFETY: mimalloc's guarantees hold, because its results are returned unchanged.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        memory::allocated(layout.size());
        // SAFETY: the caller's guarantees are mimalloc's preconditions.
        unsafe { MiMalloc.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        memory::allocated(layout.size());
        // SAFETY: as above.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        memory::freed(layout.size());
        // SAFETY: as above.
        unsafe { MiMalloc.dealloc(place, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        memory::resized(layout.size(), size);
        // SAFETY: as above.
        unsafe { MiMalloc.realloc(place, layout, size) }
    }
}

/// mimalloc's `mi_option_purge_delay` (its header file `mimalloc.h`).
const PURGE_DELAY: std::ffi::c_int = 15;

#[allow(unsafe_code, reason = "the declarations of mimalloc's own functions")]
unsafe extern "C" {
    fn mi_option_set(option: std::ffi::c_int, value: std::ffi::c_long);
    fn mi_collect(force: bool);
}

/// Returns freed pages to the system at once. By default mimalloc keeps them for a while: with 128
/// MB of memory and six clients that insert batches of 1 MB, 65 MB were kept. This costs system
/// calls.
pub fn return_at_once() {
    #[allow(unsafe_code, reason = "calls mimalloc")]
    // SAFETY: the option exists, and may be set at any time.
    unsafe {
        mi_option_set(PURGE_DELAY, 0);
    }
    memory::set_return_freed(collect);
}

/// Returns the pages that this thread has freed and that mimalloc keeps for it.
fn collect() {
    #[allow(unsafe_code, reason = "calls mimalloc")]
    // SAFETY: it may be called at any time.
    unsafe {
        mi_collect(true);
    }
}
