//! Commands without their secrets, as `currentOp`, the profiler, the log and errors show them.

use std::borrow::Cow;

use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::{Row, RowFlags};

/// Fields that hold secrets wherever they stand in such a command.
const SECRET: &[&str] = &["pwd", "payload", "key"];
/// What stands in their place.
const HIDDEN: &str = "xxx";
/// The handshake's login, a document with a payload.
const SPECULATIVE: &str = "speculativeAuthenticate";

/// A command as it may be shown.
pub(crate) fn shown<'a>(row: &Row, body: RawDoc<'a>) -> Cow<'a, [u8]> {
    let secret = match row.flags.has(RowFlags::SECRET) {
        true => true,
        false => row.flags.has(RowFlags::BEFORE_AUTH) && body.get_element(SPECULATIVE).is_some(),
    };
    match secret {
        true => Cow::Owned(without_secrets(body).into_bytes()),
        false => Cow::Borrowed(body.as_bytes()),
    }
}

fn without_secrets(body: RawDoc<'_>) -> DocBuf {
    let mut out = DocBuilder::new();
    copy(body, &mut out);
    out.finish()
}

fn copy(body: RawDoc<'_>, out: &mut DocBuilder) {
    for field in body {
        match (field.name(), field.value()) {
            (name, _) if SECRET.contains(&name) => {
                out.append(name, HIDDEN);
            }
            (SPECULATIVE, RawValue::Document(inner)) => {
                out.start_document(SPECULATIVE);
                copy(inner, out);
                out.end();
            }
            _ => drop(out.append_element(field)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::find;
    use mayfly_value::bson::{Document, doc};

    fn shown_of(command: Document) -> Document {
        let name = command.keys().next().unwrap().clone();
        let body = DocBuf::from_bson(&command);
        let shown = shown(find(&name).unwrap().row, body.as_doc()).into_owned();
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
    }
}
