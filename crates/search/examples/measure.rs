//! Measures of an index on one core: builds, searches, sizes. The README contains the results.
//!
//! `measure vectors DOCUMENTS DIMENSIONS QUANTIZATION`, `measure text DOCUMENTS`, `measure idle
//! INDEXES`

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
        ),
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

/// Applies documents, and commits and merges as a caller does.
fn fill(index: &Index, documents: usize, mut document: impl FnMut(usize) -> Document) {
    let cpu_before = cpu();
    let (mut apply, mut commit, mut merge) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for at in 0..documents {
        let key = (at as u64).to_be_bytes();
        let document = DocBuf::from_bson(&document(at));
        let change = Change::Put { record_key: &key, version_ms: 0, document: document.as_doc() };
        let start = Instant::now();
        let is_full = index.apply(&[change]);
        apply += start.elapsed();
        if is_full || at + 1 == documents {
            let start = Instant::now();
            index.commit(at as u64).expect("a commit");
            commit += start.elapsed();
            let start = Instant::now();
            while index.merge(&Unlimited).expect("a merge") {}
            merge += start.elapsed();
        }
    }
    let all = cpu() - cpu_before;
    println!(
        "build: {:.0} documents a second of CPU; apply {apply:.1?}, commits {commit:.1?}, merges {merge:.1?}",
        documents as f64 / all.as_secs_f64()
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

fn vectors(documents: usize, dimensions: usize, quantization: &str) {
    let definition = doc! {"fields": [
        {"type": "vector", "path": "v", "numDimensions": dimensions as i64, "similarity": "cosine",
            "quantization": quantization},
        {"type": "filter", "path": "n"},
    ]};
    let (_folder, index) = open(&definition, IndexKind::VectorSearch);
    let mut vectors = Vectors::new(dimensions);
    println!("{documents} documents, {dimensions} dimensions, quantization {quantization}");
    fill(&index, documents, |at| doc! {"v": binary(&vectors.next()), "n": (at % 100) as i32});
    let wanted: Vec<Vec<f32>> = (0..200).map(|_| vectors.next()).collect();
    let queries = |options: Document| -> Vec<Query> {
        let query = |vector: &Vec<f32>| {
            let mut stage = doc! {"path": "v", "limit": 10, "queryVector": binary(vector)};
            stage.extend(options.clone());
            let stage = DocBuf::from_bson(&stage);
            Query::parse_vector_search(stage.as_doc(), index.definition()).expect("a query")
        };
        wanted.iter().map(query).collect()
    };
    for filter in [doc! {}, doc! {"n": 5}, doc! {"n": {"$lt": 50}}] {
        println!("filter {filter}");
        let exact = queries(doc! {"exact": true, "filter": filter.clone()});
        let expected = time(&index, "  exact", &exact[..20], 10);
        for candidates in [10, 50, 100, 200, 400] {
            let options = doc! {"numCandidates": candidates, "filter": filter.clone()};
            let name = format!("  {candidates} candidates");
            let found = time(&index, &name, &queries(options), 10);
            let pairs = expected.iter().zip(&found);
            let hits: usize =
                pairs.map(|(e, f)| e.iter().filter(|key| f.contains(key)).count()).sum();
            let all: usize = expected.iter().map(Vec::len).sum();
            println!("    recall@10 {:.4}", hits as f64 / all as f64);
        }
    }
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
