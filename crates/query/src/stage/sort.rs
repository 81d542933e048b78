//! `$sort`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::Scope;
use mayfly_mql::SortPattern;
use mayfly_value::{DocBuilder, RawDoc, RawValue};
use mayfly_work::OpCtx;

use super::{Effect, Next, Reads, Running, Stage, StageContext};
use crate::exec::Flow;
use crate::language::metadata::{Metadata, SORT_KEY};
use crate::memory::{Sorted, Sorter};

pub(crate) fn parse(value: RawValue<'_>, scope: &Scope) -> Result<Box<dyn Stage>> {
    match value {
        RawValue::Document(pattern) if pattern.is_empty() => {
            Err(Error::new(ErrorCode(15976), "$sort stage must have at least one sort key"))
        }
        RawValue::Document(pattern) => {
            let pattern = SortPattern::parse_in(pattern, scope)?;
            Ok(Box::new(Sort::by(pattern.collated(scope.collation().cloned()))))
        }
        _ => Err(Error::new(ErrorCode(15973), "the $sort key specification must be an object")),
    }
}

/// A parsed `$sort`.
#[derive(Debug)]
pub(crate) struct Sort {
    pub(crate) pattern: SortPattern,
    /// Number of results for a top-k sort.
    pub(crate) keep: Option<u64>,
    /// Whether documents get their sort key as metadata, because a later stage reads it.
    pub(crate) gives_key: bool,
}

impl Sort {
    pub(crate) fn by(pattern: SortPattern) -> Sort {
        Sort { pattern, keep: None, gives_key: false }
    }

    /// Whether a query can replace the stage: it only orders documents.
    pub(crate) fn only_orders(&self) -> bool {
        !self.gives_key
    }

    /// The paths of the sort fields, without sorts by metadata.
    pub(crate) fn paths(&self) -> impl Iterator<Item = String> {
        let fields = self.pattern.fields().iter().filter(|field| field.metadata.is_none());
        fields.map(|field| field.path.as_str().to_owned())
    }
}

impl Stage for Sort {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningSort { sort: *self, sorter: None, sorted: None })
    }

    fn reads(&self) -> Reads {
        Reads::some(self.paths())
    }

    fn effect(&self) -> Effect {
        Effect::None
    }

    fn gives_metadata(&self) -> &'static [&'static str] {
        &[SORT_KEY]
    }
}

/// The metadata of a document with its sort key.
fn keyed(pattern: &SortPattern, document: RawDoc<'_>, metadata: &Metadata) -> Metadata {
    let mut notes = DocBuilder::new();
    for note in metadata.as_doc().unwrap_or(RawDoc::EMPTY) {
        if note.name() != SORT_KEY {
            notes.append_element(note);
        }
    }
    let values = pattern.key_values(metadata.frame(document));
    notes.append(SORT_KEY, RawValue::Array(values.as_doc()));
    Metadata::new(notes.finish())
}

struct RunningSort {
    sort: Sort,
    sorter: Option<Sorter>,
    sorted: Option<Sorted>,
}

impl Running for RunningSort {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        _: &mut Next<'_>,
    ) -> Result<Flow> {
        let begin =
            || Sorter::new(self.sort.pattern.clone(), self.sort.keep, &context.settings.budget);
        self.sorter.get_or_insert_with(begin).push(
            document,
            &context.metadata.get(),
            context.session.op,
        )?;
        Ok(Flow::More)
    }

    fn finish(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        if let Some(sorter) = self.sorter.take() {
            self.sorted = Some(sorter.finish(context.session.op)?);
        }
        let Some(sorted) = &mut self.sorted else { return Ok(Flow::More) };
        let mut given = 0u64;
        while let Some((document, metadata)) = sorted.next()? {
            match self.sort.gives_key {
                true => context.metadata.set(&keyed(&self.sort.pattern, document, &metadata)),
                false => context.metadata.set(&metadata),
            }
            given += 1;
            if given.is_multiple_of(256) {
                context.session.op.check()?;
            }
            if next(document)? != Flow::More && !sorted.is_empty() {
                return Ok(Flow::Pause);
            }
        }
        Ok(Flow::More)
    }

    fn release(&mut self, op: &OpCtx) -> Result<()> {
        self.sorted.as_mut().map_or(Ok(()), |sorted| sorted.spill(op))
    }

    fn holds_back(&self) -> bool {
        true
    }
}
