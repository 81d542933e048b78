//! The layers of the configuration: the value of each key and its origin.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, anyhow, bail};
use mayfly_service::machine::Memory;
use mayfly_service::parameters;
use mayfly_value::DocBuf;
use mayfly_value::bson::{Bson, Document};

use super::keys::{self, IMPLY_AUTHORIZATION, KEYS, Key, KeyKind, OTHER_ENGINE, PARAMETERS};
use super::{Flags, file};
use crate::failure::{Failure, FailureKind};

/// The built-in defaults.
const DEFAULTS: &str = include_str!("../../../../config/mayflydb.yaml");
/// The key of the cache size.
pub(super) const CACHE_SIZE: &str = "storage.cacheSizeGB";
/// The smallest cache that the server chooses, in GB.
const LEAST_CACHE: f64 = 0.03;
/// The cache size if the memory is unknown, in GB.
const UNKNOWN_CACHE: f64 = 0.25;
/// The prefix of environment variables.
const ENVIRONMENT_PREFIX: &str = "MAYFLYDB_";
/// Names with the prefix that are not keys.
const NOT_KEYS: [&str; 6] = [
    "MAYFLYDB_CONFIG",
    "MAYFLYDB_SETPARAMETER",
    "MAYFLYDB_GIT_VERSION",
    "MAYFLYDB_VERSION",
    crate::daemon::MARK,
    crate::kept_listeners::VARIABLE,
];

/// The prefix of variables for a first start.
const INITIAL_PREFIX: &str = "MONGO_INITDB_";

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The built-in file.
    Default,
    /// A line of a file.
    File(String, usize),
    /// An environment variable.
    Environment(String),
    /// A flag of the command line.
    Flag(String),
    /// The server, because a layer leaves the choice to it: that layer, and the reason.
    Chosen(Box<Origin>, String),
}

impl Origin {
    /// Whether no layer changes the default.
    fn is_default(&self) -> bool {
        match self {
            Origin::Chosen(by, _) => by.is_default(),
            other => *other == Origin::Default,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(name, line) => write!(f, "{name}:{line}"),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag(name) => write!(f, "flag --{name}"),
            Origin::Chosen(by, after) => write!(f, "{by}: {after}"),
        }
    }
}

/// The cache size in GB and its reason: a quarter of the memory leaves space for the system's page
/// cache, for memory of queries, and for other programs.
fn cache_after(memory: &Memory) -> (f64, String) {
    let all = memory.usable_bytes() as f64 / f64::from(1 << 30);
    let quarter = (all * 25.0).floor() / 100.0;
    let whose = if memory.limit_bytes.is_some() { "process's limit" } else { "machine" };
    match quarter {
        _ if all == 0.0 => (UNKNOWN_CACHE, "the memory of the system is unknown".to_owned()),
        quarter if quarter < LEAST_CACHE => {
            (LEAST_CACHE, format!("the least, of the {all:.2} GB of the {whose}"))
        }
        quarter => (quarter, format!("a quarter of the {all:.2} GB of the {whose}")),
    }
}

/// The arguments for `getCmdLineOpts`, without secrets.
pub fn shown_words(words: impl Iterator<Item = String>) -> Vec<String> {
    let is_secret = |word: &str| {
        let name = word.trim_start_matches('-');
        KEYS.iter().any(|key| matches!(key.kind, KeyKind::Secret) && key.flag == name)
    };
    let mut shown: Vec<String> = Vec::new();
    for word in words {
        let hidden = match (word.split_once('='), shown.last()) {
            (_, Some(before)) if is_secret(before) => HIDDEN.to_owned(),
            (Some((name, _)), _) if is_secret(name) => format!("{name}={HIDDEN}"),
            _ => word,
        };
        shown.push(hidden);
    }
    shown
}

/// The profiler's mode by its level, which mongod's command line accepts.
fn by_level(text: String) -> String {
    match text.as_str() {
        "0" => "off".to_owned(),
        "1" => "slowOp".to_owned(),
        "2" => "all".to_owned(),
        _ => text,
    }
}

