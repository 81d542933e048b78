//! PCRE2 with callouts before every item of the pattern, which check whether the operation may
//! continue. Between two callouts PCRE2 reads the text at most once, so that a match ends soon
//! after its operation must end, for any pattern and text.
//!
//! The binding does not support callouts, so this module calls the library's functions directly.
//! All unsafe code of this crate is here: the compiled program is shared and immutable, and the
//! memory that a match writes to belongs to one thread while it runs ([`MatchMemory`]).

#![allow(unsafe_code, reason = "the library's functions take pointers")]

use std::ffi::{c_int, c_void};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use mayfly_work::current::spend;
use pcre2_sys::{
    PCRE2_AUTO_CALLOUT, PCRE2_CASELESS, PCRE2_DOTALL, PCRE2_ERROR_CALLOUT, PCRE2_ERROR_NOMATCH,
    PCRE2_ERROR_NOMEMORY, PCRE2_EXTENDED, PCRE2_JIT_COMPLETE, PCRE2_MULTILINE, PCRE2_NO_UTF_CHECK,
    PCRE2_UNSET, PCRE2_UTF, pcre2_code_8, pcre2_code_free_8, pcre2_compile_8,
    pcre2_get_ovector_count_8, pcre2_get_ovector_pointer_8, pcre2_jit_compile_8, pcre2_jit_stack_8,
    pcre2_jit_stack_assign_8, pcre2_jit_stack_create_8, pcre2_jit_stack_free_8, pcre2_match_8,
    pcre2_match_context_8, pcre2_match_context_create_8, pcre2_match_context_free_8,
    pcre2_match_data_8, pcre2_match_data_create_from_pattern_8, pcre2_match_data_free_8,
};
use regex_automata::util::pool::Pool;

use crate::{Options, PATIENT_STACK_BYTES, UnfinishedSearch};

/// Initial stack of a match, in bytes.
const FIRST_STACK_BYTES: usize = 32 << 10;

/// Bytes of text that count as one unit of work for each callout: one step may read all of them.
const BYTES_PER_UNIT: usize = 16 << 10;

unsafe extern "C" {
    /// Missing in the binding.
    fn pcre2_set_callout_8(
        context: *mut pcre2_match_context_8,
        callout: Option<unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int>,
        data: *mut c_void,
    ) -> c_int;
}

/// A compiled program with callouts.
pub(crate) struct Patient {
    code: Arc<Code>,
    memories: Pool<MatchMemory, NewMatchMemory>,
}

type NewMatchMemory = Box<dyn Fn() -> MatchMemory + Send + Sync + UnwindSafe + RefUnwindSafe>;

struct Code(NonNull<pcre2_code_8>);

// SAFETY: a compiled program is not written to after `Patient::compile`; PCRE2 documents that
// threads may share it.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: it came from `pcre2_compile_8`, and this was the last reference to it.
        unsafe { pcre2_code_free_8(self.0.as_ptr()) }
    }
}

/// The memory that one match writes to. A null pointer means that allocation failed.
struct MatchMemory {
    context: *mut pcre2_match_context_8,
    data: *mut pcre2_match_data_8,
    stack: *mut pcre2_jit_stack_8,
}

// SAFETY: no part of it is bound to a thread; the owner has exclusive access.
unsafe impl Send for MatchMemory {}

impl MatchMemory {
    fn new(code: &Code) -> MatchMemory {
        // SAFETY: the functions accept null for defaults and return null when allocation fails; the
        // program is alive.
        unsafe {
            let context = pcre2_match_context_create_8(null_mut());
            let data = pcre2_match_data_create_from_pattern_8(code.0.as_ptr(), null_mut());
            let stack =
                pcre2_jit_stack_create_8(FIRST_STACK_BYTES, PATIENT_STACK_BYTES, null_mut());
            if !context.is_null() && !stack.is_null() {
                pcre2_jit_stack_assign_8(context, None, stack.cast());
            }
            MatchMemory { context, data, stack }
        }
    }
}

