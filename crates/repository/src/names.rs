//! Names in a repository: identifiers, times, checksums and paths. Each type checks its text when
//! it is made, so that code that has a value of it need not check again. All of them read and write
//! JSON as texts, except [`ClusterTime`].

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::error::{Error, Result};

/// Longest text of a timeline's name, in bytes.
const MAX_TIMELINE_BYTES: usize = 64;
/// Longest path of a file in a manifest, and longest component of it, in bytes.
const MAX_PATH_BYTES: usize = 1024;
const MAX_COMPONENT_BYTES: usize = 255;

fn invalid(what: &'static str, text: &str, rule: &'static str) -> Error {
    Error::InvalidName { what, name: text.chars().take(80).collect(), rule }
}

/// Conversions of a type whose text [`FromStr`] checks, as `serde` needs them.
macro_rules! text_form {
    ($name:ident) => {
        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(text: String) -> Result<$name> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.to_string()
            }
        }
    };
}

/// The identity of a store: a UUID that it keeps for its whole life. A repository contains backups
/// of one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoreId(pub Uuid);

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for StoreId {
    type Err = Error;

    fn from_str(text: &str) -> Result<StoreId> {
        let id = Uuid::try_parse(text);
        id.map(StoreId).map_err(|_| invalid("the identity of a store", text, "a UUID"))
    }
}

/// The name of a backup: the time of its start in UTC with milliseconds, and eight random
/// hexadecimal digits, such as `20261127T212149123Z-1a2b3c4d`. The order of the texts is the order
/// of the starts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BackupId(String);

impl BackupId {
    /// A new name for a backup that starts at this time, in milliseconds since 1970.
    ///
    /// # Errors
    /// The time is outside of the years 0 to 9999.
    pub(crate) fn new(now_ms: i64) -> Result<BackupId> {
        let refused = |_| Error::Clock { now_ms };
        let time = Timestamp::from_millisecond(now_ms).map_err(refused)?;
        let random = rand::random::<u32>();
        let id = format!("{}Z-{random:08x}", time.strftime("%Y%m%dT%H%M%S%3f"));
        id.parse().map_err(|_| Error::Clock { now_ms })
    }

    /// The text of the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BackupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for BackupId {
    type Err = Error;

    fn from_str(text: &str) -> Result<BackupId> {
        const PATTERN: &[u8] = b"ddddddddTdddddddddZ-xxxxxxxx";
        let fits = |(byte, pattern): (&u8, &u8)| match pattern {
            b'd' => byte.is_ascii_digit(),
            b'x' => byte.is_ascii_digit() || (b'a'..=b'f').contains(byte),
            exact => byte == exact,
        };
        match text.len() == PATTERN.len() && text.as_bytes().iter().zip(PATTERN).all(fits) {
            true => Ok(BackupId(text.to_owned())),
            false => {
                Err(invalid("the name of a backup", text, "like 20261127T212149123Z-1a2b3c4d"))
            }
        }
    }
}

text_form!(BackupId);

/// The name of a timeline: a history of the store without a restore in it. A store that was
/// restored continues with a new timeline, because times of the old one may come again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timeline(String);

impl Timeline {
    /// The text of the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Timeline {
    type Err = Error;

    fn from_str(text: &str) -> Result<Timeline> {
        let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_valid = (1..=MAX_TIMELINE_BYTES).contains(&text.len())
            && text.bytes().all(|byte| is_allowed(byte) || byte == b'-');
        match is_valid {
            true => Ok(Timeline(text.to_owned())),
            false => Err(invalid(
                "the name of a timeline",
                text,
                "1 to 64 lowercase letters, digits and hyphens",
            )),
        }
    }
}

text_form!(Timeline);

/// A point in the log: seconds since 1970, and a number that orders the entries of one second.
///
/// Its JSON is `{"seconds": 1795814509, "increment": 3, "rfc3339": "2026-11-27T21:21:49Z"}`, where
/// the last field only helps readers. In names it is `1795814509.0000000003`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(try_from = "TimeFields", into = "TimeFields")]
pub struct ClusterTime {
    /// Seconds since 1970-01-01 UTC.
    pub seconds: u32,
    /// The number of the entry within its second, from 1.
    pub increment: u32,
}

