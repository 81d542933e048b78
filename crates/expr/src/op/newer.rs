//! Operators of later versions of the reference that are not implemented here. Parsers treat them
//! as unknown, as version 8.0 does.

/// Operators added in 8.1 and later that are not implemented.
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
