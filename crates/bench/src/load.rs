//! Runs a load: some connections that ask until the time is up.
//!
//! Closed loop: each connection asks again as soon as it was answered, and what a stalled server
//! would have been asked meanwhile is added by calculation. Open loop (`rate`): every operation has
//! its time, and its latency counts from that time, however long all connections had to wait for
//! earlier answers. What the load generator itself oversleeps is not counted against the server.
//!
//! Each connection has a thread, which waits for the answer.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::caller::{Caller, Done, Turn};
use crate::client::Client;
use crate::figures::{Measured, Stopwatch};
use crate::latency::Recorder;
use crate::server::Target;
use crate::work::Plan;

/// Makes the caller with this number.
pub(crate) type Make<'w> = Box<dyn Fn(usize) -> Box<dyn Caller> + Sync + 'w>;

/// A load.
pub(crate) struct Load<'w> {
    pub(crate) connections: usize,
    /// Operations in a second, all connections together; as many as there can be when absent.
    pub(crate) rate: Option<f64>,
    pub(crate) make: Make<'w>,
}

impl<'w> Load<'w> {
    /// A load as the command line wants it, with this many connections unless it says how many.
    pub(crate) fn new(
        plan: &Plan,
        connections: usize,
        make: impl Fn(usize) -> Box<dyn Caller> + Sync + 'w,
    ) -> Load<'w> {
        Load {
            connections: plan.connections.unwrap_or(connections).max(1),
            rate: plan.rate,
            make: Box::new(make),
        }
    }

    /// The same at a fixed rate.
    pub(crate) fn at_rate(mut self, rate: f64) -> Load<'w> {
        self.rate = Some(rate);
        self
    }
}

/// Runs a load for the time of the plan and waits until the server is quiet.
pub(crate) fn run(target: &Target, plan: &Plan, load: &Load<'_>) -> Result<Measured> {
    let mut begun = None;
    let ((), mut ended) = run_during(target, &[load], |watch| {
        std::thread::sleep(plan.time);
        begun = Some(watch);
        Ok(())
    })?;
    let (Some(watch), Some(last)) = (begun, ended.pop()) else { bail!("nothing ran") };
    let (recorder, seconds, mut measured) = last;
    let done = recorder.done;
    measured.set_load(seconds, recorder);
    watch.settle(&mut measured, done.count, done.bytes);
    Ok(measured)
}

/// What a load saw, how long it took, and the CPU figures per operation of it.
pub(crate) type Ended = (Recorder, f64, Measured);

/// Runs loads until the other work is done, which gets a watch that began with them.
pub(crate) fn run_during<'t, T>(
    target: &'t Target,
    loads: &[&Load<'_>],
    other: impl FnOnce(Stopwatch<'t>) -> Result<T>,
) -> Result<(T, Vec<Ended>)> {
    let stopping = AtomicBool::new(false);
    let prepared: Result<Vec<Vec<Share>>> = loads.iter().map(|load| shares(target, load)).collect();
    let prepared = prepared?;
    let threads: usize = prepared.iter().map(Vec::len).sum();
    let ready = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        let mut running: Vec<Vec<ScopedJoinHandle<'_, Result<Recorder>>>> = Vec::new();
        for shares in prepared {
            let (stopping, ready) = (&stopping, &ready);
            let spawn = |share: Share| {
                scope.spawn(move || {
                    ready.wait();
                    share.run(stopping)
                })
            };
            running.push(shares.into_iter().map(spawn).collect());
        }
        ready.wait();
        let watch = Stopwatch::start(target);
        let own = Stopwatch::start(target);
        let result = other(watch);
        stopping.store(true, Ordering::Relaxed);
        let mut ended = Vec::new();
        for threads in running {
            let mut all = Recorder::new()?;
            for thread in threads {
                match thread.join() {
                    Ok(recorder) => all.add(recorder?)?,
                    Err(_) => bail!("a connection's thread panicked"),
                }
            }
            let (seconds, measured) = own.stop(all.done.count);
            ended.push((all, seconds, measured));
        }
        Ok((result?, ended))
    })
}

/// What one thread does for a load.
struct Share {
    client: Client,
    caller: Box<dyn Caller>,
    pace: Option<Pace>,
}

impl Share {
    fn run(mut self, stopping: &AtomicBool) -> Result<Recorder> {
        let mut recorder = Recorder::new()?;
        if let Some(pace) = &mut self.pace {
            pace.begin();
        }
        while !stopping.load(Ordering::Relaxed) {
            let due = self.pace.as_mut().map(Pace::wait);
            let (asked, done) = converse(&mut self.client, &mut *self.caller)?;
            let began = due.flatten().unwrap_or(asked);
            recorder.record(began, Instant::now(), done);
        }
        recorder.unasked = self.pace.map_or(0, |pace| pace.late());
        Ok(recorder)
    }
}

