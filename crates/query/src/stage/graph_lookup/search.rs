//! The search for one document, and the access to the other collection.

use mayfly_base::{Error, Result};
use mayfly_mql::Matcher;
use mayfly_runs::KeySet;
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, SortOrder, ValueBuf};
use mayfly_work::spill::{Operator, Spilled};

use super::frontier::Frontier;
use super::{GraphLookup, fault};
use crate::exec::Flow;
use crate::memory::Share;
use crate::stage::StageContext;
use crate::stage::join::{Choice, Examined, JoinTable, equality_filter, local_values};
use crate::stage::sub::From;
use crate::stage::unwind::replaced;

/// The access path to the other collection, shared by all documents of a batch.
#[derive(Default)]
pub(super) struct OtherCollection {
    choice: Choice,
    table: Option<Box<JoinTable>>,
    asking: bool,
}

impl OtherCollection {
    /// Ends a batch. The next one reads the collection again.
    pub(super) fn end_batch(&mut self) {
        self.table = None;
        self.choice.end_batch();
    }

    /// Prepares the choice between index and table, before the first query.
    fn begin(&mut self, graph: &GraphLookup, context: &StageContext<'_>) -> Result<()> {
        if !self.asking
            && let From::Collection(collection, None) = graph.sub.source(context)?
        {
            let round_trips = if graph.to == "_id" { 1 } else { 2 };
            self.choice.begin(context, &collection, round_trips);
        }
        self.asking = true;
        Ok(())
    }

    /// Reads the collection into a table, if the pipeline that restricts the search allows that.
    fn make_table(&mut self, graph: &GraphLookup, context: &StageContext<'_>) -> Result<()> {
        let sub = &graph.sub;
        let table = match sub.source(context)? {
            From::Collection(_, view) if sub.is_repeatable_over(view.as_deref()) => {
                let mut run = sub.start(context, sub.scope(), None)?;
                let by = (Operator::GraphLookup, graph.to.as_str());
                JoinTable::build(context, &mut run, by, sub.scope().collation().cloned())?
            }
            From::Collection(..) | From::Nothing => None,
        };
        match table {
            Some(table) => self.table = Some(Box::new(table)),
            None => self.choice.refuse(),
        }
        Ok(())
    }
}

/// The search for one document.
pub(super) struct Search<'s> {
    graph: &'s GraphLookup,
    context: &'s StageContext<'s>,
    /// The keys of found records, and of the values that were searched.
    found: KeySet,
    asked: KeySet,
    /// Memory of both sets.
    share: Share,
    results: DocBuilder,
    /// Memory of the results.
    results_share: Share,
}

pub(super) fn too_much(_: usize) -> Error {
    fault(40099, "$graphLookup reached maximum memory consumption")
}

