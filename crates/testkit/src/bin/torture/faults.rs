//! File calls that fail. Each kind of fault is injected at several calls of a server under load.
//! The server must return errors with codes, acknowledge nothing that is not durable, neither end
//! nor hang, and have everything that it has acknowledged after a power cut. After a full disk or a
//! lack of file descriptors it must accept writes again without a restart; after a failed sync it
//! must not.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mayfly_base::testing::wait_until;
use mayfly_testkit::outside::Server;
use mayfly_value::bson::doc;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::control::{
    ALL, Control, EIO, EMFILE, ENOSPC, Fault, LINK, LOG, MANIFEST, MKDIR, OPEN, READ, RENAME,
    RESIZE, SHORT, SYNC, SYNC_FOLDER, TABLE, UNLINK, WRITE,
};
use crate::load::{Connection, DB, Failed};
use crate::power::{Rounds, Story, check, load, prepare};

/// The time for which writers run while the fault is active.
const LOADED: Duration = Duration::from_millis(400);
/// The time in which a server must accept writes again.
const RECOVERS: Duration = Duration::from_secs(40);

/// Error codes of transactions that are expected: lock timeouts, time limits, conflicts, and
/// changed definitions.
const CONFLICTS: &[i32] = &[24, 112, 246, 251, 290];

/// The code of writes that are refused until a restart.
const FENCED: i32 = 10107;
/// What a server must do when the fault is over.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// The fault has no effect on clients.
    Unnoticed,
    /// It accepts writes again.
    Recovers,
    /// If the fault occurred, it refuses writes until a restart.
    Refuses,
    /// Either, depending on the call that failed.
    Either,
}

/// The kinds of faults.
const FAULTS: &[(&str, u32, u32, i32, u64, Then)] = &[
    ("a log write fails", WRITE, LOG, EIO, 1, Then::Either),
    ("every log write fails", WRITE, LOG, EIO, u64::MAX, Then::Either),
    ("every write writes half", WRITE, ALL, SHORT, u64::MAX, Then::Unnoticed),
    ("a sync of the log fails", SYNC, LOG, EIO, 1, Then::Refuses),
    ("a write of a table fails", WRITE, TABLE, EIO, 1, Then::Either),
    ("a sync of a table fails", SYNC, TABLE, EIO, 1, Then::Either),
    ("a write of a manifest fails", WRITE, MANIFEST, EIO, 1, Then::Either),
    ("a sync of a manifest fails", SYNC, MANIFEST, EIO, 1, Then::Either),
    ("a sync of a folder fails", SYNC_FOLDER, ALL, EIO, 1, Then::Either),
    ("the disk is full for a moment", WRITE | RESIZE, ALL, ENOSPC, 1, Then::Recovers),
    ("the disk is full", WRITE | RESIZE | LINK | MKDIR, ALL, ENOSPC, u64::MAX, Then::Recovers),
    ("there is no descriptor for a moment", OPEN, ALL, EMFILE, 1, Then::Recovers),
    ("there are no descriptors", OPEN, ALL, EMFILE, u64::MAX, Then::Recovers),
    ("a read of a table fails", READ, TABLE, EIO, 1, Then::Either),
    ("reads of tables fail", READ, TABLE, EIO, u64::MAX, Then::Either),
    ("a rename fails", RENAME, ALL, EIO, 1, Then::Either),
    ("removing fails", UNLINK, ALL, EIO, u64::MAX, Then::Either),
];

