//! `docs/compatibility.md`: supported and missing members, from the tables that the server uses
//! itself.

use std::fmt::Write;

use mayfly_commands::{Command, Handler, registry};
use mayfly_mql::matcher::op as match_op;
use mayfly_mql::update::op as update_op;
use mayfly_query::{Absence, STAGES, StageRow, UNAVAILABLE_STAGES};
use mayfly_value::arguments::{Argument, Form};

const HEAD: &str = "\
# Compatibility

The commands, operators, stages and expressions of MongoDB 8.2, and which of them this server has. The page is
generated from the tables in the code by `cargo run -p mayfly-xtask -- pages`; a test fails when it is out of date.

What is listed as missing fails with an error of its own, usually 238 `NotImplemented`. What is not listed does not
exist in MongoDB 8.2 either. [differences.md](differences.md) describes what works differently than in MongoDB, and
options that are missing.

";

/// The page.
pub(crate) fn page() -> String {
    let mut out = HEAD.to_owned();
    commands(&mut out);
    let matching = match_op::ROWS.iter().map(|row| {
        let missing = matches!(
            row.parse,
            match_op::Parse::MissingTopLevel | match_op::Parse::MissingPredicate
        );
        (row.name, !missing)
    });
    section(&mut out, "Query operators", matching);
    let updates = update_op::ROWS.iter().map(|row| (row.name, true));
    section(&mut out, "Update operators", updates);
    let parts = update_op::ARRAY_PARTS.iter().map(|name| (*name, true));
    section(&mut out, "Update paths", parts);
    let clauses = update_op::CLAUSES.iter().map(|name| (*name, true));
    section(&mut out, "Clauses of $push and $addToSet", clauses);
    let of_updates = mayfly_mql::update::pipeline::STAGES.iter().map(|row| (row.name, true));
    section(&mut out, "Stages of an update", of_updates);
    let projections = mayfly_mql::projection::row::ROWS.iter().map(|row| (row.name, row.works));
    section(&mut out, "Projection", projections);
    stages(&mut out);
    let accumulators = mayfly_expr::accum::ROWS.iter().map(|row| (row.name, true));
    section(&mut out, "Accumulators of $group", accumulators);
    let windows = mayfly_expr::window::ROWS.iter().map(|row| row.name);
    let accumulators = mayfly_expr::accum::ROWS.iter().map(|row| row.name);
    let accumulators = accumulators.filter(|name| mayfly_expr::window::takes_accumulator(name));
    let windows = windows.chain(accumulators).map(|name| (name, true));
    section(&mut out, "Window functions of $setWindowFields", windows);
    let expressions = mayfly_expr::op::rows().map(|row| (row.name, true));
    section(&mut out, "Expressions", expressions);
    newer(&mut out, "8.2", mayfly_expr::op::NEWER);
    let options = mayfly_value::collation::FIELDS.iter().map(|field| (field.name, true));
    section(&mut out, "Collation", options);
    let parameters = mayfly_service::parameters::TABLE.iter().map(|row| (row.name, true));
    section(&mut out, "Server parameters", parameters);
    out
}

/// Members that no server of this version knows.
fn newer(out: &mut String, version: &str, names: &[&str]) {
    out.push_str(&format!("Newer than {version}, so that they are unrecognized:\n\n"));
    list(out, names);
}

fn stages(out: &mut String) {
    let mut rows: Vec<&StageRow> = STAGES.iter().filter(|row| !row.is_internal).collect();
    rows.sort_by_key(|row| row.name);
    out.push_str(
        "## Pipeline stages that work\n\n| stage | what it does | since |\n|---|---|---|\n",
    );
    for row in rows {
        let since = if row.since.is_empty() { "this server only" } else { row.since };
        let _ = writeln!(out, "| `{}` | {} | {since} |", row.name, row.help);
    }
    let absent = |kinds: &[Absence]| -> Vec<&str> {
        let stages = UNAVAILABLE_STAGES.iter().filter(|stage| kinds.contains(&stage.absence));
        let mut names: Vec<_> = stages.map(|stage| stage.name).collect();
        names.sort_unstable();
        names
    };
    stage_arguments(out);
    out.push_str("\n## Pipeline stages that are missing\n\n");
    list(out, &absent(&[Absence::Missing]));
    newer(out, "8.2", &absent(&[Absence::Newer]));
}

