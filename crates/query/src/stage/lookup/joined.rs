//! The documents that a `$lookup` joins to one document: an array, or a file if they are unwound
//! and exceed the memory.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use mayfly_work::spill::Operator;

use super::Lookup;
use crate::exec::Flow;
use crate::memory::{Spool, SpoolWriter};
use crate::stage::sub::PipelineRun;
use crate::stage::unwind::{Unwind, replaced};
use crate::stage::{Next, StageContext};

/// The documents joined to one document.
pub(super) enum Joined {
    /// The documents as an array.
    Array(DocBuf),
    /// The documents in a file, possible only if they are unwound.
    File(Spool),
}

/// An unwound result that was not returned completely.
pub(super) struct UnwoundRest {
    document: DocBuf,
    joined: Joined,
    /// Number of returned documents.
    shown: u64,
}

impl UnwoundRest {
    /// An unwound result of which nothing was returned.
    pub(super) fn of(document: RawDoc<'_>, joined: Joined) -> UnwoundRest {
        UnwoundRest { document: document.to_owned(), joined, shown: 0 }
    }

    /// Passes on a document for each joined one until the next stage pauses. Returns the rest.
    pub(super) fn show(
        mut self,
        result: &[String],
        unwind: &Unwind,
        next: &mut Next<'_>,
    ) -> Result<(Flow, Option<UnwoundRest>)> {
        let one = |document: &DocBuf, item: RawValue<'_>, at: u64| {
            let out = replaced(document.as_doc(), result, Some(item));
            match &unwind.index {
                Some(index) => replaced(out.as_doc(), index, Some(RawValue::Int64(at as i64))),
                None => out,
            }
        };
        let UnwoundRest { document, joined, shown } = &mut self;
        let begun = *shown;
        match joined {
            Joined::Array(array) => {
                let array = array.as_doc();
                let count = array.iter().count() as u64;
                for item in array.iter().skip(begun as usize) {
                    let out = one(document, item.value(), *shown);
                    *shown += 1;
                    if next(out.as_doc())? != Flow::More {
                        let rest = (*shown < count).then_some(self);
                        return Ok((Flow::Pause, rest));
                    }
                }
            }
            Joined::File(items) => {
                while let Some(item) = items.next()? {
                    let out = one(document, RawValue::Document(item), *shown);
                    *shown += 1;
                    if next(out.as_doc())? != Flow::More {
                        let over = items.is_over();
                        return Ok((Flow::Pause, (!over).then_some(self)));
                    }
                }
            }
        }
        if *shown > 0 || !unwind.keep_empty {
            return Ok((Flow::More, None));
        }
        let empty = RawValue::Array(RawDoc::EMPTY);
        let mut out = replaced(document.as_doc(), result, Some(empty));
        out = replaced(out.as_doc(), result, None);
        if let Some(index) = &unwind.index {
            out = replaced(out.as_doc(), index, Some(RawValue::Null));
        }
        Ok((next(out.as_doc())?, None))
    }
}

/// Collects the documents that are joined to one document.
pub(super) struct JoinBuilder<'j> {
    context: &'j StageContext<'j>,
    lookup: &'j Lookup,
    out: DocBuilder,
    spool: Option<SpoolWriter>,
}

impl<'j> JoinBuilder<'j> {
    pub(super) fn new(context: &'j StageContext<'j>, lookup: &'j Lookup) -> JoinBuilder<'j> {
        JoinBuilder { context, lookup, out: DocBuilder::new_array(), spool: None }
    }

    pub(super) fn push(&mut self, document: RawDoc<'_>) -> Result<()> {
        if let Some(spool) = &mut self.spool {
            return spool.push(document);
        }
        self.out.push(document);
        let budget = &self.context.settings.budget;
        let most = match self.lookup.unwind {
            None => budget.limits().lookup_array,
            Some(_) => budget.limits().of(Operator::HashLookup),
        };
        if self.out.len() <= most {
            return Ok(());
        }
        if let (Some(_), Some(folder)) = (&self.lookup.unwind, budget.folder()) {
            let mut spool = SpoolWriter::new(folder)?;
            let before = std::mem::replace(&mut self.out, DocBuilder::new_array()).finish();
            let documents = before.as_doc().iter().filter_map(|item| item.value().as_document());
            documents.into_iter().try_for_each(|document| spool.push(document))?;
            self.spool = Some(spool);
            return Ok(());
        }
        let name = self.lookup.sub.from.as_ref().map_or("", |from| from.collection());
        let text = format!(
            "Total size of documents in {name} matching pipeline's $lookup stage exceeds {most} bytes"
        );
        Err(Error::new(ErrorCode(4568), text))
    }

    pub(super) fn finish(self) -> Result<Joined> {
        match self.spool {
            None => Ok(Joined::Array(self.out.finish())),
            Some(spool) => {
                let context = self.context;
                let spilled = spool.spilled();
                context.settings.budget.count(context.session.op, Operator::HashLookup, spilled);
                spool.finish().map(Joined::File)
            }
        }
    }
}

impl Joined {
    /// Collects the results of a run.
    pub(super) fn drain(
        run: &mut PipelineRun,
        context: &StageContext<'_>,
        lookup: &Lookup,
    ) -> Result<Joined> {
        let mut joining = JoinBuilder::new(context, lookup);
        while !run.is_done() {
            run.run(context.session, &mut |document| {
                joining.push(document)?;
                Ok(Flow::More)
            })?;
        }
        joining.finish()
    }
}
