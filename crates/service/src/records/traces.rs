//! Traces of commands: what the exporter of the server sends to a collector.
//!
//! They are off unless the configuration names a collector. A finished command is offered to the
//! exporter's queue; if that is full, the command's trace is dropped and counted. A command
//! therefore never waits for a collector.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

/// The parent of a command's span, from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The id of the trace.
    pub trace: u128,
    /// The id of the client's span.
    pub span: u64,
    /// Whether the client records this trace.
    pub is_sampled: bool,
}

impl TraceParent {
    /// Reads the value of a header `traceparent` (W3C Trace Context, version 00):
    /// `00-<32 hex digits>-<16 hex digits>-<2 hex digits>`. A later version may have more fields.
    pub fn parse(text: &str) -> Option<TraceParent> {
        let mut parts = text.trim().split('-');
        let [version, trace, span, flags] =
            [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
        let is_hex = |part: &str, digits: usize| {
            part.len() == digits
                && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let is_whole = version != "00" || parts.next().is_none();
        if !(is_hex(version, 2) && version != "ff" && is_whole && is_hex(flags, 2)) {
            return None;
        }
        if !(is_hex(trace, 32) && is_hex(span, 16)) {
            return None;
        }
        let (trace, span) =
            (u128::from_str_radix(trace, 16).ok()?, u64::from_str_radix(span, 16).ok()?);
        let is_sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
        (trace != 0 && span != 0).then_some(TraceParent { trace, span, is_sampled })
    }
}

/// A part of a command's time, in monotonic microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceTime {
    /// When it began.
    pub began: i64,
    /// How long it took.
    pub micros: i64,
}

/// The choice of a command's plans.
#[derive(Clone, Debug, Default)]
pub struct TracedPlan {
    /// The time of all choices together.
    pub time: TraceTime,
    /// The number of plans that were chosen.
    pub count: u32,
    /// The plan in short, such as `IXSCAN { a: 1 }`: names, no values.
    pub summary: String,
}

/// A finished command. It has names, but no values of the client.
#[derive(Clone, Debug, Default)]
pub struct CommandTrace {
    /// The id of the trace.
    pub trace: u128,
    /// The id of the command's span.
    pub span: u64,
    /// The id of the client's span.
    pub parent: Option<u64>,
    /// The name of the command.
    pub name: &'static str,
    /// The database that the command names.
    pub db: String,
    /// The collection; empty if the command concerns none.
    pub collection: String,
    /// From the arrival of the command until its reply may be sent.
    pub time: TraceTime,
    /// The choice of its plans.
    pub plan: Option<TracedPlan>,
    /// The wait until its writes, or what it has read, are durable.
    pub sync: Option<TraceTime>,
    /// The code and the name of its error.
    pub error: Option<(i32, String)>,
}

/// The queue of the exporter, and its counts.
#[derive(Default)]
pub struct Traces {
    queue: OnceLock<Queue>,
    /// Commands whose traces were sent.
    pub sent: AtomicU64,
    /// Commands whose traces were dropped because the queue was full.
    pub overflowed: AtomicU64,
    /// Commands whose traces were lost because the collector did not take them.
    pub refused: AtomicU64,
}

struct Queue {
    to: mpsc::Sender<CommandTrace>,
    /// The share of commands without a parent that are traced, of `u32::MAX`.
    share: u32,
}

impl Traces {
    /// Whether commands are traced.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.queue.get().is_some()
    }

    /// Begins to trace commands: those whose client records their trace, and this share of those
    /// without a parent. Only the first call has an effect.
    pub fn start(&self, to: mpsc::Sender<CommandTrace>, share: f64) {
        let share = (share.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u32;
        let _ = self.queue.set(Queue { to, share });
        mayfly_work::time_plans();
    }

    /// The beginning of a command's trace; `None` if this command is not traced.
    pub fn begin(&self, parent: Option<TraceParent>) -> Option<Box<CommandTrace>> {
        let queue = self.queue.get()?;
        let is_chosen = match parent {
            Some(parent) => parent.is_sampled,
            None => queue.share == u32::MAX || rand::random::<u32>() < queue.share,
        };
        is_chosen.then(|| {
            // An id of zero is invalid.
            let trace = parent.map_or_else(|| rand::random::<u128>() | 1, |parent| parent.trace);
            let span = rand::random::<u64>() | 1;
            let parent = parent.map(|parent| parent.span);
            Box::new(CommandTrace { trace, span, parent, ..CommandTrace::default() })
        })
    }

    /// Passes a finished command to the exporter, or drops it if the queue is full.
    pub fn finish(&self, trace: Box<CommandTrace>) {
        let Some(queue) = self.queue.get() else { return };
        if queue.to.try_send(*trace).is_err() {
            self.overflowed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W3C Trace Context, section 3.2.
    #[test]
    fn a_parent_is_read_as_the_recommendation_says() {
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let parse = |text: String| TraceParent::parse(&text);
        let known = parse(format!("00-{trace}-{span}-01")).unwrap();
        assert_eq!(known.trace, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!((known.span, known.is_sampled), (0x00f0_67aa_0ba9_02b7, true));
        assert!(!parse(format!("00-{trace}-{span}-00")).unwrap().is_sampled);
        assert!(parse(format!("cc-{trace}-{span}-01-later")).is_some());
        for wrong in [
            String::new(),
            "a comment".to_owned(),
            format!("ff-{trace}-{span}-01"),
            format!("00-{trace}-{span}-01-later"),
            format!("00-{trace}-{span}"),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{trace}-{span}-1"),
        ] {
            assert_eq!(parse(wrong.clone()), None, "{wrong}");
        }
    }

    #[test]
    fn a_full_queue_drops_and_the_client_decides() {
        let traces = Traces::default();
        assert!(!traces.is_on() && traces.begin(None).is_none());
        let (to, mut from) = mpsc::channel(1);
        traces.start(to, 0.0);
        assert!(traces.is_on() && traces.begin(None).is_none());
        let parent = TraceParent { trace: 5, span: 6, is_sampled: true };
        assert!(traces.begin(Some(TraceParent { is_sampled: false, ..parent })).is_none());
        for _ in 0..3 {
            let trace = traces.begin(Some(parent)).unwrap();
            assert_eq!((trace.trace, trace.parent), (5, Some(6)));
            traces.finish(trace);
        }
        assert!(from.try_recv().is_ok() && from.try_recv().is_err());
        assert_eq!(traces.overflowed.load(Ordering::Relaxed), 2);
    }
}
