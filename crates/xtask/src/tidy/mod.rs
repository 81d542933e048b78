//! Checks that the compiler does not do: dependencies between crates, lengths of files, a module
//! comment in each, words, and numbers that are in two places.

mod ceilings;
mod declared;
mod figures;
mod map;
#[cfg(test)]
mod places;
mod prose;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use ceilings::Counts;
use map::Map;

/// The longest file without its tests.
const MAX_LINES: usize = 1000;

/// Files that may use floors above their own, for a recursion.
const DOORS: &[(&str, &[&str])] = &[
    // A stage may contain a pipeline.
    ("crates/query/src/stage/sub.rs", &["optimise", "pipeline"]),
];

/// Files that may release a thread of the runtime: the one that decides which commands take long,
/// and the one that writes replies to files.
const HAND_OVER: &[&str] =
    &["crates/commands/src/rules/length.rs", "crates/server/src/connection.rs"];

/// Files with thread-local state, and the reason. Other files pass state as parameters.
const THREAD_LOCALS: &[(&str, &str)] = &[
    (
        "crates/kv-rocksdb/src/counts.rs",
        "counts of reads: RocksDB counts the blocks of each thread",
    ),
    (
        "crates/work/src/current.rs",
        "the operation of a thread, for code that is handed none, and its spend counter",
    ),
    ("crates/work/src/memory.rs", "the count of allocated memory: an allocator is handed nothing"),
    ("crates/scripts/src/lib.rs", "callbacks of QuickJS know their thread only"),
    ("crates/scripts/src/watch.rs", "callbacks of QuickJS know their thread only"),
    (
        "crates/storage/src/catalog/ranked.rs",
        "locks that a thread has, for the order of locks (debug builds)",
    ),
];

/// Reads of the system clock, which tests cannot move.
const CLOCKS: &[&str] = &[
    concat!("SystemTime::", "now()"),
    concat!("ObjectId::", "new()"),
    concat!("DateTime::", "now()"),
    concat!("Timestamp::", "now()"),
    concat!("Zoned::", "now()"),
    concat!("Utc::", "now()"),
];

/// All problems of the tree, one text each.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let page = fs::read_to_string(root.join("ARCHITECTURE.md")).context("ARCHITECTURE.md")?;
    let map = Map::parse(&page)?;
    let mut problems = edges(root, &map)?;
    let (mut counts, mut thread_bound) = (Counts::default(), Vec::new());
    let sources = sources(root)?;
    for (name, text) in &sources {
        problems.extend(file_problems(name, text));
        problems.extend(attributes_without_reason(name, text));
        problems.extend(polls(name, text));
        problems.extend(upward_uses(&map, name, text));
        counts.add(name, text);
        if !is_test(name) && code_of(text).contains(concat!("thread_", "local!")) {
            thread_bound.push(name.as_str());
        }
    }
    problems.extend(thread_locals(&thread_bound));
    problems.extend(declared::problems(&sources));
    problems.extend(counts.problems(root)?);
    problems.extend(prose::documents(root)?);
    problems.extend(figures::problems(root)?);
    Ok(problems)
}

/// Lowers the ceilings to the present counts.
pub(crate) fn lower_ceilings(root: &Path) -> Result<()> {
    let mut counts = Counts::default();
    sources(root)?.iter().for_each(|(name, text)| counts.add(name, text));
    counts.lower(root)
}

/// Names and texts of all source files.
fn sources(root: &Path) -> Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    rust_files(&root.join("crates"), &mut files)?;
    files.sort();
    let read = |file: &PathBuf| {
        let name = file.strip_prefix(root).unwrap_or(file).display().to_string();
        Ok((name, fs::read_to_string(file)?))
    };
    files.iter().map(read).collect()
}

/// Files with thread-local state that are not listed, and obsolete rows of the list.
fn thread_locals(found: &[&str]) -> Vec<String> {
    let listed = || THREAD_LOCALS.iter().map(|(name, _)| *name);
    let new = found.iter().filter(|name| !listed().any(|listed| listed == **name));
    let new = new.map(|name| format!("{name}: state of a thread, not in THREAD_LOCALS"));
    let gone = listed().filter(|name| !found.contains(name));
    new.chain(gone.map(|name| format!("{name}: no state of a thread; THREAD_LOCALS has it")))
        .collect()
}

