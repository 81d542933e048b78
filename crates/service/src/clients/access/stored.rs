//! Stored users and roles.

use mayfly_storage::ReadView;
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

use mayfly_auth::{Role, RoleName, Roles, User, UserName};
use mayfly_base::{Namespace, Result};
use mayfly_storage::{Collection, Direction, ScanLimit, ScanResult, Store, whole_range};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use mayfly_work::OpCtx;

use super::{Access, Stamp};
use crate::documents;

type Name = LazyLock<Option<Namespace>>;

static USERS: Name = LazyLock::new(|| Namespace::new("admin", "system.users").ok());
static ROLES: Name = LazyLock::new(|| Namespace::new("admin", "system.roles").ok());
/// Holds the schema version of both collections. `mongorestore` reads it to interpret the users of
/// a dump.
static VERSION: Name = LazyLock::new(|| Namespace::new("admin", "system.version").ok());
/// The schema version of users and roles in every release since 3.0.
const SCHEMA: i32 = 5;
/// The number of documents that are read per snapshot.
const PAGE: usize = 256;

fn collection(store: &Store, name: &Name) -> Option<Arc<Collection>> {
    store.collection(&ReadView::now(), name.as_ref()?)
}

/// The current state of both collections.
pub(super) fn stamp(store: &Store) -> Stamp {
    let of = |name: &Name| match collection(store, name) {
        Some(collection) => (collection.id(), collection.commits()),
        None => (0, 0),
    };
    Stamp { users: of(&USERS), roles: of(&ROLES) }
}

/// Visits each document of a collection until the function breaks.
fn scan(
    store: &Store,
    name: &Name,
    visit: &mut dyn FnMut(RawDoc<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let Some(collection) = collection(store, name) else { return Ok(()) };
    let (mut range, direction) = (whole_range(), Direction::Forward);
    let snapshot = store.snapshot(&ReadView::now())?;
    let mut ended = false;
    loop {
        let scanned = snapshot.scan_records(
            &collection,
            &range,
            direction,
            ScanLimit::NONE,
            &mut |_, document| {
                let flow = visit(document);
                ended |= flow.is_break();
                Ok(flow)
            },
        )?;
        match scanned {
            ScanResult::Paused(last) if !ended => range = range.after(&last, direction),
            ScanResult::Paused(_) | ScanResult::Exhausted => return Ok(()),
        }
    }
}

/// Visits each document of a collection. The function may write: documents are read in pages, and
/// no snapshot is held while it runs.
///
/// # Errors
/// Errors of the engine and of the function.
pub fn each_document(
    store: &Store,
    name: &Namespace,
    visit: &mut dyn FnMut(RawDoc<'_>) -> Result<()>,
) -> Result<()> {
    let Some(collection) = store.collection(&ReadView::now(), name) else { return Ok(()) };
    let (mut range, direction) = (whole_range(), Direction::Forward);
    loop {
        let mut page = Vec::new();
        let scanned = store.snapshot(&ReadView::now())?.scan_records(
            &collection,
            &range,
            direction,
            ScanLimit::rows(PAGE),
            &mut |_, document| {
                page.push(document.to_owned());
                Ok(ControlFlow::Continue(()))
            },
        )?;
        page.iter().try_for_each(|document| visit(document.as_doc()))?;
        match scanned {
            ScanResult::Paused(last) => range = range.after(&last, direction),
            ScanResult::Exhausted => return Ok(()),
        }
    }
}

/// Whether any user or role exists, damaged ones included. If so, every client has to log in.
pub(super) fn has_users_or_roles(store: &Store) -> Result<bool> {
    let mut any = false;
    for name in [&USERS, &ROLES] {
        scan(store, name, &mut |_| {
            any = true;
            ControlFlow::Break(())
        })?;
    }
    Ok(any)
}

/// All user-defined roles.
pub(super) fn read_roles(store: &Store) -> Result<Roles> {
    let mut roles = Roles::default();
    scan(store, &ROLES, &mut |document| {
        match Role::parse(document) {
            Ok(role) => roles.insert(role),
            Err(error) => {
                let name = Role::name_of(document);
                let shown = name.as_ref().map(RoleName::to_string).unwrap_or_default();
                tracing::warn!(role = shown, %error, "the document of a role in admin.system.roles is invalid; the role grants nothing until it is corrected");
                name.into_iter().for_each(|name| roles.insert_damaged(name));
            }
        }
        ControlFlow::Continue(())
    })?;
    Ok(roles)
}

impl Access {
    /// Whether any user or role exists, damaged ones included.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn has_users_or_roles(&self, store: &Store) -> Result<bool> {
        has_users_or_roles(store)
    }

    /// Finds a user. One whose document is damaged does not count.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn find_user(&self, store: &Store, name: &UserName) -> Result<Option<User>> {
        let Some(document) = read(store, &USERS, &name.id())? else { return Ok(None) };
        Ok(user_of(document.as_doc()).filter(|user| user.name == *name))
    }

    /// Whether a user of this name exists, damaged ones included.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn has_user(&self, store: &Store, name: &UserName) -> Result<bool> {
        Ok(read(store, &USERS, &name.id())?.is_some())
    }

    /// The names of the users of a database, or of all databases, including damaged users.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn user_names(&self, store: &Store, db: Option<&str>) -> Result<Vec<UserName>> {
        let mut names = Vec::new();
        scan(store, &USERS, &mut |document| {
            let id = document.get("_id").and_then(RawValue::as_str);
            if let Some((of, user)) = id.and_then(|id| id.split_once('.'))
                && db.is_none_or(|db| db == of)
            {
                names.push(UserName::new(user, of));
            }
            ControlFlow::Continue(())
        })?;
        Ok(names)
    }

    /// Visits the users of a database, or of all databases; damaged ones are skipped.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn each_user(
        &self,
        store: &Store,
        db: Option<&str>,
        visit: &mut dyn FnMut(User),
    ) -> Result<()> {
        scan(store, &USERS, &mut |document| {
            let of_database = document.get("db").and_then(RawValue::as_str);
            if (db.is_none() || of_database == db)
                && let Some(user) = user_of(document)
            {
                visit(user);
            }
            ControlFlow::Continue(())
        })
    }

    /// Writes a user, replacing one of the same name.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn put_user(&self, store: &Store, op: &OpCtx, user: &User) -> Result<()> {
        note_schema(store, op)?;
        put(store, op, &USERS, &user.name.id(), user.to_document().as_doc())
    }

    /// Removes a user, even a damaged one. Returns false when there is none.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn remove_user(&self, store: &Store, op: &OpCtx, name: &UserName) -> Result<bool> {
        remove(store, op, &USERS, &name.id())
    }

    /// Writes a role, replacing one of the same name.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn put_role(&self, store: &Store, op: &OpCtx, role: &Role) -> Result<()> {
        note_schema(store, op)?;
        put(store, op, &ROLES, &role.name.id(), role.to_document().as_doc())
    }

    /// Removes a role, even a damaged one. Returns false when there is none.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn remove_role(&self, store: &Store, op: &OpCtx, name: &RoleName) -> Result<bool> {
        remove(store, op, &ROLES, &name.id())
    }
}

