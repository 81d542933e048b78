//! The functions that a database stores for scripts, in its collection `system.js`: documents
//! `{ _id: name, value: code }`. Manual: "Store a JavaScript Function on the Server".

use std::ops::ControlFlow;

use mayfly_base::{Namespace, Result};
use mayfly_kv::{Direction, ScanLimit};
use mayfly_storage::{ReadView, ScanResult, Store, whole_range};
use mayfly_value::{DocBuilder, RawValue, check_size};
use mayfly_work::OpCtx;

const COLLECTION: &str = "system.js";

/// The stored functions of a database and other stored values, as the bytes of a document from
/// names to values.
///
/// # Errors
/// Errors of the engine, 10334 if they do not fit into a document.
pub(super) fn read(store: &Store, op: &OpCtx, db: &str) -> Result<Vec<u8>> {
    let mut out = DocBuilder::new();
    let view = ReadView::now();
    let Some(collection) = store.collection(&view, &Namespace::new(db, COLLECTION)?) else {
        return Ok(out.finish().into_bytes());
    };
    let snapshot = store.snapshot(&view)?;
    let (direction, mut range) = (Direction::Forward, whole_range());
    loop {
        op.check()?;
        let scanned = snapshot.scan_records(
            &collection,
            &range,
            direction,
            ScanLimit::NONE,
            &mut |_, document| {
                let name = document.get("_id").and_then(RawValue::as_str);
                if let (Some(name), Some(value)) = (name, document.get("value")) {
                    out.append(name, value);
                    check_size(out.len())?;
                }
                Ok(ControlFlow::Continue(()))
            },
        )?;
        match scanned {
            ScanResult::Exhausted => return Ok(out.finish().into_bytes()),
            ScanResult::Paused(last) => range = range.after(&last, direction),
        }
    }
}
