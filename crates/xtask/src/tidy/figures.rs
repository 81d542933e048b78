//! Checks that numbers in two places agree: defaults in documents and in `--help` with those of
//! `config/mayflydb.yaml` and of the server parameters, and measurements in other pages with those
//! in `docs/performance.md`.
//!
//! A default in prose is recognised in the forms of [`stated_default`]; a sentence that is worded
//! in another way is not checked.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use mayfly_service::parameters::TABLE;

use crate::keys;

/// A number that is in two files, where it is found by the text before it.
struct Pair {
    first: NumberPlace,
    second: NumberPlace,
}

/// A file, and the text directly before a number in it.
type NumberPlace = (&'static str, &'static str);

const fn pair(first: NumberPlace, second: NumberPlace) -> Pair {
    Pair { first, second }
}

const README: &str = "README.md";
const PERFORMANCE: &str = "docs/performance.md";
const EXPIRY: &str = "docs/expiry.md";

/// Numbers that are in two files.
const PAIRS: &[Pair] = &[
    pair(
        (README, "The first `make run` takes "),
        (PERFORMANCE, "| `make run`, first | the server answers | "),
    ),
    pair(
        (README, "the first `make test` takes "),
        (PERFORMANCE, "| `make test`, first | the result | "),
    ),
    pair((README, "You need Rust "), ("Cargo.toml", "rust-version = \"")),
    pair(
        (EXPIRY, "deleting a document takes "),
        (PERFORMANCE, "two further keys, ObjectIds | 208,000 | "),
    ),
    pair(
        (EXPIRY, "ObjectId, and "),
        (PERFORMANCE, "two further keys, UUIDs as strings | 175,000 | "),
    ),
    pair(
        (EXPIRY, "a document that was just inserted takes "),
        (PERFORMANCE, "| TTL deletion, three further indexes | 163,000 (148,000 to 179,000) | "),
    ),
];

/// All differences between two places.
pub(super) fn problems(root: &Path) -> Result<Vec<String>> {
    let read = |name: &str| fs::read_to_string(root.join(name)).with_context(|| name.to_owned());
    let keys = keys::all(root)?;
    let mut defaults = BTreeMap::new();
    for key in &keys {
        if let Some(number) = number(&key.default) {
            let segment = key.path.rsplit('.').next().unwrap_or(&key.path);
            defaults.extend([(segment.to_owned(), number), (key.flag.clone(), number)]);
        }
    }
    let mut problems = Vec::new();
    for row in TABLE {
        let Some((_, stated)) = row.help.split_once(" Default: ") else { continue };
        let Some(number) = number(stated.trim_end_matches('.')) else { continue };
        if defaults.insert(row.name.to_owned(), number).is_some_and(|before| before != number) {
            problems.push(format!("parameter '{}': the key's default is not {number}", row.name));
        }
    }
    for (flag, stated) in keys::help_defaults(&read(keys::FLAGS)?) {
        problems.extend(differs(&defaults, keys::FLAGS, &flag, number(&stated)));
    }
    for name in super::prose::markdown(root)? {
        for (key, stated) in stated_defaults(&read(&name)?) {
            problems.extend(differs(&defaults, &name, &key, Some(stated)));
        }
    }
    for Pair { first, second } in PAIRS {
        let texts = (read(first.0)?, read(second.0)?);
        problems.extend(pair_problem((*first, &texts.0), (*second, &texts.1)));
    }
    problems.extend(measured(&read(README)?, &read(PERFORMANCE)?));
    Ok(problems)
}

/// The problem of a stated default that is not the one of its key.
fn differs(
    defaults: &BTreeMap<String, f64>,
    file: &str,
    name: &str,
    stated: Option<f64>,
) -> Option<String> {
    let (default, stated) = (defaults.get(name)?, stated?);
    // A page may state MB as GB, and milliseconds as seconds.
    let in_unit = [1.0, 1024.0, 1000.0].map(|factor| stated * factor);
    let allowed = match name {
        _ if name.ends_with("MB") || name == "oplogSize" => &in_unit[..2],
        _ if name.to_lowercase().contains("millis") => &[in_unit[0], in_unit[2]],
        _ => &in_unit[..1],
    };
    (!allowed.contains(default))
        .then(|| format!("{file}: the default of '{name}' is {default}, not {stated}"))
}

/// The defaults that a page states: the name in code, then its default as in
/// [`stated_default`]. Line ends count as spaces.
fn stated_defaults(page: &str) -> Vec<(String, f64)> {
    let prose: Vec<&str> =
        super::prose::outside_fences(page).map(|(_, line)| line.trim()).collect();
    let prose = prose.join(" ");
    let parts: Vec<&str> = prose.split('`').collect();
    let after_code = parts.windows(2).filter_map(|pair| {
        let name = pair[0].trim_start_matches("--").rsplit('.').next()?;
        Some((name.to_owned(), stated_default(pair[1])?))
    });
    after_code.collect()
}

/// The number in the text after a name in code: ` (60)`, ` (a parameter, 60)`, `, 60)`,
/// `, 1 GB by default`, ` (60 by default)`, ` | 60 |`.
fn stated_default(after: &str) -> Option<f64> {
    let openings = [" (a parameter, ", " (", ", ", " | "];
    let rest = openings.iter().find_map(|opening| after.strip_prefix(opening))?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit() && !".,".contains(letter));
    let (digits, rest) = rest.split_at(end?);
    let rest = [" GB", " seconds"].iter().find_map(|unit| rest.strip_prefix(unit)).unwrap_or(rest);
    let closes = [")", " by default", " |"].iter().any(|closing| rest.starts_with(closing));
    closes.then(|| number(digits))?
}

