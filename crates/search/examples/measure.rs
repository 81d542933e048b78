//! Measures of an index on one core: builds, searches, sizes. The README contains the results.
//!
//! `measure vectors DOCUMENTS DIMENSIONS QUANTIZATION [FOLDER]`, `measure turnover DOCUMENTS
//! DIMENSIONS`, `measure text DOCUMENTS`, `measure idle INDEXES`
//!
//! With a folder, the vectors are also written there, with the queries and their nearest ones, for
//! `tests/graphs/times.py`.

use std::collections::HashSet;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mayfly_search::{Change, Definition, Index, IndexKind, Query, Unlimited};
use mayfly_value::DocBuf;
use mayfly_value::bson::spec::BinarySubtype;
use mayfly_value::bson::{Binary, Document, doc};

/// Random numbers (xorshift), the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 24) as f32
    }

    /// About normally distributed.
    fn normal(&mut self) -> f32 {
        (0..6).map(|_| self.unit() - 0.5).sum::<f32>() * 1.4
    }
}

/// Vectors with 24 independent directions, as embeddings have few.
struct Vectors {
    directions: Vec<Vec<f32>>,
    random: Random,
}

impl Vectors {
    fn new(dimensions: usize) -> Vectors {
        let mut random = Random(88_172_645_463_325_252);
        let directions =
            (0..24).map(|_| (0..dimensions).map(|_| random.normal()).collect()).collect();
        Vectors { directions, random }
    }

    fn next(&mut self) -> Vec<f32> {
        let weights: Vec<f32> = self.directions.iter().map(|_| self.random.normal()).collect();
        let dimensions = self.directions[0].len();
        let mut vector: Vec<f32> = (0..dimensions).map(|_| 0.3 * self.random.normal()).collect();
        for (direction, weight) in self.directions.iter().zip(weights) {
            for (sum, part) in vector.iter_mut().zip(direction) {
                *sum += weight * part;
            }
        }
        vector
    }
}

fn binary(vector: &[f32]) -> Binary {
    let mut bytes = vec![0x27, 0];
    bytes.extend(vector.iter().flat_map(|number| number.to_le_bytes()));
    Binary { subtype: BinarySubtype::Vector, bytes }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<usize>().ok());
    match arguments.get(1).map(String::as_str) {
        Some("vectors") => vectors(
            number(2).unwrap_or(100_000),
            number(3).unwrap_or(768),
            arguments.get(4).map_or("scalar", String::as_str),
            arguments.get(5).map(Path::new),
        ),
        Some("turnover") => turnover(number(2).unwrap_or(50_000), number(3).unwrap_or(64)),
        Some("idle") => idle(number(2).unwrap_or(1_000)),
        _ => text(number(2).unwrap_or(200_000)),
    }
}

fn open(definition: &Document, kind: IndexKind) -> (tempfile::TempDir, Index) {
    let folder = tempfile::tempdir().expect("a folder");
    let definition = DocBuf::from_bson(definition);
    let definition = Definition::parse(definition.as_doc(), kind).expect("a definition");
    let index = Index::open(folder.path(), Arc::new(definition)).expect("an index");
    (folder, index)
}

/// Documents that are made at once.
const BATCH: usize = 2_000;

/// Applies documents, and commits and merges as a caller does.
fn fill(index: &Index, documents: usize, mut document: impl FnMut(usize) -> Document) {
    let (mut apply, mut commit, mut merge) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let (mut at, begun) = (0, cpu());
    while at < documents {
        // What it costs to make the documents is only in the last figure.
        let made: Vec<DocBuf> =
            (at..documents.min(at + BATCH)).map(|at| DocBuf::from_bson(&document(at))).collect();
        let start = cpu();
        for document in &made {
            let (key, document) = ((at as u64).to_be_bytes(), document.as_doc());
            let change = Change::Put { record_key: &key, version_ms: 0, document };
            at += 1;
            if index.apply(&[change]) || at == documents {
                let start = cpu();
                index.commit(at as u64).expect("a commit");
                let committed = cpu();
                commit += committed - start;
                while index.merge(&Unlimited).expect("a merge") {}
                merge += cpu() - committed;
            }
        }
        apply += cpu() - start;
    }
    let each = |time: Duration| time / documents as u32;
    println!(
        "build: {:.0} documents a second of CPU; {:.1?} for one, of it commits {:.1?}, merges {:.1?}; {:.1?} with its making",
        documents as f64 / apply.as_secs_f64(),
        each(apply),
        each(commit),
        each(merge),
        each(cpu() - begun)
    );
    let sizes = index.sizes();
    // Deletions of keys that do not exist cost what others cost, and the index stays as it is.
    let start = cpu();
    for at in 0..20_000 {
        let mut key = ((at * documents / 20_000) as u64).to_be_bytes().to_vec();
        key.push(0);
        index.apply(&[Change::Delete { record_key: &key }]);
    }
    println!("a deletion: {:.2?}", (cpu() - start) / 20_000);
    println!("{} bytes a document; {sizes:?}", sizes.file_bytes / sizes.documents.max(1));
}

