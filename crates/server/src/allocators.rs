//! Where the memory of the process comes from: two allocators, each where it is the better one.
//!
//! **Rust** allocates from mimalloc: small pieces, most of them freed by the thread that made them. With jemalloc, sorts and groups in
//! memory took half as much time again.
//!
//! **RocksDB** and the other C libraries allocate from jemalloc, which takes the place of `malloc` where the system allows that (Linux
//! first of all). A block of the cache is allocated by the thread that reads it and freed by whichever thread evicts it. glibc puts
//! it into one of many arenas, and what is freed in one arena serves no other: with a cache of 0.5 GB, 1.5 GB lay free
//! after two scans and two builds of indexes. mimalloc kept half as much again as was in use. jemalloc gives pages back that were
//! not needed for a while; a thread of its own does it, so that an idle process shrinks, too. One arena: behind 5,000,000 random ids,
//! two scans and two index builds with a cache of 1 GB the process held 1.42 GB, with four arenas 1.9 to 2.0.

use mayfly_server::allocator::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[cfg(target_os = "linux")]
mod c {
    use std::ffi::c_void;

    /// Pages that are free for 300 ms go back to the system at once, without the stage between in which it may take them.
    const OPTIONS: &[u8; 69] =
        b"background_thread:true,dirty_decay_ms:300,muzzy_decay_ms:0,narenas:1\0";

    /// jemalloc reads its options from here before the first line of Rust runs.
    #[allow(
        unsafe_code,
        reason = "the symbol is jemalloc's own, a pointer to a string that ends with a zero; a reference to an array is one"
    )]
    #[unsafe(export_name = "malloc_conf")]
    static CONFIGURATION: &[u8; OPTIONS.len()] = OPTIONS;

    /// Makes the linker take jemalloc's `malloc` instead of the system's.
    #[used]
    static LINKED: unsafe extern "C" fn(usize) -> *mut c_void = tikv_jemalloc_sys::malloc;
}
