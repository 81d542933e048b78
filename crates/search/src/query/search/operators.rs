//! The names of operators. A row reads one operator.

use mayfly_base::Result;

use super::{Node, Reader};
use crate::read::Fields;

/// Reads the fields of an operator, nested at this depth.
type ReadOperator = fn(&mut Reader<'_>, &mut Fields<'_>, usize) -> Result<Node>;

enum Row {
    Supported(ReadOperator),
    Unsupported,
}

use Row::{Supported, Unsupported};

/// All operators of the reference.
const ROWS: &[(&str, Row)] = &[
    ("autocomplete", Supported(|reader, fields, _| reader.autocomplete(fields))),
    ("compound", Supported(|reader, fields, depth| reader.compound(fields, depth))),
    ("embeddedDocument", Unsupported),
    ("equals", Supported(|reader, fields, _| reader.equals(fields))),
    ("exists", Supported(|reader, fields, _| reader.exists(fields))),
    ("geoShape", Unsupported),
    ("geoWithin", Unsupported),
    ("hasAncestor", Unsupported),
    ("hasRoot", Unsupported),
    ("in", Supported(|reader, fields, _| reader.is_in(fields))),
    ("knnBeta", Supported(|reader, fields, depth| reader.knn_beta(fields, depth))),
    ("moreLikeThis", Unsupported),
    ("near", Supported(|reader, fields, _| reader.near(fields))),
    ("phrase", Supported(|reader, fields, _| reader.phrase(fields))),
    ("queryString", Unsupported),
    ("range", Supported(|reader, fields, _| reader.range(fields))),
    ("regex", Supported(|reader, fields, _| reader.regex(fields))),
    ("search", Unsupported),
    ("span", Unsupported),
    ("term", Unsupported),
    ("text", Supported(|reader, fields, _| reader.text(fields))),
    ("vectorSearch", Supported(|reader, fields, depth| reader.nearest(fields, depth))),
    ("wildcard", Supported(|reader, fields, _| reader.wildcard(fields))),
];

impl Reader<'_> {
    /// Whether a document has an operator.
    pub(super) fn has_operator(&self, fields: &Fields<'_>) -> bool {
        ROWS.iter().any(|row| fields.has(row.0))
    }

    /// Reads the operator of a document, which has exactly one.
    pub(super) fn operator(&mut self, fields: &mut Fields<'_>, depth: usize) -> Result<Node> {
        let mut present = ROWS.iter().filter(|row| fields.has(row.0));
        let found = (present.next(), present.next());
        let names = || ROWS.iter().map(|row| row.0).collect::<Vec<_>>().join(", ");
        let (name, row) = match found {
            (Some((name, row)), None) => (*name, row),
            (None, _) => {
                let text = format!("one of [{}] must be present", names());
                return Err(fields.path().refuse(text));
            }
            (Some(_), Some(_)) => {
                let text = format!("only one of [{}] may be present", names());
                return Err(fields.path().refuse(text));
            }
        };
        let path = fields.path_of(name);
        self.count(&path)?;
        let Supported(read) = row else {
            return Err(path.not_supported(&format!("the operator \"{name}\"")));
        };
        let document = fields.document(name)?;
        let mut members = Fields::new(fields.required(name, document)?, path)?;
        let node = read(self, &mut members, depth)?;
        let score = match &node {
            Node::Compound(compound) if compound.dismax.is_some() => None,
            _ => self.score(&mut members)?,
        };
        members.finish()?;
        Ok(match score {
            Some(score) => Node::Scored(Box::new(node), score),
            None => node,
        })
    }
}
