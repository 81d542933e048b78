//! Searches through the graphs of segments: recall, filters, deletions, hidden documents.

use super::*;
use crate::vector::ElementType;

const DOCUMENTS: usize = 2_500;

fn vector(at: usize) -> Vec<f64> {
    let number = |by: u64| {
        let bits =
            (at as u64 + 1).wrapping_mul(by) ^ (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (bits >> 40) as f64 / f64::from(1 << 24) - 0.5
    };
    let factors = [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB, 0xD6E8_FEB8_6659_FD93];
    factors.map(number).to_vec()
}

fn key(at: usize) -> [u8; 4] {
    (at as u32).to_be_bytes()
}

fn filled(folder: &Path, quantization: &str) -> Index {
    let mut index = Index::open(folder, definition("cosine", quantization)).unwrap();
    index.graph_from = 500;
    for at in 0..DOCUMENTS {
        put(&index, &key(at), &doc! {"v": vector(at), "a": (at % 100) as i32});
        if at % 700 == 699 {
            index.commit(at as u64).unwrap();
        }
    }
    index.commit(DOCUMENTS as u64).unwrap();
    merge_all(&index);
    for at in (0..DOCUMENTS).step_by(10) {
        index.apply(&[Change::Delete { record_key: &key(at) }]);
    }
    let parts = index.state.read().parts.clone();
    assert_eq!(parts.len(), 1);
    let field = &index.definition.vectors[0];
    let vectors = parts[0].segment.vectors(0, field, ElementType::Float).unwrap();
    assert!(vectors.graph.is_some());
    index
}

/// Documents whose key is divisible by 7 are hidden.
struct Hidden;

impl Control for Hidden {
    fn shared_check(&self) -> SharedCheck {
        Unlimited.shared_check()
    }

    fn check(&self) -> mayfly_base::Result<()> {
        Ok(())
    }

    fn is_hidden(&self, record_key: &[u8]) -> bool {
        u32::from_be_bytes(record_key.try_into().unwrap()).is_multiple_of(7)
    }
}

#[test]
fn graphs_find_what_scans_find() {
    for quantization in ["none", "scalar"] {
        let folder = tempfile::tempdir().unwrap();
        let index = filled(folder.path(), quantization);
        for filter in [doc! {}, doc! {"a": {"$lt": 80}}, doc! {"a": 5}] {
            let (mut found, mut all) = (0, 0);
            for at in 0..40 {
                let vector = vector(at + DOCUMENTS);
                let search = |options: Document| {
                    let mut stage = doc! {"queryVector": &vector, "filter": &filter, "limit": 10};
                    stage.extend(options);
                    let query = query(&index, stage);
                    index.search(&query, None, 10, &Hidden).unwrap().hits
                };
                let expected = search(doc! {"exact": true});
                let hits = search(doc! {"numCandidates": 20});
                assert_eq!(hits.len(), expected.len());
                for hit in &hits {
                    let at = u32::from_be_bytes(hit.record_key.as_slice().try_into().unwrap());
                    assert!(at % 10 != 0 && at % 7 != 0, "{at} is deleted or hidden");
                }
                all += expected.len();
                found += expected.iter().filter(|hit| hits.contains(hit)).count();
            }
            assert!(found * 100 >= all * 97, "{found} of {all}, {quantization}, {filter}");
        }
    }
}

/// Without quantization, codes choose candidates only where they find the nearest vectors.
#[test]
fn codes_without_quantization_are_faithful() {
    let near = |at: usize| vector(at).iter().map(|part| 1_000.0 + part / 8.0).collect::<Vec<f64>>();
    for is_far in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut index = Index::open(folder.path(), definition("euclidean", "none")).unwrap();
        index.graph_from = 1_000;
        let vector = |at: usize| if is_far { near(at) } else { vector(at) };
        for at in 0..1_200 {
            put(&index, &key(at), &doc! {"v": vector(at)});
        }
        index.commit(1).unwrap();
        merge_all(&index);
        let part = index.state.read().parts[0].clone();
        let field = &index.definition.vectors[0];
        let vectors = part.segment.vectors(0, field, ElementType::Float).unwrap();
        assert_eq!((vectors.codes.is_some(), vectors.graph.is_some()), (!is_far, true));
        let (mut found, mut all) = (0, 0);
        for at in 2_000..2_040 {
            let search = |options: Document| {
                let mut stage = doc! {"queryVector": vector(at), "limit": 10};
                stage.extend(options);
                index.search(&query(&index, stage), None, 10, &Unlimited).unwrap().hits
            };
            let expected = search(doc! {"exact": true});
            let hits = search(doc! {"numCandidates": 20});
            all += 10;
            found += expected.iter().filter(|hit| hits.contains(hit)).count();
        }
        assert!(found * 100 >= all * 97, "{found} of {all}");
    }
}

