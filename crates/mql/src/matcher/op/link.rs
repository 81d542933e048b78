//! `$ref`, `$id`, `$db`: the fields of a link, where a filter asks about the link's own document.

use mayfly_base::{Error, Result};
use mayfly_value::{RawElement, RawValue};

use crate::FieldPath;
use crate::matcher::parse::Around;
use crate::matcher::{CmpOp, Expr, Predicate};

/// Equality with a value; operators have no meaning here. The names of a collection and of a database compare byte by
/// byte under every collation.
pub(super) fn field(element: RawElement<'_>, around: Around<'_>) -> Result<Option<Expr>> {
    if matches!(element.value(), RawValue::Undefined) {
        return Err(Error::bad_value("cannot compare to undefined"));
    }
    let collation = around.scope.collation().filter(|_| element.name() == "$id");
    let path = FieldPath::new(element.name())?;
    Ok(Some(Expr::Path { path, predicate: Predicate::cmp(CmpOp::Eq, element.value(), collation) }))
}
