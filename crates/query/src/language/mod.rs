//! What a request says, checked: the query, what is known about documents beside their fields, fields that are kept, and the filters
//! and validators that storage asks for.

mod canonical;
mod everything;
pub(crate) mod metadata;
pub(crate) mod needed;
pub(crate) mod partial;
mod validator;

pub use canonical::{CanonicalQuery, FindOptions, FirstOf, Hint};
