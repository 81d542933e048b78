//! Audit events of collections, indexes, views and databases, from the changes that the store
//! reports. A change by a client's operation is recorded with its user, a change by the server
//! itself as the system's.

use mayfly_base::{ErrorCode, Namespace};
use mayfly_storage::DefinitionChange;
use mayfly_value::{DocBuilder, RawDoc, RawValue};
use mayfly_work::current;

use crate::records::Actor;
use crate::server::Service;

impl Service {
    pub(super) fn audit_definition(&self, change: &DefinitionChange<'_>) {
        match change {
            DefinitionChange::Logged { db, command } => self.audit_logged(db, *command),
            DefinitionChange::BuildBegun { ns, spec } => {
                self.audit_index(ns.as_str(), *spec, ("IndexBuildStarted", ErrorCode::OK));
            }
            DefinitionChange::Rebuilt { ns, spec } => {
                self.audit_index(ns.as_str(), *spec, ("IndexBuildSucceeded", ErrorCode::OK));
            }
            DefinitionChange::BuildAbandoned { ns, spec } => {
                let aborted = ("IndexBuildAborted", ErrorCode::IndexBuildAborted);
                self.audit_index(ns.as_str(), *spec, aborted);
            }
            DefinitionChange::ViewCreated { ns, definition } => {
                self.audit_view("createCollection", ns, *definition);
            }
            DefinitionChange::ViewDropped { ns, definition } => {
                self.audit_view("dropCollection", ns, *definition);
            }
        }
    }

    fn audit_logged(&self, db: &str, command: RawDoc<'_>) {
        let Some(first) = command.iter().next() else { return };
        let text = |name: &str| command.get(name).and_then(RawValue::as_str).unwrap_or_default();
        let ns = format!("{db}.{}", first.value().as_str().unwrap_or_default());
        match first.name() {
            "create" => {
                // The new collection is not published yet.
                if self.store.collections(Some(db)).is_empty() {
                    self.audit_current("createDatabase", ErrorCode::OK, |param| {
                        param.append("ns", db);
                    });
                }
                self.audit_current("createCollection", ErrorCode::OK, |param| {
                    param.append("ns", ns.as_str());
                });
            }
            "createIndexes" => {
                self.audit_index(&ns, command, ("IndexBuildSucceeded", ErrorCode::OK));
            }
            "drop" => self.audit_current("dropCollection", ErrorCode::OK, |param| {
                param.append("ns", ns.as_str());
            }),
            "dropIndexes" => self.audit_current("dropIndex", ErrorCode::OK, |param| {
                param.append("ns", ns.as_str()).append("indexName", text("index"));
            }),
            "dropDatabase" => self.audit_current("dropDatabase", ErrorCode::OK, |param| {
                param.append("ns", db);
            }),
            "renameCollection" => self.audit_current("renameCollection", ErrorCode::OK, |param| {
                param.append("old", text("renameCollection")).append("new", text("to"));
            }),
            // Changes of options are not events of the reference.
            _ => {}
        }
    }

    /// `spec` is the definition of the index, or the log's command: the collection's name and the
    /// definition.
    fn audit_index(&self, ns: &str, spec: RawDoc<'_>, (state, result): (&str, ErrorCode)) {
        self.audit_current("createIndex", result, |param| {
            let name = spec.get("name").and_then(RawValue::as_str).unwrap_or_default();
            param.append("ns", ns).append("indexName", name).start_document("indexSpec");
            for field in spec.iter().filter(|field| field.name() != "createIndexes") {
                param.append_element(field);
            }
            param.end().append("indexBuildState", state);
        });
    }

    fn audit_view(&self, atype: &str, ns: &Namespace, definition: RawDoc<'_>) {
        self.audit_current(atype, ErrorCode::OK, |param| {
            let on = definition.get("viewOn").and_then(RawValue::as_str).unwrap_or_default();
            param.append("ns", ns.as_str());
            param.append("viewOn", format!("{}.{on}", ns.db()).as_str());
            if let Some(pipeline) = definition.get("pipeline") {
                param.append("pipeline", pipeline);
            }
        });
    }

    /// Writes an event for the operation of this thread.
    fn audit_current(&self, atype: &str, result: ErrorCode, param: impl FnOnce(&mut DocBuilder)) {
        let mut id = 0;
        if let Some(op) = current::current().op {
            op.update_info(|info| id = info.connection_id);
        }
        let connection = self.connections.get(id);
        let actor = connection.as_deref().map_or(Actor::System, Actor::Client);
        self.audit(actor, atype, result, param);
    }
}
