//! `$out`: replaces a collection by the results.
//!
//! 1. A new collection with a temporary name gets the options and indexes of the target
//!    ([`Replacement`]).
//! 2. The results are written to it in units.
//! 3. When all are written it takes the target's name in one step. Readers never see a part of the
//!    results, and after a failure the target is unchanged. The stage also fails if the target's
//!    options or indexes changed meanwhile, so that no acknowledged change is lost.
//!
//! With the option `timeseries`, or if the target is a time series, the results are measurements:
//! the new collection contains buckets, and takes the name of the target's bucket collection.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_storage::{Collection, Replacement};
use mayfly_value::arguments::Argument;
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use std::sync::Arc;

use super::target::{check_target, filled, target, with_id};
use super::{Next, PipelineContext, Running, Stage, StageContext};
use crate::exec::Flow;

/// Limit on the documents of a write unit, and approximate limit on their bytes.
const UNIT_DOCUMENTS: usize = 256;
const UNIT_BYTES: usize = 1 << 20;
/// Measurements of a write unit. It is larger, so that each bucket is packed once.
const UNIT_MEASUREMENTS: usize = 2000;

/// A parsed `$out`.
#[derive(Debug)]
struct Out {
    target: Namespace,
    /// Set if the results are measurements of a time series.
    series: Option<TimeSeries>,
}

pub(crate) const ARGUMENTS: &[Argument] = &[
    Argument::string("coll").required(),
    Argument::string("db").null_is_value(),
    Argument::document("timeseries"),
];

pub(crate) fn parse(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    if !matches!(value, RawValue::String(_) | RawValue::Document(_)) {
        let kind = value.type_name();
        let text = format!("$out only supports a string or object argument, but found {kind}");
        return Err(Error::new(ErrorCode(16990), text));
    }
    let target = target(value, context, ("$out", ARGUMENTS))?;
    context.needs_on(&target, Action::Insert);
    context.needs_on(&target, Action::Remove);
    check_target(&target, "$out", (17385, 31321))?;
    let series = value.as_document().and_then(|spec| spec.get("timeseries"));
    let series = series.and_then(RawValue::as_document);
    let series = series.map(|given| TimeSeries::parse(given, "$out.timeseries")).transpose()?;
    Ok(Box::new(Out { target, series }))
}

impl Stage for Out {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningOut::new(*self))
    }

    fn writes_to(&self) -> Option<&Namespace> {
        Some(&self.target)
    }
}

struct RunningOut {
    out: Out,
    /// The new collection, from the first result on.
    replacement: Option<Replacement>,
    /// Whether the results are measurements.
    measurements: bool,
    unit: Vec<DocBuf>,
    bytes: usize,
}

impl Out {
    /// The existing target, or the bucket collection of the target.
    ///
    /// # Errors
    /// 7268700 and 7268703 for a time series over another kind of collection, 7406103 for different
    /// time series options, 17152 for a capped collection, 166 for a view.
    fn existing(&self, context: &StageContext<'_>) -> Result<Option<Arc<Collection>>> {
        let (session, target) = (context.session, &self.target);
        let (store, view) = (session.store, session.view);
        let fault = |code: i32, text: String| Err(Error::new(ErrorCode(code), text));
        if let Some(existing) = store.collection(view, target) {
            if self.series.is_some() {
                let text =
                    "Cannot create a time-series collection from a non time-series collection.";
                return fault(7268700, text.to_owned());
            }
            if existing.capped().is_some() {
                let text = format!("namespace '{target}' is capped so it can't be used for $out");
                return fault(17152, text);
            }
            return Ok(Some(existing));
        }
        if let Some((buckets, series)) = store.time_series_named(view, target) {
            if let Some(given) = self.series.as_ref().filter(|given| **given != *series) {
                let text = format!(
                    "Time-series options inputted must match the existing time-series collection. Received: {} Found: {}",
                    Shell(given.document().as_doc()),
                    Shell(series.document().as_doc())
                );
                return fault(7406103, text);
            }
            return Ok(Some(buckets));
        }
        if self.series.is_some() && store.view(view, target)?.is_some() {
            let text = "Cannot create a time-series collection from a view.";
            return fault(7268703, text.to_owned());
        }
        store.check_no_view(view, target)?;
        Ok(None)
    }
}

impl RunningOut {
    fn new(out: Out) -> RunningOut {
        let measurements = out.series.is_some();
        RunningOut { out, replacement: None, measurements, unit: Vec::new(), bytes: 0 }
    }

    /// The new collection, created at first use.
    fn replacement(&mut self, context: &StageContext<'_>) -> Result<&Replacement> {
        let replacement = match self.replacement.take() {
            Some(replacement) => replacement,
            None => self.begun(context)?,
        };
        Ok(self.replacement.insert(replacement))
    }

    fn begun(&mut self, context: &StageContext<'_>) -> Result<Replacement> {
        let target = &self.out.target;
        let existing = self.out.existing(context)?;
        let mut options = DocBuilder::new();
        if let Some(series) = &self.out.series {
            options.append("timeseries", &series.document());
        }
        if let Some(existing) = &existing {
            self.measurements = existing.time_series().is_some();
        }
        let becomes = if self.measurements { buckets_of(target)? } else { target.clone() };
        context.session.store.begin_replacement(&becomes, existing.as_deref(), options.finish())
    }

    fn flush(&mut self, context: &StageContext<'_>) -> Result<()> {
        let unit = std::mem::take(&mut self.unit);
        self.bytes = 0;
        let collection = self.replacement(context)?.collection().clone();
        let collection = &*collection;
        if unit.is_empty() {
            return Ok(());
        }
        context.session.op.check()?;
        let session = context.session;
        if self.measurements {
            let measurements: Vec<RawDoc<'_>> = unit.iter().map(DocBuf::as_doc).collect();
            let by = (&**session.op, session.view);
            return session.store.insert_measurements(by, collection, &measurements, |_| Ok(()));
        }
        session.write(collection, |writes| {
            if context.settings.bypass_validation {
                writes.bypass_validation();
            }
            unit.iter().try_for_each(|document| writes.insert(document.as_doc()))
        })
    }

    /// Whether the collected documents fill a unit.
    fn is_full(&self) -> bool {
        let most = if self.measurements { UNIT_MEASUREMENTS } else { UNIT_DOCUMENTS };
        self.unit.len() >= most || self.bytes >= UNIT_BYTES
    }
}

fn buckets_of(ns: &Namespace) -> Result<Namespace> {
    TimeSeries::buckets_of(ns).ok_or_else(|| {
        let text = format!("Fully qualified namespace is too long: '{ns}'");
        Error::new(ErrorCode::InvalidNamespace, text)
    })
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
        let document = filled(context, with_id(context, document));
        self.bytes += document.as_bytes().len();
        self.unit.push(document);
        if self.is_full() {
            self.flush(context)?;
        }
        Ok(Flow::More)
    }

    fn finish(&mut self, context: &StageContext<'_>, _: &mut Next<'_>) -> Result<Flow> {
        if context.settings.read_only {
            return Ok(Flow::More);
        }
        self.flush(context)?;
        if let Some(replacement) = &self.replacement {
            context.session.store.finish_replacement(replacement)?;
            self.replacement = None;
        }
        Ok(Flow::More)
    }

    fn abandon(&mut self, context: &StageContext<'_>) {
        if let Some(replacement) = self.replacement.take() {
            // Report the original error.
            let _ = context.session.store.abandon_replacement(&replacement);
        }
    }

    fn holds_back(&self) -> bool {
        true
    }
}
