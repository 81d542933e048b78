//! Views: documents in their database's `system.views`, which apply if there is no collection of
//! the same name.
//!
//! ```text
//! { _id: "db.view", viewOn: "collection or view", pipeline: [ ... ], collation?: { ... } }
//! ```
//!
//! The documents in the collection are the only copy of a definition. Storage follows `viewOn` and
//! joins pipelines; the query layer interprets them.

use crate::isolation::ReadView;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_value::{Collation, DocBuf, DocBuilder, RawDoc, RawElement, RawValue, same_collation};
use mayfly_work::OpCtx;

use crate::catalog::Definition;
use crate::oplog::SYSTEM_VIEWS;
use crate::read::ScanResult;
use crate::record::IdKey;
use crate::record::layout::id_key;
use crate::write::DefinitionChange;
use crate::{Collection, Direction, ScanLimit, Store, UpdateStyle, whole_range};

/// The most views on the way from a view to its collection. Manual: "MongoDB Limits and
/// Thresholds", "View Nesting".
pub const MAX_VIEW_DEPTH: usize = 20;

/// The stage that unpacks buckets.
pub const UNPACK_STAGE: &str = "$_internalUnpackBucket";

/// The stage that shows buckets in the reference's format.
pub const SHOW_BUCKETS_STAGE: &str = "$_internalShowBuckets";

/// A view after following `viewOn` to a collection.
#[derive(Clone, Debug)]
pub struct ResolvedView {
    /// The name of the view.
    pub ns: Namespace,
    /// The collection that it reads; it need not exist.
    pub on: Namespace,
    /// The stages of all views on the way, the innermost first, as an array.
    pub pipeline: DocBuf,
    /// The collation of all these views, or the default one of the time series; `None` for the
    /// simple collation.
    pub collation: Option<Arc<Collation>>,
    /// Whether the name is that of a time series, so that a command may have another collation.
    pub is_series: bool,
}

impl ResolvedView {
    /// What the view makes of the documents of its collection: `{ pipeline, collation? }`. Search
    /// indexes on the view compare it with that of the documents that they contain.
    pub fn transformation(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append("pipeline", RawValue::Array(self.pipeline.as_doc()));
        if let Some(collation) = &self.collation {
            out.append("collation", collation.document());
        }
        out.finish()
    }

    /// Whether it shows buckets instead of the measurements in them.
    pub fn shows_buckets(&self) -> bool {
        let first = self.pipeline.as_doc().iter().next();
        first
            .and_then(|stage| stage.value().as_document())
            .is_some_and(|stage| stage.get(SHOW_BUCKETS_STAGE).is_some())
    }
}

/// A view for listings.
#[derive(Clone, Debug)]
pub struct View {
    /// The name without the database.
    pub name: String,
    /// The fields `viewOn`, `pipeline` and `collation`.
    pub options: DocBuf,
}

fn view_key(ns: &Namespace) -> IdKey {
    id_key(RawValue::String(ns.as_str()))
}

