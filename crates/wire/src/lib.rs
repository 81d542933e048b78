//! Bytes to messages and back: OP_MSG, OP_COMPRESSED, the legacy handshake and login; a tokio-util
//! codec without commands.
//!
//! Input: [`Codec`] cuts one frame off the read buffer, decompresses it if necessary, validates its
//! sections and every document in them once, and returns a [`Message`] whose documents are slices
//! of that frame. Output: [`ReplyBuilder`] reserves a header in the output buffer, the handler
//! writes its document directly after it, and finishing sets lengths, compresses and adds the
//! checksum.
//!
//! Nothing here depends on commands, except the names that OP_QUERY may carry, and nothing does IO.

mod codec;
mod compress;
mod error;
mod header;
mod legacy;
mod message;
mod msg;
mod reply;

pub use codec::{Codec, Outgoing};
pub use compress::Compressor;
pub use error::{WireError, WireResult};
pub use header::{Flags, HEADER_BYTES, Header, opcode};
pub use message::{Message, ReplyTo, Sequence};
pub use reply::{ReplyBuilder, ReplyFlags};
