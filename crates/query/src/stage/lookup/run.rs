//! Runs a `$lookup`: reads the other collection for one document after the other.

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_expr::{Frame, Scope};
use mayfly_mql::Matcher;
use mayfly_mql::matcher::joined;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, ValueBuf};
use mayfly_work::spill::Operator;

use super::joined::{JoinBuilder, Joined, UnwoundRest};
use super::{JoinFields, Lookup};
use crate::exec::Flow;
use crate::language::metadata::Metadata;
use crate::memory::Share;
use crate::stage::join::{Choice, Examined, JoinStats, JoinTable, equality_filter, local_values};
use crate::stage::sub::{From, PipelineRun, is_repeatable};
use crate::stage::unwind::replaced;
use crate::stage::{Next, Running, StageContext};

/// How the other collection is read.
enum AccessPath {
    /// Undecided.
    Unknown,
    /// A query for each document.
    Query,
    /// A table of the collection.
    Table(Box<JoinTable>),
    /// The same results for each document.
    Same(Vec<DocBuf>),
    /// The cached results of the first `count` stages.
    Front { count: usize, documents: Arc<Vec<DocBuf>>, _share: Share },
}

struct RunningLookup {
    lookup: Lookup,
    way: AccessPath,
    choice: Choice,
    stats: JoinStats,
    /// An unwound result that was not returned completely.
    rest: Option<UnwoundRest>,
    /// Metadata of that document.
    rest_metadata: Metadata,
}

/// Creates the running stage.
pub(super) fn start(lookup: Lookup) -> Box<dyn Running> {
    Box::new(RunningLookup {
        lookup,
        way: AccessPath::Unknown,
        choice: Choice::default(),
        stats: JoinStats::default(),
        rest: None,
        rest_metadata: Metadata::NONE,
    })
}

/// The join values of one document, and the filter for them.
struct JoinValues {
    filter: DocBuf,
    values: Vec<ValueBuf>,
}

impl RunningLookup {
    fn scope(&self, frame: Frame<'_>) -> Result<Scope> {
        let mut scope = self.lookup.sub.scope().clone();
        let mut values = DocBuilder::new();
        for (name, expression) in &self.lookup.variables {
            let value = expression.evaluate(frame)?;
            match value.as_raw() {
                Some(value) => values.start_document(name).append("$literal", value).end(),
                None => values.append(name, "$$REMOVE"),
            };
        }
        scope.declare(values.finish().as_doc())?;
        Ok(scope)
    }

    fn sought(&self, fields: &JoinFields, document: RawDoc<'_>) -> JoinValues {
        let mut values = local_values(document, &fields.local);
        if values.is_empty() {
            values.push(RawValue::Null.to_owned());
        }
        let filter = equality_filter(&fields.foreign, &values);
        let filter = match &self.lookup.matching {
            Some(matching) => joined(&[filter, matching.clone()]),
            None => filter,
        };
        JoinValues { filter, values }
    }

    /// The documents that are joined to a document.
    fn joined(&mut self, context: &StageContext<'_>, document: RawDoc<'_>) -> Result<Joined> {
        if let AccessPath::Same(results) = &self.way {
            let mut joining = JoinBuilder::new(context, &self.lookup);
            results.iter().try_for_each(|document| joining.push(document.as_doc()))?;
            return joining.finish();
        }
        let metadata = context.metadata.get();
        let scope = self.scope(metadata.frame(document))?;
        let before = Examined::by(context.session.op);
        let Some(fields) = &self.lookup.fields else {
            let joined = self.joined_by_pipeline(context, &scope);
            self.stats.add_examined(context.session.op, before);
            return joined;
        };
        let sought = self.sought(fields, document);
        let joined = self.joined_by_fields(context, &scope, &sought);
        let documents = self.stats.add_examined(context.session.op, before);
        self.choice.record_lookup(sought.values.len(), documents);
        joined
    }

