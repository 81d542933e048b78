//! The documents of `$listLocalSessions` and `$listSessions`: the sessions that this server remembers. It is the only one that
//! keeps them, so that both list the same.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::Service;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::Fields;

/// The digest of nobody: SHA-256 of the empty name.
pub(crate) const NOBODY: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
    0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// The sessions that the options ask for. Without access control all belong to nobody.
///
/// # Errors
/// 14, 40415; 12 UnsupportedFormat for all users and some at once.
pub(crate) fn local_sessions(
    service: &Service,
    stage: &'static str,
    options: RawDoc<'_>,
) -> Result<Vec<DocBuf>> {
    let known = &["allUsers", "users", "$_internalPredicate"];
    let fields = Fields::strict(options, stage, known)?;
    let all = fields.bool("allUsers")?.unwrap_or(false);
    let users = fields.array("users")?.filter(|users| !users.is_empty());
    if all && users.is_some() {
        let text = format!(
            "{stage} may not specify {{allUsers:true}} and {{users:[...]}} at the same time"
        );
        return Err(Error::new(ErrorCode::UnsupportedFormat, text));
    }
    if users.is_some() {
        return Ok(Vec::new());
    }
    let mut sessions = service.sessions.list(service.clock.now_ms());
    sessions.sort_by_key(|(id, _)| id.0);
    let documents = sessions.into_iter().map(|(id, last_use_ms)| {
        let mut doc = DocBuilder::new();
        doc.start_document("_id");
        doc.append("id", RawValue::Binary { subtype: 4, bytes: &id.0 });
        doc.append("uid", RawValue::Binary { subtype: 0, bytes: &NOBODY }).end();
        doc.append("lastUse", RawValue::Date(last_use_ms));
        doc.finish()
    });
    Ok(documents.collect())
}
