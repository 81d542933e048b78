//! Micro benchmarks of the parts that every request goes through, one file per subject.
//!
//! ```text
//! cargo bench -p mayfly-bench                 all of them, in half a minute
//! cargo bench -p mayfly-bench -- matcher      those whose name contains this
//! ```
//!
//! They measure a part alone, with its data in the processor's caches. For whole commands,
//! `scripts/instructions` counts instructions, and the load generator measures time.

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

/// The shortest time for which each is measured. The default, a hundred samples, ends before the
/// processor has reached its full clock rate.
const MEASURED: Duration = Duration::from_millis(200);

fn main() {
    divan::Divan::default().min_time(MEASURED).config_with_args().main();
}

/// Parses a document in shell syntax.
fn parse(text: &str) -> DocBuf {
    parse_document(text).expect("a document of a benchmark")
}

/// Items with ascending numbers.
fn items(count: u32) -> Vec<DocBuf> {
    let mut random = Random::new(1);
    (0..count).map(|number| item(number, i64::from(number), &mut random)).collect()
}