/// The names that a view's definition reads in a database: its source, and those in its pipeline.
/// Implemented by the query layer.
pub type ReadsOf<'f> = &'f dyn Fn(&str, RawDoc<'_>) -> Vec<Namespace>;

impl Store {
    /// The buckets' collection of the time series of this name, with its definition.
    pub fn time_series_named(
        &self,
        view: &ReadView,
        ns: &Namespace,
    ) -> Option<(Arc<Collection>, Arc<TimeSeries>)> {
        let buckets = self.collection(view, &TimeSeries::buckets_of(ns)?)?;
        let series = buckets.time_series()?;
        Some((buckets, series))
    }

    /// The definition of the view of this name; `None` when there is no such view.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn view(&self, view: &ReadView, ns: &Namespace) -> Result<Option<DocBuf>> {
        if let Some((buckets, series)) = self.time_series_named(view, ns) {
            return Ok(Some(view_of_buckets(ns, &buckets, &series)));
        }
        let Ok(system) = Namespace::new(ns.db(), SYSTEM_VIEWS) else { return Ok(None) };
        match self.collection(view, &system) {
            Some(views) => {
                self.read_by_id(view, &views, &view_key(ns), |_, found| found.to_owned())
            }
            None => Ok(None),
        }
    }

    /// The time series of this name, unless a collection has exactly that name.
    pub(crate) fn time_series_not_hidden(
        &self,
        view: &ReadView,
        ns: &Namespace,
    ) -> Option<(Arc<Collection>, Arc<TimeSeries>)> {
        if self.collection(view, ns).is_some() { None } else { self.time_series_named(view, ns) }
    }

    /// The views of a database, in the order of their names.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn views(&self, view: &ReadView, db: &str) -> Result<Vec<View>> {
        let Some(system) = self.collection(view, &Namespace::new(db, SYSTEM_VIEWS)?) else {
            return Ok(Vec::new());
        };
        let (mut views, mut range) = (Vec::new(), whole_range());
        let snapshot = self.snapshot(view)?;
        loop {
            let direction = Direction::Forward;
            let limit = ScanLimit::ALL;
            let scanned =
                snapshot.scan_records(&system, &range, direction, limit, &mut |_, document| {
                    views.extend(view_of(db, document));
                    Ok(std::ops::ControlFlow::Continue(()))
                })?;
            match scanned {
                ScanResult::Exhausted => {
                    views.sort_by(|a: &View, b| a.name.cmp(&b.name));
                    return Ok(views);
                }
                ScanResult::Paused(last) => range = range.after(&last, direction),
            }
        }
    }

    /// The resolved view of this name, if it is one.
    ///
    /// # Errors
    /// 165 ViewDepthLimitExceeded, 182 InvalidViewDefinition.
    pub fn resolve_view(&self, view: &ReadView, ns: &Namespace) -> Result<Option<ResolvedView>> {
        let Some(mut definition) = self.view(view, ns)? else { return Ok(None) };
        let collation = Collation::of_options(definition.as_doc())?;
        // Definitions of all views on the way, the outermost first.
        let mut pipelines = Vec::new();
        for _ in 0..MAX_VIEW_DEPTH {
            let Some(RawValue::String(on)) = definition.as_doc().get("viewOn") else {
                let text = format!("the definition of the view {ns} cannot be read");
                return Err(Error::new(ErrorCode::InvalidViewDefinition, text));
            };
            let on = Namespace::new(ns.db(), on)?;
            pipelines.push(definition.clone());
            let inner = match self.collection(view, &on) {
                Some(_) => None,
                None => self.view(view, &on)?,
            };
            match inner {
                Some(inner) => definition = inner,
                None => {
                    let is_series = pipelines.len() == 1
                        && self.collection(view, &on).is_some_and(|it| it.time_series().is_some());
                    let pipeline = joined(&pipelines);
                    let ns = ns.clone();
                    return Ok(Some(ResolvedView { ns, on, pipeline, collation, is_series }));
                }
            }
        }
        Err(too_deep(ns))
    }

    /// Creates a view. The caller has checked the pipeline.
    ///
    /// # Errors
    /// 48 NamespaceExists, 5 GraphContainsCycle, 165 ViewDepthLimitExceeded.
    pub fn create_view(
        &self,
        op: &OpCtx,
        ns: &Namespace,
        options: RawDoc<'_>,
        reads_of: ReadsOf<'_>,
    ) -> Result<()> {
        let _changing = self.catalog.lock()?;
        if self.catalog.get(ns).is_some() {
            let text = format!("Collection {ns} already exists.");
            return Err(Error::new(ErrorCode::NamespaceExists, text));
        }
        let mut definition = DocBuilder::new();
        definition.append("_id", ns.as_str()).append_all(options);
        let definition = definition.finish();
        match self.view(&ReadView::now(), ns)? {
            Some(existing) if existing == definition => return Ok(()),
            Some(_) => {
                let text = format!("A view already exists. NS: {ns}");
                return Err(Error::new(ErrorCode::NamespaceExists, text));
            }
            None => {}
        }
        let reads = reads_of(ns.db(), definition.as_doc());
        self.check_graph(ns, &reads, reads_of)?;
        self.check_collations(ns, definition.as_doc(), &reads, reads_of)?;
        let views = self.get_or_create_locked(&Namespace::new(ns.db(), SYSTEM_VIEWS)?)?;
        self.write(op, &ReadView::now(), &views, |unit| unit.insert(definition.as_doc()))?;
        self.report_definition(&DefinitionChange::ViewCreated {
            ns,
            definition: definition.as_doc(),
        });
        Ok(())
    }

    /// Changes the source and pipeline of a view.
    ///
    /// # Errors
    /// 26 NamespaceNotFound, 5 GraphContainsCycle, 165 ViewDepthLimitExceeded.
    pub fn replace_view(
        &self,
        op: &OpCtx,
        ns: &Namespace,
        options: RawDoc<'_>,
        reads_of: ReadsOf<'_>,
    ) -> Result<()> {
        let _changing = self.catalog.lock()?;
        let reads = reads_of(ns.db(), options);
        self.check_graph(ns, &reads, reads_of)?;
        self.check_collations(ns, options, &reads, reads_of)?;
        match self.write_view(op, ns, Some(options))? {
            true => self.follow_views(ns.db()),
            false => return Err(Error::new(ErrorCode::NamespaceNotFound, "ns does not exist")),
        }
        Ok(())
    }

    /// Drops a view; returns false when there is none.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn drop_view(&self, op: &OpCtx, ns: &Namespace) -> Result<bool> {
        if self.view(&ReadView::now(), ns)?.is_none() {
            return Ok(false);
        }
        let _changing = self.lock_catalog_sparing(std::slice::from_ref(ns))?;
        let Some(old) = self.view(&ReadView::now(), ns)? else { return Ok(false) };
        // A collection may get the name, while older snapshots still have the view.
        let _leaving = self.definitions.changing(ns, Definition::Changed);
        let dropped = self.write_view(op, ns, None)?;
        if dropped {
            self.follow_views(ns.db());
            self.report_definition(&DefinitionChange::ViewDropped { ns, definition: old.as_doc() });
        }
        Ok(dropped)
    }

    fn write_view(&self, op: &OpCtx, ns: &Namespace, options: Option<RawDoc<'_>>) -> Result<bool> {
        let Some(views) = self.catalog.get(&Namespace::new(ns.db(), SYSTEM_VIEWS)?) else {
            return Ok(false);
        };
        let id_key = view_key(ns);
        self.write(op, &ReadView::now(), &views, |unit| {
            let Some(key) = unit.locate(id_key.clone())? else { return Ok(false) };
            let Some(old) = unit.read(&key)? else { return Ok(false) };
            match options {
                None => unit.delete(&key, &old)?,
                Some(options) => {
                    let mut new = DocBuilder::new();
                    new.append("_id", ns.as_str()).append_all(options);
                    let new = new.finish();
                    unit.update(&key, &old, new.as_doc(), UpdateStyle::Replacement)?;
                }
            }
            Ok(true)
        })
    }

    /// Checks that a view has the same collation as the views that it reads and those that read it.
    /// Collections and time series are read with any.
    fn check_collations(
        &self,
        ns: &Namespace,
        view: RawDoc<'_>,
        reads: &[Namespace],
        reads_of: ReadsOf<'_>,
    ) -> Result<()> {
        let collation = Collation::of_options(view)?;
        let has_own = |read: &Namespace| {
            self.catalog.get(read).is_some()
                || self.time_series_named(&ReadView::now(), read).is_some()
        };
        for read in reads.iter().filter(|read| !has_own(read)) {
            let Some(other) = self.view(&ReadView::now(), read)? else { continue };
            let other = Collation::of_options(other.as_doc())?;
            if !same_collation(collation.as_ref(), other.as_ref()) {
                return Err(conflicting_collation(ns.as_str(), read.as_str()));
            }
        }
        let views = self.views(&ReadView::now(), ns.db())?;
        for reader in readers(&views, ns.db(), ns.collection(), reads_of) {
            let other = Collation::of_options(reader.options.as_doc())?;
            if !same_collation(collation.as_ref(), other.as_ref()) {
                let reader = format!("{}.{}", ns.db(), reader.name);
                return Err(conflicting_collation(&reader, ns.as_str()));
            }
        }
        Ok(())
    }

    /// Checks that a view does not read itself through other views, and that their depth is within
    /// the limit.
    fn check_graph(
        &self,
        ns: &Namespace,
        reads: &[Namespace],
        reads_of: ReadsOf<'_>,
    ) -> Result<()> {
        let mut level: Vec<(Namespace, Vec<Namespace>)> =
            reads.iter().map(|read| (read.clone(), vec![ns.clone()])).collect();
        for depth in 0..MAX_VIEW_DEPTH {
            let mut next = Vec::new();
            for (read, way) in level {
                if read == *ns {
                    let way: Vec<&str> = way.iter().map(Namespace::as_str).collect();
                    return Err(Error::new(
                        ErrorCode::GraphContainsCycle,
                        format!("View cycle detected: {} => {ns}", way.join(" => ")),
                    ));
                }
                let Some(view) = self.view(&ReadView::now(), &read)? else { continue };
                for inner in reads_of(ns.db(), view.as_doc()) {
                    let mut way = way.clone();
                    way.push(read.clone());
                    next.push((inner, way));
                }
            }
            next.sort_by(|a, b| a.0.cmp(&b.0));
            next.dedup_by(|a, b| a.0 == b.0);
            level = next;
            if level.is_empty() {
                return self.check_height(ns, depth, reads_of);
            }
        }
        Err(too_deep(ns))
    }

    /// Checks the chains of views that read a view through others. Its own chain has `below` views
    /// after it.
    fn check_height(&self, ns: &Namespace, below: usize, reads_of: ReadsOf<'_>) -> Result<()> {
        let views = self.views(&ReadView::now(), ns.db())?;
        let mut level = vec![ns.collection()];
        for _ in below..MAX_VIEW_DEPTH {
            let above = level.iter().flat_map(|read| readers(&views, ns.db(), read, reads_of));
            level = above.map(|view| view.name.as_str()).collect();
            level.sort_unstable();
            level.dedup();
            if level.is_empty() {
                return Ok(());
            }
        }
        Err(too_deep(ns))
    }
}

