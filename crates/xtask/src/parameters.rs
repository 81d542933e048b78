//! The server parameters in `docs/configuration.md`.

use std::fmt::Write;

use anyhow::{Context, Result};
use mayfly_service::parameters::{Parameter, ParameterKind, SetAt, TABLE};

const BEGIN: &str = "<!-- parameters -->\n";
const END: &str = "<!-- end of parameters -->\n";

/// The page with a table of the parameters between its marks.
pub(crate) fn replaced(page: &str) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).context("no mark where the parameters begin")?;
    let (_, after) = rest.split_once(END).context("no mark where the parameters end")?;
    Ok(format!("{before}{BEGIN}\n{}\n{END}{after}", table()))
}

fn table() -> String {
    let mut rows: Vec<&Parameter> = TABLE.iter().collect();
    rows.sort_by_key(|row| row.name.to_lowercase());
    let mut out = "| parameter | value | default | what it does |\n|---|---|---|---|\n".to_owned();
    for row in rows {
        let (help, default) = row.help.split_once(" Default: ").unwrap_or((row.help, "-."));
        let default = default.trim_end_matches('.');
        let set = match row.set_at {
            SetAt::Never => ", read only",
            SetAt::Startup => ", at the start only",
            SetAt::Both => "",
        };
        let (name, kind) = (row.name, kind(row.kind));
        let _ = writeln!(out, "| `{name}` | {kind}{set} | {default} | {help} |");
    }
    out
}

fn kind(kind: ParameterKind) -> String {
    let whole = |least: i64, exclusive: bool, bits: &str| {
        let least = if exclusive { least + 1 } else { least };
        format!("{bits} from {least}")
    };
    match kind {
        ParameterKind::Bool => "true or false".to_owned(),
        ParameterKind::Truth => "any value, by its truth".to_owned(),
        ParameterKind::Level => whole(0, false, "int"),
        ParameterKind::Text { most } => format!("text of at most {most} bytes"),
        ParameterKind::List => "array".to_owned(),
        ParameterKind::Int { least, exclusive } => whole(least, exclusive, "int"),
        ParameterKind::Long { least, exclusive } => whole(least, exclusive, "long"),
        ParameterKind::Double { least, exclusive, most } => {
            let from = if exclusive { "more than" } else { "from" };
            let to = if most < f64::MAX { format!(" to {most}") } else { String::new() };
            format!("number {from} {least}{to}")
        }
        ParameterKind::Word(words) => words.join(" or "),
        ParameterKind::Document | ParameterKind::LogVerbosity => "document".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_needs_its_marks() {
        let page = format!("a\n{BEGIN}STALE\n{END}b\n");
        let new = replaced(&page).unwrap();
        assert!(new.starts_with("a\n<!--") && new.ends_with("-->\nb\n") && !new.contains("STALE"));
        assert_eq!(replaced(&new).unwrap(), new);
        assert!(replaced("a\n").is_err() && replaced(BEGIN).is_err());
    }
}
