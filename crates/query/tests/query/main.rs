//! Queries over an in-memory store. All tests are in one binary, so that a further file needs no
//! further link.

mod capped;
mod count_only;
mod counting;
mod find_and_modify;
mod fixture;
mod natural_order;
mod pages;
mod places;
mod text;
mod under_change;