fn number(text: &str) -> Option<f64> {
    text.replace(',', "").parse().ok()
}

/// The number directly after a text.
fn number_after(page: &str, before: &str) -> Option<f64> {
    // Pages wrap their lines anywhere.
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, rest) = page.split_once(before)?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit() && !".,".contains(letter))?;
    number(rest[..end].trim_end_matches(['.', ',']))
}

fn pair_problem(first: (NumberPlace, &str), second: (NumberPlace, &str)) -> Option<String> {
    let of = |((file, before), text): (NumberPlace, &str)| {
        number_after(text, before).ok_or_else(|| format!("{file}: no number after '{before}'"))
    };
    match (of(first), of(second)) {
        (Ok(a), Ok(b)) if a == b => None,
        (Ok(a), Ok(b)) => {
            let ((file, before), (other, _)) = (first.0, second.0);
            Some(format!("{file}: {a} after '{before}', and {b} in {other}"))
        }
        (Err(problem), _) | (_, Err(problem)) => Some(problem),
    }
}

/// Rows of the README's table "Measured" that the first table of the page does not have, or with
/// a number that its row does not have.
fn measured(readme: &str, page: &str) -> Vec<String> {
    let table = readme.split_once("\n## Measured\n").map_or("", |(_, rest)| rest);
    let table = table.split("\n## ").next().unwrap_or_default();
    let rows = table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| |"));
    let mut problems = Vec::new();
    let mut count = 0;
    for row in rows {
        count += 1;
        let label = row.trim_start_matches("| ").split(" |").next().unwrap_or_default();
        let begin = format!("| {label} |");
        let Some(of_page) = page.lines().find(|line| line.starts_with(&begin)) else {
            problems.push(format!("{README}: {PERFORMANCE} has no row '{label}'"));
            continue;
        };
        let known = numbers(of_page);
        let unknown = numbers(row).into_iter().filter(|number| !known.contains(number));
        problems
            .extend(unknown.map(|it| format!("{README}: '{label}' has {it}, {PERFORMANCE} not")));
    }
    if count == 0 {
        problems.push(format!("{README}: no table 'Measured'"));
    }
    problems
}

/// The numbers of a row with their units, such as `27 MB`, `70,600`.
fn numbers(row: &str) -> Vec<String> {
    let words: Vec<&str> = row.split_whitespace().collect();
    let is_number = |word: &str| word.starts_with(|letter: char| letter.is_ascii_digit());
    let units = ["us", "ms", "s", "KB", "MB", "GB"];
    let trimmed = |word: &str| word.trim_matches(|it: char| !it.is_alphanumeric()).to_owned();
    let found = words.iter().enumerate().filter(|(_, word)| is_number(word)).map(|(at, word)| {
        let unit = words.get(at + 1).map(|unit| trimmed(unit)).unwrap_or_default();
        if units.contains(&unit.as_str()) {
            format!("{} {unit}", trimmed(word))
        } else {
            trimmed(word)
        }
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_found_in_their_forms_only() {
        let page = "Every `a` (60), `x.b` (a\nparameter, 5000), `--c`, 1 GB by default.\n\
                    `d` (146 `Code`), `e` (0 for none), `f` (20,000).\n\n```\n`g` (1)\n```\n\
                    | `h` | 7 | more |\n";
        let found = stated_defaults(page);
        let expected = [("a", 60.0), ("b", 5000.0), ("c", 1.0), ("f", 20_000.0), ("h", 7.0)];
        assert_eq!(found, expected.map(|(name, number)| (name.to_owned(), number)));
    }

    #[test]
    fn a_default_is_compared_in_its_unit() {
        let names = [("ttlSecs", 60.0), ("oplogSizeMB", 1024.0), ("timeoutMillis", 5000.0)];
        let defaults = names.map(|(name, number)| (name.to_owned(), number)).into();
        let differs = |name: &str, stated: f64| differs(&defaults, "a.md", name, Some(stated));
        assert!(differs("ttlSecs", 60.0).is_none() && differs("other", 1.0).is_none());
        assert!(differs("oplogSizeMB", 1.0).is_none() && differs("timeoutMillis", 5.0).is_none());
        let problem = differs("ttlSecs", 61.0).unwrap();
        assert_eq!(problem, "a.md: the default of 'ttlSecs' is 60, not 61");
        assert!(differs("oplogSizeMB", 2.0).is_some() && differs("ttlSecs", 0.06).is_some());
    }

    #[test]
    fn a_pair_that_differs_is_found() {
        let places = (("a.md", "takes "), ("b.md", "| run | "));
        let problem =
            |first: &str, second: &str| pair_problem((places.0, first), (places.1, second));
        assert_eq!(problem("It takes\n7 minutes.", "| run | 7 min 1 s |"), None);
        assert!(problem("It takes 8 minutes.", "| run | 7 min |").unwrap().contains("a.md: 8"));
        assert!(problem("It lasts 7 minutes.", "| run | 7 min |").unwrap().contains("no number"));
    }

    #[test]
    fn a_measurement_that_differs_is_found() {
        let page = "| find | 70,600 (47,600 to 73,200) | 19.6 us |\n| idle | | 27 MB, no CPU |\n";
        let with = |rows: &str| {
            measured(&format!("# R\n\n## Measured\n\n| | |\n|---|---|\n{rows}\n## N\n"), page)
        };
        assert!(with("| find | 70,600 a second |\n| idle | 27 MB, no CPU |\n").is_empty());
        assert_eq!(with("| find | 70,700 a second |\n").len(), 1);
        assert_eq!(with("| idle | 27 GB |\n").len(), 1);
        assert_eq!(with("| scan | 1 |\n").len(), 1);
        assert_eq!(with("").len(), 1);
    }
}
