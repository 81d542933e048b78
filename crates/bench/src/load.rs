//! Runs a load: connections that send requests for a given time.
//!
//! Closed loop: each connection sends the next request as soon as it has the reply. The latencies
//! of requests that were not sent during a stall are computed
//! ([`Latencies::corrected`](crate::latency::Latencies::corrected)). Open loop (`rate`): every
//! operation has a time at which it is due, and its latency counts from that time, even if all
//! connections were waiting for earlier replies. Delays of the load generator itself are not
//! counted.
//!
//! A few connections have a thread each, which waits for the reply. Many connections, or several
//! requests under way on one, use the event loop of [`crate::engine`].

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::caller::{Caller, Done, Turn};
use crate::client::Client;
use crate::engine;
use crate::figures::{Measured, Stopwatch};
use crate::latency::Recorder;
use crate::server::Target;
use crate::work::Plan;

/// The most connections that have a thread each.
const MAX_WAITING_THREADS: usize = 16;

/// Makes the caller with this number.
pub(crate) type Make<'w> = Box<dyn Fn(usize) -> Box<dyn Caller> + Sync + 'w>;

/// A load.
pub(crate) struct Load<'w> {
    pub(crate) connections: usize,
    /// Requests under way on each connection.
    pub(crate) in_flight: usize,
    /// Operations per second of all connections together; without it as many as possible.
    pub(crate) rate: Option<f64>,
    /// Whether even a few connections use the event loop.
    pub(crate) event_loop: bool,
    /// Width of the time buckets in which the load is counted, if its course in time is printed.
    pub(crate) bucket: Option<Duration>,
    pub(crate) make: Make<'w>,
}

impl<'w> Load<'w> {
    /// A load with the options of the command line, and this many connections unless it sets
    /// another number.
    pub(crate) fn new(
        plan: &Plan,
        connections: usize,
        make: impl Fn(usize) -> Box<dyn Caller> + Sync + 'w,
    ) -> Load<'w> {
        Load {
            connections: plan.connections.unwrap_or(connections).max(1),
            in_flight: plan.in_flight.max(1),
            rate: plan.rate,
            event_loop: false,
            bucket: plan.bucket,
            make: Box::new(make),
        }
    }

    /// The same load in the event loop.
    pub(crate) fn in_event_loop(mut self) -> Load<'w> {
        self.event_loop = true;
        self
    }

    /// The same load at a fixed rate.
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

/// The measurements of a load, its seconds, and its CPU figures per operation.
pub(crate) type Ended = (Recorder, f64, Measured);

/// Runs loads until the other work is done. The work gets the stopwatch of the loads.
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
        let began = watch.began;
        let own = Stopwatch::start(target);
        let result = other(watch);
        stopping.store(true, Ordering::Relaxed);
        let mut ended = Vec::new();
        for (threads, load) in running.into_iter().zip(loads) {
            let mut all = Recorder::new(began, load.bucket)?;
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

/// The part of a load that one thread runs.
enum Share {
    Waiting {
        client: Client,
        caller: Box<dyn Caller>,
        pace: Option<Pace>,
        bucket: Option<Duration>,
    },
    Engine(engine::Engine),
}

impl Share {
    fn run(self, stopping: &AtomicBool) -> Result<Recorder> {
        match self {
            Share::Engine(engine) => engine.run(stopping),
            Share::Waiting { mut client, mut caller, mut pace, bucket } => {
                let mut recorder = Recorder::new(Instant::now(), bucket)?;
                if let Some(pace) = &mut pace {
                    pace.begin();
                }
                while !stopping.load(Ordering::Relaxed) {
                    let due = pace.as_mut().map(Pace::wait);
                    let (asked, done) = converse(&mut client, &mut *caller)?;
                    let began = due.flatten().unwrap_or(asked);
                    recorder.record(began, Instant::now(), done);
                }
                recorder.unasked = pace.map_or(0, |pace| pace.late());
                Ok(recorder)
            }
        }
    }
}

/// Runs one operation; returns when it began, and its result.
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

/// Connects, and runs the first operation of each caller, which includes work that the server does
/// only once.
fn shares(target: &Target, load: &Load<'_>) -> Result<Vec<Share>> {
    let mut connections = Vec::new();
    for number in 0..load.connections {
        let mut client = target.client()?;
        let of_connection = number * load.in_flight..(number + 1) * load.in_flight;
        let mut callers: Vec<Box<dyn Caller>> = of_connection.map(|n| (load.make)(n)).collect();
        converse(&mut client, &mut *callers[0])?;
        connections.push((client, callers));
    }
    let rate = load.rate.map(|rate| rate / connections.len() as f64);
    let few = connections.len() <= MAX_WAITING_THREADS;
    if load.in_flight == 1 && few && !load.event_loop {
        let count = connections.len();
        let share = |(number, (client, mut callers)): (usize, (Client, Vec<Box<dyn Caller>>))| {
            let pace = rate.map(|rate| Pace::new(rate, number as f64 / count as f64));
            callers.pop().map(|caller| Share::Waiting { client, caller, pace, bucket: load.bucket })
        };
        return Ok(connections.into_iter().enumerate().filter_map(share).collect());
    }
    let threads = engine::threads().min(connections.len());
    let mut parts: Vec<Vec<_>> = (0..threads).map(|_| Vec::new()).collect();
    for (number, connection) in connections.into_iter().enumerate() {
        parts[number % threads].push(connection);
    }
    let rate = load.rate.map(|rate| rate / threads as f64);
    let engine = |part| engine::Engine::new(part, rate, load.bucket).map(Share::Engine);
    parts.into_iter().map(engine).collect()
}

/// The times at which a connection's operations should begin.
struct Pace {
    next: Instant,
    interval: Duration,
    offset: Duration,
}

impl Pace {
    /// A schedule of `rate` operations per second, shifted by this fraction of the interval.
    fn new(rate: f64, shift: f64) -> Pace {
        let interval = Duration::from_secs_f64(1.0 / rate.max(0.001));
        Pace { next: Instant::now(), interval, offset: interval.mul_f64(shift) }
    }

    fn begin(&mut self) {
        self.next = Instant::now() + self.offset;
    }

    /// Waits until the next operation is due. Returns that time if it has already passed because
    /// the previous reply was late.
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

    /// The number of due operations that were not started.
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

    /// Replies with success to every request until the client disconnects. Stalls once, at the
    /// given request.
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
            in_flight: 1,
            bucket: Some(Duration::from_millis(100)),
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
    fn threads_and_event_loop_count_alike() {
        let target = target(0);
        for in_flight in [1, 4] {
            let mut load = Load::new(&plan(), 3, ping);
            load.in_flight = in_flight;
            let measured = run(&target, &plan(), &load).unwrap();
            assert!(measured.get(RATE).unwrap() > 100.0);
            assert!(measured.get(P50).unwrap() > 0.0);
            let points = measured.timeline.unwrap().points(1);
            assert!((6..=20).contains(&points.len()), "{}", points.len());
        }
    }

    #[test]
    fn an_open_loop_counts_a_stall_for_all_that_were_due() {
        for in_flight in [1, 2] {
            let target = target(20);
            let mut load = Load::new(&plan(), 1, ping).at_rate(200.0);
            load.in_flight = in_flight;
            let measured = run(&target, &plan(), &load).unwrap();
            let rate = measured.get(RATE).unwrap();
            assert!((200.0..480.0).contains(&rate), "{rate}");
            // 200 of 600 ms: a third of the operations waits, not one of 120.
            let waited = measured.get(crate::figures::P95).unwrap();
            assert!(waited > 100.0, "{waited}");
        }
    }
}
