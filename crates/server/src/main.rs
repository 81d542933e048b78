//! The binary mayflydb.

fn main() {}