/// The time that the processor worked for this thread.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// The memory of the process.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|text| text.parse::<u64>().ok());
    pages.unwrap_or(0) * 4_096
}

/// The memory of open indexes that are not used.
fn idle(count: usize) {
    let definition = doc! {"mappings": {"dynamic": true}};
    let before = resident_bytes();
    let mut indexes = Vec::new();
    for at in 0..count {
        let (folder, index) = open(&definition, IndexKind::Search);
        for key in 0..10_u8 {
            let document = DocBuf::from_bson(&doc! {"title": "a word or two", "n": at as i64});
            let document = document.as_doc();
            index.apply(&[Change::Put { record_key: &[key], version_ms: 0, document }]);
        }
        index.commit(1).expect("a commit");
        indexes.push((folder, index));
    }
    println!("{count} idle indexes: {} bytes each", (resident_bytes() - before) / count as u64);
}

/// The time of a search in the best of several rounds, and the keys that each found in the last.
fn best_time(index: &Index, queries: &[Query], size: usize) -> (Duration, Vec<Vec<Vec<u8>>>) {
    const ROUNDS: usize = 9;
    let (mut best, mut found) = (Duration::MAX, Vec::new());
    for _ in 0..ROUNDS {
        found.clear();
        let start = cpu();
        for query in queries {
            let page = index.search(query, None, size, &Unlimited).expect("a search");
            found.push(page.hits.into_iter().map(|hit| hit.record_key).collect());
        }
        best = best.min(cpu() - start);
    }
    (best / queries.len() as u32, found)
}

/// The time of a search, and the keys that each found.
fn time(index: &Index, name: &str, queries: &[Query], size: usize) -> Vec<Vec<Vec<u8>>> {
    let mut times = Vec::new();
    let mut found = Vec::new();
    let cpu_before = cpu();
    for query in queries {
        let start = Instant::now();
        let page = index.search(query, None, size, &Unlimited).expect("a search");
        times.push(start.elapsed());
        found.push(page.hits.into_iter().map(|hit| hit.record_key).collect());
    }
    times.sort_unstable();
    println!(
        "{name}: mean CPU {:.1?}, p50 {:.1?}, p99 {:.1?}",
        (cpu() - cpu_before) / queries.len() as u32,
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    );
    found
}

fn vector_definition(dimensions: usize, quantization: &str) -> Document {
    doc! {"fields": [
        {"type": "vector", "path": "v", "numDimensions": dimensions as i64, "similarity": "cosine",
            "quantization": quantization},
        {"type": "filter", "path": "n"},
    ]}
}

fn vector_document(vector: &[f32], at: usize) -> Document {
    doc! {"v": binary(vector), "n": (at % 100) as i32}
}

/// The queries for the ten vectors that are nearest to each of these.
fn nearest(index: &Index, wanted: &[Vec<f32>], options: &Document) -> Vec<Query> {
    let query = |vector: &Vec<f32>| {
        let mut stage = doc! {"path": "v", "limit": 10, "queryVector": binary(vector)};
        stage.extend(options.clone());
        let stage = DocBuf::from_bson(&stage);
        Query::parse_vector_search(stage.as_doc(), index.definition()).expect("a query")
    };
    wanted.iter().map(query).collect()
}

