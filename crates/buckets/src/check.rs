//! Validation of a stored bucket: its sections, its columns, and the consistency of its control.

use mayfly_value::{DocBuilder, RawDoc, RawValue, compare_values};

use crate::bucket::{Bucket, BucketView};
use crate::options::TimeSeries;

/// The fields of a bucket.
const PARTS: [&str; 4] = ["_id", "control", "meta", "data"];

impl TimeSeries {
    /// Validates a bucket's document, stored with this record key.
    ///
    /// # Errors
    /// A description of the first fault.
    pub fn check_bucket(&self, key: &[u8], document: RawDoc<'_>) -> Result<(), String> {
        let fields = &self.fields;
        if let Some(other) = document.iter().find(|part| !PARTS.contains(&part.name())) {
            return Err(format!("it has a field '{}'", other.name()));
        }
        let unreadable = "its control and its columns do not match";
        let view = BucketView::new(document).map_err(|_| unreadable)?;
        let bucket = Bucket::open(view, fields).map_err(|_| unreadable)?;
        if bucket.record_key() != key {
            return Err("its record key does not match its start and its '_id'".to_owned());
        }
        let seconds = bucket.start_ms.div_euclid(1000) as u32;
        if !matches!(bucket.id(), RawValue::ObjectId(id) if id[..4] == seconds.to_be_bytes()) {
            return Err("the time in its '_id' is not its start".to_owned());
        }
        if fields.meta.is_none() && view.meta().is_some() {
            return Err("it has a meta value, but the time series has no metaField".to_owned());
        }
        let times = bucket.column_named(&fields.time).ok_or("it has no column of times")?;
        for row in 0..bucket.rows() {
            match times.value(row) {
                Some(RawValue::Date(time)) if self.spans(bucket.start_ms, time) => {}
                Some(RawValue::Date(_)) => {
                    return Err(format!("the time of measurement {row} is outside its span"));
                }
                _ => return Err(format!("measurement {row} has no time")),
            }
        }
        match view.control().get("version") {
            Some(RawValue::Int32(2)) if bucket.is_sorted(fields) => {}
            Some(RawValue::Int32(3)) => {}
            Some(RawValue::Int32(2)) => {
                return Err("the order of its measurements contradicts its version".into());
            }
            _ => return Err("its version is unknown".to_owned()),
        }
        self.check_bounds(view, &bucket)
    }

