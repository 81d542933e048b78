//! Converts an operation of the log to a change event. Fields and their order: manual, "Change
//! Events". The field `ttl` is an extension of this server.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_buckets::{BUCKETS_PREFIX, TimeSeries};
use mayfly_storage::{Collection, LogEntry, LogOperation, SYSTEM_VIEWS, StoreSession};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::delta::UpdateDescription;
use super::lookup::Lookup;
use super::options::Image;
use super::token::{Token, TokenKind};
use super::{ChangeOptions, ChangeScope};

/// Builds the events of a scope.
pub(super) struct Builder {
    pub(super) scope: ChangeScope,
    pub(super) options: ChangeOptions,
}

/// The result of an operation.
pub(super) enum Outcome {
    Nothing,
    Event(DocBuf),
    /// An update, whose present document has to be looked up.
    Update(DocBuf, Lookup),
    /// The last event of the stream, and the `invalidate` event after it.
    Last(DocBuf, DocBuf),
}

/// The position of an entry among the entries of one transaction.
pub(super) enum TransactionPart {
    /// Other entries follow.
    Before,
    /// The last entry; `before` is the timestamp of the preceding one.
    Last { before: u64 },
}

/// The position of an entry in a transaction that has several entries.
pub(super) fn part_of_transaction(entry: &LogEntry<'_>) -> Option<TransactionPart> {
    let before = previous(entry)?;
    let command = entry.get("o").and_then(RawValue::as_document)?;
    match command.get("partialTxn") {
        Some(RawValue::Bool(true)) => Some(TransactionPart::Before),
        _ => (before > 0).then_some(TransactionPart::Last { before }),
    }
}

/// The timestamp of the preceding entry of the same transaction, 0 for the first entry; `None` for
/// entries outside of transactions with several statements.
pub(super) fn previous(entry: &LogEntry<'_>) -> Option<u64> {
    match entry.get("prevOpTime")?.as_document()?.get("ts")? {
        RawValue::Timestamp(before) => Some(before),
        _ => None,
    }
}

/// An operation with its token and collection.
struct About<'e> {
    entry: &'e LogEntry<'e>,
    operation: &'e LogOperation<'e>,
    token: Token,
    db: &'e str,
    collection: &'e str,
}

impl<'e> About<'e> {
    /// The image of the document in this field of the operation, unless it has expired.
    fn image(&self, session: StoreSession<'_>, field: &str) -> Option<RawDoc<'e>> {
        if let Some(RawValue::Date(wall_ms)) = self.entry.get("wall")
            && session.store.oplog().images_expired(wall_ms, session.op.now_ms())
        {
            return None;
        }
        self.operation.get(field).and_then(RawValue::as_document)
    }
}

impl Builder {
    /// Converts an operation.
    ///
    /// # Errors
    /// 47 NoMatchingDocument if a required document is missing; errors of the store.
    pub(super) fn event(
        &self,
        session: StoreSession<'_>,
        entry: &LogEntry<'_>,
        operation: &LogOperation<'_>,
        token: Token,
    ) -> Result<Outcome> {
        let text = |name| operation.get(name).and_then(RawValue::as_str);
        let (Some(op), Some((db, collection))) =
            (text("op"), text("ns").and_then(|ns| ns.split_once('.')))
        else {
            return Ok(Outcome::Nothing);
        };
        let about = About { entry, operation, token, db, collection };
        match op {
            "i" | "u" | "d" if self.wants(db, collection) => self.change(session, &about),
            "i" | "u" | "d" if self.options.expanded && collection == SYSTEM_VIEWS => {
                self.view(&about)
            }
            "c" => Ok(self.command(&about)),
            "n" if self.options.expanded => Ok(self.note(&about)),
            _ => Ok(Outcome::Nothing),
        }
    }

    fn wants(&self, db: &str, collection: &str) -> bool {
        self.scope.covers(db, collection)
    }

    fn begin(&self, about: &About<'_>, kind: &str) -> DocBuilder {
        let uuid = about.operation.get("ui");
        self.begin_with(
            about,
            kind,
            uuid.filter(|_| self.options.expanded && kind != "dropDatabase"),
        )
    }

    /// The first fields of an event of something that is no collection.
    fn begin_without_uuid(&self, about: &About<'_>, kind: &str) -> DocBuilder {
        self.begin_with(about, kind, None)
    }

