//! Memory limits of query operators: `internalQueryMaxBlockingSortMemoryUsageBytes` and its family.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use mayfly_base::limits::{MAX_BLOCKING_MEMORY_BYTES, MAX_OPERATION_MEMORY_BYTES};
use mayfly_query::{AccumulatorLimits, MemoryLimits};
use mayfly_work::memory;
use mayfly_work::spill::Operator;

use crate::process::machine::Memory;

/// The lower bound of an operation's largest memory, on any machine: work on two documents of 16 MB
/// may need this much.
const LEAST_MOST: usize = 256 << 20;
/// The lower bound of the memory that the operators of an operation share, or an eighth of the
/// memory if that is less.
const LEAST_OPERATION_BYTES: u64 = 64 << 20;

/// The memory parameters.
#[derive(Debug)]
pub struct MemoryParameters {
    /// `allowDiskUseByDefault`: the default of `allowDiskUse`.
    pub(crate) allow_disk_use: AtomicBool,
    /// `maxOperationMemoryBytes`: all operators of an operation together.
    pub(crate) operation: AtomicI64,
    /// `internalLookupStageIntermediateDocumentMaxSizeBytes`.
    pub(crate) lookup_array: AtomicI64,
    /// `internalQueryMaxPushBytes`.
    pub(crate) push: AtomicI64,
    /// `internalQueryMaxAddToSetBytes`.
    pub(crate) add_to_set: AtomicI64,
    /// `internalQueryMaxConcatArraysBytes`.
    pub(crate) concat_arrays: AtomicI64,
    /// `internalQueryMaxSetUnionBytes`.
    pub(crate) set_union: AtomicI64,
    /// `internalQueryTopNAccumulatorBytes`.
    pub(crate) top_n: AtomicI64,
    /// `internalQueryFacetBufferSizeBytes`: how much input `$facet` may buffer. This implementation
    /// passes each document on at once and buffers none; its result has the limit of
    /// [`Operator::Facet`].
    pub(crate) facet_buffer: AtomicI64,
    operators: [AtomicI64; Operator::ALL.len()],
}

impl Default for MemoryParameters {
    fn default() -> MemoryParameters {
        let one = || AtomicI64::new(MAX_BLOCKING_MEMORY_BYTES as i64);
        MemoryParameters {
            allow_disk_use: AtomicBool::new(true),
            operation: AtomicI64::new(operation_bytes()),
            lookup_array: one(),
            push: one(),
            add_to_set: one(),
            concat_arrays: one(),
            set_union: one(),
            top_n: one(),
            facet_buffer: one(),
            operators: std::array::from_fn(|_| one()),
        }
    }
}

/// `memoryLimitMB`: the memory limit of the process; 0 for none.
pub(crate) fn process_limit_mb() -> i64 {
    match memory::process_limit() {
        usize::MAX => 0,
        bytes => i64::try_from(bytes >> 20).unwrap_or(i64::MAX),
    }
}

/// Sets `memoryLimitMB`.
pub(crate) fn set_process_limit_mb(megabytes: i64) {
    memory::set_process_limit(match usize::try_from(megabytes) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(megabytes) => megabytes.saturating_mul(1 << 20),
    });
}

/// The memory that the process may use, in bytes; 0 if unknown.
pub fn usable_memory() -> u64 {
    Memory::of_system().usable_bytes()
}

/// The memory that is set aside in addition to the counted bytes and the engine's budget: code,
/// threads, memtables that are being flushed, and freed memory that the allocators have not
/// returned yet. If more than that is resident, the limit follows ([`memory::measure`]).
const UNCOUNTED_BYTES: usize = 16 << 20;

/// Below this size less of the memory is used, because a single request is a large part of it: 192
/// MB.
const LITTLE_BYTES: usize = 192 << 20;

/// Limits the process to three quarters of the memory, or to five eighths of it if there is little,
/// of which `engine_bytes` belong to the engine. The rest is for the kernel's buffers of sockets
/// and files, and for what requests allocate between two measurements.
pub fn limit_memory(engine_bytes: usize) {
    memory::set_others(engine_bytes.saturating_add(UNCOUNTED_BYTES));
    if let Ok(all @ 1..) = usize::try_from(Memory::of_system().usable_bytes()) {
        let share = if all < LITTLE_BYTES { all / 8 * 5 } else { all / 4 * 3 };
        memory::set_process_limit(share);
    }
}

/// The initial value of `maxIndexBuildMemoryUsageMegabytes` in bytes: 200 MB, or an eighth of the
/// memory if that is less.
pub fn index_build_bytes() -> i64 {
    const MOST: u64 = 200 << 20;
    match Memory::of_system().usable_bytes() {
        0 => MOST as i64,
        all => (all / 8).min(MOST) as i64,
    }
}

/// The default memory limit of an operation: 1 GiB, or a quarter of the memory if that is less.
fn operation_bytes() -> i64 {
    static BYTES: OnceLock<i64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let Memory { machine_bytes, limit_bytes } = Memory::of_system();
        let all = limit_bytes.map_or(machine_bytes, |limit| limit.min(machine_bytes.max(1)));
        let most = MAX_OPERATION_MEMORY_BYTES as u64;
        let bytes = match all {
            0 => most,
            all => (all / 4).clamp(LEAST_OPERATION_BYTES.min(all / 8), most),
        };
        i64::try_from(bytes).unwrap_or(i64::MAX)
    })
}

fn get(place: &AtomicI64) -> usize {
    usize::try_from(place.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
}

impl MemoryParameters {
    /// The memory limit of an operator.
    pub(crate) fn operator(&self, operator: Operator) -> &AtomicI64 {
        &self.operators[operator as usize]
    }

    /// Whether commands that do not give `allowDiskUse` may use files.
    pub fn allows_disk_use(&self) -> bool {
        self.allow_disk_use.load(Ordering::Relaxed)
    }

    /// The largest memory of an operation as a whole, in bytes. Its operators spill before that.
    pub fn most_of_operation(&self) -> usize {
        get(&self.operation).max(LEAST_MOST)
    }

    /// The limits of operators, for a query.
    pub fn limits(&self) -> MemoryLimits {
        let mut limits = MemoryLimits::default();
        limits.operation = get(&self.operation);
        limits.lookup_array = get(&self.lookup_array);
        Operator::ALL
            .into_iter()
            .fold(limits, |limits, operator| limits.with(operator, get(self.operator(operator))))
    }

    /// The limits of accumulators.
    pub fn accumulators(&self) -> AccumulatorLimits {
        AccumulatorLimits {
            push: get(&self.push),
            add_to_set: get(&self.add_to_set),
            concat_arrays: get(&self.concat_arrays),
            set_union: get(&self.set_union),
            top_n: get(&self.top_n),
        }
    }
}
