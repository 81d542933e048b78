//! Operations by read and write concern, flow control, and scheduler slots.

use mayfly_work::slots;

use crate::counters::metrics::{READ_CONCERNS, WriteConcernCounts};
use crate::observe::Representation;
use crate::observe::figure::{Figure, Points, Unit, counter, expected, gauge};
use crate::observe::reading::Reading;

/// `targetRateLimit` where nothing is limited.
const UNLIMITED: i64 = 1_000_000_000;

/// A server without secondaries limits no writes for them.
const NO_FLOW_CONTROL: &str = "Always the same: writes do not wait for other members.";
/// Reads and writes take the same slots.
const SAME_SLOTS: &str = "Repeats the field of read: reads and writes share the slots.";

pub(super) const ROWS: &[Figure] = &[
    expected("flowControl.enabled", NO_FLOW_CONTROL)
        .unit(Unit::Flag)
        .shown(Representation::Bool)
        .zero(),
    expected("flowControl.targetRateLimit", NO_FLOW_CONTROL).read(|_| UNLIMITED),
    expected("flowControl.timeAcquiringMicros", NO_FLOW_CONTROL).zero(),
    expected("flowControl.locksPerKiloOp", NO_FLOW_CONTROL).zero(),
    expected("flowControl.sustainerRate", NO_FLOW_CONTROL).zero(),
    expected("flowControl.isLagged", NO_FLOW_CONTROL)
        .unit(Unit::Flag)
        .shown(Representation::Bool)
        .zero(),
    expected("flowControl.isLaggedCount", NO_FLOW_CONTROL).int().zero(),
    expected("flowControl.isLaggedTimeMicros", NO_FLOW_CONTROL).zero(),
    counter(
        "opReadConcernCounters.{level}",
        "mayflydb_reads_by_concern_total",
        "Reads by the level of their read concern; none for reads without one.",
    )
    .each(|r, out| {
        for (level, count) in READ_CONCERNS.iter().zip(&r.service.metrics.read_concerns) {
            out.add(&[level], count.get());
        }
    }),
    counter(
        "opWriteConcernCounters.{kind}.wmajority",
        "mayflydb_writes_with_majority_total",
        "Written documents with the write concern majority, by kind of operation.",
    )
    .each(|r, out| writes(r, out, |counts| counts.majority.get())),
    counter(
        "opWriteConcernCounters.{kind}.wnum.{members}",
        "mayflydb_writes_with_number_total",
        "Written documents with a number of members as write concern, by kind of operation.",
    )
    .each(numbers),
    counter(
        "opWriteConcernCounters.{kind}.wtag.any",
        "mayflydb_writes_with_tag_total",
        "Written documents with a mode or tags as write concern, by kind of operation.",
    )
    .each(|r, out| writes(r, out, |counts| counts.tag.get())),
    counter(
        "opWriteConcernCounters.{kind}.none",
        "mayflydb_writes_without_concern_total",
        "Written documents without a write concern, by kind of operation.",
    )
    .each(|r, out| writes(r, out, |counts| counts.none.get())),
    gauge(
        "queues.execution.read.out",
        "mayflydb_slots_used",
        "Scheduler slots that long operations have. Short operations need none.",
    )
    .int()
    .read(|_| count(slots().used)),
    gauge("queues.execution.read.available", "mayflydb_slots_free", "Free scheduler slots.")
        .int()
        .read(|_| count(slots().all.saturating_sub(slots().used))),
    gauge(
        "queues.execution.read.totalTickets",
        "mayflydb_slots",
        "Scheduler slots for long operations; fewer while short ones are busy.",
    )
    .int()
    .read(|_| count(slots().all)),
    expected(
        "queues.execution.read.normalPriority.queueLength",
        "A part of globalLock.currentQueue.total: operations that have begun and wait for a slot.",
    )
    .read(|_| count(slots().queued)),
    expected("queues.execution.write.out", SAME_SLOTS).int().read(|_| count(slots().used)),
    expected("queues.execution.write.available", SAME_SLOTS)
        .int()
        .read(|_| count(slots().all.saturating_sub(slots().used))),
    expected("queues.execution.write.totalTickets", SAME_SLOTS).int().read(|_| count(slots().all)),
    expected("queues.execution.write.normalPriority.queueLength", SAME_SLOTS)
        .read(|_| count(slots().queued)),
];

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

const KINDS: [&str; 3] = ["insert", "update", "delete"];

fn writes(reading: &Reading<'_>, out: &mut Points<'_>, of: fn(&WriteConcernCounts) -> i64) {
    for (kind, counts) in KINDS.iter().zip(&reading.service.metrics.write_concerns) {
        out.add(&[kind], of(counts));
    }
}

/// Adds the numbers of members that occurred.
fn numbers(reading: &Reading<'_>, out: &mut Points<'_>) {
    for (kind, counts) in KINDS.iter().zip(&reading.service.metrics.write_concerns) {
        for (members, count) in counts.number.iter().enumerate() {
            if count.get() > 0 {
                out.add(&[kind, &members.to_string()], count.get());
            }
        }
    }
}
