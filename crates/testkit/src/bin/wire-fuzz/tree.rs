//! A command as a mutable tree. A document may have a name twice, as in BSON.

use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, ValueBuf};

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Document(Vec<(String, Node)>),
    Array(Vec<Node>),
    Leaf(ValueBuf),
}

impl Node {
    pub(crate) fn leaf<'v>(value: impl Into<RawValue<'v>>) -> Node {
        Node::Leaf(value.into().to_owned())
    }

    pub(crate) fn one(name: &str, value: Node) -> Node {
        Node::Document(vec![(name.to_owned(), value)])
    }

    pub(crate) fn of(value: RawValue<'_>) -> Node {
        match value {
            RawValue::Document(document) => Node::of_document(document),
            RawValue::Array(array) => {
                Node::Array(array.iter().map(|item| Node::of(item.value())).collect())
            }
            leaf => Node::Leaf(leaf.to_owned()),
        }
    }

    pub(crate) fn of_document(document: RawDoc<'_>) -> Node {
        let field = |it: mayfly_value::RawElement<'_>| (it.name().to_owned(), Node::of(it.value()));
        Node::Document(document.iter().map(field).collect())
    }

    /// The number of nodes, including this one.
    pub(crate) fn size(&self) -> usize {
        match self {
            Node::Document(fields) => 1 + fields.iter().map(|(_, it)| it.size()).sum::<usize>(),
            Node::Array(items) => 1 + items.iter().map(Node::size).sum::<usize>(),
            Node::Leaf(_) => 1,
        }
    }

    /// Its approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Node::Document(fields) => {
                8 + fields.iter().map(|(name, it)| 2 + name.len() + it.bytes()).sum::<usize>()
            }
            Node::Array(items) => 8 + items.iter().map(|it| 8 + it.bytes()).sum::<usize>(),
            Node::Leaf(leaf) => leaf.data().len(),
        }
    }

    pub(crate) fn depth(&self) -> usize {
        match self {
            Node::Document(fields) => {
                1 + fields.iter().map(|(_, it)| it.depth()).max().unwrap_or(0)
            }
            Node::Array(items) => 1 + items.iter().map(Node::depth).max().unwrap_or(0),
            Node::Leaf(_) => 0,
        }
    }

    /// The node with this number, in the order of the encoding; this one is 0.
    pub(crate) fn at(&mut self, mut number: usize) -> Option<&mut Node> {
        if number == 0 {
            return Some(self);
        }
        number -= 1;
        let children: Box<dyn Iterator<Item = &mut Node>> = match self {
            Node::Document(fields) => Box::new(fields.iter_mut().map(|(_, it)| it)),
            Node::Array(items) => Box::new(items.iter_mut()),
            Node::Leaf(_) => return None,
        };
        for child in children {
            let size = child.size();
            if number < size {
                return child.at(number);
            }
            number -= size;
        }
        None
    }

    /// Calls the function for each field of each document.
    pub(crate) fn each_field(&self, call: &mut dyn FnMut(&str, &Node)) {
        match self {
            Node::Document(fields) => fields.iter().for_each(|(name, value)| {
                call(name, value);
                value.each_field(call);
            }),
            Node::Array(items) => items.iter().for_each(|item| item.each_field(call)),
            Node::Leaf(_) => {}
        }
    }

    /// Changes each leaf.
    pub(crate) fn each_leaf(&mut self, change: &mut dyn FnMut(&mut ValueBuf)) {
        match self {
            Node::Document(fields) => fields.iter_mut().for_each(|(_, it)| it.each_leaf(change)),
            Node::Array(items) => items.iter_mut().for_each(|it| it.each_leaf(change)),
            Node::Leaf(leaf) => change(leaf),
        }
    }

    /// This node as a document; an empty one for other values.
    pub(crate) fn document(&self) -> DocBuf {
        let mut builder = DocBuilder::new();
        if let Node::Document(fields) = self {
            append_fields(fields, &mut builder);
        }
        builder.finish()
    }
}

fn append_fields(fields: &[(String, Node)], builder: &mut DocBuilder) {
    for (name, value) in fields {
        let name = name.replace('\0', "");
        match value {
            Node::Document(fields) => {
                builder.start_document(&name);
                append_fields(fields, builder);
                builder.end();
            }
            Node::Array(items) => {
                builder.start_array(&name);
                push_items(items, builder);
                builder.end();
            }
            Node::Leaf(leaf) => {
                builder.append(&name, leaf.as_raw());
            }
        }
    }
}

fn push_items(items: &[Node], builder: &mut DocBuilder) {
    for item in items {
        match item {
            Node::Document(fields) => {
                builder.push_document();
                append_fields(fields, builder);
                builder.end();
            }
            Node::Array(items) => {
                builder.push_array();
                push_items(items, builder);
                builder.end();
            }
            Node::Leaf(leaf) => {
                builder.push(leaf.as_raw());
            }
        }
    }
}
