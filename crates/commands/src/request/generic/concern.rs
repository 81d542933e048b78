//! Write concerns: the durability of a write before its acknowledgement.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use crate::request::fields::{whole_number, wrong_type};

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

/// A write concern that a single node cannot meet. Outside of a replica set, the command is
/// refused; the only member of a set writes and reports that other members did not acknowledge it
/// (manual, "Write Concern").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// It counts more members than exist.
    Members,
    /// It names a mode, which the configuration of a set would have to define.
    Mode,
}

impl Unmet {
    /// The error of a node outside of a replica set.
    pub(crate) fn refusal(self) -> Error {
        Error::bad_value(match self {
            Unmet::Members => "cannot use 'w' > 1 when a host is not replicated",
            Unmet::Mode => {
                "cannot use non-majority 'w' mode tag when a host is not a member of a replica set"
            }
        })
    }

    /// Appends `writeConcernError` of the only member of a set to the reply of a write.
    pub(crate) fn append(self, body: RawDoc<'_>, doc: &mut DocBuilder) {
        let concern = body.get("writeConcern").and_then(RawValue::as_document);
        let mode = concern.and_then(|concern| concern.get("w")).and_then(RawValue::as_str);
        let (code, text) = match self {
            Unmet::Members => {
                let text = "Not enough data-bearing nodes".to_owned();
                (ErrorCode::UnsatisfiableWriteConcern, text)
            }
            Unmet::Mode => {
                let mode = mode.unwrap_or_default();
                let text = format!(
                    "No write concern mode named '{mode}' found in replica set configuration"
                );
                (ErrorCode::UnknownReplWriteConcern, text)
            }
        };
        doc.start_document("writeConcernError").append("code", code.0);
        doc.append("codeName", code.name().as_ref()).append("errmsg", text.as_str());
        if let Some(concern) = concern {
            doc.start_document("errInfo").append("writeConcern", concern).end();
        }
        doc.end();
    }
}

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

    /// Parses a `writeConcern` argument.
    pub(crate) fn parse(value: RawValue<'_>) -> Result<WriteConcern> {
        let RawValue::Document(doc) = value else {
            return Err(wrong_type("writeConcern", value, "object"));
        };
        let mut concern = WriteConcern { given: true, ..WriteConcern::default() };
        for element in doc {
            let value = element.value();
            match element.name() {
                "w" => (concern.w, concern.unmet) = parse_w(value)?,
                // `fsync` is an obsolete name of `j`.
                name @ ("j" | "fsync") => {
                    let RawValue::Bool(flag) = value else {
                        let number = whole_number(value);
                        let Some(number) = number else {
                            let path = format!("writeConcern.{name}");
                            return Err(wrong_type(
                                &path,
                                value,
                                "[bool, long, int, decimal, double]",
                            ));
                        };
                        concern.j |= number != 0;
                        continue;
                    };
                    concern.j |= flag;
                }
                "wtimeout" => concern.wtimeout = whole_number(value).unwrap_or(0),
                "provenance" => {}
                other => {
                    let text = format!("unrecognized write concern field: {other}");
                    return Err(Error::failed_to_parse(text));
                }
            }
        }
        Ok(concern)
    }
}

fn parse_w(value: RawValue<'_>) -> Result<(Option<i64>, Option<Unmet>)> {
    match value {
        RawValue::String("majority") => Ok((None, None)),
        RawValue::String(_) => Ok((None, Some(Unmet::Mode))),
        other => match whole_number(other) {
            Some(w) if !(0..=MAX_W).contains(&w) => Err(Error::failed_to_parse(format!(
                "w has to be a non-negative number and not greater than {MAX_W}; found: {w}"
            ))),
            Some(w) if w > 1 => Ok((None, Some(Unmet::Members))),
            Some(w) => Ok((Some(w), None)),
            None => Err(Error::failed_to_parse("w has to be a number, string, or object")),
        },
    }
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
        assert_eq!(Unmet::Members.refusal().code(), ErrorCode::BadValue);
        let unknown = durability(|d| {
            d.append("x", 2);
        });
        assert_eq!(unknown.unwrap_err().code(), ErrorCode::FailedToParse);
    }
}
