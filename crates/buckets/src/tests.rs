//! Columns and buckets: round trips, and arbitrary bytes.

use std::ops::ControlFlow;

use mayfly_value::arbitrary::{any_document, any_value};
use mayfly_value::bson::{Bson, DateTime, doc, oid::ObjectId};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, ValueBuf};
use proptest::prelude::*;

use crate::append::{Packed, packed_with};
use crate::bucket::{Bucket, BucketView};
use crate::column::Column;
use crate::fields::MeasurementFields;

fn fields() -> MeasurementFields {
    MeasurementFields { time: "t".into(), meta: Some("m".into()) }
}

fn column_of(values: &[Option<ValueBuf>]) -> Column {
    let mut column = Column::default();
    for value in values {
        match value {
            Some(value) => column.push(value.type_byte(), value.data()),
            None => column.push_none(),
        }
    }
    column
}

fn measurements(bucket: &DocBuf) -> Vec<DocBuf> {
    let mut seen = Vec::new();
    let view = BucketView::new(bucket.as_doc()).unwrap();
    view.measurements(&fields(), &|_| true, &mut |_, measurement| {
        seen.push(measurement.to_owned());
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    seen
}

/// A typical measurement of a sensor.
fn sensor(at: i32) -> DocBuf {
    let mut id = [7; 12];
    id[..4].copy_from_slice(&(1_800_000_000 + at / 10).to_be_bytes());
    id[9..].copy_from_slice(&at.to_be_bytes()[1..]);
    DocBuf::from_bson(&doc! {
        "t": DateTime::from_millis(1_800_000_000_000 + i64::from(at) * 1000),
        "m": { "sensor": 17, "room": "kitchen" },
        "_id": ObjectId::from_bytes(id),
        "temperature": f64::from(2000 + (at * 7919) % 300) / 100.0,
        "humidity": f64::from(400 + (at * 104_729) % 200) / 10.0,
        "battery": 100 - at / 300,
        "status": if at % 100 == 0 { "check" } else { "ok" },
    })
}

#[test]
fn a_typical_measurement_takes_few_bytes() {
    let mut bucket = Bucket::new(1_800_000_000_000, 5, None);
    for at in 0..1000 {
        bucket.push(sensor(at).as_doc(), Some("m"));
    }
    let document = bucket.document(&fields());
    let per_measurement = document.as_bytes().len() as f64 / 1000.0;
    assert!(per_measurement < 20.0, "{per_measurement}");
}

#[test]
fn bounds_of_mixed_types_are_those_of_the_comparison_order() {
    let values = [Bson::Int32(0), Bson::String(String::new()), Bson::Int32(1), Bson::Null];
    let document = DocBuf::from_bson(&doc! { "v": values.to_vec() });
    let values = document.as_doc().get("v").unwrap().as_array().unwrap();
    let values: Vec<_> = values.iter().map(|item| Some(item.value().to_owned())).collect();
    assert_eq!(column_of(&values).bounds(), Some((3, 1)));
}

#[test]
fn measurements_come_out_as_they_went_in() {
    let meta = doc! { "a": 1 };
    let meta = DocBuf::from_bson(&meta);
    let mut bucket = Bucket::new(0, 5, Some(meta.as_doc().into()));
    let put = [
        doc! { "t": DateTime::from_millis(5), "m": { "a": 1 }, "x": 1.5 },
        doc! { "t": DateTime::from_millis(7), "m": { "a": 1 }, "y": [1, { "z": Bson::Null }], "x": "text" },
        doc! { "t": DateTime::from_millis(6), "m": { "a": 1 }, "x": Bson::Null, "y": -0.0 },
    ];
    for measurement in &put {
        bucket.push(DocBuf::from_bson(measurement).as_doc(), Some("m"));
    }
    let document = bucket.document(&fields());
    let out = measurements(&document);
    let expected = [
        doc! { "t": DateTime::from_millis(5), "m": { "a": 1 }, "x": 1.5 },
        doc! { "t": DateTime::from_millis(7), "m": { "a": 1 }, "x": "text", "y": [1, { "z": Bson::Null }] },
        doc! { "t": DateTime::from_millis(6), "m": { "a": 1 }, "x": Bson::Null, "y": -0.0 },
    ];
    assert_eq!(out, expected.iter().map(DocBuf::from_bson).collect::<Vec<_>>());
    // Unpacked, one measurement removed, and packed again.
    let view = BucketView::new(document.as_doc()).unwrap();
    let mut bucket = Bucket::open(view, &fields()).unwrap();
    bucket.retain(&|row| row != 1);
    let left = measurements(&bucket.document(&fields()));
    assert_eq!(left, [&expected[0], &expected[2]].map(DocBuf::from_bson));
}

proptest! {
    #[test]
    fn appending_gives_the_same_bucket_as_packing_at_once(
        rows in prop::collection::vec((-5000i64..5000, any_document()), 1..80),
        steps in prop::collection::vec(1usize..7, 80),
    ) {
        let measurement = |(time, rest): &(i64, DocBuf)| {
            let mut out = DocBuilder::new();
            out.append("t", RawValue::Date(*time));
            let mut names = std::collections::HashSet::from(["t".to_owned(), "m".to_owned()]);
            for element in rest.as_doc() {
                if names.insert(element.name().to_owned()) {
                    out.append_element(element);
                }
            }
            out.finish()
        };
        let rows: Vec<DocBuf> = rows.iter().map(measurement).collect();
        let mut whole = Bucket::new(-10_000, 7, None);
        rows.iter().for_each(|row| whole.push(row.as_doc(), Some("m")));
        let whole = whole.document(&fields());
        let (mut left, mut steps) = (rows.as_slice(), steps.into_iter());
        let mut stored: Option<(DocBuf, Packed)> = None;
        while !left.is_empty() {
            let (now, rest) = left.split_at(steps.next().unwrap_or(1).min(left.len()));
            left = rest;
            stored = Some(match stored {
                None => {
                    let mut first = Bucket::new(-10_000, 7, None);
                    now.iter().for_each(|row| first.push(row.as_doc(), Some("m")));
                    let (rows, bytes) = (first.rows(), first.bytes());
                    (first.document(&fields()), Packed { rows, bytes, additions: 0 })
                }
                Some((document, packed)) => {
                    let view = BucketView::new(document.as_doc()).unwrap();
                    let mut added = Bucket::addition_to(view, &fields()).unwrap();
                    now.iter().for_each(|row| added.push(row.as_doc(), Some("m")));
                    packed_with(document.as_doc(), packed, &added, &fields()).unwrap()
                }
            });
        }
        let (stored, packed) = stored.unwrap();
        prop_assert_eq!(packed.rows, rows.len());
        prop_assert_eq!(measurements(&stored), measurements(&whole));
        let (stored, whole) = (stored.as_doc(), whole.as_doc());
        // Which of several equal values is the minimum is unspecified.
        prop_assert_eq!(stored.get("_id"), whole.get("_id"));
        let version = |bucket: RawDoc<'_>| {
            bucket.get("control").and_then(|c| c.as_document()?.get("version")).map(|v| v.to_owned())
        };
        prop_assert_eq!(version(stored), version(whole));
        for field in ["t", "a", "b", "x"] {
            let (stored, whole) = (BucketView::new(stored).unwrap(), BucketView::new(whole).unwrap());
            let same = match (stored.bounds(field), whole.bounds(field)) {
                (Some(one), Some(other)) => {
                    let equal = mayfly_value::equal_values;
                    equal(one.0, other.0) && equal(one.1, other.1)
                }
                (one, other) => one.is_none() && other.is_none(),
            };
            prop_assert!(same, "{}", field);
        }
    }

    #[test]
    fn columns_round_trip(
        values in prop::collection::vec(prop::option::weighted(0.9, any_value()), 0..60),
        repeat in 1usize..4,
    ) {
        let values: Vec<_> = values.into_iter().flat_map(|v| vec![v; repeat]).collect();
        let column = column_of(&values);
        let decoded = Column::decode(&column.encode(), values.len());
        prop_assert_eq!(decoded.as_ref(), Some(&column));
        let bounds = column.bounds();
        prop_assert_eq!(bounds.is_none(), values.iter().all(Option::is_none));
        if let Some((least, most)) = bounds {
            for value in values.iter().flatten() {
                let compare = mayfly_value::compare_values;
                prop_assert!(compare(column.value(least).unwrap(), value.as_raw()).is_le());
                prop_assert!(compare(column.value(most).unwrap(), value.as_raw()).is_ge());
            }
        }
    }

    #[test]
    fn any_bytes_are_taken_for_a_column(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        values in prop::collection::vec(prop::option::weighted(0.9, any_value()), 1..20),
        flip in any::<(usize, u8)>(),
        rows in 0usize..300,
    ) {
        let mut framed = vec![0xE1];
        framed.extend(&bytes);
        let _ = Column::decode(&framed, rows);
        let mut encoded = column_of(&values).encode();
        let at = flip.0 % encoded.len();
        encoded[at] ^= flip.1;
        if let Some(column) = Column::decode(&encoded, values.len()) {
            prop_assert_eq!(column.len(), values.len());
            let _ = column.bounds();
        }
        let _ = Column::decode(&encoded[..at], values.len());
    }

    #[test]
    fn any_document_is_taken_for_a_bucket(document in any_document()) {
        if let Ok(view) = BucketView::new(RawDoc::new(document.as_bytes()).unwrap()) {
            let _ = Bucket::open(view, &fields());
        }
    }
}
