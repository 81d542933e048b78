//! Parameters of the cluster: a row each. Their values are documents of `config`, as in the
//! reference, and are read at startup.
//!
//! ```text
//! config.clusterParameters   { _id: "defaultMaxTimeMS", clusterParameterTime, readOperations }
//! ```
//!
//! A new document takes the given fields, and keeps the others; null resets a field. Sources: the
//! manual's page "Cluster Parameters".

use std::sync::atomic::{AtomicI64, Ordering};

use mayfly_base::{Error, Result};
use mayfly_storage::Store;
use mayfly_value::arguments::convert::{truth, whole_number};
use mayfly_value::arguments::{Argument, Form};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use mayfly_work::OpCtx;
use parking_lot::Mutex;

use super::stored::{put, read};

/// The collection of the documents.
const COLLECTION: &str = "clusterParameters";

/// A row of the table of parameters.
pub struct ClusterParameter {
    /// The name in `getClusterParameter`.
    pub name: &'static str,
    /// Its fields; null is a value of each.
    pub fields: &'static [Argument],
    /// Appends the values of its fields: those given, otherwise the present ones, otherwise the
    /// defaults. The given ones were checked against [`ClusterParameter::fields`].
    values: fn(Change<'_>, &mut DocBuilder) -> Result<()>,
    /// Applies the values.
    apply: fn(&Store, &ClusterParameters, RawDoc<'_>),
}

/// The given fields of a parameter and its present ones.
#[derive(Clone, Copy)]
struct Change<'a> {
    given: RawDoc<'a>,
    present: RawDoc<'a>,
}

impl<'a> Change<'a> {
    /// The new value of a field; `None` for the default.
    fn of(self, name: &str) -> Option<RawValue<'a>> {
        let value = self.given.get(name).or_else(|| self.present.get(name));
        value.filter(|value| !matches!(value, RawValue::Null | RawValue::Undefined))
    }

    /// The change of an embedded document.
    fn within(self, name: &str) -> Change<'a> {
        let part = |document: RawDoc<'a>| document.get(name).and_then(RawValue::as_document);
        Change {
            given: part(self.given).unwrap_or(RawDoc::EMPTY),
            present: match self.given.get(name) {
                Some(RawValue::Null | RawValue::Undefined) => RawDoc::EMPTY,
                _ => part(self.present).unwrap_or(RawDoc::EMPTY),
            },
        }
    }

    fn append_flag(self, name: &str, out: &mut DocBuilder) {
        out.append(name, self.of(name).and_then(truth).unwrap_or(false));
    }

    fn append_long(self, name: &str, default: i64, out: &mut DocBuilder) {
        out.append(name, self.of(name).and_then(whole_number).unwrap_or(default));
    }
}

/// All parameters of the cluster, ascending by name.
pub const CLUSTER_PARAMETERS: &[ClusterParameter] = &[
    ClusterParameter {
        name: "changeStreamOptions",
        fields: &[Argument::document("preAndPostImages").refused_with(
            2,
            "'changeStreamOptions.preAndPostImages' must be a document, but is {}",
        )],
        values: |change, out| {
            if let Some(RawValue::Document(images)) = change.given.get("preAndPostImages") {
                check_images(images)?;
            }
            let images = change.within("preAndPostImages");
            out.start_document("preAndPostImages");
            match images.of("expireAfterSeconds") {
                Some(value) if value.is_number() => {
                    images.append_long("expireAfterSeconds", 0, out);
                }
                _ => drop(out.append("expireAfterSeconds", "off")),
            }
            out.end();
            Ok(())
        },
        apply: |store, _, values| {
            let images = values.get("preAndPostImages").and_then(RawValue::as_document);
            let seconds = images.and_then(|images| images.get("expireAfterSeconds"));
            store.oplog().set_image_expiry(seconds.and_then(whole_number));
        },
    },
    ClusterParameter {
        name: "changeStreams",
        fields: &[number("expireAfterSeconds")],
        values: |change, out| {
            change.append_long("expireAfterSeconds", 3600, out);
            Ok(())
        },
        // It belongs to deployments that share one log between tenants.
        apply: |_, _, _| {},
    },
    ClusterParameter {
        name: MAX_TIME,
        fields: &[number("readOperations").at_least(0)],
        values: |change, out| {
            change.append_long("readOperations", 0, out);
            Ok(())
        },
        apply: |_, parameters, values| {
            let ms = values.get("readOperations").and_then(whole_number).unwrap_or(0);
            parameters.max_time_ms.store(ms, Ordering::Relaxed);
        },
    },
    ClusterParameter {
        name: "fleDisableSubstringPreviewParameterLimits",
        fields: &[flag("disableLimits")],
        values: |change, out| {
            change.append_flag("disableLimits", out);
            Ok(())
        },
        apply: |_, _, _| {},
    },
    ClusterParameter {
        name: "pauseMigrationsDuringMultiUpdates",
        fields: &[flag("enabled")],
        values: |change, out| {
            change.append_flag("enabled", out);
            Ok(())
        },
        // One server has no migrations.
        apply: |_, _, _| {},
    },
];

