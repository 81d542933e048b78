//! Who is told of changes of definitions: the audit log.
//!
//! Collections and indexes are told by what the operation log says of them, once that holds, so that nothing that is logged is left
//! out, whichever command did it. The beginning and the failure of an index build are not logged, and views are documents; those are
//! told by themselves. The one who is told runs under the catalog's lock and must not change definitions.

use std::sync::OnceLock;

use mayfly_base::Namespace;
use mayfly_value::{RawDoc, RawValue};

use super::Writer;

/// A change of a definition.
pub enum DefinitionChange<'a> {
    /// A command of the operation log on a database, for example `{ create: "c" }`.
    Logged {
        /// The database.
        db: &'a str,
        /// The command.
        command: RawDoc<'a>,
    },
    /// The build of an index begins.
    BuildBegun {
        /// The collection.
        ns: &'a Namespace,
        /// The index's definition.
        spec: RawDoc<'a>,
    },
    /// An index was built anew, which is not logged.
    Rebuilt {
        /// The collection.
        ns: &'a Namespace,
        /// The index's definition.
        spec: RawDoc<'a>,
    },
    /// The build of an index failed.
    BuildAbandoned {
        /// The collection.
        ns: &'a Namespace,
        /// The index's definition.
        spec: RawDoc<'a>,
    },
    /// A view was created.
    ViewCreated {
        /// The view.
        ns: &'a Namespace,
        /// `viewOn`, `pipeline`.
        definition: RawDoc<'a>,
    },
    /// A view was dropped.
    ViewDropped {
        /// The view.
        ns: &'a Namespace,
        /// `viewOn`, `pipeline`.
        definition: RawDoc<'a>,
    },
}

type Hook = Box<dyn Fn(&DefinitionChange<'_>) + Send + Sync>;

/// Who is told.
#[derive(Default)]
pub(super) struct DefinitionHook(OnceLock<Hook>);

impl Writer {
    /// Names the one who is told of each change of a definition; the first one stays.
    pub fn on_definition(&self, hook: impl Fn(&DefinitionChange<'_>) + Send + Sync + 'static) {
        // A second one would belong to a second server over the same store, which cannot be.
        let _ = self.definition_hook.0.set(Box::new(hook));
    }

    /// Whether anybody wants to be told.
    pub(crate) fn has_definition_hook(&self) -> bool {
        self.definition_hook.0.get().is_some()
    }

    pub(crate) fn tell_definition(&self, change: &DefinitionChange<'_>) {
        if let Some(hook) = self.definition_hook.0.get() {
            hook(change);
        }
    }

    /// Tells of the commands in an entry of the log.
    pub(super) fn tell_logged(&self, operation: RawDoc<'_>) {
        let text = |name| operation.get(name).and_then(RawValue::as_str);
        let (Some("c"), Some(ns)) = (text("op"), text("ns")) else { return };
        let Some(command) = operation.get("o").and_then(RawValue::as_document) else { return };
        if let Some(RawValue::Array(items)) = command.get("applyOps") {
            let items = items.iter().filter_map(|item| item.value().as_document());
            return items.for_each(|item| self.tell_logged(item));
        }
        let db = ns.split_once('.').map_or(ns, |(db, _)| db);
        self.tell_definition(&DefinitionChange::Logged { db, command });
    }
}
