//! Builds of search indexes as operations: `currentOp` shows one until its index is ready, and
//! `killOp` ends it. The index is then `FAILED` until its next definition or the next start.

use std::collections::HashMap;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode};
use mayfly_storage::{Collection, SearchIndex, SearchVersion};
use mayfly_value::DocBuilder;
use mayfly_work::op::OpProgress;
use mayfly_work::{OpCtx, OpGuard, OpInfo};

use crate::search::OpenSearch;
use crate::server::Service;

const PHASE: &str = "Search Index Build: reading documents";

/// The builds of one collection's search indexes, by the ids of their files.
#[derive(Default)]
pub(super) struct Builds(HashMap<u64, OpGuard>);

impl Builds {
    /// The operation of a version's build; it begins with its first step.
    pub(super) fn operation(
        &mut self,
        service: &Service,
        collection: &Collection,
        index: &SearchIndex,
        version: &SearchVersion,
    ) -> Arc<OpCtx> {
        let begin = || service.ops.begin(describe(collection, index, version));
        self.0.entry(version.file).or_insert_with(begin).op().clone()
    }

    /// Ends the operations of builds that are not among these versions, or not necessary any more.
    pub(super) fn retain(&mut self, indexes: &[Arc<SearchIndex>]) {
        if self.0.is_empty() {
            return;
        }
        let versions = || indexes.iter().flat_map(|index| &index.versions);
        let is_built = |version: &SearchVersion| {
            !version.is_ready() && !version.is_dropped() && version.failure().is_none()
        };
        self.0.retain(|file, _| versions().any(|it| it.file == *file && is_built(it)));
    }
}

fn describe(collection: &Collection, index: &SearchIndex, version: &SearchVersion) -> OpInfo {
    let namespace = collection.namespace();
    let named = index.view.as_deref().unwrap_or_else(|| namespace.collection());
    let mut command = DocBuilder::new();
    command.append("createSearchIndexes", named);
    command.start_array("indexes").push_document();
    command.append("name", index.name.as_str()).append("type", index.kind.as_str());
    command.append("definition", &version.definition).end().end();
    command.append("$db", namespace.db());
    OpInfo {
        desc: "SearchIndexBuild".into(),
        op: "command",
        ns: namespace.as_str().to_owned(),
        command: command.finish().as_doc().as_bytes().to_vec(),
        ..OpInfo::default()
    }
}

/// Shows how many documents the index has, of those of the collection.
pub(super) fn show_progress(op: &OpCtx, collection: &Collection, open: &OpenSearch) {
    let done = open.index.sizes().documents;
    let total = u64::try_from(collection.recorded_documents()).unwrap_or(0).max(done);
    op.update_info(|info| info.progress = Some(OpProgress { message: PHASE, done, total }));
}

/// Whether a step of a build was ended by `killOp`, and not by a shutdown.
pub(super) fn is_killed(error: &Error) -> bool {
    error.code() == ErrorCode::Interrupted
}
