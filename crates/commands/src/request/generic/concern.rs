//! Write concerns: the durability of a write before its acknowledgement.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::{ReplicaSet, Service};
use mayfly_value::arguments::{Argument, convert::whole_number, error::wrong_type};
use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawValue};

use super::read_concern::PROVENANCES;
use crate::request::Fields;

/// The largest number of members in a write concern.
const MAX_W: i64 = 50;

/// The durability of a write before its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// No acknowledgement (`w: 0`).
    None,
    /// In the log, which is synced within 100 ms.
    Logged,
    /// In the log and synced to disk.
    Synced,
}

/// The acknowledgement that a write asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteConcern {
    /// The number of members; `None` for `majority`, which is also the default.
    pub w: Option<i64>,
    /// Whether the write must be synced to disk.
    pub j: bool,
    /// The timeout in milliseconds; 0 for none.
    pub wtimeout: i64,
    /// Whether the client sent one.
    pub given: bool,
    /// Why this node cannot meet it.
    pub unmet: Option<Unmet>,
}

/// A write concern that a single node cannot meet. The command writes, and reports that other
/// members did not acknowledge it (manual, "Write Concern").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// It counts more members than exist.
    Members,
    /// It names a mode, which the configuration of a set would have to define.
    Mode,
    /// It counts members by their tags, or is null, which stands for the mode with the empty name.
    Tags,
}

impl Unmet {
    /// Appends `writeConcernError` to the reply of a write, unless the members of the set meet the
    /// concern. A server outside of a set is its only member.
    #[cold]
    pub(crate) fn append(self, service: &Service, body: RawDoc<'_>, doc: &mut DocBuilder) {
        let default = service.defaults.get().write;
        let own = body.get("writeConcern").and_then(RawValue::as_document);
        let concern = own.or(default.as_ref().map(DocBuf::as_doc));
        let mode = concern.and_then(|concern| concern.get("w")).unwrap_or(RawValue::Null);
        let met = match self {
            // All members read the store in which a commit is durable.
            Unmet::Members => {
                let members = service.replica_set.get().map_or(1, ReplicaSet::count);
                Some(whole_number(mode).is_some_and(|w| w <= members))
            }
            Unmet::Mode | Unmet::Tags => meets(service, mode),
        };
        let (code, text) = match met {
            Some(true) => return,
            Some(false) => {
                let text = "Not enough data-bearing nodes".to_owned();
                (ErrorCode::UnsatisfiableWriteConcern, text)
            }
            None => {
                let mode = mode.as_str().unwrap_or_default();
                let text = format!(
                    "No write concern mode named '{mode}' found in replica set configuration"
                );
                (ErrorCode::UnknownReplWriteConcern, text)
            }
        };
        if own.is_none() {
            service.metrics.write_concern_waits.unsatisfiable_defaults.add(1);
        }
        doc.start_document("writeConcernError").append("code", code.0);
        doc.append("codeName", code.name().as_ref()).append("errmsg", text.as_str());
        if let Some(concern) = concern {
            doc.start_document("errInfo").append("writeConcern", concern).end();
        }
        doc.end();
    }
}

impl Unmet {
    /// Adds `writeConcernError` to the error of a command that failed: the reference waits for the
    /// write concern then, too, and drivers look for that field first.
    #[cold]
    pub(crate) fn add_to(self, service: &Service, body: RawDoc<'_>, error: Error) -> Error {
        let mut extra = DocBuilder::new();
        if let Some(own) = error.extra().and_then(RawDoc::new) {
            extra.append_all(own);
        }
        self.append(service, body, &mut extra);
        error.with_extra(extra.finish().into_bytes())
    }
}

/// Whether the only member of a set meets a `w` that names a mode or counts members by tags; `None`
/// for an unknown mode or tag.
pub(crate) fn meets(service: &Service, w: RawValue<'_>) -> Option<bool> {
    let config = service.replica_set.get()?.config();
    match w {
        RawValue::Document(counts) => config.meets_tags(counts),
        RawValue::String(mode) => config.meets_mode(mode),
        _ => config.meets_mode(""),
    }
}

/// The fields of a write concern. Manual: "Write Concern".
const DECLARED: &[Argument] = &[
    Argument::any("w"),
    Argument::flag("j"),
    Argument::flag("fsync"),
    Argument::any("wtimeout"),
    Argument::choice("provenance", PROVENANCES),
];

impl WriteConcern {
    /// The durability of the write before its reply.
    pub fn durability(&self) -> Durability {
        match self.w {
            _ if self.j => Durability::Synced,
            None => Durability::Synced,
            Some(0) => Durability::None,
            Some(_) => Durability::Logged,
        }
    }

