//! Archives: allowed destinations, contents of files, and answers of an object store.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;

use mayfly_storage::policy::ArchiveFormat;
use mayfly_value::DocBuf;
use mayfly_value::bson::{Bson, DateTime, doc, oid::ObjectId};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use super::*;

fn archive(folder: &Path, urls: &[&str]) -> Archive {
    let urls = urls.iter().map(|url| (*url).to_owned()).collect();
    Archive::new(ArchiveOptions { folder: Some(folder.to_owned()), urls }).unwrap()
}

fn place(path: &str, format: ArchiveFormat) -> ArchivePlace<'_> {
    ArchivePlace { path, format, namespace: "db.c/../x", index: "a b_1", now_ms: 5 }
}

#[test]
fn only_what_is_configured_may_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path(), &["s3://allowed/under"]);
    for path in ["a", "a/b", "s3://allowed/under", "s3://allowed/under/here"] {
        archive.check(path).unwrap();
    }
    let bad = [
        "..",
        "a/../../b",
        "/etc",
        "./a",
        "s3://other/x",
        "s3://allowed/underground",
        "s3://allowed",
        "s3://allowed/under/../up",
        "s3://allowed/under/%2e%2e/up",
        "file:///etc",
        "http://x/y",
    ];
    for path in bad {
        let error = archive.check(path).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidOptions, "{path}");
    }
    let nowhere = Archive::new(ArchiveOptions::default()).unwrap();
    assert!(nowhere.check("a").is_err());
}

#[test]
fn a_folder_that_can_never_be_made_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path(), &[]);
    fs::write(folder.path().join("file"), "").unwrap();
    let (long, deep) = ("x".repeat(256), ["x"; 2000].join("/"));
    for (path, why) in [
        ("file", "is not a folder"),
        ("file/below/it", "is not a folder"),
        ("a\0b", "NUL"),
        (&long, "the name of a folder is too long"),
        (&deep, "it is too long"),
    ] {
        let error = archive.check(path).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidOptions, "{path}");
        assert!(error.message().contains(why), "{}", error.message());
    }
    fs::create_dir(folder.path().join("there")).unwrap();
    archive.check("there").unwrap();
    archive.check("there/below").unwrap();
    assert!(!folder.path().join("there/below").exists());
}

#[test]
fn long_names_of_collections_and_indexes_have_files() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path(), &[]);
    let name = "ä".repeat(200);
    let place = ArchivePlace { namespace: &name, index: &name, ..place("a", ArchiveFormat::Bson) };
    let document = DocBuf::from_bson(&doc! { "_id": 1 });
    archive.store(&place, &[document.as_doc()]).unwrap();
}

#[test]
fn files_hold_the_documents() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path(), &[]);
    let documents = [doc! { "_id": 1, "a": "x" }, doc! { "_id": 2i64, "b": [1, 2] }];
    let documents = documents.map(|document| DocBuf::from_bson(&document));
    let raw = documents.each_ref().map(DocBuf::as_doc);
    for format in [ArchiveFormat::JsonLines, ArchiveFormat::Bson, ArchiveFormat::Parquet] {
        archive.store(&place("old", format), &raw).unwrap();
    }
    let below = folder.path().join("old").join("db.c=2F..=2Fx");
    let mut names: Vec<_> =
        fs::read_dir(&below).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort_by_key(|path| path.extension().map(ToOwned::to_owned));
    assert_eq!(names.len(), 3);
    for path in names {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("a=20b_1-5-"), "{name}");
        let bytes = fs::read(&path).unwrap();
        if name.ends_with(".parquet") {
            let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
            assert_eq!(reader.metadata().file_metadata().num_rows(), 2);
            continue;
        }
        let plain = zstd::decode_all(bytes.as_slice()).unwrap();
        if name.ends_with(".bson.zst") {
            assert_eq!(plain, [raw[0].as_bytes(), raw[1].as_bytes()].concat());
        } else {
            let text = String::from_utf8(plain).unwrap();
            let first = r#"{"_id":{"$numberInt":"1"},"a":"x"}"#;
            assert_eq!(text.lines().next(), Some(first));
            assert_eq!(text.lines().count(), 2);
        }
    }
}

