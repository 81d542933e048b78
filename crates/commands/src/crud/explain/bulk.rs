//! `explain` of `bulkWrite`: its only operation, as an `update` or `delete`.

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::request::Fields;
use crate::request::arguments::INFORMATION;

/// Fields of an operation that have another name in `update` and `delete`.
const NAMES: [(&str, &str); 3] = [("filter", "q"), ("updateMods", "u"), ("constants", "c")];

/// The database of the only operation's collection, and the operation as a command.
///
/// # Errors
/// 16 InvalidLength for several operations, 20 IllegalOperation for an insert, 2, 14, 40414 and
/// 40415 for invalid ones.
pub(super) fn as_write(body: RawDoc<'_>) -> Result<(String, DocBuf)> {
    let fields = Fields::new(body, "bulkWrite");
    let ops = fields.array("ops")?.ok_or_else(|| fields.missing("ops"))?;
    let infos = fields.array("nsInfo")?.ok_or_else(|| fields.missing("nsInfo"))?;
    let mut ops = ops.iter().map(|op| op.value());
    let (Some(op), None) = (ops.next(), ops.next()) else {
        let text = "explained write batches must be of size 1";
        return Err(Error::new(ErrorCode::InvalidLength, text));
    };
    let RawValue::Document(op) = op else { return Err(fields.wrong("ops", op, "object")) };
    let kind = op.iter().next().map_or("", |field| field.name());
    let list = match kind {
        "update" => "updates",
        "delete" => "deletes",
        "insert" => {
            let text = "Cannot explain cmd: insert";
            return Err(Error::new(ErrorCode::IllegalOperation, text));
        }
        other => return Err(Fields::new(op, "bulkWrite").unknown(other)),
    };
    let fields_of_op = Fields::new(op, "bulkWrite.ops");
    let place = fields_of_op.long(kind)?.and_then(|at| usize::try_from(at).ok());
    let info = place.and_then(|at| infos.iter().nth(at)).and_then(|it| it.value().as_document());
    let Some(info) = info else {
        return Err(Error::bad_value("BulkWrite ops entry 0 has an invalid nsInfo index."));
    };
    let info = Fields::new(info, "bulkWrite.nsInfo");
    let ns = Namespace::parse(info.string("ns")?.ok_or_else(|| info.missing("ns"))?)?;
    let mut out = DocBuilder::new();
    out.append(kind, ns.collection()).start_array(list).push_document();
    for field in op.iter().skip(1) {
        let name = NAMES.iter().find(|(name, _)| *name == field.name());
        match (kind, field.name()) {
            ("delete", "multi") => {}
            (_, same) => {
                out.append(name.map_or(same, |(_, name)| name), field.value());
            }
        }
    }
    if kind == "delete" {
        let multi = fields_of_op.bool("multi")?.unwrap_or(false);
        out.append("limit", if multi { 0 } else { 1 });
    }
    out.end().end();
    if let Some(variables) = fields.document("let")? {
        out.append("let", variables);
    }
    if let Some(information) = info.document(INFORMATION.name)? {
        out.append(INFORMATION.name, information);
    }
    Ok((ns.db().to_owned(), out.finish()))
}