/// Edges of the dependency graph that the page's table does not have, and crates that only one of
/// them has.
fn edges(root: &Path, map: &Map) -> Result<Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let (mut problems, mut real) = (Vec::new(), Vec::new());
    for package in metadata["packages"].as_array().context("packages")? {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(name) = name.strip_prefix("mayfly-") else { continue };
        real.push(name);
        if !map.has(name) {
            problems.push(format!("crate '{name}' has no row in ARCHITECTURE.md"));
            continue;
        }
        for dependency in package["dependencies"].as_array().context("dependencies")? {
            let kind = dependency["kind"].as_str();
            let used = dependency["name"].as_str().unwrap_or_default();
            let Some(used) = used.strip_prefix("mayfly-") else { continue };
            // Tests may use all crates.
            if kind != Some("dev") && !map.allows(name, used) {
                problems.push(format!("crate '{name}' may not use '{used}'"));
            }
        }
    }
    let missing = map.crates().filter(|name| !real.contains(name));
    problems.extend(missing.map(|name| format!("ARCHITECTURE.md has a crate '{name}'")));
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

/// Whether a file only contains tests, which may use all floors.
fn is_test(name: &str) -> bool {
    name.contains("/tests") || name.ends_with("tests.rs")
}

/// A file without the tests at its end.
fn code_of(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text)
}

fn file_problems(name: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let code_lines = code_of(text).lines().count();
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
        let code = line.split("//").next().unwrap_or(line);
        if clock && !dev && CLOCKS.iter().any(|read| code.contains(read)) {
            problems.push(format!("{name}:{}: reads the system clock outside base", at + 1));
        }
        if line.contains(concat!("block_in", "_place(")) && !HAND_OVER.contains(&name) {
            let at = at + 1;
            problems.push(format!("{name}:{at}: hands a thread over outside {}", HAND_OVER[0]));
        }
    }
    problems
}

/// Attributes that allow or expect a lint without a reason.
fn attributes_without_reason(name: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for opening in [concat!("[all", "ow("), concat!("[exp", "ect(")] {
        for (at, _) in text.match_indices(opening) {
            let attribute = text[at..].split(")]").next().unwrap_or_default();
            if text[..at].ends_with(['#', '!']) && !attribute.contains("reason = ") {
                let line = text[..at].lines().count();
                problems.push(format!("{name}:{line}: a lint is allowed without a reason"));
            }
        }
    }
    problems
}

/// Loops in tests that only wait: without a deadline a failing test hangs.
fn polls(name: &str, text: &str) -> Vec<String> {
    let from = if name.starts_with("crates/testkit/") || is_test(name) {
        0
    } else {
        code_of(text).lines().count()
    };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let waits =
        |line: &str| ["sleep(", "yield_now(", "spin_loop("].iter().any(|wait| line.contains(wait));
    let is_poll = |at: usize| {
        let is_loop = lines[at].starts_with("while ")
            && !["elapsed()", ".next()"].iter().any(|it| lines[at].contains(it));
        let only_waits = lines[at].ends_with('{')
            && lines.get(at + 1).is_some_and(|line| waits(line))
            && lines.get(at + 2) == Some(&"}");
        is_loop && (lines[at].ends_with("{}") || only_waits)
    };
    let polls = (from..lines.len()).filter(|at| is_poll(*at));
    polls
        .map(|at| {
            format!("{name}:{}: a poll without a deadline: base::testing::wait_until", at + 1)
        })
        .collect()
}

