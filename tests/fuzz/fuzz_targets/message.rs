//! Any bytes as a connection's stream, in pieces of any size: frames come out or an error does,
//! never a panic, and pieces make no difference.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use mayfly_wire::{Codec, WireError};
use tokio_util::codec::Decoder;

/// What the stream gives: the frames' documents, and whether it ended in an error that closes the
/// connection.
fn read(data: &[u8], piece: usize) -> (Vec<String>, bool) {
    let mut codec = Codec;
    let mut buffer = BytesMut::new();
    let mut out = Vec::new();
    for part in data.chunks(piece) {
        buffer.extend_from_slice(part);
        loop {
            match codec.decode(&mut buffer) {
                Ok(Some(message)) => {
                    let sequences = message.sequences.iter();
                    let documents: usize = sequences.map(|s| s.iter().count()).sum();
                    out.push(format!("{:?} {documents}", message.document()));
                }
                Ok(None) => break,
                Err(WireError::Recoverable { .. }) => out.push("error".into()),
                Err(_) => return (out, true),
            }
        }
    }
    (out, false)
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, stream)) = data.split_first() else { return };
    let whole = read(stream, stream.len().max(1));
    let pieces = read(stream, usize::from(first).max(1));
    assert_eq!(whole, pieces, "pieces make no difference");
});
