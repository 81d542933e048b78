//! A source that a running server has open: the commands `copyStore` and `moveStore` over one
//! connection.

use anyhow::{Context, anyhow};
use mayfly_storage::{CopyHold, CopyPoint, EntriesPosition, SessionsPart};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::source::LogPart;
use super::{CopyFlags, TRIED};
use crate::client::{Client, ServerError, Uri};
use crate::failure::{Failure, FailureKind};

const COPY: &str = "copyStore";
const MOVE: &str = "moveStore";

/// A running server.
pub(super) struct ServerSource {
    client: Client,
}

impl ServerSource {
    /// Connects, and checks the rights for a switch-over if one is wanted.
    ///
    /// # Errors
    /// A [`Failure`].
    pub(super) fn connect(uri: &Uri, flags: &CopyFlags) -> anyhow::Result<ServerSource> {
        let mut source = ServerSource { client: Client::connect(uri).map_err(of_server)? };
        if flags.switch_over {
            // It has no effect without a hold.
            source.run(MOVE, "release", [0; 16], |_| ())?;
        }
        Ok(source)
    }

    fn run(
        &mut self,
        command: &str,
        step: &str,
        copy: [u8; 16],
        more: impl FnOnce(&mut DocBuilder),
    ) -> anyhow::Result<DocBuf> {
        let mut request = DocBuilder::new();
        request.append(command, 1).append("step", step);
        request.append("copy", RawValue::uuid(&copy));
        more(&mut request);
        request.append("$db", "admin");
        self.client.run(request.finish().as_doc()).map_err(of_server)
    }

    pub(super) fn begin(&mut self, copy: [u8; 16]) -> anyhow::Result<CopyPoint> {
        let reply = self.run(COPY, "begin", copy, |_| ())?;
        let reply = reply.as_doc();
        let bytes = match reply.get("bytes") {
            Some(RawValue::Int64(bytes)) => bytes.unsigned_abs(),
            _ => 0,
        };
        let goes_on = reply.get("goesOn") == Some(RawValue::Bool(true));
        Ok(CopyPoint { store: store_of(reply)?, time: time_of(reply, "time")?, bytes, goes_on })
    }

    pub(super) fn entries(
        &mut self,
        copy: [u8; 16],
        after: Option<&EntriesPosition>,
    ) -> anyhow::Result<Option<Vec<u8>>> {
        let reply = self.run(COPY, "entries", copy, |request| {
            if let Some(EntriesPosition { keyspace, key }) = after {
                request.append("keyspace", *keyspace as i64);
                request.append("key", RawValue::Binary { subtype: 0, bytes: key });
            }
        })?;
        Ok(binary(reply.as_doc(), "run").map(<[u8]>::to_vec))
    }

    pub(super) fn follow(&mut self, copy: [u8; 16], after: u64) -> anyhow::Result<[u8; 16]> {
        let after = RawValue::Timestamp(after);
        let reply = self.run(COPY, "continue", copy, |request| {
            request.append("after", after);
        })?;
        store_of(reply.as_doc())
    }

    pub(super) fn log(&mut self, copy: [u8; 16], after: u64) -> anyhow::Result<LogPart> {
        let after = RawValue::Timestamp(after);
        let reply = self.run(COPY, "log", copy, |request| {
            request.append("after", after);
        })?;
        let reply = reply.as_doc();
        Ok(LogPart {
            entries: binary(reply, "entries").unwrap_or_default().to_vec(),
            reached: time_of(reply, "reached")?,
            settled: time_of(reply, "settled")?,
        })
    }

    pub(super) fn sessions(
        &mut self,
        copy: [u8; 16],
        since_ms: i64,
        after: Option<&[u8]>,
    ) -> anyhow::Result<SessionsPart> {
        let reply = self.run(COPY, "sessions", copy, |request| {
            request.append("since", since_ms);
            if let Some(key) = after {
                request.append("key", RawValue::Binary { subtype: 0, bytes: key });
            }
        })?;
        let reply = reply.as_doc();
        let run = binary(reply, "run").context(strange())?.to_vec();
        Ok(SessionsPart { run, next: binary(reply, "next").map(<[u8]>::to_vec) })
    }

    pub(super) fn hold(&mut self, copy: [u8; 16]) -> anyhow::Result<CopyHold> {
        let reply = self.run(MOVE, "hold", copy, |_| ())?;
        let reply = reply.as_doc();
        let suspended = binary(reply, "suspended").map(<[u8]>::to_vec);
        Ok(CopyHold { time: time_of(reply, "time")?, suspended })
    }

    pub(super) fn release(&mut self, copy: [u8; 16]) {
        // If it fails, the hold ends by its limit of time.
        let _ = self.run(MOVE, "release", copy, |_| ());
    }

    pub(super) fn finish(&mut self, copy: [u8; 16], time: u64) -> anyhow::Result<()> {
        let time = RawValue::Timestamp(time);
        let done = self.run(MOVE, "finish", copy, |request| {
            request.append("time", time);
        });
        done.map(drop)
    }

    pub(super) fn end(&mut self, copy: [u8; 16]) {
        // The server has ended, or gives the copy up later.
        let _ = self.run(COPY, "end", copy, |_| ());
    }
}

/// Whether the server answered with an error: it has not done what was asked.
pub(super) fn is_answer(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<ServerError>().is_some())
        || error.downcast_ref::<ServerError>().is_some()
}

fn strange() -> Failure {
    let advice = "use the version of mayflydb that the server has";
    Failure::new(FailureKind::Incompatible, "cannot understand the server's reply", advice)
}

fn binary<'d>(reply: RawDoc<'d>, name: &str) -> Option<&'d [u8]> {
    match reply.get(name)? {
        RawValue::Binary { bytes, .. } => Some(bytes),
        _ => None,
    }
}

fn store_of(reply: RawDoc<'_>) -> anyhow::Result<[u8; 16]> {
    let store = binary(reply, "store").and_then(|bytes| bytes.try_into().ok());
    store.ok_or_else(|| anyhow!("it has no identity").context(strange()))
}

fn time_of(reply: RawDoc<'_>, name: &str) -> anyhow::Result<u64> {
    match reply.get(name) {
        Some(RawValue::Timestamp(time)) => Ok(time),
        _ => Err(anyhow!("it has no '{name}'").context(strange())),
    }
}

fn of_server(error: anyhow::Error) -> anyhow::Error {
    let (kind, advice) = match error.downcast_ref::<ServerError>() {
        Some(ServerError { code: 13 | 18, .. }) => (
            FailureKind::Options,
            "log in as a user with the role backup, and for --switchOver also hostManager, on the \
             database admin",
        ),
        Some(ServerError { code: 59, .. }) => (
            FailureKind::Incompatible,
            "name a server of mayflydb with the version of this program",
        ),
        Some(ServerError { code: 286, .. }) => (
            FailureKind::General,
            "the log of the source no longer has the entries that the target needs: empty the \
             target, make the log larger (replSetResizeOplog), and copy again",
        ),
        Some(ServerError { .. }) => (FailureKind::General, "run the same command again"),
        None => (
            FailureKind::General,
            "check that the server of the source is running, and its address; then run the same \
             command again",
        ),
    };
    error.context(Failure::new(kind, TRIED, advice))
}
