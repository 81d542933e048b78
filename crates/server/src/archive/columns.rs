//! Encodes documents as a Parquet file.
//!
//! Each field at the top level is an optional column; `_bson` holds the whole document, so that
//! nothing is lost:
//!
//! ```text
//! bool, int, long, double    the same
//! date                       TIMESTAMP(MILLIS, UTC)
//! string                     STRING
//! objectId                   STRING, hexadecimal digits
//! int with long, with double the wider one
//! everything else, mixtures  STRING, relaxed Extended JSON
//! ```

use std::sync::Arc;

use mayfly_value::extjson::{self, Style};
use mayfly_value::{RawDoc, RawValue};
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

/// The largest number of columns; further fields are only in `_bson`.
const MAX_COLUMNS: usize = 500;
/// The column with whole documents.
const WHOLE: &str = "_bson";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnKind {
    Bool,
    Int,
    Long,
    Double,
    Date,
    Text,
    ObjectId,
    Json,
}

struct Column {
    name: String,
    /// `None` if all values are null.
    kind: Option<ColumnKind>,
}

/// Encodes the file.
pub(super) fn encode(documents: &[RawDoc<'_>]) -> Result<Vec<u8>> {
    let columns = columns(documents);
    let mut fields = Vec::with_capacity(columns.len() + 1);
    for column in &columns {
        fields.push(Arc::new(field(column)?));
    }
    let whole = Type::primitive_type_builder(WHOLE, Physical::BYTE_ARRAY);
    fields.push(Arc::new(whole.with_repetition(Repetition::REQUIRED).build()?));
    let schema = Type::group_type_builder("document").with_fields(fields).build()?;
    let compression = Compression::ZSTD(ZstdLevel::try_new(6)?);
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut file = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut file, Arc::new(schema), Arc::new(properties))?;
    let mut rows = writer.next_row_group()?;
    for column in &columns {
        write(&mut rows, column, documents)?;
    }
    if let Some(mut whole) = rows.next_column()? {
        let bytes: Vec<_> = documents
            .iter()
            .map(|document| ByteArray::from(document.as_bytes().to_vec()))
            .collect();
        whole.typed::<ByteArrayType>().write_batch(&bytes, None, None)?;
        whole.close()?;
    }
    rows.close()?;
    writer.close()?;
    Ok(file)
}

fn columns(documents: &[RawDoc<'_>]) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for document in documents {
        for element in *document {
            let name = element.name();
            if name == WHOLE || name.is_empty() {
                continue;
            }
            let at = match places.get(name) {
                Some(at) => *at,
                None if columns.len() == MAX_COLUMNS => continue,
                None => {
                    columns.push(Column { name: name.to_owned(), kind: None });
                    places.insert(name.to_owned(), columns.len() - 1);
                    columns.len() - 1
                }
            };
            let kind = &mut columns[at].kind;
            *kind = match (*kind, kind_of(element.value())) {
                (kind, None) | (None, kind) => kind,
                (Some(one), Some(other)) => Some(common(one, other)),
            };
        }
    }
    columns
}

fn kind_of(value: RawValue<'_>) -> Option<ColumnKind> {
    Some(match value {
        RawValue::Null | RawValue::Undefined => return None,
        RawValue::Bool(_) => ColumnKind::Bool,
        RawValue::Int32(_) => ColumnKind::Int,
        RawValue::Int64(_) => ColumnKind::Long,
        RawValue::Double(_) => ColumnKind::Double,
        RawValue::Date(_) => ColumnKind::Date,
        RawValue::String(_) => ColumnKind::Text,
        RawValue::ObjectId(_) => ColumnKind::ObjectId,
        _ => ColumnKind::Json,
    })
}

