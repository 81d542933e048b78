//! `serverStatus`: the metrics for monitoring. They are the rows of [`mayfly_service::observe`];
//! this file orders their sections and adds fields that are not figures. `<section>: 0` omits a
//! section.

use mayfly_auth::Action;
use mayfly_base::Result;
use mayfly_service::Service;
use mayfly_service::observe::{Reading, Section};
use mayfly_value::{DocBuilder, RawValue};

use super::build_info::VERSION;
use super::member::{Role, append_member};
use crate::context::{Command, CommandContext};
use crate::request::row::RowFlags;
use crate::request::{Needs, Request};
use mayfly_value::arguments::convert::whole_number;

pub(crate) const ROW: Command = Command::new("serverStatus", "Returns the server's metrics", run)
    .needs(Needs::Cluster(&[Action::ServerStatus]))
    .flags(RowFlags::LENIENT);

/// Appends a section's fields other than figures, and the figures that precede them; the remaining
/// figures follow.
type ExtraFields = fn(&Service, &mut Section, &mut DocBuilder);

/// The sections in order.
const SECTIONS: &[(&str, ExtraFields)] = &[
    ("asserts", figures_only),
    ("batchedDeletes", figures_only),
    ("catalogStats", figures_only),
    ("connections", figures_only),
    ("diskSpace", figures_only),
    ("extra_info", extra_info),
    ("flowControl", figures_only),
    ("globalLock", figures_only),
    ("locks", figures_only),
    ("logicalSessionRecordCache", figures_only),
    ("network", figures_only),
    ("oplogTruncation", figures_only),
    ("opLatencies", figures_only),
    ("opcounters", figures_only),
    ("opcountersRepl", figures_only),
    ("opReadConcernCounters", figures_only),
    ("opWriteConcernCounters", figures_only),
    ("queues", figures_only),
    ("search", figures_only),
    ("security", security),
    ("storageEngine", storage_engine),
    ("transportSecurity", figures_only),
    ("transactions", figures_only),
    ("ttl", ttl),
    ("mem", memory),
    ("metrics", figures_only),
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    append(ctx, request, doc);
    Ok(())
}

/// Appends all fields of the reply.
pub(super) fn append(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) {
    let service = ctx.service;
    let commands: Vec<&'static str> =
        ctx.commands.commands().iter().map(|command| command.row.name).collect();
    let reading = Reading::new(service, &commands);
    doc.append("host", service.host.as_str());
    doc.append("version", VERSION);
    doc.append("process", "mongod");
    doc.start_array("service").push("mongod").end();
    doc.append("pid", i64::from(std::process::id()));
    for uptime in ["uptime", "uptimeMillis", "uptimeEstimate"] {
        Section::read(&reading, uptime).append_rest(doc);
    }
    doc.append("localTime", RawValue::Date(service.clock.now_ms()));
    if !switched_off(request, "repl") {
        replica_set(ctx, doc);
    }
    for (name, extra_fields) in SECTIONS.iter().filter(|(name, _)| !switched_off(request, name)) {
        let mut figures = Section::read(&reading, name);
        doc.start_document(name);
        extra_fields(service, &mut figures, doc);
        figures.append_rest(doc);
        doc.end();
    }
}

fn switched_off(request: &Request<'_>, section: &str) -> bool {
    match request.body.get(section) {
        Some(RawValue::Bool(flag)) => !flag,
        Some(value) => whole_number(value) == Some(0),
        None => false,
    }
}

fn replica_set(ctx: &CommandContext<'_>, doc: &mut DocBuilder) {
    let service = ctx.service;
    let Some(set) = service.replica_set.get() else { return };
    let role = Role::of(service);
    // mongostat reads the older name.
    doc.start_document("repl").append("ismaster", role.is_primary());
    doc.append("isWritablePrimary", role.is_primary());
    append_member(ctx, set, role, doc);
    doc.append("rbid", 1);
    let blocked = service.store.user_writes_blocked().is_some();
    doc.append("userWriteBlockMode", if blocked { 2 } else { 1 }).end();
}

fn figures_only(_: &Service, _: &mut Section, _: &mut DocBuilder) {}

fn extra_info(_: &Service, _: &mut Section, doc: &mut DocBuilder) {
    doc.append("note", "fields vary by platform");
}

/// The server's certificate follows the counts of logins.
fn security(service: &Service, figures: &mut Section, doc: &mut DocBuilder) {
    figures.append("authentication", doc);
    let transport = service.transport.get();
    let Some(certificate) = transport.and_then(|transport| transport.certificate()) else { return };
    doc.append("SSLServerSubjectName", certificate.subject.as_str());
    doc.append("SSLServerHasCertificateAuthority", certificate.has_authority);
    let expires = RawValue::Date(certificate.expires_ms);
    doc.append("SSLServerCertificateExpirationDate", expires);
}

fn storage_engine(service: &Service, _: &mut Section, doc: &mut DocBuilder) {
    doc.append("name", service.engine_name);
    doc.append("supportsCommittedReads", true);
    doc.append("persistent", service.engine_name != "memory");
}

/// An extension: whether expiry is suspended because the clock is not trusted, and why.
fn ttl(service: &Service, figures: &mut Section, doc: &mut DocBuilder) {
    figures.append("suspended", doc);
    if let Some(suspension) = service.store.expiry_suspension() {
        suspension.append_to(doc);
    }
}

fn memory(_: &Service, figures: &mut Section, doc: &mut DocBuilder) {
    doc.append("bits", 64);
    figures.append("resident", doc);
    figures.append("virtual", doc);
    doc.append("supported", true);
}
