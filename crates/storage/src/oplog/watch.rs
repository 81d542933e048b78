//! Watches: which entries of the log concern which change streams.
//!
//! A change stream is about one collection, one database, or the whole deployment, and most entries
//! are about something else. Streams of the same scope share a [`Watch`], which is notified of the
//! entries that may concern it:
//! 1. A commit looks up the watches that its entry concerns, while it holds its timestamp
//!    ([`Watches::of_entry`]).
//! 2. When the log is complete up to that timestamp, the watches note it, and their waiting streams
//!    are woken.
//! 3. A stream that has read up to some timestamp, and has nothing noted after it, need not read
//!    the log: it advances to the settled timestamp ([`Watch::quiet_until`]).
//!
//! Without watches a commit reads one counter.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use mayfly_base::Namespace;
use mayfly_buckets::BUCKETS_PREFIX;
use mayfly_value::{RawDoc, RawValue};
use parking_lot::{Mutex, RwLock};

use super::Oplog;
use crate::record::signal::Signal;

/// The collection with a database's views.
pub const SYSTEM_VIEWS: &str = "system.views";

/// The number of commits that a watch notes. A stream that is further back reads the log.
const NOTED: usize = 256;

/// Which changes a reader of the log follows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChangeScope {
    /// One collection.
    Collection(Namespace),
    /// All collections of a database.
    Database(String),
    /// All collections of all databases.
    Deployment,
}

impl ChangeScope {
    /// Whether the scope includes changes of this collection.
    pub fn covers(&self, db: &str, collection: &str) -> bool {
        match self {
            ChangeScope::Collection(ns) => ns.db() == db && ns.collection() == collection,
            ChangeScope::Database(_) | ChangeScope::Deployment => {
                self.covers_database(db) && is_visible(collection)
            }
        }
    }

    /// Whether the scope includes changes of this database as a whole.
    pub fn covers_database(&self, db: &str) -> bool {
        match self {
            ChangeScope::Collection(_) => false,
            ChangeScope::Database(database) => database == db,
            ChangeScope::Deployment => !is_internal(db),
        }
    }
}

fn is_internal(db: &str) -> bool {
    matches!(db, "admin" | "config" | "local")
}

/// Whether streams over several collections include this one.
fn is_visible(collection: &str) -> bool {
    !collection.starts_with("system.")
}

/// The shared state of all streams over one scope.
pub struct Watch {
    scope: ChangeScope,
    noted: Mutex<NotedCommits>,
    changed: Signal,
    watches: Arc<Watches>,
}

/// The timestamps of a commit's entries: one, or several of a large transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommitTimes {
    pub(super) first: u64,
    pub(super) last: u64,
}

/// Timestamps of the commits that may concern a scope.
struct NotedCommits {
    /// The list has all commits after this timestamp, as far as the log is complete.
    since: u64,
    /// Noted commits, ascending.
    commits: VecDeque<CommitTimes>,
}

impl Watch {
    /// Notes a commit that concerns the scope, just before the log is complete up to it. Commits
    /// come in order.
    pub(super) fn note(&self, commit: CommitTimes) {
        let mut noted = self.noted.lock();
        if noted.commits.len() >= NOTED {
            let forgotten = noted.commits.pop_front().map_or(0, |commit| commit.last);
            noted.since = noted.since.max(forgotten);
        }
        noted.commits.push_back(commit);
    }

    /// Wakes the waiting streams.
    pub(super) fn wake(&self) {
        self.changed.notify();
    }

    /// The greatest timestamp up to which no entry after `after` concerns the scope, given that the
    /// log is complete up to `settled`, which the caller read before; `None` when that is unknown.
    fn quiet_until(&self, after: u64, settled: u64) -> Option<u64> {
        let noted = self.noted.lock();
        if after < noted.since {
            return None;
        }
        let next = noted.commits.partition_point(|commit| commit.last <= after);
        let until = noted.commits.get(next).map_or(settled, |next| next.first - 1);
        Some(until.min(settled).max(after))
    }

