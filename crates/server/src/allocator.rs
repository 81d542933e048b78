//! The allocator of Rust's values: mimalloc, counted ([`mayfly_work::memory`]), which takes a few instructions each time.

use std::alloc::{GlobalAlloc, Layout};

use mayfly_work::memory;
use mimalloc::MiMalloc;

/// Passes everything on to mimalloc, and counts it.
pub struct Counting;

#[allow(
    unsafe_code,
    reason = "passes everything on; counting neither allocates nor looks at what was allocated"
)]
// SAFETY: what mimalloc promises holds for what is passed on to it and given back unchanged.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        memory::allocated(layout.size());
        // SAFETY: the caller's promises are mimalloc's conditions.
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
