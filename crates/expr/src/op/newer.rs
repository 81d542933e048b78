//! Operators of later versions of the reference that are not implemented here. Parsers treat them
//! as unknown, as version 8.2 does.

/// Operators added after 8.2 that are not implemented.
pub const NEWER: &[&str] = &[
    "$createObjectId",
    "$createUUID",
    "$deserializeEJSON",
    "$hash",
    "$hexHash",
    "$serializeEJSON",
    "$subtype",
    "$toArray",
    "$toObject",
];
