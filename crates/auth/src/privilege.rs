//! One privilege: actions on a resource.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::arguments::error::wrong_type;
use mayfly_value::arguments::{Argument, Fields};
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use crate::{Action, ActionSet, Resource};

/// The fields of a privilege.
const FIELDS: &[Argument] =
    &[Argument::document("resource").required(), Argument::array("actions").required()];

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
    /// 40414 and 14 TypeMismatch for missing and wrong fields (unknown ones are ignored), 9
    /// FailedToParse for an unknown action, an empty list of actions, an unknown field or an
    /// invalid resource.
    pub fn parse(document: RawDoc<'_>) -> Result<Privilege> {
        let fault = |text: String| Error::new(ErrorCode::FailedToParse, text);
        let fields = Fields::read_lenient(document, "privileges", FIELDS)?;
        let resource = fields.document("resource")?.ok_or_else(|| fields.missing("resource"))?;
        let resource = Resource::parse(resource)?;
        let mut actions = ActionSet::NONE;
        for element in fields.array("actions")?.unwrap_or(RawDoc::EMPTY) {
            let name = match element.value() {
                RawValue::String(name) => name,
                RawValue::Null | RawValue::Undefined => continue,
                other => {
                    return Err(fields.wrong(
                        &format!("actions.{}", element.name()),
                        other,
                        "string",
                    ));
                }
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
    /// 14 TypeMismatch for elements that are neither documents nor null, errors of
    /// [`Privilege::parse`].
    pub fn parse_all(array: RawDoc<'_>) -> Result<Vec<Privilege>> {
        let one = |value: RawValue<'_>| match value {
            RawValue::Document(document) => Some(Privilege::parse(document)),
            RawValue::Null | RawValue::Undefined => None,
            other => Some(Err(wrong_type("privileges", other, "object"))),
        };
        array.iter().filter_map(|element| one(element.value())).collect()
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
