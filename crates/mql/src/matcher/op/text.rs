//! `$text`: a search in the collection's text index.

use mayfly_value::arguments::error::mistyped;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_text::{SearchOptions, Sensitivity};
use mayfly_value::{RawDoc, RawElement, RawValue};

use crate::matcher::parse::{FilterContext, Subject};
use crate::matcher::{DocumentTest, Expr, TextTest};

pub(super) fn filter(element: RawElement<'_>, context: FilterContext<'_>) -> Result<Option<Expr>> {
    if context.subject == Subject::ArrayItem {
        return Err(Error::bad_value("$text can only be applied to the top-level document"));
    }
    if !context.scope.has_text_index() {
        return Err(Error::bad_value("$text is not allowed in this context"));
    }
    let RawValue::Document(spec) = element.value() else {
        return Err(Error::bad_value("$text expects an object"));
    };
    let Some(search) = string(spec, "$search")? else {
        return Err(Error::new(ErrorCode::NoSuchKey, "Missing expected field \"$search\""));
    };
    let language = string(spec, "$language")?;
    let sensitivity = Sensitivity {
        case: flag(spec, "$caseSensitive")?,
        diacritics: flag(spec, "$diacriticSensitive")?,
    };
    let known = ["$search", "$language", "$caseSensitive", "$diacriticSensitive"];
    if spec.iter().count() != known.iter().filter(|name| spec.get(name).is_some()).count() {
        return Err(Error::bad_value("extra fields in $text"));
    }
    let options = SearchOptions {
        search: search.to_owned(),
        language: language.map(str::to_owned),
        sensitivity,
    };
    Ok(Some(Expr::Document(DocumentTest::Text(Arc::new(TextTest::new(options))))))
}

fn string<'a>(spec: RawDoc<'a>, name: &str) -> Result<Option<&'a str>> {
    match spec.get(name) {
        None => Ok(None),
        Some(RawValue::String(text)) => Ok(Some(text)),
        Some(other) => Err(mistyped(format!(
            "\"{name}\" had the wrong type. Expected string, found {}",
            other.type_name()
        ))),
    }
}

fn flag(spec: RawDoc<'_>, name: &str) -> Result<bool> {
    match spec.get(name) {
        None => Ok(false),
        Some(RawValue::Bool(flag)) => Ok(flag),
        Some(other) => Err(mistyped(format!(
            "\"{name}\" had the wrong type. Expected bool, found {}",
            other.type_name()
        ))),
    }
}
