//! Roles: the built-in ones compared with the manual, inheritance, and damaged documents.

use super::*;
use crate::{Action, ActionSet, Privileges, Resource, Target};
use mayfly_value::DocBuf;
use mayfly_value::bson::doc;

fn name(role: &str, db: &str) -> RoleName {
    RoleName::new(role, db)
}

fn role(role: &str, db: &str, action: Action, parents: &[RoleName]) -> Role {
    let privilege =
        Privilege { resource: Resource::namespace(db, ""), actions: ActionSet::of(&[action]) };
    Role {
        name: name(role, db),
        privileges: vec![privilege],
        roles: parents.to_vec(),
        restrictions: Vec::new(),
    }
}

fn of(role: &str, db: &str) -> Privileges {
    Privileges::new(&built_in(&name(role, db)).unwrap())
}

#[test]
fn exactly_the_roles_of_the_manual_exist() {
    for role in BUILT_IN_ANYWHERE {
        assert!(
            built_in(&name(role, "shop")).is_some() && built_in(&name(role, "admin")).is_some()
        );
    }
    for role in BUILT_IN_ADMIN {
        assert!(
            built_in(&name(role, "admin")).is_some() && built_in(&name(role, "shop")).is_none()
        );
    }
    assert!(built_in(&name("Root", "admin")).is_none() && built_in(&name("", "admin")).is_none());
    assert!(built_in(&name("read", "")).is_none());
}