#[test]
fn equal_vectors_do_not_cut_a_graph_into_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let mut index = Index::open(folder.path(), definition("euclidean", "none")).unwrap();
    index.graph_from = 100;
    for at in 0..1_500 {
        let place = if at % 3 == 0 { at } else { at % 2 };
        put(&index, &key(at), &doc! {"v": vector(place)});
    }
    index.commit(1).unwrap();
    merge_all(&index);
    for at in (300..1_500).step_by(30) {
        let near = query(&index, doc! {"queryVector": vector(at), "numCandidates": 10, "limit": 1});
        let hits = index.search(&near, None, 1, &Unlimited).unwrap().hits;
        assert_eq!(hits[0].record_key, key(at));
    }
}

/// Graphs are used again by merges, also when some of their documents were deleted.
#[test]
fn recall_stays_while_documents_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let mut index = Index::open(folder.path(), definition("euclidean", "scalar")).unwrap();
    index.graph_from = 100;
    let live = 600;
    for at in 0..live * 5 {
        put(&index, &key(at), &doc! {"v": vector(at), "a": 1});
        if at >= live {
            index.apply(&[Change::Delete { record_key: &key(at - live) }]);
        }
        if at % 150 == 149 {
            index.commit(at as u64).unwrap();
            merge_all(&index);
        }
    }
    index.commit(1).unwrap();
    assert_eq!(index.sizes().documents, live as u64);
    let (mut found, mut all) = (0, 0);
    for at in 0..60 {
        let vector = vector(at * 500 + 7);
        let search = |options: Document| {
            let mut stage = doc! {"queryVector": &vector, "limit": 10};
            stage.extend(options);
            index.search(&query(&index, stage), None, 10, &Unlimited).unwrap().hits
        };
        let expected = search(doc! {"exact": true});
        let hits = search(doc! {"numCandidates": 10});
        all += expected.len();
        found += expected.iter().filter(|hit| hits.contains(hit)).count();
    }
    assert!(found * 100 >= all * 97, "{found} of {all}");
}

/// Vectors of bytes have a graph, too; vectors of bits are scanned.
#[test]
fn bytes_and_bits_are_found() {
    use mayfly_value::bson::Binary;
    use mayfly_value::bson::spec::BinarySubtype;
    let document = doc! {"fields": [
    {"type": "vector", "path": "v", "numDimensions": 16, "similarity": "euclidean"}]};
    let document = DocBuf::from_bson(&document);
    let definition = Definition::parse(document.as_doc(), IndexKind::VectorSearch).unwrap();
    let value = |at: usize, kind: u8| {
        let parts = [vector(at), vector(at * 3 + 1), vector(at * 5 + 2), vector(at * 7 + 3)];
        let mut parts: Vec<i8> = parts.iter().flatten().map(|part| (part * 250.0) as i8).collect();
        parts.resize(if kind == 3 { 16 } else { 2 }, 0);
        let bytes = [kind, 0].into_iter().chain(parts.into_iter().map(|part| part as u8));
        Binary { subtype: BinarySubtype::Vector, bytes: bytes.collect() }
    };
    for kind in [3, 0x10] {
        let folder = tempfile::tempdir().unwrap();
        let mut index = Index::open(folder.path(), Arc::new(definition.clone())).unwrap();
        index.graph_from = 500;
        for at in 0..900 {
            put(&index, &key(at), &doc! {"v": value(at, kind)});
        }
        index.commit(1).unwrap();
        merge_all(&index);
        let part = index.state.read().parts[0].clone();
        let element = if kind == 3 { ElementType::Byte } else { ElementType::Bit };
        let vectors = part.segment.vectors(0, &index.definition.vectors[0], element).unwrap();
        assert_eq!((vectors.len(), vectors.graph.is_some()), (900, kind == 3));
        let (mut found, mut all) = (0, 0);
        for at in 1_000..1_040 {
            let search = |options: Document| {
                let mut stage = doc! {"queryVector": value(at, kind), "limit": 10};
                stage.extend(options);
                index.search(&query(&index, stage), None, 10, &Unlimited).unwrap().hits
            };
            let expected = search(doc! {"exact": true});
            let hits = search(doc! {"numCandidates": 20});
            all += 10;
            found += expected.iter().filter(|hit| hits.contains(hit)).count();
        }
        assert!(found * 100 >= all * 95, "{found} of {all}");
    }
}
