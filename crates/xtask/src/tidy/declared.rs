//! Fields of commands, stages and option documents are declared before they are read, and the
//! errors of arguments are made in one place.
//!
//! Builds with assertions check each field that a handler reads against the table with which its
//! document was checked. This check needs no test that reaches the handler, but it knows only
//! whether some table declares the name.

use std::collections::BTreeSet;

use super::{code_of, is_test};

/// The accessors of `Fields` that convert a value.
const ACCESSORS: &[&str] =
    &["bool", "long", "string", "document", "array", "required", "uuid", "path_of"];
/// The folder with the errors and conversions of arguments.
const ERRORS: &str = "crates/value/src/arguments/";
/// What no other file of the product contains: the text of a wrong type, and the codes of a wrong
/// type, a missing field and an unknown one as numbers, the last two also by their names.
const ONLY_THERE: &[&str] = &[
    "is the wrong type",
    "ErrorCode(14)",
    "ErrorCode(40414)",
    "ErrorCode(40415)",
    "ErrorCode::IDLFailedToParse",
    "ErrorCode::IDLUnknownField",
];
/// Crates that are not part of the product, the binary, whose configuration has accessors of the
/// same names, and `search`, whose reader of definitions and queries has its own code and texts.
const OTHERS: &[&str] =
    &["crates/bench/", "crates/search/", "crates/testkit/", "crates/xtask/", "crates/server/"];

/// The fields that no table declares, and errors of arguments in other files.
pub(super) fn problems(sources: &[(String, String)]) -> Vec<String> {
    let product = sources.iter().filter(|(name, _)| {
        name.contains("/src/")
            && !is_test(name)
            && !OTHERS.iter().any(|folder| name.starts_with(folder))
    });
    let product: Vec<_> = product.map(|(name, text)| (name.as_str(), code_of(text))).collect();
    let mut known = BTreeSet::new();
    for (_, code) in &product {
        known.extend(arguments_after(code, "Argument::"));
        known.extend(arguments_after(code, "Command::"));
    }
    let mut problems = Vec::new();
    for (name, code) in product {
        // Generic arguments have no row.
        let own = read_fields(code).filter(|field| !field.starts_with('$'));
        for field in own.filter(|field| !known.contains(field)) {
            problems.push(format!("{name}: reads the field '{field}', which no table declares"));
        }
        if name.starts_with(ERRORS) {
            continue;
        }
        for text in ONLY_THERE.iter().filter(|text| makes(code, text)) {
            problems.push(format!("{name}: '{text}' belongs to {ERRORS}error.rs"));
        }
    }
    problems
}

/// The first string arguments of calls of functions with this prefix, as in `Argument::bool("x")`.
fn arguments_after<'t>(code: &'t str, prefix: &str) -> Vec<&'t str> {
    let calls = code.split(prefix).skip(1);
    calls.filter_map(|call| first_string(call.split_once('(')?.1)).collect()
}

/// The string with which an argument list begins.
fn first_string(arguments: &str) -> Option<&str> {
    arguments.trim_start().strip_prefix('"')?.split_once('"').map(|(text, _)| text)
}

/// The names of fields that are read with an accessor.
fn read_fields(code: &str) -> impl Iterator<Item = &str> {
    ACCESSORS.iter().flat_map(move |accessor| {
        let call = format!(".{accessor}(\"");
        let name = |(at, call): (usize, &str)| code.get(at + call.len()..)?.split('"').next();
        code.match_indices(&call).filter_map(name).collect::<Vec<_>>()
    })
}

/// Whether code, apart from comments, contains a text.
fn makes(code: &str, text: &str) -> bool {
    code.lines().any(|line| line.contains(text) && !line.trim_start().starts_with("//"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, text: &str) -> Vec<String> {
        problems(&[(name.to_owned(), text.to_owned())])
    }

    #[test]
    fn a_field_without_a_declaration_is_found() {
        let table =
            "const T: &[Argument] = &[Argument::bool(\"a\"), Argument::one_of(\n\"b\", X)];";
        let reads = |field: &str| format!("{table}\nfn f() {{ fields.bool(\"{field}\")?; }}");
        assert!(found("crates/commands/src/x.rs", &reads("a")).is_empty());
        assert!(found("crates/commands/src/x.rs", &reads("b")).is_empty());
        assert_eq!(found("crates/commands/src/x.rs", &reads("c")).len(), 1);
        assert!(found("crates/testkit/src/x.rs", &reads("c")).is_empty());
    }

    #[test]
    fn errors_of_arguments_are_made_in_one_place() {
        let text = "fn f() { Error::new(ErrorCode(40415), text) }";
        assert_eq!(found("crates/commands/src/x.rs", text).len(), 1);
        let by_name = "fn f() { Error::new(ErrorCode::IDLUnknownField, text) }";
        assert_eq!(found("crates/commands/src/x.rs", by_name).len(), 1);
        assert!(found("crates/value/src/arguments/error.rs", text).is_empty());
        assert!(found("crates/commands/src/x.rs", "// ErrorCode(40415)").is_empty());
    }
}
