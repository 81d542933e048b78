//! Every declared argument of a command is sent with each BSON type, at its bounds, before and
//! after an unknown field, twice, and not at all. The answer must be the one that follows from the
//! declaration.
//!
//! The first wrong field in the order of the command decides, and missing fields come last.

use mayfly_commands::{Command, Handler, Names, RowFlags, registry};
use mayfly_query::{STAGES, StageOptions, StageRow};
use mayfly_testkit::Fixture;
use mayfly_testkit::dialect;
use mayfly_value::arguments::{Argument, Form, Null};
use mayfly_value::{RawValue, ty};

/// One value of each BSON type, in the dialect of the scripts.
const VALUES: &[(u8, &str)] = &[
    (ty::DOUBLE, "1.0"),
    (ty::STRING, "'x'"),
    (ty::DOCUMENT, "{}"),
    (ty::ARRAY, "[]"),
    (ty::BINARY, "BinData(0, '')"),
    (ty::UNDEFINED, "undefined"),
    (ty::OBJECT_ID, "ObjectId('000000000000000000000000')"),
    (ty::BOOL, "true"),
    (ty::DATE, "Date(0)"),
    (ty::NULL, "null"),
    (ty::REGEX, "/x/"),
    (ty::INT32, "1"),
    (ty::TIMESTAMP, "Timestamp(1, 1)"),
    (ty::INT64, "NumberLong(1)"),
    (ty::DECIMAL, "NumberDecimal('1')"),
    (ty::MAX_KEY, "MaxKey"),
    (ty::MIN_KEY, "MinKey"),
];

/// A command with its declarations and the beginning of a request.
struct Declared {
    command: &'static Command,
    db: &'static str,
    begin: String,
}

impl Declared {
    fn all() -> Vec<Declared> {
        let has_arguments = |command: &&&'static Command| {
            !command.row.arguments.is_empty()
                && matches!(command.handler, Handler::Run(_))
                && !command.row.flags.intersects(RowFlags::LENIENT.union(RowFlags::TEST_ONLY))
        };
        registry::commands().iter().filter(has_arguments).map(|it| Declared::of(it)).collect()
    }

    fn of(command: &'static Command) -> Declared {
        let row = &command.row;
        let target = match row.names {
            Names::Collection | Names::Word => "'c'",
            Names::FullName => "'test.c'",
            Names::Field(_) => "NumberLong(1)",
            Names::List => "1",
            Names::Entries => "[]",
        };
        let db = if row.flags.contains(RowFlags::ADMIN_ONLY) { "admin" } else { "test" };
        Declared { command, db, begin: format!("{{{}: {target}", row.name) }
    }

    /// Sends the command with these further fields, and records an answer with another code.
    fn check(&self, fixture: &Fixture, rest: &str, code: i32, wrong: &mut Vec<String>) {
        let text = format!("{}{rest}}}", self.begin);
        let reply = fixture.run(self.db, &text);
        if reply.as_doc().get("code") != Some(RawValue::Int32(code)) {
            wrong.push(format!("{text}\n  wants {code}: {}", dialect::show(reply.as_doc())));
        }
    }
}

/// The code with which a value of this type is refused; `None` if the declaration accepts it.
fn refusal(argument: &Argument, type_byte: u8) -> Option<i32> {
    let is_null = matches!(type_byte, ty::NULL | ty::UNDEFINED);
    if is_null && argument.null == Null::Absent || argument.accepts(type_byte) {
        return None;
    }
    let own = argument.null_refusal.filter(|_| is_null).or(argument.refusal);
    Some(own.map_or(14, |(code, _)| code))
}

