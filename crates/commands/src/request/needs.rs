//! The rights that a command needs: their declaration in its row, and the check for a request.
//! Manual: "Privilege Actions".

use mayfly_auth::{Action, Target};
use mayfly_query::Rights;
use mayfly_service::Authority;

use super::Request;
use super::row::{Row, RowFlags};

/// The rights that a command needs. A test checks that every row declares them.
#[derive(Clone, Copy)]
pub enum Needs {
    /// Not declared: only the server itself may run it.
    Undeclared,
    /// No right; a login is needed unless the row has [`RowFlags::BEFORE_AUTH`].
    Nothing,
    /// The handler checks, because the rights depend on its parsed arguments.
    InHandler,
    /// These actions on the cluster.
    Cluster(&'static [Action]),
    /// These actions on the command's database.
    Database(&'static [Action]),
    /// These actions on the collection in the command's value.
    Collection(&'static [Action]),
    /// These actions on the collection in the command's value, which includes the database.
    FullName(&'static [Action]),
    /// The rights that a function demands, depending on the arguments.
    Demands(fn(&mut Demands<'_>, &Request<'_>)),
}

/// Finds the row of a command by its name.
pub(crate) type FindRow = fn(&str) -> Option<&'static Row>;

/// The demands of a request, which are checked as they are made.
pub struct Demands<'a> {
    authority: &'a Authority,
    find: FindRow,
    met: bool,
}

impl Demands<'_> {
    /// The row of another command, for commands that run or explain others.
    pub fn row(&self, name: &str) -> Option<&'static Row> {
        (self.find)(name)
    }

    /// Demands an action on a target.
    pub fn need(&mut self, target: Target<'_>, action: Action) {
        self.met = self.met && self.authority.allows(target, action);
    }

    /// Demands several actions on a target.
    pub fn need_all(&mut self, target: Target<'_>, actions: &[Action]) {
        actions.iter().for_each(|action| self.need(target, *action));
    }

    /// Demands that any of these actions is allowed.
    pub fn need_any(&mut self, choices: &[(Target<'_>, Action)]) {
        let allowed = |(target, action): &(Target<'_>, Action)| self.may(*target, *action);
        self.met = self.met && choices.iter().any(allowed);
    }

    /// Demands the rights of another command.
    pub fn need_for(&mut self, request: &Request<'_>) {
        self.met = self.met && are_granted(self.authority, request, self.find);
    }

    /// Demands the rights of a pipeline over this collection of a database.
    pub fn need_rights(&mut self, rights: &Rights, on: (&str, Option<&str>)) {
        self.met = self.met && rights.are_granted(on, &|target, action| self.may(target, action));
    }

    /// Whether an action is allowed, for demands that depend on another right.
    pub fn may(&self, target: Target<'_>, action: Action) -> bool {
        self.authority.allows(target, action)
    }

    /// Demands actions on a collection whose name includes the database.
    pub fn need_on_full_name(&mut self, name: Option<&str>, actions: &[Action]) {
        match name.and_then(|name| name.split_once('.')) {
            Some((db, collection)) => self.need_all(Target::Collection(db, collection), actions),
            None => self.need_all(Target::Everything, actions),
        }
    }
}

/// Whether a client has the rights in the command's row.
pub(crate) fn are_granted(authority: &Authority, request: &Request<'_>, find: FindRow) -> bool {
    let flags = request.row.flags;
    match (authority, request.row.needs) {
        (_, Needs::Nothing) if flags.contains(RowFlags::BEFORE_AUTH) => true,
        (Authority::NotAuthenticated, _) => false,
        // The handler checks, and only users and roles may be created.
        (Authority::FirstUser, Needs::InHandler) => flags.contains(RowFlags::FIRST_USER),
        (Authority::FirstUser, _) => false,
        (_, Needs::Undeclared) => authority.allows(Target::Everything, Action::AnyAction),
        (_, Needs::Nothing | Needs::InHandler) => true,
        (_, Needs::Cluster(actions)) => all(authority, Target::Cluster, actions),
        (_, Needs::Database(actions)) => all(authority, Target::Database(request.db), actions),
        (_, Needs::Collection(actions)) => match request.target().as_str() {
            Some(collection) => all(authority, Target::Collection(request.db, collection), actions),
            None => all(authority, Target::Everything, actions),
        },
        (_, Needs::FullName(actions)) => {
            let mut demands = Demands { authority, find, met: true };
            demands.need_on_full_name(request.target().as_str(), actions);
            demands.met
        }
        (_, Needs::Demands(demand)) => {
            let mut demands = Demands { authority, find, met: true };
            demand(&mut demands, request);
            demands.met
        }
    }
}

fn all(authority: &Authority, target: Target<'_>, actions: &[Action]) -> bool {
    actions.iter().all(|action| authority.allows(target, *action))
}
