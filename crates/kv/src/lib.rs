//! The byte-store contract ([`contract`]), a memory engine, a chaos engine, and the conformance suite that every
//! engine must pass.

pub mod contract;

pub use contract::*;
