//! OP_COMPRESSED: a frame that contains another one.
//!
//! ```text
//! | header | originalOpcode i32 | uncompressedSize i32 | compressorId u8 | bytes... |
//! ```
//!
//! Decompression is bounded twice: the announced size is checked before memory is allocated, and no
//! algorithm may write beyond exactly that size.

use bytes::Bytes;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use mayfly_base::{Error, Result, limits};

use crate::header::{HEADER_BYTES, Header, int32_at, opcode};
use crate::{WireError, WireResult};

/// Bytes between the header of an OP_COMPRESSED and the compressed bytes.
const PREFIX_BYTES: usize = 9;
/// A level with a low cost per reply.
const ZSTD_LEVEL: i32 = 1;

/// A compression that client and server can negotiate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Compressor {
    Noop,
    Snappy,
    Zlib,
    Zstd,
}

impl Compressor {
    /// The name in `hello.compression`.
    pub fn name(self) -> &'static str {
        match self {
            Compressor::Noop => "noop",
            Compressor::Snappy => "snappy",
            Compressor::Zlib => "zlib",
            Compressor::Zstd => "zstd",
        }
    }

    fn id(self) -> u8 {
        match self {
            Compressor::Noop => 0,
            Compressor::Snappy => 1,
            Compressor::Zlib => 2,
            Compressor::Zstd => 3,
        }
    }

    fn by_id(id: u8) -> Option<Compressor> {
        [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd]
            .into_iter()
            .find(|compressor| compressor.id() == id)
    }
}

/// Decompresses an OP_COMPRESSED frame into a plain frame with a header of its own.
pub(crate) fn inflate(header: Header, frame: &[u8]) -> WireResult<(Bytes, Compressor)> {
    let (Some(inner), Some(size), Some(&id)) =
        (int32_at(frame, 16), int32_at(frame, 20), frame.get(24))
    else {
        return Err(WireError::fatal("compressed message is too short"));
    };
    if inner == opcode::COMPRESSED {
        return Err(WireError::fatal("compressed message inside a compressed message"));
    }
    let Some(compressor) = Compressor::by_id(id) else {
        return Err(WireError::fatal(format!("unknown compressor {id}")));
    };
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if size > limits::MAX_MESSAGE_BYTES - HEADER_BYTES {
        return Err(WireError::fatal("compressed message inflates beyond the limit"));
    }
    let packed = &frame[HEADER_BYTES + PREFIX_BYTES..];
    if compressor == Compressor::Snappy && snap::raw::decompress_len(packed).ok() != Some(size) {
        return Err(WireError::fatal("compressed message has the wrong size"));
    }
    let mut plain = vec![0; HEADER_BYTES + size];
    let length = plain.len();
    plain[..HEADER_BYTES].copy_from_slice(&Header { length, opcode: inner, ..header }.encode());
    if unpack(compressor, packed, &mut plain[HEADER_BYTES..]) != Some(size) {
        return Err(WireError::fatal(format!("malformed {} data", compressor.name())));
    }
    Ok((plain.into(), compressor))
}

/// Decompresses into the output. Returns the number of bytes written; `None` when the input is
/// malformed or does not fit.
fn unpack(compressor: Compressor, packed: &[u8], out: &mut [u8]) -> Option<usize> {
    match compressor {
        Compressor::Noop => {
            out.get_mut(..packed.len())?.copy_from_slice(packed);
            Some(packed.len())
        }
        Compressor::Snappy => snap::raw::Decoder::new().decompress(packed, out).ok(),
        Compressor::Zlib => {
            let mut inflater = Decompress::new(true);
            match inflater.decompress(packed, out, FlushDecompress::Finish) {
                Ok(Status::StreamEnd) => usize::try_from(inflater.total_out()).ok(),
                Ok(Status::Ok | Status::BufError) | Err(_) => None,
            }
        }
        Compressor::Zstd => zstd::bulk::decompress_to_buffer(packed, out).ok(),
    }
}

/// Replaces the plain frame that begins at `start` with a compressed one.
pub(crate) fn deflate(compressor: Compressor, out: &mut Vec<u8>, start: usize) -> Result<()> {
    let inner = int32_at(out, start + 12).unwrap_or(opcode::MSG);
    let plain = &out[start + HEADER_BYTES..];
    let size = plain.len();
    let packed = pack(compressor, plain)?;
    out.truncate(start + HEADER_BYTES);
    out[start + 12..start + 16].copy_from_slice(&opcode::COMPRESSED.to_le_bytes());
    out.extend_from_slice(&inner.to_le_bytes());
    out.extend_from_slice(&(size as u32).to_le_bytes());
    out.push(compressor.id());
    out.extend_from_slice(&packed);
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

fn pack(compressor: Compressor, plain: &[u8]) -> Result<Vec<u8>> {
    let failed = |why: String| Error::internal(format!("compression failed: {why}"));
    match compressor {
        Compressor::Noop => Ok(plain.to_vec()),
        Compressor::Snappy => {
            snap::raw::Encoder::new().compress_vec(plain).map_err(|e| failed(e.to_string()))
        }
        Compressor::Zlib => {
            // zlib's own bound for incompressible input: 5 bytes per 16 KiB block and a frame.
            let mut packed = Vec::with_capacity(plain.len() + plain.len() / 1000 + 128);
            let mut deflater = Compress::new(Compression::default(), true);
            match deflater.compress_vec(plain, &mut packed, FlushCompress::Finish) {
                Ok(Status::StreamEnd) => Ok(packed),
                Ok(Status::Ok | Status::BufError) => Err(failed("no room".to_owned())),
                Err(error) => Err(failed(error.to_string())),
            }
        }
        Compressor::Zstd => {
            zstd::bulk::compress(plain, ZSTD_LEVEL).map_err(|e| failed(e.to_string()))
        }
    }
}