    /// Joins by fields.
    fn joined_by_fields(
        &mut self,
        context: &StageContext<'_>,
        scope: &Scope,
        sought: &JoinValues,
    ) -> Result<Joined> {
        match self.way {
            AccessPath::Unknown => self.begin(context, scope, &sought.values)?,
            AccessPath::Query if self.choice.is_table_due(context)? => self.make_table(context)?,
            _ => {}
        }
        if let AccessPath::Table(_) = &self.way {
            return self.joined_by_table(context, scope, sought);
        }
        let filter = Some(sought.filter.as_doc());
        let run = self.lookup.sub.start(context, scope, filter)?;
        // An index need not serve all values: a sparse one has no entries for null.
        if run.scans_everything() && self.choice.may_have_table() {
            self.make_table(context)?;
            if let AccessPath::Table(_) = &self.way {
                return self.joined_by_table(context, scope, sought);
            }
        }
        self.drain(context, run)
    }

    /// Collects the results of a run over the other collection.
    fn drain(&mut self, context: &StageContext<'_>, mut run: PipelineRun) -> Result<Joined> {
        let joined = Joined::drain(&mut run, context, &self.lookup)?;
        self.stats.ran(&run);
        Ok(joined)
    }

    /// Chooses the access path, with the values of the first document.
    fn begin(
        &mut self,
        context: &StageContext<'_>,
        scope: &Scope,
        values: &[ValueBuf],
    ) -> Result<()> {
        self.way = AccessPath::Query;
        let Some(fields) = &self.lookup.fields else { return Ok(()) };
        if self.lookup.sub.describes() || self.lookup.sub.searches() {
            return Ok(());
        }
        // Only the equality counts: an index that serves other conditions would not make the join
        // fast.
        let equality = equality_filter(&fields.foreign, values);
        let run = self.lookup.sub.start(context, scope, Some(equality.as_doc()))?;
        if run.scans_everything() {
            return self.make_table(context);
        }
        // A read by `_id` is as fast as a look-up in a table, if it crosses no network.
        if let From::Collection(collection, None) = self.lookup.sub.source(context)?
            && (!run.finds_by_id() || context.session.store.is_remote())
        {
            let round_trips = if run.finds_by_id() { 1 } else { 2 };
            self.choice.begin(context, &collection, round_trips);
        }
        Ok(())
    }

    /// Reads the other collection into a table, if that is possible.
    fn make_table(&mut self, context: &StageContext<'_>) -> Result<()> {
        let (Some(fields), sub) = (&self.lookup.fields, &self.lookup.sub) else { return Ok(()) };
        // The table contains all documents of the collection or view; the stages of the pipeline
        // run later.
        let table = match sub.source(context)? {
            From::Collection(_, view)
                if view.as_ref().is_none_or(|view| is_repeatable(view.pipeline.as_doc())) =>
            {
                let mut run = sub.start_front(context, 0)?;
                let by = (Operator::HashLookup, fields.foreign.as_str());
                let collation = sub.scope().collation().cloned();
                let table = JoinTable::build(context, &mut run, by, collation)?;
                self.stats.ran(&run);
                table
            }
            From::Collection(..) | From::Nothing => None,
        };
        match table {
            Some(table) => {
                self.stats.made_table();
                self.way = AccessPath::Table(Box::new(table));
            }
            None => self.choice.refuse(),
        }
        Ok(())
    }

    fn joined_by_table(
        &mut self,
        context: &StageContext<'_>,
        scope: &Scope,
        sought: &JoinValues,
    ) -> Result<Joined> {
        let JoinValues { filter, values } = sought;
        let matcher = Matcher::parse_in(filter.as_doc(), self.lookup.sub.scope())?;
        let mut found = Vec::new();
        if let AccessPath::Table(table) = &mut self.way {
            if self.lookup.sub.is_empty() {
                let mut joining = JoinBuilder::new(context, &self.lookup);
                table.find(values, &matcher, &mut |document| joining.push(document))?;
                return joining.finish();
            }
            let most = context.settings.budget.limits().of(Operator::HashLookup);
            let mut bytes = 0;
            table.find(values, &matcher, &mut |document| {
                bytes += document.as_bytes().len() + size_of::<DocBuf>();
                match bytes <= most {
                    true => found.push(document.to_owned()),
                    false => found.clear(),
                }
                Ok(())
            })?;
            if bytes > most {
                // There are too many for memory, so they are read again one by one.
                let run = self.lookup.sub.start(context, scope, Some(filter.as_doc()))?;
                return self.drain(context, run);
            }
        }
        let mut run = self.lookup.sub.start_over(context, scope, found)?;
        Joined::drain(&mut run, context, &self.lookup)
    }

