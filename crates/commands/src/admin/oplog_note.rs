//! `appendOplogNote`: writes a no-op entry to the operation log. Tools use it to advance the
//! cluster time.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_value::arguments::error::mistyped;
use mayfly_value::{DocBuilder, RawValue};

use crate::context::{Command, CommandContext};
use crate::request::row::{RowFlags, Writes};
use crate::request::{Needs, Request};

pub(super) const ROW: Command =
    Command::new("appendOplogNote", "Writes a note to the operation log", run)
        .needs(Needs::Cluster(&[Action::AppendOplogNote]))
        .flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT))
        .writes(Writes::Settings);

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let data = match request.body.get("data") {
        Some(RawValue::Document(data)) => data,
        Some(other) => {
            return Err(mistyped(format!(
                "\"data\" had the wrong type. Expected object, found {}",
                other.type_name()
            )));
        }
        None => {
            let text = "Missing expected field \"data\"";
            return Err(Error::new(ErrorCode::NoSuchKey, text));
        }
    };
    let size = data.as_bytes().len();
    if size > limits::MAX_USER_DOCUMENT_BYTES {
        return Err(Error::new(
            ErrorCode::BSONObjectTooLarge,
            format!("the note has {size} bytes, more than {}", limits::MAX_USER_DOCUMENT_BYTES),
        ));
    }
    ctx.service.store.append_note(data)?;
    Ok(())
}
