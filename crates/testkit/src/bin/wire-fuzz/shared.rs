//! The state that connections share: the corpus, commands to keep, failures, and the load of the
//! machine.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mayfly_value::RawDoc;
use rand::Rng;
use rand::rngs::SmallRng;

use crate::corpus::{Corpus, Step, line};
use crate::tree::Node;

/// The number of different failures after which a run ends.
const MOST_FAILURES: usize = 30;

/// Larger commands are not kept.
const LARGEST_KEPT_BYTES: usize = 64 << 10;

pub(crate) struct Shared {
    pub(crate) corpus: Corpus,
    pub(crate) port: u16,
    /// Commands that restore the settings of the server.
    restoring: Vec<Node>,
    /// The time by which an answer may exceed its limit.
    late: Duration,
    over: AtomicBool,
    sent: AtomicU64,
    /// The kinds of answers so far.
    seen: Mutex<HashSet<String>>,
    found: Mutex<Vec<Step>>,
    kept: Option<Mutex<File>>,
    failures: Mutex<HashMap<String, String>>,
    /// The largest number of threads that ran or waited for a processor at one time.
    load: AtomicU64,
    /// The times and lengths of delays of a `ping` or a sleep.
    delays: Mutex<Vec<(Instant, Duration)>>,
}

impl Shared {
    pub(crate) fn new(
        corpus: Corpus,
        port: u16,
        restoring: Vec<Node>,
        late: Duration,
        kept: Option<File>,
    ) -> Shared {
        Shared {
            corpus,
            port,
            restoring,
            late,
            over: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            seen: Mutex::default(),
            found: Mutex::default(),
            kept: kept.map(Mutex::new),
            failures: Mutex::default(),
            load: AtomicU64::new(1),
            delays: Mutex::default(),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    pub(crate) fn note_sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn seen(&self) -> usize {
        lock(&self.seen).len()
    }

    pub(crate) fn take_back(&self) -> Vec<Node> {
        self.restoring.clone()
    }

    /// Keeps a command if its answer is of a new kind.
    pub(crate) fn note(&self, name: &str, code: i32, text: &str, reply: RawDoc<'_>, step: Step) {
        let shape: String = match code {
            0 => reply.iter().map(|it| it.name().to_owned() + " ").collect(),
            _ => kind_of(text),
        };
        if !lock(&self.seen).insert(format!("{name} {code} {shape}")) {
            return;
        }
        let command = step.command.document();
        if command.as_bytes().len() > LARGEST_KEPT_BYTES {
            return;
        }
        if let Some(kept) = &self.kept {
            let text = line(&step.db, command.as_doc());
            let _kept = writeln!(lock(kept), "{text}");
        }
        lock(&self.found).push(step);
    }

    pub(crate) fn interesting(&self, random: &mut SmallRng) -> Option<Step> {
        let found = lock(&self.found);
        let index = (!found.is_empty()).then(|| random.random_range(0..found.len()))?;
        Some(found[index].clone())
    }

    /// Records a failure, once for each kind.
    pub(crate) fn fail(&self, why: String, db: &str, command: RawDoc<'_>) {
        let mut failures = lock(&self.failures);
        let text = format!("{why}\n  {}", line(db, command));
        failures.entry(kind_of(&why)).or_insert_with(|| {
            println!("{text}");
            text
        });
        if failures.len() >= MOST_FAILURES {
            self.end();
        }
    }

    pub(crate) fn fail_for_good(&self, why: String, db: &str, command: RawDoc<'_>) {
        self.fail(why, db, command);
        self.end();
    }

    pub(crate) fn failures(&self) -> Vec<String> {
        lock(&self.failures).values().cloned().collect()
    }

    /// Records the delay of an operation that usually takes no time.
    pub(crate) fn note_delay(&self, took: Duration) {
        if took > Duration::from_millis(50) {
            lock(&self.delays).push((Instant::now(), took));
        }
    }

    /// Records the number of runnable threads per processor.
    pub(crate) fn note_load(&self, threads: u64) {
        self.load.fetch_max(threads, Ordering::Relaxed);
    }

    /// Whether an answer exceeded its time limit. The limit is extended by the load of the machine.
    pub(crate) fn check_time(
        &self,
        name: &str,
        began: Instant,
        took: Duration,
        limit: Duration,
        db: &str,
        command: RawDoc<'_>,
    ) {
        let load = self.load.load(Ordering::Relaxed).clamp(1, 1000) as u32;
        let allowed = limit + self.late * load;
        if took <= allowed {
            return;
        }
        let delays: Duration =
            lock(&self.delays).iter().filter(|(at, _)| *at >= began).map(|(_, took)| *took).sum();
        if took > allowed + 2 * delays {
            let why = format!(
                "{name}: answered after {} ms with a limit of {} ms, while others were delayed by {} ms",
                took.as_millis(),
                limit.as_millis(),
                delays.as_millis()
            );
            self.fail(why, db, command);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A message without quoted texts and numbers.
fn kind_of(text: &str) -> String {
    let mut kind = String::new();
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, c) if c.is_ascii_digit() => {}
            (None, '{' | '[') => break,
            (None, c) => kind.push(c),
        }
        if kind.len() > 70 {
            break;
        }
    }
    kind
}
