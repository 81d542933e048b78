//! The memory of scripts. A script that has to end gets no more of it, so that built-in functions that allocate end with the script:
//! the interpreter asks whether it may go on only once in ten thousand calls and turns of loops, and each of them may take long.
//!
//! What runs out of memory that way is caught like any error. The next turn of a loop runs out of memory at once, so that the
//! interpreter asks soon.
#![allow(unsafe_code, reason = "the interpreter's allocator takes and gives pointers")]

use std::ptr::null_mut;

use rquickjs::allocator::{Allocator, RustAllocator};

use super::watch;

/// Bytes between two questions whether the script may go on.
const ASKED_EVERY: usize = 1 << 20;
/// What an allocation counts beside its bytes.
const EACH: usize = 64;

/// The allocator of one interpreter.
#[derive(Default)]
pub(super) struct WatchedAllocator {
    /// Bytes since the last question.
    spent: usize,
    has_ended: bool,
}

impl WatchedAllocator {
    fn refuses(&mut self, bytes: usize) -> bool {
        self.spent = self.spent.saturating_add(bytes).saturating_add(EACH);
        if self.spent > ASKED_EVERY {
            self.spent = 0;
            self.has_ended |= watch::must_end();
        }
        self.has_ended
    }
}

// SAFETY: every pointer comes from `RustAllocator` and goes back to it; beside them there are null pointers only.
unsafe impl Allocator for WatchedAllocator {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        if self.refuses(size) { null_mut() } else { RustAllocator.alloc(size) }
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        let Some(bytes) = count.checked_mul(size) else { return null_mut() };
        if self.refuses(bytes) { null_mut() } else { RustAllocator.calloc(count, size) }
    }

    unsafe fn dealloc(&mut self, ptr: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { RustAllocator.dealloc(ptr) }
    }

    unsafe fn realloc(&mut self, ptr: *mut u8, new_size: usize) -> *mut u8 {
        if self.refuses(new_size) {
            return null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { RustAllocator.realloc(ptr, new_size) }
    }

    unsafe fn usable_size(ptr: *mut u8) -> usize {
        // SAFETY: the caller's promise.
        unsafe { RustAllocator::usable_size(ptr) }
    }
}