fn commands(out: &mut String) {
    let mut commands: Vec<_> = registry::commands().iter().collect();
    commands.sort_by_key(|command| command.row.name);
    out.push_str("## Commands that work\n\n| command | what it does |\n|---|---|\n");
    for command in commands.iter().filter(|it| matches!(it.handler, Handler::Run(_))) {
        let _ = writeln!(out, "| `{}` | {} |", command.row.name, command.row.help);
    }
    arguments(out, &commands);
    let missing: Vec<&str> = commands
        .iter()
        .filter(|command| matches!(command.handler, Handler::Missing))
        .map(|command| command.row.name)
        .collect();
    out.push_str("\n## Commands that are missing\n\n");
    list(out, &missing);
}

/// The arguments that commands declare, with the types that each accepts.
fn arguments(out: &mut String, commands: &[&&Command]) {
    out.push_str(
        "\n## Arguments of commands\n\nAny other field is refused with 40415, apart from the generic \
         arguments.\n`number` is converted to an integer, `flag` is a boolean or a number. \
         `*` marks required arguments, a number the version\nthat introduced one, and `-` those outside of \
         the stable API, of commands that belong to it.\nAn argument that has documents with declared fields has a row of its \
         own; that of `bulkWrite.ops` is for updates.\n\n| command | arguments |\n|---|---|\n",
    );
    for command in commands.iter().filter(|command| !command.row.arguments.is_empty()) {
        row_of(out, command.row.name, command.row.arguments);
    }
}

/// The arguments that stages declare.
fn stage_arguments(out: &mut String) {
    out.push_str(
        "\n## Arguments of stages\n\nOf stages whose operand is a document with declared fields, as above. Any \
         other field is refused.\n\n| stage | arguments |\n|---|---|\n",
    );
    let mut rows: Vec<&StageRow> = STAGES.iter().filter(|row| !row.is_internal).collect();
    rows.sort_by_key(|row| row.name);
    for (row, options) in rows.into_iter().filter_map(|row| Some((row, row.options?))) {
        row_of(out, row.name, options.fields);
    }
}

/// The row of a command, of a stage, or of an argument with documents, and those of the arguments
/// in it.
fn row_of(out: &mut String, name: &str, arguments: &[Argument]) {
    let _ = writeln!(out, "| `{name}` | {} |", declared(arguments));
    for argument in arguments {
        let parts = match argument.form {
            Form::Fields(fields) => fields,
            _ => argument.parts,
        };
        if !parts.is_empty() {
            row_of(out, &format!("{name}.{}", argument.name), parts);
        }
    }
}

/// Declared arguments in one line.
fn declared(arguments: &[Argument]) -> String {
    let shown = arguments.iter().map(|argument| {
        let mut mark = if argument.is_required { "*" } else { "" }.to_owned();
        if !argument.is_stable {
            mark.push('-');
        }
        let form = form_name(argument.form);
        let parts = [&*format!("`{}`{mark}", argument.name), form, argument.since];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// The name of a form; empty if the handler checks the value itself.
fn form_name(form: Form) -> &'static str {
    match form {
        Form::Any | Form::OneOf(_) => "",
        Form::Bool => "bool",
        Form::Flag => "flag",
        Form::Int32 => "int",
        Form::Int64 => "long",
        Form::Whole | Form::Number => "number",
        Form::String | Form::Choice(_) => "string",
        Form::Document | Form::Fields(_) => "object",
        Form::Array => "array",
        Form::Binary => "binData",
        Form::Uuid => "UUID",
        Form::Timestamp => "timestamp",
    }
}

fn section(out: &mut String, title: &str, members: impl Iterator<Item = (&'static str, bool)>) {
    let mut members: Vec<_> = members.collect();
    members.sort_unstable();
    members.dedup();
    let names = |works: bool| -> Vec<&str> {
        members.iter().filter(|member| member.1 == works).map(|member| member.0).collect()
    };
    let _ = writeln!(out, "## {title}\n");
    for (label, works) in [("Work", true), ("Missing", false)] {
        let names = names(works);
        if !names.is_empty() {
            let _ = writeln!(out, "{label}:\n");
            list(out, &names);
        }
    }
}

/// Names in lines of readable length.
fn list(out: &mut String, names: &[&str]) {
    let mut line = String::new();
    for name in names {
        if line.len() + name.len() > 100 {
            out.push_str(line.trim_end());
            out.push('\n');
            line.clear();
        }
        let _ = write!(line, "`{name}` ");
    }
    out.push_str(line.trim_end());
    out.push_str("\n\n");
}
