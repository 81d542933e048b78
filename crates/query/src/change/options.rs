//! The argument of `$changeStream` (manual, "$changeStream (aggregation)").

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::RawValue;
use mayfly_value::arguments::{Argument, Fields, Form};

use super::split::Resumed;
use super::token::{Token, TokenKind};

/// The start of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
    Now,
    /// The first event at or after this timestamp.
    At(u64),
    /// The first event after this token.
    After(Token),
}

/// Which version of the document an event contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Image {
    Off,
    /// The version at the time at which the event is read.
    Lookup,
    WhenAvailable,
    Required,
}

/// The checked argument.
#[derive(Clone, Debug)]
pub(crate) struct ChangeOptions {
    pub(super) start: Start,
    /// `fullDocument`, for updates.
    pub(super) after: Image,
    /// `fullDocumentBeforeChange`.
    pub(super) before: Image,
    /// `showExpandedEvents`.
    pub(super) expanded: bool,
    /// `allChangesForCluster`.
    pub(crate) all: bool,
}

impl ChangeOptions {
    /// The fragment after which the stream resumes, if it resumes inside of an event.
    pub(crate) fn resumed(&self) -> Option<Resumed> {
        match self.start {
            Start::After(token) if token.fragment.is_some() => Some(Resumed { token }),
            Start::Now | Start::At(_) | Start::After(_) => None,
        }
    }

    /// Parses the argument.
    ///
    /// # Errors
    /// 6188500, the errors of [`ARGUMENTS`], 40674, 260 and errors of tokens.
    pub(crate) fn parse(value: RawValue<'_>) -> Result<ChangeOptions> {
        let RawValue::Document(given) = value else {
            let text = "$changeStream stage expects a document as argument";
            return Err(Error::new(ErrorCode(6_188_500), text));
        };
        let fields = Fields::read(given, "$changeStream", ARGUMENTS)?;
        for name in UNSUPPORTED {
            if fields.bool(name)? == Some(true) {
                return Err(Error::not_implemented(format_args!("$changeStream with {name}")));
            }
        }
        Ok(ChangeOptions {
            start: start(&fields)?,
            after: Image::named(fields.string("fullDocument")?),
            before: Image::named(fields.string("fullDocumentBeforeChange")?),
            expanded: fields.bool("showExpandedEvents")?.unwrap_or(false),
            all: fields.bool("allChangesForCluster")?.unwrap_or(false),
        })
    }
}

/// Options that are refused when they are true.
const UNSUPPORTED: &[&str] = &[
    "allowToRunOnConfigDB",
    "allowToRunOnSystemNS",
    "showMigrationEvents",
    "showSystemEvents",
    "showRawUpdateDescription",
];

pub(crate) const ARGUMENTS: &[Argument] = &[
    Argument::choice("fullDocument", &["default", "updateLookup", "whenAvailable", "required"]),
    Argument::choice("fullDocumentBeforeChange", &["off", "whenAvailable", "required"]),
    Argument::bool("showExpandedEvents").null_is_value(),
    Argument::bool("allChangesForCluster").null_is_value(),
    Argument::document("resumeAfter"),
    Argument::document("startAfter"),
    Argument::new("startAtOperationTime", Form::Timestamp),
    Argument::bool("allowToRunOnConfigDB").null_is_value(),
    Argument::bool("allowToRunOnSystemNS").null_is_value(),
    Argument::bool("showMigrationEvents").null_is_value(),
    Argument::bool("showSystemEvents").null_is_value(),
    Argument::bool("showRawUpdateDescription").null_is_value(),
];

/// The start of the stream, which one option at most may give.
fn start(fields: &Fields<'_>) -> Result<Start> {
    let mut starts = Vec::new();
    if let Some(token) = fields.document("resumeAfter")? {
        let token = Token::parse(token)?;
        if token.kind == TokenKind::Invalidate {
            return Err(Error::new(
                ErrorCode::InvalidResumeToken,
                "Attempting to resume a change stream using 'resumeAfter' is not allowed from an \
                 invalidate notification.",
            ));
        }
        starts.push(Start::After(token));
    }
    if let Some(token) = fields.document("startAfter")? {
        starts.push(Start::After(Token::parse(token)?));
    }
    if let Some(RawValue::Timestamp(time)) = fields.get("startAtOperationTime") {
        starts.push(Start::At(time));
    }
    if starts.len() > 1 {
        let text = "Only one type of resume option is allowed, but multiple were found.";
        return Err(Error::new(ErrorCode(40674), text));
    }
    Ok(starts.pop().unwrap_or(Start::Now))
}

impl Image {
    /// The version that an option names.
    fn named(word: Option<&str>) -> Image {
        match word {
            Some("updateLookup") => Image::Lookup,
            Some("whenAvailable") => Image::WhenAvailable,
            Some("required") => Image::Required,
            _ => Image::Off,
        }
    }
}
