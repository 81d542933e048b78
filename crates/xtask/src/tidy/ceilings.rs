//! Counts that may only go down: functions of more than 70 lines, `bool` parameters of public
//! functions, files of more than 500 lines, and comments that are not in plain words.
//!
//! `crates/xtask/ceilings.txt` has the counts. A higher count is a problem. A lower count is one,
//! too, until `cargo run -p mayfly-xtask -- ceilings` has updated the file, so that an improvement
//! is not lost unnoticed.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

use super::{code_of, is_test, prose};

const MAX_FUNCTION_LINES: usize = 70;
const MAX_FILE_LINES: usize = 500;
/// Crates that are not part of the product.
const DEVELOPMENT: &[&str] = &["crates/bench/", "crates/testkit/", "crates/xtask/"];

/// The counts, each with its locations.
#[derive(Debug, Default)]
pub(super) struct Counts {
    long_functions: Vec<String>,
    bool_parameters: Vec<String>,
    long_files: Vec<String>,
    dialect: Vec<String>,
    wide_comments: Vec<String>,
    short_docs: Vec<String>,
}

impl Counts {
    /// Adds a file.
    pub(super) fn add(&mut self, name: &str, text: &str) {
        self.dialect.extend(prose::dialect(name, text));
        self.wide_comments.extend(prose::wide_comments(name, text));
        self.short_docs.extend(prose::short_docs(name, text));
        if DEVELOPMENT.iter().any(|folder| name.starts_with(folder)) || !name.contains("/src/") {
            return;
        }
        let lines = text.lines().count();
        if lines > MAX_FILE_LINES {
            self.long_files.push(format!("{name}: {lines} lines"));
        }
        if is_test(name) {
            return;
        }
        let code = code_of(text);
        for (at, function, lines) in functions(code).filter(|it| it.2 > MAX_FUNCTION_LINES) {
            self.long_functions.push(format!("{name}:{at}: '{function}' has {lines} lines"));
        }
        for (at, parameters) in bool_parameters(code) {
            let places = std::iter::repeat_n(format!("{name}:{at}"), parameters);
            self.bool_parameters.extend(places);
        }
    }

    fn all(&self) -> [(&'static str, &[String]); 6] {
        [
            ("functions of more than 70 lines", &self.long_functions),
            ("bool parameters of public functions", &self.bool_parameters),
            ("files of more than 500 lines", &self.long_files),
            ("lines of comments with words of the dialect", &self.dialect),
            ("comments wider than 100 columns", &self.wide_comments),
            ("documentation comments of one or two words", &self.short_docs),
        ]
    }

    /// Counts that differ from those of the file.
    pub(super) fn problems(&self, root: &Path) -> Result<Vec<String>> {
        let text = std::fs::read_to_string(path(root)).context("the ceilings")?;
        self.differences(&text)
    }

    fn differences(&self, text: &str) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        for (what, places) in self.all() {
            let ceiling: usize = ceiling(text, what)?;
            let count = places.len();
            if count > ceiling {
                let places = places.join("\n  ");
                problems.push(format!("{count} {what}, more than {ceiling}:\n  {places}"));
            } else if count < ceiling {
                let how = "cargo run -p mayfly-xtask -- ceilings";
                problems.push(format!("{count} {what}, and the ceiling is {ceiling}: {how}"));
            }
        }
        Ok(problems)
    }

    /// Lowers the ceilings of the file to these counts.
    pub(super) fn lower(&self, root: &Path) -> Result<()> {
        let before = std::fs::read_to_string(path(root)).context("the ceilings")?;
        let mut after = String::new();
        for (what, places) in self.all() {
            let _ = writeln!(after, "{} {what}", places.len().min(ceiling(&before, what)?));
        }
        std::fs::write(path(root), after).context("the ceilings")
    }
}

fn path(root: &Path) -> std::path::PathBuf {
    root.join("crates/xtask/ceilings.txt")
}

fn ceiling(text: &str, what: &str) -> Result<usize> {
    let line = text.lines().find_map(|line| line.strip_suffix(what));
    let number = line.with_context(|| format!("no ceiling for {what}"))?;
    number.trim().parse().with_context(|| format!("the ceiling for {what}"))
}

