//! Statistics of a join for explain. Manual: "Explain Results", "Execution Plan Statistics for
//! Query with $lookup Pipeline Stage".

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use mayfly_value::DocBuilder;
use mayfly_work::OpCtx;

use crate::stage::sub::PipelineRun;

/// Counters of an operation at some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Examined {
    keys: u64,
    documents: u64,
}

impl Examined {
    /// The current counters.
    pub(crate) fn by(op: &OpCtx) -> Examined {
        let (keys, documents) = (op.keys_examined.load(Relaxed), op.docs_examined.load(Relaxed));
        Examined { keys, documents }
    }

    /// Documents examined since then.
    pub(crate) fn documents_since(self, op: &OpCtx) -> u64 {
        Examined::by(op).documents.saturating_sub(self.documents)
    }
}

/// Statistics of a join.
#[derive(Debug, Default)]
pub(crate) struct JoinStats {
    keys: u64,
    documents: u64,
    scans: u64,
    tables: u64,
    indexes: BTreeSet<String>,
}

impl JoinStats {
    /// Adds what was examined since `since`. Returns the number of documents.
    pub(crate) fn add_examined(&mut self, op: &OpCtx, since: Examined) -> u64 {
        let now = Examined::by(op);
        let documents = now.documents.saturating_sub(since.documents);
        self.keys += now.keys.saturating_sub(since.keys);
        self.documents += documents;
        documents
    }

    /// Adds the plan of a finished run over the other collection. Before its end the plan may still
    /// change.
    pub(crate) fn ran(&mut self, run: &PipelineRun) {
        self.scans += u64::from(run.scans_everything());
        run.each_index(&mut |name| {
            if !self.indexes.contains(name) {
                self.indexes.insert(name.to_owned());
            }
        });
    }

    /// Counts a table.
    pub(crate) fn made_table(&mut self) {
        self.tables += 1;
    }

    /// Appends the counters that the manual lists.
    pub(crate) fn append(&self, out: &mut DocBuilder) {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        out.append("totalDocsExamined", number(self.documents));
        out.append("totalKeysExamined", number(self.keys));
        out.append("collectionScans", number(self.scans)).start_array("indexesUsed");
        self.indexes.iter().for_each(|name| {
            out.push(name.as_str());
        });
        out.end();
    }

    /// Appends the strategy of a join by fields, and the indexes that it used.
    pub(crate) fn append_strategy(&self, out: &mut DocBuilder) {
        let strategy = match (self.tables > 0, self.indexes.is_empty()) {
            (true, _) => "HashJoin",
            (false, false) => "IndexedLoopJoin",
            (false, true) if self.scans > 0 => "NestedLoopJoin",
            // The other collection is empty.
            (false, true) => return,
        };
        out.append("strategy", strategy);
    }
}