#[test]
fn columns_have_the_types_of_their_values() {
    let id = ObjectId::from_bytes([7; 12]);
    let documents = [
        doc! { "_id": id, "i": 1, "l": 1, "d": 1, "t": DateTime::from_millis(5), "s": "x", "m": 1, "n": Bson::Null },
        doc! { "_id": id, "i": 2, "l": 2i64, "d": 0.5, "s": Bson::Null, "m": "x", "_bson": 1 },
        doc! { "_id": id, "b": true, "m": { "a": 1 } },
    ];
    let documents = documents.map(|document| DocBuf::from_bson(&document));
    let file = columns::encode(&documents.each_ref().map(DocBuf::as_doc)).unwrap();
    let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap()).collect();
    let field = |row: usize, name: &str| {
        let found = rows[row].get_column_iter().find(|(column, _)| *column == name);
        found.map(|(_, field)| field.clone()).unwrap()
    };
    assert_eq!(field(0, "_id"), Field::Str("07".repeat(12)));
    assert_eq!((field(0, "i"), field(2, "i")), (Field::Int(1), Field::Null));
    assert_eq!((field(0, "l"), field(1, "l")), (Field::Long(1), Field::Long(2)));
    assert_eq!((field(0, "d"), field(1, "d")), (Field::Double(1.0), Field::Double(0.5)));
    assert_eq!((field(0, "t"), field(1, "t")), (Field::TimestampMillis(5), Field::Null));
    assert_eq!((field(0, "s"), field(1, "s")), (Field::Str("x".into()), Field::Null));
    assert_eq!(field(0, "m"), Field::Str("1".into()));
    assert_eq!(field(1, "m"), Field::Str("\"x\"".into()));
    assert_eq!(field(2, "m"), Field::Str("{\"a\":1}".into()));
    assert_eq!((field(0, "n"), field(2, "b")), (Field::Null, Field::Bool(true)));
    let whole = Field::Bytes(documents[1].as_bytes().to_vec().into());
    assert_eq!(field(1, "_bson"), whole);
}

/// An S3 server that accepts one object and returns its request line and bytes.
fn object_store(answer: &'static str) -> (u16, std::thread::JoinHandle<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut first, mut length) = (String::new(), 0);
        reader.read_line(&mut first).unwrap();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
        (first, body)
    });
    (port, served)
}

fn bucket(port: u16) -> Archive {
    let options = [
        ("aws_endpoint", format!("http://127.0.0.1:{port}")),
        ("aws_allow_http", "true".into()),
        ("aws_access_key_id", "key".into()),
        ("aws_secret_access_key", "secret".into()),
        ("aws_region", "us-east-1".into()),
    ];
    let stores = ObjectStores::new(options.map(|(name, value)| (name.to_owned(), value)).into());
    let options = ArchiveOptions { folder: None, urls: vec!["s3://bucket".into()] };
    Archive { options, stores }
}

#[test]
fn an_object_store_gets_the_file_before_the_call_returns() {
    let taken = "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let (port, served) = object_store(taken);
    let document = DocBuf::from_bson(&doc! { "_id": 1 });
    let place = place("s3://bucket/old", ArchiveFormat::Bson);
    bucket(port).store(&place, &[document.as_doc()]).unwrap();
    let (first, body) = served.join().unwrap();
    assert!(first.starts_with("PUT /bucket/old/db.c"), "{first}");
    assert_eq!(zstd::decode_all(body.as_slice()).unwrap(), document.as_bytes());
}

#[test]
fn an_object_store_that_refuses_is_an_error() {
    let refused = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let (port, served) = object_store(refused);
    let document = DocBuf::from_bson(&doc! { "_id": 1 });
    let place = place("s3://bucket/old", ArchiveFormat::Bson);
    let error = bucket(port).store(&place, &[document.as_doc()]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::FileStreamFailed);
    served.join().unwrap();
}
