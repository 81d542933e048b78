//! Checks that adding a member only touches the places in ARCHITECTURE's table: an example of each
//! kind is searched in the sources. Module declarations, comments and tests do not count.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::is_test;

/// An example of a kind of members.
struct Example {
    /// The kind in the first column of the table.
    kind: &'static str,
    /// Its names in the code: its module, and the name for clients.
    names: &'static [&'static str],
    /// Its own folder or file.
    own: &'static str,
    /// The files with its rows.
    rows: &'static [&'static str],
}

/// The files that name a node of plans, besides the planner.
const NODE_ROWS: &[&str] =
    &["crates/query/src/exec/node/mod.rs", "crates/query/src/explain/tree.rs"];

const EXAMPLES: &[Example] = &[
    Example {
        kind: "a stage",
        names: &["sort_by_count", "\"$sortByCount\""],
        own: "crates/query/src/stage/sort_by_count.rs",
        rows: &["crates/query/src/pipeline/rows.rs"],
    },
    Example {
        kind: "a stage",
        names: &["densify::", "\"$densify\""],
        own: "crates/query/src/stage/densify",
        rows: &["crates/query/src/pipeline/rows.rs"],
    },
    Example {
        kind: "a rule of the optimiser",
        names: &["unions::", "filter_both_sides"],
        own: "crates/query/src/optimise/unions.rs",
        rows: &["crates/query/src/optimise/mod.rs"],
    },
    Example {
        kind: "a node of plans",
        names: &["Plan::And(", "and_hash::"],
        own: "crates/query/src/plan",
        rows: NODE_ROWS,
    },
    Example {
        kind: "a node of plans",
        names: &["Plan::Near("],
        own: "crates/query/src/plan",
        rows: NODE_ROWS,
    },
    Example {
        kind: "a node of plans",
        names: &["Plan::Sort {", "sort::Sort::new"],
        own: "crates/query/src/plan",
        rows: NODE_ROWS,
    },
    Example {
        kind: "a kind of index",
        names: &["sphere::ROW", "\"2dsphereIndexVersion\""],
        own: "crates/storage/src/index/kinds/sphere.rs",
        rows: &["crates/storage/src/index/kinds/mod.rs"],
    },
    Example {
        kind: "a log-fed kind of index",
        names: &["fixture::ROW", "\"fixtureWords\""],
        own: "crates/storage/src/index/kinds/fixture.rs",
        rows: &["crates/storage/src/index/kinds/mod.rs"],
    },
    Example {
        kind: "a command",
        names: &["ttl_status::", "\"ttlStatus\""],
        own: "crates/commands/src/diagnostics/ttl_status.rs",
        rows: &["crates/commands/src/diagnostics/mod.rs"],
    },
];

/// Other files in which an example is named.
fn places(root: &Path, files: &[String], example: &Example) -> BTreeSet<String> {
    let names_it = |line: &str| {
        let line = line.trim_start();
        let declares = line.starts_with("mod ") || line.contains(") mod ");
        !declares && !line.starts_with("//") && example.names.iter().any(|name| line.contains(name))
    };
    let beside = files.iter().filter(|file| !file.starts_with(example.own) && !is_test(file));
    let named = beside.filter(|file| {
        let text = fs::read_to_string(root.join(file)).unwrap_or_default();
        let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        code.lines().any(names_it)
    });
    named.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_of_each_kind_has_its_file_and_its_row() {
        let root = crate::root();
        let page = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
        let mut files = Vec::new();
        // Without the server, which runs commands by their names as clients do.
        for folder in ["query", "commands", "service", "storage", "mql", "expr"] {
            collect(&root, &root.join("crates").join(folder).join("src"), &mut files);
        }
        assert!(files.len() > 400, "{}", files.len());
        for example in EXAMPLES {
            assert!(page.contains(&format!("\n| {} |", example.kind)), "{}", example.kind);
            assert!(root.join(example.own).exists(), "{}", example.own);
            let places: Vec<_> = places(&root, &files, example).into_iter().collect();
            assert_eq!(places, example.rows, "{}", example.kind);
        }
    }

    fn collect(root: &Path, folder: &Path, files: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => collect(root, &path, files),
                false => {
                    files.push(path.strip_prefix(root).unwrap().to_string_lossy().into_owned());
                }
            }
        }
    }
}
