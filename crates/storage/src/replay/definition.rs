//! Makes a collection as its catalog document says.
//!
//! The steps do not depend on what an earlier, interrupted replay has done: each compares the
//! present collection with the document.

use std::collections::HashSet;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::Replay;
use super::operation::Operation;
use crate::catalog::{Collection, Definition, Index};
use crate::ddl::{RenameTarget, TempMark};
use crate::index::spec::IndexSpec;

/// Commands after which there is no collection.
const DROPS: [&str; 2] = ["drop", "dropDatabase"];
/// Options of an index that can be changed in place.
const IN_PLACE: [&str; 4] = ["expireAfterSeconds", "ttl", "hidden", "prepareUnique"];

/// A catalog document of an archived command.
struct Defined {
    uuid: [u8; 16],
    ns: Namespace,
    options: DocBuf,
    /// The indexes that were ready, without the one on `_id`.
    indexes: Vec<IndexSpec>,
}

impl Defined {
    fn parse(definition: RawDoc<'_>) -> Result<Defined> {
        let malformed = || Error::failed_to_parse("a definition in the archive cannot be read");
        let ns = definition.get("ns").and_then(RawValue::as_str).ok_or_else(malformed)?;
        let uuid = match definition.get("uuid") {
            Some(RawValue::Binary { bytes, .. }) => bytes.try_into().map_err(|_| malformed())?,
            _ => return Err(malformed()),
        };
        let options = definition.get("options").and_then(RawValue::as_document);
        let listed = definition.get("indexes").and_then(RawValue::as_array);
        let mut indexes = Vec::new();
        for index in listed.into_iter().flatten().filter_map(|it| it.value().as_document()) {
            if index.get("ready") == Some(RawValue::Bool(true)) {
                let spec = index.get("spec").and_then(RawValue::as_document);
                indexes.push(IndexSpec::from_catalog(spec.ok_or_else(malformed)?.to_owned())?);
            }
        }
        let options = options.map_or_else(DocBuf::empty, RawDoc::to_owned);
        Ok(Defined { uuid, ns: Namespace::parse(ns)?, options, indexes })
    }
}

impl Replay {
    /// Applies a command.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected for a command without a definition, which older servers have
    /// archived; errors of the change.
    pub(super) fn define(
        &self,
        operation: &Operation<'_>,
        command: RawDoc<'_>,
        definition: Option<RawDoc<'_>>,
    ) -> Result<()> {
        if let Some(definition) = definition {
            return self.make(&Defined::parse(definition)?);
        }
        let name = command.iter().next().map_or("", |first| first.name());
        if !DROPS.contains(&name) {
            let text = format!("the command '{name}' on {} has no definition", operation.ns);
            return Err(Error::new(ErrorCode::DataCorruptionDetected, text));
        }
        // The collections of a database were dropped one by one before it.
        match operation.uuid.and_then(|uuid| self.collection_with(uuid)) {
            Some(collection) => self.store.drop_collection(&collection.namespace()).map(drop),
            None => Ok(()),
        }
    }

    fn make(&self, defined: &Defined) -> Result<()> {
        let holder = self.store.catalog.get(&defined.ns);
        if holder.is_some_and(|holder| holder.uuid() != defined.uuid) {
            self.store.drop_collection(&defined.ns)?;
        }
        let Some(collection) = self.collection_with(defined.uuid) else {
            let Defined { uuid, ns, options, indexes } = defined;
            return self.store.create_defined(ns, options.clone(), *uuid, indexes);
        };
        let name = collection.namespace();
        if name != defined.ns {
            let (target, mark) = (RenameTarget::MustNotExist, TempMark::Kept);
            self.store.rename_identified((&name, None), &defined.ns, target, mark)?;
        }
        if collection.options() != defined.options {
            let command = DocBuilder::new().finish();
            let options = |_: RawDoc<'_>| Ok(defined.options.clone());
            self.store.modify_options(&defined.ns, command.as_doc(), options)?;
        }
        self.make_indexes(&collection, &defined.indexes)
    }

    fn make_indexes(&self, collection: &Arc<Collection>, specs: &[IndexSpec]) -> Result<()> {
        let mut kept = HashSet::new();
        let (mut missing, mut changed) = (Vec::new(), Vec::new());
        let present = collection.indexes();
        for spec in specs {
            let same = |index: &&Arc<Index>| {
                fixed_options(&index.spec) == fixed_options(spec) && index.is_ready()
            };
            match present.iter().find(same) {
                None => missing.push(spec.clone()),
                Some(index) => {
                    kept.insert(index.id);
                    if index.spec.document() != spec.document() {
                        changed.push((index.clone(), spec.clone()));
                    }
                }
            }
        }
        let gone: Vec<_> =
            present.iter().filter(|index| !kept.contains(&index.id)).cloned().collect();
        if !gone.is_empty() {
            let _changing = self.store.catalog.lock()?;
            self.store.drop_indexes_locked(collection, &gone, Definition::Changed)?;
        }
        for (index, spec) in changed {
            let _changing = self.store.catalog.lock()?;
            self.store.change_spec(collection, &index, spec)?;
        }
        if missing.is_empty() {
            return Ok(());
        }
        let building = {
            let _changing = self.store.catalog.lock()?;
            self.store.register_building(collection, missing)?
        };
        self.store.build_indexes(&self.op, collection, &building)
    }
}

/// The definition without the options that can be changed in place.
fn fixed_options(spec: &IndexSpec) -> DocBuf {
    let mut out = DocBuilder::new();
    for option in spec.document().iter().filter(|it| !IN_PLACE.contains(&it.name())) {
        out.append_element(option);
    }
    out.finish()
}
