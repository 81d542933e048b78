//! The planner: turns a canonical query into a read-only plan. It decides which keys to scan, in
//! which direction, and whether to sort. README.md in this folder describes the steps.
//!
//! The executor evaluates the whole filter again on every document that a plan reads, so bounds may
//! be wider than the filter but never narrower.

mod candidates;
mod choice;
mod conditions;
mod suggest;
mod types;
mod ways;

pub(crate) use candidates::geo::{key_range, of_cells, of_squares};
pub use candidates::restriction::allowed_on;
pub(crate) use candidates::restriction::index_filter_set;
pub(crate) use choice::{Candidates, Ranked, over, plan_in_order, planned};
pub use choice::{plan, plans, single_id};
pub(crate) use conditions::point::filter_bounds_of_point;
pub use suggest::Suggestion;
pub use types::access::{NearAccess, TextAccess};
pub use types::cache::forget_plans;
pub(crate) use types::cache::{CachedPlan, Choice, PlanCache};
pub use types::index_filters::{IndexFilter, IndexFilters};
pub(crate) use types::interval::texts;
pub use types::plan_key::PlanKey;
pub use types::scan::{EntryCheck, IndexScan, OnePerValue, RecordScan};
pub(crate) use types::scan::{FilterBounds, is_whole};
pub use types::settings::{AtomicF64, PlannerSettings};
pub(crate) use types::sort_keys::SortKeys;
pub use types::tree::Plan;
pub(crate) use types::tree::UsedIndex;
pub(crate) use types::way::Way;
pub(crate) use ways::index::extend;
pub use ways::records::is_clustered;
pub use ways::text::check_absent;
pub(crate) use ways::text::no_text_index;
