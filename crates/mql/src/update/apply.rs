//! Application of updates to documents.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::shell::ShellValue;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, equal_values};

use super::expand::expand;
use super::op::{Change, Modifier, Target};
use super::tree::Node;
use super::{Action, Modification, Operators, UpdateContext};
use crate::FieldPath;

/// The replacement with the document's `_id` as its first field.
pub(super) fn replace(doc: RawDoc<'_>, replacement: RawDoc<'_>) -> Result<DocBuf> {
    let (old, new) = (doc.get("_id"), replacement.get("_id"));
    if let (Some(old), Some(new)) = (old, new)
        && !equal_values(old, new)
    {
        return Err(Error::new(
            ErrorCode::ImmutableField,
            format!(
                "After applying the update, the (immutable) field '_id' was found to have been altered \
                 to _id: {}",
                ShellValue(new)
            ),
        ));
    }
    let mut out = DocBuilder::in_buffer(Vec::with_capacity(replacement.as_bytes().len() + 32));
    // An equal number of another type replaces the old one.
    if let Some(id) = new.or(old) {
        out.append("_id", id);
    }
    for element in replacement.iter().filter(|element| element.name_bytes() != b"_id") {
        out.append_element(element);
    }
    Ok(out.finish())
}

/// Applies all modifications in the order of their paths.
pub(super) fn modify(
    doc: RawDoc<'_>,
    operators: &Operators,
    context: &UpdateContext,
) -> Result<DocBuf> {
    if let Some(updated) = modify_one_field(doc, operators, context)? {
        return Ok(updated);
    }
    let mut root = Node::root(doc);
    if operators.dynamic {
        for (path, modification) in expand(doc, operators, context)? {
            run(&mut root, &path, modification, doc, context)?;
        }
    } else {
        for modification in &operators.modifications {
            run(&mut root, &modification.path, modification, doc, context)?;
        }
    }
    let updated = root.into_document(doc.as_bytes().len() + 64);
    check_id(doc, updated.as_doc(), operators)?;
    Ok(updated)
}

/// The most frequent update: one operator on one field of the outermost level. The other fields are
/// copied as they are, without a tree of nodes. `None` for any other update.
fn modify_one_field(
    doc: RawDoc<'_>,
    operators: &Operators,
    context: &UpdateContext,
) -> Result<Option<DocBuf>> {
    let [Modification { path, action: Action::Modify(modifier), .. }] =
        &operators.modifications[..]
    else {
        return Ok(None);
    };
    let [name] = path.parts() else { return Ok(None) };
    let has_id_first = doc.iter().next().is_some_and(|first| first.name_bytes() == b"_id");
    if operators.dynamic || !has_id_first || &**name == "_id" {
        return Ok(None);
    }
    let bytes = doc.as_bytes();
    let mut at = 4;
    let mut found = None;
    for element in doc {
        if element.name_bytes() == name.as_bytes() {
            found = Some(element);
            break;
        }
        at += element.encoded_len();
    }
    let after = found.map_or(at, |element| at + element.encoded_len());
    let target = Target { path, doc, context };
    let change = modifier.apply(found.map(|element| element.value()), &target)?;
    let mut out = Vec::with_capacity(bytes.len() + 64);
    out.extend_from_slice(&bytes[..at]);
    match change {
        Change::Keep => out.extend_from_slice(&bytes[at..after]),
        Change::Remove => {}
        Change::Set(value) => {
            out.push(value.type_byte());
            out.extend_from_slice(name.as_bytes());
            out.push(0);
            out.extend_from_slice(value.data());
        }
    }
    out.extend_from_slice(&bytes[after..]);
    let length = out.len() as u32;
    out[..4].copy_from_slice(&length.to_le_bytes());
    Ok(DocBuf::from_bytes(out))
}

