//! Fragments of events: their contents, and the events of a stream that resumes after each
//! fragment.

use mayfly_testkit::{Fixture, dialect, memory};
use mayfly_value::{DocBuf, RawDoc, RawValue};

/// The documents of a stream, each with the token at the end of its batch.
struct Followed {
    documents: Vec<DocBuf>,
    batch_tokens: Vec<DocBuf>,
}

fn part<'d>(document: RawDoc<'d>, path: &[&str]) -> Option<RawValue<'d>> {
    let (last, front) = path.split_last()?;
    let inner = front.iter().try_fold(document, |at, name| at.get(name)?.as_document())?;
    inner.get(last)
}

/// Reads a stream until a batch is empty.
fn follow(fixture: &Fixture, stage: &str, start: &str) -> Followed {
    follow_in(fixture, stage, start, 1000)
}

/// The same in batches of this size.
fn follow_in(fixture: &Fixture, stage: &str, start: &str, size: usize) -> Followed {
    let images = "fullDocument: 'required', fullDocumentBeforeChange: 'required'";
    let command = format!(
        "{{aggregate: 'c', pipeline: [{{$changeStream: {{{images}{start}}}}}{stage}], cursor: {{batchSize: {size}}}}}"
    );
    let mut reply = fixture.ok("test", &command);
    let mut followed = Followed { documents: Vec::new(), batch_tokens: Vec::new() };
    loop {
        let document = reply.as_doc();
        let first = part(document, &["cursor", "firstBatch"]);
        let batch = first.or_else(|| part(document, &["cursor", "nextBatch"])).unwrap();
        let RawValue::Array(batch) = batch else { panic!("no batch") };
        let token = part(document, &["cursor", "postBatchResumeToken"]).unwrap();
        let token = token.as_document().unwrap().to_owned();
        for event in batch {
            followed.documents.push(event.value().as_document().unwrap().to_owned());
            followed.batch_tokens.push(token.clone());
        }
        let done = batch.is_empty() && first.is_none();
        let Some(RawValue::Int64(id)) = part(document, &["cursor", "id"]) else { panic!("no id") };
        if done || id == 0 {
            return followed;
        }
        let more = format!(
            "{{getMore: NumberLong({id}), collection: 'c', maxTimeMS: 1, batchSize: {size}}}"
        );
        reply = fixture.ok("test", &more);
    }
}

/// `operationType` or the number of the fragment, and the fields.
fn shown(event: &DocBuf) -> String {
    let names: Vec<_> = event.as_doc().iter().map(|field| field.name().to_owned()).collect();
    let number = part(event.as_doc(), &["splitEvent", "fragment"]).map(dialect::show_value);
    let of = part(event.as_doc(), &["splitEvent", "of"]).map(dialect::show_value);
    let id = part(event.as_doc(), &["documentKey", "_id"]).map(dialect::show_value);
    format!("{:?}/{:?} {:?} {}", number, of, id, names.join(" "))
}

fn fixture() -> Fixture {
    let fixture = Fixture::new(memory());
    fixture.ok("test", "{create: 'c', changeStreamPreAndPostImages: {enabled: true}}");
    fixture.ok("test", "{insert: 'start', documents: [{_id: 1}]}");
    let large = "{_id: 1, x: Repeat('x', 9000000)}";
    for command in [
        "{insert: 'c', documents: [{_id: 0}]}",
        &format!("{{insert: 'c', documents: [{large}]}}"),
        // Two images: one document cannot hold them.
        "{update: 'c', updates: [{q: {_id: 1}, u: {$set: {n: 1}}}]}",
        "{insert: 'c', documents: [{_id: 2}]}",
        // The fields that were set do not fit, either.
        "{update: 'c', updates: [{q: {_id: 1}, u: {$set: {y: Repeat('y', 7000000)}}}]}",
        "{delete: 'c', deletes: [{q: {_id: 1}, limit: 1}]}",
        "{insert: 'c', documents: [{_id: 3}]}",
    ] {
        fixture.ok("test", command);
    }
    fixture
}

const FROM_THE_BEGINNING: &str = ", startAtOperationTime: Timestamp(1800000000, 1)";
const SPLIT: &str = ", {$changeStreamSplitLargeEvent: {}}";

fn resume_after(token: &DocBuf) -> String {
    format!(", resumeAfter: {}", dialect::show(token.as_doc()))
}

#[test]
fn fragments_hold_the_event_and_a_stream_resumes_after_each() {
    let fixture = fixture();
    let all = follow(&fixture, SPLIT, FROM_THE_BEGINNING);
    let lines: Vec<String> = all.documents.iter().map(shown).collect();
    let numbers: Vec<&str> = lines.iter().map(|line| line.split(' ').next().unwrap()).collect();
    let whole = "None/None";
    let (one, two) = ("Some(\"1\")/Some(\"2\")", "Some(\"2\")/Some(\"2\")");
    assert_eq!(numbers, [whole, whole, one, two, whole, one, two, whole, whole], "{lines:#?}");
    assert_eq!(
        lines[2..4],
        [
            format!(
                "{one} Some(\"1\") _id splitEvent wallTime clusterTime operationType documentKey ns updateDescription \
                 fullDocument"
            ),
            format!("{two} None _id splitEvent fullDocumentBeforeChange"),
        ]
    );
    // The fields together are those of the event, each whole.
    let mut sizes: Vec<usize> = Vec::new();
    for fragment in &all.documents[2..4] {
        let size = fragment.as_bytes().len();
        assert!(size <= (16 << 20) + 8192, "{size}");
        sizes.push(size);
    }
    assert!(sizes.iter().all(|size| *size > 9_000_000));
    let slowly = follow_in(&fixture, SPLIT, FROM_THE_BEGINNING, 1);
    assert_eq!(slowly.documents, all.documents);
    for (token, event) in slowly.batch_tokens.iter().zip(1..) {
        let rest = follow(&fixture, SPLIT, &resume_after(token));
        assert_eq!(rest.documents, all.documents[event..], "behind the batch of {event}");
    }
    // After each of them, and after the end of each batch, the rest follows.
    for at in 0..all.documents.len() {
        let id = all.documents[at].as_doc().get("_id").unwrap().as_document().unwrap().to_owned();
        for token in [&id, &all.batch_tokens[at]] {
            let rest = follow(&fixture, SPLIT, &resume_after(token));
            let last = all.batch_tokens.iter().rposition(|other| other == token).unwrap_or(at);
            let from = if token == &id { at } else { last };
            assert_eq!(rest.documents, all.documents[from + 1..], "behind {at}");
        }
    }
}

