//! A command as handlers see it: name, database, body, document sequences, generic arguments.

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_value::{RawDoc, RawValue};

use crate::request::generic::is_generic;
use crate::request::{Fields, Generic, Row, RowFlags};
use mayfly_value::arguments::error::wrong_type;

/// A document sequence: documents of a command's field in a section of their own.
#[derive(Clone, Copy, Debug)]
pub struct DocumentSequence<'a> {
    /// The name of the field, for example `documents`.
    pub name: &'a str,
    /// The documents, concatenated.
    pub documents: &'a [u8],
    /// The number of documents.
    pub count: usize,
}

/// A parsed command.
pub struct Request<'a> {
    /// The row of the command.
    pub row: &'static Row,
    /// The name in the request.
    pub name: &'a str,
    /// The database that the command runs on, from `$db` or a legacy message.
    pub db: &'a str,
    /// The whole command including generic arguments.
    pub body: RawDoc<'a>,
    /// The generic arguments.
    pub generic: Generic<'a>,
    pub(crate) sequences: &'a [DocumentSequence<'a>],
    /// The UUID that a log entry gives to the collection that it creates; clients cannot set it.
    pub(crate) uuid: Option<[u8; 16]>,
    /// Whether it names a time series with `rawData`, which stands for the buckets.
    pub(crate) names_buckets: bool,
}

/// The error for an unknown command, and for one that other servers have.
pub(crate) fn no_such_command(name: &str) -> Error {
    Error::new(ErrorCode::CommandNotFound, format!("no such command: '{name}'"))
}

impl<'a> Request<'a> {
    /// A command inside another one.
    pub(crate) fn inner(row: &'static Row, db: &'a str, body: RawDoc<'a>) -> Request<'a> {
        let generic = Generic::default();
        let (sequences, uuid, names_buckets) = (&[][..], None, false);
        Request { row, name: row.name, db, body, generic, sequences, uuid, names_buckets }
    }

    /// The same command with another body, which contains the documents of this field.
    pub(crate) fn with_body<'b>(
        &self,
        body: RawDoc<'b>,
        sequences: &'b [DocumentSequence<'b>],
    ) -> Request<'b>
    where
        'a: 'b,
    {
        let Request { row, name, db, uuid, names_buckets, .. } = *self;
        let generic = self.generic.clone();
        Request { row, name, db, body, generic, sequences, uuid, names_buckets }
    }

    /// Checks the fields of the command against the declarations in its row, and returns typed
    /// access to them. `<command>.<field>` is their path in errors.
    ///
    /// # Errors
    /// 40415 for an unknown field, 40413 for a repeated one, the errors of
    /// [`Argument::check`](mayfly_value::arguments::Argument::check), 40414 for a missing one, 323
    /// for one outside of the stable API if the client uses that strictly.
    pub fn arguments(&self) -> Result<Fields<'a>> {
        let Row { name, arguments, flags, .. } = self.row;
        let also = if flags.contains(RowFlags::LENIENT) { |_: &[u8]| true } else { is_generic };
        if self.generic.api_strict {
            Fields::new(self.body, *name).check_stable(arguments)?;
        }
        let fields = Fields::read_command(self.body, name, arguments, also)?;
        for sequence in self.sequences {
            if !arguments.iter().any(|argument| argument.name == sequence.name) {
                return Err(fields.unknown(sequence.name));
            }
            if fields.has(sequence.name) {
                return Err(fields.duplicate(sequence.name));
            }
        }
        fields.check_present(arguments, |name| {
            self.sequences.iter().any(|sequence| sequence.name == name)
        })?;
        Ok(fields)
    }

    /// Whether its row declares an argument of this name.
    pub(crate) fn declares(&self, name: &str) -> bool {
        self.row.arguments.iter().any(|argument| argument.name == name)
    }

    /// The value of the field with the command's name, for example the collection.
    pub fn target(&self) -> RawValue<'a> {
        self.body.iter().next().map_or(RawValue::Null, |element| element.value())
    }

    /// The collection in the command's value: with `rawData`, the buckets of a time series.
    ///
    /// # Errors
    /// 73 InvalidNamespace.
    pub fn namespace(&self) -> Result<Namespace> {
        match self.target() {
            RawValue::String(collection) => {
                let ns = Namespace::new(self.db, collection)?;
                let buckets = self.names_buckets.then(|| TimeSeries::buckets_of(&ns));
                Ok(buckets.flatten().unwrap_or(ns))
            }
            other => Err(Error::new(
                ErrorCode::InvalidNamespace,
                format!("collection name has invalid type {}", other.type_name()),
            )),
        }
    }

    /// The size of the message's documents in bytes.
    pub fn bytes(&self) -> usize {
        let sequences = self.sequences.iter().map(|sequence| sequence.documents.len());
        self.body.as_bytes().len() + sequences.sum::<usize>()
    }

    /// The documents of a field, from an array in the body, whose null elements are skipped, or
    /// from a document sequence; `None` if both are missing.
    ///
    /// # Errors
    /// 14 TypeMismatch for anything but an array of documents.
    pub fn documents(&self, name: &str) -> Result<Option<Documents<'a>>> {
        if let Some(sequence) = self.sequences.iter().find(|sequence| sequence.name == name) {
            return Ok(Some(Documents {
                rest: Rest::Sequence(sequence.documents),
                len: sequence.count,
            }));
        }
        let path = || format!("{}.{name}", self.row.name);
        match self.body.get(name) {
            None | Some(RawValue::Null | RawValue::Undefined) => Ok(None),
            Some(RawValue::Array(array)) => {
                let mut len = 0;
                for element in array {
                    match element.type_byte() {
                        mayfly_value::ty::DOCUMENT => len += 1,
                        mayfly_value::ty::NULL | mayfly_value::ty::UNDEFINED => {}
                        _ => {
                            let path = format!("{}.{}", path(), element.name());
                            return Err(wrong_type(path, element.value(), "object"));
                        }
                    }
                }
                Ok(Some(Documents { rest: Rest::Array(array.iter()), len }))
            }
            Some(other) => Err(wrong_type(path(), other, "array")),
        }
    }
}

/// The documents of a field, in order.
#[derive(Clone)]
pub struct Documents<'a> {
    rest: Rest<'a>,
    len: usize,
}

#[derive(Clone)]
enum Rest<'a> {
    Sequence(&'a [u8]),
    Array(mayfly_value::RawIter<'a>),
}

impl<'a> Iterator for Documents<'a> {
    type Item = RawDoc<'a>;

    fn next(&mut self) -> Option<RawDoc<'a>> {
        let document = match &mut self.rest {
            Rest::Sequence(rest) => {
                let document = RawDoc::at_front(rest)?;
                *rest = &rest[document.as_bytes().len()..];
                document
            }
            Rest::Array(elements) => elements.find_map(|element| element.value().as_document())?,
        };
        self.len = self.len.saturating_sub(1);
        Some(document)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }
}

impl ExactSizeIterator for Documents<'_> {}
