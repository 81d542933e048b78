//! What a server does as the only one over its store, as the primary of a set, or as a secondary.
//!
//! | | alone, primary | secondary |
//! |---|---|---|
//! | documents about the server in `local` and `config` | written | those of the primary |
//! | search indexes, in files of the server | brought forward | brought forward |
//! | other indexes that follow the log | brought forward | not read |
//! | archive of the log | written | - |
//! | first start: a user, scripts | executed | - |

use std::sync::Arc;

use mayfly_service::{ReplicaSet, Service};
use tokio::task::JoinSet;

use crate::Config;
use crate::backup::LogArchive;

/// Makes the server a member of the configured set, and starts the tasks of its role.
pub(crate) fn begin(config: &Config, service: &Arc<Service>, tasks: &mut JoinSet<()>) {
    if let Some(name) = config.repl_set.clone() {
        // Other members must know the address.
        let known_as = config.has_members().then(|| service.host.clone());
        let advertised = config.advertise.clone().or(known_as);
        let set = ReplicaSet::new(name, advertised, service.clock.now_ms());
        // The engine has read the other members before. A primary knows its successors from the
        // start.
        set.note_members(service.store.engine().sharing().members());
        let _ = service.replica_set.set(set);
    }
    if !service.store.is_secondary() {
        note_start(service);
    }
    tasks.spawn(service.clone().follow_log());
    if config.has_members() {
        tasks.spawn(service.clone().follow_members());
    }
}

/// Writes the server's own documents.
fn note_start(service: &Arc<Service>) {
    let noted = service.note_start(mayfly_commands::VERSION);
    if let Err(error) = noted.and_then(|()| service.begin_own_documents()) {
        // Tools show less without these documents. For example a full disk must not prevent the
        // start.
        tracing::warn!(%error, "the server's own documents in 'local' and 'config' cannot be written");
    }
}

/// Archives the operation log, if that is configured. The primary of a set does so.
pub(crate) fn archive_log(
    config: &Config,
    service: &Arc<Service>,
) -> anyhow::Result<Option<LogArchive>> {
    match &config.backup.archive_to {
        Some(to) if !service.store.is_secondary() => {
            LogArchive::start(service.clone(), &config.backup, to).map(Some)
        }
        Some(_) | None => Ok(None),
    }
}
