//! A search for the best hits leaves out documents whose scores cannot be great enough. It must
//! find the same hits as a search for all documents.

use super::*;

/// Documents of which few have the field, so that the bounds of the segment are those of another
/// average length. There are short texts with a word, and long texts with many occurrences of it.
fn filled(folder: &Path, norms: &str) -> Index {
    let document = doc! {"mappings": {"fields": {"t": {"type": "string", "norms": norms}}}};
    let document = DocBuf::from_bson(&document);
    let definition = Definition::parse(document.as_doc(), IndexKind::Search).unwrap();
    let index = Index::open(folder, Arc::new(definition)).unwrap();
    let mut state = 1_u32;
    let mut random = |limit: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % limit
    };
    for number in 0..12_000_u32 {
        let mut document = doc! {"n": number};
        if number % 12 == 0 {
            let length = if random(4) == 0 { 60 + random(200) } else { 1 + random(4) };
            let words = (0..length).map(|_| match random(5) {
                0 => "a",
                1 => "b",
                _ => "c",
            });
            document.insert("t", format!("a {}", words.collect::<Vec<_>>().join(" ")));
        }
        put(&index, &number.to_be_bytes(), &document);
        // Segments of different sizes have different averages.
        if number == 9_000 {
            index.commit(1).unwrap();
        }
    }
    index
}

#[test]
fn the_best_hits_are_the_first_of_all() {
    for norms in ["include", "omit"] {
        let folder = tempfile::tempdir().unwrap();
        let index = filled(folder.path(), norms);
        for (words, criteria) in [("a b", "any"), ("a b", "all"), ("a", "any"), ("a b c", "any")] {
            let stage = doc! {"text": {"path": "t", "query": words, "matchCriteria": criteria}};
            let query = super::text::search_query(&index, &stage);
            let hits = |size: usize| -> Vec<(Vec<u8>, f32)> {
                let page = index.search(&query, None, size, &Unlimited).unwrap();
                page.hits.into_iter().map(|hit| (hit.record_key, hit.score)).collect()
            };
            let all = hits(2_000);
            assert!(all.len() > 500);
            for size in [1, 10, 50] {
                assert_eq!(hits(size), all[..size], "{norms} {words} {criteria} {size}");
            }
        }
    }
}
