//! Vectors: in BSON ([`read`]), compared ([`kernel`]), scored ([`score`]), and as codes of one byte
//! for each dimension ([`codes`]).

pub(crate) mod codes;
pub(crate) mod kernel;
pub(crate) mod read;
pub(crate) mod score;
#[cfg(test)]
mod tests;

pub(crate) use read::{ElementType, Vector};
