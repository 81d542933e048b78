//! Checks of comments and documents: words that are not used, widths, comments that say nothing,
//! links.
//!
//! They keep such words from coming back. No check can decide whether a sentence is understood.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Longest line of a comment.
const COMMENT_COLUMNS: usize = 100;
/// Longest line of a document outside of tables and fenced code.
const DOCUMENT_COLUMNS: usize = 120;
/// Longest map.
const MAP_LINES: usize = 150;

/// Words of the dialect that comments and documents once had (CONTRIBUTING.md, "Words").
const DIALECT: &[&str] = &[
    "nobody",
    "somebody",
    "whoever",
    "everybody",
    "told",
    "foremost",
    "dealt",
    "behind",
    "beside",
];

/// Documents that quote those words.
const QUOTING: &[&str] = &["CONTRIBUTING.md"];

/// The comment of a line of Rust, without its marker; `None` for a line of code.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = ["///", "//!", "//"].iter().find_map(|marker| line.strip_prefix(marker))?;
    Some(text.strip_prefix(' ').unwrap_or(text))
}

fn has_dialect(prose: &str) -> bool {
    let words = prose.split(|letter: char| !letter.is_alphanumeric());
    words.into_iter().any(|word| DIALECT.iter().any(|one| word.eq_ignore_ascii_case(one)))
}

/// The name of the function that a line of Rust declares.
fn function(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let qualifies = |word: &str| {
        word.starts_with("pub") || ["const", "async", "unsafe", "extern"].contains(&word)
    };
    let declares = before.split_whitespace().all(qualifies);
    rest.split(['(', '<']).next().filter(|_| declares)
}

/// Lines with words of the dialect: comments, and names of functions.
pub(super) fn dialect(name: &str, text: &str) -> Vec<String> {
    let lines = text.lines().enumerate();
    let prose = |line: &'_ str| comment(line).or_else(|| function(line)).is_some_and(has_dialect);
    let found = lines.filter(|(_, line)| prose(line));
    found.map(|(at, _)| format!("{name}:{}", at + 1)).collect()
}

/// Lines of comments that are too wide. Fenced drawings and tables may be.
pub(super) fn wide_comments(name: &str, text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let Some(prose) = comment(line) else {
            fenced = false;
            continue;
        };
        if prose.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        let may_be = fenced || prose.starts_with('|') || prose.contains("://");
        if !may_be && line.chars().count() > COMMENT_COLUMNS {
            found.push(format!("{name}:{}", at + 1));
        }
    }
    found
}

/// Documentation comments of one or two words on public items.
pub(super) fn short_docs(name: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let is_doc = |at: usize| lines.get(at).is_some_and(|line| line.starts_with("///"));
    let is_public = |at: usize| {
        let item = lines[at + 1..].iter().find(|line| !line.starts_with("#["));
        item.is_some_and(|line| line.starts_with("pub "))
    };
    let is_short = |at: usize| {
        let alone = is_doc(at) && !is_doc(at + 1) && (at == 0 || !is_doc(at - 1));
        alone && lines[at].split_whitespace().count() <= 3
    };
    let found = (0..lines.len()).filter(|at| is_short(*at) && is_public(*at));
    found.map(|at| format!("{name}:{}", at + 1)).collect()
}

/// Comments with words of the dialect in golden scripts, client suites in Python, and shell
/// scripts.
fn hash_comments(root: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for name in tracked(root, &["tests/scripts/*.txt", "tests/clients/*.py", "scripts/*"])? {
        let text = fs::read_to_string(root.join(&name)).with_context(|| name.clone())?;
        let lines = text.lines().enumerate();
        let found =
            lines.filter(|(_, line)| line.trim_start().starts_with('#') && has_dialect(line));
        problems.extend(found.map(|(at, line)| format!("{name}:{}: plain words: {line}", at + 1)));
    }
    Ok(problems)
}