/// Inserts a value into the section in its path.
fn insert_at(section: &mut Document, path: &str, value: Bson) {
    let Some((name, rest)) = path.split_once('.') else {
        section.insert(path, value);
        return;
    };
    let inner = section.entry(name).or_insert_with(|| Bson::Document(Document::new()));
    if let Bson::Document(inner) = inner {
        insert_at(inner, rest, value);
    }
}

/// The replacement of a secret, as in the reference.
const HIDDEN: &str = "<password>";

/// The failure for an error in one of the layers.
fn unusable(advice: &str) -> Failure {
    let advice = format!("{advice} (mayflydb --help lists all flags, --print-config all keys)");
    Failure::new(FailureKind::Options, "cannot use the configuration", advice)
}

/// All values with their origins.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    values: BTreeMap<String, (String, Origin)>,
    /// Ignored keys of mongod's configuration: value, origin and reason.
    ignored: BTreeMap<String, (String, Origin, &'static str)>,
    /// Environment variables for a first start.
    pub(super) initial: Vec<(String, String)>,
}

impl Layers {
    /// Only the built-in defaults.
    ///
    /// # Errors
    /// Not expected: the built-in file is tested.
    pub fn defaults() -> anyhow::Result<Layers> {
        let flags = Flags::default();
        Layers::collect(&flags, &[])
    }

    /// Sets the cache size from the memory if no layer sets it.
    pub(super) fn choose_cache(&mut self, memory: &Memory) {
        if let Some((text, origin)) = self.values.get_mut(CACHE_SIZE)
            && text.parse::<f64>().is_ok_and(|number| number == 0.0)
        {
            let (gigabytes, after) = cache_after(memory);
            *text = gigabytes.to_string();
            *origin = Origin::Chosen(Box::new(origin.clone()), after);
        }
    }

    /// Reads all four layers.
    ///
    /// # Errors
    /// Unknown keys and invalid values, with their origins; a file that cannot be read.
    pub fn collect(flags: &Flags, environment: &[(String, String)]) -> anyhow::Result<Layers> {
        let mut layers = Layers::from_sources(flags, environment)?;
        layers.choose_cache(&Memory::of_system());
        Ok(layers)
    }

    /// The values of the four layers, before the server's own choices.
    pub(super) fn from_sources(
        flags: &Flags,
        environment: &[(String, String)],
    ) -> anyhow::Result<Layers> {
        let mut layers = Layers::default();
        layers.add_file("built-in configuration", DEFAULTS, |_| Origin::Default)?;
        let from_environment = |name: &str| {
            environment.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
        };
        let path = flags.config.clone();
        if let Some(path) = path.or_else(|| from_environment("MAYFLYDB_CONFIG").map(Into::into)) {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(&path).with_context(|| {
                let tried = format!("cannot read configuration file {name}");
                let advice = "name another with --config or MAYFLYDB_CONFIG";
                Failure::new(FailureKind::Options, tried, advice)
            })?;
            layers
                .add_file(&name, &text, |line| Origin::File(name.clone(), line))
                .with_context(|| unusable("correct the file"))?;
        }
        layers
            .add_environment(environment)
            .with_context(|| unusable("correct the variable or unset it"))?;
        layers.add_flags(flags).with_context(|| unusable("correct the flag"))?;
        layers.imply_authorization();
        Ok(layers)
    }

    /// A key for members of a set enables authorization, unless a layer sets it.
    fn imply_authorization(&mut self) {
        let given = IMPLY_AUTHORIZATION.iter().find_map(|path| self.ignored.get(*path));
        let Some((_, by, _)) = given else { return };
        if let Some((text, origin)) = self.values.get_mut("security.authorization")
            && *origin == Origin::Default
        {
            (*text, *origin) = ("enabled".to_owned(), by.clone());
        }
    }

    fn add_flags(&mut self, flags: &Flags) -> anyhow::Result<()> {
        for (flag, text) in flags.given() {
            if let Some(key) = KEYS.iter().find(|key| key.flag == flag) {
                self.set(key.path, text, Origin::Flag(flag.to_owned()))?;
            }
        }
        for assignment in &flags.set_parameter {
            self.add_parameter(assignment, &Origin::Flag(PARAMETERS.to_owned()))?;
        }
        Ok(())
    }