/// The view that shows the measurements of a time series.
fn view_of_buckets(ns: &Namespace, buckets: &Collection, series: &TimeSeries) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("_id", ns.as_str()).append("viewOn", buckets.namespace().collection());
    if let Some(collation) = buckets.collation() {
        out.append("collation", collation.document());
    }
    out.start_array("pipeline").push_document().start_document(UNPACK_STAGE);
    out.append("timeField", series.fields.time.as_str());
    if let Some(meta) = &series.fields.meta {
        out.append("metaField", meta.as_str());
    }
    out.append("bucketMaxSpanSeconds", series.max_span_secs as i32);
    out.end().end().end();
    out.finish()
}

/// How clients read a collection of buckets; `None` for other collections.
pub fn buckets_view(collection: &Collection) -> Option<ResolvedView> {
    let series = collection.time_series()?;
    let mut pipeline = DocBuilder::new_array();
    pipeline.push_document().start_document(SHOW_BUCKETS_STAGE);
    pipeline.append("timeField", series.fields.time.as_str()).end().end();
    let (on, pipeline) = (collection.namespace(), pipeline.finish());
    Some(ResolvedView { ns: on.clone(), on, pipeline, collation: None, is_series: false })
}

fn view_of(db: &str, document: RawDoc<'_>) -> Option<View> {
    let name = document.get("_id")?.as_str()?.strip_prefix(db)?.strip_prefix('.')?.to_owned();
    let mut options = DocBuilder::new();
    for element in document.iter().filter(|element| element.name() != "_id") {
        options.append_element(element);
    }
    Some(View { name, options: options.finish() })
}

