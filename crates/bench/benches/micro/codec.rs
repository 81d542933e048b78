//! Decoding and encoding of messages.

use bytes::BytesMut;
use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use mayfly_value::{DocBuf, RawValue};
use mayfly_wire::{
    Codec, Compressor, Flags, Message, Outgoing, ReplyBuilder, ReplyFlags, ReplyTo, WireError,
};
use tokio_util::codec::{Decoder, Encoder};

use crate::{items, parse};

/// Items of an inserted sequence, and of a returned batch.
const ITEMS: u32 = 100;

const COMPRESSORS: [Compressor; 3] = [Compressor::Snappy, Compressor::Zstd, Compressor::Zlib];

#[divan::bench]
fn decode_find(bencher: Bencher<'_, '_>) {
    let body = parse("{find: 'c', filter: {_id: 'user1'}, limit: 1, singleBatch: true, $db: 'd'}");
    decode(bencher, &message(&body, &[], None));
}

#[divan::bench]
fn decode_insert(bencher: Bencher<'_, '_>) {
    decode(bencher, &insert(None));
}

#[divan::bench(args = COMPRESSORS)]
fn decode_compressed_insert(bencher: Bencher<'_, '_>, compressor: Compressor) {
    decode(bencher, &insert(Some(compressor)));
}

#[divan::bench]
fn encode_insert(bencher: Bencher<'_, '_>) {
    let (body, documents) = insert_parts();
    let encode = || message(black_box(&body), &[("documents", black_box(&documents))], None);
    bencher.counter(BytesCount::new(documents.len())).bench(encode);
}

#[divan::bench]
fn encode_reply(bencher: Bencher<'_, '_>) {
    encode(bencher, None);
}

#[divan::bench(args = COMPRESSORS)]
fn encode_compressed_reply(bencher: Bencher<'_, '_>, compressor: Compressor) {
    encode(bencher, Some(compressor));
}

fn decode(bencher: Bencher<'_, '_>, message: &[u8]) {
    bencher
        .counter(BytesCount::new(message.len()))
        .with_inputs(|| BytesMut::from(message))
        .bench_values(|mut input| -> Result<Option<Message>, WireError> {
            Codec.decode(&mut input)
        });
}

/// Encodes a batch of items into the buffer of the previous reply, as `find` does.
fn encode(bencher: Bencher<'_, '_>, compressor: Option<Compressor>) {
    let items = items(ITEMS);
    let to =
        ReplyTo { request_id: 1, legacy: false, compressor, checksum: false, is_expected: true };
    let write = |mut output: Vec<u8>| {
        output.clear();
        let (reply, mut doc) = ReplyBuilder::begin(output, to, 1);
        doc.start_document("cursor").start_array("firstBatch");
        for item in black_box(&items) {
            doc.push(RawValue::Document(item.as_doc()));
        }
        doc.end().append("id", 0i64).append("ns", "d.c").end().append("ok", 1.0);
        reply.finish(doc, ReplyFlags::default()).expect("it is no longer than may be")
    };
    let plain: usize = items.iter().map(|item| item.as_bytes().len()).sum();
    let mut output = write(Vec::new());
    bencher
        .counter(BytesCount::new(plain))
        .bench_local(|| output = write(std::mem::take(&mut output)));
}

fn insert(compressor: Option<Compressor>) -> Vec<u8> {
    let (body, documents) = insert_parts();
    message(&body, &[("documents", &documents)], compressor)
}

fn insert_parts() -> (DocBuf, Vec<u8>) {
    let documents = items(ITEMS).into_iter().flat_map(DocBuf::into_bytes).collect();
    (parse("{insert: 'c', ordered: true, $db: 'd'}"), documents)
}

fn message(body: &DocBuf, sequences: &[(&str, &[u8])], compressor: Option<Compressor>) -> Vec<u8> {
    let flags = Flags::default();
    let body = body.as_bytes();
    let outgoing = Outgoing { request_id: 1, response_to: 0, flags, body, sequences, compressor };
    let mut bytes = BytesMut::new();
    Codec.encode(outgoing, &mut bytes).expect("it is no longer than may be");
    bytes.to_vec()
}