impl Rounds<'_> {
    /// Injects each kind of fault at this many calls.
    pub(crate) fn faults(&mut self, calls: u32, only: &str, kinds: usize) -> Result<(), String> {
        let text = |error: std::io::Error| error.to_string();
        let control = Control::new(&self.folder.join("control")).map_err(text)?;
        let mut random = SmallRng::seed_from_u64(self.seed);
        let matching: Vec<_> = FAULTS.iter().filter(|fault| fault.0.contains(only)).collect();
        let chosen = matching.choose_multiple(&mut random, kinds);
        for (what, kinds, classes, error, times, then) in chosen {
            let fault = Fault {
                kinds: *kinds,
                classes: *classes,
                error: *error,
                delay_ms: 0,
                times: *times,
            };
            let (mut met, mut recovered) = (0, 0);
            // The first run has no fault, and counts the matching calls.
            let never = Fault { times: 0, ..fault };
            let all = self.fault(&control, what, never, 1, Then::Unnoticed)?.seen.max(1);
            for _ in 0..calls {
                // Half of the faults occur early.
                let from = match random.random_bool(0.5) {
                    true => random.random_range(1..=all),
                    false => random.random_range(1..=all.min(12)),
                };
                let ended = self
                    .fault(&control, what, fault, from, *then)
                    .map_err(|why| format!("{what}, at call {from} of {all}: {why}"))?;
                met += u32::from(ended.met);
                recovered += u32::from(ended.recovered);
            }
            println!(
                "faults: {what}: {all} calls, met {met} of {calls} times, wrote again {recovered} times"
            );
        }
        match "a slow sync".contains(only) && kinds >= FAULTS.len() {
            true => self.slow_sync(&control),
            false => Ok(()),
        }
    }

    fn start_with_control(&mut self) -> Result<Server, String> {
        let control = self.folder.join("control").display().to_string();
        self.start(&[("TORTURE_CONTROL".to_owned(), control)])
    }

    fn fault(
        &mut self,
        control: &Control,
        what: &str,
        fault: Fault,
        from: u64,
        then: Then,
    ) -> Result<Ended, String> {
        let text = |error: std::io::Error| error.to_string();
        control.disarm().map_err(text)?;
        let _old = fs::remove_dir_all(self.data());
        fs::create_dir_all(self.data()).map_err(text)?;
        let mut story = Story::new(self.seed.wrapping_add(from));
        let mut server = self.start_with_control()?;
        prepare(&mut story, &server).map_err(|why| format!("{why:?}"))?;
        control.arm(fault, from).map_err(text)?;
        let over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            load(threads, &mut story, server.port, &over);
            std::thread::sleep(LOADED);
            over.store(true, Ordering::Release);
        });
        let (seen, met) = (control.seen().map_err(text)?, control.injected().map_err(text)? > 0);
        let mut connection = Connection::open(server.port).map_err(text)?;
        let ping = connection.run("admin", &doc! { "ping": 1 });
        ping.map_err(|why| format!("ping: {why:?}: {}", complaints(&server.log())))?;
        control.disarm().map_err(text)?;
        let recovered = writes_again(&mut connection, then, met)?;
        let as_expected = match then {
            Then::Unnoticed | Then::Recovers => recovered,
            Then::Refuses => recovered != met,
            Then::Either => true,
        };
        let codes = story.writers.iter().flat_map(|it| it.refused.clone());
        let refused: BTreeMap<i32, u64> =
            codes.filter(|(code, _)| !CONFLICTS.contains(code)).collect();
        if !as_expected || (then == Then::Unnoticed && !refused.is_empty()) {
            return Err(format!(
                "wrote again: {recovered}; refused {refused:?}: {}",
                complaints(&server.log())
            ));
        }
        if refused.contains_key(&0) {
            return Err("an error without a code".to_owned());
        }
        if server.log().contains("panicked at") {
            return Err(complaints(&server.log()));
        }
        server.kill().map_err(|why| format!("{why}: {}", complaints(&server.log())))?;
        story.cut = self.cut(self.seed.wrapping_add(from))?;
        let wrong: Vec<String> =
            story.writers.iter_mut().flat_map(|it| std::mem::take(&mut it.wrong)).collect();
        if !wrong.is_empty() {
            return Err(wrong.join("\n"));
        }
        let mut server = self.start(&[])?;
        check(&mut story, &mut server)
            .map_err(|why| format!("{what} ({}): {why}", story.cut.what))?;
        server.kill()?;
        Ok(Ended { seen, met, recovered })
    }

    /// A sync that takes ten seconds: other operations must continue.
    fn slow_sync(&mut self, control: &Control) -> Result<(), String> {
        const SLOW_MS: u32 = 10_000;
        let text = |error: std::io::Error| error.to_string();
        let wrong = |why: Failed| format!("a slow sync: {why:?}");
        let _old = fs::remove_dir_all(self.data());
        fs::create_dir_all(self.data()).map_err(text)?;
        let server = self.start_with_control()?;
        let mut connection = Connection::open(server.port).map_err(text)?;
        let slow =
            Fault { kinds: SYNC, classes: LOG, error: 0, delay_ms: SLOW_MS, times: u64::MAX };
        control.arm(slow, 1).map_err(text)?;
        let port = server.port;
        let durable = std::thread::spawn(move || {
            let mut connection = Connection::open(port).ok()?;
            let began = Instant::now();
            let insert = doc! { "insert": "slow", "documents": [{ "_id": "durable" }], "writeConcern": { "w": "majority" } };
            connection.run(DB, &insert).ok()?;
            Some(began.elapsed())
        });
        wait_until("a slow sync", || control.injected().is_ok_and(|calls| calls > 0));
        let (began, mut commands) = (Instant::now(), 0);
        while began.elapsed() < Duration::from_millis(u64::from(SLOW_MS) / 2) {
            connection.run("admin", &doc! { "ping": 1 }).map_err(wrong)?;
            let insert = doc! { "insert": "slow", "documents": [{ "n": commands }], "writeConcern": { "w": 1 } };
            connection.run(DB, &insert).map_err(wrong)?;
            connection.run(DB, &doc! { "find": "slow", "limit": 1 }).map_err(wrong)?;
            commands += 3;
            std::thread::sleep(Duration::from_millis(10));
        }
        let took = began.elapsed();
        let waited = durable.join().ok().flatten();
        control.disarm().map_err(text)?;
        println!(
            "faults: a slow sync: {commands} commands in {took:?} beside it, it took {waited:?}"
        );
        match waited {
            Some(waited) if waited > took && took < Duration::from_millis(u64::from(SLOW_MS)) => {
                Ok(())
            }
            _ => Err("a slow sync keeps others from going on, or is not waited for".to_owned()),
        }
    }
}

struct Ended {
    seen: u64,
    met: bool,
    recovered: bool,
}

/// Whether a durable write is acknowledged again.
fn writes_again(connection: &mut Connection, then: Then, met: bool) -> Result<bool, String> {
    let began = Instant::now();
    loop {
        let insert = doc! { "insert": "again", "documents": [{ "x": 1 }], "writeConcern": { "w": "majority" } };
        match connection.run(DB, &insert) {
            Ok(_) => return Ok(true),
            Err(Failed::Refused(code, _)) => {
                let patience = match then {
                    Then::Recovers if code == FENCED => Duration::ZERO,
                    Then::Refuses if met => Duration::ZERO,
                    Then::Recovers | Then::Unnoticed | Then::Refuses => RECOVERS,
                    Then::Either => Duration::from_millis(300),
                };
                let waits = began.elapsed() < patience;
                if !waits {
                    return Ok(false);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(why) => return Err(format!("after the fault: {why:?}")),
        }
    }
}

/// The first warnings and errors of a log.
fn complaints(log: &str) -> String {
    let bad = |line: &&str| line.contains("\"s\":\"E\"") || !line.starts_with('{');
    let lines: Vec<&str> = log.lines().filter(bad).take(4).collect();
    lines.join("\n")
}
