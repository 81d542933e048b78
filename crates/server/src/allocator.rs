//! The global allocator: mimalloc with a count of the allocated bytes ([`mayfly_work::memory`]),
//! which costs a few instructions per call.
//!
//! mimalloc's allocation with an alignment costs twice as much as the one without, so it is only
//! called for an alignment that mimalloc does not give to every allocation.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;

use mayfly_work::memory;
use mimalloc::MiMalloc;

/// Counts each call and forwards it to mimalloc.
pub struct Counting;

/// The alignment of every allocation of mimalloc (`MI_MAX_ALIGN_SIZE` in its sources), except of
/// those that are shorter: they are aligned to the largest power of two within their length, which
/// is at least eight.
const NATURAL_ALIGNMENT: usize = 16;

/// Whether mimalloc aligns an allocation without being asked.
#[inline]
fn is_natural(size: usize, align: usize) -> bool {
    align <= size_of::<usize>() || align <= NATURAL_ALIGNMENT && align <= size
}

#[allow(
    unsafe_code,
    reason = "passes everything on; counting neither allocates nor looks at what was allocated"
)]
// SAFETY: mimalloc's guarantees hold, because its results are returned unchanged.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        memory::allocated(layout.size());
        if is_natural(layout.size(), layout.align()) {
            // SAFETY: it may be called with any size, and returns null if there is no memory.
            return unsafe { mi_malloc(layout.size()) }.cast();
        }
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
    fn mi_malloc(size: usize) -> *mut c_void;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_allocation_has_its_alignment() {
        for align in [1, 2, 4, 8, 16, 32, 64, 4096] {
            for size in (1..200).chain([1000, 1024, 4095, 70_000]) {
                let layout = Layout::from_size_align(size, align).unwrap();
                #[allow(unsafe_code, reason = "calls the allocator")]
                // SAFETY: the size is not zero, and the place is freed with its layout.
                let places = unsafe {
                    let places = [(); 3].map(|()| Counting.alloc(layout));
                    places.iter().for_each(|place| Counting.dealloc(*place, layout));
                    places
                };
                assert!(places.iter().all(|place| place.addr() % align == 0), "{size}, {align}");
            }
        }
    }
}
