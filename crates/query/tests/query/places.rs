//! Geo indexes find the same documents as a scan of the collection, and return them by distance.

use mayfly_geo::{Geometry, Pair, flat_distance};
use mayfly_query::{CanonicalQuery, Executor, FindOptions, Flow, Hint, Metadata, Plan};
use mayfly_storage::ReadView;
use mayfly_storage::StoreSession;
use mayfly_value::bson::{Bson, Document, doc};
use mayfly_value::{DocBuf, RawValue};
use proptest::prelude::*;

use crate::fixture::Fixture;

fn fixture(key: &Document, places: &[Bson]) -> Fixture {
    let fixture = Fixture::new(&[doc! { "key": key, "name": "i" }]);
    for (n, place) in places.iter().enumerate() {
        // Inserts of invalid geometries fail.
        let _ = fixture.try_insert(&doc! { "_id": n as i32, "k": n as i32 % 3, "loc": place });
    }
    fixture
}

impl Fixture {
    /// The documents in their order, and whether an index was used.
    fn places(&self, filter: &Document, hint: Option<Hint>) -> (Vec<i32>, bool) {
        let filter = DocBuf::from_bson(filter);
        let options = FindOptions { hint, ..FindOptions::default() };
        let query = CanonicalQuery::parse(filter.as_doc(), options).unwrap();
        let mut executor = Executor::new(&ReadView::now(), self.collection.clone(), query).unwrap();
        let by_index = matches!(executor.plan().source(), Plan::Index(_) | Plan::Near(_));
        let mut found = Vec::new();
        while !executor.is_done() {
            let mut in_batch = 0;
            let sink = &mut |_: &[u8], document: mayfly_value::RawDoc<'_>, _: &Metadata| {
                if let Some(RawValue::Int32(id)) = document.get("_id") {
                    found.push(id);
                }
                in_batch += 1;
                Ok(if in_batch < 7 { Flow::More } else { Flow::Pause })
            };
            executor.run(StoreSession::new(&self.store, &self.op, &ReadView::now()), sink).unwrap();
        }
        (found, by_index)
    }

    fn check_places(&self, filter: &Document) {
        let (mut by_index, used) = self.places(filter, None);
        assert!(used, "{filter}");
        let scan = Hint::Natural { backward: false };
        let (all, _) = self.places(filter, Some(scan));
        by_index.sort_unstable();
        assert_eq!(by_index, all, "{filter}");
    }
}

fn pair() -> impl Strategy<Value = (f64, f64)> {
    let near = (-4.0..4.0f64, -4.0..4.0f64);
    let round = (-4i32..4, -4i32..4).prop_map(|(x, y)| (f64::from(x), f64::from(y)));
    let any = (-180.0..=180.0f64, -90.0..=90.0f64);
    prop_oneof![3 => near, 1 => round, 2 => any]
}

fn square((x, y): (f64, f64), size: f64) -> Document {
    let (right, top) = ((x + size).min(180.0), (y + size).min(90.0));
    doc! { "type": "Polygon", "coordinates": [[[x, y], [right, y], [right, top], [x, top], [x, y]]] }
}