    fn begin_with(&self, about: &About<'_>, kind: &str, uuid: Option<RawValue<'_>>) -> DocBuilder {
        let mut out = DocBuilder::new();
        out.append("_id", &about.token.document()).append("operationType", kind);
        out.append("clusterTime", RawValue::Timestamp(about.token.timestamp));
        if let Some(uuid) = uuid {
            out.append("collectionUUID", uuid);
        }
        out.append("wallTime", about.entry.get("wall").unwrap_or(RawValue::Null));
        // Only transactions with several statements have these fields.
        for name in ["txnNumber", "lsid"] {
            if let Some(element) = about.entry.fields().get_element(name) {
                out.append_element(element);
            }
        }
        out
    }

    fn change(&self, session: StoreSession<'_>, about: &About<'_>) -> Result<Outcome> {
        let part = |name| about.operation.get(name).and_then(RawValue::as_document);
        let object = about.operation.object()?;
        let object = object.as_doc();
        let delta = object.get("diff").and_then(RawValue::as_document);
        let is_delta = delta.is_some() && object.get("$v").is_some();
        let kind = match about.operation.get("op").and_then(RawValue::as_str) {
            Some("i") => "insert",
            Some("u") if is_delta => "update",
            Some("u") => "replace",
            _ => "delete",
        };
        let (mut out, mut lookup) = (self.begin(about, kind), None);
        let key = part("o2").unwrap_or(object).get("_id").unwrap_or(RawValue::Null);
        match kind {
            "insert" | "replace" => {
                out.append("fullDocument", object);
            }
            "update" => lookup = self.append_after(session, about, key, &mut out)?,
            _ => {}
        }
        append_namespace(&mut out, "ns", about.db, about.collection);
        out.start_document("documentKey").append("_id", key).end();
        if let ("update", Some(delta)) = (kind, delta) {
            UpdateDescription::of(delta).append(&mut out, &self.options);
        }
        if kind != "insert" && self.options.before != Image::Off {
            let image = about.image(session, "preImage");
            if image.is_none() && self.options.before == Image::Required {
                return Err(no_image("a pre-image for all update, delete and replace", "pre"));
            }
            append_image(&mut out, "fullDocumentBeforeChange", image);
        }
        if let Some(ttl) = about.operation.get("ttl") {
            out.append("ttl", ttl);
        }
        Ok(match lookup {
            None => Outcome::Event(out.finish()),
            Some(lookup) => Outcome::Update(out.finish(), lookup),
        })
    }

    /// Appends the document after an update, or returns which one has to be looked up.
    fn append_after(
        &self,
        session: StoreSession<'_>,
        about: &About<'_>,
        id: RawValue<'_>,
        out: &mut DocBuilder,
    ) -> Result<Option<Lookup>> {
        let image = about.image(session, "postImage");
        match self.options.after {
            Image::Off => {}
            Image::Lookup => {
                let ns = Namespace::new(about.db, about.collection)?;
                let uuid = about.operation.get("ui");
                let same =
                    |collection: &Arc<Collection>| uuid == Some(RawValue::uuid(&collection.uuid()));
                let collection = session.collection(&ns).filter(same);
                let id_key = collection.as_ref().map_or_else(Vec::new, |it| it.id_key(id));
                return Ok(Some(Lookup { collection, id_key }));
            }
            Image::WhenAvailable => append_image(out, "fullDocument", image),
            Image::Required if image.is_none() => {
                return Err(no_image("a post-image for all update", "post"));
            }
            Image::Required => append_image(out, "fullDocument", image),
        }
        Ok(None)
    }

