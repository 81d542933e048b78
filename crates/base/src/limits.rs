//! Every limit on what comes from outside, named in one place.

/// Largest document a user may store, in bytes (16 MiB).
pub const MAX_USER_DOCUMENT_BYTES: usize = 16 * 1024 * 1024;
/// Largest BSON object on the wire: a user document and the room a command around it needs.
pub const MAX_WIRE_DOCUMENT_BYTES: usize = MAX_USER_DOCUMENT_BYTES + 16 * 1024;
/// Largest wire message, header included.
pub const MAX_MESSAGE_BYTES: usize = 48_000_000;
/// Most document sequences in one message; `bulkWrite` needs two.
pub const MAX_DOCUMENT_SEQUENCES: usize = 8;
/// Most items in one write command.
pub const MAX_WRITE_BATCH_ITEMS: usize = 100_000;
/// Deepest nesting of a stored document.
pub const MAX_STORED_DEPTH: usize = 180;
/// Deepest nesting of any BSON that is read at all.
pub const MAX_BSON_DEPTH: usize = 200;
/// Longest `db.collection`, in bytes.
pub const MAX_NAMESPACE_BYTES: usize = 255;
/// Longest database name, in bytes.
pub const MAX_DATABASE_NAME_BYTES: usize = 63;
/// Most indexes on one collection, `_id_` included.
pub const MAX_INDEXES_PER_COLLECTION: usize = 64;
/// Most fields in one index key.
pub const MAX_INDEX_FIELDS: usize = 32;
/// Most index keys one document may have in one index.
pub const MAX_KEYS_PER_DOCUMENT: usize = 100_000;
/// Documents in the first batch of a cursor when the client does not say.
pub const DEFAULT_FIRST_BATCH_DOCS: usize = 101;
/// Memory that one blocking operator (sort, group) may use before it must spill or fail.
pub const MAX_BLOCKING_MEMORY_BYTES: usize = 100 * 1024 * 1024;
/// Memory that all blocking operators of one operation may use together, unless a parameter says otherwise.
pub const MAX_OPERATION_MEMORY_BYTES: usize = 1024 * 1024 * 1024;
/// Bytes that take long to copy: work on more leaves the runtime's thread to other tasks.
pub const LONG_BYTES: usize = 1 << 20;
/// Connections served at once.
pub const MAX_CONNECTIONS: usize = 20_000;
/// Deepest nesting of logical operators in a filter.
pub const MAX_FILTER_DEPTH: usize = 100;
/// Most stages in a pipeline.
pub const MAX_PIPELINE_STAGES: usize = 1000;
/// Idle time after which a cursor is closed, in milliseconds.
pub const CURSOR_IDLE_MS: i64 = 10 * 60 * 1000;
/// Life of a logical session without use, in minutes.
pub const SESSION_TIMEOUT_MINUTES: i32 = 30;
/// Most logical sessions remembered at once.
pub const MAX_LOGICAL_SESSIONS: usize = 1_000_000;
/// Lines of the log kept for `getLog`.
pub const LOG_RING_LINES: usize = 1024;
/// Largest client metadata document of the handshake, in bytes.
pub const MAX_CLIENT_METADATA_BYTES: usize = 512;
