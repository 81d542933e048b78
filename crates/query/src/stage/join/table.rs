//! A collection as a hash table by the values of one field, for joins without an index.
//!
//! The table is kept in memory if it fits. Otherwise the documents are written to a file, and their
//! positions to a table sorted by value.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use mayfly_base::Result;
use mayfly_mql::Matcher;
use mayfly_runs::{Placed, Shelf, Sorter, Table};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::paths::{Hit, visit_path};
use mayfly_value::{Collation, DocBuf, RawDoc, RawValue, SortOrder, ValueBuf};
use mayfly_work::OpCtx;
use mayfly_work::spill::Operator;

use crate::exec::Flow;
use crate::memory::{Share, into_document};
use crate::stage::StageContext;
use crate::stage::sub::PipelineRun;

/// Approximate memory of a document or a value beyond its bytes.
pub(super) const ENTRY_BYTES: usize = 64;

/// A collection, indexed by the values of one field.
pub(crate) struct JoinTable {
    places: Places,
    collation: Option<Arc<Collation>>,
    _share: Share,
}

/// Where the documents are kept.
enum Places {
    Memory { documents: Vec<DocBuf>, places: HashMap<Vec<u8>, Vec<u32>> },
    Files { documents: Shelf, places: Table },
}

/// A table that is being built.
struct Building {
    collation: Option<Arc<Collation>>,
    share: Share,
    documents: Vec<DocBuf>,
    places: HashMap<Vec<u8>, Vec<u32>>,
    bytes: usize,
    /// Spilled documents, and their positions by value.
    files: Option<(Shelf, Sorter)>,
    too_large: bool,
}

/// The ordered key of a value.
fn key_of(value: RawValue<'_>, collation: Option<&Collation>) -> Vec<u8> {
    let mut key = Vec::new();
    let value = if value == RawValue::Undefined { RawValue::Null } else { value };
    keys::append_value_in(
        &mut key,
        &mut TypeBits::default(),
        value,
        SortOrder::Ascending,
        collation,
    );
    key
}

impl JoinTable {
    /// Builds a table from the results of a run; `None` if they exceed the memory and may not
    /// spill.
    ///
    /// # Errors
    /// Errors of the run, of files, and of the operation's deadline.
    pub(crate) fn build(
        context: &StageContext<'_>,
        run: &mut PipelineRun,
        (operator, field): (Operator, &str),
        collation: Option<Arc<Collation>>,
    ) -> Result<Option<JoinTable>> {
        let parts: Vec<&str> = field.split('.').collect();
        let mut building = Building {
            collation,
            share: context.settings.budget.share(operator),
            documents: Vec::new(),
            places: HashMap::new(),
            bytes: 0,
            files: None,
            too_large: false,
        };
        while !run.is_done() && !building.too_large {
            run.run(context.session, &mut |document| {
                building.add(document, &parts, context.session.op)?;
                Ok(if building.too_large { Flow::Pause } else { Flow::More })
            })?;
        }
        building.finish(context.session.op)
    }

    /// Visits the documents that have one of the values and satisfy the filter, in their original
    /// order.
    ///
    /// # Errors
    /// Errors of the filter, of files, and of the visitor.
    pub(crate) fn find(
        &mut self,
        values: &[ValueBuf],
        matcher: &Matcher,
        see: &mut dyn FnMut(RawDoc<'_>) -> Result<()>,
    ) -> Result<()> {
        let collation = self.collation.as_deref();
        let keys = values.iter().map(|value| key_of(value.as_raw(), collation));
        match &mut self.places {
            Places::Memory { documents, places } => {
                let mut found: BTreeSet<u32> = BTreeSet::new();
                for key in keys {
                    found.extend(places.get(&key).into_iter().flatten());
                }
                for place in found {
                    let document = documents[place as usize].as_doc();
                    if matcher.matches(document)? {
                        see(document)?;
                    }
                }
            }
            Places::Files { documents, places } => {
                let mut found: BTreeSet<[u8; 12]> = BTreeSet::new();
                for key in keys {
                    places.find(&key, &mut |place| {
                        found.extend(<[u8; 12]>::try_from(place).ok());
                        Ok(())
                    })?;
                }
                for place in found {
                    let document = into_document(documents.read(Placed::from_bytes(place))?)?;
                    if matcher.matches(document.as_doc())? {
                        see(document.as_doc())?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Building {
    fn add(&mut self, document: RawDoc<'_>, parts: &[&str], op: &OpCtx) -> Result<()> {
        let collation = self.collation.as_deref();
        let mut keys = BTreeSet::new();
        let _ = visit_path(document, parts, &mut |hit| {
            keys.insert(match hit {
                Hit::Value(value, _) => key_of(value, collation),
                Hit::Missing => key_of(RawValue::Null, collation),
            });
            ControlFlow::Continue(())
        });
        if keys.is_empty() {
            keys.insert(key_of(RawValue::Null, collation));
        }
        if let Some((documents, places)) = &mut self.files {
            let placed = documents.put(document.as_bytes())?.to_bytes();
            keys.iter().for_each(|key| places.push(key, &placed));
            return self.keep_small(op);
        }
        let place = self.documents.len() as u32;
        self.bytes += document.as_bytes().len() + ENTRY_BYTES;
        for key in keys {
            self.bytes += key.len() + ENTRY_BYTES;
            self.places.entry(key).or_default().push(place);
        }
        self.documents.push(document.to_owned());
        if !self.share.is_over(self.bytes) {
            return Ok(());
        }
        let Some(folder) = self.share.folder()? else {
            self.too_large = true;
            return Ok(());
        };
        let (mut documents, mut places) = (Shelf::new(folder)?, Sorter::new());
        let mut placed = Vec::with_capacity(self.documents.len());
        for document in std::mem::take(&mut self.documents) {
            placed.push(documents.put(document.as_bytes())?.to_bytes());
        }
        for (key, at) in self.places.drain() {
            at.iter().for_each(|at| places.push(&key, &placed[*at as usize]));
        }
        self.places = HashMap::new();
        self.files = Some((documents, places));
        self.keep_small(op)
    }

    /// Spills the positions if they exceed the memory.
    fn keep_small(&mut self, op: &OpCtx) -> Result<()> {
        let Some((_, places)) = &mut self.files else { return Ok(()) };
        if self.share.is_over(places.memory_bytes())
            && let Some(folder) = self.share.folder()?
        {
            places.spill(folder, &|| op.check())?;
            self.share.set(0);
        }
        Ok(())
    }

    fn finish(mut self, op: &OpCtx) -> Result<Option<JoinTable>> {
        if self.too_large {
            return Ok(None);
        }
        let places = match (self.files, self.share.folder()?) {
            (Some((documents, places)), Some(folder)) => {
                let check = || op.check();
                let count = places.len();
                let places = Table::of(places.merge(&check)?, count, folder, &check)?;
                self.share.count(op, documents.spilled());
                self.share.count(op, places.spilled());
                self.share.set(places.memory_bytes());
                Places::Files { documents, places }
            }
            _ => Places::Memory { documents: self.documents, places: self.places },
        };
        Ok(Some(JoinTable { places, collation: self.collation, _share: self.share }))
    }
}
