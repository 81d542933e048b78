//! `$where`: compiled when the filter is parsed, so that an error is reported without a document.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::Scripts;
use mayfly_scripts::Script;
use mayfly_value::{RawElement, RawValue};

use crate::matcher::parse::{FilterContext, Subject};
use crate::matcher::{DocumentTest, Expr};

pub(super) fn filter(element: RawElement<'_>, context: FilterContext<'_>) -> Result<Option<Expr>> {
    if context.subject == Subject::ArrayItem {
        return Err(Error::bad_value("$elemMatch cannot contain $where expression"));
    }
    if context.scope.scripts() != Scripts::InFilters {
        return Err(Error::bad_value("$where is not allowed in this context"));
    }
    let source = match element.value() {
        RawValue::String(source) | RawValue::Code(source) => source,
        RawValue::CodeWithScope { .. } => {
            let text = "$where no longer supports deprecated BSON type CodeWScope";
            return Err(Error::new(ErrorCode(4_649_201), text));
        }
        _ => return Err(Error::bad_value("$where got bad type")),
    };
    if source.is_empty() {
        return Err(Error::bad_value("code for $where cannot be empty"));
    }
    let limits = context.scope.script_limits();
    if !limits.enabled {
        let text = "no globalScriptEngine in $where parsing";
        return Err(Error::new(ErrorCode(6_108_304), text));
    }
    let script = Script::new(source, limits);
    script.check()?;
    Ok(Some(Expr::Document(DocumentTest::Script(Arc::new(script), source.into()))))
}
