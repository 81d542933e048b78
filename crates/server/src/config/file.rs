//! The configuration file: YAML with the key names of mongod.conf, every problem with file and line.

use anyhow::{anyhow, bail};
use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};

use super::keys::{self, ALIASES, KEYS, PARAMETERS};

/// Deepest nesting of a key.
const MAX_DEPTH: usize = 4;

/// Keys whose values other servers take from a program or from a URL.
const EXPANSIONS: &[&str] = &["__exec", "__rest"];

/// A value from a file.
pub(super) struct Entry {
    pub(super) path: String,
    pub(super) text: String,
    pub(super) line: usize,
}

/// Reads a file's text; `name` is what messages call it.
pub(super) fn parse(name: &str, text: &str) -> anyhow::Result<Vec<Entry>> {
    let documents = MarkedYaml::load_from_str(text).map_err(|error| anyhow!("{name}: {error}"))?;
    let mut entries = Vec::new();
    match documents.as_slice() {
        [] => {}
        [root] => collect(name, root, &mut Vec::new(), &mut entries)?,
        _ => bail!("{name}: more than one YAML document"),
    }
    Ok(entries)
}

fn collect(
    name: &str,
    node: &MarkedYaml<'_>,
    path: &mut Vec<String>,
    entries: &mut Vec<Entry>,
) -> anyhow::Result<()> {
    let line = node.span.start.line();
    let dotted = path.join(".");
    match &node.data {
        YamlData::Mapping(mapping) if path.len() < MAX_DEPTH => {
            for (key, value) in mapping {
                let Some(word) = scalar_text(key) else {
                    bail!("{name}:{}: a key is not text", key.span.start.line());
                };
                if EXPANSIONS.contains(&word.as_str()) {
                    let line = key.span.start.line();
                    let of = if dotted.is_empty() { "the whole file" } else { &dotted };
                    bail!(
                        "{name}:{line}: {of} is given by '{word}', which this server does not run: write the value itself"
                    );
                }
                path.push(word);
                check_known(name, key.span.start.line(), path)?;
                collect(name, value, path, entries)?;
                path.pop();
            }
            Ok(())
        }
        // A key with nothing behind it, such as a section whose keys are all commented out.
        YamlData::Value(Scalar::Null) => Ok(()),
        _ => match scalar_text(node) {
            Some(text) if is_leaf(path) => {
                entries.push(Entry { path: dotted, text, line });
                Ok(())
            }
            _ => bail!("{name}:{line}: unexpected value for '{dotted}'"),
        },
    }
}

fn scalar_text(node: &MarkedYaml<'_>) -> Option<String> {
    match &node.data {
        YamlData::Value(Scalar::Boolean(value)) => Some(value.to_string()),
        YamlData::Value(Scalar::Integer(value)) => Some(value.to_string()),
        YamlData::Value(Scalar::FloatingPoint(value)) => Some(value.to_string()),
        YamlData::Value(Scalar::String(value)) => Some(value.to_string()),
        _ => None,
    }
}

fn is_leaf(path: &[String]) -> bool {
    path.first().is_some_and(|word| word == PARAMETERS && path.len() == 2)
        || keys::find(&path.join(".")).is_some()
}

/// A path must be a key or lead to one.
fn check_known(name: &str, line: usize, path: &[String]) -> anyhow::Result<()> {
    let dotted = path.join(".");
    let prefix = format!("{dotted}.");
    let leads = |known: &str| known == dotted || known.starts_with(&prefix);
    let known = || KEYS.iter().map(|key| key.path).chain(ALIASES.iter().map(|alias| alias.0));
    if path[0] == PARAMETERS || known().any(leads) {
        return Ok(());
    }
    let sections = [
        "net",
        "storage",
        "replication",
        "security",
        "auditLog",
        "archive",
        "systemLog",
        PARAMETERS,
    ];
    let names: Vec<&str> =
        if path.len() == 1 { sections.to_vec() } else { KEYS.iter().map(|key| key.path).collect() };
    let hint = keys::suggestion(&dotted, names.into_iter());
    bail!("{name}:{line}: unknown key '{dotted}'{hint}")
}