fn common(one: ColumnKind, other: ColumnKind) -> ColumnKind {
    match (one, other) {
        (one, other) if one == other => one,
        (ColumnKind::Int, ColumnKind::Long) | (ColumnKind::Long, ColumnKind::Int) => {
            ColumnKind::Long
        }
        // Not every long fits into a double.
        (ColumnKind::Int, ColumnKind::Double) | (ColumnKind::Double, ColumnKind::Int) => {
            ColumnKind::Double
        }
        _ => ColumnKind::Json,
    }
}

fn field(column: &Column) -> Result<Type> {
    let (physical, logical) = match column.kind.unwrap_or(ColumnKind::Json) {
        ColumnKind::Bool => (Physical::BOOLEAN, None),
        ColumnKind::Int => (Physical::INT32, None),
        ColumnKind::Long => (Physical::INT64, None),
        ColumnKind::Double => (Physical::DOUBLE, None),
        ColumnKind::Date => {
            let utc = LogicalType::timestamp(true, TimeUnit::MILLIS);
            (Physical::INT64, Some(utc))
        }
        ColumnKind::Text | ColumnKind::ObjectId | ColumnKind::Json => {
            (Physical::BYTE_ARRAY, Some(LogicalType::String))
        }
    };
    Type::primitive_type_builder(&column.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()
}

/// The definition levels of all rows (1 for a value), and the values.
fn values<T>(
    column: &Column,
    documents: &[RawDoc<'_>],
    of: impl Fn(RawValue<'_>) -> Option<T>,
) -> (Vec<i16>, Vec<T>) {
    let mut there = Vec::with_capacity(documents.len());
    let mut values = Vec::new();
    for document in documents {
        let value = document.get(&column.name).and_then(&of);
        there.push(i16::from(value.is_some()));
        values.extend(value);
    }
    (there, values)
}

fn write<W: std::io::Write + Send>(
    rows: &mut SerializedRowGroupWriter<'_, W>,
    column: &Column,
    documents: &[RawDoc<'_>],
) -> Result<()> {
    let Some(mut writer) = rows.next_column()? else { return Ok(()) };
    match column.kind.unwrap_or(ColumnKind::Json) {
        ColumnKind::Bool => {
            let (there, values) = values(column, documents, |value| match value {
                RawValue::Bool(value) => Some(value),
                _ => None,
            });
            writer.typed::<BoolType>().write_batch(&values, Some(&there), None)?;
        }
        ColumnKind::Int => {
            let (there, values) = values(column, documents, |value| match value {
                RawValue::Int32(value) => Some(value),
                _ => None,
            });
            writer.typed::<Int32Type>().write_batch(&values, Some(&there), None)?;
        }
        ColumnKind::Long | ColumnKind::Date => {
            let (there, values) = values(column, documents, |value| match value {
                RawValue::Int32(value) => Some(i64::from(value)),
                RawValue::Int64(value) | RawValue::Date(value) => Some(value),
                _ => None,
            });
            writer.typed::<Int64Type>().write_batch(&values, Some(&there), None)?;
        }
        ColumnKind::Double => {
            let (there, values) = values(column, documents, |value| match value {
                RawValue::Int32(value) => Some(f64::from(value)),
                RawValue::Double(value) => Some(value),
                _ => None,
            });
            writer.typed::<DoubleType>().write_batch(&values, Some(&there), None)?;
        }
        kind @ (ColumnKind::Text | ColumnKind::ObjectId | ColumnKind::Json) => {
            let text = |value: RawValue<'_>| match (kind, value) {
                (_, RawValue::Null | RawValue::Undefined) => None,
                (ColumnKind::Text, RawValue::String(text)) => Some(text.to_owned()),
                (ColumnKind::ObjectId, RawValue::ObjectId(id)) => Some(hex::encode(id)),
                (_, value) => Some(extjson::value_to_string(value, Style::Relaxed)),
            };
            let (there, values) = values(column, documents, |value| {
                text(value).map(|text| ByteArray::from(text.as_str()))
            });
            writer.typed::<ByteArrayType>().write_batch(&values, Some(&there), None)?;
        }
    }
    writer.close()
}
