//! Recall of graphs, with and without a filter, and graphs from damaged bytes.

use proptest::prelude::*;

use super::*;

/// Points on a plane and a half; the score falls with the distance.
fn points(count: usize) -> Vec<[f32; 3]> {
    let number = |at: usize, by: u64| {
        let bits =
            (at as u64 + 1).wrapping_mul(by) ^ (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (bits >> 40) as f32 / (1 << 24) as f32
    };
    (0..count)
        .map(|at| {
            [
                number(at, 0xBF58_476D_1CE4_E5B9),
                number(at, 0x94D0_49BB_1331_11EB),
                number(at, 77) / 4.0,
            ]
        })
        .collect()
}

fn score(left: &[f32; 3], right: &[f32; 3]) -> f32 {
    let square: f32 = left.iter().zip(right).map(|(l, r)| (l - r) * (l - r)).sum();
    1.0 / (1.0 + square)
}

fn graph(points: &[[f32; 3]], edges: usize) -> (Vec<u8>, Vec<u8>) {
    let options = GraphOptions { edges, candidates: 60 };
    let pair = |left: u32, right: u32| score(&points[left as usize], &points[right as usize]);
    let mut builder = GraphBuilder::new(options, points.len(), pair, |_| {});
    points.iter().for_each(|_| builder.add());
    builder.finish()
}

#[test]
fn a_graph_finds_the_nearest() {
    let points = points(3_000);
    let (links, upper) = graph(&points, 8);
    let graph = Graph::read(&links, &upper, points.len()).unwrap();
    for filter in [1, 2, 7] {
        let (mut hits, mut all) = (0, 0);
        for wanted in points.iter().step_by(100) {
            let near = [wanted[0] + 0.01, wanted[1], wanted[2]];
            let accepts = |place: usize| place.is_multiple_of(filter);
            let mut found = graph
                .search(40, |place| score(&points[place], &near), |_| {}, accepts, || Ok(()))
                .unwrap();
            assert!(found.iter().all(|place| accepts(*place)));
            let mut expected: Vec<usize> =
                (0..points.len()).filter(|place| accepts(*place)).collect();
            let rank = |place: &usize| std::cmp::Reverse(score(&points[*place], &near).to_bits());
            expected.sort_by_key(rank);
            found.sort_by_key(rank);
            all += 10;
            hits += expected[..10].iter().filter(|place| found[..10].contains(place)).count();
        }
        assert!(hits * 100 >= all * 97, "{hits} of {all}, every {filter}th");
    }
}

/// A link that is added to a full list is compared with few others, so the rules of the list are
/// checked here as a whole.
#[test]
fn full_lists_keep_their_rules() {
    const EDGES: usize = 4;
    let points = points(1_000);
    let options = GraphOptions { edges: EDGES, candidates: 60 };
    let pair = |left: u32, right: u32| score(&points[left as usize], &points[right as usize]);
    let mut builder = GraphBuilder::new(options, points.len(), pair, |_| {});
    points.iter().for_each(|_| builder.add());
    let mut full = 0;
    for place in 0..points.len() as u32 {
        let list = builder.list(place, 0);
        let mut distinct = list.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), list.len(), "{list:?}");
        assert!(!list.contains(&place));
        let count = usize::from(builder.chosen[place as usize]);
        if count == 0 {
            continue;
        }
        assert_eq!(list.len(), 2 * EDGES);
        full += 1;
        let scored: Vec<Scored> =
            list.iter().map(|other| Scored::new(pair(place, *other), *other)).collect();
        let (chosen, others) = scored.split_at(count);
        assert!(chosen.is_sorted_by(|left, right| left > right));
        assert!(others.is_sorted_by(|left, right| left > right));
        for (at, later) in chosen.iter().enumerate() {
            assert!(!chosen[..at].iter().any(|other| builder.is_reached(*later, *other)));
        }
    }
    assert!(full > points.len() / 4, "{full} full lists");
}

#[test]
fn the_smallest_graphs() {
    for count in [1, 2, 3] {
        let points = points(count);
        let (links, upper) = graph(&points, 2);
        let graph = Graph::read(&links, &upper, count).unwrap();
        let found =
            graph.search(10, |place| points[place][0], |_| {}, |_| true, || Ok(())).unwrap();
        assert_eq!(found.len(), count);
        assert!(Graph::read(&links, &upper, count + 1).is_none());
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_search_panic(changes in prop::collection::vec((any::<u16>(), any::<u8>(), any::<bool>()), 1..8)) {
        let points = points(60);
        let (mut links, mut upper) = graph(&points, 4);
        for (at, value, is_upper) in changes {
            let bytes = if is_upper { &mut upper } else { &mut links };
            let len = bytes.len();
            bytes[usize::from(at) % len] = value;
        }
        if let Some(graph) = Graph::read(&links, &upper, points.len()) {
            let _ = graph.search(10, |place| points[place][0], |_| {}, |_| true, || Ok(()));
        }
    }
}
