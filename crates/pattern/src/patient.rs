//! PCRE2 with a question between any two steps: whether the operation may go on. Between two questions lies at most one look
//! through the text, so that a match ends soon after its operation has to, whatever the pattern and the text.
//!
//! The binding has no such questions (*callouts* in PCRE2's words), so this stands on the library's own functions. All unsafe code
//! of this crate is here: the compiled program is shared and never changed, and the memory that a match writes to belongs to one
//! thread while it runs ([`Room`]).

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

use crate::{Options, PATIENT_STACK_BYTES, Unfinished};

/// Stack of a match at its beginning, in bytes.
const FIRST_STACK_BYTES: usize = 32 << 10;

/// So many bytes of text count as one unit of work for each question: one step may look through them all.
const BYTES_PER_UNIT: usize = 16 << 10;

unsafe extern "C" {
    /// The binding leaves it out.
    fn pcre2_set_callout_8(
        context: *mut pcre2_match_context_8,
        callout: Option<unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int>,
        data: *mut c_void,
    ) -> c_int;
}

/// A compiled program.
pub(crate) struct Patient {
    code: Arc<Code>,
    rooms: Pool<Room, NewRoom>,
}

type NewRoom = Box<dyn Fn() -> Room + Send + Sync + UnwindSafe + RefUnwindSafe>;

struct Code(NonNull<pcre2_code_8>);

// SAFETY: a compiled program is not written to after `Patient::compile`; PCRE2 documents that threads may share it.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: it came from `pcre2_compile_8`, and nobody has it any more.
        unsafe { pcre2_code_free_8(self.0.as_ptr()) }
    }
}

/// What one match at a time writes to. A null pointer means that there was no memory.
struct Room {
    context: *mut pcre2_match_context_8,
    data: *mut pcre2_match_data_8,
    stack: *mut pcre2_jit_stack_8,
}

// SAFETY: nothing of it is bound to a thread; who has it has it alone.
unsafe impl Send for Room {}

impl Room {
    fn new(code: &Code) -> Room {
        // SAFETY: the functions take null for "as usual" and give null where there is no memory; the program lives.
        unsafe {
            let context = pcre2_match_context_create_8(null_mut());
            let data = pcre2_match_data_create_from_pattern_8(code.0.as_ptr(), null_mut());
            let stack =
                pcre2_jit_stack_create_8(FIRST_STACK_BYTES, PATIENT_STACK_BYTES, null_mut());
            if !context.is_null() && !stack.is_null() {
                pcre2_jit_stack_assign_8(context, None, stack.cast());
            }
            Room { context, data, stack }
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: each came from its constructor or is null, which these functions take.
        unsafe {
            pcre2_match_context_free_8(self.context);
            pcre2_match_data_free_8(self.data);
            pcre2_jit_stack_free_8(self.stack);
        }
    }
}

/// Called by PCRE2 before each item of the pattern; something negative ends the match with that code.
unsafe extern "C" fn may_go_on(_: *mut c_void, units: *mut c_void) -> c_int {
    // SAFETY: `Patient::find` gives the address of its own variable, which outlives the match.
    let units = unsafe { *units.cast::<usize>() };
    if spend(units).is_ok() { 0 } else { PCRE2_ERROR_CALLOUT }
}

impl Patient {
    /// Compiles a pattern that was compiled before without questions; nothing when it grows too large by them.
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
        // SAFETY: pattern and length belong together, the places for errors are there, null means a usual context.
        let code = unsafe {
            let (start, length) = (pattern.as_ptr(), pattern.len());
            pcre2_compile_8(start, length, flags, &mut error, &mut place, null_mut())
        };
        let code = Arc::new(Code(NonNull::new(code)?));
        // SAFETY: nobody else has the program yet. Where it cannot be translated, it is interpreted.
        let _ = unsafe { pcre2_jit_compile_8(code.0.as_ptr(), PCRE2_JIT_COMPLETE) };
        let made_for = code.clone();
        let new_room: NewRoom = Box::new(move || Room::new(&made_for));
        Some(Patient { code, rooms: Pool::new(new_room) })
    }

    /// Whether the text matches at this byte, which is one where a letter begins, or behind it; fills the places of groups in, as far
    /// as there is room for them.
    pub(crate) fn find(
        &self,
        text: &str,
        from: usize,
        groups: &mut [Option<(usize, usize)>],
    ) -> Result<bool, Unfinished> {
        let room = self.rooms.get();
        if room.context.is_null() || room.data.is_null() || room.stack.is_null() {
            return Err(Unfinished(PCRE2_ERROR_NOMEMORY));
        }
        assert!(text.is_char_boundary(from), "a match begins where a letter begins");
        let mut units = 1 + text.len() / BYTES_PER_UNIT;
        // SAFETY: the room is this thread's until it goes, made for this program, and complete. The text is UTF-8, as the option
        // says, and begins a letter at `from`. `units` lives until the match is over; the next match sets another.
        let code = unsafe {
            pcre2_set_callout_8(room.context, Some(may_go_on), (&raw mut units).cast());
            let (start, length) = (text.as_ptr(), text.len());
            let program = self.code.0.as_ptr();
            pcre2_match_8(program, start, length, from, PCRE2_NO_UTF_CHECK, room.data, room.context)
        };
        match code {
            PCRE2_ERROR_NOMATCH => return Ok(false),
            ..0 => return Err(Unfinished(code)),
            _ => {}
        }
        // SAFETY: PCRE2 keeps pairs of places in the room, as many as it says, all of them written by the match.
        let places = unsafe {
            let pairs = pcre2_get_ovector_count_8(room.data) as usize;
            std::slice::from_raw_parts(pcre2_get_ovector_pointer_8(room.data), 2 * pairs)
        };
        for (group, pair) in groups.iter_mut().zip(places.chunks_exact(2)) {
            *group = (pair[0] != PCRE2_UNSET).then_some((pair[0], pair[1]));
        }
        Ok(true)
    }
}