    /// Whether an entry after this timestamp may concern the scope; `None` when that is unknown.
    fn has_beyond(&self, seen: u64) -> Option<bool> {
        let noted = self.noted.lock();
        let is_later = |newest: &CommitTimes| newest.last > seen;
        (seen >= noted.since).then(|| noted.commits.back().is_some_and(is_later))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watches.forget(&self.scope);
    }
}

/// The watches that the entries of a commit concern, as far as they were known before it.
#[derive(Default)]
pub(crate) struct Concerned {
    watches: Vec<Arc<Watch>>,
    /// The number of watches that had been made; `None` without an entry.
    made: Option<usize>,
}

/// All watches of one log.
#[derive(Default)]
pub(super) struct Watches {
    count: AtomicUsize,
    /// The number of watches that were ever made.
    made: AtomicUsize,
    by_scope: RwLock<ByScope>,
}

#[derive(Default)]
struct ByScope {
    collections: HashMap<String, Weak<Watch>>,
    databases: HashMap<String, Weak<Watch>>,
    deployment: Weak<Watch>,
}

impl ByScope {
    fn get(&self, scope: &ChangeScope) -> Option<Arc<Watch>> {
        let found = match scope {
            ChangeScope::Collection(ns) => self.collections.get(ns.as_str()),
            ChangeScope::Database(db) => self.databases.get(db),
            ChangeScope::Deployment => Some(&self.deployment),
        };
        found.and_then(Weak::upgrade)
    }

    fn insert(&mut self, watch: &Arc<Watch>) {
        let weak = Arc::downgrade(watch);
        match &watch.scope {
            ChangeScope::Collection(ns) => {
                self.collections.insert(ns.as_str().to_owned(), weak);
            }
            ChangeScope::Database(db) => {
                self.databases.insert(db.clone(), weak);
            }
            ChangeScope::Deployment => self.deployment = weak,
        }
    }
}

impl Watches {
    /// The watch of a scope, and whether it is new and has no notes yet.
    fn get(self: &Arc<Watches>, scope: ChangeScope) -> (Arc<Watch>, bool) {
        let mut by_scope = self.by_scope.write();
        if let Some(watch) = by_scope.get(&scope) {
            return (watch, false);
        }
        let noted = NotedCommits { since: u64::MAX, commits: VecDeque::new() };
        let watch = Arc::new(Watch {
            scope,
            noted: Mutex::new(noted),
            changed: Signal::default(),
            watches: self.clone(),
        });
        by_scope.insert(&watch);
        self.made.fetch_add(1, Ordering::AcqRel);
        self.count.fetch_add(1, Ordering::AcqRel);
        (watch, true)
    }

    /// Removes a watch of this scope, unless a new one has replaced it.
    fn forget(&self, scope: &ChangeScope) {
        self.count.fetch_sub(1, Ordering::AcqRel);
        let mut by_scope = self.by_scope.write();
        match scope {
            ChangeScope::Collection(ns) => {
                let gone = by_scope.collections.get(ns.as_str()).is_some_and(is_gone);
                gone.then(|| by_scope.collections.remove(ns.as_str()));
            }
            ChangeScope::Database(db) => {
                let gone = by_scope.databases.get(db).is_some_and(is_gone);
                gone.then(|| by_scope.databases.remove(db));
            }
            ChangeScope::Deployment => {}
        }
    }

    /// Adds the watches that an entry with these fields concerns. It is called before the commit.
    #[inline]
    pub(super) fn of_entry(&self, entry: RawDoc<'_>, concerned: &mut Concerned) {
        if concerned.made.is_none() {
            concerned.made = Some(self.made.load(Ordering::Acquire));
        }
        if self.count.load(Ordering::Acquire) > 0 {
            self.find_of_entry(entry, &mut concerned.watches);
        }
    }

