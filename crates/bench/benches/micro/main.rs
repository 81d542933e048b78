//! Micro benchmarks of the parts that every request goes through, one file per subject.
//!
//! ```text
//! cargo bench -p mayfly-bench                 all of them, in half a minute
//! cargo bench -p mayfly-bench -- matcher      those whose name contains this
//! ```
//!
//! They say how long a part takes alone, with its data in the processor's caches. What whole
//! commands cost is counted by `scripts/instructions` and measured by the load generator.

mod bson;
mod codec;
#[path = "../../examples/paths/documents.rs"]
mod documents;
mod expression;
mod keys;
mod matcher;
mod projection;
mod sort;
mod storage;
mod update;

use std::time::Duration;

use documents::{Random, item};
use mayfly_server::allocator::Counting;
use mayfly_value::DocBuf;
use mayfly_value::extjson::parse_document;

/// The allocator of the server.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How long each is measured at least: the default, a hundred samples, is over before a processor
/// is awake.
const MEASURED: Duration = Duration::from_millis(200);

fn main() {
    divan::Divan::default().min_time(MEASURED).config_with_args().main();
}

/// The document that this text means.
fn parse(text: &str) -> DocBuf {
    parse_document(text).expect("a document of a benchmark")
}

/// Items with ascending numbers.
fn items(count: u32) -> Vec<DocBuf> {
    let mut random = Random::new(1);
    (0..count).map(|number| item(number, i64::from(number), &mut random)).collect()
}
