//! Compiles validators for storage, which does not depend on the query language.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::{OperationTime, Scripts};
use mayfly_mql::matcher::explain_failure;
use mayfly_mql::{Matcher, ParseContext};
use mayfly_pattern::UnfinishedSearch;
use mayfly_storage::{DocumentCheck, WriteTime};
use mayfly_value::{Collation, DocBuf, RawDoc, RawValue};
use mayfly_work::current::spend;

/// An operator that validators must not contain.
struct Refused {
    name: &'static str,
    code: ErrorCode,
    /// The words of the reference's error.
    shown: &'static str,
}

const fn refuse(name: &'static str, code: ErrorCode, shown: &'static str) -> Refused {
    Refused { name, code, shown }
}

const NEAR: &str = "$geoNear, $near, and $nearSphere are";
/// The reference's code for operators that would have to sort.
const NEAR_CODE: ErrorCode = ErrorCode(5_626_500);

/// Manual: "Specify Validation With Query Operators", "Restrictions".
const REFUSED: &[Refused] = &[
    refuse("$near", NEAR_CODE, NEAR),
    refuse("$nearSphere", NEAR_CODE, NEAR),
    refuse("$geoNear", NEAR_CODE, NEAR),
    refuse("$text", ErrorCode::BadValue, "$text is"),
    refuse("$where", ErrorCode::BadValue, "$where is"),
];

/// A parsed validator with its source, which is needed to explain failures.
pub(crate) struct Validator {
    matcher: Matcher,
    filter: DocBuf,
    /// The context of its parse.
    context: ParseContext,
    /// Whether it depends on the time of each write, and is parsed again for each.
    timed: bool,
}

/// Variables whose values are not known before a write.
const TIMES: [&str; 2] = ["$$NOW", "$$CLUSTER_TIME"];

impl Validator {
    /// Compiles a validator.
    ///
    /// # Errors
    /// 2 and 5626500 for refused operators, errors of the filter language.
    pub(crate) fn compile(
        filter: RawDoc<'_>,
        collation: Option<&Arc<Collation>>,
    ) -> Result<Validator> {
        if let Some(Refused { code, shown, .. }) = refused(filter, 0) {
            return Err(Error::new(*code, format!("{shown} not allowed in this context")));
        }
        let mut context = ParseContext {
            collation: collation.cloned(),
            scripts: Scripts::Nowhere,
            ..ParseContext::default()
        };
        let timed = TIMES.iter().any(|name| mentions(filter, name));
        if timed {
            // The values do not matter for the check of the syntax.
            context.time = Some(OperationTime::ANY);
        }
        let matcher = Matcher::parse(filter, &context)?;
        Ok(Validator { matcher, filter: filter.to_owned(), context, timed })
    }
}

impl DocumentCheck for Validator {
    fn fits(&self, document: RawDoc<'_>, time: &dyn Fn() -> WriteTime) -> Result<bool> {
        let found = match self.timed {
            false => self.matcher.matches(document),
            true => {
                let matcher = Matcher::parse(self.filter.as_doc(), &self.context_at(time));
                matcher.and_then(|matcher| matcher.matches(document))
            }
        };
        match found {
            // As in the reference, a failing expression counts as false, unless the operation has
            // to end.
            Err(error) if error.code() != UnfinishedSearch::CODE => {
                spend(usize::MAX).map(|()| false)
            }
            known => known,
        }
    }

    fn explain(&self, document: RawDoc<'_>, time: &dyn Fn() -> WriteTime) -> DocBuf {
        explain_failure(self.filter.as_doc(), document, &self.context_at(time))
    }
}

impl Validator {
    /// The context of a write at this time.
    fn context_at(&self, time: &dyn Fn() -> WriteTime) -> ParseContext {
        let mut context = self.context.clone();
        if self.timed {
            let WriteTime { now_ms, cluster } = time();
            context.time = Some(OperationTime { now_ms, cluster: Some(cluster) });
        }
        context
    }
}

/// Finds the first forbidden operator under logical operators and fields, not inside of values.
fn refused(filter: RawDoc<'_>, depth: usize) -> Option<&'static Refused> {
    if depth > mayfly_base::limits::MAX_FILTER_DEPTH {
        // The parser rejects it.
        return None;
    }
    filter.iter().find_map(|element| {
        let name = element.name();
        let row = REFUSED.iter().find(|refused| refused.name == name);
        if row.is_some() {
            return row;
        }
        match element.value() {
            RawValue::Array(items) if matches!(name, "$and" | "$or" | "$nor") => items
                .iter()
                .filter_map(|item| item.value().as_document())
                .find_map(|item| refused(item, depth + 1)),
            RawValue::Document(inner) if !name.starts_with('$') || name == "$not" => {
                refused(inner, depth + 1)
            }
            _ => None,
        }
    })
}

/// Whether the bytes of a document contain this text. There may be false positives, but no false
/// negatives.
pub(crate) fn mentions(document: RawDoc<'_>, text: &str) -> bool {
    document.as_bytes().windows(text.len()).any(|part| part == text.as_bytes())
}
