//! The conformance suite on PostgreSQL, and tests of an engine across a network.

mod encrypted;
mod faults;
mod loads;
mod opening;
mod proxy;
mod secondary;
mod standby;
mod store;
mod synchronous;

use mayfly_kv::{ChaosEngine, ChaosOptions, conformance};

#[test]
fn postgres_conforms() {
    conformance::run(&|| store::open());
}

#[test]
fn retries_survive_chaos() {
    let options = ChaosOptions {
        seed: 1,
        conflict_probability: 0.1,
        unknown_commit_probability: 0.1,
        short_pages: true,
        late_inserts: true,
        ..ChaosOptions::default()
    };
    conformance::transfers(&ChaosEngine::new(store::open(), options));
}

#[test]
fn it_conforms_under_an_engine_with_narrow_limits() {
    let limits = Some(mayfly_kv::chaos::NARROW_LIMITS);
    let options = ChaosOptions { limits, ..ChaosOptions::default() };
    conformance::run(&|| std::sync::Arc::new(ChaosEngine::new(store::open(), options)));
}
