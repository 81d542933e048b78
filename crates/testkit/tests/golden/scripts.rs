//! Runs every script under `tests/scripts` on memory, under chaos, on RocksDB, on PostgreSQL,
//! without indexes that only make queries fast, and over records that are clustered by `_id`. The
//! answers must be the same.
//!
//! `SCRIPT=ttl/t_01` runs only the scripts whose path contains the text; `UPDATE_SCRIPTS=1` updates
//! recorded answers.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mayfly_base::testing::crate_folder;
use mayfly_kv_postgres::{PostgresEngine, PostgresOptions};
use mayfly_kv_rocksdb::{RocksEngine, RocksOptions};
use mayfly_testkit::{
    InFolder, Indexes, OpenEngine, Runner, Script, clustered, environment, memory,
    memory_under_chaos, shared_postgres,
};
use tempfile::TempDir;

fn folder() -> PathBuf {
    crate_folder().join("../../tests/scripts")
}

fn scripts() -> Vec<Script> {
    let mut paths = Vec::new();
    let mut folders = vec![folder()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "txt") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let name = |path: &PathBuf| match path.strip_prefix(folder()) {
        Ok(name) => name.to_string_lossy().into_owned(),
        Err(_) => unreachable!("every script is in the folder"),
    };
    let selected = environment::selected("SCRIPT", paths, name);
    selected.iter().map(|path| Script::read(path).unwrap_or_else(|why| panic!("{why}"))).collect()
}

/// RocksDB in a temporary folder, which is removed when the returned function and the engine are
/// dropped.
pub(crate) fn rocksdb() -> OpenEngine {
    let folder = Arc::new(TempDir::new().unwrap());
    let options = RocksOptions { cache_bytes: 32 << 20, ..RocksOptions::default() };
    Box::new(move || {
        let engine = RocksEngine::open(folder.path(), options).unwrap();
        Arc::new(InFolder::new(engine, folder.clone()))
    })
}

/// Whether writes conflict at random.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Conflicts {
    Real,
    Random,
}

impl Conflicts {
    /// Whether the script has the same answers with them. The engine with random conflicts is one
    /// across a network.
    fn fit(self, script: &Script) -> bool {
        match self {
            Conflicts::Real => true,
            Conflicts::Random => !script.conflicts_matter && !script.network_matters,
        }
    }
}

/// A store of its own on the PostgreSQL server that the tests share.
pub(crate) fn postgres() -> OpenEngine {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let schema = format!("golden_{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let options = PostgresOptions { schema, ..PostgresOptions::default() };
    Box::new(move || PostgresEngine::open(&shared_postgres().url(), options.clone()).unwrap())
}

fn run_all(indexes: Indexes, conflicts: Conflicts, open: &dyn Fn() -> OpenEngine) {
    run_those(indexes, open, &|script| conflicts.fit(script));
}

/// Over records that are clustered by `_id`.
fn run_clustered(conflicts: Conflicts, open: &dyn Fn() -> OpenEngine) {
    run_those(Indexes::All, &|| clustered(open()), &|script| {
        !script.insertion_order_matters && conflicts.fit(script)
    });
}

fn run_those(indexes: Indexes, open: &dyn Fn() -> OpenEngine, selects: &dyn Fn(&Script) -> bool) {
    let update = environment::number("UPDATE_SCRIPTS") == Some(1);
    let runner = Runner { indexes, update: update && indexes == Indexes::All };
    let (mut checked, mut failures, mut ran) = (0, Vec::new(), 0);
    for script in scripts() {
        if indexes == Indexes::OnlyMeaningful && script.indexes_matter {
            continue;
        }
        if !selects(&script) {
            continue;
        }
        let outcome = runner.run(&script, open());
        checked += outcome.checked;
        ran += 1;
        failures.extend(outcome.failures.iter().map(ToString::to_string));
        if let Some(text) = outcome.updated {
            std::fs::write(&script.path, text).unwrap();
        }
    }
    println!("{ran} scripts, {checked} answers");
    assert!(failures.is_empty(), "{} answers differ:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn scripts_on_memory() {
    run_all(Indexes::All, Conflicts::Real, &memory);
}

#[test]
fn scripts_on_memory_without_indexes() {
    run_all(Indexes::OnlyMeaningful, Conflicts::Real, &memory);
}

#[test]
fn scripts_under_chaos() {
    run_all(Indexes::All, Conflicts::Random, &|| memory_under_chaos(7));
}

#[test]
fn scripts_under_chaos_without_indexes() {
    run_all(Indexes::OnlyMeaningful, Conflicts::Random, &|| memory_under_chaos(11));
}

#[test]
fn scripts_on_rocksdb() {
    run_all(Indexes::All, Conflicts::Real, &rocksdb);
}

#[test]
fn scripts_on_rocksdb_without_indexes() {
    run_all(Indexes::OnlyMeaningful, Conflicts::Real, &rocksdb);
}

#[test]
fn scripts_on_postgres() {
    run_those(Indexes::All, &postgres, &|script| !script.network_matters);
}

#[test]
fn scripts_on_memory_with_clustered_records() {
    run_clustered(Conflicts::Real, &memory);
}

#[test]
fn scripts_on_rocksdb_with_clustered_records() {
    run_clustered(Conflicts::Real, &rocksdb);
}

#[test]
fn scripts_under_chaos_with_clustered_records() {
    run_clustered(Conflicts::Random, &|| memory_under_chaos(13));
}