    /// The watches that the entries of a commit concern. Called after the commit has got its
    /// timestamps: watches that are made later begin after them. If others were made since the
    /// entries were written, all count as concerned, which only makes them read the log.
    #[inline]
    pub(super) fn complete(&self, mut concerned: Concerned) -> Vec<Arc<Watch>> {
        if concerned.made.is_some_and(|made| made != self.made.load(Ordering::Acquire)) {
            self.add_all(&mut concerned.watches);
        }
        concerned.watches
    }

    /// All watches.
    pub(super) fn all(&self) -> Vec<Arc<Watch>> {
        let mut all = Vec::new();
        self.add_all(&mut all);
        all
    }

    #[cold]
    fn add_all(&self, concerned: &mut Vec<Arc<Watch>>) {
        let by_scope = self.by_scope.read();
        WatchSearch { by_scope: &by_scope, concerned, last: "" }.all();
    }

    #[cold]
    fn find_of_entry(&self, entry: RawDoc<'_>, concerned: &mut Vec<Arc<Watch>>) {
        let by_scope = self.by_scope.read();
        let mut finding = WatchSearch { by_scope: &by_scope, concerned, last: "" };
        let object = entry.get("o").and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY);
        let command = entry.get("op") == Some(RawValue::String("c"));
        match object.get("applyOps").and_then(RawValue::as_array).filter(|_| command) {
            None => finding.operation(entry),
            Some(items) => {
                let items = items.iter().filter_map(|item| item.value().as_document());
                items.for_each(|item| finding.operation(item));
            }
        }
    }
}

fn is_gone(watch: &Weak<Watch>) -> bool {
    watch.strong_count() == 0
}

/// A search for the watches that operations concern.
struct WatchSearch<'f, 'e> {
    by_scope: &'f ByScope,
    concerned: &'f mut Vec<Arc<Watch>>,
    /// The namespace of the last operation on documents.
    last: &'e str,
}

impl<'e> WatchSearch<'_, 'e> {
    fn operation(&mut self, operation: RawDoc<'e>) {
        let text = |name| operation.get(name).and_then(RawValue::as_str);
        match (text("op"), text("ns")) {
            (Some("n"), Some(ns)) if operation.get("o2").is_some() => self.namespace(ns),
            (Some("n"), _) => {}
            (Some("i" | "u" | "d"), Some(ns)) => {
                if self.last != ns {
                    self.last = ns;
                    self.namespace(ns);
                }
                if ns.strip_suffix(SYSTEM_VIEWS).is_some_and(|db| db.ends_with('.')) {
                    self.view(operation);
                }
            }
            (Some("c"), Some(ns)) => {
                let db = ns.split_once('.').map_or(ns, |(db, _)| db);
                self.command(db, operation.get("o").and_then(RawValue::as_document));
            }
            _ => self.all(),
        }
    }

    /// A change of a view, which its document in `system.views` names.
    fn view(&mut self, operation: RawDoc<'e>) {
        let part = |name| operation.get(name).and_then(RawValue::as_document);
        let id = |part: RawDoc<'e>| part.get("_id").and_then(RawValue::as_str);
        match part("o2").and_then(id).or_else(|| part("o").and_then(id)) {
            Some(view) => self.namespace(view),
            None => self.all(),
        }
    }

    fn command(&mut self, db: &str, command: Option<RawDoc<'_>>) {
        let first = command.and_then(|command| Some((command, command.iter().next()?)));
        match first.map(|(command, first)| (command, first.name(), first.value())) {
            Some((
                _,
                "drop" | "create" | "createIndexes" | "dropIndexes" | "collMod",
                RawValue::String(name),
            )) => {
                self.namespace(&format!("{db}.{name}"));
                if let Some(series) = name.strip_prefix(BUCKETS_PREFIX) {
                    self.namespace(&format!("{db}.{series}"));
                }
            }
            Some((command, "renameCollection", RawValue::String(from))) => {
                self.namespace(from);
                match command.get("to").and_then(RawValue::as_str) {
                    Some(to) => self.namespace(to),
                    None => self.all(),
                }
            }
            Some((_, "dropDatabase", _)) => {
                self.add(self.by_scope.databases.get(db));
                self.add(Some(&self.by_scope.deployment).filter(|_| !is_internal(db)));
            }
            // An unnecessary wake-up is harmless.
            _ => self.all(),
        }
    }

    fn namespace(&mut self, ns: &str) {
        let Some((db, collection)) = ns.split_once('.') else { return self.all() };
        self.add(self.by_scope.collections.get(ns));
        if is_visible(collection) {
            self.add(self.by_scope.databases.get(db));
            self.add(Some(&self.by_scope.deployment).filter(|_| !is_internal(db)));
        }
    }

    fn all(&mut self) {
        let ByScope { collections, databases, deployment } = self.by_scope;
        let all = collections.values().chain(databases.values()).chain([deployment]);
        all.for_each(|watch| self.add(Some(watch)));
    }

    /// Adds a watch. The caller keeps it until it has released the lock, because dropping a watch
    /// takes the lock.
    fn add(&mut self, watch: Option<&Weak<Watch>>) {
        let Some(watch) = watch else { return };
        if !self.concerned.iter().any(|known| Arc::as_ptr(known) == watch.as_ptr()) {
            self.concerned.extend(watch.upgrade());
        }
    }
}