fn place() -> impl Strategy<Value = Bson> {
    let point = pair().prop_map(|(x, y)| doc! { "type": "Point", "coordinates": [x, y] }.into());
    let legacy = pair().prop_map(|(x, y)| Bson::from(vec![x, y]));
    let line = (pair(), pair()).prop_map(|((a, b), (c, d))| {
        doc! { "type": "LineString", "coordinates": [[a, b], [c, d]] }.into()
    });
    let area = (pair(), 0.01..8.0f64).prop_map(|(at, size)| square(at, size).into());
    prop_oneof![4 => point, 2 => legacy, 1 => line, 2 => area]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn areas_on_the_earth(
        places in prop::collection::vec(place(), 40),
        at in pair(),
        size in 0.1..20.0f64,
        before in any::<bool>(),
    ) {
        let key = if before { doc! { "k": 1, "loc": "2dsphere" } } else { doc! { "loc": "2dsphere", "k": -1 } };
        let fixture = fixture(&key, &places);
        let area = square(at, size);
        for test in [
            doc! { "$geoWithin": { "$geometry": &area } },
            doc! { "$geoIntersects": { "$geometry": &area } },
            doc! { "$geoIntersects": { "$geometry": { "type": "Point", "coordinates": [at.0, at.1] } } },
            doc! { "$geoWithin": { "$centerSphere": [[at.0, at.1], size / 20.0] } },
        ] {
            fixture.check_places(&doc! { "k": 1, "loc": test.clone() });
            fixture.check_places(&doc! { "k": { "$in": [0, 2] }, "loc": test });
        }
    }

    #[test]
    fn areas_in_the_plane(places in prop::collection::vec(pair(), 40), at in pair(), size in 0.1..20.0f64) {
        let places: Vec<Bson> = places.iter().map(|(x, y)| Bson::from(vec![*x, *y])).collect();
        let fixture = fixture(&doc! { "loc": "2d", "k": 1 }, &places);
        for test in [
            doc! { "$box": [[at.0, at.1], [at.0 + size, at.1 + size]] },
            doc! { "$center": [[at.0, at.1], size] },
            doc! { "$polygon": [[at.0, at.1], [at.0 + size, at.1], [at.0, at.1 + size]] },
            doc! { "$centerSphere": [[at.0, at.1], size / 20.0] },
        ] {
            fixture.check_places(&doc! { "loc": { "$geoWithin": test } });
        }
    }

    #[test]
    fn the_nearest_first(
        places in prop::collection::vec(place(), 300),
        at in pair(),
        min in 0.0..1.0f64,
        width in 0.01..3.0f64,
    ) {
        let from = Pair { x: at.0, y: at.1 }.to_point();
        let fixture = fixture(&doc! { "loc": "2dsphere" }, &places);
        let (all, _) = fixture.places(&doc! {}, None);
        let mut expected: Vec<(f64, i32)> = all
            .iter()
            .filter_map(|id| {
                let value = DocBuf::from_bson(&doc! { "loc": &places[*id as usize] });
                let geometry = Geometry::of_value(value.as_doc().get("loc")?).ok()??;
                Some((geometry.angle_to(&from)?, *id))
            })
            .filter(|(distance, _)| (min..=min + width).contains(distance))
            .collect();
        expected.sort_by(|a, b| a.0.total_cmp(&b.0));
        let filter = doc! { "loc": { "$nearSphere": [at.0, at.1], "$minDistance": min, "$maxDistance": min + width } };
        let (found, _) = fixture.places(&filter, None);
        let distances = |ids: &[i32]| -> Vec<f64> {
            ids.iter().filter_map(|id| expected.iter().find(|w| w.1 == *id).map(|w| w.0)).collect()
        };
        // Documents at equal distances may come in any order.
        let ids: Vec<i32> = expected.iter().map(|w| w.1).collect();
        prop_assert_eq!(found.len(), ids.len());
        prop_assert_eq!(distances(&found), distances(&ids));
    }

    #[test]
    fn the_nearest_on_the_earth_by_squares(places in prop::collection::vec(pair(), 200), at in pair(), max in 0.01..3.2f64) {
        let from = Pair { x: at.0, y: at.1 }.to_point();
        let values: Vec<Bson> = places.iter().map(|(x, y)| Bson::from(vec![*x, *y])).collect();
        let fixture = fixture(&doc! { "loc": "2d" }, &values);
        let distance = |(x, y): (f64, f64)| Geometry::of_pair(Pair { x, y }).angle_to(&from).unwrap();
        let mut expected: Vec<f64> =
            places.iter().map(|place| distance(*place)).filter(|distance| *distance <= max).collect();
        expected.sort_by(f64::total_cmp);
        let filter = doc! { "loc": { "$nearSphere": [at.0, at.1], "$maxDistance": max } };
        let (found, _) = fixture.places(&filter, None);
        let found: Vec<f64> = found.iter().map(|id| distance(places[*id as usize])).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn the_nearest_first_in_the_plane(
        places in prop::collection::vec(pair(), 300),
        at in pair(),
        min in 0.0..20.0f64,
        width in 0.1..200.0f64,
    ) {
        let from = Pair { x: at.0, y: at.1 };
        let values: Vec<Bson> = places.iter().map(|(x, y)| Bson::from(vec![*x, *y])).collect();
        let fixture = fixture(&doc! { "loc": "2d" }, &values);
        let mut expected: Vec<f64> = places
            .iter()
            .map(|(x, y)| flat_distance(Pair { x: *x, y: *y }, from))
            .filter(|distance| (min..=min + width).contains(distance))
            .collect();
        expected.sort_by(f64::total_cmp);
        let filter = doc! { "loc": { "$near": [at.0, at.1], "$minDistance": min, "$maxDistance": min + width } };
        let (found, _) = fixture.places(&filter, None);
        let found: Vec<f64> = found
            .iter()
            .map(|id| places[*id as usize])
            .map(|(x, y)| flat_distance(Pair { x, y }, from))
            .collect();
        prop_assert_eq!(found, expected);
    }
}