fn run(
    root: &mut Node<'_>,
    path: &FieldPath,
    modification: &Modification,
    doc: RawDoc<'_>,
    context: &UpdateContext,
) -> Result<()> {
    match &modification.action {
        Action::Modify(modifier) => modify_path(root, path, &**modifier, doc, context),
        Action::ModifyOnInsert(modifier) if context.is_insert => {
            modify_path(root, path, &**modifier, doc, context)
        }
        Action::ModifyOnInsert(_) => Ok(()),
        Action::RenameFrom(from) => rename(root, from, path, doc),
    }
}

/// Checks that no modification has changed the `_id`, not even the type of a number.
fn check_id(before: RawDoc<'_>, after: RawDoc<'_>, operators: &Operators) -> Result<()> {
    let kept = match (before.get_element("_id"), after.get_element("_id")) {
        (Some(before), Some(after)) => {
            before.type_byte() == after.type_byte() && before.data() == after.data()
        }
        (Some(_), None) => false,
        (None, _) => true,
    };
    if kept {
        return Ok(());
    }
    let to_id = |path: &&FieldPath| path.parts().first().is_some_and(|part| &**part == "_id");
    let mut paths = operators.modifications.iter().flat_map(|modification| {
        let from = match &modification.action {
            Action::RenameFrom(from) => Some(from),
            Action::Modify(_) | Action::ModifyOnInsert(_) => None,
        };
        from.into_iter().chain([&modification.path])
    });
    let path = paths.find(to_id).map_or("_id", FieldPath::as_str);
    let text =
        format!("Performing an update on the path '{path}' would modify the immutable field '_id'");
    Err(Error::new(ErrorCode::ImmutableField, text))
}

fn modify_path(
    root: &mut Node<'_>,
    path: &FieldPath,
    modifier: &dyn Modifier,
    doc: RawDoc<'_>,
    context: &UpdateContext,
) -> Result<()> {
    let target = Target { path, doc, context };
    let change = match root.find(path.parts()) {
        Ok(Some(node)) => {
            let opened;
            let current = match node.as_raw() {
                Some(value) => value,
                None => {
                    opened = node.to_value();
                    opened.as_raw()
                }
            };
            match modifier.apply(Some(current), &target)? {
                Change::Keep => return Ok(()),
                Change::Set(value) => {
                    *node = Node::Owned(value);
                    return Ok(());
                }
                Change::Remove => Change::Remove,
            }
        }
        Ok(None) => modifier.apply(None, &target)?,
        Err(_) if modifier.accepts_blocked_paths() => return Ok(()),
        Err(blocked) => {
            modifier.apply(None, &target)?;
            return Err(match modifier.only_existing() {
                true => blocked.into_source_error(path),
                false => blocked.into_error(),
            });
        }
    };
    match change {
        Change::Keep => {}
        Change::Set(value) => root.create(path.parts(), value)?,
        Change::Remove => drop(root.remove(path.parts())),
    }
    Ok(())
}

fn rename(root: &mut Node<'_>, from: &FieldPath, to: &FieldPath, doc: RawDoc<'_>) -> Result<()> {
    match root.find(from.parts()) {
        Ok(Some(_)) => {}
        Ok(None) => return Ok(()),
        Err(blocked) => return Err(blocked.into_source_error(from)),
    }
    for (path, role) in [(from, "source"), (to, "destination")] {
        if let Some(array) = root.array_on_the_way(path.parts()) {
            let id = doc.get("_id").unwrap_or(RawValue::Null);
            return Err(Error::bad_value(format!(
                "The {role} field cannot be an array element, '{path}' in doc with _id: {} has an array \
                 field called '{array}'",
                ShellValue(id)
            )));
        }
    }
    let Some(value) = root.remove(from.parts()) else { return Ok(()) };
    // An equal value stays, for example a number of another type.
    match root.find(to.parts()) {
        Ok(Some(node)) if equal_values(node.to_value().as_raw(), value.as_raw()) => Ok(()),
        _ => root.create(to.parts(), value),
    }
}