impl<'s> Search<'s> {
    /// A search that has not started.
    pub(super) fn new(graph: &'s GraphLookup, context: &'s StageContext<'s>) -> Search<'s> {
        let share = || context.settings.budget.share(Operator::GraphLookup);
        Search {
            graph,
            context,
            found: KeySet::new(),
            asked: KeySet::new(),
            share: share(),
            results: DocBuilder::new_array(),
            results_share: share(),
        }
    }

    /// Adds a value to the level unless it was searched before.
    fn enqueue(&mut self, value: ValueBuf, values: &mut Frontier) -> Result<()> {
        let mut key = Vec::new();
        let collation = self.graph.sub.scope().collation().map(|it| &**it);
        keys::append_value_in(
            &mut key,
            &mut TypeBits::default(),
            value.as_raw(),
            SortOrder::Ascending,
            collation,
        );
        if self.asked.insert(&key)? {
            self.make_room()?;
            values.push(value, self.context)?;
        }
        Ok(())
    }

    /// Spills the keys if they exceed their memory.
    fn make_room(&mut self) -> Result<()> {
        if !self.share.is_over(self.found.memory_bytes() + self.asked.memory_bytes()) {
            return Ok(());
        }
        let Some(folder) = self.share.folder()? else { return Err(self.share.failure(too_much)) };
        let mut spilled = Spilled::default();
        for keys in [&mut self.found, &mut self.asked] {
            let before = keys.spilled();
            keys.spill(folder, &|| self.context.session.op.check())?;
            spilled.add(keys.spilled().since(before));
        }
        self.share.count(self.context.session.op, spilled);
        self.share.set(0);
        Ok(())
    }

    /// Finds the documents for a part of a level, and adds their values to the next level.
    fn find_matches(
        &mut self,
        other: &mut OtherCollection,
        values: &[ValueBuf],
        depth: i64,
        next_level: &mut Frontier,
    ) -> Result<()> {
        let (context, sub) = (self.context, &self.graph.sub);
        let filter = equality_filter(&self.graph.to, values);
        if other.table.is_none() && other.choice.is_table_due(context)? {
            other.make_table(self.graph, context)?;
        }
        if other.table.is_none() {
            let before = Examined::by(context.session.op);
            let mut run = sub.start(context, sub.scope(), Some(filter.as_doc()))?;
            if run.scans_everything() && other.choice.may_have_table() {
                other.make_table(self.graph, context)?;
            } else {
                other.begin(self.graph, context)?;
            }
            if other.table.is_none() {
                while !run.is_done() {
                    run.run(context.session, &mut |document| {
                        self.take(document, depth, next_level)?;
                        Ok(Flow::More)
                    })?;
                }
                other
                    .choice
                    .record_lookup(values.len(), before.documents_since(context.session.op));
                return Ok(());
            }
        }
        let matcher = Matcher::parse_in(filter.as_doc(), sub.scope())?;
        match &mut other.table {
            Some(table) => {
                table.find(values, &matcher, &mut |document| self.take(document, depth, next_level))
            }
            None => Ok(()),
        }
    }

    /// Adds a found document, unless it was found before.
    fn take(&mut self, document: RawDoc<'_>, depth: i64, next_level: &mut Frontier) -> Result<()> {
        let mut id = Vec::new();
        let value = document.get("_id").unwrap_or(RawValue::Null);
        keys::append_value(&mut id, &mut TypeBits::default(), value, SortOrder::Ascending);
        if !self.found.insert(&id)? {
            return Ok(());
        }
        self.make_room()?;
        for value in local_values(document, &self.graph.from) {
            self.enqueue(value, next_level)?;
        }
        match &self.graph.depth_field {
            None => self.results.push(document),
            Some(path) => {
                let depth = RawValue::Int64(depth);
                self.results.push(&replaced(document, path, Some(depth)))
            }
        };
        // The results become one field of a document, so they cannot spill.
        match self.results_share.is_over(self.results.len()) {
            true => Err(self.results_share.failure(too_much)),
            false => Ok(()),
        }
    }

    /// All documents that are reachable from a document, as an array.
    ///
    /// # Errors
    /// 40099 if they exceed the memory, errors of the other collection.
    pub(super) fn run(
        mut self,
        other: &mut OtherCollection,
        document: RawDoc<'_>,
    ) -> Result<DocBuf> {
        let metadata = self.context.metadata.get();
        let start = self.graph.start.evaluate(metadata.frame(document))?;
        let mut values = Frontier::new(self.context);
        match start.as_raw() {
            None => {}
            Some(RawValue::Array(items)) => {
                for item in items {
                    self.enqueue(item.value().to_owned(), &mut values)?;
                }
            }
            Some(value) => self.enqueue(value.to_owned(), &mut values)?,
        }
        let mut depth = 0;
        while !values.is_empty() && self.graph.max_depth.is_none_or(|most| depth <= most) {
            let mut next_level = Frontier::new(self.context);
            let mut level = values.read()?;
            loop {
                self.context.session.op.check()?;
                let part = level.part()?;
                if part.is_empty() {
                    break;
                }
                self.find_matches(other, &part, depth, &mut next_level)?;
            }
            values = next_level;
            depth += 1;
        }
        Ok(self.results.finish())
    }
}
