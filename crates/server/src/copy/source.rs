//! The source of a copy: a store that a running server has open, or one that no server has open.

use mayfly_storage::{CopyHold, CopyPoint, EntriesPosition, SessionsPart};

use super::CopyFlags;
use super::local::LocalSource;
use super::place::Place;
use super::server::ServerSource;

/// Entries of the log.
pub(super) struct LogPart {
    /// BSON documents, one after the other.
    pub(super) entries: Vec<u8>,
    /// All entries up to this time were read.
    pub(super) reached: u64,
    /// The last time of the log.
    pub(super) settled: u64,
}

/// The source.
pub(super) enum Source {
    Server(ServerSource),
    Local(LocalSource),
}

impl Source {
    /// Connects to the server, or opens the store.
    ///
    /// # Errors
    /// A [`Failure`](crate::failure::Failure).
    pub(super) fn open(from: &Place, flags: &CopyFlags) -> anyhow::Result<Source> {
        match from {
            Place::Server(uri) => ServerSource::connect(uri, flags).map(Source::Server),
            _ => LocalSource::open(from.open_source()?).map(Source::Local),
        }
    }

    /// The point of a copy.
    ///
    /// # Errors
    /// A [`Failure`](crate::failure::Failure).
    pub(super) fn begin(&mut self, copy: [u8; 16]) -> anyhow::Result<CopyPoint> {
        match self {
            Source::Server(server) => server.begin(copy),
            Source::Local(local) => local.begin(copy),
        }
    }

    /// The next run of entries; `None` after the last one.
    ///
    /// # Errors
    /// A [`Failure`](crate::failure::Failure).
    pub(super) fn entries(
        &mut self,
        copy: [u8; 16],
        after: Option<&EntriesPosition>,
    ) -> anyhow::Result<Option<Vec<u8>>> {
        match self {
            Source::Server(server) => server.entries(copy, after),
            Source::Local(local) => local.entries(after),
        }
    }

    /// Begins to follow the log after a time; returns the identity of the store.
    ///
    /// # Errors
    /// A [`Failure`](crate::failure::Failure).
    pub(super) fn follow(&mut self, copy: [u8; 16], after: u64) -> anyhow::Result<[u8; 16]> {
        match self {
            Source::Server(server) => server.follow(copy, after),
            Source::Local(local) => local.follow(copy, after),
        }
    }

    /// Entries of the log after a time.
    ///
    /// # Errors
    /// A [`Failure`](crate::failure::Failure).
    pub(super) fn log(&mut self, copy: [u8; 16], after: u64) -> anyhow::Result<LogPart> {
        match self {
            Source::Server(server) => server.log(copy, after),
            Source::Local(local) => local.log(copy, after),
        }
    }

    /// A run of records of retryable writes since a wall time, and the key after which the next
    /// run begins; `None` after the last one.
    ///
    /// # Errors
    /// A [`Failure`](crate::failure::Failure).
    pub(super) fn sessions(
        &mut self,
        copy: [u8; 16],
        since_ms: i64,
        after: Option<&[u8]>,
    ) -> anyhow::Result<SessionsPart> {
        match self {
            Source::Server(server) => server.sessions(copy, since_ms, after),
            Source::Local(local) => local.sessions(copy, since_ms, after),
        }
    }

    /// Makes writes wait.
    ///
    /// # Errors
    /// A [`Failure`](crate::failure::Failure).
    pub(super) fn hold(&mut self, copy: [u8; 16]) -> anyhow::Result<CopyHold> {
        match self {
            Source::Server(server) => server.hold(copy),
            Source::Local(local) => local.hold(copy),
        }
    }

    /// Lets writes go on, after an error.
    pub(super) fn release(&mut self, copy: [u8; 16]) {
        if let Source::Server(server) = self {
            server.release(copy);
        }
    }

    /// Notes in the source that it was moved, and ends its server.
    ///
    /// # Errors
    /// A [`Failure`](crate::failure::Failure).
    pub(super) fn finish(&mut self, copy: [u8; 16], time: u64) -> anyhow::Result<()> {
        match self {
            Source::Server(server) => server.finish(copy, time),
            Source::Local(local) => local.finish(copy),
        }
    }

    /// Whether no server has the source open.
    pub(super) fn is_local(&self) -> bool {
        matches!(self, Source::Local(_))
    }

    /// Closes the source, after all that was needed of it was read.
    pub(super) fn close(self, copy: [u8; 16]) {
        match self {
            Source::Server(mut server) => server.end(copy),
            Source::Local(local) => local.close(),
        }
    }
}