#[derive(Serialize, Deserialize)]
struct TimeFields {
    seconds: u32,
    increment: u32,
    rfc3339: String,
}

impl ClusterTime {
    /// The time as RFC 3339 with whole seconds, such as `2026-11-27T21:21:49Z`.
    pub fn rfc3339(self) -> String {
        // Every 32-bit number of seconds is before the year 2107.
        let time = Timestamp::from_second(i64::from(self.seconds)).unwrap_or_default();
        time.to_string()
    }
}

impl From<ClusterTime> for TimeFields {
    fn from(time: ClusterTime) -> TimeFields {
        let ClusterTime { seconds, increment } = time;
        TimeFields { seconds, increment, rfc3339: time.rfc3339() }
    }
}

impl TryFrom<TimeFields> for ClusterTime {
    type Error = Error;

    fn try_from(fields: TimeFields) -> Result<ClusterTime> {
        let TimeFields { seconds, increment, rfc3339 } = fields;
        let time = ClusterTime { seconds, increment };
        match rfc3339 == time.rfc3339() {
            true => Ok(time),
            false => Err(invalid("'rfc3339'", &rfc3339, "the same time as 'seconds'")),
        }
    }
}

impl fmt::Display for ClusterTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:010}.{:010}", self.seconds, self.increment)
    }
}

impl FromStr for ClusterTime {
    type Err = Error;

    fn from_str(text: &str) -> Result<ClusterTime> {
        let number = |digits: &str| match digits.len() == 10
            && digits.bytes().all(|byte| byte.is_ascii_digit())
        {
            true => digits.parse().ok(),
            false => None,
        };
        let parsed = text.split_once('.').and_then(|(seconds, increment)| {
            Some(ClusterTime { seconds: number(seconds)?, increment: number(increment)? })
        });
        parsed.ok_or_else(|| invalid("a time", text, "like 1795814509.0000000003"))
    }
}

/// A SHA-256 checksum, written as 64 lowercase hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Checksum([u8; 32]);

impl Checksum {
    /// The checksum of these bytes.
    pub fn of(bytes: &[u8]) -> Checksum {
        Checksum(Sha256::digest(bytes).into())
    }

    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Checksum {
        Checksum(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Checksum {
    type Err = Error;

    fn from_str(text: &str) -> Result<Checksum> {
        let mut bytes = [0; 32];
        let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
        match is_lower && hex::decode_to_slice(text, &mut bytes).is_ok() {
            true => Ok(Checksum(bytes)),
            false => Err(invalid("a SHA-256", text, "64 lowercase hexadecimal digits")),
        }
    }
}

text_form!(Checksum);

/// The path of a file relative to the folder of a restore, with `/` between its components. It
/// cannot lead out of the folder: it is not absolute, and no component is empty, `.` or `..`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FilePath(String);

impl FilePath {
    /// The text of the path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The folders that contain the file, the innermost first.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &str> {
        let mut rest = self.0.as_str();
        std::iter::from_fn(move || {
            rest = rest.rsplit_once('/')?.0;
            Some(rest)
        })
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for FilePath {
    type Err = Error;

    fn from_str(text: &str) -> Result<FilePath> {
        let is_component = |part: &str| {
            (1..=MAX_COMPONENT_BYTES).contains(&part.len())
                && part != "."
                && part != ".."
                && !part.contains(|c: char| c.is_control() || matches!(c, '\\' | ':'))
        };
        match text.len() <= MAX_PATH_BYTES && text.split('/').all(is_component) {
            true => Ok(FilePath(text.to_owned())),
            false => Err(invalid(
                "the path of a file",
                text,
                "relative, with '/' between components that are not empty, '.' or '..' and contain \
                 no backslash, colon or control character",
            )),
        }
    }
}

text_form!(FilePath);
