//! Explained filters: the parts of their conditions.

pub(super) use mayfly_mql::matcher::{condition_parts as parts, joined};