    /// Joins by a pipeline without fields.
    fn joined_by_pipeline(&mut self, context: &StageContext<'_>, scope: &Scope) -> Result<Joined> {
        if let AccessPath::Unknown = self.way {
            self.keep_front(context)?;
        }
        if let AccessPath::Front { count, documents, .. } = &self.way {
            let documents = documents.clone();
            let mut run = self.lookup.sub.start_after(context, scope, *count, documents)?;
            return Joined::drain(&mut run, context, &self.lookup);
        }
        let run = self.lookup.sub.start(context, scope, None)?;
        let joined = self.drain(context, run)?;
        if let Joined::Array(array) = &joined
            && self.lookup.variables.is_empty()
            && matches!(self.way, AccessPath::Unknown)
            && self.lookup.sub.is_repeatable()
            && array.as_bytes().len() <= context.settings.budget.limits().of(Operator::LookupCache)
        {
            let documents = array.as_doc().iter();
            let documents = documents.filter_map(|it| Some(it.value().as_document()?.to_owned()));
            self.way = AccessPath::Same(documents.collect());
        }
        Ok(joined)
    }

    /// Runs the leading stages that give the same results for each document, if there are such and
    /// others follow. Manual: "Aggregation Pipeline Optimization", "$lookup".
    fn keep_front(&mut self, context: &StageContext<'_>) -> Result<()> {
        let names = self.lookup.variables.iter().map(|(name, _)| name.as_str());
        let count = match self.lookup.variables.is_empty() {
            true => return Ok(()),
            false => self.lookup.sub.uncorrelated(names),
        };
        if count == 0 {
            self.way = AccessPath::Query;
            return Ok(());
        }
        let mut run = self.lookup.sub.start_front(context, count)?;
        let (mut documents, mut bytes) = (Vec::new(), 0);
        let mut share = context.settings.budget.share(Operator::LookupCache);
        let mut too_many = false;
        while !run.is_done() && !too_many {
            run.run(context.session, &mut |document| {
                bytes += document.as_bytes().len() + size_of::<DocBuf>();
                documents.push(document.to_owned());
                too_many = share.is_over(bytes);
                Ok(if too_many { Flow::Pause } else { Flow::More })
            })?;
        }
        self.stats.ran(&run);
        self.way = match too_many {
            true => AccessPath::Query,
            false => AccessPath::Front { count, documents: Arc::new(documents), _share: share },
        };
        Ok(())
    }

    /// Passes on the rest of an unwound result.
    fn show(&mut self, rest: UnwoundRest, next: &mut Next<'_>) -> Result<Flow> {
        let Some(unwind) = &self.lookup.unwind else { return Ok(Flow::More) };
        let (flow, rest) = rest.show(&self.lookup.result, unwind, next)?;
        self.rest = rest;
        Ok(flow)
    }
}

impl Running for RunningLookup {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        context.session.op.check()?;
        let joined = self.joined(context, document)?;
        if self.lookup.unwind.is_some() {
            self.rest_metadata = context.metadata.get();
            return self.show(UnwoundRest::of(document, joined), next);
        }
        // Only unwound results are in files.
        let Joined::Array(array) = joined else { return Ok(Flow::More) };
        let array = RawValue::Array(array.as_doc());
        next(replaced(document, &self.lookup.result, Some(array)).as_doc())
    }

    fn resume(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        match self.rest.take() {
            Some(rest) => {
                context.metadata.set(&self.rest_metadata);
                self.show(rest, next)
            }
            None => Ok(Flow::More),
        }
    }

    fn holds_back(&self) -> bool {
        self.rest.is_some()
    }

    fn end_batch(&mut self) {
        if matches!(self.way, AccessPath::Table(_) | AccessPath::Same(_) | AccessPath::Front { .. })
        {
            self.way = AccessPath::Unknown;
        }
        self.choice.end_batch();
    }

    fn explain(&self, out: &mut DocBuilder) -> u64 {
        if self.lookup.fields.is_some() {
            self.stats.append_strategy(out);
        }
        self.stats.append(out);
        0
    }
}
