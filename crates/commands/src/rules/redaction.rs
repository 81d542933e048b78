//! Commands without their secrets, for `currentOp`, the profiler, the log and errors.
//!
//! Commands with encrypted values are not shown: what a client asks for often, or at the same time
//! as another value, would say something about the values. Manual: "Queryable Encryption
//! Limitations", "Redaction".

use std::borrow::Cow;

use mayfly_base::is_client_data_redacted;
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::request::arguments::INFORMATION;
use crate::request::row::Hides;
use crate::request::{Request, Row};

/// Fields with secrets, anywhere in a command that hides secrets.
const SECRET: &[&str] = &["pwd", "payload", "key"];
/// The replacement of hidden values.
const HIDDEN: &str = "xxx";
/// The login in a handshake, a document with a payload.
const SPECULATIVE: &str = "speculativeAuthenticate";
/// The field of user documents with their credentials.
const CREDENTIALS: &str = "credentials";
/// Collections of user documents: that of the server, and the temporary one of tools.
const USERS: &[&str] = &["system.users", "tempusers"];

/// Whether a command, or the one that it explains, contains encrypted values.
pub(crate) fn is_encrypted(request: &Request<'_>) -> bool {
    let given =
        |body: RawDoc<'_>| !matches!(body.get(INFORMATION.name), None | Some(RawValue::Null));
    request.generic.is_encrypted
        || request.row.hides == Hides::Users
            && (request.target().as_document().is_some_and(given)
                || request.documents("nsInfo").ok().flatten().is_some_and(|mut it| it.any(given)))
}

/// A request as `currentOp` and errors show it: without its secrets, and only its name and target
/// if it contains encrypted values.
pub(crate) fn shown_request<'a>(request: &Request<'a>) -> Cow<'a, [u8]> {
    if !is_encrypted(request) {
        return shown(request.row, request.body);
    }
    let mut out = DocBuilder::new();
    match request.target() {
        RawValue::Document(_) => out.append(request.name, RawDoc::EMPTY),
        target => out.append(request.name, target),
    };
    out.append("$db", request.db);
    Cow::Owned(out.finish().into_bytes())
}

/// A command without its secrets.
pub(crate) fn shown<'a>(row: &Row, body: RawDoc<'a>) -> Cow<'a, [u8]> {
    let holds = match row.hides {
        Hides::Secrets => SecretKind::Secrets,
        Hides::Nothing | Hides::Users if names_users(row, body) => SecretKind::Users,
        Hides::Nothing | Hides::Users => return Cow::Borrowed(body.as_bytes()),
    };
    let mut out = DocBuilder::new();
    copy(body, holds, &mut out);
    Cow::Owned(out.finish().into_bytes())
}

/// What must be hidden in a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SecretKind {
    /// Passwords and messages of logins.
    Secrets,
    /// Documents of users.
    Users,
}

/// Whether a command may contain user documents.
fn names_users(row: &Row, body: RawDoc<'_>) -> bool {
    let target = body.iter().next().map(|first| first.value());
    match target {
        Some(RawValue::String(collection)) => USERS.contains(&collection),
        _ => row.hides == Hides::Users,
    }
}

fn copy(body: RawDoc<'_>, holds: SecretKind, out: &mut DocBuilder) {
    for field in body {
        let hides = match holds {
            SecretKind::Secrets => SECRET.contains(&field.name()),
            SecretKind::Users => {
                field.name() == CREDENTIALS || field.name().starts_with("credentials.")
            }
        };
        match field.value() {
            _ if hides => {
                out.append(field.name(), HIDDEN);
            }
            RawValue::Document(inner)
                if holds == SecretKind::Users || field.name() == SPECULATIVE =>
            {
                copy(inner, holds, out.start_document(field.name()));
                out.end();
            }
            RawValue::Array(inner) if holds == SecretKind::Users => {
                copy(inner, holds, out.start_array(field.name()));
                out.end();
            }
            _ => drop(out.append_element(field)),
        }
    }
}

/// A command for a log line: without values if `redactClientLogData` is on.
pub(crate) fn logged(command: RawDoc<'_>) -> String {
    match is_client_data_redacted() {
        true => Shell(without_values(command).as_doc()).to_string(),
        false => Shell(command).to_string(),
    }
}

/// A copy with all values hidden except documents and arrays.
fn without_values(document: RawDoc<'_>) -> DocBuf {
    fn copy(document: RawDoc<'_>, out: &mut DocBuilder) {
        for field in document {
            match field.value() {
                RawValue::Document(inner) => copy(inner, out.start_document(field.name())),
                RawValue::Array(inner) => copy(inner, out.start_array(field.name())),
                _ => {
                    out.append(field.name(), mayfly_base::HIDDEN);
                    continue;
                }
            }
            out.end();
        }
    }
    let mut out = DocBuilder::new();
    copy(document, &mut out);
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::find;
    use mayfly_value::bson::{Document, doc};

    fn shown_of(command: Document) -> Document {
        let name = command.keys().next().unwrap().clone();
        let body = DocBuf::from_bson(&command);
        let shown = shown(&find(&name).unwrap().command.row, body.as_doc()).into_owned();
        Document::from_reader(shown.as_slice()).unwrap()
    }

    #[test]
    fn no_secret_is_shown_and_everything_else_is() {
        for name in ["createUser", "updateUser"] {
            let shown = shown_of(doc! { name: "u", "pwd": "hunter2", "roles": ["read"] });
            assert_eq!(shown, doc! { name: "u", "pwd": "xxx", "roles": ["read"] });
        }
        for name in ["saslStart", "saslContinue"] {
            let shown = shown_of(doc! { name: 1, "payload": "hunter2", "$db": "admin" });
            assert_eq!(shown, doc! { name: 1, "payload": "xxx", "$db": "admin" });
        }
        let hello = doc! { "hello": 1, SPECULATIVE: { "saslStart": 1, "payload": "hunter2" } };
        let expected = doc! { "hello": 1, SPECULATIVE: { "saslStart": 1, "payload": "xxx" } };
        assert_eq!(shown_of(hello), expected);
        let find = doc! { "find": "c", "filter": { "pwd": "x" } };
        assert_eq!(shown_of(find.clone()), find);
        let keys = doc! { "SCRAM-SHA-256": { "storedKey": "hunter2" } };
        let user = |keys: mayfly_value::bson::Bson| doc! { "_id": "a.u", "credentials": keys };
        for collection in ["system.users", "tempusers"] {
            let insert = doc! { "insert": collection, "documents": [user(keys.clone().into())] };
            let expected = doc! { "insert": collection, "documents": [user("xxx".into())] };
            assert_eq!(shown_of(insert), expected);
        }
        let set = doc! { "$set": { "credentials.SCRAM-SHA-256": keys.clone() } };
        let shown = shown_of(doc! { "update": "system.users", "updates": [{ "q": {}, "u": set }] });
        assert!(!shown.to_string().contains("hunter2"), "{shown}");
        let op = doc! { "op": "i", "ns": "admin.system.users", "o": user(keys.into()) };
        let shown = shown_of(doc! { "applyOps": [op] });
        assert!(!shown.to_string().contains("hunter2"), "{shown}");
    }

    #[test]
    fn no_value_is_logged_while_client_data_is_left_out() {
        let find = doc! { "find": "c", "filter": { "a": [1, { "b": "x" }], "n": null } };
        let hidden = without_values(DocBuf::from_bson(&find).as_doc());
        let expected =
            doc! { "find": "###", "filter": { "a": ["###", { "b": "###" }], "n": "###" } };
        assert_eq!(hidden, DocBuf::from_bson(&expected));
    }
}
