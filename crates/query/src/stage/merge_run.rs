//! Runs a `$merge`.
//!
//! 1. Each result becomes an update or an insert of one record.
//! 2. Writes of different records are collected, up to a number and a size, into one write unit.
//! 3. If the unit fails, because of one write or of a concurrent writer, the writes are applied one
//!    by one.
//! 4. An error of one document does not prevent the writes of the others in its batch, which is
//!    larger than a unit, as in the reference. The first error ends the command after the batch.

use foldhash::{HashSet, HashSetExt};
use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_expr::{Frame, Scope};
use mayfly_mql::{Matcher, ParseContext, Update};
use mayfly_storage::{Collection, StoreSession};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, SortOrder, new_object_id};
use std::sync::Arc;

use super::merge::{Matched, Merge, NotMatched, fault};
use super::sub::is_stage;
use super::target::{filled, with_id};
use super::{Next, Running, StageContext};
use crate::exec::Flow;
use crate::language::CanonicalQuery;
use crate::memory::Budget;
use crate::modify::{SingleWrite, Unmatched, UpdateSpec, WriteKind, update, write_together};

/// Limit on the documents of a write unit, and approximate limit on their bytes.
const UNIT_DOCUMENTS: usize = 256;
const UNIT_BYTES: usize = 1 << 20;

/// Limits on a batch: those of a command that the reference writes it with.
const BATCH_DOCUMENTS: usize = limits::MAX_WRITE_BATCH_ITEMS;
const BATCH_BYTES: usize = limits::MAX_USER_DOCUMENT_BYTES;

/// Whether documents without a value in a field can be matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// A missing value matches like null: the unique index has entries for both.
    IsNull,
    /// A value is needed.
    IsRefused,
}

/// Whether an index ensures that documents differ in these fields; `None` if there is none.
fn unique_on(collection: &Collection, on: &[String], scope: &Scope) -> Option<Missing> {
    if on == ["_id"] {
        return Some(Missing::IsRefused);
    }
    let indexes = collection.indexes();
    let mut fitting = indexes.iter().filter(|index| {
        let spec = &index.spec;
        let fields = spec.fields();
        spec.unique()
            && spec.kind().is_ordered()
            && !index.is_partial()
            && mayfly_value::same_collation(spec.collation(), scope.collation())
            && fields.len() == on.len()
            && fields.iter().all(|field| on.contains(&field.path))
    });
    let first = fitting.next()?;
    let is_full = !first.spec.sparse() || fitting.any(|index| !index.spec.sparse());
    Some(if is_full { Missing::IsNull } else { Missing::IsRefused })
}

/// Looks for the index that ensures that the documents of the target differ in the `on` fields.
///
/// # Errors
/// 51183 if there is none.
pub(super) fn missing_in(merge: &Merge, session: StoreSession<'_>) -> Result<Missing> {
    let Merge { into, on, scope, .. } = merge;
    let unique = match session.collection(into) {
        Some(existing) => unique_on(&existing, on, scope),
        None => (*on == ["_id"]).then_some(Missing::IsRefused),
    };
    let text = "Cannot find index to verify that join fields will be unique";
    unique.ok_or_else(|| fault(51183, text))
}

pub(super) struct RunningMerge {
    merge: Merge,
    target: Option<Arc<Collection>>,
    missing: Missing,
    /// Writes for the next unit.
    waiting: Vec<Write>,
    /// The keys of the records that they write. Writes of one record do not share a unit.
    keys: HashSet<Vec<u8>>,
    bytes: usize,
    batch: Batch,
}

/// The documents since the end of the last batch.
#[derive(Default)]
struct Batch {
    documents: usize,
    bytes: usize,
    /// The first error of one of them.
    failed: Option<Error>,
}

/// The write for a result.
enum Write {
    Insert(DocBuf),
    Update(Box<UpdateSpec>),
}

impl RunningMerge {
    pub(super) fn new(merge: Merge) -> RunningMerge {
        let (waiting, keys, missing) = (Vec::new(), HashSet::new(), Missing::IsRefused);
        let batch = Batch::default();
        RunningMerge { merge, target: None, missing, waiting, keys, bytes: 0, batch }
    }

