//! Replies, written in place: header and prefix are reserved in the output buffer, the document goes right
//! behind them, and [`ReplyBuilder::finish`] patches lengths, compresses and signs.

use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_value::DocBuilder;

use crate::codec::seal;
use crate::header::{Flags, HEADER_BYTES, Header, opcode};
use crate::legacy::REPLY_PREFIX_BYTES;
use crate::{ReplyTo, compress};

/// How the reply is to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyFlags {
    /// Another reply follows this one unasked.
    pub more_to_come: bool,
}

/// A reply whose document is being written.
#[derive(Debug)]
pub struct ReplyBuilder {
    start: usize,
    to: ReplyTo,
}

impl ReplyBuilder {
    /// Begins a reply at the end of `out`. The document is to be written into the given builder.
    pub fn begin(mut out: Vec<u8>, to: ReplyTo, request_id: i32) -> (ReplyBuilder, DocBuilder) {
        let start = out.len();
        let opcode = if to.legacy { opcode::REPLY } else { opcode::MSG };
        let header = Header { length: 0, request_id, response_to: to.request_id, opcode };
        out.extend_from_slice(&header.encode());
        if to.legacy {
            let mut prefix = [0; REPLY_PREFIX_BYTES];
            // Flag 3, AwaitCapable, as every server of the last decade; one document.
            prefix[0] = 8;
            prefix[16] = 1;
            out.extend_from_slice(&prefix);
        } else {
            // Flags, then section kind 0.
            out.extend_from_slice(&[0; 5]);
        }
        (ReplyBuilder { start, to }, DocBuilder::in_buffer(out))
    }

    /// Ends the reply and gives the buffer back.
    ///
    /// # Errors
    /// The reply is larger than a message may be; the buffer is lost.
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
