//! `$ref`, `$id`, `$db`: fields of a DBRef, in a filter on the DBRef itself.

use mayfly_base::{Error, Result};
use mayfly_value::{RawElement, RawValue};

use crate::FieldPath;
use crate::matcher::parse::FilterContext;
use crate::matcher::{CmpOp, Expr, Predicate};

/// Equality with a value, without operators. The names of the collection and the database are
/// compared as bytes under every collation.
pub(super) fn field(element: RawElement<'_>, context: FilterContext<'_>) -> Result<Option<Expr>> {
    if matches!(element.value(), RawValue::Undefined) {
        return Err(Error::bad_value("cannot compare to undefined"));
    }
    let collation = context.scope.collation().filter(|_| element.name() == "$id");
    let path = FieldPath::new(element.name())?;
    Ok(Some(Expr::Path { path, predicate: Predicate::cmp(CmpOp::Eq, element.value(), collation) }))
}
