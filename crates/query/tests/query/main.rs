//! Queries over a store in memory, in one binary: a further file costs no further link.

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
