//! Visits of the TTL monitor in `system.profile`. Expiry contract, section 6.3.

use mayfly_storage::ttl::VisitReport;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::server::Service;

impl Service {
    /// Records a visit if its database is profiled. The monitor writes its own log line.
    pub(crate) fn profile_visit(&self, report: &VisitReport<'_>) {
        let info = report.op.info();
        let Some((db, _)) = info.ns.split_once('.') else { return };
        if !self.profiler.may_record(report.micros) {
            return;
        }
        let command = RawDoc::new(&info.command).unwrap_or(RawDoc::EMPTY);
        let mut describe = || document(report, &info.ns, command, &info.plan_summary);
        if !self.profiler.targets(db, report.micros, &mut describe).profile {
            return;
        }
        let kept = self.profiler.keep(&self.store, report.op, db, describe().as_doc());
        if let Err(error) = kept {
            tracing::debug!(%error, "a visit of the TTL monitor could not be written to system.profile");
        }
    }
}

fn document(report: &VisitReport<'_>, ns: &str, command: RawDoc<'_>, plan: &str) -> DocBuf {
    let mut doc = DocBuilder::new();
    doc.append("op", "remove").append("ns", ns);
    let statement = command.get("deletes").and_then(RawValue::as_array);
    let statement = statement.and_then(|list| list.iter().next());
    let statement = statement.and_then(|item| item.value().as_document());
    doc.append("command", statement.unwrap_or(RawDoc::EMPTY));
    doc.append("keysExamined", report.keys_examined);
    doc.append("docsExamined", report.docs_examined);
    doc.append("ndeleted", report.deleted).append("numYield", 0);
    doc.append("locks", RawDoc::EMPTY);
    doc.append("millis", i32::try_from(report.micros / 1000).unwrap_or(i32::MAX));
    doc.append("planSummary", plan);
    let stage = if report.batched { "BATCHED_DELETE" } else { "DELETE" };
    doc.start_document("execStats").append("stage", stage).end();
    doc.append("ts", RawValue::Date(report.op.now_ms()));
    doc.append("appName", "TTLMonitor").append("user", "__system@local");
    doc.finish()
}
