//! Replay of the archived log after the files of a backup, up to a time.
//!
//! The entries run through `applyOps`, in a service without a network over the store that is being
//! restored. Its clock shows the wall time of each entry, so that records get the times of
//! modification that they had. Expiry is suspended meanwhile: the log contains each deletion.
//!
//! Entries of one collection and one wall time are applied together, as one unit. A transaction is
//! applied as one unit, too: its parts are collected until its last entry, and a transaction whose
//! last entry is after the time is left out.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use mayfly_base::{Clock, Error, ErrorCode, Result, SystemClock};
use mayfly_commands::{Dispatched, Incoming, Next, dispatch};
use mayfly_service::{CommandLine, Connection, LogRing, Service, ServiceOptions};
use mayfly_storage::Store;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use mayfly_work::OpRegistry;

/// Entries that are applied together.
const BATCH_ENTRIES: usize = 500;
const BATCH_BYTES: usize = 4 << 20;
/// The most parts of a transaction: it has at most some GB.
const MAX_OPEN_TRANSACTIONS: usize = 10_000;

/// A clock whose wall time is that of the entry that is applied.
pub(super) struct ReplayClock {
    system: SystemClock,
    now_ms: AtomicI64,
}

impl ReplayClock {
    pub(super) fn new() -> ReplayClock {
        let system = SystemClock::new();
        let now_ms = AtomicI64::new(system.now_ms());
        ReplayClock { system, now_ms }
    }

    fn set(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Shows the time of the machine again.
    pub(super) fn show_present(&self) {
        self.set(self.system.now_ms());
    }
}

impl Clock for ReplayClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    fn monotonic_micros(&self) -> i64 {
        self.system.monotonic_micros()
    }

    fn since_boot_micros(&self) -> i64 {
        self.system.since_boot_micros()
    }
}

/// The numbers of what was replayed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Replayed {
    pub(super) entries: u64,
}

/// A replay into a store.
pub(super) struct Replay {
    service: Arc<Service>,
    connection: Arc<Connection>,
    clock: Arc<ReplayClock>,
    /// Entries after this time are left out.
    until: u64,
    batch: Batch,
    /// The parts of transactions by session and number.
    parts: HashMap<Vec<u8>, Vec<DocBuf>>,
    replayed: Replayed,
}

/// Entries that are applied together.
#[derive(Default)]
struct Batch {
    entries: Vec<DocBuf>,
    bytes: usize,
    ns: String,
    wall_ms: i64,
    /// The time of the first entry, for errors.
    first: u64,
}

impl Replay {
    /// A replay of the entries up to and with this time.
    ///
    /// # Errors
    /// Not expected: the service accepts one connection.
    pub(super) fn new(
        store: Arc<Store>,
        ops: Arc<OpRegistry>,
        clock: Arc<ReplayClock>,
        until: u64,
    ) -> Result<Replay> {
        store.suspend_expiry_for_restore();
        let engine_name = store.engine().name();
        let service = Service::new(ServiceOptions {
            store,
            ops,
            clock: clock.clone(),
            log: Arc::new(LogRing::default()),
            command_line: CommandLine { argv: Vec::new(), parsed: DocBuf::empty() },
            host: "restore".into(),
            engine_name,
            max_connections: 1,
        });
        let connection = service.connections.open("restore".into(), String::new(), clock.now_ms());
        let Some(connection) = connection else {
            let text = "the replay cannot open a connection";
            return Err(Error::new(ErrorCode::InternalError, text));
        };
        let (batch, parts, replayed) = (Batch::default(), HashMap::new(), Replayed::default());
        Ok(Replay { service, connection, clock, until, batch, parts, replayed })
    }

    /// Applies the entries of a segment that are after `from`.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected for bytes that are no entries; errors of an entry, with its time.
    pub(super) fn segment(&mut self, mut entries: &[u8], from: u64) -> Result<()> {
        while !entries.is_empty() {
            let length = entries.first_chunk().map(|bytes| u32::from_le_bytes(*bytes) as usize);
            let split = length.and_then(|length| entries.split_at_checked(length));
            let entry = split.and_then(|(entry, rest)| Some((RawDoc::new(entry)?, rest)));
            let Some((entry, rest)) = entry else {
                let text = "a segment of the log contains bytes that are no entry";
                return Err(Error::new(ErrorCode::DataCorruptionDetected, text));
            };
            entries = rest;
            let Some(RawValue::Timestamp(time)) = entry.get("ts") else {
                let text = "a segment of the log contains an entry without a time";
                return Err(Error::new(ErrorCode::DataCorruptionDetected, text));
            };
            if time > from && time <= self.until {
                self.entry(entry, time)?;
            }
        }
        Ok(())
    }

    /// Applies what is collected; returns the numbers.
    ///
    /// # Errors
    /// As [`Replay::segment`].
    pub(super) fn end(mut self) -> Result<Replayed> {
        self.flush()?;
        Ok(self.replayed)
    }