    fn command(&self, about: &About<'_>) -> Outcome {
        let object = about.operation.get("o").and_then(RawValue::as_document);
        let Some(command) = object.unwrap_or(RawDoc::EMPTY).iter().next() else {
            return Outcome::Nothing;
        };
        let object = object.unwrap_or(RawDoc::EMPTY);
        match (command.name(), command.value()) {
            ("drop", RawValue::String(name)) => match name.strip_prefix(BUCKETS_PREFIX) {
                Some(series) if self.options.expanded => self.drop(about, series),
                _ => self.drop(about, name),
            },
            ("renameCollection", RawValue::String(from)) => self.rename(about, object, from),
            ("dropDatabase", _) => self.drop_database(about),
            (kind, RawValue::String(name)) if self.options.expanded => {
                let kind = match kind {
                    "create" | "createIndexes" | "dropIndexes" => kind,
                    "collMod" => "modify",
                    _ => return Outcome::Nothing,
                };
                if let Some(series) = name.strip_prefix(BUCKETS_PREFIX)
                    && self.wants(about.db, series)
                {
                    return self.series(about, (kind, object), (name, series));
                }
                if !self.wants(about.db, name) {
                    return Outcome::Nothing;
                }
                let mut out = self.begin(about, kind);
                append_namespace(&mut out, "ns", about.db, name);
                if kind == "create" {
                    out.append("nsType", "collection");
                }
                out.start_document("operationDescription");
                describe(kind, object, &mut out);
                out.end();
                if kind == "modify" {
                    append_state_before(about, &mut out);
                }
                Outcome::Event(out.finish())
            }
            _ => Outcome::Nothing,
        }
    }

    /// The event of an entry without an operation.
    fn note(&self, about: &About<'_>) -> Outcome {
        let event = about.operation.get("o2").and_then(RawValue::as_document);
        let mut fields = event.unwrap_or(RawDoc::EMPTY).iter();
        let Some(kind) = fields.next().filter(|_| self.wants(about.db, about.collection)) else {
            return Outcome::Nothing;
        };
        let mut out = self.begin(about, kind.name());
        append_namespace(&mut out, "ns", about.db, about.collection);
        out.start_document("operationDescription");
        fields.for_each(|field| {
            out.append_element(field);
        });
        out.end();
        Outcome::Event(out.finish())
    }