/// The share of the expected keys that were found.
fn recall(expected: &[Vec<Vec<u8>>], found: &[Vec<Vec<u8>>]) -> f64 {
    let pairs = expected.iter().zip(found);
    let hits: usize = pairs.map(|(e, f)| e.iter().filter(|key| f.contains(key)).count()).sum();
    hits as f64 / expected.iter().map(Vec::len).sum::<usize>() as f64
}

fn write(folder: &Path, name: &str, numbers: impl Iterator<Item = [u8; 4]>) {
    let mut file = BufWriter::new(std::fs::File::create(folder.join(name)).expect("a file"));
    numbers.for_each(|number| file.write_all(&number).expect("a written file"));
}

fn vectors(documents: usize, dimensions: usize, quantization: &str, folder: Option<&Path>) {
    let definition = vector_definition(dimensions, quantization);
    let (_folder, index) = open(&definition, IndexKind::VectorSearch);
    let mut vectors = Vectors::new(dimensions);
    println!("{documents} documents, {dimensions} dimensions, quantization {quantization}");
    let mut base = folder.map(|folder| {
        BufWriter::new(std::fs::File::create(folder.join("base.f32")).expect("a file"))
    });
    fill(&index, documents, |at| {
        let vector = vectors.next();
        if let Some(base) = &mut base {
            let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
            base.write_all(&bytes).expect("a written file");
        }
        vector_document(&vector, at)
    });
    drop(base);
    let wanted: Vec<Vec<f32>> = (0..200).map(|_| vectors.next()).collect();
    for filter in [doc! {}, doc! {"n": 5}, doc! {"n": {"$lt": 50}}] {
        println!("filter {filter}");
        let exact = nearest(&index, &wanted, &doc! {"exact": true, "filter": filter.clone()});
        let expected = time(&index, "  exact", &exact, 10);
        if let (Some(folder), true) = (folder, filter.is_empty()) {
            write(
                folder,
                "queries.f32",
                wanted.iter().flatten().map(|number| number.to_le_bytes()),
            );
            // A key is the number of its vector, of 64 bits with the highest byte first.
            let keys = expected.iter().flatten();
            let low = keys.map(|key| *key.last_chunk::<4>().expect("a key"));
            write(folder, "exact.u32", low.map(|[a, b, c, d]| [d, c, b, a]));
        }
        for candidates in [30, 40, 50, 60, 80, 100, 150, 200, 400] {
            let options = doc! {"numCandidates": candidates, "filter": filter.clone()};
            let queries = nearest(&index, &wanted, &options);
            let (best, found) = best_time(&index, &queries, 10);
            let recall = recall(&expected, &found);
            println!("  {candidates} candidates: best CPU {best:.1?}, recall@10 {recall:.4}");
        }
    }
}

/// The recall of an index whose documents were replaced five times, the oldest ones first, and that
/// of a new index with the same documents.
fn turnover(documents: usize, dimensions: usize) {
    const TIMES: usize = 5;
    let definition = vector_definition(dimensions, "scalar");
    let mut vectors = Vectors::new(dimensions);
    let (_old_folder, old) = open(&definition, IndexKind::VectorSearch);
    let (_new_folder, new) = open(&definition, IndexKind::VectorSearch);
    let start = cpu();
    for at in 0..(1 + TIMES) * documents {
        let vector = DocBuf::from_bson(&vector_document(&vectors.next(), at));
        let (key, document) = ((at as u64).to_be_bytes(), vector.as_doc());
        let put = Change::Put { record_key: &key, version_ms: 0, document };
        let expired = (at.saturating_sub(documents) as u64).to_be_bytes();
        let is_full = match at < documents {
            true => old.apply(&[put]),
            false => old.apply(&[Change::Delete { record_key: &expired }, put]),
        };
        if at >= TIMES * documents && new.apply(&[put]) {
            commit(&new, at);
        }
        if is_full {
            commit(&old, at);
        }
    }
    [&old, &new].into_iter().for_each(|index| commit(index, usize::MAX));
    println!("{documents} x {dimensions}, replaced {TIMES} times, and new: {:.1?}", cpu() - start);
    println!("{:?}", old.sizes());
    let wanted: Vec<Vec<f32>> = (0..200).map(|_| vectors.next()).collect();
    for candidates in [30, 50, 100, 200] {
        for (name, index) in [("replaced", &old), ("new", &new)] {
            let exact = nearest(index, &wanted, &doc! {"exact": true});
            let expected = time(index, "  exact", &exact, 10);
            let queries = nearest(index, &wanted, &doc! {"numCandidates": candidates});
            let found = time(index, &format!("  {candidates} candidates, {name}"), &queries, 10);
            println!("    recall@10 {:.4}", recall(&expected, &found));
            let live: HashSet<&Vec<u8>> = found.iter().flatten().collect();
            let first = ((TIMES * documents) as u64).to_be_bytes();
            assert!(live.iter().all(|key| key.as_slice() >= &first[..]), "an expired document");
        }
    }
}