impl Oplog {
    /// The watch of a scope. It ends with its last owner.
    pub fn watch(&self, scope: ChangeScope) -> Arc<Watch> {
        let watches = self.clock.watches();
        let (watch, new) = watches.get(scope);
        if new {
            // Commits with later timestamps find the watch.
            watch.noted.lock().since = self.clock.last_ordered();
        }
        watch
    }

    /// The timestamp up to which no entry after `after` concerns the watch, as far as that is known
    /// without reading the log.
    pub fn quiet_until(&self, watch: &Watch, after: u64) -> u64 {
        // Read first: all entries up to it that concern the watch have been noted.
        let settled = self.settled();
        watch.quiet_until(after, settled).unwrap_or(after)
    }

    /// Waits until an entry after this timestamp may concern the watch.
    pub async fn wait_past_for(&self, watch: &Watch, seen: u64) {
        match watch.has_beyond(seen) {
            // The notes of that time were dropped, so any new entry ends the wait.
            None => self.wait_past(seen).await,
            Some(_) => watch.changed.until(|| watch.has_beyond(seen) != Some(false)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use mayfly_value::DocBuf;
    use mayfly_value::bson::doc;

    use super::*;

    #[test]
    fn a_commit_concerns_watches_that_were_made_while_it_was_under_way() {
        let watches = Arc::new(Watches::default());
        let entry = DocBuf::from_bson(&doc! { "op": "i", "ns": "d.c" });
        let mut concerned = Concerned::default();
        let of = |name: &str| ChangeScope::Collection(Namespace::parse(name).unwrap());
        let (before, _) = watches.get(of("d.c"));
        let (other, _) = watches.get(of("d.other"));
        watches.of_entry(entry.as_doc(), &mut concerned);
        assert_eq!(concerned.watches.len(), 1);
        let (made, _) = watches.get(ChangeScope::Deployment);
        let found = watches.complete(concerned);
        assert!([&before, &other, &made].iter().all(|it| found.iter().any(|o| Arc::ptr_eq(o, it))));
        let mut concerned = Concerned::default();
        watches.of_entry(entry.as_doc(), &mut concerned);
        assert_eq!(watches.complete(concerned).len(), 2, "no other watch was made");
        assert!(watches.complete(Concerned::default()).is_empty(), "a commit without an entry");
    }
}