#[test]
fn wrong_types_have_the_declared_codes() {
    let (fixture, mut wrong, mut sent) = (Fixture::in_memory(), Vec::new(), 0);
    for declared in Declared::all() {
        for argument in declared.command.row.arguments {
            for (type_byte, value) in VALUES {
                let Some(code) = refusal(argument, *type_byte) else { continue };
                let field = format!(", {}: {value}", argument.name);
                declared.check(&fixture, &field, code, &mut wrong);
                // In the order of the fields.
                declared.check(&fixture, &format!("{field}, noField: 1"), code, &mut wrong);
                declared.check(&fixture, &format!(", noField: 1{field}"), 40415, &mut wrong);
                sent += 3;
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {sent}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(sent > 1000, "{sent}");
}

/// The declared fields of the documents that a form accepts.
fn embedded(form: Form) -> &'static [Argument] {
    match form {
        Form::Fields(fields) => fields,
        Form::OneOf(forms) => {
            let fields = forms.iter().map(|form| embedded(*form));
            fields.max_by_key(|fields| fields.len()).unwrap_or(&[])
        }
        _ => &[],
    }
}

#[test]
fn wrong_types_in_declared_documents_have_the_declared_codes() {
    let (fixture, mut wrong, mut sent) = (Fixture::in_memory(), Vec::new(), 0);
    for declared in Declared::all() {
        for argument in declared.command.row.arguments {
            for field in embedded(argument.form) {
                for (type_byte, value) in VALUES {
                    let Some(code) = refusal(field, *type_byte) else { continue };
                    let (outer, inner) = (argument.name, field.name);
                    let fields = format!(", {outer}: {{{inner}: {value}, noField: 1}}");
                    declared.check(&fixture, &fields, code, &mut wrong);
                    let fields = format!(", {outer}: {{noField: 1, {inner}: {value}}}");
                    declared.check(&fixture, &fields, 40415, &mut wrong);
                    sent += 2;
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {sent}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(sent > 200, "{sent}");
}

/// An argument with documents that the handler checks: a request in which one of them has these
/// fields.
fn with_part(declared: &Declared, argument: &Argument, fields: &str) -> String {
    // The first field says which operation it is.
    let kind = if argument.name == "ops" { "update: 0, " } else { "" };
    let part = format!("{{{kind}{fields}}}");
    let part = if argument.accepts(ty::ARRAY) { format!("[{part}]") } else { part };
    let others = declared.command.row.arguments.iter();
    let others = others.filter(|other| other.is_required && other.name != argument.name);
    let others = others.map(|other| match other.name {
        "nsInfo" => ", nsInfo: [{ns: 'test.c'}]".to_owned(),
        "ops" => ", ops: [{insert: 0, document: {}}]".to_owned(),
        name => format!(", {name}: {}", sample(other.form)),
    });
    format!(", {}: {part}{}", argument.name, others.collect::<String>())
}

#[test]
fn wrong_fields_of_statements_have_the_declared_codes() {
    let (fixture, mut wrong, mut sent) = (Fixture::in_memory(), Vec::new(), 0);
    for declared in Declared::all() {
        for argument in declared.command.row.arguments {
            for field in argument.parts {
                let mut check = |fields: &str, code| {
                    let fields = with_part(&declared, argument, fields);
                    declared.check(&fixture, &fields, code, &mut wrong);
                    sent += 1;
                };
                for (type_byte, value) in VALUES {
                    let inner = format!("{}: {value}", field.name);
                    match refusal(field, *type_byte) {
                        Some(code) => {
                            check(&format!("{inner}, noField: 1"), code);
                            check(&format!("noField: 1, {inner}"), 40415);
                        }
                        None if matches!(
                            field.form,
                            Form::Choice(_) | Form::Fields(_) | Form::Uuid
                        ) => {}
                        None if field.name == "update" => {}
                        None => check(&format!("{inner}, noField: 1"), 40415),
                    }
                }
                let value = sample(field.form);
                check(&format!("{0}: {value}, {0}: {value}", field.name), 40413);
            }
            if argument.parts.iter().any(|field| field.is_required) {
                let fields = with_part(&declared, argument, "");
                declared.check(&fixture, &fields, 40414, &mut wrong);
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {sent}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(sent > 500, "{sent}");
}

#[test]
fn numbers_beyond_their_bounds_are_refused() {
    let (fixture, mut wrong) = (Fixture::in_memory(), Vec::new());
    for declared in Declared::all() {
        for argument in declared.command.row.arguments {
            let Some((least, most)) = argument.bounds else { continue };
            let (below, above) = (least.checked_sub(1), most.checked_add(1));
            for beyond in below.into_iter().chain(above) {
                for value in [
                    format!("NumberLong({beyond})"),
                    format!("NumberDecimal('{beyond}.4')"),
                    format!("{beyond}.0"),
                ] {
                    let fields = format!(", {}: {value}, noField: 1", argument.name);
                    declared.check(&fixture, &fields, 2, &mut wrong);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Numbers that arguments are converted from, and the integers that they become.
const NUMBERS: &[(&str, i64)] = &[
    ("NaN", 0),
    ("NumberDecimal('NaN')", 0),
    ("NumberDecimal('-NaN')", 0),
    ("1.9", 1),
    ("-1.9", -1),
    ("-0.9", 0),
    ("NumberDecimal('0.5')", 0),
    ("NumberDecimal('1.5')", 2),
    ("NumberDecimal('2.5')", 2),
    ("NumberDecimal('-0.51')", -1),
    ("Infinity", i64::MAX),
    ("-Infinity", i64::MIN),
    ("NumberDecimal('Infinity')", i64::MAX),
    ("NumberDecimal('-Infinity')", i64::MIN),
    ("1e300", i64::MAX),
    ("NumberDecimal('-1E+300')", i64::MIN),
    ("NumberLong(2147483648)", 2_147_483_648),
];

/// Whether numbers of all types are converted to integers.
fn converts(form: Form) -> bool {
    match form {
        Form::Whole => true,
        Form::OneOf(forms) => forms.iter().any(|form| converts(*form)),
        _ => false,
    }
}

#[test]
fn numbers_are_converted_before_their_bounds_are_checked() {
    let (fixture, mut wrong, mut sent) = (Fixture::in_memory(), Vec::new(), 0);
    for declared in Declared::all() {
        let arguments = declared.command.row.arguments;
        for argument in arguments.iter().filter(|argument| converts(argument.form)) {
            let (least, most) = argument.bounds.unwrap_or((i64::MIN, i64::MAX));
            let ends = [least, most].map(|end| (format!("NumberLong({end})"), end));
            let numbers = NUMBERS.iter().map(|(text, number)| ((*text).to_owned(), *number));
            for (text, number) in numbers.chain(ends) {
                // An accepted value leaves the unknown field as the first wrong one.
                let code = if (least..=most).contains(&number) { 40415 } else { 2 };
                let fields = format!(", {}: {text}, noField: 1", argument.name);
                declared.check(&fixture, &fields, code, &mut wrong);
                sent += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {sent}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(sent > 300, "{sent}");
}

#[test]
fn accepted_types_leave_the_next_wrong_field_to_decide() {
    let (fixture, mut wrong, mut sent) = (Fixture::in_memory(), Vec::new(), 0);
    for declared in Declared::all() {
        for argument in declared.command.row.arguments {
            let within = argument.bounds.is_none_or(|(least, most)| (least..=most).contains(&1));
            for (type_byte, value) in VALUES {
                let value = match argument.form {
                    // The content decides, too.
                    Form::Choice(_) | Form::Fields(_) | Form::Uuid | Form::OneOf(_) => continue,
                    _ if refusal(argument, *type_byte).is_some() || !within => continue,
                    _ => value,
                };
                let fields = format!(", {}: {value}, noField: 1", argument.name);
                declared.check(&fixture, &fields, 40415, &mut wrong);
                sent += 1;
            }
            let value = sample(argument.form);
            if within && argument.null != Null::Value {
                let fields = format!(", {}: {value}, noField: 1", argument.name);
                declared.check(&fixture, &fields, 40415, &mut wrong);
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {sent}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(sent > 500, "{sent}");
}

#[test]
fn repeated_and_missing_fields_are_refused() {
    let (fixture, mut wrong) = (Fixture::in_memory(), Vec::new());
    for declared in Declared::all() {
        let arguments = declared.command.row.arguments;
        for argument in arguments {
            let value = sample(argument.form);
            let fields = format!(", {0}: {value}, {0}: {value}", argument.name);
            declared.check(&fixture, &fields, 40413, &mut wrong);
        }
        if arguments.iter().any(|argument| argument.is_required) {
            declared.check(&fixture, "", 40414, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A value that a form accepts.
fn sample(form: Form) -> String {
    match form {
        Form::Any | Form::Whole | Form::Number | Form::Int32 => "1".to_owned(),
        Form::Bool | Form::Flag => "true".to_owned(),
        Form::Int64 => "NumberLong(1)".to_owned(),
        Form::String => "'x'".to_owned(),
        Form::Choice(choices) => format!("'{}'", choices.first().unwrap_or(&"")),
        Form::Document => "{}".to_owned(),
        Form::Fields(fields) => {
            let required = fields.iter().filter(|field| field.is_required);
            let required = required.map(|field| format!("{}: {}", field.name, sample(field.form)));
            format!("{{{}}}", required.collect::<Vec<_>>().join(", "))
        }
        Form::Array => "[]".to_owned(),
        Form::Binary => "BinData(0, '')".to_owned(),
        Form::Uuid => "BinData(4, 'AAAAAAAAAAAAAAAAAAAAAA==')".to_owned(),
        Form::Timestamp => "Timestamp(1, 1)".to_owned(),
        Form::OneOf(forms) => forms.first().map_or_else(String::new, |form| sample(*form)),
    }
}

/// A stage with declared fields, and the command in which it is sent.
struct DeclaredStage {
    row: &'static StageRow,
    options: StageOptions,
}

impl DeclaredStage {
    fn all() -> impl Iterator<Item = DeclaredStage> {
        let rows = STAGES.iter().filter(|row| !row.is_internal);
        rows.filter_map(|row| Some(DeclaredStage { row, options: row.options? }))
    }

    /// Sends the stage with these fields, and records an answer with another code.
    fn check(&self, fixture: &Fixture, fields: &str, code: i32, wrong: &mut Vec<String>) {
        let name = self.row.name;
        // Joins look for their collection before all else.
        let joins = matches!(name, "$lookup" | "$graphLookup") && !fields.contains("from:");
        let from = if joins { "from: 'other', " } else { "" };
        for of in ["'c'", "1"] {
            let text = format!(
                "{{aggregate: {of}, cursor: {{}}, pipeline: [{{{name}: {{{from}{fields}}}}}]}}"
            );
            let reply = fixture.run("admin", &text);
            if reply.as_doc().get("code") == Some(RawValue::Int32(code)) {
                return;
            }
            if of == "1" {
                wrong.push(format!("{text}\n  wants {code}: {}", dialect::show(reply.as_doc())));
            }
        }
    }

    fn unknown(&self) -> i32 {
        self.options.codes.map_or(40415, |codes| codes.unknown.0)
    }
}

#[test]
fn wrong_fields_of_stages_have_the_declared_codes() {
    let (fixture, mut wrong, mut sent) = (Fixture::in_memory(), Vec::new(), 0);
    for stage in DeclaredStage::all() {
        for argument in stage.options.fields {
            for (type_byte, value) in VALUES {
                let Some(code) = refusal(argument, *type_byte) else { continue };
                let field = format!("{}: {value}", argument.name);
                stage.check(&fixture, &format!("{field}, noField: 1"), code, &mut wrong);
                let unknown = stage.unknown();
                stage.check(&fixture, &format!("noField: 1, {field}"), unknown, &mut wrong);
                sent += 2;
            }
            for field in embedded(argument.form) {
                for (type_byte, value) in VALUES {
                    let Some(code) = refusal(field, *type_byte) else { continue };
                    let (outer, inner) = (argument.name, field.name);
                    let fields = format!("{outer}: {{{inner}: {value}, noField: 1}}");
                    stage.check(&fixture, &fields, code, &mut wrong);
                    let fields = format!("{outer}: {{noField: 1, {inner}: {value}}}");
                    stage.check(&fixture, &fields, 40415, &mut wrong);
                    sent += 2;
                }
            }
            if stage.options.codes.is_none() {
                let value = sample(argument.form);
                let fields = format!("{0}: {value}, {0}: {value}", argument.name);
                stage.check(&fixture, &fields, 40413, &mut wrong);
            }
        }
        if stage.options.fields.iter().any(|argument| argument.is_required) {
            let own = stage.options.codes.and_then(|codes| codes.missing);
            stage.check(&fixture, "", own.map_or(40414, |(code, _)| code), &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{} of {sent}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(sent > 500, "{sent}");
}
