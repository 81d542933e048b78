//! What no compiler checks: which crate may use which, how long files are, that each begins with its story.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

/// Longest file, tests not counted.
const MAX_LINES: usize = 1000;

/// Which crate may use which. ARCHITECTURE.md has the same table.
const MAY_USE: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("value", &["base"]),
    ("kv", &["base"]),
    ("runs", &["base"]),
    ("kv-rocksdb", &["kv", "base"]),
    ("auth", &["value", "base"]),
    ("wire", &["value", "base"]),
    ("expr", &["value", "base"]),
    ("storage", &["kv", "runs", "value", "base"]),
    ("mql", &["expr", "value", "base"]),
    ("query", &["mql", "expr", "storage", "runs", "value", "base"]),
    ("service", &["query", "storage", "mql", "auth", "value", "base"]),
    (
        "commands",
        &["service", "query", "mql", "expr", "storage", "auth", "wire", "kv", "value", "base"],
    ),
];

/// The floors of crates that have them, from the ground up. A floor uses itself and those before it, and nothing else of its
/// crate. ARCHITECTURE.md says what each holds.
const FLOORS: &[(&str, &[&str])] = &[
    ("storage", &["record", "policy", "index", "timeseries", "oplog", "catalog", "read", "write"]),
    (
        "query",
        &[
            "language",
            "memory",
            "plan",
            "exec",
            "explain",
            "modify",
            "change",
            "stage",
            "timeseries",
            "optimise",
            "pipeline",
        ],
    ),
    (
        "service",
        &[
            "process",
            "counters",
            "clients",
            "sessions",
            "settings",
            "records",
            "server",
            "running",
            "parameters",
        ],
    ),
    (
        "commands",
        &[
            "request",
            "context",
            "rules",
            "access",
            "diagnostics",
            "crud",
            "ddl",
            "admin",
            "registry",
            "dispatch",
        ],
    ),
];

/// The crates that consist of floors: only `lib.rs` stands beside them.
const ONLY_FLOORS: &[&str] = &["service", "commands"];

/// Files that may name floors above their own: a recursion goes through one place.
const DOORS: &[(&str, &[&str])] = &[
    // A stage may have a pipeline inside.
    ("crates/query/src/stage/sub.rs", &["optimise", "pipeline"]),
];

/// The files that may hand a runtime thread over: the one that decides which commands take long, and the one that writes replies
/// into files.
const HAND_OVER: &[&str] =
    &["crates/commands/src/rules/length.rs", "crates/server/src/connection.rs"];

/// Crates that may use everything.
const UNLIMITED: &[&str] = &["server", "derive", "testkit", "bench", "xtask"];

/// All problems of the tree, one text each.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut problems = edges(root)?;
    let mut files = Vec::new();
    rust_files(&root.join("crates"), &mut files)?;
    for file in files {
        let text = fs::read_to_string(&file)?;
        let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        problems.extend(file_problems(&name, &text));
        problems.extend(upward_uses(&name, &text));
        problems.extend(outside_floors(&name));
    }
    Ok(problems)
}

/// Edges of the real dependency graph that the table does not have.
fn edges(root: &Path) -> Result<Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let allowed: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let mut problems = Vec::new();
    for package in metadata["packages"].as_array().context("packages")? {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(name) = name.strip_prefix("mayfly-") else { continue };
        if UNLIMITED.contains(&name) {
            continue;
        }
        let Some(allowed) = allowed.get(name) else {
            problems.push(format!("crate '{name}' has no row in the table of edges"));
            continue;
        };
        for dependency in package["dependencies"].as_array().context("dependencies")? {
            let kind = dependency["kind"].as_str();
            let used = dependency["name"].as_str().unwrap_or_default();
            let Some(used) = used.strip_prefix("mayfly-") else { continue };
            // Tests may use what they like.
            if kind != Some("dev") && !allowed.contains(&used) {
                problems.push(format!("crate '{name}' may not use '{used}'"));
            }
        }
    }
    Ok(problems)
}

fn rust_files(folder: &Path, out: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            rust_files(&path, out)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
    Ok(())
}

/// Whether a file holds nothing but tests, which may use what they like.
fn is_test(name: &str) -> bool {
    name.contains("/tests") || name.ends_with("tests.rs")
}

