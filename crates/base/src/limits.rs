//! Limits on external input that several crates enforce or that the handshake announces. Any other
//! limit is declared in the crate that enforces it.

/// Largest document a user may store, in bytes (16 MiB).
pub const MAX_USER_DOCUMENT_BYTES: usize = 16 * 1024 * 1024;
/// Largest BSON object on the wire: a user document plus room for the command that carries it.
pub const MAX_WIRE_DOCUMENT_BYTES: usize = MAX_USER_DOCUMENT_BYTES + 16 * 1024;
/// Largest wire message, header included.
pub const MAX_MESSAGE_BYTES: usize = 48_000_000;
/// Most items in one write command.
pub const MAX_WRITE_BATCH_ITEMS: usize = 100_000;
/// Deepest nesting of a stored document.
pub const MAX_STORED_DEPTH: usize = 180;
/// Deepest nesting of any BSON that the server parses.
pub const MAX_BSON_DEPTH: usize = 200;
/// Deepest nesting of a command, whose arguments may have [`MAX_BSON_DEPTH`] levels.
pub const MAX_COMMAND_DEPTH: usize = MAX_BSON_DEPTH + 1;
/// Longest `db.collection`, in bytes.
pub const MAX_NAMESPACE_BYTES: usize = 255;
/// Most fields in one index key.
pub const MAX_INDEX_FIELDS: usize = 32;
/// Most bytes of the document that describes the key of an index.
pub const MAX_INDEX_PATTERN_BYTES: usize = 2048;
/// Memory that one blocking operator (sort, group) may use before it must spill or fail.
pub const MAX_BLOCKING_MEMORY_BYTES: usize = 100 * 1024 * 1024;
/// Memory that all blocking operators of one operation may use together, unless a parameter says
/// otherwise.
pub const MAX_OPERATION_MEMORY_BYTES: usize = 1024 * 1024 * 1024;
/// Deepest nesting of logical operators in a filter.
pub const MAX_FILTER_DEPTH: usize = 100;
/// Most stages in a pipeline.
pub const MAX_PIPELINE_STAGES: usize = 1000;
/// Life of a logical session without use, in minutes.
pub const SESSION_TIMEOUT_MINUTES: i32 = 30;
