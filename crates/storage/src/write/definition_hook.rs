//! The hook for changes of definitions, used by the audit log.
//!
//! Changes of collections and indexes are reported from their entries in the operation log after
//! the commit, so that no logged change is missed, whichever command made it. The start and the
//! failure of an index build are not logged, and views are documents; these are reported
//! separately. The hook is called with the catalog's lock held and must not change definitions.

use std::sync::OnceLock;

use mayfly_base::Namespace;
use mayfly_value::{RawDoc, RawValue};

use super::Writer;

/// A change of a definition.
pub enum DefinitionChange<'a> {
    /// A command of the operation log on a database, for example `{ create: "c" }`.
    Logged {
        /// The database of the command.
        db: &'a str,
        /// The command as a document.
        command: RawDoc<'a>,
    },
    /// The build of an index began.
    BuildBegun {
        /// The collection of the index.
        ns: &'a Namespace,
        /// The index's definition.
        spec: RawDoc<'a>,
    },
    /// An index was rebuilt, which is not logged.
    Rebuilt {
        /// The collection of the index.
        ns: &'a Namespace,
        /// The index's definition.
        spec: RawDoc<'a>,
    },
    /// The build of an index failed.
    BuildAbandoned {
        /// The collection of the index.
        ns: &'a Namespace,
        /// The index's definition.
        spec: RawDoc<'a>,
    },
    /// A view was created.
    ViewCreated {
        /// The name of the view.
        ns: &'a Namespace,
        /// The fields `viewOn` and `pipeline`.
        definition: RawDoc<'a>,
    },
    /// A view was dropped.
    ViewDropped {
        /// The name of the view.
        ns: &'a Namespace,
        /// The fields `viewOn` and `pipeline`.
        definition: RawDoc<'a>,
    },
}

type Hook = Box<dyn Fn(&DefinitionChange<'_>) + Send + Sync>;

/// The hook, once it is set.
#[derive(Default)]
pub(super) struct DefinitionHook(OnceLock<Hook>);

impl Writer {
    /// Sets the hook; later calls have no effect.
    pub fn on_definition(&self, hook: impl Fn(&DefinitionChange<'_>) + Send + Sync + 'static) {
        // A second hook would belong to a second server over the same store, which is impossible.
        let _ = self.definition_hook.0.set(Box::new(hook));
    }

    /// Whether there is a hook.
    pub(crate) fn has_definition_hook(&self) -> bool {
        self.definition_hook.0.get().is_some()
    }

    pub(crate) fn report_definition(&self, change: &DefinitionChange<'_>) {
        if let Some(hook) = self.definition_hook.0.get() {
            hook(change);
        }
    }

    /// Calls the hook for the commands in an entry of the log.
    pub(super) fn report_logged(&self, operation: RawDoc<'_>) {
        let text = |name| operation.get(name).and_then(RawValue::as_str);
        let (Some("c"), Some(ns)) = (text("op"), text("ns")) else { return };
        let Some(command) = operation.get("o").and_then(RawValue::as_document) else { return };
        if let Some(RawValue::Array(items)) = command.get("applyOps") {
            let items = items.iter().filter_map(|item| item.value().as_document());
            return items.for_each(|item| self.report_logged(item));
        }
        let db = ns.split_once('.').map_or(ns, |(db, _)| db);
        self.report_definition(&DefinitionChange::Logged { db, command });
    }
}
