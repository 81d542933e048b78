//! `logComponentVerbosity`: the verbosity of the log, in total and by component. -1 inherits that
//! of the level above.

use std::collections::BTreeMap;

use mayfly_base::{Error, Result};
use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawElement, RawValue};

/// The components and their subcomponents. Manual: "Log Messages", "Components". Some have no
/// messages here.
const COMPONENTS: &[(&str, &[&str])] = &[
    ("accessControl", &[]),
    ("assert", &[]),
    ("command", &[]),
    ("control", &[]),
    ("executor", &[]),
    ("ftdc", &[]),
    ("geo", &[]),
    ("index", &[]),
    ("network", &["asio", "bridge", "connectionPool"]),
    ("query", &["optimizer", "rejected"]),
    ("replication", &["election", "heartbeats", "initialSync", "rollback"]),
    ("sharding", &["shardingRefresh", "rangeDeleter", "migration"]),
    ("storage", &["journal", "recovery"]),
    ("transaction", &[]),
    ("write", &[]),
];

const NAME: &str = "logComponentVerbosity";
/// A component with this level has that of the level above.
const INHERITED: i32 = -1;

/// The verbosity levels of the log.
#[derive(Clone, Debug, Default)]
pub struct LogVerbosity {
    /// The level of all components without their own.
    all: i64,
    /// The levels of components, and of `component.subcomponent`.
    own: BTreeMap<String, i32>,
}

impl LogVerbosity {
    /// The same level for all components.
    pub fn of_all(all: i64) -> LogVerbosity {
        LogVerbosity { all, own: BTreeMap::new() }
    }

    /// The level of all components without their own.
    pub fn all(&self) -> i64 {
        self.all
    }

    /// The same levels with another one for components without their own.
    #[must_use]
    pub fn with_all(&self, all: i64) -> LogVerbosity {
        LogVerbosity { all, own: self.own.clone() }
    }

    /// The level of a component.
    pub fn level(&self, component: &str) -> i64 {
        self.own.get(component).map_or(self.all, |level| i64::from(*level))
    }

    /// The highest level of any component.
    pub fn highest(&self) -> i64 {
        self.own.values().map(|level| i64::from(*level)).fold(self.all, i64::max)
    }

    /// All levels as a document.
    pub(crate) fn document(&self) -> DocBuf {
        let level = |path: &str| self.own.get(path).copied().unwrap_or(INHERITED);
        let mut out = DocBuilder::new();
        out.append("verbosity", i32::try_from(self.all).unwrap_or(i32::MAX));
        for (component, parts) in COMPONENTS {
            out.start_document(component).append("verbosity", level(component));
            for part in *parts {
                let path = format!("{component}.{part}");
                out.start_document(part).append("verbosity", level(&path)).end();
            }
            out.end();
        }
        out.finish()
    }

    /// Applies a client's changes. An invalid part makes the whole change fail.
    ///
    /// # Errors
    /// 2 BadValue for unknown components and invalid levels.
    pub(crate) fn changed_by(&self, levels: RawDoc<'_>) -> Result<LogVerbosity> {
        let mut changed = self.clone();
        for element in levels {
            if element.name() == "verbosity" {
                changed.all = match level(element)? {
                    INHERITED => return Err(invalid("the level of everything has none above it")),
                    level => i64::from(level),
                };
                continue;
            }
            let found = COMPONENTS.iter().find(|(name, _)| *name == element.name());
            let Some((component, parts)) = found else { return Err(unknown(element.name())) };
            changed.set_component(component, parts, element)?;
        }
        Ok(changed)
    }

    /// Sets `component: 2`, or a document with the levels of the component and its subcomponents.
    fn set_component(
        &mut self,
        component: &str,
        parts: &[&str],
        element: RawElement<'_>,
    ) -> Result<()> {
        let RawValue::Document(levels) = element.value() else {
            self.set(component, level(element)?);
            return Ok(());
        };
        for inner in levels {
            let path = format!("{component}.{}", inner.name());
            match inner.value() {
                _ if inner.name() == "verbosity" => self.set(component, level(inner)?),
                _ if !parts.contains(&inner.name()) => return Err(unknown(inner.name())),
                RawValue::Document(part) => {
                    for element in part {
                        match element.name() {
                            "verbosity" => self.set(&path, level(element)?),
                            other => return Err(unknown(other)),
                        }
                    }
                }
                _ => self.set(&path, level(inner)?),
            }
        }
        Ok(())
    }

    fn set(&mut self, path: &str, level: i32) {
        match level {
            INHERITED => drop(self.own.remove(path)),
            level => drop(self.own.insert(path.to_owned(), level)),
        }
    }
}

fn level(element: RawElement<'_>) -> Result<i32> {
    let number = Number::from_value(element.value()).map(|number| number.to_f64());
    match number {
        Some(number) if number.trunc() >= -1.0 && number <= f64::from(i32::MAX) => {
            Ok(number as i32)
        }
        _ => Err(invalid(&format!("'{}' is not a 32-bit integer", element.name()))),
    }
}

fn unknown(name: &str) -> Error {
    invalid(&format!("there is no component '{name}'"))
}

fn invalid(why: &str) -> Error {
    Error::bad_value(format!("Invalid value for parameter {NAME}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_value::bson::{Document, doc};

    fn changed(from: &LogVerbosity, levels: &Document) -> Result<LogVerbosity> {
        from.changed_by(DocBuf::from_bson(levels).as_doc())
    }

    #[test]
    fn components_have_their_own_level_or_that_of_all() {
        let levels = changed(&LogVerbosity::of_all(1), &doc! {"query": {"verbosity": 3}}).unwrap();
        assert_eq!((levels.level("query"), levels.level("command")), (3, 1));
        assert_eq!((levels.all(), levels.highest()), (1, 3));
        let levels = changed(&levels, &doc! {"verbosity": 0, "query": 0}).unwrap();
        assert_eq!((levels.level("query"), levels.highest()), (0, 0));
        let levels = changed(&levels.with_all(2), &doc! {"query": -1}).unwrap();
        assert_eq!((levels.level("query"), levels.highest()), (2, 2));
        assert!(changed(&levels, &doc! {"verbosity": -1}).is_err());
        assert!(changed(&levels, &doc! {"query": -2}).is_err());
    }
}
