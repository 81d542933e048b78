//! Operators of versions of the reference behind 8.0 that do not exist here: no parser asks, as none of 8.0 would know them.

/// Operators that came with 8.1 and later, and do not exist here.
pub const NEWER: &[&str] = &[
    "$bottom",
    "$bottomN",
    "$createObjectId",
    "$createUUID",
    "$currentDate",
    "$deserializeEJSON",
    "$encStrContains",
    "$encStrEndsWith",
    "$encStrNormalizedEq",
    "$encStrStartsWith",
    "$hash",
    "$hexHash",
    "$serializeEJSON",
    "$similarityCosine",
    "$similarityDotProduct",
    "$similarityEuclidean",
    "$subtype",
    "$toArray",
    "$toObject",
    "$top",
    "$topN",
];
