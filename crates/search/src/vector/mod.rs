//! Vectors: in BSON ([`read`]), compared ([`kernel`]), scored ([`score`]), as codes of one byte for
//! each dimension ([`codes`]), and linked with near ones ([`graph`]).

pub(crate) mod codes;
pub(crate) mod faithful;
pub(crate) mod graph;
pub(crate) mod kernel;
pub(crate) mod read;
pub(crate) mod score;
pub(crate) mod space;
#[cfg(test)]
mod tests;

pub(crate) use read::{ElementType, Vector};
