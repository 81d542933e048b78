//! The check whether a command may run, and its error.

use mayfly_auth::{Action, RoleName, Target, UserName};
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_query::{Client, Pipeline, UncheckedPipeline, Validation};
use mayfly_service::Authority;
use mayfly_value::RawDoc;
use mayfly_value::shell::Shell;

use crate::context::CommandContext;
use crate::request::Request;
use crate::request::needs::{FindRow, are_granted};
use crate::rules::redaction;
use crate::rules::rights::is_set;

/// What a client does to a view that it defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Definer {
    /// It creates the view.
    Creates,
    /// It changes a view, which other clients may read.
    Changes,
}

/// Checks that a command may run.
///
/// # Errors
/// 13 Unauthorized.
#[inline]
pub(crate) fn check(authority: &Authority, request: &Request<'_>, find: FindRow) -> Result<()> {
    match !authority.is_limited() || are_granted(authority, request, find) {
        true => Ok(()),
        false => Err(unauthorized(authority, request)),
    }
}

impl CommandContext<'_> {
    /// Checks that the client may do an action: 13 Unauthorized otherwise.
    pub(crate) fn permit(
        &self,
        request: &Request<'_>,
        target: Target<'_>,
        action: Action,
    ) -> Result<()> {
        match self.authority.allows(target, action) {
            true => Ok(()),
            false => Err(unauthorized(&self.authority, request)),
        }
    }

    /// Checks the client's rights on the pipeline of the command, over the collection in the
    /// command's value.
    ///
    /// # Errors
    /// 13 Unauthorized; errors of the stages.
    pub(crate) fn checked(
        &self,
        request: &Request<'_>,
        stages: UncheckedPipeline,
    ) -> Result<Pipeline> {
        let allows = |target: Target<'_>, action| self.authority.allows(target, action);
        self.checked_by(request, request.target().as_str(), stages, &allows)
    }

    /// The same for the definition of a view. A client that cannot read the view may create it
    /// without the right to read its collections, as `mongorestore` does with the role `restore`.
    ///
    /// # Errors
    /// The same as for [`CommandContext::checked`].
    pub(crate) fn checked_view(
        &self,
        request: &Request<'_>,
        (view, on): (&Namespace, &str),
        stages: UncheckedPipeline,
        definer: Definer,
    ) -> Result<Pipeline> {
        let view = Target::Collection(view.db(), view.collection());
        let is_blind = definer == Definer::Creates && !self.authority.allows(view, Action::Find);
        let allows = |target: Target<'_>, action| {
            (action == Action::Find && is_blind) || self.authority.allows(target, action)
        };
        self.checked_by(request, Some(on), stages, &allows)
    }

    fn checked_by(
        &self,
        request: &Request<'_>,
        collection: Option<&str>,
        stages: UncheckedPipeline,
        allows: &dyn Fn(Target<'_>, Action) -> bool,
    ) -> Result<Pipeline> {
        let bypasses = is_set(request.body, "bypassDocumentValidation");
        stages.check(&Client {
            db: request.db,
            collection,
            allows,
            refusal: &|| unauthorized(&self.authority, request),
            validation: if bypasses { Validation::Bypassed } else { Validation::Enforced },
        })
    }

    /// Checks that the client may grant or revoke these roles, each in its database.
    pub(crate) fn permit_roles(
        &self,
        request: &Request<'_>,
        roles: &[RoleName],
        action: Action,
    ) -> Result<()> {
        roles.iter().try_for_each(|role| self.permit(request, Target::Database(&role.db), action))
    }

    /// Whether the client is this user.
    pub(crate) fn is_user(&self, name: &UserName) -> bool {
        matches!(&self.authority, Authority::User(user) if user.name == *name)
    }

    /// Whether the client has this role.
    pub(crate) fn has_role(&self, name: &RoleName) -> bool {
        matches!(&self.authority, Authority::User(user) if user.roles.contains(name))
    }
}

/// 13 Unauthorized.
#[cold]
pub(crate) fn unauthorized(authority: &Authority, request: &Request<'_>) -> Error {
    let text = match authority {
        Authority::NotAuthenticated | Authority::FirstUser => {
            format!("Command {} requires authentication", request.row.name)
        }
        Authority::User(_) | Authority::Unrestricted => {
            let shown = redaction::shown_request(request);
            let shown = RawDoc::new(&shown).unwrap_or(RawDoc::EMPTY);
            format!("not authorized on {} to execute command {}", request.db, Shell(shown))
        }
    };
    Error::new(ErrorCode::Unauthorized, text)
}
