//! `compound`.

use mayfly_base::Result;
use mayfly_value::RawValue;

use super::node::Compound;
use super::{Node, Reader};
use crate::limits::MAX_DEPTH;
use crate::read::{Fields, UNBOUNDED};

impl Reader<'_> {
    pub(super) fn compound(&mut self, fields: &mut Fields<'_>, depth: usize) -> Result<Node> {
        if depth >= MAX_DEPTH {
            let text = format!("is nested more than {MAX_DEPTH} levels deep");
            return Err(fields.path().refuse(text));
        }
        let compound = Compound {
            must: self.clauses(fields, "must", depth)?,
            must_not: self.clauses(fields, "mustNot", depth)?,
            should: self.clauses(fields, "should", depth)?,
            filter: self.clauses(fields, "filter", depth)?,
            minimum: fields
                .whole("minimumShouldMatch", 0..=UNBOUNDED)?
                .map(|number| number as usize),
            dismax: super::score::dismax(fields)?,
        };
        let lists = [&compound.must, &compound.must_not, &compound.should, &compound.filter];
        if lists.iter().all(|list| list.is_empty()) {
            let text = "at least one of [must, mustNot, should, filter] must be present";
            return Err(fields.path().refuse(text));
        }
        if compound.minimum.is_some_and(|minimum| minimum > compound.should.len()) {
            let text = "cannot be greater than the number of should clauses";
            return Err(fields.path_of("minimumShouldMatch").refuse(text));
        }
        Ok(Node::Compound(compound))
    }

    /// The clauses of one kind: a document, or an array of documents.
    fn clauses(&mut self, fields: &mut Fields<'_>, name: &str, depth: usize) -> Result<Vec<Node>> {
        if !fields.has(name) {
            fields.value(name);
            return Ok(Vec::new());
        }
        let mut nodes = Vec::new();
        for (path, value) in super::options::items(fields, name)? {
            let RawValue::Document(document) = value else {
                return Err(path.wrong_type("document", value));
            };
            let mut members = Fields::new(document, path)?;
            nodes.push(self.operator(&mut members, depth + 1)?);
            members.finish()?;
        }
        Ok(nodes)
    }
}