/// The functions of a formatted source: line, name, and lines from `fn` to the closing brace.
fn functions(code: &str) -> impl Iterator<Item = (usize, &str, usize)> {
    let lines: Vec<&str> = code.lines().collect();
    (0..lines.len()).filter_map(move |at| {
        let line = lines[at];
        let indent = &line[..line.len() - line.trim_start().len()];
        let words: Vec<&str> = line.split_whitespace().collect();
        let function = words.iter().position(|word| *word == "fn")?;
        // Only visibility and qualifiers may precede `fn`.
        let qualifies = |word: &&str| {
            word.starts_with("pub")
                || ["const", "async", "unsafe", "extern", "\"C\""].contains(word)
        };
        if !words[..function].iter().all(qualifies) || line.ends_with(';') {
            return None;
        }
        let name = words.get(function + 1)?.split(['(', '<']).next()?;
        let end = lines[at..].iter().position(|line| {
            line.strip_prefix(indent)
                .is_some_and(|rest| rest == "}" || rest.ends_with(';') && rest.starts_with(')'))
        })?;
        (lines[at + end].trim() == "}").then_some((at + 1, name, end + 1))
    })
}

/// Public functions with `bool` parameters: line, and number of these parameters.
fn bool_parameters(code: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut line_start = 0;
    for (at, line) in code.lines().enumerate() {
        let rest = &code[line_start..];
        line_start += line.len() + 1;
        let is_public =
            line.trim_start().starts_with("pub") && !line.trim_start().starts_with("//");
        if !is_public || !line.split_whitespace().any(|word| word == "fn") {
            continue;
        }
        let signature = rest.split(['{', ';']).next().unwrap_or(rest);
        let parameters = signature.split("->").next().unwrap_or(signature);
        let count = parameters.split(": ").skip(1).filter(|kind| is_bool(kind)).count();
        if count > 0 {
            found.push((at + 1, count));
        }
    }
    found
}

fn is_bool(kind: &str) -> bool {
    kind.strip_prefix("bool").is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Counts {
        let mut counts = Counts::default();
        counts.add("crates/x/src/a.rs", text);
        counts.add("crates/testkit/src/a.rs", text);
        counts
    }

    fn sizes(text: &str) -> [usize; 3] {
        let [functions, bools, files, ..] = of(text).all().map(|(_, places)| places.len());
        [functions, bools, files]
    }

    #[test]
    fn what_is_too_long_is_counted() {
        let body = "    a();\n".repeat(69);
        assert_eq!(sizes(&format!("fn a() {{\n{}}}\n", &body[9..])), [0, 0, 0]);
        assert_eq!(sizes(&format!("pub(crate) fn a() {{\n{body}}}\nfn b() {{\n}}\n")), [1, 0, 0]);
        assert_eq!(sizes(&format!("fn declared(\n    a: u8,\n);\n{body}\n}}\n")), [0, 0, 0]);
        assert_eq!(sizes(&"//\n".repeat(501)), [0, 0, 1]);
        let test = format!("\n#[cfg(test)]\nmod tests {{\nfn a() {{\n{body}}}\n}}\n");
        assert_eq!(sizes(&test), [0, 0, 0]);
    }

    #[test]
    fn bool_parameters_are_counted() {
        assert_eq!(sizes("pub fn a(a: bool, b: u8, c: bool) -> bool {}\n"), [0, 2, 0]);
        assert_eq!(sizes("pub(super) async fn a(\n    a: bool,\n) -> bool {\n}\n"), [0, 1, 0]);
        assert_eq!(
            sizes("fn a(a: bool) {}\n/// pub fn a(b: bool)\npub fn b(a: &bool) {}\n"),
            [0, 0, 0]
        );
    }

    #[test]
    fn a_ceiling_is_exact() {
        let counts = of("pub fn a(a: bool) {}\n");
        let with = |bools: u8| {
            let text = format!(
                "0 functions of more than 70 lines\n{bools} bool parameters of public functions\n0 files of more than 500 lines\n\
                 0 lines of comments with words of the dialect\n0 comments wider than 100 columns\n\
                 0 documentation comments of one or two words\n"
            );
            counts.differences(&text).unwrap().len()
        };
        assert_eq!((with(0), with(1), with(2)), (1, 0, 1));
        assert!(counts.differences("").is_err());
    }
}
