//! File descriptors: raises the limit of the process, and divides it so that connections cannot use
//! those that the engine needs for its files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of files that this process may open; `None` without a limit.
pub fn open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// The largest number of table files that the engine keeps open.
const MOST_TABLES: u64 = 512;
/// Descriptors for logs, files of running flushes and compactions, temporary files, listeners and
/// the runtime.
const MOST_OTHERS: u64 = 256;
/// The smallest number of these.
const LEAST_OTHERS: u64 = 64;

/// The division of the process's descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// The limit of the process.
    limit: u64,
    /// The largest number of open table files.
    pub(crate) tables: i32,
    /// The largest number of connections.
    pub(crate) connections: usize,
}

impl Descriptors {
    /// Raises the soft limit to the hard one and divides it.
    pub(crate) fn of_process() -> Descriptors {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        let current = match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.maximum,
            // Some systems allow less than the hard limit.
            Err(error) => {
                tracing::warn!(%error, "the limit of open files of the process cannot be raised");
                limit.current
            }
        };
        Descriptors::divided(current.unwrap_or(u64::MAX))
    }

    fn divided(limit: u64) -> Descriptors {
        let tables = (limit / 4).min(MOST_TABLES);
        let others = (limit / 8).clamp(LEAST_OTHERS, MOST_OTHERS);
        let connections = limit.saturating_sub(tables + others).max(1);
        Descriptors {
            limit,
            // At most a few hundred.
            tables: tables as i32,
            connections: usize::try_from(connections).unwrap_or(usize::MAX),
        }
    }

    /// The number of connections: as configured, or as descriptors allow.
    pub(crate) fn connections_of(self, configured: usize) -> usize {
        let Descriptors { limit, connections, .. } = self;
        if configured > connections {
            tracing::info!(
                limit,
                configured,
                connections,
                "the limit of open files allows fewer connections than net.maxIncomingConnections; ulimit -n or LimitNOFILE raises it"
            );
        }
        configured.min(connections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_has_its_share_of_every_limit() {
        for (limit, tables, connections) in [
            (64, 16, 1),
            (256, 64, 128),
            (1024, 256, 640),
            (4096, 512, 3328),
            (1 << 20, 512, (1 << 20) - 768),
            (u64::MAX, 512, usize::MAX - 768),
        ] {
            let divided = Descriptors::divided(limit);
            assert_eq!(divided, Descriptors { limit, tables, connections }, "{limit}");
        }
        assert_eq!(Descriptors::divided(1024).connections_of(20_000), 640);
        assert_eq!(Descriptors::divided(1 << 20).connections_of(20_000), 20_000);
    }
}