/// Writes the schema version of users and roles if it is missing.
fn note_schema(store: &Store, op: &OpCtx) -> Result<()> {
    const ID: &str = "authSchema";
    if read(store, &VERSION, ID)?.is_some() {
        return Ok(());
    }
    let mut out = DocBuilder::new();
    out.append("_id", ID).append("currentVersion", SCHEMA);
    put(store, op, &VERSION, ID, out.finish().as_doc())
}

fn user_of(document: RawDoc<'_>) -> Option<User> {
    match User::parse(document) {
        Ok(user) => Some(user),
        Err(error) => {
            let id = document.get("_id").and_then(RawValue::as_str).unwrap_or_default();
            tracing::warn!(user = id, %error, "the document of a user in admin.system.users is invalid; the user cannot log in until it is corrected");
            None
        }
    }
}

fn read(store: &Store, name: &Name, id: &str) -> Result<Option<DocBuf>> {
    name.as_ref().map_or(Ok(None), |ns| documents::read(store, ns, id))
}

fn put(store: &Store, op: &OpCtx, name: &Name, id: &str, document: RawDoc<'_>) -> Result<()> {
    name.as_ref().map_or(Ok(()), |ns| documents::put(store, op, ns, id, document))
}

fn remove(store: &Store, op: &OpCtx, name: &Name, id: &str) -> Result<bool> {
    let Some(collection) = collection(store, name) else { return Ok(false) };
    let Some(key) = store.locate(&ReadView::now(), &collection, RawValue::String(id))? else {
        return Ok(false);
    };
    store.write(op, &ReadView::now(), &collection, |unit| match unit.read(&key)? {
        Some(old) => unit.delete(&key, &old).map(|()| true),
        None => Ok(false),
    })
}
