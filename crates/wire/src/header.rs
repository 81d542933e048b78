//! The sixteen-byte header of a message, the opcodes, and the flag bits of OP_MSG.
//!
//! ```text
//! | messageLength i32 | requestID i32 | responseTo i32 | opCode i32 |   little-endian
//! ```

use mayfly_base::limits;

use crate::{WireError, WireResult};

/// Bytes of a message header.
pub const HEADER_BYTES: usize = 16;

/// Values of `opCode` in message headers, by the names of the protocol's specification.
pub mod opcode {
    /// OP_REPLY: legacy, the answer to OP_QUERY.
    pub const REPLY: i32 = 1;
    /// OP_QUERY: legacy, only for handshake and login.
    pub const QUERY: i32 = 2004;
    /// OP_COMPRESSED: contains a message with another opcode.
    pub const COMPRESSED: i32 = 2012;
    /// OP_MSG: all other requests and replies.
    pub const MSG: i32 = 2013;
}

/// A message header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the whole message, including the header.
    pub length: usize,
    /// The sender's number for the message.
    pub request_id: i32,
    /// The request that this answers, 0 in requests.
    pub response_to: i32,
    /// The opcode, see [`opcode`].
    pub opcode: i32,
}

impl Header {
    /// Reads a header; `None` while bytes are missing.
    ///
    /// # Errors
    /// Fatal when the length is below 16 or above the limit.
    pub fn peek(bytes: &[u8]) -> WireResult<Option<Header>> {
        // The length is checked as soon as it has arrived, because garbage is detected by it.
        let Some(length) = int32_at(bytes, 0) else { return Ok(None) };
        let length = usize::try_from(length).unwrap_or(0);
        if !(HEADER_BYTES..=limits::MAX_MESSAGE_BYTES).contains(&length) {
            let most = limits::MAX_MESSAGE_BYTES;
            return Err(WireError::fatal(format!(
                "message length {length} is not between {HEADER_BYTES} and {most}"
            )));
        }
        let field = |at| int32_at(bytes, at);
        let (Some(request_id), Some(response_to), Some(opcode)) = (field(4), field(8), field(12))
        else {
            return Ok(None);
        };
        Ok(Some(Header { length, request_id, response_to, opcode }))
    }

    /// Encodes the header.
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&(self.length as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.request_id.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.response_to.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.opcode.to_le_bytes());
        bytes
    }
}

bitflags::bitflags! {
    /// The flag bits of OP_MSG. Unknown bits 0 to 15 are errors, unknown bits 16 to 31 are ignored.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u32 {
        /// The last four bytes are a CRC-32C of all bytes before them.
        const CHECKSUM_PRESENT = 1;
        /// Another message follows, and this one gets no reply.
        const MORE_TO_COME = 1 << 1;
        /// The client accepts several replies to this request.
        const EXHAUST_ALLOWED = 1 << 16;
        /// All other bits.
        const _ = !0;
    }
}

impl Flags {
    /// Whether an unknown bit among bits 0 to 15 is set.
    pub(crate) fn unknown_required(self) -> bool {
        const REQUIRED: u32 = 0xFFFF;
        let known = Flags::CHECKSUM_PRESENT | Flags::MORE_TO_COME;
        self.difference(known).bits() & REQUIRED != 0
    }
}

/// The little-endian int32 at this offset.
pub(crate) fn int32_at(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..)?.first_chunk().map(|chunk| i32::from_le_bytes(*chunk))
}
