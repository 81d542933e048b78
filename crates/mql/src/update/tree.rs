//! A document opened for change: only the levels on the way to a changed path are parsed.

use std::borrow::Cow;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::paths::array_index;
use mayfly_value::shell::ShellValue;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawElement, RawValue, ValueBuf, ty};

use super::fields::Fields;
use crate::FieldPath;

/// Most items that a path may append to an array to reach its position, as in the reference.
const MAX_ARRAY_PADDING: usize = 1_500_000;

/// A value: unchanged bytes, a new value, or an opened level.
pub(super) enum Node<'a> {
    Raw { type_byte: u8, data: &'a [u8] },
    Owned(ValueBuf),
    Document(Fields<'a>),
    Array(Vec<Node<'a>>),
}

/// A path that cannot continue, with the element that blocks it.
pub(super) struct Blocked {
    part: String,
    parent: String,
    value: ValueBuf,
}

impl Blocked {
    /// The reference's error for a path that would have to be created.
    pub(super) fn into_error(self) -> Error {
        let Blocked { part, parent, value } = self;
        let shown = ShellValue(value.as_raw()).to_string();
        Error::new(
            ErrorCode::PathNotViable,
            format!("Cannot create field '{part}' in element {{{parent}: {shown}}}"),
        )
    }

    /// The reference's error for the path that a `$rename` reads, or of which `$pop`, `$pull` and
    /// `$pullAll` change an array.
    pub(super) fn into_source_error(self, path: &FieldPath) -> Error {
        let Blocked { part, parent, value } = self;
        let shown = ShellValue(value.as_raw()).to_string();
        let text = format!(
            "Cannot use the part ({part}) of ({path}) to traverse the element ({{{parent}: {shown}}})"
        );
        Error::new(ErrorCode::PathNotViable, text)
    }
}

impl<'a> Node<'a> {
    /// The root document, opened.
    pub(super) fn root(doc: RawDoc<'a>) -> Node<'a> {
        let field = |element: RawElement<'a>| {
            let node = Node::Raw { type_byte: element.type_byte(), data: element.data() };
            (Cow::Borrowed(element.name_bytes()), node)
        };
        Node::Document(doc.iter().map(field).collect())
    }

    /// The value; opened levels are encoded.
    pub(super) fn to_value(&self) -> ValueBuf {
        match self {
            Node::Raw { type_byte, data } => ValueBuf::from_parts(*type_byte, data.to_vec()),
            Node::Owned(value) => value.clone(),
            Node::Document(fields) => {
                let mut out = DocBuilder::new();
                write_fields(fields, &mut out);
                RawValue::Document(out.finish().as_doc()).to_owned()
            }
            Node::Array(items) => {
                let mut out = DocBuilder::new_array();
                items.iter().for_each(|item| write_item(item, &mut out));
                RawValue::Array(out.finish().as_doc()).to_owned()
            }
        }
    }

    /// The value without copying; `None` for opened levels.
    pub(super) fn as_raw(&self) -> Option<RawValue<'_>> {
        match self {
            Node::Raw { type_byte, data } => Some(RawValue::decode(*type_byte, data)),
            Node::Owned(value) => Some(value.as_raw()),
            Node::Document(_) | Node::Array(_) => None,
        }
    }

    /// Opens an embedded document or array; other values are unchanged.
    fn open(&mut self) {
        match self {
            Node::Raw { type_byte: ty::DOCUMENT, data } => {
                *self = RawDoc::new(data).map_or(Node::Document(Fields::default()), Node::root);
            }
            Node::Raw { type_byte: ty::ARRAY, data } => {
                let items = RawDoc::new(data).unwrap_or(RawDoc::EMPTY);
                let item = |element: RawElement<'a>| Node::Raw {
                    type_byte: element.type_byte(),
                    data: element.data(),
                };
                *self = Node::Array(items.iter().map(item).collect());
            }
            Node::Owned(value) => {
                let own = |element: RawElement<'_>| Node::Owned(element.value().to_owned());
                let opened = match value.as_raw() {
                    RawValue::Document(doc) => Node::Document(
                        doc.iter()
                            .map(|e| (Cow::Owned(e.name_bytes().to_owned()), own(e)))
                            .collect(),
                    ),
                    RawValue::Array(items) => Node::Array(items.iter().map(own).collect()),
                    _ => return,
                };
                *self = opened;
            }
            Node::Raw { .. } | Node::Document(_) | Node::Array(_) => {}
        }
    }

    /// The node at a path; `None` where the path could be created.
    pub(super) fn find<S: AsRef<str>>(
        &mut self,
        parts: &[S],
    ) -> std::result::Result<Option<&mut Node<'a>>, Blocked> {
        let mut node = self;
        let mut parent = "";
        for part in parts {
            let part = part.as_ref();
            node.open();
            if !node.may_have(part) {
                return Err(blocked(node, parent, part));
            }
            let child = match node {
                Node::Document(fields) => fields.find(part),
                Node::Array(items) => {
                    match array_index(part).and_then(|index| items.get_mut(index)) {
                        Some(item) => {
                            node = item;
                            parent = part;
                            continue;
                        }
                        None => None,
                    }
                }
                Node::Raw { .. } | Node::Owned(_) => None,
            };
            match child {
                Some(child) => node = child,
                None => return Ok(None),
            }
            parent = part;
        }
        Ok(Some(node))
    }

    fn may_have(&self, part: &str) -> bool {
        match self {
            Node::Document(_) => true,
            Node::Array(_) => array_index(part).is_some(),
            Node::Raw { .. } | Node::Owned(_) => false,
        }
    }

    /// Sets the value at a path; creates documents and pads arrays on the way.
    pub(super) fn create<S: AsRef<str>>(&mut self, parts: &[S], value: ValueBuf) -> Result<()> {
        let mut node = self;
        let mut parent = "";
        for part in parts {
            let part = part.as_ref();
            node.open();
            if !node.may_have(part) {
                return Err(blocked(node, parent, part).into_error());
            }
            node = match node {
                Node::Document(fields) => {
                    fields.find_or_push(part, || Node::Document(Fields::default()))
                }
                Node::Array(items) => {
                    let index = array_index(part).unwrap_or(0);
                    pad(items, index)?;
                    &mut items[index]
                }
                other => other,
            };
            parent = part;
        }
        *node = Node::Owned(value);
        Ok(())
    }

    /// Removes the field at a path and returns its value; an array item becomes null instead.
    pub(super) fn remove<S: AsRef<str>>(&mut self, parts: &[S]) -> Option<ValueBuf> {
        let (last, way) = parts.split_last()?;
        let parent = self.find(way).ok()??;
        parent.open();
        match parent {
            Node::Document(fields) => fields.remove(last.as_ref()).map(|node| node.to_value()),
            Node::Array(items) => {
                let item = items.get_mut(array_index(last.as_ref())?)?;
                let value = item.to_value();
                *item = Node::Owned(RawValue::Null.to_owned());
                Some(value)
            }
            Node::Raw { .. } | Node::Owned(_) => None,
        }
    }

    /// The name of the first array on a path, before its end.
    pub(super) fn array_on_the_way<S: AsRef<str>>(&mut self, parts: &[S]) -> Option<String> {
        (1..parts.len()).find_map(|len| {
            let node = self.find(&parts[..len]).ok()??;
            let is_array =
                matches!(node, Node::Array(_)) || matches!(node.as_raw(), Some(RawValue::Array(_)));
            is_array.then(|| parts[len - 1].as_ref().to_owned())
        })
    }

    /// The whole document, with `_id` first.
    pub(super) fn into_document(self, expected_bytes: usize) -> DocBuf {
        let Node::Document(mut fields) = self else {
            return DocBuf::empty();
        };
        fields.put_in_front("_id");
        let mut out = DocBuilder::in_buffer(Vec::with_capacity(expected_bytes));
        write_fields(&fields, &mut out);
        out.finish()
    }
}

