//! Many connections in one thread, or several requests under way on each: an event loop over
//! `epoll`.
//!
//! Each caller has a slot of a connection and at most one request under way. Requests on one
//! connection do not wait for each other's replies; a reply is assigned to its slot by the id of
//! its request. At a fixed rate, a timer wakes the loop when the next operation is due, and a free
//! slot begins it. If no slot is free, the first one that becomes free begins it, and its latency
//! counts from the time when it was due.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::caller::{Caller, Turn};
use crate::client::Client;
use crate::latency::Recorder;
use crate::wire::{Incoming, Request, check};

/// The interval at which the loop checks whether it should stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Longest wait at the end for replies to requests that are under way.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most events that one call returns.
const EVENTS: usize = 256;
/// The event of the timer.
const TIMER: u64 = u64::MAX;

/// Threads that drive connections; the server needs the other processors.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |count| (count.get() / 2).clamp(1, 4))
}

/// The loop of a thread.
pub(crate) struct Engine {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Connection and slot of each caller without a request, at a fixed rate.
    free: Vec<(usize, usize)>,
    schedule: Option<Schedule>,
    bucket: Option<Duration>,
    under_way: usize,
    next_id: i32,
}

struct Connection {
    stream: TcpStream,
    incoming: Incoming,
    outgoing: Request,
    sent: usize,
    /// The socket's buffer is full.
    blocked: bool,
    slots: Vec<Slot>,
}

struct Slot {
    caller: Box<dyn Caller>,
    /// The request under way.
    id: Option<i32>,
    began: Instant,
}

/// The times at which operations are due, at a fixed rate.
struct Schedule {
    timer: OwnedFd,
    next: Instant,
    interval: Duration,
    /// Whether the timer is set. It is not while no slot is free.
    armed: bool,
}