/// Problems of the documents below `root`: width, links, the length of the map. Words are checked
/// in comments of scripts, too.
pub(super) fn documents(root: &Path) -> Result<Vec<String>> {
    let mut problems = hash_comments(root)?;
    for name in &markdown(root)? {
        let text = fs::read_to_string(root.join(name)).with_context(|| name.clone())?;
        problems.extend(wide_lines(name, &text));
        problems.extend(broken_links(root, name, &text));
        if name == "ARCHITECTURE.md" && text.lines().count() > MAP_LINES {
            problems.push(format!("{name}: more than {MAP_LINES} lines"));
        }
        if !QUOTING.contains(&name.as_str()) {
            let prose = outside_fences(&text).filter(|(_, line)| has_dialect(line));
            problems.extend(prose.map(|(at, line)| format!("{name}:{at}: plain words: {line}")));
        }
    }
    Ok(problems)
}

/// The documents of the repository.
pub(super) fn markdown(root: &Path) -> Result<Vec<String>> {
    tracked(root, &["*.md"])
}

/// The files of the repository that match a pattern.
fn tracked(root: &Path, patterns: &[&str]) -> Result<Vec<String>> {
    let output = std::process::Command::new("git")
        .arg("ls-files")
        .args(patterns)
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}

/// The lines of a document that are not fenced code, with their numbers.
pub(super) fn outside_fences(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((at + 1, line))
    })
}

fn wide_lines(name: &str, text: &str) -> Vec<String> {
    let is_wide = |line: &str| {
        !line.starts_with('|') && line.contains(' ') && line.chars().count() > DOCUMENT_COLUMNS
    };
    let lines = outside_fences(text).filter(|(_, line)| is_wide(line));
    lines.map(|(at, _)| format!("{name}:{at}: wider than {DOCUMENT_COLUMNS}")).collect()
}

/// Links to files that do not exist, and to headings that their page does not have.
fn broken_links(root: &Path, name: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let folder = Path::new(name).parent().unwrap_or(Path::new(""));
    for (at, line) in outside_fences(text) {
        for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            // Paths of Rust items are checked by rustdoc.
            if target.contains("://") || target.contains("::") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = match file {
                "" => root.join(name),
                file => root.join(folder).join(file),
            };
            let found = path.exists();
            let page = fs::read_to_string(&path).unwrap_or_default();
            if !found || (!heading.is_empty() && !anchors(&page).contains(heading)) {
                problems.push(format!("{name}:{at}: no '{target}'"));
            }
        }
    }
    problems
}

/// The anchors of a page's headings, as repositories on the web make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = outside_fences(page).filter_map(|(_, line)| line.strip_prefix('#'));
    headings
        .map(|heading| {
            let title = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
            kept.map(|it| if it == ' ' { '-' } else { it }).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dialect_is_found_in_comments_and_names_of_functions() {
        let text = "/// Nobody waits.\nlet told = \"told\"; // told\n    // The stage behind.\n";
        assert_eq!(dialect("a.rs", text), ["a.rs:1", "a.rs:3"]);
        let text = "pub fn all_are_told() {}\n    async fn behind<T>() {}\nlet a: fn (told);\n";
        assert_eq!(dialect("a.rs", text), ["a.rs:1", "a.rs:2"]);
    }

    #[test]
    fn wide_comments_are_found_outside_of_drawings() {
        let wide = "x ".repeat(60);
        let text = format!("// {wide}\n\n/// ```text\n/// {wide}\n/// ```\n/// | {wide}\nlet a;\n");
        assert_eq!(wide_comments("a.rs", &text), ["a.rs:1"]);
    }

    #[test]
    fn short_documentation_of_public_items_is_found() {
        let text = "/// Two words.\npub fn a() {}\n/// Two words.\nfn b() {}\n/// These are more words.\npub c: u8,\n/// One\n/// sentence.\npub d: u8,\n";
        assert_eq!(short_docs("a.rs", text), ["a.rs:1"]);
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let root = tempfile::tempdir().unwrap();
        let page = "# A page\n\n## By `kind` of _id\n\n[a](#a-page) [b](#by-kind-of-_id) [c](b.md) [d](#c)\n";
        fs::write(root.path().join("a.md"), page).unwrap();
        let broken = broken_links(root.path(), "a.md", page);
        assert_eq!(broken, ["a.md:5: no 'b.md'", "a.md:5: no '#c'"]);
    }
}
