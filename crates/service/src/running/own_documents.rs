//! Documents about the server in `local` and `config`, where tools read them.
//!
//! | mode | collection | document |
//! |---|---|---|
//! | member of a set | `local.system.replset` | the set's configuration; `rs.printSecondaryReplicationInfo()` reads it |
//! | router | `config.version` | `{ _id: 1, clusterId: ObjectId }`; `sh.status()` reads it |
//! | any | `local.startup_log` | `{ _id: "host-time", hostname, startTime, cmdLine, pid, buildinfo }`: the last hundred starts |
//! | router | `config.shards` | `{ _id: "mayflydb", host: "address", state: 1 }`: this server |
//!
//! A start writes only changed documents. The operation log does not contain them.

use mayfly_storage::ReadView;
use mayfly_work::OpCtx;
use std::ops::ControlFlow;

use mayfly_base::{Namespace, Result};
use mayfly_storage::{Collection, Direction, ScanLimit, WriteUnit, id_key, whole_range};
use mayfly_value::{DocBuf, DocBuilder, RawValue, new_object_id};

use crate::server::Service;
use crate::settings::replica_set::SetConfig;
use crate::settings::sharding::SHARD;

/// A database and one of its collections.
type Place = (&'static str, &'static str);

const REPLSET: Place = ("local", "system.replset");
const VERSION: Place = ("config", "version");
const SHARDS: Place = ("config", "shards");

const STARTS: Place = ("local", "startup_log");
/// The number of starts that are kept.
const KEPT_STARTS: usize = 100;

impl Service {
    /// Adds this start to `local.startup_log`.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn note_start(&self, version: &str) -> Result<()> {
        let now_ms = self.clock.now_ms();
        let host = self.host.rsplit_once(':').map_or(&*self.host, |(host, _)| host);
        let mut start = DocBuilder::new();
        start.append("_id", format!("{host}-{now_ms}").as_str()).append("hostname", host);
        start.append("startTime", RawValue::Date(now_ms));
        start.append("cmdLine", &self.command_line.parsed);
        start.append("pid", i64::from(std::process::id()));
        start.start_document("buildinfo").append("version", version).end();
        let start = start.finish();
        let collection = self.store.get_or_create_own(&Namespace::new(STARTS.0, STARTS.1)?)?;
        let present = self.all_documents(&collection)?;
        let gone = (present.len() + 1).saturating_sub(KEPT_STARTS);
        let op = OpCtx::detached(self.clock.clone());
        self.store.write(&op, &ReadView::now(), &collection, |unit| {
            unit.leave_unlogged();
            unit.bypass_validation();
            for old in &present[..gone] {
                remove(unit, old)?;
            }
            // A second start within a millisecond has the same `_id`.
            remove(unit, &start)?;
            unit.insert(start.as_doc())
        })
    }

    /// Reads and writes these documents at startup.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn begin_own_documents(&self) -> Result<()> {
        if let Some(set) = self.replica_set.get() {
            if let Some(stored) = self.own_document(REPLSET, RawValue::String(&set.name))? {
                set.configure(SetConfig::from_stored(stored.as_doc()));
            }
            self.keep_set_config()?;
            self.put_own(VERSION, None)?;
            return self.put_own(SHARDS, None);
        }
        if self.own_document(VERSION, RawValue::Int32(1))?.is_none() {
            let cluster_id = RawValue::ObjectId(new_object_id(self.clock.now_ms()));
            let mut version = DocBuilder::new();
            version.append("_id", 1).append("clusterId", cluster_id);
            self.put_own(VERSION, Some(&version.finish()))?;
        }
        let mut shard = DocBuilder::new();
        shard.append("_id", SHARD).append("host", self.host.as_str()).append("state", 1);
        self.put_own(SHARDS, Some(&shard.finish()))
    }

    /// Stores the current configuration of the set.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn keep_set_config(&self) -> Result<()> {
        let Some(set) = self.replica_set.get() else { return Ok(()) };
        let stored = set.config().stored(set, &self.host);
        self.put_own(REPLSET, Some(&stored))
    }

    fn own_document(&self, (db, name): Place, id: RawValue<'_>) -> Result<Option<DocBuf>> {
        match self.store.collection(&ReadView::now(), &Namespace::new(db, name)?) {
            Some(found) => {
                self.store.read_by_id(&ReadView::now(), &found, &id_key(id), |_, it| it.to_owned())
            }
            None => Ok(None),
        }
    }

    /// Makes this the only document of the collection; `None` empties it.
    fn put_own(&self, (db, name): Place, document: Option<&DocBuf>) -> Result<()> {
        let ns = Namespace::new(db, name)?;
        let collection = match (self.store.collection(&ReadView::now(), &ns), document) {
            (Some(found), _) => found,
            (None, Some(_)) => self.store.get_or_create_own(&ns)?,
            (None, None) => return Ok(()),
        };
        let present = self.all_documents(&collection)?;
        if present.iter().eq(document) {
            return Ok(());
        }
        let op = OpCtx::detached(self.clock.clone());
        self.store.write(&op, &ReadView::now(), &collection, |unit| {
            unit.leave_unlogged();
            unit.bypass_validation();
            for old in &present {
                remove(unit, old)?;
            }
            document.map_or(Ok(()), |document| unit.insert(document.as_doc()))
        })
    }

    fn all_documents(&self, collection: &Collection) -> Result<Vec<DocBuf>> {
        let mut documents = Vec::new();
        let (all, forward) = (whole_range(), Direction::Forward);
        let snapshot = self.store.snapshot(&ReadView::now())?;
        snapshot.scan_records(collection, &all, forward, ScanLimit::NONE, &mut |_, document| {
            documents.push(document.to_owned());
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(documents)
    }
}

fn remove(unit: &mut WriteUnit<'_>, document: &DocBuf) -> Result<()> {
    let id = document.as_doc().get("_id").unwrap_or(RawValue::Null);
    if let Some(key) = unit.locate(id_key(id))?
        && let Some(old) = unit.read(&key)?
    {
        unit.delete(&key, &old)?;
    }
    Ok(())
}
