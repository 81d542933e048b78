//! The formats of archives.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::policy::ArchiveFormat;
use mayfly_value::RawDoc;
use mayfly_value::extjson::{self, Style};

use super::columns;

/// A compromise: archives are written once and rarely read.
const ZSTD_LEVEL: i32 = 6;

/// Encodes documents as one file.
///
/// # Errors
/// Errors of the encoder and the compressor.
pub(super) fn encode(format: ArchiveFormat, documents: &[RawDoc<'_>]) -> Result<Vec<u8>> {
    let plain = match format {
        ArchiveFormat::JsonLines => {
            let mut lines = String::new();
            for document in documents {
                lines.push_str(&extjson::to_string(*document, Style::Canonical));
                lines.push('\n');
            }
            lines.into_bytes()
        }
        ArchiveFormat::Bson => {
            documents.iter().flat_map(|document| document.as_bytes().iter().copied()).collect()
        }
        ArchiveFormat::Parquet => {
            return columns::encode(documents).map_err(|error| failed("parquet", &error));
        }
    };
    zstd::encode_all(plain.as_slice(), ZSTD_LEVEL).map_err(|error| failed("zstd", &error))
}

fn failed(format: &str, error: &dyn std::error::Error) -> Error {
    Error::new(ErrorCode::InternalError, format!("cannot write {format}: {error}"))
}