    fn add_file(
        &mut self,
        name: &str,
        text: &str,
        at: impl Fn(usize) -> Origin,
    ) -> anyhow::Result<()> {
        let file::Contents { entries, mut mistakes } = file::parse(name, text)?;
        for entry in entries {
            if let Err(mistake) = self.set(&entry.path, entry.text, at(entry.line)) {
                mistakes.push(mistake.to_string());
            }
        }
        // All errors are reported together.
        match mistakes.is_empty() {
            true => Ok(()),
            false => bail!("{}", mistakes.join(", ")),
        }
    }

    fn add_environment(&mut self, environment: &[(String, String)]) -> anyhow::Result<()> {
        let is_initial = |(name, _): &&(String, String)| name.starts_with(INITIAL_PREFIX);
        self.initial = environment.iter().filter(is_initial).cloned().collect();
        for (variable, path) in super::traces::VARIABLES {
            if let Some((_, value)) = environment.iter().find(|(name, _)| name == variable) {
                self.set(path, value.clone(), Origin::Environment(variable.to_owned()))?;
            }
        }
        for (name, value) in environment {
            if !name.starts_with(ENVIRONMENT_PREFIX) {
                continue;
            }
            let origin = Origin::Environment(name.clone());
            if name == "MAYFLYDB_SETPARAMETER" {
                for assignment in value.split(',').filter(|part| !part.trim().is_empty()) {
                    self.add_parameter(assignment.trim(), &origin)?;
                }
            } else if let Some(key) = KEYS.iter().find(|key| key.environment() == *name) {
                self.set(key.path, value.clone(), origin)?;
            } else if !NOT_KEYS.contains(&name.as_str()) {
                let names: Vec<String> = KEYS.iter().map(Key::environment).collect();
                let hint = keys::suggestion(name, names.iter().map(String::as_str));
                bail!("unknown environment variable {name}{hint}");
            }
        }
        Ok(())
    }

    fn add_parameter(&mut self, assignment: &str, origin: &Origin) -> anyhow::Result<()> {
        let Some((name, value)) = assignment.split_once('=') else {
            bail!("{origin}: '{assignment}' is not NAME=VALUE");
        };
        self.set(&format!("{PARAMETERS}.{name}"), value.to_owned(), origin.clone())
    }

    fn set(&mut self, path: &str, text: String, origin: Origin) -> anyhow::Result<()> {
        if let Some(name) = path.strip_prefix(PARAMETERS).and_then(|rest| rest.strip_prefix('.')) {
            let Some(parameter) = parameters::find(name) else {
                let names = parameters::TABLE.iter().map(|parameter| parameter.name);
                let hint = keys::suggestion(name, names);
                bail!("{origin}: unknown server parameter '{name}'{hint}");
            };
            parameter
                .check_starting(&text)
                .map_err(|error| anyhow!("{origin}: {name}: {text}: {}", error.message()))?;
            self.values.insert(path.to_owned(), (text, origin));
            return Ok(());
        }
        if let Some(why) = keys::ignored(path) {
            self.ignored.insert(path.to_owned(), (text, origin, why));
            return Ok(());
        }
        let Some(key) = keys::find(path) else {
            bail!("{origin}: unknown key '{path}'");
        };
        let mut text = text;
        if key.path == "storage.engine" && text == OTHER_ENGINE {
            let why = "the engine is RocksDB";
            self.ignored.insert(path.to_owned(), (text, origin, why));
            return Ok(());
        }
        if key.path == "operationProfiling.mode" {
            text = by_level(text);
        }
        key.check(&text).map_err(|why| anyhow!("{origin}: {}: {why}", key.path))?;
        // Addresses override `bindIpAll` of a lower layer.
        if key.path == "net.bindIp" && origin != Origin::Default {
            self.values.insert("net.bindIpAll".to_owned(), ("false".to_owned(), origin.clone()));
        }
        self.values.insert(key.path.to_owned(), (text, origin));
        Ok(())
    }

    /// The text of a value.
    pub(super) fn text(&self, path: &str) -> anyhow::Result<String> {
        match self.values.get(path) {
            Some((text, _)) => Ok(text.clone()),
            None => bail!("key '{path}' has no default"),
        }
    }

    pub(super) fn bool(&self, path: &str) -> anyhow::Result<bool> {
        Ok(self.text(path)? == "true")
    }

