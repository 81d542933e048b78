//! Arguments of commands, stages and option documents: declarations, and the reader that checks a
//! document against them.
//!
//! ```text
//!  declaration (a row's table)         reader                              handler
//!  Argument::whole("limit")     ──▶    Fields::read(doc, path, table) ──▶  fields.long("limit")
//!          .at_least(0)                checks each field in its order,
//!                                      then what is missing
//! ```
//!
//! The reader checks the fields of a document in the order in which they stand: the first one that
//! is unknown, repeated, of a wrong type or out of bounds decides which error the client gets.
//! Missing fields are reported last. Conversions of numbers and booleans are in [`convert`], the
//! errors in [`error`]: no other file of the server contains their texts.

mod check;
pub mod convert;
mod declaration;
pub mod error;
mod fields;
#[cfg(test)]
mod tests;

pub use check::Also;
pub use declaration::{Argument, Form, Null, Path};
pub use error::OwnCodes;
pub use fields::{Fields, NameSet};
