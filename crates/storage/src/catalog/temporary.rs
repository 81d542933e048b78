//! Names of collections that are filled to replace another one.

use mayfly_base::Namespace;
use mayfly_buckets::TimeSeries;

/// The prefixes of such names; an ObjectId follows.
pub(crate) const OF_AGGREGATION: &str = "tmp.agg_out.";
pub(crate) const OF_CONVERSION: &str = "tmp.convertToCapped.";

/// Whether a collection of this name is filled to replace another one, or has the buckets of one.
pub(crate) fn is_temporary(ns: &Namespace) -> bool {
    let name = TimeSeries::name_of(ns).unwrap_or(ns.collection());
    let id = [OF_AGGREGATION, OF_CONVERSION].iter().find_map(|front| name.strip_prefix(front));
    id.is_some_and(|id| id.len() == 24 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}
