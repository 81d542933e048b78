//! `$out`: replaces a collection by the results.
//!
//! 1. A collection beside the target gets the target's options and indexes.
//! 2. The results go into it in units.
//! 3. When all are there it takes the target's name, in one step. Nobody sees half of them, and when something fails the target
//!    stays as it was.
//!
//! With the option `timeseries`, or onto a time series, the results are measurements: the collection beside the target is one of
//! buckets, and takes the name of the target's buckets.

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_storage::{Collection, CreateIndexesOptions, TEMPORARY, TimeSeries};
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use std::sync::Arc;

use super::target::{check_target, filled, target, with_id};
use super::{Around, Next, Running, Stage, StageContext};
use crate::Flow;

/// Most documents, and about most bytes, in one write unit.
const UNIT_DOCUMENTS: usize = 256;
const UNIT_BYTES: usize = 1 << 20;
/// Measurements in one unit: a bucket's worth is packed once, not several times.
const UNIT_MEASUREMENTS: usize = 2000;

/// A parsed `$out`.
#[derive(Clone, Debug)]
pub(crate) struct Out {
    target: Namespace,
    /// The results are measurements of such a time series.
    series: Option<TimeSeries>,
}

pub(super) fn parse(value: RawValue<'_>, around: &Around<'_>) -> Result<Vec<Stage>> {
    let kind = value.type_name();
    let target = target(value, around, &["timeseries"], |name| match name {
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
    check_target(&target, "$out", (17385, 31321))?;
    let series = value.as_document().and_then(|spec| spec.get("timeseries"));
    let series = match series {
        None | Some(RawValue::Null | RawValue::Undefined) => None,
        Some(RawValue::Document(given)) => Some(TimeSeries::parse(given, "$out.timeseries")?),
        Some(other) => {
            return Err(Error::type_mismatch(format!(
                "BSON field '$out.timeseries' is the wrong type '{}', expected type 'object'",
                other.type_name()
            )));
        }
    };
    Ok(vec![Stage::Out(Box::new(Out { target, series }))])
}

/// Where the results go until all are there.
#[derive(Clone)]
struct Beside {
    collection: Arc<Collection>,
    /// What it becomes: the target, or the collection of buckets behind it.
    becomes: Namespace,
    measurements: bool,
}

pub(super) struct RunningOut {
    out: Out,
    beside: Option<Beside>,
    unit: Vec<DocBuf>,
    bytes: usize,
}

impl Out {
    /// The collection that is replaced; nothing when there is none, or the time series whose buckets it holds.
    ///
    /// # Errors
    /// 7268700 and 7268703 for a time series in the place of something else, 7406103 for one that differs, 17152 for a capped
    /// collection, 166 for a view.
    fn existing(&self, context: &StageContext<'_>) -> Result<Option<Arc<Collection>>> {
        let (store, target) = (context.store, &self.target);
        let fault = |code: i32, text: String| Err(Error::new(ErrorCode(code), text));
        if let Some(existing) = store.collection(target) {
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
        if let Some((buckets, series)) = store.time_series_named(target) {
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
        if self.series.is_some() && store.view(target)?.is_some() {
            let text = "Cannot create a time-series collection from a view.";
            return fault(7268703, text.to_owned());
        }
        store.check_no_view(target)?;
        Ok(None)
    }
}

impl RunningOut {
    pub(super) fn new(out: Out) -> RunningOut {
        RunningOut { out, beside: None, unit: Vec::new(), bytes: 0 }
    }

    /// The collection beside the target.
    fn beside(&mut self, context: &StageContext<'_>) -> Result<Beside> {
        if let Some(beside) = &self.beside {
            return Ok(beside.clone());
        }
        let (store, target) = (context.store, &self.out.target);
        let existing = self.out.existing(context)?;
        let number = mayfly_value::bson::oid::ObjectId::new().to_hex();
        let name = Namespace::new(target.db(), &format!("{TEMPORARY}{number}"))?;
        let options = match (&existing, &self.out.series) {
            (Some(existing), _) => existing.options(),
            (None, Some(series)) => {
                let mut options = DocBuilder::new();
                options.append("timeseries", &series.document());
                options.finish()
            }
            (None, None) => DocBuf::empty(),
        };
        let measurements = options.as_doc().get("timeseries").is_some();
        let (place, becomes) = match measurements {
            true => (buckets_of(&name)?, buckets_of(target)?),
            false => (name.clone(), target.clone()),
        };
        let collection = store.create_collection(&place, options)?;
        let beside = Beside { collection, becomes, measurements };
        self.beside = Some(beside.clone());
        if let Some(existing) = existing {
            copy_indexes(context, &existing, &name, measurements)?;
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
        let (store, op) = (context.store, context.op);
        if beside.measurements {
            let measurements: Vec<RawDoc<'_>> = unit.iter().map(DocBuf::as_doc).collect();
            return store.insert_measurements(op, &beside.collection, &measurements, |_| Ok(()));
        }
        store.write(op, &beside.collection, |writes| {
            if context.settings.bypass_validation {
                writes.bypass_validation();
            }
            unit.iter().try_for_each(|document| writes.insert(document.as_doc()))
        })
    }

    /// Whether what was collected is worth a unit.
    fn is_full(&self) -> bool {
        let measurements = match &self.beside {
            Some(beside) => beside.measurements,
            None => self.out.series.is_some(),
        };
        let most = if measurements { UNIT_MEASUREMENTS } else { UNIT_DOCUMENTS };
        self.unit.len() >= most || self.bytes >= UNIT_BYTES
    }
}

fn buckets_of(ns: &Namespace) -> Result<Namespace> {
    TimeSeries::buckets_of(ns).ok_or_else(|| {
        let text = format!("Fully qualified namespace is too long: '{ns}'");
        Error::new(ErrorCode::InvalidNamespace, text)
    })
}

/// Gives a collection, or the time series of this name, the indexes of another.
fn copy_indexes(
    context: &StageContext<'_>,
    from: &Collection,
    name: &Namespace,
    measurements: bool,
) -> Result<()> {
    let (store, op) = (context.store, context.op);
    let indexes = match measurements {
        true => from.list_measurement_indexes(),
        false => from.list_indexes(),
    };
    if measurements {
        // The one that comes by itself may have been dropped.
        store.drop_indexes(name, None)?;
    }
    let requests: Vec<RawDoc<'_>> = indexes
        .iter()
        .map(DocBuf::as_doc)
        .filter(|index| {
            index.get("name") != Some(RawValue::String("_id_")) && index.get("clustered").is_none()
        })
        .collect();
    if !requests.is_empty() {
        let options = CreateIndexesOptions { ignore_unknown: true, update_policies: false };
        store.create_indexes(op, name, &requests, options)?;
    }
    Ok(())
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
        let document = filled(context, with_id(document));
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
        if let Some(beside) = &self.beside {
            let (store, target) = (context.store, &self.out.target);
            if beside.measurements {
                // Whatever got the name meanwhile stays.
                self.out.existing(context)?;
                let taken = store.collection(target).is_some();
                if taken {
                    let text = format!("collection {target} came into being during $out");
                    return Err(Error::new(ErrorCode::NamespaceExists, text));
                }
            }
            store.rename_collection(&beside.collection.namespace(), &beside.becomes, true)?;
            self.beside = None;
        }
        Ok(Flow::More)
    }

    fn abandon(&mut self, context: &StageContext<'_>) {
        if let Some(beside) = self.beside.take() {
            // The reason of the failure is the one to tell.
            let _ = context.store.drop_collection(&beside.collection.namespace());
        }
    }

    fn holds_back(&self) -> bool {
        true
    }
}