    pub(super) fn integer(&self, path: &str) -> anyhow::Result<i64> {
        let text = self.text(path)?;
        text.parse().with_context(|| format!("{path}: '{text}' is not a whole number"))
    }

    pub(super) fn number(&self, path: &str) -> anyhow::Result<f64> {
        let text = self.text(path)?;
        text.parse().with_context(|| format!("{path}: '{text}' is not a number"))
    }

    /// Server parameters by name.
    pub(super) fn parameters(&self) -> Vec<(String, String)> {
        let prefix = format!("{PARAMETERS}.");
        let named = |(path, (text, _)): (&String, &(String, Origin))| {
            Some((path.strip_prefix(&prefix)?.to_owned(), text.clone()))
        };
        self.values.iter().filter_map(named).collect()
    }

    /// Whether no layer changes the default of a key.
    pub(super) fn is_default(&self, path: &str) -> bool {
        self.values.get(path).is_none_or(|(_, origin)| origin.is_default())
    }

    /// Whether a boolean server parameter is on.
    pub(super) fn switch(&self, name: &str) -> bool {
        let value = self.values.get(&format!("{PARAMETERS}.{name}"));
        value.is_some_and(|(text, _)| !matches!(text.as_str(), "false" | "0"))
    }

    /// Every value with its origin, one per line.
    pub fn describe(&self) -> String {
        let line = |(path, (text, origin)): (&String, &(String, Origin))| {
            let text = match text.as_str() {
                "" => "\"\"",
                _ if keys::find(path).is_some_and(|key| matches!(key.kind, KeyKind::Secret)) => {
                    HIDDEN
                }
                text => text,
            };
            format!("{path}: {text}  # {origin}\n")
        };
        let ignored = self.ignored.iter().map(|(path, (text, origin, why))| {
            let text = if text.is_empty() { "\"\"" } else { text };
            format!("{path}: {text}  # {origin}, ignored: {why}\n")
        });
        self.values.iter().map(line).chain(ignored).collect()
    }

    /// The ignored keys of mongod's configuration, one line each.
    pub(super) fn ignored(&self) -> Vec<String> {
        let line = |(path, (_, origin, why)): (&String, &(String, Origin, &str))| {
            format!("{origin}: {path} is ignored: {why}")
        };
        self.ignored.iter().map(line).collect()
    }

    /// The values that differ from the defaults, in the structure of the file, for
    /// `getCmdLineOpts`.
    pub fn parsed(&self) -> DocBuf {
        let mut parsed = Document::new();
        for (path, (text, origin)) in &self.values {
            if origin.is_default() {
                continue;
            }
            let value = match keys::find(path).map(|key| key.kind) {
                Some(KeyKind::Bool) => Bson::Boolean(text == "true"),
                Some(KeyKind::Integer { .. }) => text.parse().map_or(Bson::Null, Bson::Int32),
                Some(KeyKind::Size { .. } | KeyKind::Share) => {
                    text.parse().map_or(Bson::Null, Bson::Double)
                }
                Some(KeyKind::Secret) => Bson::String(HIDDEN.to_owned()),
                Some(KeyKind::Text | KeyKind::Word(_) | KeyKind::Choice(_)) | None => {
                    Bson::String(text.clone())
                }
            };
            insert_at(&mut parsed, path, value);
        }
        DocBuf::from_bson(&parsed)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn each_key_and_each_flag_has_a_line_of_help() {
        let (mut sections, mut explained) = (Vec::new(), Vec::new());
        let lines = || DEFAULTS.lines().map(str::trim_start);
        for ((before, line), indented) in lines().zip(lines().skip(1)).zip(DEFAULTS.lines().skip(1))
        {
            let Some((name, _)) = line.split_once(':').filter(|_| !line.starts_with('#')) else {
                continue;
            };
            sections.truncate((indented.len() - line.len()) / 2);
            sections.push(name);
            if before.starts_with('#') {
                explained.push(sections.join("."));
            }
        }
        for key in KEYS {
            assert!(explained.iter().any(|path| path == key.path), "{} has no comment", key.path);
        }
        for flag in Flags::command().get_arguments() {
            assert!(flag.get_help().is_some(), "--{} has no help", flag.get_id());
        }
    }
}
