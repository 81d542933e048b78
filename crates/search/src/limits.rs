//! Bounds of definitions, queries and indexed values.

/// Most dimensions of a vector.
pub const MAX_DIMENSIONS: usize = 8_192;

/// Most candidates of an approximate vector search.
pub const MAX_CANDIDATES: i64 = 10_000;

/// Most clauses of a query: conditions of a filter, and operators of a compound.
pub const MAX_CLAUSES: usize = 1_024;

/// Most terms that the operators on words of one query search for in all fields together.
pub const MAX_TERMS: usize = 65_536;

/// Most terms that one query searches for because they are near to its own.
pub const MAX_NEAR_TERMS: usize = 10_000;

/// Most levels of nesting in a filter, in a compound, and in the mappings of a definition.
pub const MAX_DEPTH: usize = 64;

/// Most fields of one definition.
pub const MAX_FIELDS: usize = 2_000;

/// Longest value of a filter or token field, in bytes of its key. Longer values are not indexed.
pub const MAX_VALUE_BYTES: usize = 32_766;

/// Most documents of the part of an index that is only in memory; applying more writes a segment.
pub const MAX_DOCUMENTS_IN_MEMORY: usize = 8_192;

/// The same for an index of words that is being filled, so that no search reads it.
pub const MAX_DOCUMENTS_OF_FILLING: usize = 131_072;

/// The fewest documents that are made a segment in memory before a search does it.
pub const MIN_DOCUMENTS_PREPARED: usize = 1_000;

/// Most bytes of vectors and values in the part of an index that is only in memory.
pub const MAX_BYTES_IN_MEMORY: usize = 32 << 20;

/// Most documents of one segment: ordinals are 32-bit numbers.
pub const MAX_DOCUMENTS_IN_SEGMENT: usize = 1 << 30;

/// The fewest vectors of a segment that get a graph. A scan of fewer ones is as fast.
pub const MIN_VECTORS_OF_GRAPH: usize = 10_000;