    fn target(&mut self, context: &StageContext<'_>) -> Result<Arc<Collection>> {
        let into = &self.merge.into;
        // A renamed collection is no longer the target.
        let still = |target: &&Arc<Collection>| target.check_still(into).is_ok();
        if let Some(target) = self.target.as_ref().filter(still) {
            return Ok(target.clone());
        }
        let session = context.session;
        session.store.check_no_view(session.view, into)?;
        self.missing = missing_in(&self.merge, session)?;
        let (target, _) = session.store.get_or_create(session.view, into)?;
        self.target = Some(target.clone());
        Ok(target)
    }

    /// The filter for the document to merge with.
    fn filter(&self, document: RawDoc<'_>) -> Result<DocBuf> {
        let mut filter = DocBuilder::new();
        for field in &self.merge.on {
            match mayfly_value::paths::get_plain(document, field) {
                Some(RawValue::Array(_)) => {
                    let text = "$merge write error: 'on' field cannot be an array";
                    return Err(fault(51185, text));
                }
                None | Some(RawValue::Null | RawValue::Undefined) => match self.missing {
                    // An equality would add the field to a document that is inserted.
                    Missing::IsNull => {
                        filter.start_document(field).append("$gte", RawValue::Null).end()
                    }
                    Missing::IsRefused => {
                        let text =
                            "$merge write error: 'on' field cannot be missing, null or undefined";
                        return Err(fault(51132, text));
                    }
                },
                Some(value) => filter.start_document(field).append("$eq", value).end(),
            };
        }
        Ok(filter.finish())
    }

    fn update(&self, document: RawDoc<'_>) -> Result<Update> {
        let context = ParseContext { is_stage: Some(is_stage), ..ParseContext::default() };
        let operator = |name: &str| {
            let mut out = DocBuilder::new();
            out.append(name, document);
            Update::parse(out.finish().as_doc(), &context)
        };
        match &self.merge.matched {
            Matched::Replace | Matched::Fail => Update::parse(document, &context),
            Matched::Keep => operator("$setOnInsert"),
            Matched::Merge => operator("$set"),
            Matched::Pipeline(stages) => {
                let mut scope = self.merge.scope.clone();
                let mut values = DocBuilder::new();
                if !self.merge.variables.iter().any(|(name, _)| name == "new") {
                    values.start_document("new").append("$literal", document).end();
                }
                for (name, expression) in &self.merge.variables {
                    let value = expression.evaluate(Frame::new(document))?;
                    // A variable without a value is undefined, and its use an error.
                    if let Some(value) = value.as_raw() {
                        values.start_document(name).append("$literal", value).end();
                    }
                }
                scope.declare(values.finish().as_doc())?;
                Update::parse_in(RawValue::Array(stages.as_doc()), &[], &scope, &context)
            }
        }
    }

    /// The write for a result, and the key of its record.
    fn prepared(
        &self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
    ) -> Result<(Write, Vec<u8>)> {
        let document = match self.merge.on.iter().any(|field| field == "_id") {
            true => with_id(context, document),
            false => document.to_owned(),
        };
        let filter = self.filter(document.as_doc())?;
        let key = self.key(document.as_doc());
        let document = filled(context, document);
        if matches!(self.merge.matched, Matched::Fail) {
            return Ok((Write::Insert(with_id(context, document.as_doc())), key));
        }
        let matcher = Matcher::parse_in(filter.as_doc(), &self.merge.scope)?;
        let collation = self.merge.scope.collation().cloned();
        let query = CanonicalQuery {
            matcher: Arc::new(matcher),
            collation,
            ..CanonicalQuery::everything(None)?
        };
        let upsert = self.merge.not_matched == NotMatched::Insert;
        let pipeline = matches!(self.merge.matched, Matched::Pipeline(_));
        let spec = UpdateSpec {
            query,
            update: self.update(document.as_doc())?,
            multi: false,
            upsert,
            supplied: (upsert && pipeline).then(|| document.clone()),
            new_id: new_object_id(context.session.op.now_ms()),
            repeatable: None,
            bypass_validation: context.settings.bypass_validation,
            budget: Budget::default(),
            encrypted: None,
        };
        Ok((Write::Update(Box::new(spec)), key))
    }

    /// The values of the `on` fields as a key.
    fn key(&self, document: RawDoc<'_>) -> Vec<u8> {
        let mut key = Vec::new();
        for field in &self.merge.on {
            let value = mayfly_value::paths::get_plain(document, field).unwrap_or(RawValue::Null);
            let collation = self.merge.scope.collation().map(|it| &**it);
            let bits = &mut TypeBits::default();
            keys::append_value_in(&mut key, bits, value, SortOrder::Ascending, collation);
        }
        key
    }