    /// The number of members in `w`; 2 stands for every number above 1.
    ///
    /// # Errors
    /// 9 FailedToParse for an invalid number.
    pub(crate) fn parse_members(value: RawValue<'_>) -> Result<i64> {
        parse_w(value).map(|(w, _)| w.unwrap_or(2))
    }

    /// Parses a `writeConcern` argument; null counts as absent.
    ///
    /// # Errors
    /// The errors of [`DECLARED`], 9 FailedToParse for an invalid `w` or `wtimeout`.
    pub(crate) fn parse(value: RawValue<'_>) -> Result<WriteConcern> {
        let doc = match value {
            RawValue::Null | RawValue::Undefined => return Ok(WriteConcern::default()),
            RawValue::Document(doc) => doc,
            other => return Err(wrong_type("writeConcern", other, "object")),
        };
        let mut concern = WriteConcern { given: true, ..WriteConcern::default() };
        // The form that drivers send with every write.
        let mut parts = doc.iter();
        if let (Some(only), None) = (parts.next(), parts.next())
            && only.name_bytes() == b"w"
        {
            (concern.w, concern.unmet) = parse_w(only.value())?;
            return Ok(concern);
        }
        let fields = Fields::read(doc, "writeConcern", DECLARED)?;
        // Null is the write concern mode with the empty name.
        if let Some(w) = doc.get("w") {
            (concern.w, concern.unmet) = parse_w(w)?;
        }
        // `fsync` is an obsolete name of `j`.
        let (j, fsync) = (fields.bool("j")? == Some(true), fields.bool("fsync")? == Some(true));
        if j && fsync {
            return Err(Error::failed_to_parse("fsync and j options cannot be used together"));
        }
        concern.j = j || fsync;
        // Other types than numbers are ignored.
        concern.wtimeout = fields.get("wtimeout").and_then(whole_number).unwrap_or(0);
        if concern.wtimeout > i64::from(i32::MAX) {
            let text = format!("wtimeout must be within int32 range, found: {}", concern.wtimeout);
            return Err(Error::failed_to_parse(text));
        }
        Ok(concern)
    }
}

fn parse_w(value: RawValue<'_>) -> Result<(Option<i64>, Option<Unmet>)> {
    match value {
        RawValue::String("majority") => Ok((None, None)),
        RawValue::String(_) => Ok((None, Some(Unmet::Mode))),
        RawValue::Document(tags) if tags.is_empty() => {
            Err(Error::failed_to_parse("tagged write concern requires tags"))
        }
        RawValue::Document(tags) if tags.iter().any(|tag| !tag.value().is_number()) => {
            let text = "tags must be a single level document with only number values";
            Err(Error::failed_to_parse(text))
        }
        RawValue::Document(_) | RawValue::Null | RawValue::Undefined => {
            Ok((None, Some(Unmet::Tags)))
        }
        other => match whole_number(other) {
            Some(w) if !(0..=MAX_W).contains(&w) || is_nan(other) => {
                Err(Error::failed_to_parse(format!(
                    "w has to be a non-negative number and not greater than {MAX_W}; found: {w}"
                )))
            }
            Some(w) if w > 1 => Ok((None, Some(Unmet::Members))),
            Some(w) => Ok((Some(w), None)),
            None => Err(Error::failed_to_parse("w has to be a number, string, or object")),
        },
    }
}

fn is_nan(value: RawValue<'_>) -> bool {
    Number::from_value(value).is_some_and(Number::is_nan)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durability(build: impl FnOnce(&mut DocBuilder)) -> Result<Durability> {
        let mut doc = DocBuilder::new();
        build(&mut doc);
        let doc = doc.finish();
        WriteConcern::parse((&doc).into()).map(|concern| concern.durability())
    }

    #[test]
    fn write_concerns_become_durabilities() {
        assert_eq!(WriteConcern::default().durability(), Durability::Synced);
        assert_eq!(
            durability(|d| {
                d.append("w", "majority");
            })
            .unwrap(),
            Durability::Synced
        );
        assert_eq!(
            durability(|d| {
                d.append("w", 1);
            })
            .unwrap(),
            Durability::Logged
        );
        assert_eq!(
            durability(|d| {
                d.append("w", 0);
            })
            .unwrap(),
            Durability::None
        );
        let synced = durability(|d| {
            d.append("w", 1).append("j", true);
        });
        assert_eq!(synced.unwrap(), Durability::Synced);
        let more = durability(|d| {
            d.append("w", 2);
        });
        assert_eq!(more.unwrap(), Durability::Synced);
        let unknown = durability(|d| {
            d.append("x", 2);
        });
        assert_eq!(unknown.unwrap_err().code(), ErrorCode(40415));
    }
}
