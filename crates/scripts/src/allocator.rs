//! The memory of scripts, and its limit. The interpreter has a limit of its own, but does not say that it was reached where there is no
//! memory for an error.
//!
//! A script that has to end gets no more memory either, so that built-in functions that allocate end with the script: the interpreter
//! asks whether it may go on only once in ten thousand calls and turns of loops, and each of them may take long.
//! What runs out of memory that way is caught like any error. The next turn of a loop runs out of memory at once, so that the
//! interpreter asks soon.
#![allow(unsafe_code, reason = "the interpreter's allocator takes and gives pointers")]

use std::ptr::null_mut;

use rquickjs::allocator::{Allocator, RustAllocator};

use crate::watch;

/// Bytes between two questions whether the script may go on.
const ASKED_EVERY: usize = 1 << 20;
/// What an allocation counts beside its bytes in the work of a script.
const EACH: usize = 64;
/// What it takes beside its bytes.
const OVERHEAD: usize = 16;

/// The allocator of one interpreter.
pub(crate) struct WatchedAllocator {
    /// Bytes that the interpreter may have at a time.
    limit: usize,
    /// Bytes that it has, each with [`OVERHEAD`].
    held: usize,
    /// Bytes since the last question.
    spent: usize,
    has_ended: bool,
}

impl WatchedAllocator {
    /// For an interpreter that may have so many bytes.
    pub(crate) fn new(limit: usize) -> WatchedAllocator {
        WatchedAllocator { limit, held: 0, spent: 0, has_ended: false }
    }

    /// Whether there is no room for so many bytes in place of those that are given back.
    fn refuses(&mut self, bytes: usize, freed: usize) -> bool {
        self.spent = self.spent.saturating_add(bytes).saturating_add(EACH);
        if self.spent > ASKED_EVERY {
            self.spent = 0;
            self.has_ended |= watch::must_end();
        }
        let room = self.limit.saturating_sub(self.held.saturating_sub(freed));
        if bytes > room {
            watch::ran_out_of_memory();
        }
        self.has_ended || bytes > room
    }

    /// Counts what was allocated, if it was, in place of what was given back then.
    fn count(&mut self, ptr: *mut u8, freed: usize) -> *mut u8 {
        if !ptr.is_null() {
            // SAFETY: the pointer was made by `RustAllocator` a moment ago.
            let bytes = unsafe { RustAllocator::usable_size(ptr) };
            self.held = self.held.saturating_sub(freed).saturating_add(bytes + OVERHEAD);
        }
        ptr
    }
}

/// What an allocation takes.
///
/// # Safety
/// The pointer comes from `RustAllocator` and has not gone back, or is null.
unsafe fn counted(ptr: *mut u8) -> usize {
    if ptr.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { RustAllocator::usable_size(ptr) + OVERHEAD }
}

// SAFETY: every pointer comes from `RustAllocator` and goes back to it; beside them there are null pointers only.
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
        // SAFETY: the caller's promise.
        unsafe {
            self.held = self.held.saturating_sub(counted(ptr));
            RustAllocator.dealloc(ptr);
        }
    }

    unsafe fn realloc(&mut self, ptr: *mut u8, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        let freed = unsafe { counted(ptr) };
        if self.refuses(new_size, freed) {
            return null_mut();
        }
        // SAFETY: the caller's promise.
        let ptr = unsafe { RustAllocator.realloc(ptr, new_size) };
        self.count(ptr, freed)
    }

    unsafe fn usable_size(ptr: *mut u8) -> usize {
        // SAFETY: the caller's promise.
        unsafe { RustAllocator::usable_size(ptr) }
    }
}