    /// Writes the waiting documents, in units or one by one.
    fn flush(&mut self, context: &StageContext<'_>) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        self.keys.clear();
        self.bytes = 0;
        let mut rest = waiting.into_iter();
        while rest.len() > 1 {
            let Some(written) = self.write_together(context, rest.as_slice())? else { break };
            rest.by_ref().take(written).for_each(drop);
        }
        for write in rest {
            context.session.op.check()?;
            match self.write_one(context, write) {
                Err(error) if concerns_document(&error) => {
                    self.batch.failed.get_or_insert(error);
                }
                written => written?,
            }
        }
        Ok(())
    }

    /// Writes the waiting documents, and ends the batch with the error of one of its documents.
    fn end_batch(&mut self, context: &StageContext<'_>) -> Result<()> {
        self.flush(context)?;
        std::mem::take(&mut self.batch).failed.map_or(Ok(()), Err)
    }

    /// Writes leading documents in one unit and returns their number. Returns `None`, with nothing
    /// written, if they have to be written one by one.
    fn write_together(
        &mut self,
        context: &StageContext<'_>,
        waiting: &[Write],
    ) -> Result<Option<usize>> {
        let target = self.target(context)?;
        let unmatched = match self.merge.not_matched {
            NotMatched::Fail => Unmatched::GivesUp,
            _ => Unmatched::Allowed,
        };
        let bypass_validation = context.settings.bypass_validation;
        let kinds = waiting.iter().map(|write| match write {
            Write::Update(spec) => WriteKind::Update(spec),
            Write::Insert(document) => {
                WriteKind::Insert { document: document.as_doc(), bypass_validation }
            }
        });
        let writes: Vec<_> = kinds.map(|kind| SingleWrite { kind, id: None }).collect();
        let written = write_together(context.session, &target, &writes, unmatched)?;
        Ok(written.map(|outcomes| outcomes.len()))
    }

    fn write_one(&mut self, context: &StageContext<'_>, write: Write) -> Result<()> {
        let target = self.target(context)?;
        let spec = match write {
            Write::Update(spec) => spec,
            Write::Insert(document) => {
                return context.session.write(&target, |unit| {
                    if context.settings.bypass_validation {
                        unit.bypass_validation();
                    }
                    unit.insert(document.as_doc())
                });
            }
        };
        let outcome = update(context.session, &target, &spec)?;
        if outcome.matched == 0 && self.merge.not_matched == NotMatched::Fail {
            return Err(Error::new(
                ErrorCode::MergeStageNoMatchingDocument,
                "$merge could not find a matching document in the target collection for at least one document in the \
                 source collection",
            ));
        }
        Ok(())
    }
}

/// Whether other documents may be written in spite of this error of one.
fn concerns_document(error: &Error) -> bool {
    matches!(
        error.code(),
        ErrorCode::DuplicateKey
            | ErrorCode::DocumentValidationFailure
            | ErrorCode::MergeStageNoMatchingDocument
            | ErrorCode::ImmutableField
            | ErrorCode::BSONObjectTooLarge
    )
}

impl Running for RunningMerge {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        _: &mut Next<'_>,
    ) -> Result<Flow> {
        if context.settings.read_only {
            return Ok(Flow::More);
        }
        context.session.op.check()?;
        self.target(context)?;
        let (write, key) = match self.prepared(context, document) {
            Ok(prepared) => prepared,
            // Earlier results are written in spite of the error.
            Err(error) => return self.end_batch(context).and(Err(error)),
        };
        if self.keys.contains(&key) {
            self.flush(context)?;
        }
        self.keys.insert(key);
        let bytes = document.as_bytes().len();
        self.bytes += bytes;
        self.waiting.push(write);
        self.batch.documents += 1;
        self.batch.bytes += bytes;
        if self.batch.documents >= BATCH_DOCUMENTS || self.batch.bytes >= BATCH_BYTES {
            self.end_batch(context)?;
        } else if self.waiting.len() >= UNIT_DOCUMENTS || self.bytes >= UNIT_BYTES {
            self.flush(context)?;
        }
        Ok(Flow::More)
    }

    fn finish(&mut self, context: &StageContext<'_>, _: &mut Next<'_>) -> Result<Flow> {
        // Errors of the target are reported even without documents.
        if !context.settings.read_only {
            self.target(context)?;
            self.end_batch(context)?;
        }
        Ok(Flow::More)
    }

    fn holds_back(&self) -> bool {
        true
    }
}