/// The uses of higher floors, or of modules outside of all floors, in a file.
fn upward_uses(map: &Map, name: &str, text: &str) -> Vec<String> {
    if is_test(name) {
        return Vec::new();
    }
    let door = DOORS.iter().find(|(file, _)| *file == name).map_or(&[][..], |(_, above)| above);
    let mut problems = Vec::new();
    for (place, floors) in map.floors() {
        let (krate, module) = place.split_once('/').unwrap_or((place, ""));
        let folder = Path::new("crates").join(krate).join("src").join(module);
        let Ok(inside) = Path::new(name).strip_prefix(folder) else { continue };
        let floor = inside.parent().and_then(|inside| inside.iter().next());
        let Some(at) = floors.iter().position(|name| floor == Some(name.as_ref())) else {
            continue;
        };
        let allowed = &floors[..=at];
        let path = match module {
            "" => "crate::".to_owned(),
            module => format!("crate::{}::", module.replace('/', "::")),
        };
        // Tests may use all floors.
        for (at, line) in code_of(text).lines().enumerate() {
            let code = line.split("//").next().unwrap_or(line);
            for used in code.split(&path).skip(1) {
                let used = used.split(|c: char| !c.is_alphanumeric() && c != '_').next();
                let used = used.unwrap_or_default();
                if !allowed.iter().any(|floor| floor == used) && !door.contains(&used) {
                    let floors = allowed.join(", ");
                    problems.push(format!("{name}:{}: uses '{used}', not one of {floors}", at + 1));
                }
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upward_uses_are_found() {
        let page = fs::read_to_string(crate::root().join("ARCHITECTURE.md")).unwrap();
        let map = Map::parse(&page).unwrap();
        let upward_uses = |name: &str, text: &str| super::upward_uses(&map, name, text);
        let uses = |line: &str| upward_uses("crates/storage/src/policy/a.rs", line).len();
        assert_eq!(uses("use crate::record::Record;\nuse crate::policy::value;"), 0);
        assert_eq!(uses("//! See [`crate::ttl`].\nuse super::value;"), 0);
        assert_eq!(uses("use crate::index::IndexSpec;"), 1);
        assert_eq!(uses("fn a(store: &crate::Store) {}"), 1);
        assert_eq!(uses("use crate::{RecordKey, Store};"), 1);
        assert_eq!(uses("fn a() {}\n#[cfg(test)]\nmod tests {\n    use crate::Store;\n}"), 0);
        let uses = |line: &str| upward_uses("crates/query/src/plan/ways/a.rs", line).len();
        assert_eq!(uses("use crate::plan::types::tree::Plan;\nuse crate::language::Hint;"), 0);
        assert_eq!(uses("use crate::plan::choice::planned;"), 1);
        assert_eq!(uses("use crate::plan::Plan;"), 1);
        assert_eq!(uses("use crate::exec::Executor;"), 1);
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

    #[test]
    fn a_reason_stands_in_the_attribute() {
        let problems = |attribute: &str| {
            let text = format!("//! The reason = none.\n#{attribute}\nfn a() {{}}\n");
            attributes_without_reason("crates/x/src/a.rs", &text).len()
        };
        assert_eq!(problems(concat!("[all", "ow(unsafe_code)]")), 1);
        assert_eq!(problems(concat!("![exp", "ect(dead_code)]")), 1);
        assert_eq!(problems(concat!("[all", "ow(unsafe_code, reason = \"C\")]")), 0);
        assert_eq!(problems(concat!("[all", "ow(\n    unsafe_code,\n    reason = \"C\"\n)]")), 0);
    }

    #[test]
    fn polls_are_found() {
        let in_tests = |text: &str| polls("crates/x/tests/a.rs", text).len();
        assert_eq!(in_tests("while a() {\n    std::thread::yield_now();\n}\n"), 1);
        assert_eq!(in_tests("while a() {}\n"), 1);
        assert_eq!(in_tests("while a() {\n    b();\n    sleep(c);\n}\n"), 0);
        let waits = "//! Story.\nfn a() {\n    while b() {\n        sleep(c);\n    }\n}\n";
        assert_eq!(polls("crates/x/src/a.rs", waits).len(), 0);
        let test = format!("fn a() {{}}\n\n#[cfg(test)]\nmod tests {{\n{waits}}}\n");
        assert_eq!(polls("crates/x/src/a.rs", &test).len(), 1);
    }

    #[test]
    fn state_of_threads_is_listed() {
        let all: Vec<&str> = THREAD_LOCALS.iter().map(|(name, _)| *name).collect();
        assert!(thread_locals(&all).is_empty());
        assert_eq!(thread_locals(&all[1..]).len(), 1);
        assert_eq!(thread_locals(&[&all[..], &["crates/x/src/a.rs"]].concat()).len(), 1);
    }
}