    fn check_bounds(&self, view: BucketView<'_>, bucket: &Bucket) -> Result<(), String> {
        let mut bounds = DocBuilder::new();
        bucket.append_bounds(&mut bounds, &self.fields);
        let bounds = bounds.finish();
        for side in ["min", "max"] {
            let part =
                |of: RawDoc<'_>| of.get(side).and_then(RawValue::as_document).map(RawDoc::to_owned);
            let (Some(said), Some(found)) = (part(view.control()), part(bounds.as_doc())) else {
                return Err(format!("its control has no '{side}'"));
            };
            for of in found.as_doc() {
                let same = |said| compare_values(said, of.value()).is_eq();
                if !said.as_doc().get(of.name()).is_some_and(same) {
                    return Err(format!("its control has a wrong {side} of '{}'", of.name()));
                }
            }
            let beside = |of: &str| found.as_doc().get(of).is_none();
            if let Some(other) = said.as_doc().iter().find(|said| beside(said.name())) {
                return Err(format!("its control has a {side} of '{}'", other.name()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mayfly_value::DocBuf;
    use mayfly_value::bson::oid::ObjectId;
    use mayfly_value::bson::{Bson, DateTime, Document, doc};

    use super::*;

    fn series() -> TimeSeries {
        let options = doc! { "timeseries": { "timeField": "t", "metaField": "m" } };
        TimeSeries::from_options(DocBuf::from_bson(&options).as_doc()).unwrap()
    }

    fn bucket() -> Bucket {
        let mut bucket = Bucket::new(60_000, 7, Some(RawValue::Int32(1)));
        for (after, x) in [(0, 5), (1_000, 3), (2_000, 4)] {
            let t = Bson::DateTime(DateTime::from_millis(61_000 + after));
            let measurement = doc! { "t": t, "m": 1, "x": x };
            bucket.push(DocBuf::from_bson(&measurement).as_doc(), Some("m"));
        }
        bucket
    }

    fn check(change: impl FnOnce(&mut Document)) -> Result<(), String> {
        let (series, bucket) = (series(), bucket());
        let document = bucket.document(&series.fields);
        let mut changed = Document::from_reader(document.as_doc().as_bytes()).unwrap();
        change(&mut changed);
        series.check_bucket(&bucket.record_key(), DocBuf::from_bson(&changed).as_doc())
    }

    fn control(document: &mut Document) -> &mut Document {
        document.get_document_mut("control").unwrap()
    }

    #[test]
    fn damage_is_found() {
        assert_eq!(check(|_| {}), Ok(()));
        let date = |ms| Bson::DateTime(DateTime::from_millis(ms));
        let other_id = ObjectId::from_bytes([9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
        type Change = Box<dyn FnOnce(&mut Document)>;
        let changes: Vec<(&str, Change)> = vec![
            ("field 'y'", Box::new(|it| drop(it.insert("y", 1)))),
            ("do not match", Box::new(|it| drop(control(it).insert("count", 2)))),
            ("do not match", Box::new(|it| drop(it.remove("data")))),
            ("do not match", Box::new(|it| drop(it.insert("_id", 1)))),
            ("time in its '_id'", Box::new(move |it| drop(it.insert("_id", other_id)))),
            ("version", Box::new(|it| drop(control(it).insert("version", 9)))),
            (
                "wrong min of 'x'",
                Box::new(|it| {
                    drop(control(it).get_document_mut("min").unwrap().insert("x", 4));
                }),
            ),
            (
                "wrong max of 'x'",
                Box::new(|it| {
                    drop(control(it).get_document_mut("max").unwrap().insert("x", 6));
                }),
            ),
            (
                "wrong max of 'x'",
                Box::new(|it| {
                    drop(control(it).get_document_mut("max").unwrap().remove("x"));
                }),
            ),
            (
                "a max of 'z'",
                Box::new(|it| {
                    drop(control(it).get_document_mut("max").unwrap().insert("z", 6));
                }),
            ),
            (
                "wrong max of 't'",
                Box::new(move |it| {
                    drop(control(it).get_document_mut("max").unwrap().insert("t", date(62_000)));
                }),
            ),
            (
                "record key",
                Box::new(move |it| {
                    drop(control(it).get_document_mut("min").unwrap().insert("t", date(62_000)));
                }),
            ),
            (
                "no column of times",
                Box::new(|it| {
                    drop(it.get_document_mut("data").unwrap().remove("t"));
                }),
            ),
        ];
        for (expected, change) in changes {
            let found = check(change).unwrap_err();
            assert!(found.contains(expected), "{expected}: {found}");
        }
        // Out of order, or outside the span.
        let series = series();
        let out_of = |times: &[i64]| {
            let mut bucket = Bucket::new(60_000, 7, None);
            for t in times {
                let measurement = doc! { "t": Bson::DateTime(DateTime::from_millis(*t)) };
                bucket.push(DocBuf::from_bson(&measurement).as_doc(), Some("m"));
            }
            let document = bucket.document(&series.fields);
            series.check_bucket(&bucket.record_key(), document.as_doc())
        };
        assert_eq!(out_of(&[62_000, 61_000]), Ok(()));
        assert!(out_of(&[61_000, 60_000 + 3_600_000]).unwrap_err().contains("span"));
        assert!(out_of(&[61_000, 59_000]).unwrap_err().contains("span"));
        assert!(out_of(&[]).is_err(), "no measurements");
    }
}