fn commit(index: &Index, position: usize) {
    index.commit(position as u64).expect("a commit");
    while index.merge(&Unlimited).expect("a merge") {}
}

fn text(documents: usize) {
    let definition = doc! {"mappings": {"fields": {
    "t": {"type": "string"}, "n": {"type": "number"}}}};
    let (_folder, index) = open(&definition, IndexKind::Search);
    let mut random = Random(88_172_645_463_325_252);
    // Words by Zipf's law: the word of rank r about once in r.
    let mut words = |count: usize| {
        let word = |_| format!("w{}", (20_000_f64.powf(f64::from(random.unit()))) as u32);
        (0..count).map(word).collect::<Vec<_>>().join(" ")
    };
    println!("{documents} documents of 60 words");
    fill(&index, documents, |at| doc! {"t": words(60), "n": at as i64});
    let queries = |criteria: &str, filter: Option<i64>| -> Vec<Query> {
        (10..210)
            .map(|rank| {
                let query = format!("w{rank} w{}", rank * 7);
                let text = doc! {"text": {"query": query, "path": "t", "matchCriteria": criteria}};
                let stage = match filter {
                    Some(least) => doc! {"compound": {"must": text, "filter":
                    {"range": {"path": "n", "gte": least}}}},
                    None => text,
                };
                let stage = DocBuf::from_bson(&stage);
                Query::parse_search(stage.as_doc(), index.definition()).expect("a query")
            })
            .collect()
    };
    time(&index, "best 10 of a OR b", &queries("any", None), 10);
    time(&index, "best 10 of a AND b", &queries("all", None), 10);
    time(
        &index,
        "best 10 of a OR b, half of the values",
        &queries("any", Some(documents as i64 / 2)),
        10,
    );
    let others = |stage: Document| -> Vec<Query> {
        let stage = DocBuf::from_bson(&stage);
        let query = || Query::parse_search(stage.as_doc(), index.definition()).expect("a query");
        (0..20).map(|_| query()).collect()
    };
    let all = doc! {"exists": {"path": "n"}};
    for order in [1, -1] {
        let sorted = doc! {"exists": {"path": "n"}, "sort": {"n": order}};
        time(&index, &format!("first 10 of all, sorted by {order}"), &others(sorted), 10);
    }
    let fuzzy = doc! {"text": {"query": "w1234", "path": "t", "fuzzy": {}}};
    time(&index, "best 10 of near terms", &others(fuzzy), 10);
    let regex = doc! {"regex": {"query": "w1[0-9]+4", "path": "t", "allowAnalyzedField": true}};
    time(&index, "best 10 of a regular expression", &others(regex), 10);
    let facet = doc! {"facet": {"operator": all, "facets": {"n": {"type": "number", "path": "n",
    "boundaries": [0, documents as i64 / 2, documents as i64]}}}};
    let start = cpu();
    for query in others(facet) {
        index.metadata(&query, &Unlimited).expect("metadata");
    }
    println!("two buckets of all: {:.1?}", (cpu() - start) / 20);
    let one = queries("any", None);
    let mut times = Vec::new();
    for at in 0..500 {
        let document = DocBuf::from_bson(&doc! {"t": words(60), "n": at});
        let key = (at as u64 + (1 << 40)).to_be_bytes();
        let start = Instant::now();
        index.apply(&[Change::Put {
            record_key: &key,
            version_ms: 0,
            document: document.as_doc(),
        }]);
        index.search(&one[at as usize % one.len()], None, 10, &Unlimited).expect("a search");
        times.push(start.elapsed());
    }
    times.sort_unstable();
    println!("insert, then search: p50 {:.1?}, p99 {:.1?}", times[250], times[495]);
}