fn blocked(node: &Node<'_>, parent: &str, part: &str) -> Blocked {
    Blocked { part: part.to_owned(), parent: parent.to_owned(), value: node.to_value() }
}

/// Extends an array to a position with nulls.
fn pad(items: &mut Vec<Node<'_>>, index: usize) -> Result<()> {
    if index.saturating_sub(items.len()) > MAX_ARRAY_PADDING {
        return Err(Error::new(
            ErrorCode::CannotBackfillArray,
            format!("can't backfill more than {MAX_ARRAY_PADDING} elements"),
        ));
    }
    while items.len() < index {
        items.push(Node::Owned(RawValue::Null.to_owned()));
    }
    if items.len() == index {
        items.push(Node::Document(Fields::default()));
    }
    Ok(())
}

/// A field's name as text. Requests with names that are not UTF-8 are refused before.
fn text(name: &[u8]) -> &str {
    std::str::from_utf8(name).unwrap_or("")
}

// The depth of opened levels is bounded by the number of parts of a path.
fn write_fields(fields: &Fields<'_>, out: &mut DocBuilder) {
    for (name, node) in fields.iter() {
        match node {
            Node::Raw { type_byte, data } => {
                out.append_element(RawElement::from_parts(*type_byte, name, data));
            }
            Node::Owned(value) => {
                out.append(text(name), value);
            }
            Node::Document(inner) => {
                out.start_document(text(name));
                write_fields(inner, out);
                out.end();
            }
            Node::Array(items) => {
                out.start_array(text(name));
                items.iter().for_each(|item| write_item(item, out));
                out.end();
            }
        }
    }
}

fn write_item(node: &Node<'_>, out: &mut DocBuilder) {
    match node {
        Node::Raw { type_byte, data } => {
            out.push(RawValue::decode(*type_byte, data));
        }
        Node::Owned(value) => {
            out.push(value);
        }
        Node::Document(fields) => {
            out.push_document();
            write_fields(fields, out);
            out.end();
        }
        Node::Array(items) => {
            out.push_array();
            items.iter().for_each(|item| write_item(item, out));
            out.end();
        }
    }
}
