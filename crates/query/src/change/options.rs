//! The argument of `$changeStream` (manual, "$changeStream (aggregation)").

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{RawDoc, RawElement, RawValue};

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
    /// 50808, 40415, 40674, 14, 2 and errors of tokens.
    pub(crate) fn parse(value: RawValue<'_>) -> Result<ChangeOptions> {
        let RawValue::Document(fields) = value else {
            let text = "$changeStream stage expects a document as argument";
            return Err(Error::new(ErrorCode(50808), text));
        };
        let mut options = ChangeOptions {
            start: Start::Now,
            after: Image::Off,
            before: Image::Off,
            expanded: false,
            all: false,
        };
        let mut starts = 0;
        for field in fields {
            match field.name() {
                "fullDocument" => options.after = image(field, &["default", "updateLookup"])?,
                "fullDocumentBeforeChange" => options.before = image(field, &["off"])?,
                "showExpandedEvents" => options.expanded = flag(field)?,
                "allChangesForCluster" => options.all = flag(field)?,
                "resumeAfter" => {
                    let token = Token::parse(document(field)?)?;
                    if token.kind == TokenKind::Invalidate {
                        return Err(Error::new(
                            ErrorCode::InvalidResumeToken,
                            "Attempting to resume a change stream using 'resumeAfter' is not allowed from an \
                             invalidate notification.",
                        ));
                    }
                    (options.start, starts) = (Start::After(token), starts + 1);
                }
                "startAfter" => {
                    let token = Token::parse(document(field)?)?;
                    (options.start, starts) = (Start::After(token), starts + 1);
                }
                "startAtOperationTime" => {
                    let RawValue::Timestamp(timestamp) = field.value() else {
                        return Err(wrong_type(field, "timestamp"));
                    };
                    (options.start, starts) = (Start::At(timestamp), starts + 1);
                }
                "allowToRunOnConfigDB"
                | "allowToRunOnSystemNS"
                | "showMigrationEvents"
                | "showSystemEvents"
                | "showRawUpdateDescription" => {
                    if flag(field)? {
                        let text = format!("$changeStream with {}", field.name());
                        return Err(Error::not_implemented(text));
                    }
                }
                other => {
                    let text = format!("BSON field '$changeStream.{other}' is an unknown field.");
                    return Err(Error::new(ErrorCode(40415), text));
                }
            }
        }
        if starts > 1 {
            let text = "Only one type of resume option is allowed, but multiple were found.";
            return Err(Error::new(ErrorCode(40674), text));
        }
        Ok(options)
    }
}

fn wrong_type(field: RawElement<'_>, wanted: &str) -> Error {
    Error::type_mismatch(format!(
        "BSON field '$changeStream.{}' is the wrong type '{}', expected type '{wanted}'",
        field.name(),
        field.value().type_name()
    ))
}

fn document<'a>(field: RawElement<'a>) -> Result<RawDoc<'a>> {
    field.value().as_document().ok_or_else(|| wrong_type(field, "object"))
}

fn flag(field: RawElement<'_>) -> Result<bool> {
    match field.value() {
        RawValue::Bool(flag) => Ok(flag),
        _ => Err(wrong_type(field, "bool")),
    }
}

/// Parses an image option. `own` are the words that only this option supports.
fn image(field: RawElement<'_>, own: &[&str]) -> Result<Image> {
    let RawValue::String(word) = field.value() else { return Err(wrong_type(field, "string")) };
    match word {
        "whenAvailable" => Ok(Image::WhenAvailable),
        "required" => Ok(Image::Required),
        "updateLookup" if own.contains(&word) => Ok(Image::Lookup),
        word if own.contains(&word) => Ok(Image::Off),
        word => Err(Error::bad_value(format!(
            "Enumeration value '{word}' for field '$changeStream.{}' is not a valid value.",
            field.name()
        ))),
    }
}
