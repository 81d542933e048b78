//! Index filters and query settings change the plan of a query, never its results: random queries
//! over random documents have the same results, whichever indexes are allowed.

use mayfly_testkit::{Fixture, memory};
use proptest::prelude::*;
use proptest::sample::subsequence;

use crate::properties::{agree, document, filter, load, runner, sort};

/// Names of the indexes that `load` creates, the index on `_id`, and one that does not exist.
const NAMES: [&str; 9] = ["1", "2", "3", "4", "5", "6", "7", "_id_", "none"];

/// Allows these indexes for a query, with and without its sort, by index filters.
fn filter_indexes(fixture: &Fixture, filter: &str, sort: &str, names: &[&str]) {
    let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    let names = names.join(", ");
    for order in ["{}", sort] {
        fixture.run(
            "test",
            &format!(
                "{{planCacheSetFilter: 'indexed', query: {filter}, sort: {order}, indexes: [{names}]}}"
            ),
        );
    }
}

/// Allows these indexes for a query, by query settings.
fn hint_indexes(fixture: &Fixture, filter: &str, sort: &str, names: &[&str]) {
    let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    let hints =
        format!("{{ns: {{db: 'test', coll: 'indexed'}}, allowedIndexes: [{}]}}", names.join(", "));
    for more in ["", ", skip: 1, limit: 3"] {
        fixture.run(
            "admin",
            &format!(
                "{{setQuerySettings: {{find: 'indexed', filter: {filter}, sort: {sort}{more}, $db: 'test'}}, \
                 settings: {{indexHints: {hints}}}}}"
            ),
        );
    }
}

#[test]
fn queries_answer_the_same_with_whichever_indexes_are_allowed() {
    let documents = prop::collection::vec(document(), 1..25);
    let names = subsequence(NAMES.to_vec(), 1..4);
    let queries = prop::collection::vec((filter(), sort(), names), 12);
    let case = (documents, queries, any::<bool>());
    let result = runner(80).run(&case, |(documents, queries, indexes_first)| {
        let fixture = Fixture::new(memory());
        load(&fixture, &documents, indexes_first);
        for (filter, sort, names) in &queries {
            filter_indexes(&fixture, filter, sort, names);
            agree(&fixture, filter, sort)?;
            hint_indexes(&fixture, filter, sort, &names[..1]);
            agree(&fixture, filter, sort)?;
        }
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}