#[test]
fn an_event_that_is_too_large_ends_the_stream_after_those_before_it() {
    let fixture = fixture();
    let images = "fullDocument: 'required', fullDocumentBeforeChange: 'required'";
    let command = format!(
        "{{aggregate: 'c', pipeline: [{{$changeStream: {{{images}{FROM_THE_BEGINNING}}}}}], cursor: {{}}}}"
    );
    let reply = fixture.ok("test", &command);
    let Some(RawValue::Int64(id)) = part(reply.as_doc(), &["cursor", "id"]) else {
        panic!("no id")
    };
    let token = part(reply.as_doc(), &["cursor", "postBatchResumeToken"]).unwrap();
    let mut token = token.as_document().unwrap().to_owned();
    let mut seen = 0;
    let error = loop {
        let more = format!("{{getMore: NumberLong({id}), collection: 'c', maxTimeMS: 1}}");
        let reply = fixture.run("test", &more);
        let Some(batch) = part(reply.as_doc(), &["cursor", "nextBatch"]) else { break reply };
        let RawValue::Array(batch) = batch else { panic!("no batch") };
        seen += batch.iter().count();
        let now = part(reply.as_doc(), &["cursor", "postBatchResumeToken"]).unwrap();
        token = now.as_document().unwrap().to_owned();
    };
    let first = part(reply.as_doc(), &["cursor", "firstBatch"]).unwrap();
    let RawValue::Array(first) = first else { panic!("no batch") };
    assert_eq!(seen + first.iter().count(), 2);
    assert_eq!(error.as_doc().get("code"), Some(RawValue::Int32(10334)));
    // The stream resumes with the same event.
    let rest = follow(&fixture, SPLIT, &resume_after(&token));
    assert_eq!(rest.documents.len(), 7);
    let fewer = ", {$project: {operationType: 1, documentKey: 1}}";
    assert_eq!(follow(&fixture, fewer, &resume_after(&token)).documents.len(), 5);
}

#[test]
fn a_stream_that_lost_its_fragments_says_so() {
    let fixture = fixture();
    let all = follow(&fixture, SPLIT, FROM_THE_BEGINNING);
    let id = all.documents[2].as_doc().get("_id").unwrap().as_document().unwrap().to_owned();
    let images = "fullDocument: 'required', fullDocumentBeforeChange: 'required'";
    for (stage, begins) in [
        ("", "To resume from a split event"),
        (
            ", {$project: {operationType: 1}}, {$changeStreamSplitLargeEvent: {}}",
            "Attempted to resume",
        ),
    ] {
        let command = format!(
            "{{aggregate: 'c', pipeline: [{{$changeStream: {{{images}{}}}}}{stage}], cursor: {{}}}}",
            resume_after(&id)
        );
        let mut reply = fixture.run("test", &command);
        if let Some(RawValue::Int64(id)) = part(reply.as_doc(), &["cursor", "id"]) {
            reply = fixture.run("test", &format!("{{getMore: NumberLong({id}), collection: 'c'}}"));
        }
        assert_eq!(reply.as_doc().get("code"), Some(RawValue::Int32(280)), "{stage}");
        let text = reply.as_doc().get("errmsg").and_then(RawValue::as_str).unwrap();
        assert!(text.contains(begins), "{text}");
    }
}

#[test]
fn events_before_one_that_a_stage_fails_on_are_shown() {
    let fixture = Fixture::new(memory());
    fixture.ok("test", "{insert: 'start', documents: [{_id: 1}]}");
    fixture
        .ok("test", "{insert: 'c', documents: [{_id: 1, n: 1}, {_id: 2, n: 0}, {_id: 3, n: 1}]}");
    let command = "{aggregate: 'c', pipeline: [{$changeStream: {startAtOperationTime: Timestamp(1800000000, 1)}}, \
                   {$set: {q: {$divide: [1, '$fullDocument.n']}}}], cursor: {}}";
    let reply = fixture.ok("test", command);
    let Some(RawValue::Array(first)) = part(reply.as_doc(), &["cursor", "firstBatch"]) else {
        panic!("no batch")
    };
    assert_eq!(first.iter().count(), 1);
    let Some(RawValue::Int64(id)) = part(reply.as_doc(), &["cursor", "id"]) else {
        panic!("no id")
    };
    let more = format!("{{getMore: NumberLong({id}), collection: 'c', maxTimeMS: 1}}");
    assert_eq!(fixture.run("test", &more).as_doc().get("ok"), Some(RawValue::Double(0.0)));
}
