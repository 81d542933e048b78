//! One privilege: actions on a resource.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::arguments::error::mistyped;
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use crate::{Action, ActionSet, Resource};

/// A privilege: `{ resource: {..}, actions: [..] }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Privilege {
    /// The resource that the actions apply to.
    pub resource: Resource,
    /// The allowed actions.
    pub actions: ActionSet,
}

impl Privilege {
    /// Parses a privilege.
    ///
    /// # Errors
    /// 9 FailedToParse for an unknown action, an empty list of actions, an unknown field or an
    /// invalid resource.
    pub fn parse(document: RawDoc<'_>) -> Result<Privilege> {
        let fault = |text: String| Error::new(ErrorCode::FailedToParse, text);
        if let Some(other) =
            document.iter().find(|field| !["resource", "actions"].contains(&field.name()))
        {
            return Err(fault(format!("a privilege has the unknown field '{}'", other.name())));
        }
        let resource = match document.get("resource") {
            Some(RawValue::Document(resource)) => Resource::parse(resource)?,
            _ => return Err(fault("a privilege needs the document 'resource'".to_owned())),
        };
        let Some(RawValue::Array(names)) = document.get("actions") else {
            return Err(fault("a privilege needs the array 'actions'".to_owned()));
        };
        let mut actions = ActionSet::NONE;
        for name in names {
            let RawValue::String(name) = name.value() else {
                return Err(fault("the actions of a privilege must be strings".to_owned()));
            };
            let action = Action::by_name(name);
            let unknown = || fault(format!("Unrecognized action privilege strings: {name}"));
            actions.insert(action.ok_or_else(unknown)?);
        }
        match actions.is_empty() {
            true => Err(fault("a privilege needs at least one action".to_owned())),
            false => Ok(Privilege { resource, actions }),
        }
    }

    /// Parses an array of privileges.
    ///
    /// # Errors
    /// 14 TypeMismatch for elements that are not documents, errors of [`Privilege::parse`].
    pub fn parse_all(array: RawDoc<'_>) -> Result<Vec<Privilege>> {
        let one = |value: RawValue<'_>| match value {
            RawValue::Document(document) => Privilege::parse(document),
            _ => Err(mistyped("the elements of 'privileges' must be objects")),
        };
        array.iter().map(|element| one(element.value())).collect()
    }

    /// Appends its fields to an open document.
    pub fn append_to(&self, out: &mut DocBuilder) {
        out.start_document("resource");
        self.resource.append_to(out);
        out.end().start_array("actions");
        for action in self.actions.iter() {
            out.push(action.name());
        }
        out.end();
    }

    /// Merges privileges on the same resource; ordered by resource.
    pub fn merge(privileges: impl IntoIterator<Item = Privilege>) -> Vec<Privilege> {
        let mut merged = std::collections::BTreeMap::<Resource, ActionSet>::new();
        for Privilege { resource, actions } in privileges {
            let all = merged.entry(resource).or_default();
            *all = all.and(actions);
        }
        merged.into_iter().map(|(resource, actions)| Privilege { resource, actions }).collect()
    }
}
