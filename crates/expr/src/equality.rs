//! Extraction of equality predicates: the fields that must equal a constant for an expression to be
//! true.

use mayfly_value::ValueBuf;

use crate::Expression;

/// Deepest nesting of `$and` that is searched.
const MAX_DEPTH: usize = 20;

impl Expression {
    /// Dotted paths, each with the constant that its field equals whenever the expression is true.
    pub fn equalities(&self) -> Vec<(String, &ValueBuf)> {
        let mut found = Vec::new();
        collect(self, 0, &mut found);
        found
    }
}

fn collect<'e>(expression: &'e Expression, depth: usize, found: &mut Vec<(String, &'e ValueBuf)>) {
    match expression {
        _ if depth > MAX_DEPTH => {}
        Expression::Collated(_, inner) => collect(inner, depth + 1, found),
        Expression::Call { row, arguments, .. } if row.name == "$and" => {
            arguments.iter().for_each(|argument| collect(argument, depth + 1, found));
        }
        Expression::Call { row, arguments, .. } if row.name == "$eq" => match &arguments[..] {
            [Expression::Path(parts), Expression::Constant(value)]
            | [Expression::Constant(value), Expression::Path(parts)]
                if !parts.is_empty() =>
            {
                found.push((parts.join("."), value));
            }
            _ => {}
        },
        _ => {}
    }
}