impl Drop for MatchMemory {
    fn drop(&mut self) {
        // SAFETY: each came from its constructor or is null, which these functions accept.
        unsafe {
            pcre2_match_context_free_8(self.context);
            pcre2_match_data_free_8(self.data);
            pcre2_jit_stack_free_8(self.stack);
        }
    }
}

/// The callout, called by PCRE2 before each item of the pattern; a negative result ends the match
/// with that code.
unsafe extern "C" fn check_operation(_: *mut c_void, units: *mut c_void) -> c_int {
    // SAFETY: `Patient::find` passes the address of its own variable, which outlives the match.
    let units = unsafe { *units.cast::<usize>() };
    if spend(units).is_ok() { 0 } else { PCRE2_ERROR_CALLOUT }
}

impl Patient {
    /// Compiles a pattern that has been compiled without callouts before; `None` when it becomes
    /// too large with them.
    pub(crate) fn compile(pattern: &str, options: Options) -> Option<Patient> {
        let mut flags = PCRE2_UTF | PCRE2_AUTO_CALLOUT;
        for (is_on, flag) in [
            (options.ignore_case, PCRE2_CASELESS),
            (options.multi_line, PCRE2_MULTILINE),
            (options.dot_all, PCRE2_DOTALL),
            (options.extended, PCRE2_EXTENDED),
        ] {
            flags |= if is_on { flag } else { 0 };
        }
        let (mut error, mut place) = (0, 0);
        // SAFETY: pattern and length belong together, the output pointers are valid, null means the
        // default context.
        let code = unsafe {
            let (start, length) = (pattern.as_ptr(), pattern.len());
            pcre2_compile_8(start, length, flags, &mut error, &mut place, null_mut())
        };
        let code = Arc::new(Code(NonNull::new(code)?));
        // SAFETY: no other reference to the program exists yet. If JIT compilation fails, the
        // program is interpreted.
        let _ = unsafe { pcre2_jit_compile_8(code.0.as_ptr(), PCRE2_JIT_COMPLETE) };
        let made_for = code.clone();
        let new_memory: NewMatchMemory = Box::new(move || MatchMemory::new(&made_for));
        Some(Patient { code, memories: Pool::new(new_memory) })
    }

    /// Whether there is a match at or after this byte offset, which must be a character boundary.
    /// Fills in the ranges of the groups that `groups` has memory for.
    pub(crate) fn find(
        &self,
        text: &str,
        from: usize,
        groups: &mut [Option<(usize, usize)>],
    ) -> Result<bool, UnfinishedSearch> {
        let memory = self.memories.get();
        if memory.context.is_null() || memory.data.is_null() || memory.stack.is_null() {
            return Err(UnfinishedSearch(PCRE2_ERROR_NOMEMORY));
        }
        assert!(text.is_char_boundary(from), "a match begins where a letter begins");
        let mut units = 1 + text.len() / BYTES_PER_UNIT;
        // SAFETY: the memory belongs to this thread until it is returned, was made for this
        // program, and is complete. The text is UTF-8, as the option says, and `from` is a
        // character boundary. `units` lives until the match ends; the next match sets another
        // pointer.
        let code = unsafe {
            pcre2_set_callout_8(memory.context, Some(check_operation), (&raw mut units).cast());
            let (start, length) = (text.as_ptr(), text.len());
            let program = self.code.0.as_ptr();
            pcre2_match_8(
                program,
                start,
                length,
                from,
                PCRE2_NO_UTF_CHECK,
                memory.data,
                memory.context,
            )
        };
        match code {
            PCRE2_ERROR_NOMATCH => return Ok(false),
            ..0 => return Err(UnfinishedSearch(code)),
            _ => {}
        }
        // SAFETY: PCRE2 stores as many pairs of offsets as it reports, and the match has written
        // all of them.
        let places = unsafe {
            let pairs = pcre2_get_ovector_count_8(memory.data) as usize;
            std::slice::from_raw_parts(pcre2_get_ovector_pointer_8(memory.data), 2 * pairs)
        };
        for (group, pair) in groups.iter_mut().zip(places.chunks_exact(2)) {
            *group = (pair[0] != PCRE2_UNSET).then_some((pair[0], pair[1]));
        }
        Ok(true)
    }
}
