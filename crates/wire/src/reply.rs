//! Replies, written in place: header and prefix are reserved in the output buffer, the document is
//! written directly after them, and [`ReplyBuilder::finish`] sets lengths, compresses and adds the
//! checksum.

use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_value::DocBuilder;

use crate::codec::seal;
use crate::header::{Flags, HEADER_BYTES, Header, opcode};
use crate::legacy::REPLY_PREFIX_BYTES;
use crate::{ReplyTo, compress};

/// Flags of a reply.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyFlags {
    /// Another reply follows without a request.
    pub more_to_come: bool,
}

/// A reply whose document is being written.
#[derive(Debug)]
pub struct ReplyBuilder {
    start: usize,
    to: ReplyTo,
}

impl ReplyBuilder {
    /// Begins a reply at the end of `out`. The caller writes the document into the returned
    /// builder.
    pub fn begin(mut out: Vec<u8>, to: ReplyTo, request_id: i32) -> (ReplyBuilder, DocBuilder) {
        let start = out.len();
        let opcode = if to.legacy { opcode::REPLY } else { opcode::MSG };
        let header = Header { length: 0, request_id, response_to: to.request_id, opcode };
        out.extend_from_slice(&header.encode());
        if to.legacy {
            let mut prefix = [0; REPLY_PREFIX_BYTES];
            // Flag 3, AwaitCapable, which the reference always sets; one document.
            prefix[0] = 8;
            prefix[16] = 1;
            out.extend_from_slice(&prefix);
        } else {
            // Flags, then section kind 0.
            out.extend_from_slice(&[0; 5]);
        }
        (ReplyBuilder { start, to }, DocBuilder::in_buffer(out))
    }

    /// Ends the reply and returns the buffer.
    ///
    /// # Errors
    /// The reply is larger than a message may be. The buffer is dropped.
    pub fn finish(self, document: DocBuilder, flags: ReplyFlags) -> Result<Vec<u8>> {
        let mut out = document.finish_buffer();
        let size = out.len() - self.start;
        if size > limits::MAX_MESSAGE_BYTES {
            let text = format!("reply of {size} bytes is larger than a message may be");
            return Err(Error::new(ErrorCode::BSONObjectTooLarge, text));
        }
        let checksum = self.to.checksum && !self.to.legacy;
        if !self.to.legacy {
            let mut set = Flags::empty();
            set.set(Flags::CHECKSUM_PRESENT, checksum);
            set.set(Flags::MORE_TO_COME, flags.more_to_come);
            let at = self.start + HEADER_BYTES;
            out[at..at + 4].copy_from_slice(&set.bits().to_le_bytes());
        }
        seal(&mut out, self.start, checksum);
        if let Some(compressor) = self.to.compressor {
            compress::deflate(compressor, &mut out, self.start)?;
        }
        Ok(out)
    }
}
