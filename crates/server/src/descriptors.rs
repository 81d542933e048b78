//! File descriptors: raising the limit of the process, and dividing it, so that connections never take those that the engine needs
//! to write its files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Table files that the engine holds open, where there is room for so many.
const MOST_TABLES: u64 = 512;
/// For logs, files of running flushes and compactions, temporary files, listeners and the runtime.
const MOST_OTHERS: u64 = 256;
/// The least of these that a server works with.
const LEAST_OTHERS: u64 = 64;

/// How the descriptors of the process are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// Most of all.
    limit: u64,
    /// Most table files that the engine holds open.
    pub(crate) tables: i32,
    /// Most connections.
    pub(crate) connections: usize,
}

impl Descriptors {
    /// Raises the limit as far as the process may, and divides it. The soft limit becomes the hard one. A process that is allowed to raises
    /// the hard one, too, if so many connections need more.
    pub(crate) fn of_process(connections: usize) -> Descriptors {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let needed = needed_for(connections);
        if maximum.is_some_and(|maximum| maximum < needed) {
            let raised = Rlimit { current: Some(needed), maximum: Some(needed) };
            if setrlimit(Resource::Nofile, raised).is_ok() {
                return Descriptors::divided(needed);
            }
        }
        let raised = Rlimit { current: maximum, maximum };
        let limit = match setrlimit(Resource::Nofile, raised) {
            Ok(()) => maximum,
            // Some systems allow less than they say.
            Err(error) => {
                tracing::warn!(%error, "the limit of open files cannot be raised");
                current
            }
        };
        Descriptors::divided(limit.unwrap_or(u64::MAX))
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

    /// As many connections as were asked for, or as there are descriptors for.
    pub(crate) fn connections_of(self, wanted: usize) -> usize {
        let Descriptors { limit, connections, .. } = self;
        if wanted > connections {
            tracing::info!(
                limit,
                wanted,
                connections,
                "the limit of open files allows fewer connections than net.maxIncomingConnections; ulimit -n or LimitNOFILE raises it"
            );
        }
        wanted.min(connections)
    }
}

/// The limit with which so many connections have their descriptors beside the engine's.
fn needed_for(connections: usize) -> u64 {
    (connections as u64).saturating_add(MOST_TABLES + MOST_OTHERS)
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
        for connections in [4_000, 20_000] {
            let divided = Descriptors::divided(needed_for(connections));
            assert_eq!(divided.connections, connections);
        }
        assert_eq!(Descriptors::divided(1024).connections_of(20_000), 640);
        assert_eq!(Descriptors::divided(1 << 20).connections_of(20_000), 20_000);
    }
}
