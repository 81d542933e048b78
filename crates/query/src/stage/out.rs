//! `$out`: replaces a collection by the results.
//!
//! 1. A collection beside the target gets the target's options and indexes.
//! 2. The results go into it in units.
//! 3. When all are there it takes the target's name, in one step. Nobody sees half of them, and when something fails the target
//!    stays as it was.

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_storage::{Collection, CreateIndexesOptions, TEMPORARY};
use mayfly_value::{DocBuf, RawDoc, RawValue};
use std::sync::Arc;

use super::target::{check_target, target, with_id};
use super::{Around, Next, Running, Stage, StageContext};
use crate::Flow;

/// Most documents, and about most bytes, in one write unit.
const UNIT_DOCUMENTS: usize = 256;
const UNIT_BYTES: usize = 1 << 20;

pub(super) fn parse(value: RawValue<'_>, around: &Around<'_>) -> Result<Vec<Stage>> {
    let kind = value.type_name();
    let ns = target(value, around, |name| match name {
        "" => Error::new(
            ErrorCode(16990),
            format!("$out only supports a string or object argument, but found {kind}"),
        ),
        "coll" => {
            Error::new(ErrorCode(40414), "BSON field '$out.coll' is missing but a required field")
        }
        other => {
            Error::new(ErrorCode(40415), format!("BSON field '$out.{other}' is an unknown field."))
        }
    })?;
    check_target(&ns, "$out", (17385, 31321))?;
    Ok(vec![Stage::Out(ns)])
}

pub(super) struct RunningOut {
    target: Namespace,
    beside: Option<Arc<Collection>>,
    unit: Vec<DocBuf>,
    bytes: usize,
}

impl RunningOut {
    pub(super) fn new(target: Namespace) -> RunningOut {
        RunningOut { target, beside: None, unit: Vec::new(), bytes: 0 }
    }

    /// The collection beside the target.
    fn beside(&mut self, context: &StageContext<'_>) -> Result<Arc<Collection>> {
        if let Some(beside) = &self.beside {
            return Ok(beside.clone());
        }
        let (store, op) = (context.store, context.op);
        store.check_no_view(&self.target)?;
        let existing = store.collection(&self.target);
        if existing.as_ref().is_some_and(|existing| existing.capped().is_some()) {
            let text =
                format!("namespace '{}' is capped so it can't be used for $out", self.target);
            return Err(Error::new(ErrorCode(17152), text));
        }
        let number = mayfly_value::bson::oid::ObjectId::new().to_hex();
        let name = Namespace::new(self.target.db(), &format!("{TEMPORARY}{number}"))?;
        let options = existing.as_ref().map_or_else(DocBuf::empty, |existing| existing.options());
        let beside = store.create_collection(&name, options)?;
        self.beside = Some(beside.clone());
        if let Some(existing) = existing {
            let indexes = existing.list_indexes();
            let requests: Vec<RawDoc<'_>> = indexes
                .iter()
                .map(DocBuf::as_doc)
                .filter(|index| {
                    index.get("name") != Some(RawValue::String("_id_"))
                        && index.get("clustered").is_none()
                })
                .collect();
            if !requests.is_empty() {
                let options = CreateIndexesOptions { ignore_unknown: true, update_policies: false };
                store.create_indexes(op, &name, &requests, options)?;
            }
        }
        Ok(beside)
    }

    fn flush(&mut self, context: &StageContext<'_>) -> Result<()> {
        let beside = self.beside(context)?;
        let unit = std::mem::take(&mut self.unit);
        self.bytes = 0;
        if unit.is_empty() {
            return Ok(());
        }
        context.op.check()?;
        context.store.write(context.op, &beside, |writes| {
            if context.settings.bypass_validation {
                writes.bypass_validation();
            }
            unit.iter().try_for_each(|document| writes.insert(document.as_doc()))
        })
    }
}

impl Running for RunningOut {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        _: &mut Next<'_>,
    ) -> Result<Flow> {
        if context.settings.read_only {
            return Ok(Flow::More);
        }
        let document = with_id(document);
        self.bytes += document.as_bytes().len();
        self.unit.push(document);
        if self.unit.len() >= UNIT_DOCUMENTS || self.bytes >= UNIT_BYTES {
            self.flush(context)?;
        }
        Ok(Flow::More)
    }

    fn finish(&mut self, context: &StageContext<'_>, _: &mut Next<'_>) -> Result<Flow> {
        if context.settings.read_only {
            return Ok(Flow::More);
        }
        self.flush(context)?;
        if let Some(beside) = &self.beside {
            context.store.rename_collection(&beside.namespace(), &self.target, true)?;
            self.beside = None;
        }
        Ok(Flow::More)
    }

    fn abandon(&mut self, context: &StageContext<'_>) {
        if let Some(beside) = self.beside.take() {
            // The reason of the failure is the one to tell.
            let _ = context.store.drop_collection(&beside.namespace());
        }
    }

    fn holds_back(&self) -> bool {
        true
    }
}
