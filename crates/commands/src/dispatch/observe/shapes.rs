//! Records an operation by its query shape.

use std::sync::atomic::Ordering::Relaxed;

use mayfly_query::QueryShape;
use mayfly_service::ShapeRun;
use mayfly_service::query_settings::namespace_of;
use mayfly_value::{RawDoc, RawValue};
use mayfly_work::OpInfo;

use super::Observed;
use crate::request::OpKind;
use crate::request::row::Reads;

impl Observed<'_> {
    /// Adds the operation to those of its shape.
    #[cold]
    pub(super) fn record_shape(&self, micros: i64) {
        if !self.may_have_shape() {
            return;
        }
        self.op.update_info(|info| {
            if let Some(shape) = self.statistics_shape(info) {
                self.record_as(&shape, info, micros);
            }
        });
    }

    /// False for commands that read or change no documents by a filter, which are not recorded.
    /// This test allocates nothing.
    fn may_have_shape(&self) -> bool {
        let row = self.request.row;
        match row.kind {
            OpKind::Query | OpKind::Update | OpKind::Delete | OpKind::GetMore => true,
            OpKind::Insert => false,
            OpKind::Command => {
                row.reads.contains(Reads::COUNTED) || self.request.body.get("query").is_some()
            }
        }
    }

    fn record_as(&self, shape: &QueryShape, info: &OpInfo, micros: i64) {
        let planning = &self.op.planning;
        self.service.shapes.record(
            shape,
            &ShapeRun {
                plan_summary: &info.plan_summary,
                micros,
                keys_examined: self.op.keys_examined.load(Relaxed),
                docs_examined: self.op.docs_examined.load(Relaxed),
                docs_returned: self.op.docs_returned.load(Relaxed),
                has_sort_stage: self.op.has_sort_stage.load(Relaxed),
                used_disk: !self.op.spills.is_empty(),
                from_multi_planner: planning.by_trial.load(Relaxed),
                from_plan_cache: planning.from_cache.load(Relaxed),
                is_slow: self.service.profiler.is_slow(micros),
                now_ms: self.service.clock.now_ms(),
            },
        );
    }

    /// The shape under which an operation is counted: that of the query, of a write with one
    /// statement, or of the command that opened the cursor of a `getMore`.
    fn statistics_shape(&self, info: &OpInfo) -> Option<QueryShape> {
        let (row, body) = (self.request.row, self.request.body);
        let field = |name: &str| body.get(name).and_then(RawValue::as_document);
        if row.kind == OpKind::GetMore {
            let origin = info.originating_command.as_deref().and_then(RawDoc::new)?;
            let first = origin.iter().next()?;
            let ns = namespace_of(self.request.db, first.value())?;
            return QueryShape::of(first.name(), &ns, origin);
        }
        if let Some(shape) = self.shape() {
            return Some(shape);
        }
        let ns = namespace_of(self.request.db, self.request.target())?;
        let of = |filter: Option<RawDoc<'_>>, sort| {
            let filter = filter.unwrap_or(RawDoc::EMPTY);
            Some(QueryShape::of_statement(row.name, &ns, filter, sort))
        };
        match row.kind {
            _ if self.result.is_err() => None,
            OpKind::Update | OpKind::Delete => {
                let mut statements = self.statement_list()?;
                let (Some(only), None) = (statements.next(), statements.next()) else {
                    return None;
                };
                of(only.get("q").and_then(RawValue::as_document), None)
            }
            _ => of(Some(field("query")?), field("sort")),
        }
    }
}
