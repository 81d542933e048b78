//! A log-fed kind for tests: the words of the string at one field.
//!
//! A string that begins with `!` cannot be indexed, so that tests meet a document without entries.

use std::sync::Arc;

use mayfly_base::{Error, Result};
use mayfly_value::keys;
use mayfly_value::{RawDoc, RawValue, SortOrder};

use super::{
    FieldKind, IndexKind, KindCount, KindRow, Maintenance, Mark, OtherOptions, OverMeasurements,
    Requested,
};
use crate::index::keygen::KeySet;
use crate::index::spec::IndexSpec;
use crate::record::Record;

pub(super) const ROW: KindRow = KindRow {
    name: "fixtureWords",
    mark: Mark::Value,
    field: FieldKind::LogFed,
    options: &[],
    other_options: OtherOptions::Same,
    over_measurements: OverMeasurements::Never("Fixture indexes"),
    count: KindCount::Any,
    maintenance: Maintenance::Log,
    request: |_, _| Ok(Requested::default()),
    from_catalog: |_: RawDoc<'_>, _| Ok(Arc::new(Words)),
};

/// An index of the kind; its definition has no options of its own.
#[derive(Clone, Copy, Debug)]
struct Words;

impl IndexKind for Words {
    fn row(&self) -> &'static KindRow {
        &ROW
    }

    fn keys(&self, spec: &IndexSpec, record: Record<'_>, out: &mut KeySet) -> Result<()> {
        let field = spec.fields().first().map_or("", |field| field.path.as_str());
        let Some(RawValue::String(text)) = record.document.get(field) else { return Ok(()) };
        if text.starts_with('!') {
            return Err(Error::bad_value("this text cannot be indexed"));
        }
        for word in text.split_whitespace() {
            let word = RawValue::String(word);
            out.push(|key, bits| keys::append_value(key, bits, word, SortOrder::Ascending));
        }
        Ok(())
    }
}