impl Engine {
    /// A loop over these connections with their callers.
    pub(crate) fn new(
        connections: Vec<(Client, Vec<Box<dyn Caller>>)>,
        rate: Option<f64>,
        bucket: Option<Duration>,
    ) -> Result<Engine> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let now = Instant::now();
        let mut all = Vec::with_capacity(connections.len());
        for (number, (client, callers)) in connections.into_iter().enumerate() {
            let stream = client.into_stream();
            stream.set_nonblocking(true)?;
            epoll::add(&epoll, &stream, EventData::new_u64(number as u64), EventFlags::IN)?;
            let slot = |caller| Slot { caller, id: None, began: now };
            all.push(Connection {
                stream,
                incoming: Incoming::new(),
                outgoing: Request::default(),
                sent: 0,
                blocked: false,
                slots: callers.into_iter().map(slot).collect(),
            });
        }
        let schedule = match rate {
            Some(rate) => Some(Schedule::new(rate, &epoll)?),
            None => None,
        };
        Ok(Engine {
            epoll,
            connections: all,
            free: Vec::new(),
            schedule,
            bucket,
            under_way: 0,
            next_id: 1,
        })
    }

    /// Runs until `stopping` is set and the last reply has arrived.
    pub(crate) fn run(mut self, stopping: &AtomicBool) -> Result<Recorder> {
        let mut recorder = Recorder::new(Instant::now(), self.bucket)?;
        self.begin()?;
        let mut events = Vec::with_capacity(EVENTS);
        let mut stopped = None;
        loop {
            if stopped.is_none() && stopping.load(Ordering::Relaxed) {
                stopped = Some(Instant::now());
                recorder.unasked = self.schedule.as_ref().map_or(0, Schedule::late);
            }
            if let Some(since) = stopped {
                if self.under_way == 0 {
                    return Ok(recorder);
                }
                if since.elapsed() > PATIENCE {
                    bail!("{} requests were not answered", self.under_way);
                }
            }
            let space = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, space, Some(&LOOK)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                let number = event.data.u64();
                if number == TIMER {
                    if let Some(schedule) = &mut self.schedule {
                        schedule.armed = false;
                    }
                    if stopped.is_none() {
                        self.start_due()?;
                    }
                } else {
                    self.serve(number as usize, &mut recorder, stopped.is_none())?;
                }
            }
        }
    }

    fn begin(&mut self) -> Result<()> {
        if let Some(schedule) = &mut self.schedule {
            schedule.next = Instant::now();
        }
        for number in 0..self.connections.len() {
            for slot in 0..self.connections[number].slots.len() {
                if self.schedule.is_some() {
                    self.free.push((number, slot));
                } else {
                    self.launch(number, slot, Instant::now());
                }
            }
            self.flush(number)?;
        }
        match &mut self.schedule {
            Some(schedule) => schedule.arm(),
            None => Ok(()),
        }
    }

    /// Starts due operations in free slots. A delay of the loop itself is not counted as latency of
    /// the server.
    fn start_due(&mut self) -> Result<()> {
        loop {
            let now = Instant::now();
            let Some(schedule) = &mut self.schedule else { return Ok(()) };
            if schedule.next > now {
                return schedule.arm();
            }
            let Some((number, slot)) = self.free.pop() else { return Ok(()) };
            schedule.next += schedule.interval;
            self.launch(number, slot, now);
            self.flush(number)?;
        }
    }

    /// Builds the next request of a slot.
    fn launch(&mut self, number: usize, slot: usize, began: Instant) {
        let connection = &mut self.connections[number];
        connection.slots[slot].began = began;
        connection.ask(slot, self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        self.under_way += 1;
    }

    /// Reads the available replies, and sends the next requests.
    fn serve(&mut self, number: usize, recorder: &mut Recorder, more: bool) -> Result<()> {
        loop {
            let connection = &mut self.connections[number];
            let space = connection.incoming.space();
            let room = space.len();
            let read = match connection.stream.read(space) {
                Ok(0) => bail!("the server closed a connection"),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            connection.incoming.filled(read);
            let now = Instant::now();
            while let Some(slot) = self.connections[number].answer(self.next_id, now, recorder)? {
                match slot {
                    Answered::Again => self.next_id = self.next_id.wrapping_add(1),
                    Answered::Free(slot) => {
                        self.under_way -= 1;
                        if more {
                            self.go_on(number, slot, now)?;
                        }
                    }
                }
            }
            if read < room {
                break;
            }
        }
        self.flush(number)
    }

    /// Continues a slot after its reply: with the next operation, or waiting for one.
    fn go_on(&mut self, number: usize, slot: usize, now: Instant) -> Result<()> {
        match &mut self.schedule {
            None => self.launch(number, slot, now),
            Some(schedule) if schedule.next <= now => {
                let due = schedule.next;
                schedule.next += schedule.interval;
                self.launch(number, slot, due);
            }
            Some(schedule) => {
                self.free.push((number, slot));
                schedule.arm()?;
            }
        }
        Ok(())
    }

    /// Sends pending bytes until the socket's buffer is full.
    fn flush(&mut self, number: usize) -> Result<()> {
        let connection = &mut self.connections[number];
        let blocked = connection.send()?;
        if blocked != connection.blocked {
            connection.blocked = blocked;
            let flags = if blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            let data = EventData::new_u64(number as u64);
            epoll::modify(&self.epoll, &connection.stream, data, flags)?;
        }
        Ok(())
    }
}

enum Answered {
    Again,
    Free(usize),
}

impl Connection {
    fn ask(&mut self, slot: usize, id: i32) {
        let slot = &mut self.slots[slot];
        slot.caller.ask(&mut self.outgoing);
        self.outgoing.finish(id);
        slot.id = Some(id);
    }

    /// Passes the next complete reply to its caller, if there is one.
    fn answer(
        &mut self,
        next_id: i32,
        now: Instant,
        recorder: &mut Recorder,
    ) -> Result<Option<Answered>> {
        let Some((answers, reply)) = self.incoming.next()? else { return Ok(None) };
        check(reply)?;
        let found = self.slots.iter().position(|slot| slot.id == Some(answers));
        let number = found.context("an answer to a request that was not asked")?;
        let slot = &mut self.slots[number];
        match slot.caller.answer(reply)? {
            Turn::Again => {
                self.ask(number, next_id);
                Ok(Some(Answered::Again))
            }
            Turn::Done(done) => {
                slot.id = None;
                recorder.record(slot.began, now, done);
                Ok(Some(Answered::Free(number)))
            }
        }
    }

    /// Writes pending bytes; returns whether some are left.
    fn send(&mut self) -> Result<bool> {
        while self.sent < self.outgoing.bytes.len() {
            match self.stream.write(&self.outgoing.bytes[self.sent..]) {
                Ok(0) => bail!("the server closed a connection"),
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.outgoing.clear();
        self.sent = 0;
        Ok(false)
    }
}

impl Schedule {
    fn new(rate: f64, epoll: &OwnedFd) -> Result<Schedule> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        epoll::add(epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN | EventFlags::ET)?;
        let interval = Duration::from_secs_f64(1.0 / rate.max(0.001));
        Ok(Schedule { timer, next: Instant::now(), interval, armed: false })
    }

    /// Sets the timer to the time of the next operation.
    fn arm(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.armed, true) {
            return Ok(());
        }
        let left = self.next.saturating_duration_since(Instant::now());
        // Zero would disarm it.
        let left = left.max(Duration::from_micros(1));
        let value =
            Timespec { tv_sec: left.as_secs().try_into()?, tv_nsec: left.subsec_nanos().into() };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec)?;
        Ok(())
    }

    /// The number of due operations that were not started.
    fn late(&self) -> u64 {
        let late = Instant::now().saturating_duration_since(self.next);
        (late.as_nanos() / self.interval.as_nanos().max(1)) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use mayfly_value::RawDoc;

    use super::*;
    use crate::caller::caller;
    use crate::wire::reply;

    /// Waits for this many requests, or until no further one arrives, and then replies in reverse
    /// order. Returns the number of replies.
    fn backwards(listener: TcpListener, together: usize) -> Result<usize> {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(Duration::from_millis(50)))?;
        let (mut bytes, mut waiting, mut answered) = (Vec::new(), Vec::new(), 0);
        let mut piece = [0; 4096];
        let mut idle = false;
        loop {
            while let Some(length) = bytes.first_chunk::<4>().map(|b| u32::from_le_bytes(*b)) {
                if bytes.len() < length as usize {
                    break;
                }
                let id = i32::from_le_bytes(bytes[4..8].try_into()?);
                let request = RawDoc::at_front(&bytes[21..]).context("no document")?;
                let number = request.get("number").context("no number")?;
                waiting.push(reply(id, |doc| {
                    doc.append("ok", 1.0).append("number", number);
                }));
                bytes.drain(..length as usize);
            }
            if waiting.len() >= together || idle {
                answered += waiting.len();
                while let Some(answer) = waiting.pop() {
                    stream.write_all(&answer)?;
                }
            }
            idle = false;
            match stream.read(&mut piece) {
                Ok(0) => return Ok(answered),
                Ok(read) => bytes.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => idle = true,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A caller that sends its own number and expects it in the reply, twice per operation.
    fn counting(number: i32) -> Box<dyn Caller> {
        let ask = move |_: &mut bool, request: &mut Request| {
            request.command(|doc| {
                doc.append("echo", 1).append("number", number);
            });
        };
        caller(false, ask, move |second, reply| {
            match crate::wire::number_at(reply, &["number"]) {
                Some(found) if found == f64::from(number) => {}
                other => bail!("{other:?} instead of {number}"),
            }
            *second = !*second;
            Ok(if *second { Turn::Again } else { Turn::done(1) })
        })
    }

    fn engine(in_flight: i32, together: usize, rate: Option<f64>) -> Result<(Recorder, usize)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let stopping = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let server = scope.spawn(move || backwards(listener, together));
            let client = Client::connect(&address)?;
            let callers = (0..in_flight).map(counting).collect();
            let engine = Engine::new(vec![(client, callers)], rate, None)?;
            let running = scope.spawn(|| engine.run(&stopping));
            std::thread::sleep(Duration::from_millis(300));
            stopping.store(true, Ordering::Relaxed);
            let recorder = running.join().map_err(|_| anyhow::anyhow!("panic"))??;
            let answered = server.join().map_err(|_| anyhow::anyhow!("panic"))??;
            Ok((recorder, answered))
        })
    }

    #[test]
    fn answers_find_their_requests_in_any_order() {
        // All slots continue together, because the server waits for a request of each.
        let (recorder, answered) = engine(8, 8, None).unwrap();
        assert!(recorder.done.count >= 8);
        assert_eq!(recorder.done.count * 2, answered as u64);
        assert_eq!(recorder.latencies.len(), recorder.done.count);
    }

    #[test]
    fn a_fixed_rate_is_kept() {
        let (recorder, _) = engine(4, 1, Some(200.0)).unwrap();
        assert!((20..80).contains(&recorder.done.count), "{}", recorder.done.count);
        assert!(recorder.unasked < 40);
    }
}
