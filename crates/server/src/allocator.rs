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