/// An array of all stages; those of the last definition come first.
fn joined(definitions: &[DocBuf]) -> DocBuf {
    let mut out = DocBuilder::new_array();
    for definition in definitions.iter().rev() {
        let stages = definition.as_doc().get("pipeline").and_then(RawValue::as_array);
        stages.unwrap_or(RawDoc::EMPTY).iter().map(RawElement::value).for_each(|stage| {
            out.push(stage);
        });
    }
    out.finish()
}

/// The views of a database that read a collection or view. Only definitions that contain its name
/// are parsed.
fn readers<'v>(
    views: &'v [View],
    db: &str,
    read: &str,
    reads_of: ReadsOf<'_>,
) -> impl Iterator<Item = &'v View> {
    views.iter().filter(move |view| {
        let options = view.options.as_doc();
        let mut parts = options.as_bytes().windows(read.len().max(1));
        let is_named = parts.any(|part| part == read.as_bytes());
        is_named && reads_of(db, options).iter().any(|one| one.collection() == read)
    })
}

fn conflicting_collation(view: &str, read: &str) -> Error {
    let text = format!("View {view} has conflicting collation with view {read}");
    Error::new(ErrorCode::OptionNotSupportedOnView, text)
}

fn too_deep(ns: &Namespace) -> Error {
    Error::new(
        ErrorCode::ViewDepthLimitExceeded,
        format!(
            "View depth too deep or view cycle detected; maximum depth is {MAX_VIEW_DEPTH}. View: {ns}"
        ),
    )
}
