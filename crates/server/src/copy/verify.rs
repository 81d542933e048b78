//! The comparison of source and target: a table, and an error at a difference.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use anyhow::anyhow;
use mayfly_base::{Clock, SystemClock};
use mayfly_kv::Engine;
use mayfly_storage::{CatalogMarks, CollectionDigest, Store};
use mayfly_work::OpCtx;

use super::source::Source;
use super::{of_target, print};
use crate::failure::{Failure, FailureKind};
use crate::offline;

const TRIED: &str = "cannot compare source and target";

/// Compares two open stores, and prints a table.
///
/// # Errors
/// A [`Failure`] with the exit code 1 at a difference.
pub(super) fn compare(source: &Store, target: &Store, out: &mut impl Write) -> anyhow::Result<()> {
    let op = OpCtx::detached(Arc::new(SystemClock::new()));
    let digests = |store: &Store| store.digests(&op).map_err(|error| of_target(&error));
    let mut both: BTreeMap<String, [Option<CollectionDigest>; 2]> = BTreeMap::new();
    for (at, store) in [source, target].into_iter().enumerate() {
        // The database `local` is that of a server, which writes into it at each start.
        for digest in digests(store)?.into_iter().filter(|it| !it.ns.starts_with("local.")) {
            let row = both.entry(digest.ns.clone()).or_default();
            row[at] = Some(digest);
        }
    }
    let mut differing = 0;
    let title = ["documents", "in target", "indexes"];
    print(out, &format!("{:<40} {:>12} {:>12} {:>8}", "collection", title[0], title[1], title[2]))?;
    for (ns, [of_source, of_target]) in &both {
        let found = difference(of_source.as_ref(), of_target.as_ref());
        differing += usize::from(found.is_some());
        let count = |digest: &Option<CollectionDigest>| {
            digest.as_ref().map_or("-".to_owned(), |digest| digest.documents.to_string())
        };
        let indexes = of_source.as_ref().or(of_target.as_ref()).map_or(0, |it| it.indexes.len());
        let (first, second) = (count(of_source), count(of_target));
        let verdict = found.unwrap_or_else(|| "equal".to_owned());
        print(out, &format!("{ns:<40} {first:>12} {second:>12} {indexes:>8}  {verdict}"))?;
    }
    match differing {
        0 => Ok(()),
        _ => {
            let advice = "empty the target, and copy again; if clients have written since the \
                          copy, the difference is theirs";
            let failure = Failure::new(FailureKind::General, TRIED, advice);
            Err(anyhow!("{differing} collections differ").context(failure))
        }
    }
}

/// Compares a source with a target that is complete.
///
/// # Errors
/// As [`compare`].
pub(super) fn compare_complete(
    source: Source,
    engine: Arc<dyn Engine>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let Source::Local(mut local) = source else {
        let advice = "name the data folder or the database of the source with --from";
        let failure = Failure::new(FailureKind::Options, TRIED, advice);
        return Err(anyhow!("a server has the source open").context(failure));
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let target = offline::open_marked(engine, clock, CatalogMarks::Refuse);
    let target = target.map_err(|error| of_target(&error))?;
    let store = local.store()?;
    let compared = compare(&store, &target, out);
    local.close();
    let closed = target.close().map_err(|error| of_target(&error));
    compared.and(closed)
}

/// What differs; `None` for equal collections.
fn difference(
    source: Option<&CollectionDigest>,
    target: Option<&CollectionDigest>,
) -> Option<String> {
    let (Some(source), Some(target)) = (source, target) else {
        return Some(format!("only in the {}", if source.is_some() { "source" } else { "target" }));
    };
    if source.uuid != target.uuid {
        return Some("another collection".to_owned());
    }
    if source.options != target.options {
        return Some("the options differ".to_owned());
    }
    if source.documents != target.documents || source.hash != target.hash {
        return Some("the documents differ".to_owned());
    }
    let names = |digest: &CollectionDigest| -> Vec<String> {
        digest.indexes.iter().map(|index| index.name.clone()).collect()
    };
    if names(source) != names(target) {
        return Some("the indexes differ".to_owned());
    }
    let both = source.indexes.iter().zip(&target.indexes);
    let mut differing = both.filter(|(source, target)| source != target);
    differing.next().map(|(index, _)| format!("the index '{}' differs", index.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named() {
        let digest = CollectionDigest {
            ns: "d.c".to_owned(),
            uuid: [1; 16],
            documents: 2,
            hash: 3,
            options: 4,
            indexes: Vec::new(),
        };
        assert_eq!(difference(Some(&digest), Some(&digest)), None);
        let other = CollectionDigest { hash: 5, ..digest.clone() };
        let found = difference(Some(&digest), Some(&other));
        assert_eq!(found.as_deref(), Some("the documents differ"));
        let found = difference(Some(&digest), None);
        assert_eq!(found.as_deref(), Some("only in the source"));
    }
}
