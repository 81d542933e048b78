//! Conditions of explained filters.

pub(super) use mayfly_mql::matcher::{condition_parts as parts, joined};
