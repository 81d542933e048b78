//! Operators of the reference that this server only knows by name, so that "not implemented" stays apart from "unrecognized".

/// Operators of the reference that do not exist here yet.
pub const MISSING: &[&str] = &[
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