/// Actions on targets.
type Wishes<'t> = &'t [(Target<'t>, Action)];

/// What each role may and may not do, taken from the manual's page "Built-In Roles", not from the
/// code.
#[test]
fn built_in_roles_allow_the_actions_in_the_manual() {
    use Action::*;
    let shop = Target::Collection("shop", "orders");
    let other = Target::Collection("other", "orders");
    let system_js = Target::Collection("shop", "system.js");
    let profile = Target::Collection("shop", "system.profile");
    let users = Target::Collection("admin", "system.users");
    let config = Target::Collection("config", "settings");
    let local = Target::Collection("local", "oplog.rs");
    let (database, cluster) = (Target::Database("shop"), Target::Cluster);
    #[rustfmt::skip]
    let table: &[(&str, &str, Wishes<'_>, Wishes<'_>)] = &[
        ("read", "shop",
            &[(shop, Find), (shop, ChangeStream), (shop, CollStats), (shop, DbHash), (database, DbStats), (shop, KillCursors),
              (shop, ListIndexes), (database, ListCollections), (system_js, Find)],
            &[(shop, Insert), (other, Find), (profile, Find), (cluster, ListDatabases), (users, Find), (database, DropDatabase)]),
        ("readWrite", "shop",
            &[(shop, Find), (shop, Insert), (shop, Update), (shop, Remove), (shop, CreateIndex), (shop, DropIndex),
              (shop, CreateCollection), (shop, DropCollection), (shop, ConvertToCapped), (database, RenameCollectionSameDb),
              (system_js, Insert)],
            &[(database, DropDatabase), (shop, CollMod), (shop, Validate), (other, Insert), (shop, BypassDocumentValidation),
              (database, CreateUser)]),
        ("dbAdmin", "shop",
            &[(shop, CollMod), (shop, CollStats), (shop, Compact), (shop, CreateIndex), (database, DropDatabase),
              (database, EnableProfiler), (shop, ReIndex), (shop, Validate), (profile, Find), (profile, DropCollection),
              (shop, BypassDocumentValidation)],
            &[(shop, Find), (shop, Insert), (other, CollMod), (profile, Insert), (database, CreateUser), (cluster, ServerStatus)]),
        ("userAdmin", "shop",
            &[(database, ChangeCustomData), (database, ChangePassword), (database, CreateRole), (database, CreateUser),
              (database, DropRole), (database, DropUser), (database, GrantRole), (database, RevokeRole),
              (database, SetAuthenticationRestriction), (database, ViewRole), (database, ViewUser)],
            &[(shop, Find), (Target::Database("other"), CreateUser), (users, Find), (cluster, InvalidateUserCache)]),
        ("dbOwner", "shop",
            &[(shop, Find), (shop, Insert), (shop, CollMod), (database, DropDatabase), (database, CreateUser)],
            &[(other, Find), (cluster, ServerStatus)]),
        ("clusterMonitor", "admin",
            &[(cluster, ServerStatus), (cluster, Inprog), (cluster, GetLog), (cluster, ListDatabases), (cluster, Top),
              (cluster, GetCmdLineOpts), (cluster, HostInfo), (shop, CollStats), (shop, IndexStats), (database, DbStats),
              (profile, Find), (config, Find), (local, Find)],
            &[(shop, Find), (cluster, Shutdown), (cluster, KillOp), (config, Insert), (users, Find)]),
        ("clusterManager", "admin",
            &[(cluster, ReplSetConfigure), (cluster, AppendOplogNote), (cluster, ListShards), (database, EnableSharding),
              (shop, MoveChunk), (config, Insert), (local, Insert), (cluster, ReplSetStateChange)],
            &[(shop, Find), (cluster, Shutdown), (cluster, ServerStatus), (local, Find)]),
        ("hostManager", "admin",
            &[(cluster, Shutdown), (cluster, SetParameter), (cluster, KillOp), (cluster, Fsync), (cluster, Unlock),
              (cluster, LogRotate), (cluster, KillAnyCursor), (cluster, KillAnySession), (cluster, InvalidateUserCache)],
            &[(shop, Find), (cluster, ServerStatus), (database, DropDatabase)]),
        ("clusterAdmin", "admin",
            &[(cluster, Shutdown), (cluster, ServerStatus), (cluster, ReplSetConfigure), (database, DropDatabase)],
            &[(shop, Find), (database, CreateUser)]),
        ("backup", "admin",
            &[(shop, Find), (users, Find), (config, Find), (local, Find), (profile, Find), (config, Insert), (config, Update),
              (cluster, ListDatabases), (cluster, GetParameter), (cluster, AppendOplogNote), (shop, ListIndexes),
              (Target::Collection("shop", "system.buckets.t"), Find)],
            &[(shop, Insert), (users, Insert), (cluster, Shutdown), (Target::Collection("admin", "mms.backup"), Insert)]),
        ("enableSharding", "shop",
            &[(shop, EnableSharding), (other, ReshardCollection), (shop, AnalyzeShardKey)],
            &[(shop, Find), (other, Find), (config, EnableSharding)]),
        ("restore", "admin",
            &[(shop, Insert), (shop, CreateCollection), (shop, DropCollection), (shop, CollMod), (users, Insert), (users, Remove),
              (config, Insert), (local, Insert), (system_js, Insert), (database, CreateUser), (cluster, GetParameter),
              (shop, BypassDocumentValidation)],
            &[(shop, Find), (shop, Remove), (profile, Insert), (cluster, Shutdown),
              (Target::Collection("admin", "system.roles"), Insert), (Target::Collection("admin", "system.roles"), Find)]),
        ("readAnyDatabase", "admin",
            &[(shop, Find), (other, Find), (cluster, ListDatabases)],
            &[(config, Find), (local, Find), (shop, Insert), (users, Find)]),
        ("readWriteAnyDatabase", "admin",
            &[(shop, Insert), (other, Remove), (cluster, ListDatabases)],
            &[(config, Insert), (local, Insert), (users, Insert), (database, DropDatabase)]),
        ("dbAdminAnyDatabase", "admin",
            &[(shop, CollMod), (other, Validate), (database, DropDatabase), (cluster, ListDatabases)],
            &[(config, CollMod), (shop, Find), (database, CreateUser)]),
        ("userAdminAnyDatabase", "admin",
            &[(Target::Database("config"), GrantRole), (Target::Database("local"), GrantRole), (database, CreateUser), (database, GrantRole), (cluster, InvalidateUserCache), (cluster, ListDatabases),
              (users, Find)],
            &[(config, Insert), (users, Insert), (shop, Find)]),
        ("root", "admin",
            &[(shop, Find), (shop, Insert), (database, DropDatabase), (database, CreateUser), (cluster, Shutdown),
              (users, Find), (users, Insert), (cluster, ServerStatus), (profile, Validate), (config, Find), (local, Find)],
            &[(Target::Everything, AnyAction), (profile, Insert), (cluster, Internal)]),
        ("__system", "admin",
            &[(Target::Everything, AnyAction), (cluster, Internal), (profile, Insert), (local, DropCollection)],
            &[]),
    ];
    for (role, db, allowed, denied) in table {
        let privileges = of(role, db);
        for (target, action) in *allowed {
            assert!(privileges.allows(*target, *action), "{role}: {action:?} on {target:?}");
        }
        for (target, action) in *denied {
            assert!(!privileges.allows(*target, *action), "{role}: {action:?} on {target:?}");
        }
    }
}

#[test]
fn inheritance_is_followed_across_databases_and_cycles_end() {
    let mut roles = Roles::default();
    roles.insert(role("a", "admin", Action::Find, &[name("b", "shop"), name("read", "other")]));
    // A cycle, which only a damaged or restored collection can have.
    roles.insert(role("b", "shop", Action::Insert, &[name("a", "admin"), name("gone", "shop")]));
    let resolved = roles.resolve(&[name("a", "admin"), name("nowhere", "x")]);
    assert_eq!(resolved.roles, [name("a", "admin"), name("read", "other"), name("b", "shop")]);
    let privileges = Privileges::new(&resolved.privileges);
    assert!(privileges.allows(Target::Collection("admin", "c"), Action::Find));
    assert!(privileges.allows(Target::Collection("shop", "c"), Action::Insert));
    assert!(privileges.allows(Target::Collection("other", "c"), Action::Find));
    assert!(!privileges.allows(Target::Collection("shop", "c"), Action::Find));
}

#[test]
fn grants_that_make_no_sense_are_refused() {
    let mut roles = Roles::default();
    roles.insert(role("a", "admin", Action::Find, &[name("b", "admin")]));
    roles.insert(role("b", "admin", Action::Find, &[name("c", "admin")]));
    roles.insert(role("c", "admin", Action::Find, &[]));
    roles.insert(role("d", "shop", Action::Find, &[]));
    let code = |heir: &RoleName, parent: RoleName| {
        roles.check_inheritance(heir, &[parent]).map_err(|error| error.code())
    };
    assert_eq!(code(&name("c", "admin"), name("d", "shop")), Ok(()));
    assert_eq!(code(&name("d", "shop"), name("read", "shop")), Ok(()));
    let wrong = Err(ErrorCode::InvalidRoleModification);
    assert_eq!(code(&name("c", "admin"), name("a", "admin")), wrong);
    assert_eq!(code(&name("c", "admin"), name("c", "admin")), wrong);
    assert_eq!(code(&name("d", "shop"), name("c", "admin")), wrong);
    assert_eq!(code(&name("d", "shop"), name("x", "shop")), Err(ErrorCode::RoleNotFound));
}

#[test]
fn roles_are_read_as_they_are_written() {
    let mut written = role("w", "shop", Action::Find, &[name("read", "shop")]);
    written.privileges.push(Privilege {
        resource: Resource::SystemBuckets { db: "shop".to_owned(), series: String::new() },
        actions: ActionSet::of(&[Action::Find, Action::Insert]),
    });
    let document = written.to_document();
    let read = Role::parse(document.as_doc()).unwrap();
    assert_eq!(read.to_document().as_bytes(), document.as_bytes());
    assert_eq!(Role::name_of(document.as_doc()), Some(written.name));
}

#[test]
fn damaged_roles_allow_nothing_and_prevent_logins() {
    let good = doc! {
        "_id": "shop.w", "role": "w", "db": "shop",
        "privileges": [{ "resource": { "db": "shop", "collection": "" }, "actions": ["find"] }],
        "roles": [],
    };
    let parse =
        |document: &mayfly_value::bson::Document| Role::parse(DocBuf::from_bson(document).as_doc());
    assert!(parse(&good).is_ok());
    for (field, value) in [
        ("_id", mayfly_value::bson::Bson::from("shop.v")),
        ("db", "".into()),
        ("privileges", "all".into()),
        ("privileges", vec![doc! { "resource": {}, "actions": ["find"] }].into()),
        ("privileges", vec![doc! { "resource": { "cluster": true }, "actions": ["any"] }].into()),
        ("roles", vec!["root"].into()),
        ("roles", vec![doc! { "role": "root", "db": "admin", "x": 1 }].into()),
        ("authenticationRestrictions", "none".into()),
    ] {
        let mut damaged = good.clone();
        damaged.insert(field, value);
        assert!(parse(&damaged).is_err(), "{damaged}");
        damaged.remove(field);
        assert!(parse(&damaged).is_err() || field == "authenticationRestrictions", "{damaged}");
    }
    let mut roles = Roles::default();
    roles.insert_damaged(name("w", "shop"));
    roles.insert(role("v", "shop", Action::Find, &[name("w", "shop")]));
    assert!(roles.resolve(&[name("v", "shop")]).damaged);
    assert!(!roles.resolve(&[name("read", "shop")]).damaged);
}
