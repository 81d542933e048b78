//! The privileges of a user, indexed so that a check is a few bit tests.
//!
//! They are computed once from the user's roles; a command checks each action it needs. An action
//! on a target is allowed if any resource that covers the target has it: the resource itself, the
//! names of database and collection by themselves, and the wildcards.

use foldhash::{HashMap, HashMapExt};

use crate::resource::{BUCKETS_PREFIX, is_internal, is_system};
use crate::{Action, ActionSet, Privilege, Resource, Target};

/// The privileges of a user.
#[derive(Clone, Debug, Default)]
pub struct Privileges {
    everything: ActionSet,
    cluster: ActionSet,
    all_normal: ActionSet,
    all_buckets: ActionSet,
    databases: HashMap<String, DatabasePrivileges>,
    /// Collections with this name in every database.
    collections: HashMap<String, ActionSet>,
    /// Time-series buckets with this name in every database.
    buckets: HashMap<String, ActionSet>,
}

#[derive(Clone, Debug, Default)]
struct DatabasePrivileges {
    all_normal: ActionSet,
    all_buckets: ActionSet,
    collections: HashMap<String, ActionSet>,
    buckets: HashMap<String, ActionSet>,
}

impl Privileges {
    /// The union of these privileges.
    pub fn new<'p>(privileges: impl IntoIterator<Item = &'p Privilege>) -> Privileges {
        let mut all = Privileges { databases: HashMap::new(), ..Privileges::default() };
        for Privilege { resource, actions } in privileges {
            let place = all.place(resource);
            *place = place.and(*actions);
        }
        all
    }

    fn place(&mut self, resource: &Resource) -> &mut ActionSet {
        match resource {
            Resource::Any => &mut self.everything,
            Resource::Cluster => &mut self.cluster,
            Resource::Namespace { db, collection } => {
                match (db.is_empty(), collection.is_empty()) {
                    (true, true) => &mut self.all_normal,
                    (true, false) => self.collections.entry(collection.clone()).or_default(),
                    (false, true) => &mut self.database(db).all_normal,
                    (false, false) => {
                        self.database(db).collections.entry(collection.clone()).or_default()
                    }
                }
            }
            Resource::SystemBuckets { db, series } => match (db.is_empty(), series.is_empty()) {
                (true, true) => &mut self.all_buckets,
                (true, false) => self.buckets.entry(series.clone()).or_default(),
                (false, true) => &mut self.database(db).all_buckets,
                (false, false) => self.database(db).buckets.entry(series.clone()).or_default(),
            },
        }
    }

    fn database(&mut self, db: &str) -> &mut DatabasePrivileges {
        self.databases.entry(db.to_owned()).or_default()
    }

    /// Whether the action is allowed on the target.
    #[inline]
    pub fn allows(&self, target: Target<'_>, action: Action) -> bool {
        if self.everything.allows(action) {
            return true;
        }
        match target {
            Target::Everything => false,
            Target::Cluster => self.cluster.allows(action),
            Target::AllNormal => self.all_normal.allows(action),
            Target::Database(db) => self.allows_database(db, action),
            Target::Collection(db, collection) => self.allows_collection(db, collection, action),
        }
    }

    /// Whether all of the actions are allowed on a target. A user may grant only such privileges.
    pub fn allows_all(&self, target: Target<'_>, actions: ActionSet) -> bool {
        actions.iter().all(|action| self.allows(target, action))
    }

    fn allows_database(&self, db: &str, action: Action) -> bool {
        (!is_internal(db) && self.all_normal.allows(action))
            || self.databases.get(db).is_some_and(|of| of.all_normal.allows(action))
    }

    fn allows_collection(&self, db: &str, collection: &str, action: Action) -> bool {
        if !is_system(db, collection) && self.allows_database(db, action) {
            return true;
        }
        let named = |map: &HashMap<String, ActionSet>, name: &str| {
            !map.is_empty() && map.get(name).is_some_and(|actions| actions.allows(action))
        };
        let of_database = self.databases.get(db);
        if named(&self.collections, collection)
            || of_database.is_some_and(|of| named(&of.collections, collection))
        {
            return true;
        }
        let Some(series) = collection.strip_prefix(BUCKETS_PREFIX) else { return false };
        self.all_buckets.allows(action)
            || named(&self.buckets, series)
            || of_database
                .is_some_and(|of| of.all_buckets.allows(action) || named(&of.buckets, series))
    }

    /// Whether any privilege concerns the database or one of its collections; if so,
    /// `listDatabases` includes it.
    pub fn touches_database(&self, db: &str, action: Action) -> bool {
        self.allows(Target::Database(db), action)
            || self.collections.values().any(|actions| actions.allows(action))
            || self.databases.get(db).is_some_and(|of| {
                of.all_buckets.allows(action)
                    || of.collections.values().chain(of.buckets.values()).any(|a| a.allows(action))
            })
    }

    /// Whether any privilege concerns the collection, for `listCollections` with
    /// `authorizedCollections`.
    pub fn touches_collection(&self, db: &str, collection: &str) -> bool {
        Action::ALL.iter().any(|action| self.allows(Target::Collection(db, collection), *action))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(resource: Resource, actions: &[Action]) -> Privileges {
        Privileges::new(&[Privilege { resource, actions: ActionSet::of(actions) }])
    }

    fn series(db: &str, series: &str) -> Resource {
        Resource::SystemBuckets { db: db.to_owned(), series: series.to_owned() }
    }

    #[test]
    fn each_resource_covers_the_targets_in_the_manual() {
        // Source: manual, "Resource Document".
        let targets = [
            Target::Cluster,
            Target::Everything,
            Target::AllNormal,
            Target::Database("a"),
            Target::Database("local"),
            Target::Collection("a", "c"),
            Target::Collection("a", "d"),
            Target::Collection("b", "c"),
            Target::Collection("a", "system.js"),
            Target::Collection("b", "system.js"),
            Target::Collection("local", "c"),
            Target::Collection("a", "system.buckets.t"),
            Target::Collection("b", "system.buckets.t"),
            Target::Collection("a", "system.buckets.u"),
        ];
        let check = |resource: Resource, expected: &[usize]| {
            let privileges = on(resource.clone(), &[Action::Find]);
            let reached = |at: &usize| privileges.allows(targets[*at], Action::Find);
            let found: Vec<usize> = (0..targets.len()).filter(reached).collect();
            assert_eq!(found, expected, "{resource:?}");
            assert!(targets.iter().all(|target| !privileges.allows(*target, Action::Insert)));
        };
        check(Resource::Any, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
        check(Resource::Cluster, &[0]);
        check(Resource::namespace("", ""), &[2, 3, 5, 6, 7]);
        check(Resource::namespace("a", ""), &[3, 5, 6]);
        check(Resource::namespace("local", ""), &[4, 10]);
        check(Resource::namespace("", "c"), &[5, 7, 10]);
        check(Resource::namespace("", "system.js"), &[8, 9]);
        check(Resource::namespace("a", "c"), &[5]);
        check(Resource::namespace("a", "system.buckets.t"), &[11]);
        check(series("", ""), &[11, 12, 13]);
        check(series("", "t"), &[11, 12]);
        check(series("a", ""), &[11, 13]);
        check(series("a", "t"), &[11]);
    }

    #[test]
    fn privileges_add_up() {
        let both = Privileges::new(&[
            Privilege {
                resource: Resource::namespace("a", ""),
                actions: ActionSet::of(&[Action::Find]),
            },
            Privilege {
                resource: Resource::namespace("a", "c"),
                actions: ActionSet::of(&[Action::Insert]),
            },
        ]);
        let find_and_insert = ActionSet::of(&[Action::Find, Action::Insert]);
        assert!(both.allows_all(Target::Collection("a", "c"), find_and_insert));
        assert!(!both.allows_all(Target::Collection("a", "d"), find_and_insert));
        assert!(both.touches_database("a", Action::Insert));
        assert!(!both.touches_database("b", Action::Insert));
        assert!(both.touches_collection("a", "d") && !both.touches_collection("b", "d"));
    }
}
