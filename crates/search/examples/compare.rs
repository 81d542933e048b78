//! The best hits of two words among many short documents: this crate, and tantivy as it is.
//!
//! `compare FOLDER DOCUMENTS` writes the documents to `FOLDER/documents.txt`, which the programs in
//! `tests/lucene` read to measure Lucene and SQLite. The README contains the results.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mayfly_search::{Change, Definition, Index, IndexKind, Query, Unlimited};
use mayfly_value::DocBuf;
use mayfly_value::bson::doc;
use tantivy::collector::TopDocs;
use tantivy::query::{BooleanQuery, TermQuery};
use tantivy::schema::{IndexRecordOption, Schema, TEXT};

/// The allocator of the server, without its counters.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The fewest words of a document, and the number of lengths.
const WORDS: (usize, usize) = (6, 13);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let folder = arguments.get(1).map_or("/tmp/compare", String::as_str);
    let count = arguments.get(2).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    std::fs::create_dir_all(folder).expect("a folder");
    let documents = documents(count);
    let mut file = std::fs::File::create(Path::new(folder).join("documents.txt")).expect("a file");
    file.write_all(documents.join("\n").as_bytes()).expect("a written file");
    ours(&documents);
    plain_tantivy(&documents);
}

/// Documents of words by Zipf's law: the word of rank r about once in r.
fn documents(count: usize) -> Vec<String> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut unit = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut word = || format!("w{}", 20_000_f64.powf(unit()) as u32);
    let length = |at: usize| WORDS.0 + at % WORDS.1;
    let text = |at: usize| (0..length(at)).map(|_| word()).collect::<Vec<_>>().join(" ");
    (0..count).map(text).collect()
}

/// The two words of each query.
fn pairs() -> Vec<[String; 2]> {
    (10..210).map(|rank| [format!("w{rank}"), format!("w{}", rank * 7)]).collect()
}

/// The time that the processor worked for this thread.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// The time that the processor worked for all threads of the process, in units of 10 ms.
fn process_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program is in parentheses; the times are the 12th and 13th field after it.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>();
    Duration::from_millis(10 * ticks)
}

fn print_rate(name: &str, documents: usize, time: Duration) {
    let rate = documents as f64 / time.as_secs_f64();
    println!("{name}: {rate:.0} documents a second of one core");
}

/// The time of a query in the best of several rounds. The system counts the time of a thread in
/// steps of some milliseconds, so a round is long.
fn time(name: &str, queries: usize, mut run: impl FnMut(usize) -> f32) {
    const TIMES: usize = 25;
    let mut best = Duration::MAX;
    let mut sum = 0.0;
    for _ in 0..7 {
        let start = cpu();
        for _ in 0..TIMES {
            sum = (0..queries).map(&mut run).sum::<f32>();
        }
        best = best.min(cpu() - start);
    }
    let one = best / (queries * TIMES) as u32;
    println!("{name}: {one:.1?}; the sum of the best scores is {sum:.3}");
}

fn ours(documents: &[String]) {
    let folder = tempfile::tempdir().expect("a folder");
    let definition = doc! {"mappings": {"fields": {"t": {"type": "string"}}}};
    let definition = DocBuf::from_bson(&definition);
    let definition = Definition::parse(definition.as_doc(), IndexKind::Search);
    let definition = Arc::new(definition.expect("a definition"));
    let index = Index::open(folder.path(), definition).expect("an index");
    let start = process_cpu();
    for (at, text) in documents.iter().enumerate() {
        let document = DocBuf::from_bson(&doc! {"t": text.as_str()});
        let (record_key, document) = (&(at as u64).to_be_bytes()[..], document.as_doc());
        if index.apply(&[Change::Put { record_key, version_ms: 0, document }]) {
            index.commit(at as u64).expect("a commit");
            while index.merge(&Unlimited).expect("a merge") {}
        }
    }
    index.commit(documents.len() as u64).expect("a commit");
    while index.merge(&Unlimited).expect("a merge") {}
    print_rate("this crate", documents.len(), process_cpu() - start);
    println!("{} segments", index.sizes().segments);
    for (name, criteria) in [("a OR b", "any"), ("a AND b", "all")] {
        let query = |[a, b]: [String; 2]| {
            let text = doc! {"path": "t", "query": format!("{a} {b}"), "matchCriteria": criteria};
            let stage = DocBuf::from_bson(&doc! {"text": text});
            Query::parse_search(stage.as_doc(), index.definition()).expect("a query")
        };
        let queries: Vec<Query> = pairs().into_iter().map(query).collect();
        time(&format!("this crate, {name}"), queries.len(), |at| {
            let page = index.search(&queries[at], None, 10, &Unlimited).expect("a search");
            page.hits.first().map_or(0.0, |hit| hit.score)
        });
    }
}

fn plain_tantivy(documents: &[String]) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut schema = Schema::builder();
    let field = schema.add_text_field("t", TEXT);
    let index = tantivy::Index::create_in_dir(folder.path(), schema.build()).expect("an index");
    let mut writer = index.writer_with_num_threads(1, 256 << 20).expect("a writer");
    let start = process_cpu();
    for text in documents {
        let mut document = tantivy::TantivyDocument::new();
        document.add_text(field, text);
        writer.add_document(document).expect("a document");
    }
    writer.commit().expect("a commit");
    let segments = index.searchable_segment_ids().expect("segments");
    if segments.len() > 1 {
        writer.merge(&segments).wait().expect("a merge");
    }
    writer.wait_merging_threads().expect("merges");
    print_rate("tantivy", documents.len(), process_cpu() - start);
    let searcher = index.reader().expect("a reader").searcher();
    for (name, is_all) in [("a OR b", false), ("a AND b", true)] {
        let term = |text: &str| -> Box<dyn tantivy::query::Query> {
            let term = tantivy::Term::from_field_text(field, text);
            Box::new(TermQuery::new(term, IndexRecordOption::WithFreqs))
        };
        let query = |pair: [String; 2]| {
            let terms = pair.iter().map(|text| term(text)).collect();
            if is_all { BooleanQuery::intersection(terms) } else { BooleanQuery::union(terms) }
        };
        let queries: Vec<BooleanQuery> = pairs().into_iter().map(query).collect();
        let segments = searcher.segment_readers().len();
        time(&format!("tantivy, {segments} segments, {name}"), queries.len(), |at| {
            let best = TopDocs::with_limit(10).order_by_score();
            let hits = searcher.search(&queries[at], &best).expect("a search");
            hits.first().map_or(0.0, |hit| hit.0)
        });
    }
}