    fn entry(&mut self, entry: RawDoc<'_>, time: u64) -> Result<()> {
        self.replayed.entries += 1;
        let text = |name: &str| entry.get(name).and_then(RawValue::as_str).unwrap_or_default();
        let (kind, ns) = (text("op"), text("ns"));
        let wall_ms = match entry.get("wall") {
            Some(RawValue::Date(wall_ms)) => wall_ms,
            _ => (time >> 32) as i64 * 1000,
        };
        match kind {
            "n" => Ok(()),
            "i" | "u" | "d" => {
                let bytes = entry.as_bytes().len();
                let Batch { entries, ns: of, .. } = &self.batch;
                let fits = of == ns && self.batch.wall_ms == wall_ms;
                let is_full =
                    entries.len() >= BATCH_ENTRIES || self.batch.bytes + bytes > BATCH_BYTES;
                if !fits || is_full {
                    self.flush()?;
                    let ns = ns.to_owned();
                    self.batch = Batch { ns, wall_ms, first: time, ..Batch::default() };
                }
                self.batch.bytes += bytes;
                self.batch.entries.push(entry.to_owned());
                Ok(())
            }
            _ => {
                self.flush()?;
                self.clock.set(wall_ms);
                match operations(entry) {
                    Some(operations) => self.unit(entry, operations, time),
                    None => self.apply([entry].into_iter(), time),
                }
            }
        }
    }

    /// An entry with several operations: a write unit, or a part of a transaction.
    fn unit(&mut self, entry: RawDoc<'_>, operations: RawDoc<'_>, time: u64) -> Result<()> {
        let command = entry.get("o").and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY);
        let is_part = command.get("partialTxn") == Some(RawValue::Bool(true));
        let own = operations.iter().filter_map(|item| item.value().as_document());
        let of = transaction(entry);
        if is_part {
            if self.parts.len() >= MAX_OPEN_TRANSACTIONS {
                let text = "the log has too many transactions without an end";
                return Err(Error::new(ErrorCode::DataCorruptionDetected, text));
            }
            self.parts.entry(of).or_default().extend(own.map(|item| item.to_owned()));
            return Ok(());
        }
        let before = self.parts.remove(&of).unwrap_or_default();
        let all = before.iter().map(DocBuf::as_doc).chain(own);
        self.apply(all.collect::<Vec<_>>().into_iter(), time)
    }

    fn flush(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        if batch.entries.is_empty() {
            return Ok(());
        }
        self.clock.set(batch.wall_ms);
        self.apply(batch.entries.iter().map(DocBuf::as_doc), batch.first)
    }

    /// Applies operations as one unit, or one by one if a collection does not allow that.
    fn apply<'e>(
        &self,
        entries: impl Iterator<Item = RawDoc<'e>> + Clone,
        time: u64,
    ) -> Result<()> {
        let applied =
            self.apply_as(entries.clone(), Atomic::Yes).or_else(|error| match error.code() {
                ErrorCode::NotImplemented => self.apply_as(entries, Atomic::No),
                _ => Err(error),
            });
        applied.map_err(|error| {
            let (seconds, increment) = (time >> 32, time as u32);
            let text = format!(
                "the entry {seconds}.{increment} of the log cannot be applied: {}",
                error.message()
            );
            Error::new(error.code(), text)
        })
    }

    fn apply_as<'e>(
        &self,
        entries: impl Iterator<Item = RawDoc<'e>>,
        atomic: Atomic,
    ) -> Result<()> {
        let mut command = DocBuilder::new();
        command.start_array("applyOps");
        for entry in entries {
            command.push(entry);
        }
        command.end();
        command.append("allowAtomic", atomic == Atomic::Yes);
        command.append("bypassDocumentValidation", true);
        // The store is synced at the end.
        command.start_document("writeConcern").append("w", 1).append("j", false).end();
        command.append("$db", "admin");
        let command = command.finish();
        let mut incoming = Incoming::new(command.as_doc());
        loop {
            let Dispatched { doc, next } =
                dispatch(&self.service, &self.connection, &incoming, DocBuilder::new());
            if matches!(next, Next::Wait(_)) {
                incoming.repeat.waited = true;
                continue;
            }
            return check(doc.finish().as_doc());
        }
    }
}

/// Whether the operations are applied as one unit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Atomic {
    Yes,
    No,
}

/// The operations of an entry with several.
fn operations(entry: RawDoc<'_>) -> Option<RawDoc<'_>> {
    entry.get("o")?.as_document()?.get("applyOps")?.as_array()
}

/// The session and number of a transaction, as a key.
fn transaction(entry: RawDoc<'_>) -> Vec<u8> {
    let session = entry.get("lsid").and_then(RawValue::as_document);
    let mut key = session.map_or_else(Vec::new, |session| session.as_bytes().to_vec());
    if let Some(RawValue::Int64(number)) = entry.get("txnNumber") {
        key.extend_from_slice(&number.to_be_bytes());
    }
    key
}

fn check(reply: RawDoc<'_>) -> Result<()> {
    if reply.get("ok") == Some(RawValue::Double(1.0)) {
        return Ok(());
    }
    let code = match reply.get("code") {
        Some(RawValue::Int32(code)) => ErrorCode(code),
        _ => ErrorCode::UnknownError,
    };
    let text = reply.get("errmsg").and_then(RawValue::as_str).unwrap_or("no reason is given");
    Err(Error::new(code, text))
}
