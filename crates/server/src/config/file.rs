//! The configuration file: YAML with the key names of mongod.conf. Every error names file and line.

use anyhow::{anyhow, bail};
use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};

use super::keys::{self, ALIASES, IGNORED, KEYS, PARAMETERS};

/// The deepest nesting of a key.
const MAX_DEPTH: usize = 5;

/// Keys whose values mongod takes from a program or a URL.
const EXPANSIONS: &[&str] = &["__exec", "__rest"];

/// A value from a file.
pub(super) struct Entry {
    pub(super) path: String,
    pub(super) text: String,
    pub(super) line: usize,
}

/// The contents of a file: values of keys, and all errors in the file.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) entries: Vec<Entry>,
    /// One message per error, with file and line.
    pub(super) mistakes: Vec<String>,
}

/// Parses a file; `name` is its name in messages.
///
/// # Errors
/// The text is not YAML.
pub(super) fn parse(name: &str, text: &str) -> anyhow::Result<Contents> {
    let documents = MarkedYaml::load_from_str(text).map_err(|error| anyhow!("{name}: {error}"))?;
    let mut contents = Contents::default();
    match documents.as_slice() {
        [] => {}
        [root] => contents.collect(name, root, &mut Vec::new()),
        _ => bail!("{name}: more than one YAML document"),
    }
    Ok(contents)
}

impl Contents {
    fn collect(&mut self, name: &str, node: &MarkedYaml<'_>, path: &mut Vec<String>) {
        let line = node.span.start.line();
        let dotted = path.join(".");
        match &node.data {
            YamlData::Mapping(mapping) if path.len() < MAX_DEPTH => {
                for (key, value) in mapping {
                    if let Err(mistake) = self.collect_key(name, key, value, path) {
                        self.mistakes.push(format!("{name}:{}: {mistake}", key.span.start.line()));
                    }
                }
            }
            // A key without a value, such as a section whose keys are all commented out.
            YamlData::Value(Scalar::Null) => {}
            _ => match scalar_text(node) {
                Some(text) if is_leaf(path) => {
                    self.entries.push(Entry { path: dotted, text, line });
                }
                _ if keys::ignored(&dotted).is_some() => {
                    self.entries.push(Entry { path: dotted, text: String::new(), line });
                }
                _ => self.mistakes.push(format!("{name}:{line}: unexpected value for '{dotted}'")),
            },
        }
    }

    /// Collects the values below a key; the error concerns the key itself.
    fn collect_key(
        &mut self,
        name: &str,
        key: &MarkedYaml<'_>,
        value: &MarkedYaml<'_>,
        path: &mut Vec<String>,
    ) -> Result<(), String> {
        let word = scalar_text(key).ok_or("a key is not text")?;
        if EXPANSIONS.contains(&word.as_str()) {
            let dotted = path.join(".");
            let of = if dotted.is_empty() { "the whole file" } else { &dotted };
            return Err(format!(
                "{of} is given by '{word}', which this server does not run: write the value itself"
            ));
        }
        path.push(word);
        let checked = check_known(path);
        if checked.is_ok() {
            self.collect(name, value, path);
        }
        path.pop();
        checked
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
        || keys::ignored(&path.join(".")).is_some()
}

/// The sections of the file.
const SECTIONS: &[&str] = &[
    "net",
    "storage",
    "replication",
    "security",
    "init",
    "auditLog",
    "archive",
    "operationProfiling",
    "processManagement",
    "systemLog",
    PARAMETERS,
];

/// Checks that a path is a key or a prefix of one.
fn check_known(path: &[String]) -> Result<(), String> {
    let dotted = path.join(".");
    let prefix = format!("{dotted}.");
    let leads = |known: &str| known == dotted || known.starts_with(&prefix);
    let aliases = ALIASES.iter().map(|alias| alias.0);
    let ignored = IGNORED.iter().map(|ignored| ignored.0);
    let mut known = KEYS.iter().map(|key| key.path).chain(aliases).chain(ignored);
    if path[0] == PARAMETERS || known.any(leads) || keys::ignored(&dotted).is_some() {
        return Ok(());
    }
    let names: Vec<&str> =
        if path.len() == 1 { SECTIONS.to_vec() } else { KEYS.iter().map(|key| key.path).collect() };
    let hint = keys::suggestion(&dotted, names.into_iter());
    Err(format!("unknown key '{dotted}'{hint}"))
}
