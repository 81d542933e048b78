//! The allocator of scripts, which enforces their memory limit. The interpreter's own limit does
//! not report that it was reached when there is no memory for an error object.
//!
//! A script that must end gets no more memory, so that built-in functions that allocate end with
//! the script: the interpreter checks for interruption only once in ten thousand calls and loop
//! iterations, and each of them may take long. A script can catch the resulting error like any
//! other. The next loop iteration runs out of memory immediately, so that the interpreter soon
//! checks again.
#![allow(unsafe_code, reason = "the interpreter's allocator takes and gives pointers")]

use std::ptr::null_mut;

use rquickjs::allocator::{Allocator, RustAllocator};

use crate::watch;

/// Bytes allocated between two checks whether the script must end.
const CHECK_EVERY_BYTES: usize = 1 << 20;
/// Bytes added to each allocation for the check interval.
const COST_PER_ALLOCATION: usize = 64;
/// Overhead of an allocation in bytes.
const OVERHEAD: usize = 16;

/// The allocator of one interpreter.
pub(crate) struct WatchedAllocator {
    /// Limit of the interpreter in bytes.
    limit: usize,
    /// Bytes allocated, including [`OVERHEAD`].
    held: usize,
    /// Bytes allocated since the last check.
    spent: usize,
    has_ended: bool,
}

impl WatchedAllocator {
    /// An allocator with this limit in bytes.
    pub(crate) fn new(limit: usize) -> WatchedAllocator {
        WatchedAllocator { limit, held: 0, spent: 0, has_ended: false }
    }

    /// Whether an allocation of `bytes` that frees `freed` bytes must fail.
    fn refuses(&mut self, bytes: usize, freed: usize) -> bool {
        self.spent = self.spent.saturating_add(bytes).saturating_add(COST_PER_ALLOCATION);
        if self.spent > CHECK_EVERY_BYTES {
            self.spent = 0;
            self.has_ended |= watch::must_end();
        }
        let room = self.limit.saturating_sub(self.held.saturating_sub(freed));
        if bytes > room {
            watch::ran_out_of_memory();
        }
        self.has_ended || bytes > room
    }

    /// Counts an allocation, if it succeeded, that freed `freed` bytes.
    fn count(&mut self, ptr: *mut u8, freed: usize) -> *mut u8 {
        if !ptr.is_null() {
            // SAFETY: `RustAllocator` has just returned the pointer.
            let bytes = unsafe { RustAllocator::usable_size(ptr) };
            self.held = self.held.saturating_sub(freed).saturating_add(bytes + OVERHEAD);
        }
        ptr
    }
}

/// The size of an allocation, including its overhead.
///
/// # Safety
/// The pointer comes from `RustAllocator` and has not been freed, or is null.
unsafe fn counted(ptr: *mut u8) -> usize {
    if ptr.is_null() {
        return 0;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { RustAllocator::usable_size(ptr) + OVERHEAD }
}

// SAFETY: every non-null pointer comes from `RustAllocator` and is returned to it.
unsafe impl Allocator for WatchedAllocator {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        if self.refuses(size, 0) {
            return null_mut();
        }
        let ptr = RustAllocator.alloc(size);
        self.count(ptr, 0)
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        let Some(bytes) = count.checked_mul(size) else { return null_mut() };
        if self.refuses(bytes, 0) {
            return null_mut();
        }
        let ptr = RustAllocator.calloc(count, size);
        self.count(ptr, 0)
    }

    unsafe fn dealloc(&mut self, ptr: *mut u8) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.held = self.held.saturating_sub(counted(ptr));
            RustAllocator.dealloc(ptr);
        }
    }

    unsafe fn realloc(&mut self, ptr: *mut u8, new_size: usize) -> *mut u8 {
        // SAFETY: guaranteed by the caller.
        let freed = unsafe { counted(ptr) };
        if self.refuses(new_size, freed) {
            return null_mut();
        }
        // SAFETY: guaranteed by the caller.
        let ptr = unsafe { RustAllocator.realloc(ptr, new_size) };
        self.count(ptr, freed)
    }

    unsafe fn usable_size(ptr: *mut u8) -> usize {
        // SAFETY: guaranteed by the caller.
        unsafe { RustAllocator::usable_size(ptr) }
    }
}