/// One operation: when it was asked, and what it was.
pub(crate) fn converse(client: &mut Client, caller: &mut dyn Caller) -> Result<(Instant, Done)> {
    client.prepare(|request| caller.ask(request));
    let asked = Instant::now();
    loop {
        client.send()?;
        match caller.answer(client.receive()?)? {
            Turn::Done(done) => return Ok((asked, done)),
            Turn::Again => client.prepare(|request| caller.ask(request)),
        }
    }
}

/// Connects; the first operation of each caller finds out what the server does only once.
fn shares(target: &Target, load: &Load<'_>) -> Result<Vec<Share>> {
    let rate = load.rate.map(|rate| rate / load.connections as f64);
    let share = |number: usize| {
        let (mut client, mut caller) = (target.client()?, (load.make)(number));
        converse(&mut client, &mut *caller)?;
        let shift = number as f64 / load.connections as f64;
        Ok(Share { client, caller, pace: rate.map(|rate| Pace::new(rate, shift)) })
    };
    (0..load.connections).map(share).collect()
}

/// The times at which a connection's operations should begin.
struct Pace {
    next: Instant,
    interval: Duration,
    offset: Duration,
}

impl Pace {
    /// So many operations in a second, shifted by this part of the distance between two.
    fn new(rate: f64, shift: f64) -> Pace {
        let interval = Duration::from_secs_f64(1.0 / rate.max(0.001));
        Pace { next: Instant::now(), interval, offset: interval.mul_f64(shift) }
    }

    fn begin(&mut self) {
        self.next = Instant::now() + self.offset;
    }

    /// Waits for the next time; gives that time if it has passed because of the answer before.
    fn wait(&mut self) -> Option<Instant> {
        let due = self.next;
        self.next += self.interval;
        match due.checked_duration_since(Instant::now()) {
            Some(early) => {
                std::thread::sleep(early);
                None
            }
            None => Some(due),
        }
    }

    /// Operations whose time has come and that were not asked.
    fn late(&self) -> u64 {
        let late = Instant::now().saturating_duration_since(self.next);
        (late.as_nanos() / self.interval.as_nanos().max(1)) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::caller::caller;
    use crate::figures::{P50, RATE};
    use crate::server::Source;
    use crate::wire::reply;

    /// Says yes to everything until the client goes; stalls once, at the given request.
    fn agree(mut stream: TcpStream, stall_at: usize) -> std::io::Result<()> {
        let (mut bytes, mut piece, mut seen) = (Vec::new(), [0; 4096], 0);
        loop {
            while let Some(length) = bytes.first_chunk::<4>().map(|b| u32::from_le_bytes(*b)) {
                if bytes.len() < length as usize {
                    break;
                }
                let id = bytes[4..8].iter().rev().fold(0, |id, byte| (id << 8) | i32::from(*byte));
                seen += 1;
                if seen == stall_at {
                    std::thread::sleep(Duration::from_millis(200));
                }
                let yes = reply(id, |doc| {
                    doc.append("ok", 1.0);
                });
                stream.write_all(&yes)?;
                bytes.drain(..length as usize);
            }
            match stream.read(&mut piece)? {
                0 => return Ok(()),
                read => bytes.extend_from_slice(&piece[..read]),
            }
        }
    }

    /// A server in this process; its threads end with their connections.
    fn target(stall_at: usize) -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || agree(stream, stall_at));
            }
        });
        Source::Address(address).target().unwrap()
    }

    fn plan() -> Plan {
        Plan {
            time: Duration::from_millis(600),
            documents: 0,
            records: 0,
            start_documents: 0,
            rate: None,
            connections: None,
            csv: None,
        }
    }

    fn ping(_: usize) -> Box<dyn Caller> {
        let ask = |_: &mut (), request: &mut crate::wire::Request| {
            request.command(|doc| {
                doc.append("ping", 1);
            });
        };
        caller((), ask, |_, _| Ok(Turn::wrote(2, 10)))
    }

    #[test]
    fn operations_are_counted() {
        let measured = run(&target(0), &plan(), &Load::new(&plan(), 3, ping)).unwrap();
        assert!(measured.get(RATE).unwrap() > 100.0);
        assert!(measured.get(P50).unwrap() > 0.0);
    }

    #[test]
    fn an_open_loop_counts_a_stall_for_all_that_were_due() {
        let load = Load::new(&plan(), 1, ping).at_rate(200.0);
        let measured = run(&target(20), &plan(), &load).unwrap();
        let rate = measured.get(RATE).unwrap();
        assert!((200.0..480.0).contains(&rate), "{rate}");
        // 200 of 600 ms: a third of the operations waits, not one of 120.
        let waited = measured.get(crate::figures::P95).unwrap();
        assert!(waited > 100.0, "{waited}");
    }
}
