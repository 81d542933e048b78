//! The first half of a start: opens the data folder and the store, and creates and configures the
//! service.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, anyhow};
use mayfly_query::PartialFilters;
use mayfly_service::parameters;
use mayfly_service::{CommandLine, Scripts, Service, ServiceOptions};
use mayfly_storage::{CatalogMarks, Store, StoreOptions, StoreRole};
use mayfly_work::OpRegistry;

use crate::archive::Archive;
use crate::backup::FileBackups;
use crate::config::{EngineChoice, Profiling};
use crate::data_folder::{SEARCH_FOLDER, SPILL_FOLDER};
use crate::descriptors::Descriptors;
use crate::failure::{Failure, FailureKind};
use crate::start::StartOptions;
use crate::{Config, audit, data_folder};

/// Opens the data folder and the store, and creates the service.
///
/// # Errors
/// Errors of the folder or of an archive.
pub(crate) async fn open_service(
    options: StartOptions,
    host: String,
) -> anyhow::Result<Arc<Service>> {
    let StartOptions { mut config, clock, database_clock, log, argv, parsed, background, .. } =
        options;
    // Other members of a set see the address.
    config.advertise.get_or_insert_with(|| host.clone());
    data_folder::check(&config)?;
    let archive = open_archive(&config)?;
    let descriptors = Descriptors::of_process();
    let opening = config.clone();
    let engine =
        tokio::task::spawn_blocking(move || data_folder::open(&opening, descriptors.tables));
    let engine = engine.await.context("opening the data folder was interrupted")??;
    if let Some(clock) = database_clock {
        clock.follow(&engine)?;
    }
    let engine_name = engine.name();
    let ops = OpRegistry::new(clock.clone());
    let role = match (config.is_secondary, config.has_members()) {
        (true, _) => StoreRole::Secondary,
        (false, true) => StoreRole::Owner,
        (false, false) => StoreRole::Alone,
    };
    let store_options = StoreOptions {
        filters: Arc::new(PartialFilters),
        oplog_bytes: config.oplog_bytes,
        oplog_retention_ms: config.oplog_retention_ms,
        id_hint_bytes: (config.cache_bytes / 64).clamp(1 << 20, 64 << 20),
        background,
        for_replay: false,
        role,
        marks: CatalogMarks::Refuse,
    };
    let store = Store::open(engine, store_options, clock.clone(), ops.clone())
        .and_then(|store| match role {
            StoreRole::Secondary => Ok(store),
            StoreRole::Alone | StoreRole::Owner => store.begin_log().map(|()| store),
        })
        .map_err(|error| data_folder::store_failed(&config, &error))?;
    if let Some(archive) = archive {
        store.archive_into(Arc::new(archive));
    }
    mayfly_commands::announce_waits();
    let service = Service::new(ServiceOptions {
        store,
        ops,
        clock,
        log,
        command_line: CommandLine { argv, parsed },
        host,
        engine_name,
        max_connections: descriptors.connections_of(config.max_connections),
    });
    allow_backups(&service, &config);
    Ok(service)
}

/// Enables the command `backup`, if the configuration names a destination.
fn allow_backups(service: &Arc<Service>, config: &Config) {
    let options = config.backup.clone();
    if options.folder.is_some() || !options.urls.is_empty() {
        service.backups.run_by(Arc::new(FileBackups {
            store: service.store.clone(),
            clock: service.clock.clone(),
            options,
            data_folder: config.db_path.clone(),
        }));
    }
}

/// Limits memory and temporary files, sets the configured parameters, and starts the audit log.
///
/// # Errors
/// Errors of a parameter or of the audit log.
pub(crate) fn configure(service: &Arc<Service>, config: &Config) -> anyhow::Result<()> {
    let index_build_bytes = mayfly_service::index_build_bytes();
    service.store.index_build_bytes.store(index_build_bytes, Ordering::Relaxed);
    // A quarter of the engine's memory is for records, which Rust's allocator counts.
    mayfly_service::limit_memory(match config.engine {
        EngineChoice::Rocksdb => config.cache_bytes / 4 * 3,
        EngineChoice::Postgres | EngineChoice::Memory => 0,
    });
    if config.engine.has_folder() {
        let folder = config.db_path.join(SPILL_FOLDER);
        // Left by a crash of the previous run.
        let _ = std::fs::remove_dir_all(&folder);
        let _ = service.spill_folder.set(folder);
        let _ = service.data_folder.set(config.db_path.clone());
        service.search.keep_in(config.db_path.join(SEARCH_FOLDER));
        let store = Arc::downgrade(&service.store);
        let room = move |bytes| store.upgrade().map_or(Ok(()), |store| store.room_for_files(bytes));
        let disk_bytes = service.store.engine_stats().room.map_or(0, |room| room.total_bytes);
        service.ops.scratch().set_disk(disk_bytes, Box::new(room));
    }
    set_parameters(service, config)?;
    match &config.audit {
        Some(settings) => audit::begin(service, settings, config.log.rotate),
        None => Ok(()),
    }
}

/// The destination of archives, if the configuration sets one.
fn open_archive(config: &Config) -> anyhow::Result<Option<Archive>> {
    if config.archive.folder.is_none() && config.archive.urls.is_empty() {
        return Ok(None);
    }
    let archive = Archive::new(config.archive.clone()).with_context(|| {
        let folder = config.archive.folder.clone().unwrap_or_default();
        Failure::new(
            FailureKind::Folder,
            format!("cannot create the folder for archives {}", folder.display()),
            "choose a folder that this process may write to with --archiveFolder",
        )
    })?;
    Ok(Some(archive))
}

fn set_parameters(service: &Service, config: &Config) -> anyhow::Result<()> {
    service.settings.set_log_level(config.verbosity);
    let Profiling { slow_ms, sample_rate, .. } = config.profiling;
    service.set_slow_ms(slow_ms);
    service.profiler.set_sample_rate(sample_rate);
    let profiled = config.profiling.profiled();
    service.profiler.set_default(profiled.map_err(|error| anyhow!("{}", error.message()))?);
    if config.quiet {
        service.settings.be_quiet();
    }
    if !config.javascript_enabled {
        service.settings.set_scripts(Scripts::Refused);
    }
    if config.redact_client_data {
        mayfly_base::redact_client_data(true);
    }
    for (name, value) in &config.parameters {
        let parameter = parameters::find(name);
        let parameter = parameter.with_context(|| format!("unknown server parameter '{name}'"))?;
        parameter.set_starting(service, value).map_err(|error| anyhow!("{}", error.message()))?;
    }
    Ok(())
}