    /// A change of a time series, which the log has as that of its buckets. The event shows the
    /// time series as a view of them.
    fn series(
        &self,
        about: &About<'_>,
        (kind, command): (&str, RawDoc<'_>),
        (buckets, name): (&str, &str),
    ) -> Outcome {
        let series = match kind {
            "create" => TimeSeries::from_options(command),
            "modify" => with_other_spans(about, command),
            _ => None,
        };
        let Some(series) = series else { return Outcome::Nothing };
        let mut out = self.begin_without_uuid(about, kind);
        append_namespace(&mut out, "ns", about.db, name);
        if kind == "create" {
            out.append("nsType", "timeseries");
        }
        out.start_document("operationDescription").append("viewOn", buckets);
        out.start_array("pipeline").push_document();
        out.start_document("$_internalUnpackBucket")
            .append("timeField", series.fields.time.as_str());
        if let Some(meta) = &series.fields.meta {
            out.append("metaField", meta.as_str());
        }
        out.append("bucketMaxSpanSeconds", series.max_span_secs as i32).end().end().end();
        if let Some(collation) = command.get("collation") {
            out.append("collation", collation);
        }
        out.end();
        Outcome::Event(out.finish())
    }

    /// The event of a view: a change of its document in `system.views`.
    fn view(&self, about: &About<'_>) -> Result<Outcome> {
        let object = about.operation.object()?;
        let object = object.as_doc();
        let kind = match about.operation.get("op").and_then(RawValue::as_str) {
            Some("i") => "create",
            Some("u") => "modify",
            _ => "drop",
        };
        let target = about.operation.get("o2").and_then(RawValue::as_document).unwrap_or(object);
        let name = target.get("_id").and_then(RawValue::as_str).and_then(|ns| ns.split_once('.'));
        let Some((db, name)) = name.filter(|(db, name)| self.wants(db, name)) else {
            return Ok(Outcome::Nothing);
        };
        let mut out = self.begin_without_uuid(about, kind);
        append_namespace(&mut out, "ns", db, name);
        match kind {
            "create" => drop(out.append("nsType", "view")),
            "drop" => return Ok(Outcome::Event(out.finish())),
            _ => {}
        }
        out.start_document("operationDescription");
        object.iter().filter(|field| field.name() != "_id").for_each(|field| {
            out.append_element(field);
        });
        out.end();
        Ok(Outcome::Event(out.finish()))
    }

    fn drop(&self, about: &About<'_>, name: &str) -> Outcome {
        if !self.wants(about.db, name) {
            return Outcome::Nothing;
        }
        let mut out = self.begin(about, "drop");
        append_namespace(&mut out, "ns", about.db, name);
        self.ended(about, matches!(self.scope, ChangeScope::Collection(_)), out)
    }

    fn rename(&self, about: &About<'_>, command: RawDoc<'_>, from: &str) -> Outcome {
        let to = command.get("to").and_then(RawValue::as_str).and_then(|to| to.split_once('.'));
        let (Some((db, name)), Some((to_db, to_name))) = (from.split_once('.'), to) else {
            return Outcome::Nothing;
        };
        if !self.wants(db, name) && !self.wants(to_db, to_name) {
            return Outcome::Nothing;
        }
        let mut out = self.begin(about, "rename");
        append_namespace(&mut out, "ns", db, name);
        append_namespace(&mut out, "to", to_db, to_name);
        if self.options.expanded {
            out.start_document("operationDescription");
            append_namespace(&mut out, "to", to_db, to_name);
            if let Some(gone) = command.get("dropTarget") {
                out.append("dropTarget", gone);
            }
            out.end();
        }
        self.ended(about, matches!(self.scope, ChangeScope::Collection(_)), out)
    }

    fn drop_database(&self, about: &About<'_>) -> Outcome {
        if !self.scope.covers_database(about.db) {
            return Outcome::Nothing;
        }
        let mut out = self.begin(about, "dropDatabase");
        out.start_document("ns").append("db", about.db).end();
        self.ended(about, matches!(self.scope, ChangeScope::Database(_)), out)
    }

    fn ended(&self, about: &About<'_>, ends: bool, event: DocBuilder) -> Outcome {
        if !ends {
            return Outcome::Event(event.finish());
        }
        let token = Token { kind: TokenKind::Invalidate, ..about.token };
        let mut last = DocBuilder::new();
        last.append("_id", &token.document()).append("operationType", "invalidate");
        last.append("clusterTime", RawValue::Timestamp(token.timestamp));
        last.append("wallTime", about.entry.get("wall").unwrap_or(RawValue::Null));
        Outcome::Last(event.finish(), last.finish())
    }
}

/// The time series after a change of its spans; `None` for other changes.
fn with_other_spans(about: &About<'_>, command: RawDoc<'_>) -> Option<TimeSeries> {
    let before = about.operation.get("o2")?.as_document()?;
    let before = before.get("collectionOptions_old")?.as_document()?;
    let before = TimeSeries::from_options(before)?;
    let after = before.grown(command.get("timeseries")?.as_document()?).ok()?;
    (after.max_span_secs != before.max_span_secs).then_some(after)
}

/// Appends `operationDescription` for a change of the catalog.
fn describe(kind: &str, command: RawDoc<'_>, out: &mut DocBuilder) {
    let arguments = || command.iter().skip(1);
    match kind {
        "createIndexes" => {
            out.start_array("indexes").push_document();
            arguments().for_each(|field| {
                out.append_element(field);
            });
            out.end().end();
        }
        "dropIndexes" => {
            out.start_array("indexes");
            if let Some(spec) = command.get("spec") {
                out.push(spec);
            }
            out.end();
        }
        "create" => {
            arguments().for_each(|field| {
                out.append_element(field);
            });
            if command.get("clusteredIndex").is_none() {
                out.start_document("idIndex").append("v", 2);
                out.start_document("key").append("_id", 1).end().append("name", "_id_");
                if let Some(collation) = command.get("collation") {
                    out.append("collation", collation);
                }
                out.end();
            }
        }
        _ => arguments().for_each(|field| {
            out.append_element(field);
        }),
    }
}

/// Appends `stateBeforeChange`, from the second document of the log entry.
fn append_state_before(about: &About<'_>, out: &mut DocBuilder) {
    let Some(RawValue::Document(before)) = about.operation.get("o2") else { return };
    out.start_document("stateBeforeChange");
    for (logged, shown) in
        [("collectionOptions_old", "collectionOptions"), ("indexOptions_old", "indexOptions")]
    {
        if let Some(options) = before.get(logged) {
            out.append(shown, options);
        }
    }
    out.end();
}

fn append_namespace(out: &mut DocBuilder, field: &str, db: &str, collection: &str) {
    out.start_document(field).append("db", db).append("coll", collection).end();
}

fn append_image(out: &mut DocBuilder, field: &str, image: Option<RawDoc<'_>>) {
    out.append(field, image.map_or(RawValue::Null, RawValue::Document));
}

fn no_image(required: &str, which: &str) -> Error {
    Error::new(
        ErrorCode::NoMatchingDocument,
        format!(
            "Change stream was configured to require {required} events, but the {which}-image was not found for an event"
        ),
    )
}
