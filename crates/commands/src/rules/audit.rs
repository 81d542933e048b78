//! Audit events of commands: whether they were authorized, and the events that commands create
//! themselves. A row declares them ([`Audited`]), and one function builds the event from the
//! request. Changes of collections and indexes are reported by the store instead
//! ([`mayfly_service::audit`]), because many commands make them implicitly.

use mayfly_base::{ErrorCode, Result};
use mayfly_service::{Actor, Connection, Service};
use mayfly_value::{DocBuilder, RawDoc, RawElement, RawValue};

use crate::request::row::{Audited, Names};
use crate::request::{Needs, Request, RowFlags};
use crate::rules::redaction;

/// Records whether a command was authorized, if this is known before it runs. For a command whose
/// handler checks its rights, [`finished`] records it.
#[cold]
pub(crate) fn authorized(
    service: &Service,
    connection: &Connection,
    request: &Request<'_>,
    code: ErrorCode,
) {
    if code != ErrorCode::OK || !matches!(request.row.needs, Needs::InHandler) {
        authorization(service, connection, request, code);
    }
}

/// Records whether a command was authorized. Commands that are allowed before a login create no
/// such event.
fn authorization(
    service: &Service,
    connection: &Connection,
    request: &Request<'_>,
    code: ErrorCode,
) {
    let row = request.row;
    let open = row.flags.contains(RowFlags::BEFORE_AUTH) && matches!(row.needs, Needs::Nothing);
    if open || code == ErrorCode::OK && !service.audit.has_authorization_success() {
        return;
    }
    service.audit(Actor::Client(connection), "authCheck", code, |param| {
        param.append("command", row.name);
        if let Some(collection) = request.target().as_str() {
            let full = row.names == Names::FullName;
            let ns = format!("{}.{collection}", request.db);
            param.append("ns", if full { collection } else { ns.as_str() });
        }
        let args = redaction::shown(row, request.body);
        param.append("args", RawDoc::new(&args).unwrap_or(RawDoc::EMPTY));
    });
}

/// Records the event of a command after it has run. A command whose handler refused it only has an
/// event about its authorization.
#[cold]
pub(crate) fn finished(
    service: &Service,
    connection: &Connection,
    request: &Request<'_>,
    result: &Result<()>,
) {
    let code = result.as_ref().map_or_else(|error| error.code(), |()| ErrorCode::OK);
    if code == ErrorCode::Unauthorized {
        return authorization(service, connection, request, code);
    }
    if matches!(request.row.needs, Needs::InHandler) {
        authorization(service, connection, request, ErrorCode::OK);
    }
    let (name, db, body) = (request.row.name, request.db, request.body);
    let target = request.target().as_str().unwrap_or_default();
    let note = |atype: &str, param: &dyn Fn(&mut DocBuilder)| {
        service.audit(Actor::Client(connection), atype, code, param);
    };
    match request.row.audited {
        Audited::No => {}
        event @ (Audited::User | Audited::UserChange) => note(name, &|param| {
            param.append("user", target).append("db", db);
            if matches!(event, Audited::UserChange) {
                param.append("passwordChanged", body.get_element("pwd").is_some());
            }
            append_arguments(request, param);
        }),
        Audited::Role => note(name, &|param| {
            param.append("role", target).append("db", db);
            append_arguments(request, param);
        }),
        Audited::Database => note(name, &|param| {
            param.append("db", db);
        }),
        Audited::Message => note("applicationMessage", &|param| {
            param.append("msg", target);
        }),
        Audited::ClientMetadata => {
            let sent = body.get("client").and_then(RawValue::as_document);
            if let Some(metadata) = sent.filter(|_| code == ErrorCode::OK) {
                note("clientMetadata", &|param| append_client(connection, metadata, param));
            }
        }
        Audited::Value(field) => note(name, &|param| {
            param.append(field, request.target());
        }),
        Audited::Documents => {
            for ns in changed_namespaces(request) {
                note("directAuthMutation", &|param| {
                    param.append("ns", ns.as_str()).append("operation", name);
                });
            }
        }
    }
}

/// Appends the given roles, privileges and other data of a user or role. Names of roles are
/// completed with the database.
fn append_arguments(request: &Request<'_>, param: &mut DocBuilder) {
    for field in request.body {
        match (field.name(), field.value()) {
            ("roles", RawValue::Array(roles)) => {
                param.start_array("roles");
                roles.iter().for_each(|role| append_role(role, request.db, param));
                param.end();
            }
            ("customData" | "privileges" | "authenticationRestrictions", _) => {
                param.append_element(field);
            }
            _ => {}
        }
    }
}

fn append_role(role: RawElement<'_>, db: &str, param: &mut DocBuilder) {
    match role.value() {
        RawValue::String(name) => {
            param.push_document().append("role", name).append("db", db).end();
        }
        other => drop(param.push(other)),
    }
}

fn append_client(connection: &Connection, metadata: RawDoc<'_>, param: &mut DocBuilder) {
    param.start_document("localEndpoint");
    match connection.local.parse::<std::net::SocketAddr>() {
        Ok(address) => {
            param.append("ip", address.ip().to_canonical().to_string().as_str());
            param.append("port", i32::from(address.port()));
        }
        Err(_) => drop(param.append("unix", connection.local.as_str())),
    }
    param.end().append("clientMetadata", metadata);
}

/// The collections of users and roles that a write names. The written documents are omitted,
/// because they contain credentials. Pipelines cannot write there.
fn changed_namespaces(request: &Request<'_>) -> Vec<String> {
    let mut named = Vec::new();
    match request.row.names {
        Names::Entries => collect_namespaces(request.body, &mut named),
        Names::List => {
            let infos = request.documents("nsInfo").ok().flatten().into_iter().flatten();
            named.extend(infos.filter_map(|info| Some(info.get("ns")?.as_str()?.to_owned())));
        }
        _ => {
            let collection = request.target().as_str().unwrap_or_default();
            named.push(format!("{}.{collection}", request.db));
        }
    }
    named.retain(|ns| matches!(&**ns, "admin.system.users" | "admin.system.roles"));
    named
}

/// The namespaces of log entries, including those in nested commands.
fn collect_namespaces(document: RawDoc<'_>, named: &mut Vec<String>) {
    for field in document {
        match (field.name(), field.value()) {
            ("ns", RawValue::String(ns)) => named.push(ns.to_owned()),
            (_, RawValue::Document(inner) | RawValue::Array(inner)) => {
                collect_namespaces(inner, named);
            }
            _ => {}
        }
    }
}
