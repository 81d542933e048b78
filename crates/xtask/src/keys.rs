//! The keys of the configuration file in `docs/configuration.md`: their flags, defaults and
//! comments, as `config/mayflydb.yaml` and the server's tables have them.
//!
//! The server's sources are read as text, so that the checks compile without the engine.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

const FILE: &str = "config/mayflydb.yaml";
const ROWS: &str = "crates/server/src/config/keys.rs";
/// The flags, whose documentation is the text of `--help`.
pub(crate) const FLAGS: &str = "crates/server/src/config/flags.rs";

const BEGIN: &str = "<!-- keys -->\n";
const END: &str = "<!-- end of keys -->\n";

/// A key of the configuration file.
#[derive(Debug, PartialEq)]
pub(crate) struct Key {
    /// The path with dots, such as `net.tls.mode`.
    pub(crate) path: String,
    /// The flag without its dashes, which is also the name in environment variables.
    pub(crate) flag: String,
    /// The default as the file has it.
    pub(crate) default: String,
    /// The comment above the key, in one line.
    pub(crate) help: String,
}

/// All keys, in the order of the file.
///
/// # Errors
/// A key without a comment or a flag.
pub(crate) fn all(root: &Path) -> Result<Vec<Key>> {
    let file = fs::read_to_string(root.join(FILE)).context(FILE)?;
    let rows = fs::read_to_string(root.join(ROWS)).context(ROWS)?;
    parse(&file, &flags(&rows))
}

fn parse(file: &str, flags: &[(&str, &str)]) -> Result<Vec<Key>> {
    let (mut path, mut help, mut keys) = (Vec::<&str>::new(), Vec::new(), Vec::new());
    for line in file.lines() {
        let text = line.trim_start();
        if let Some(comment) = text.strip_prefix('#') {
            help.push(comment.trim());
            continue;
        }
        let comment = std::mem::take(&mut help).join(" ");
        let Some((name, default)) = text.split_once(':') else { continue };
        path.truncate((line.len() - text.len()) / 2);
        path.push(name);
        let (path, default) = (path.join("."), default.trim());
        if default.is_empty() {
            continue;
        }
        let flag = match flags.iter().find(|row| row.0 == path) {
            Some((_, flag)) => (*flag).to_owned(),
            None if path == "setParameter" => path.clone(),
            None => anyhow::bail!("{ROWS}: no flag of '{path}'"),
        };
        anyhow::ensure!(!comment.is_empty(), "{FILE}: no comment of '{path}'");
        keys.push(Key { path, flag, default: default.to_owned(), help: comment });
    }
    Ok(keys)
}

/// The rows `key("path", "flag", ..)` of the server's table.
fn flags(rows: &str) -> Vec<(&str, &str)> {
    let found = rows.split("key(").skip(1).filter_map(|row| {
        let mut texts = row.split('"');
        let before = texts.next()?;
        let path = texts.next()?;
        let between = texts.next()?;
        let flag = texts.next()?;
        (before.trim().is_empty() && between.trim() == ",").then_some((path, flag))
    });
    found.collect()
}

/// The defaults in the documentation of flags, `[default: ..]`, each with its flag.
pub(crate) fn help_defaults(flags: &str) -> Vec<(String, String)> {
    let found = with_docs(flags).into_iter();
    found.filter_map(|(name, default)| Some((name, default?))).collect()
}

/// The flags, each with the default that its documentation states.
fn with_docs(flags: &str) -> Vec<(String, Option<String>)> {
    let (mut found, mut stated, mut long) = (Vec::new(), None, None);
    for line in flags.lines().map(str::trim) {
        if let Some((_, default)) = line.split_once("[default: ") {
            stated = Some(default.trim_end_matches(']').to_owned());
        } else if let Some((_, name)) = line.split_once("long = \"") {
            long = name.split('"').next().map(str::to_owned);
        } else if let Some((field, _)) =
            line.strip_prefix("pub(super) ").and_then(|field| field.split_once(':'))
        {
            found.push((long.take().unwrap_or_else(|| field.to_owned()), stated.take()));
        }
    }
    found
}

/// The long names of the flags on the command line.
fn long_flags(flags: &str) -> Vec<String> {
    with_docs(flags).into_iter().map(|(name, _)| name).collect()
}

/// The page with a table of the keys between its marks.
pub(crate) fn replaced(root: &Path, page: &str) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).context("no mark where the keys begin")?;
    let (_, after) = rest.split_once(END).context("no mark where the keys end")?;
    let flags = fs::read_to_string(root.join(FLAGS)).context(FLAGS)?;
    Ok(format!("{before}{BEGIN}\n{}\n{END}{after}", table(&all(root)?, &long_flags(&flags))))
}

fn table(keys: &[Key], flags: &[String]) -> String {
    let mut out = "| key | flag | default | what it does |\n|---|---|---|---|\n".to_owned();
    for Key { path, flag, default, help } in keys {
        let default = match default.as_str() {
            "\"\"" => "empty".to_owned(),
            "{}" => "none".to_owned(),
            other => format!("`{other}`"),
        };
        let help = help.replace('|', "\\|");
        let flag = if flags.contains(flag) { format!("`--{flag}`") } else { "-".to_owned() };
        let _ = writeln!(out, "| `{path}` | {flag} | {default} | {help} |");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = "# A file.\n\nnet:\n  # TCP port;\n  # 0 for any.\n  port: 27017\n  tls:\n    # A word.\n    mode: \"\"\n";

    #[test]
    fn keys_have_their_comments_and_flags() {
        let rows = "fn key(path: u8) {}\n key(\"net.port\", \"port\", X),\n key(\n  \"net.tls.mode\",\n  \"tlsMode\",\n";
        let keys = parse(YAML, &flags(rows)).unwrap();
        let key = |path: &str, flag: &str, default: &str, help: &str| Key {
            path: path.to_owned(),
            flag: flag.to_owned(),
            default: default.to_owned(),
            help: help.to_owned(),
        };
        let port = key("net.port", "port", "27017", "TCP port; 0 for any.");
        assert_eq!(keys, [port, key("net.tls.mode", "tlsMode", "\"\"", "A word.")]);
        assert!(parse(YAML, &[("net.port", "port")]).is_err());
    }

    #[test]
    fn the_help_of_flags_states_defaults() {
        let flags = "    /// Port [default: 27017]\n    #[arg(long)]\n    pub(super) port: u8,\n    /// None\n    pub(super) other: u8,\n    /// MB [default: 256]\n    #[arg(long = \"diskReserveMB\")]\n    pub(super) disk: u8,\n";
        let owned = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(help_defaults(flags), [owned("port", "27017"), owned("diskReserveMB", "256")]);
    }
}
