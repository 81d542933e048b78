//! The global allocator: mimalloc for small objects and jemalloc for large ones, with a count of
//! the allocated bytes ([`mayfly_work::memory`]), which costs a few instructions per call.
//!
//! mimalloc puts objects of similar size into pages that belong to a thread, of up to 4 MiB for
//! large objects. One object that is still in use keeps its page, so thirty threads that handled
//! large messages kept 45 to 80 MB where 20 to 37 MB were in use. jemalloc gives an object above 14
//! KiB pages of its own, which the next thread may use.
//!
//! mimalloc's allocation with an alignment costs twice as much as the one without, so it is only
//! called for an alignment that mimalloc does not give to every allocation.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;

use mayfly_work::memory;
use mimalloc::MiMalloc;

/// The allocator for objects of more than [`SMALL_BYTES`].
#[cfg(target_os = "linux")]
const LARGE: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
#[cfg(not(target_os = "linux"))]
const LARGE: MiMalloc = MiMalloc;

/// The size up to which objects are small.
const SMALL_BYTES: usize = 32 << 10;

/// Counts each call and forwards it to the allocator for the object's size.
pub struct Counting;

/// Whether mimalloc holds an object of this size. The sizes of an object's allocation and of its
/// deallocation are equal, so no state is needed.
#[inline]
const fn is_small(bytes: usize) -> bool {
    bytes <= SMALL_BYTES
}

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
// SAFETY: the guarantees of both allocators hold, because their results are returned unchanged, and
// the size in the layout, which is the same in all calls for an object, selects the allocator.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        memory::allocated(layout.size());
        // SAFETY: the caller's guarantees are the preconditions of both.
        unsafe {
            match is_small(layout.size()) {
                true if is_natural(layout.size(), layout.align()) => {
                    mi_malloc(layout.size()).cast()
                }
                true => MiMalloc.alloc(layout),
                false => LARGE.alloc(layout),
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        memory::allocated(layout.size());
        // SAFETY: as above.
        unsafe {
            match is_small(layout.size()) {
                true => MiMalloc.alloc_zeroed(layout),
                false => LARGE.alloc_zeroed(layout),
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        memory::freed(layout.size());
        // SAFETY: as above.
        unsafe {
            match is_small(layout.size()) {
                true => MiMalloc.dealloc(place, layout),
                false => LARGE.dealloc(place, layout),
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        memory::resized(layout.size(), size);
        // SAFETY: as above.
        unsafe {
            match (is_small(layout.size()), is_small(size)) {
                (true, true) => MiMalloc.realloc(place, layout, size),
                (false, false) => LARGE.realloc(place, layout, size),
                (was_small, _) => move_to_other(place, layout, size, was_small),
            }
        }
    }
}

/// Reallocates an object that passes the limit of small objects.
///
/// # Safety
/// The preconditions of [`GlobalAlloc::realloc`].
#[cold]
#[allow(unsafe_code, reason = "part of the allocator")]
unsafe fn move_to_other(place: *mut u8, layout: Layout, size: usize, was_small: bool) -> *mut u8 {
    // SAFETY: the caller guarantees that the new size is valid for this alignment, and that `place`
    // has the size and alignment of `layout`. The copy is as long as the shorter of the two.
    unsafe {
        let new_layout = Layout::from_size_align_unchecked(size, layout.align());
        let new = match was_small {
            true => LARGE.alloc(new_layout),
            false => MiMalloc.alloc(new_layout),
        };
        if !new.is_null() {
            std::ptr::copy_nonoverlapping(place, new, layout.size().min(size));
            match was_small {
                true => MiMalloc.dealloc(place, layout),
                false => LARGE.dealloc(place, layout),
            }
        }
        new
    }
}

/// Options of mimalloc, by their numbers in its header file `mimalloc.h`, with the values that make
/// it return freed pages to the system at once.
const RETURN_AT_ONCE: [(std::ffi::c_int, std::ffi::c_long); 3] = [
    // `mi_option_purge_delay`: milliseconds until free pages are returned.
    (15, 0),
    // `mi_option_generic_collect`: after so many slow allocations a thread looks for free pages.
    (34, 1000),
    // `mi_option_page_full_retain`: free pages that a thread keeps, of each size of objects.
    (36, 0),
];

#[allow(unsafe_code, reason = "the declarations of mimalloc's own functions")]
unsafe extern "C" {
    fn mi_option_set(option: std::ffi::c_int, value: std::ffi::c_long);
    fn mi_collect(force: bool);
    fn mi_malloc(size: usize) -> *mut c_void;
}

/// Returns freed pages to the system at once. By default mimalloc keeps them for a while: with 128
/// MB of memory and six clients that insert batches of 1 MB, 65 MB were kept. This costs system
/// calls. Must be called before threads are started.
pub fn return_at_once() {
    for (option, value) in RETURN_AT_ONCE {
        #[allow(unsafe_code, reason = "calls mimalloc")]
        // SAFETY: the option exists, and may be set at any time.
        unsafe {
            mi_option_set(option, value);
        }
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
