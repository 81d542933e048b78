//! Specifications to trees, with the reference's rules on mixing and collisions.

use mayfly_base::limits::MAX_FILTER_DEPTH;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::paths::MAX_PATH_PARTS;
use mayfly_value::{Number, RawDoc, RawValue};

use super::{Branch, Level, Mode, Projection, ProjectionKind};

pub(super) fn parse(spec: RawDoc<'_>, kind: ProjectionKind) -> Result<Projection> {
    if spec.is_empty() && kind == ProjectionKind::Stage {
        let text = "Invalid $project :: caused by :: projection specification must have at least one field";
        return Err(Error::new(ErrorCode(51272), text));
    }
    let mut parser = Parser { mode: None, root: Level::default(), id: None };
    for element in spec.iter() {
        parser.field(element.name(), element.name(), element.value(), 0)?;
    }
    // Only _id was named: including it includes nothing else, excluding it excludes nothing else.
    let mode = parser.mode.unwrap_or(match parser.id {
        Some(Mode::Include) => Mode::Include,
        Some(Mode::Exclude) | None => Mode::Exclude,
    });
    Ok(Projection { mode, root: parser.root, keeps_id: parser.id != Some(Mode::Exclude) })
}

struct Parser {
    /// Decided by the first field that is not `_id`.
    mode: Option<Mode>,
    root: Level,
    id: Option<Mode>,
}

impl Parser {
    /// `path` is the whole dotted path, `name` this level's own part of it.
    fn field(&mut self, path: &str, name: &str, value: RawValue<'_>, depth: usize) -> Result<()> {
        if depth > MAX_FILTER_DEPTH {
            return Err(Error::bad_value("projection is nested too deeply"));
        }
        check_name(name)?;
        if path.split('.').count() > MAX_PATH_PARTS {
            let text = format!("FieldPath is too long: more than {MAX_PATH_PARTS} parts");
            return Err(Error::bad_value(text));
        }
        let mode = match value {
            RawValue::Bool(kept) => mode_of(kept),
            RawValue::Document(inner) => return self.document(path, inner, depth),
            value => match Number::from_value(value) {
                Some(number) => mode_of(number.to_f64() != 0.0),
                None => return computed(path, value),
            },
        };
        if path == "_id" {
            if self.id.replace(mode).is_some() {
                return collision("_id", None);
            }
            return Ok(());
        }
        match (self.mode, mode) {
            (Some(Mode::Exclude), Mode::Include) => {
                let text = format!("Cannot do inclusion on field {path} in exclusion projection");
                return Err(Error::new(ErrorCode(31253), text));
            }
            (Some(Mode::Include), Mode::Exclude) => {
                let text = format!("Cannot do exclusion on field {path} in inclusion projection");
                return Err(Error::new(ErrorCode(31254), text));
            }
            _ => self.mode = Some(mode),
        }
        insert(&mut self.root, path)
    }

    fn document(&mut self, path: &str, inner: RawDoc<'_>, depth: usize) -> Result<()> {
        let Some(first) = inner.iter().next() else {
            let text = "An empty sub-projection is not a valid value. Found empty object at path";
            return Err(Error::new(ErrorCode(51270), text));
        };
        if first.name_bytes().starts_with(b"$") {
            return computed(path, RawValue::Document(inner));
        }
        for element in inner.iter() {
            let deeper = format!("{path}.{}", element.name());
            self.field(&deeper, element.name(), element.value(), depth + 1)?;
        }
        Ok(())
    }
}

fn mode_of(kept: bool) -> Mode {
    if kept { Mode::Include } else { Mode::Exclude }
}

/// Where expressions will come in: `$slice`, `$elemMatch`, `$meta`, literals and aggregation
/// expressions.
fn computed(path: &str, value: RawValue<'_>) -> Result<()> {
    let operator = value.as_document().and_then(|doc| doc.iter().next());
    Err(match operator {
        Some(first) => Error::not_implemented(format!("{} in a projection", first.name())),
        None => Error::not_implemented(format!("a computed field ('{path}') in a projection")),
    })
}

fn check_name(name: &str) -> Result<()> {
    let fault = |code: i32, text: &str| Err(Error::new(ErrorCode(code), text));
    if name.is_empty() {
        return fault(40352, "FieldPath cannot be constructed with empty string");
    }
    if name.ends_with(".$") {
        return Err(Error::not_implemented("the positional projection"));
    }
    if name.ends_with('.') {
        return fault(40353, "FieldPath must not end with a '.'.");
    }
    for part in name.split('.') {
        if part.is_empty() {
            return fault(15998, "FieldPath field names may not be empty strings.");
        }
        if part.starts_with('$') && !matches!(part, "$id" | "$ref" | "$db") {
            let text = "FieldPath field names may not start with '$'. Consider using $getField or $setField.";
            return fault(16410, text);
        }
    }
    Ok(())
}

fn collision(path: &str, remaining: Option<&str>) -> Result<()> {
    Err(match remaining {
        Some(rest) => Error::new(
            ErrorCode(31249),
            format!("Path collision at {path} remaining portion {rest}"),
        ),
        None => Error::new(ErrorCode(31250), format!("Path collision at {path}")),
    })
}

fn insert(root: &mut Level, path: &str) -> Result<()> {
    let mut level = root;
    let mut rest = path;
    loop {
        let (name, deeper) = match rest.split_once('.') {
            Some((name, deeper)) => (name, Some(deeper)),
            None => (rest, None),
        };
        let at = match level.fields.iter().position(|(have, _)| &**have == name) {
            Some(at) => at,
            None => {
                let branch = match deeper {
                    Some(_) => Branch::Level(Level::default()),
                    None => Branch::Leaf,
                };
                level.fields.push((name.into(), branch));
                if deeper.is_none() {
                    return Ok(());
                }
                level.fields.len() - 1
            }
        };
        match (&mut level.fields[at].1, deeper) {
            (Branch::Level(inner), Some(deeper)) => {
                level = inner;
                rest = deeper;
            }
            (Branch::Leaf, Some(deeper)) => return collision(path, Some(deeper)),
            (_, None) => return collision(path, None),
        }
    }
}
