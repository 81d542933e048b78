//! Read and write concerns, and how durable a write must be before it is acknowledged.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{RawDoc, RawValue};

use crate::fields::{whole_number, wrong_type};

/// Most members a write concern may count.
const MAX_W: i64 = 50;

/// How durable a write must be before its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// No acknowledgement is wanted (`w: 0`).
    None,
    /// In the log; synced within 100 ms.
    Logged,
    /// In the log and synced.
    Synced,
}

/// Which acknowledgement a write wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteConcern {
    /// A number of members; nothing for `majority`, which is also the default.
    pub w: Option<i64>,
    /// Synced to disk.
    pub j: bool,
    /// Milliseconds to wait, 0 without limit.
    pub wtimeout: i64,
    /// Whether the client sent one.
    pub given: bool,
}

impl WriteConcern {
    /// How durable a write must be before its reply.
    pub fn durability(&self) -> Durability {
        match self.w {
            _ if self.j => Durability::Synced,
            None => Durability::Synced,
            Some(0) => Durability::None,
            Some(_) => Durability::Logged,
        }
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
                "w" => concern.w = parse_w(value)?,
                // `fsync` is the old name of a synced write.
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

fn parse_w(value: RawValue<'_>) -> Result<Option<i64>> {
    match value {
        RawValue::String("majority") => Ok(None),
        RawValue::String(_) => Err(Error::bad_value(
            "cannot use non-majority 'w' mode tag when a host is not a member of a replica set",
        )),
        other => match whole_number(other) {
            Some(w) if !(0..=MAX_W).contains(&w) => Err(Error::failed_to_parse(format!(
                "w has to be a non-negative number and not greater than {MAX_W}; found: {w}"
            ))),
            Some(w) if w > 1 => {
                Err(Error::bad_value("cannot use 'w' > 1 when a host is not replicated"))
            }
            Some(w) => Ok(Some(w)),
            None => Err(Error::failed_to_parse("w has to be a number, string, or object")),
        },
    }
}

/// Which reads a command wants. On a single node all levels that are accepted read the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadConcern {
    /// The default.
    #[default]
    Local,
    /// As local.
    Available,
    /// Only what is durable.
    Majority,
}

impl ReadConcern {
    /// Parses a `readConcern` argument.
    pub(crate) fn parse(value: RawValue<'_>) -> Result<ReadConcern> {
        let RawValue::Document(doc) = value else {
            return Err(wrong_type("readConcern", value, "object"));
        };
        check_names(doc)?;
        match doc.get("level") {
            None => Ok(ReadConcern::Local),
            Some(RawValue::String(level)) => match level {
                "local" => Ok(ReadConcern::Local),
                "available" => Ok(ReadConcern::Available),
                "majority" => Ok(ReadConcern::Majority),
                "linearizable" | "snapshot" => Err(Error::new(
                    ErrorCode::NotAReplicaSet,
                    format!("node needs to be a replica set member to use readConcern: {level}"),
                )),
                other => Err(Error::bad_value(format!(
                    "Enumeration value '{other}' for field 'readConcern.level' is not a valid value."
                ))),
            },
            Some(other) => Err(wrong_type("readConcern.level", other, "string")),
        }
    }
}

fn check_names(doc: RawDoc<'_>) -> Result<()> {
    const KNOWN: &[&str] =
        &["level", "afterOpTime", "afterClusterTime", "atClusterTime", "provenance"];
    match doc.iter().find(|element| !KNOWN.contains(&element.name())) {
        Some(element) => {
            let text = format!("BSON field 'readConcern.{}' is an unknown field.", element.name());
            Err(Error::new(ErrorCode(40415), text))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_value::DocBuilder;

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
        assert_eq!(
            durability(|d| {
                d.append("w", 2);
            })
            .unwrap_err()
            .code(),
            ErrorCode::BadValue
        );
        let unknown = durability(|d| {
            d.append("x", 2);
        });
        assert_eq!(unknown.unwrap_err().code(), ErrorCode::FailedToParse);
    }
}
