//! The codec from a client's view: round trips, slow input, damage.

use bytes::{Bytes, BytesMut};
use mayfly_base::{ErrorCode, limits};
use mayfly_value::{DocBuf, DocBuilder};
use mayfly_wire::{
    Codec, Compressor, Flags, HEADER_BYTES, Header, Message, Outgoing, ReplyBuilder, ReplyFlags,
    WireError, opcode,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio_util::codec::{Decoder, Encoder};

fn doc(name: &str, value: i32) -> DocBuf {
    let mut doc = DocBuilder::new();
    doc.append(name, value);
    doc.append("text", "x".repeat(300).as_str());
    doc.finish()
}

fn encode(flags: Flags, compressor: Option<Compressor>) -> BytesMut {
    let body = doc("insert", 1);
    let documents = [doc("a", 1).into_bytes(), doc("a", 2).into_bytes()].concat();
    let mut out = BytesMut::new();
    let outgoing = Outgoing {
        request_id: 7,
        response_to: 0,
        flags,
        body: body.as_bytes(),
        sequences: &[("documents", &documents)],
        compressor,
    };
    Codec.encode(outgoing, &mut out).unwrap();
    out
}

fn check_message(message: &Message, compressor: Option<Compressor>) {
    assert_eq!(message.header.request_id, 7);
    assert_eq!(message.compressor, compressor);
    assert_eq!(message.document().iter().next().unwrap().name(), "insert");
    assert_eq!(message.sequences.len(), 1);
    assert_eq!((message.sequences[0].name.as_str(), message.sequences[0].count), ("documents", 2));
    assert_eq!(message.sequences[0].iter().count(), 2);
}

const COMPRESSORS: [Option<Compressor>; 5] = [
    None,
    Some(Compressor::Noop),
    Some(Compressor::Snappy),
    Some(Compressor::Zlib),
    Some(Compressor::Zstd),
];

#[test]
fn every_compressor_round_trips() {
    for compressor in COMPRESSORS {
        for flags in [Flags::empty(), Flags::CHECKSUM_PRESENT] {
            let mut bytes = encode(flags, compressor);
            let size = bytes.len();
            let message = Codec.decode(&mut bytes).unwrap().unwrap();
            check_message(&message, compressor);
            assert_eq!(message.wire_bytes, size);
            assert!(bytes.is_empty());
        }
    }
}

#[test]
fn byte_by_byte_gives_the_same_messages() {
    let mut stream = encode(Flags::empty(), None);
    stream.extend_from_slice(&encode(Flags::CHECKSUM_PRESENT, Some(Compressor::Zstd)));
    stream.extend_from_slice(&encode(Flags::MORE_TO_COME, None));
    let mut buf = BytesMut::new();
    let mut messages = Vec::new();
    for byte in stream {
        buf.extend_from_slice(&[byte]);
        messages.extend(Codec.decode(&mut buf).unwrap());
    }
    assert_eq!(messages.len(), 3);
    check_message(&messages[0], None);
    check_message(&messages[1], Some(Compressor::Zstd));
    assert!(!messages[2].reply_to().is_expected);
}

#[test]
fn a_long_header_reserves_little() {
    let mut buf = BytesMut::new();
    let length = limits::MAX_MESSAGE_BYTES;
    let header = Header { length, request_id: 1, response_to: 0, opcode: opcode::MSG };
    buf.extend_from_slice(&header.encode());
    assert!(Codec.decode(&mut buf).unwrap().is_none());
    assert!(buf.capacity() < 1024 * 1024);
}

#[test]
fn bad_lengths_close() {
    for length in [0, 15, limits::MAX_MESSAGE_BYTES + 1, usize::MAX] {
        let header = Header { length, request_id: 1, response_to: 0, opcode: opcode::MSG };
        let mut buf = BytesMut::from(&header.encode()[..]);
        assert!(matches!(Codec.decode(&mut buf), Err(WireError::Fatal(_))), "{length}");
    }
}

#[test]
fn unknown_flags_and_opcodes_close() {
    let mut bytes = encode(Flags::from_bits_retain(4), None);
    assert!(matches!(Codec.decode(&mut bytes), Err(WireError::Fatal(_))));
    // Bits above 15 are optional.
    let mut bytes = encode(Flags::from_bits_retain(1 << 20) | Flags::EXHAUST_ALLOWED, None);
    assert!(Codec.decode(&mut bytes).unwrap().unwrap().flags.contains(Flags::EXHAUST_ALLOWED));
    let mut bytes = encode(Flags::empty(), None);
    bytes[12..16].copy_from_slice(&2002i32.to_le_bytes());
    assert!(matches!(Codec.decode(&mut bytes), Err(WireError::Fatal(_))));
}

/// The code of the recoverable error; the message after it must still be readable.
fn recoverable(mut bytes: BytesMut) -> ErrorCode {
    bytes.extend_from_slice(&encode(Flags::empty(), None));
    let code = match Codec.decode(&mut bytes) {
        Err(WireError::Recoverable { reply_to, error }) => {
            assert_eq!(reply_to.request_id, 7);
            error.code()
        }
        other => panic!("{other:?}"),
    };
    check_message(&Codec.decode(&mut bytes).unwrap().unwrap(), None);
    code
}

#[test]
fn unsound_content_is_answered_and_the_stream_goes_on() {
    let mut bytes = encode(Flags::CHECKSUM_PRESENT, None);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    assert_eq!(recoverable(bytes), ErrorCode::ChecksumMismatch);

    let mut bytes = encode(Flags::empty(), None);
    bytes[HEADER_BYTES + 4 + 1] = 200;
    assert_eq!(recoverable(bytes), ErrorCode::InvalidBSON);

    let mut bytes = encode(Flags::empty(), None);
    bytes[HEADER_BYTES + 4] = 9;
    assert_eq!(recoverable(bytes), ErrorCode(40432));

    let header = Header { length: 20, request_id: 7, response_to: 0, opcode: opcode::MSG };
    let mut bytes = BytesMut::from(&header.encode()[..]);
    bytes.extend_from_slice(&[0; 4]);
    assert_eq!(recoverable(bytes), ErrorCode(40587));
}

fn op_query(collection: &str, command: &DocBuf) -> BytesMut {
    let mut content = vec![0; 4];
    content.extend_from_slice(collection.as_bytes());
    content.extend_from_slice(&[0; 9]);
    content.extend_from_slice(command.as_bytes());
    let length = HEADER_BYTES + content.len();
    let header = Header { length, request_id: 7, response_to: 0, opcode: opcode::QUERY };
    let mut bytes = BytesMut::from(&header.encode()[..]);
    bytes.extend_from_slice(&content);
    bytes
}

#[test]
fn op_query_carries_only_the_handshake_and_the_login() {
    let message = Codec.decode(&mut op_query("admin.$cmd", &doc("isMaster", 1))).unwrap().unwrap();
    assert_eq!(message.legacy_db.as_deref(), Some("admin"));
    let mut wrapped = DocBuilder::new();
    wrapped.append("$query", &doc("hello", 1));
    let message = Codec.decode(&mut op_query("a.$cmd", &wrapped.finish())).unwrap().unwrap();
    assert_eq!(message.document().iter().next().unwrap().name(), "hello");
    for name in ["buildInfo", "buildinfo", "saslStart", "saslContinue", "authenticate", "_isSelf"] {
        let message = Codec.decode(&mut op_query("admin.$cmd", &doc(name, 1))).unwrap().unwrap();
        assert!(message.reply_to().legacy, "{name}");
    }
    for name in ["find", "ping", "logout", "getnonce", "buildINFO"] {
        let code = recoverable(op_query("admin.$cmd", &doc(name, 1)));
        assert_eq!(code, ErrorCode::UnsupportedOpQueryCommand, "{name}");
    }
    assert_eq!(recoverable(op_query("admin.coll", &doc("hello", 1))), ErrorCode(5739101));
}

#[test]
fn replies_are_written_in_place() {
    let mut legacy = op_query("admin.$cmd", &doc("isMaster", 1));
    let legacy = Codec.decode(&mut legacy).unwrap().unwrap().reply_to();
    let mut tos = vec![legacy];
    for compressor in COMPRESSORS {
        for flags in [Flags::empty(), Flags::CHECKSUM_PRESENT] {
            let mut bytes = encode(flags, compressor);
            tos.push(Codec.decode(&mut bytes).unwrap().unwrap().reply_to());
        }
    }
    for to in tos {
        let (reply, mut document) = ReplyBuilder::begin(b"before".to_vec(), to, 99);
        document.append("ok", 1.0);
        let flags = ReplyFlags { more_to_come: !to.legacy };
        let out = reply.finish(document, flags).unwrap();
        assert!(out.starts_with(b"before"));
        let mut buf = BytesMut::from(&out[6..]);
        let message = Codec.decode(&mut buf).unwrap().unwrap();
        assert_eq!((message.header.request_id, message.header.response_to), (99, 7));
        assert_eq!(message.compressor, to.compressor);
        assert_eq!(message.flags.contains(Flags::MORE_TO_COME), !to.legacy);
        assert_eq!(message.flags.contains(Flags::CHECKSUM_PRESENT), to.checksum);
        assert_eq!(message.document().iter().next().unwrap().name(), "ok");
        assert!(buf.is_empty());
    }
}

#[test]
fn compression_bombs_and_nests_are_refused() {
    let packed = zstd_of_zeros();
    let compressed = |inner: i32, size: i32, id: u8, packed: &[u8]| {
        let length = HEADER_BYTES + 9 + packed.len();
        let header = Header { length, request_id: 7, response_to: 0, opcode: opcode::COMPRESSED };
        let mut bytes = BytesMut::from(&header.encode()[..]);
        bytes.extend_from_slice(&inner.to_le_bytes());
        bytes.extend_from_slice(&size.to_le_bytes());
        bytes.extend_from_slice(&[id]);
        bytes.extend_from_slice(packed);
        bytes
    };
    let bad = [
        compressed(opcode::MSG, i32::MAX, 3, &packed),
        compressed(opcode::MSG, -1, 3, &packed),
        // The announced size is less than the content, and more.
        compressed(opcode::MSG, 1000, 3, &packed),
        compressed(opcode::MSG, 40_000_000, 3, &packed),
        compressed(opcode::COMPRESSED, 100, 0, &[0; 100]),
        compressed(opcode::MSG, 100, 9, &[0; 100]),
        compressed(opcode::MSG, 10, 0, &[0; 100]),
        compressed(opcode::MSG, 100, 1, &[0; 100]),
        compressed(opcode::MSG, 100, 2, &[0; 100]),
    ];
    for mut bytes in bad {
        assert!(matches!(Codec.decode(&mut bytes), Err(WireError::Fatal(_))));
    }
}

fn zstd_of_zeros() -> Vec<u8> {
    let zeros = vec![0; 20_000_000];
    zstd::bulk::compress(&zeros, 1).unwrap()
}

#[test]
fn damage_never_panics() {
    let mut random = SmallRng::seed_from_u64(1);
    for round in 0..20_000 {
        let compressor = COMPRESSORS[round % COMPRESSORS.len()];
        let mut bytes = encode(Flags::from_bits_retain((round % 2) as u32), compressor);
        for _ in 0..=random.random_range(0..4) {
            let at = random.random_range(0..bytes.len());
            bytes[at] = random.random();
        }
        let keep = random.random_range(0..=bytes.len());
        if round % 3 == 0 {
            bytes.truncate(keep);
            // A truncated frame with the matching length.
            if let Some(length) = bytes.first_chunk_mut::<4>() {
                *length = (keep as u32).to_le_bytes();
            }
        }
        if let Ok(Some(message)) = Codec.decode(&mut bytes) {
            assert!(message.document().iter().count() < 1000);
            assert!(message.sequences.iter().all(|s| s.iter().count() == s.count));
        }
    }
    let mut garbage = BytesMut::from_iter((0..4096).map(|_| random.random::<u8>()));
    let _ = Codec.decode(&mut garbage);
    let _ = Bytes::from(garbage.to_vec());
}
