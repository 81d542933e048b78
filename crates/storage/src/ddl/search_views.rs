//! Search indexes on views. Such an index is in the list of the collection that the view reads, and
//! its files contain the documents as the view shows them.
//!
//! A view is known by its name only: another pipeline, the drop of a view below it or a new name of
//! the collection change what it shows. After each such change the indexes of the database follow
//! ([`Store::follow_views`]):
//!
//! | the view now | its indexes |
//! |---|---|
//! | shows other documents of the collection | get a new version, and are filled again |
//! | reads another collection | go to that collection, and are filled again |
//! | reads no collection, or is gone | are dropped |
//!
//! A client may also write into `system.views` itself. The follower therefore checks all views when
//! a definition changes and when it begins. Until then, searches find no version with the view's
//! transformation.

use std::collections::BTreeSet;
use std::sync::Arc;

use mayfly_base::{ClientData, Error, ErrorCode, Namespace, Result};
use mayfly_value::DocBuf;

use super::search::SearchChange;
use crate::Store;
use crate::catalog::{Collection, Definition, SearchIndex};
use crate::isolation::ReadView;
use crate::views::ResolvedView;

/// The view of a search index.
#[derive(Clone)]
pub(crate) struct ViewSource {
    /// The name, without the database.
    pub(crate) name: String,
    /// [`ResolvedView::transformation`].
    pub(crate) transformation: DocBuf,
}

impl ViewSource {
    fn of(view: &ResolvedView) -> ViewSource {
        let name = view.ns.collection().to_owned();
        ViewSource { name, transformation: view.transformation() }
    }
}

/// What becomes of a search index.
enum Fate {
    Stays(Arc<SearchIndex>),
    Moves(Arc<Collection>, Arc<SearchIndex>),
    IsDropped,
}

impl Store {
    /// The collection that has the search indexes of this name, and the view if it is one.
    ///
    /// # Errors
    /// 26 NamespaceNotFound; 166 for a time series.
    pub(super) fn searched(&self, ns: &Namespace) -> Result<(Arc<Collection>, Option<ViewSource>)> {
        if let Some(collection) = self.catalog.get(ns) {
            return Ok((collection, None));
        }
        let now = ReadView::now();
        if self.time_series_named(&now, ns).is_some() {
            self.check_no_view(&now, ns)?;
        }
        let view = self.resolve_view(&now, ns)?;
        let read = view.as_ref().map_or(ns, |view| &view.on);
        match (self.catalog.get(read), &view) {
            (Some(collection), Some(view)) => Ok((collection, Some(ViewSource::of(view)))),
            _ => {
                let text = format!("Collection '{read}' does not exist.");
                Err(Error::new(ErrorCode::NamespaceNotFound, text))
            }
        }
    }

    /// Lets the search indexes on views of a database follow a change of a view or of the name of a
    /// collection. After an error they follow with the next change. The caller holds the catalog's
    /// lock.
    pub(crate) fn follow_views(&self, db: &str) {
        if let Err(error) = self.try_follow_views(db) {
            let why = ClientData(error);
            tracing::warn!(db, %why, "search indexes on views could not follow a change of a view; this is tried again");
        }
    }

    /// Lets the search indexes on all views follow changes of the views. Those of a secondary
    /// follow the owner's.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn follow_all_views(&self) -> Result<()> {
        if self.is_secondary() {
            return Ok(());
        }
        let dbs: BTreeSet<String> =
            self.log_fed_collections().iter().filter_map(of_views).collect();
        // A locked store is checked with the next change.
        let writing = self.fsync_lock.try_enter();
        if dbs.is_empty() || writing.is_none() {
            return Ok(());
        }
        let _changing = self.catalog.lock()?;
        dbs.iter().try_for_each(|db| self.try_follow_views(db))
    }

    /// Wakes the follower, because a search has found that a view shows other documents than its
    /// index contains.
    pub fn note_view_changed(&self, view: &Namespace) {
        if !self.is_secondary() {
            drop(self.definitions.changing(view, Definition::Building));
        }
    }

    fn try_follow_views(&self, db: &str) -> Result<()> {
        for collection in self.collections(Some(db)) {
            if of_views(&collection).is_none() {
                continue;
            }
            let present = collection.search.all();
            let mut list = Vec::with_capacity(present.len());
            for index in present.iter() {
                match self.fate(&collection, index)? {
                    Fate::Stays(index) => list.push(index),
                    // Added there first: after a crash in between it is in both lists, and leaves
                    // this one when the views are checked again.
                    Fate::Moves(to, index) => self.take_over(&to, index)?,
                    Fate::IsDropped => {}
                }
            }
            let is_same = |(one, other): (&Arc<_>, &Arc<_>)| Arc::ptr_eq(one, other);
            if list.len() < present.len() || !list.iter().zip(present.iter()).all(is_same) {
                self.install_search(&collection, list, SearchChange::Definitions)?;
            }
        }
        Ok(())
    }

    fn fate(&self, collection: &Collection, index: &Arc<SearchIndex>) -> Result<Fate> {
        let Some(name) = &index.view else { return Ok(Fate::Stays(index.clone())) };
        let ns = Namespace::new(collection.namespace().db(), name)?;
        let view = match self.catalog.get(&ns) {
            Some(_) => None,
            None => match self.resolve_view(&ReadView::now(), &ns) {
                Err(error) if shows_nothing(&error) => None,
                view => view?,
            },
        };
        let read = view.and_then(|view| Some((self.catalog.get(&view.on)?, ViewSource::of(&view))));
        let Some((read, source)) = read else { return Ok(Fate::IsDropped) };
        let Some(latest) = index.latest() else { return Ok(Fate::IsDropped) };
        let is_same = read.id() == collection.id();
        if is_same && latest.transformation.as_ref() == Some(&source.transformation) {
            return Ok(Fate::Stays(index.clone()));
        }
        // No search may use the versions of before.
        let mut changed = self.with_definition(index, &latest.definition, Some(&source))?;
        changed.versions.drain(..changed.versions.len().saturating_sub(1));
        let changed = Arc::new(changed);
        Ok(if is_same { Fate::Stays(changed) } else { Fate::Moves(read, changed) })
    }

    /// Adds an index to the collection that its view reads now, unless that has one of this name.
    fn take_over(&self, collection: &Collection, index: Arc<SearchIndex>) -> Result<()> {
        let mut list = Vec::clone(&collection.search.all());
        if list.iter().any(|other| other.name == index.name) {
            let (namespace, index) = (collection.namespace(), &*index.name);
            tracing::warn!(%namespace, index, "a search index on a view was dropped, because the collection that the view reads now has one of the same name");
            return Ok(());
        }
        list.push(index);
        self.install_search(collection, list, SearchChange::Definitions)
    }
}

/// The database of a collection with search indexes on views.
fn of_views(collection: &Arc<Collection>) -> Option<String> {
    let has = collection.search.are_there()
        && collection.search.all().iter().any(|index| index.view.is_some());
    has.then(|| collection.namespace().db().to_owned())
}

/// Whether a view cannot be read because of its definition.
fn shows_nothing(error: &Error) -> bool {
    [ErrorCode::ViewDepthLimitExceeded, ErrorCode::InvalidViewDefinition].contains(&error.code())
}