/// The time limit in milliseconds of reads that set none.
const MAX_TIME: &str = "defaultMaxTimeMS";

/// A number; null resets it.
const fn number(name: &'static str) -> Argument {
    Argument::new(name, Form::Whole)
}

/// A boolean; null resets it.
const fn flag(name: &'static str) -> Argument {
    Argument::new(name, Form::Bool)
}

/// Checks `preAndPostImages: { expireAfterSeconds: "off" | number }`.
///
/// # Errors
/// 2 BadValue.
fn check_images(images: RawDoc<'_>) -> Result<()> {
    for field in images {
        match (field.name(), field.value()) {
            ("expireAfterSeconds", RawValue::String("off") | RawValue::Null) => {}
            ("expireAfterSeconds", value) if whole_number(value).is_some_and(|it| it > 0) => {}
            ("expireAfterSeconds", _) => {
                return Err(Error::bad_value(
                    "'changeStreamOptions.preAndPostImages.expireAfterSeconds' must be 'off' or a number greater than zero",
                ));
            }
            (unknown, _) => {
                return Err(mayfly_value::arguments::error::unknown(format!(
                    "changeStreamOptions.preAndPostImages.{unknown}"
                )));
            }
        }
    }
    Ok(())
}

/// The values of the parameters of the cluster.
#[derive(Default)]
pub struct ClusterParameters {
    /// The stored documents. A parameter that was never set has none.
    stored: Mutex<Vec<(&'static str, DocBuf)>>,
    /// Held during a change, so that no change is lost to another one that began meanwhile.
    changing: Mutex<()>,
    max_time_ms: AtomicI64,
}

impl ClusterParameters {
    /// Reads and applies the stored values.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn load(store: &Store) -> Result<ClusterParameters> {
        let parameters = ClusterParameters::default();
        for parameter in CLUSTER_PARAMETERS {
            if let Some(document) = read(store, (COLLECTION, parameter.name))? {
                (parameter.apply)(store, &parameters, document.as_doc());
                parameters.stored.lock().push((parameter.name, document));
            }
        }
        Ok(parameters)
    }

    /// Takes over values that were loaded.
    pub(crate) fn adopt(&self, loaded: ClusterParameters) {
        *self.stored.lock() = loaded.stored.into_inner();
        self.max_time_ms.store(loaded.max_time_ms.into_inner(), Ordering::Relaxed);
    }

    fn stored(&self, name: &str) -> Option<DocBuf> {
        let stored = self.stored.lock();
        stored.iter().find(|(stored, _)| *stored == name).map(|(_, document)| document.clone())
    }

    /// Appends `_id`, `clusterParameterTime` and the values of a parameter.
    pub fn append(&self, parameter: &ClusterParameter, out: &mut DocBuilder) {
        out.append("_id", parameter.name);
        match self.stored(parameter.name) {
            Some(document) => {
                for element in document.as_doc().iter().filter(|element| element.name() != "_id") {
                    out.append_element(element);
                }
            }
            None => {
                out.append("clusterParameterTime", RawValue::Timestamp(0));
                let change = Change { given: RawDoc::EMPTY, present: RawDoc::EMPTY };
                // Defaults are valid.
                let _ = (parameter.values)(change, out);
            }
        }
    }

    /// Stores and applies new values, which were checked against [`ClusterParameter::fields`]. An
    /// empty document changes nothing.
    ///
    /// # Errors
    /// 2 BadValue for values that are not allowed; errors of the engine, after which the old values
    /// stay in effect.
    pub fn set(
        &self,
        (store, op): (&Store, &OpCtx),
        parameter: &ClusterParameter,
        given: RawDoc<'_>,
    ) -> Result<()> {
        if given.is_empty() {
            return Ok(());
        }
        let _changing = self.changing.lock();
        let present = self.stored(parameter.name).unwrap_or_else(DocBuf::empty);
        let mut out = DocBuilder::new();
        out.append("_id", parameter.name);
        out.append("clusterParameterTime", RawValue::Timestamp(store.new_timestamp()));
        (parameter.values)(Change { given, present: present.as_doc() }, &mut out)?;
        let document = out.finish();
        put(store, op, (COLLECTION, parameter.name), document.as_doc())?;
        (parameter.apply)(store, self, document.as_doc());
        let mut stored = self.stored.lock();
        stored.retain(|(name, _)| *name != parameter.name);
        stored.push((parameter.name, document));
        Ok(())
    }

    /// `defaultMaxTimeMS.readOperations`: the time limit in milliseconds of reads that set none; 0
    /// for no limit.
    pub fn max_time_ms(&self) -> i64 {
        self.max_time_ms.load(Ordering::Relaxed)
    }
}
