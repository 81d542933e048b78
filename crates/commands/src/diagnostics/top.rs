//! `top`: the use of each collection since the start.

use mayfly_auth::Action;
use mayfly_base::Result;
use mayfly_service::top::{NamespaceUse, Usage, Use};
use mayfly_value::DocBuilder;

use super::scale::small;
use crate::context::{Command, CommandContext};
use crate::request::row::RowFlags;
use crate::request::{Needs, Request};

pub(crate) const ROW: Command = Command::new("top", "Returns the use of each collection", run)
    .needs(Needs::Cluster(&[Action::Top]))
    .flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT));

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    doc.start_document("totals").append("note", "all times in microseconds");
    let service = ctx.service;
    // Collections are also dropped without a command: by a policy, or at the end of an operation
    // that created one.
    service.top.forget_others(|namespace| service.has_namespace(namespace));
    for (namespace, used) in service.top.list() {
        doc.start_document(&namespace);
        append(&used, doc);
        doc.end();
    }
    doc.end();
    Ok(())
}

fn append(used: &NamespaceUse, doc: &mut DocBuilder) {
    for (name, usage) in ["total", "readLock", "writeLock"].into_iter().zip(used.sums()) {
        append_usage(name, usage, doc);
    }
    for kind in Use::ALL {
        append_usage(kind.name(), used.of(kind), doc);
    }
}

fn append_usage(name: &str, usage: Usage, doc: &mut DocBuilder) {
    doc.start_document(name);
    doc.append("time", small(usage.micros)).append("count", small(usage.count)).end();
}
