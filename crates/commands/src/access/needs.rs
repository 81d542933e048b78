//! What a command needs, as its row says, and what that comes to for a request. Manual: "Privilege Actions".

use mayfly_auth::{Action, Target};
use mayfly_base::Result;
use mayfly_service::Authority;

use super::check::unauthorized;
use crate::{Request, RowFlags};

/// The rights that a command needs. A row must declare them; a test fails for one that does not.
#[derive(Clone, Copy)]
pub enum Needs {
    /// Nobody has thought about it: nobody but the server itself may run it.
    Undeclared,
    /// None beside a login, and that only where the row does not say [`RowFlags::BEFORE_AUTH`].
    Nothing,
    /// The handler asks by itself, because it has to read its arguments first.
    InHandler,
    /// These actions on the cluster.
    Cluster(&'static [Action]),
    /// These actions on the command's database.
    Database(&'static [Action]),
    /// These actions on the collection that is the command's value.
    Collection(&'static [Action]),
    /// These actions on the collection that the command's value names with its database.
    FullName(&'static [Action]),
    /// What the function demands after a look at the arguments.
    Demands(fn(&mut Demands<'_>, &Request<'_>)),
}

/// Demands of one request, checked as they are made.
pub struct Demands<'a> {
    authority: &'a Authority,
    met: bool,
}

impl Demands<'_> {
    /// Demands an action on a target.
    pub fn need(&mut self, target: Target<'_>, action: Action) {
        self.met = self.met && self.authority.allows(target, action);
    }

    /// Demands several actions on a target.
    pub fn need_all(&mut self, target: Target<'_>, actions: &[Action]) {
        actions.iter().for_each(|action| self.need(target, *action));
    }

    /// Demands that any of these is allowed.
    pub fn need_any(&mut self, choices: &[(Target<'_>, Action)]) {
        let allowed = |(target, action): &(Target<'_>, Action)| self.may(*target, *action);
        self.met = self.met && choices.iter().any(allowed);
    }

    /// Demands what another command needs.
    pub fn need_for(&mut self, request: &Request<'_>) {
        self.met = self.met && check_limited(self.authority, request).is_ok();
    }

    /// Whether an action is allowed, for demands that depend on it.
    pub fn may(&self, target: Target<'_>, action: Action) -> bool {
        self.authority.allows(target, action)
    }

    /// Demands actions on the collection that is the command's value. A value that is no name reaches everything, and only those
    /// who may do everything learn what is wrong with it.
    pub fn need_on_target(&mut self, request: &Request<'_>, actions: &[Action]) {
        match request.target().as_str() {
            Some(collection) => {
                self.need_all(Target::Collection(request.db, collection), actions);
            }
            None => self.need_all(Target::Everything, actions),
        }
    }

    /// Demands actions on a collection that is named with its database.
    pub fn need_on_full_name(&mut self, name: Option<&str>, actions: &[Action]) {
        match name.and_then(|name| name.split_once('.')) {
            Some((db, collection)) => self.need_all(Target::Collection(db, collection), actions),
            None => self.need_all(Target::Everything, actions),
        }
    }
}

/// That a command may run.
///
/// # Errors
/// 13 Unauthorized.
#[inline]
pub(crate) fn check(authority: &Authority, request: &Request<'_>) -> Result<()> {
    match authority.is_limited() {
        false => Ok(()),
        true => check_limited(authority, request),
    }
}

fn check_limited(authority: &Authority, request: &Request<'_>) -> Result<()> {
    let needs = request.row.needs;
    let before = request.row.flags.has(RowFlags::BEFORE_AUTH);
    let met = match (authority, needs) {
        (_, Needs::Nothing) if before => true,
        (Authority::Nobody, _) => false,
        // The handler asks, and nothing but creating users and roles is allowed.
        (Authority::FirstUser, Needs::InHandler) => {
            matches!(request.row.name, "createUser" | "createRole")
        }
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
            let mut demands = Demands { authority, met: true };
            demands.need_on_full_name(request.target().as_str(), actions);
            demands.met
        }
        (_, Needs::Demands(demand)) => {
            let mut demands = Demands { authority, met: true };
            demand(&mut demands, request);
            demands.met
        }
    };
    if met { Ok(()) } else { Err(unauthorized(authority, request)) }
}

fn all(authority: &Authority, target: Target<'_>, actions: &[Action]) -> bool {
    actions.iter().all(|action| authority.allows(target, *action))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Handler, registry};

    #[test]
    fn every_command_declares_what_it_needs() {
        for row in registry::rows() {
            let undeclared = matches!(row.needs, Needs::Undeclared);
            assert!(!undeclared, "{} does not say which rights it needs", row.name);
        }
    }

    #[test]
    fn before_a_login_nothing_but_the_handshake_runs() {
        // Written down from the manual: what drivers send before they log in, and what asks nothing about data.
        let known = [
            "_isSelf",
            "authenticate",
            "buildInfo",
            "connectionStatus",
            "endSessions",
            "hello",
            "isMaster",
            "isdbgrid",
            "listCommands",
            "logout",
            "ping",
            "saslContinue",
            "saslStart",
            "whatsmyuri",
        ];
        for row in registry::rows().iter().filter(|row| matches!(row.handler, Handler::Run(_))) {
            if row.flags.has(RowFlags::BEFORE_AUTH) {
                assert!(known.contains(&row.name), "{} runs before a login", row.name);
                assert!(matches!(row.needs, Needs::Nothing), "{}", row.name);
            }
        }
    }
}