fn file_problems(name: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let code_lines = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text).lines().count();
    let is_test = is_test(name);
    if code_lines > MAX_LINES && !is_test {
        problems.push(format!("{name}: {code_lines} lines, more than {MAX_LINES}"));
    }
    if !text.starts_with("//!") {
        problems.push(format!("{name}: does not begin with a module comment"));
    }
    let file = name.rsplit('/').next().unwrap_or(name);
    if matches!(file, "utils.rs" | "util.rs" | "common.rs" | "helpers.rs") {
        problems.push(format!("{name}: a name that says nothing"));
    }
    let clock = !name.starts_with("crates/base/") && !is_test && !name.contains("/examples/");
    let dev = ["crates/bench/", "crates/xtask/", "crates/testkit/"];
    let dev = dev.iter().any(|folder| name.starts_with(folder));
    for (at, line) in text.lines().enumerate() {
        if clock && !dev && line.contains("SystemTime::now()") {
            problems.push(format!("{name}:{}: reads the system clock outside base", at + 1));
        }
        if line.contains(concat!("block_in", "_place(")) && !HAND_OVER.contains(&name) {
            let at = at + 1;
            problems.push(format!("{name}:{at}: hands a thread over outside {}", HAND_OVER[0]));
        }
        if line.contains("allow(unsafe_code") && !text[..].contains("reason") {
            problems.push(format!("{name}:{}: unsafe without a reason", at + 1));
        }
    }
    problems
}

/// That a file stands on no floor of a crate that consists of floors.
fn outside_floors(name: &str) -> Option<String> {
    let krate =
        ONLY_FLOORS.iter().find(|krate| name.starts_with(&format!("crates/{krate}/src/")))?;
    let (_, floors) = FLOORS.iter().find(|(with_floors, _)| with_floors == krate)?;
    let inside = name.strip_prefix(&format!("crates/{krate}/src/"))?;
    let on_floor = inside.split_once('/').is_some_and(|(folder, _)| floors.contains(&folder));
    (!on_floor && inside != "lib.rs").then(|| format!("{name}: stands on no floor of '{krate}'"))
}

/// What a file on a floor uses of those above it, or of what stands on none.
fn upward_uses(name: &str, text: &str) -> Vec<String> {
    let floor = FLOORS.iter().find_map(|(krate, floors)| {
        let inside = name.strip_prefix(&format!("crates/{krate}/src/"))?;
        let folder = inside.split_once('/')?.0;
        let at = floors.iter().position(|floor| *floor == folder)?;
        Some(&floors[..=at])
    });
    let Some(allowed) = floor.filter(|_| !is_test(name)) else { return Vec::new() };
    let door = DOORS.iter().find(|(file, _)| *file == name).map_or(&[][..], |(_, above)| above);
    let mut problems = Vec::new();
    // Tests may use whatever helps them.
    let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text);
    for (at, line) in code.lines().enumerate() {
        let code = line.split("//").next().unwrap_or(line);
        for used in code.split("crate::").skip(1) {
            let used = used.split(|c: char| !c.is_alphanumeric() && c != '_').next();
            let used = used.unwrap_or_default();
            if !allowed.contains(&used) && !door.contains(&used) {
                let floors = allowed.join(", ");
                problems.push(format!("{name}:{}: uses '{used}', not one of {floors}", at + 1));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_beside_floors_are_found() {
        assert!(outside_floors("crates/commands/src/lib.rs").is_none());
        assert!(outside_floors("crates/commands/src/rules/length.rs").is_none());
        assert!(outside_floors("crates/commands/src/length.rs").is_some());
        assert!(outside_floors("crates/service/src/helpers/a.rs").is_some());
        assert!(outside_floors("crates/storage/src/store.rs").is_none());
    }

    #[test]
    fn upward_uses_are_found() {
        let uses = |line: &str| upward_uses("crates/storage/src/policy/a.rs", line).len();
        assert_eq!(uses("use crate::record::Record;\nuse crate::policy::value;"), 0);
        assert_eq!(uses("//! See [`crate::ttl`].\nuse super::value;"), 0);
        assert_eq!(uses("use crate::index::IndexSpec;"), 1);
        assert_eq!(uses("fn a(store: &crate::Store) {}"), 1);
        assert_eq!(uses("use crate::{RecordKey, Store};"), 1);
        assert_eq!(uses("fn a() {}\n#[cfg(test)]\nmod tests {\n    use crate::Store;\n}"), 0);
        let uses = |file: &str| upward_uses(file, "use crate::pipeline::Pipeline;").len();
        assert_eq!(uses("crates/query/src/stage/facet.rs"), 1);
        assert_eq!(uses("crates/query/src/stage/sub.rs"), 0);
        assert!(upward_uses("crates/storage/src/store.rs", "use crate::ttl::Census;").is_empty());
    }

    #[test]
    fn problems_are_found() {
        assert!(file_problems("crates/x/src/a.rs", "//! Story.\n").is_empty());
        assert_eq!(file_problems("crates/x/src/utils.rs", "fn a() {}\n").len(), 2);
        let long = format!("//! Story.\n{}", "\n".repeat(1001));
        assert_eq!(file_problems("crates/x/src/a.rs", &long).len(), 1);
        let clock = format!("//! Story.\nlet now = SystemTime::{}();\n", "now");
        assert_eq!(file_problems("crates/x/src/a.rs", &clock).len(), 1);
        let blocks = format!("//! Story.\ntokio::task::block_in{}(work);\n", "_place");
        assert_eq!(file_problems("crates/commands/src/a.rs", &blocks).len(), 1);
        assert!(file_problems(HAND_OVER[0], &blocks).is_empty());
    }
}
