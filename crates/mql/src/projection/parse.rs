//! Parses specifications, with the reference's rules on mixing and conflicts.

use mayfly_base::limits::MAX_FILTER_DEPTH;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::{Expression, Scope};
use mayfly_value::paths::{MAX_PATH_PARTS, check_field_path, empty_name};
use mayfly_value::shell::{Shell, ShellValue};
use mayfly_value::{Number, RawDoc, RawValue};

use super::computed::ElementMatch;
use super::slice::Slice;
use super::{Branch, Level, Mode, Projection, ProjectionKind};

pub(super) fn parse(spec: RawDoc<'_>, kind: ProjectionKind, scope: &Scope) -> Result<Projection> {
    if spec.is_empty() && kind == ProjectionKind::Stage {
        let text = "Invalid $project :: caused by :: projection specification must have at least one field";
        return Err(Error::new(ErrorCode(51272), text));
    }
    let mut parser = Parser {
        kind,
        scope,
        mode: None,
        root: Level::default(),
        id: None,
        positional: false,
        elem_match: false,
        meta: false,
        made: 0,
    };
    for element in spec.iter() {
        parser.field("", element.name(), element.value(), 0)?;
    }
    // No other field determines the mode: only `_id`, slices and array items.
    let mode = parser.mode.unwrap_or(match parser.id {
        Some(Mode::Include) => Mode::Include,
        _ if parser.elem_match => Mode::Include,
        // In a `find` all other fields are kept too.
        _ if parser.meta && kind == ProjectionKind::Stage => Mode::Include,
        Some(Mode::Exclude) | None => Mode::Exclude,
    });
    let keeps_id = parser.id != Some(Mode::Exclude);
    Ok(Projection { mode, root: parser.root, keeps_id, made: parser.made })
}

struct Parser<'s> {
    kind: ProjectionKind,
    scope: &'s Scope,
    /// Determined by the first field other than `_id`.
    mode: Option<Mode>,
    root: Level,
    id: Option<Mode>,
    positional: bool,
    elem_match: bool,
    meta: bool,
    made: usize,
}

fn fault<T>(code: i32, text: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorCode(code), text))
}

impl Parser<'_> {
    /// `parent` is the dotted path to this level, `name` the field's own name, which may be dotted
    /// too.
    fn field(&mut self, parent: &str, name: &str, value: RawValue<'_>, depth: usize) -> Result<()> {
        if depth > MAX_FILTER_DEPTH {
            return Err(Error::bad_value("projection is nested too deeply"));
        }
        if name.ends_with(".$") {
            return self.positional(parent, name, value);
        }
        if name.is_empty() && !parent.is_empty() {
            return Err(empty_name());
        }
        check_name(name)?;
        let path = joined(parent, name)?;
        let mode = match value {
            RawValue::Bool(kept) => mode_of(kept),
            RawValue::Document(inner) => return self.document(&path, inner, depth),
            value => match Number::from_value(value) {
                Some(number) => mode_of(number.compare(Number::Int32(0)).is_ne()),
                None => return self.literal(&path, name, value),
            },
        };
        if path == "_id" {
            if self.id.replace(mode).is_some() || self.root.find(b"_id").is_some() {
                return collision("_id", None);
            }
            return Ok(());
        }
        self.take_mode(mode, name)?;
        self.insert(&path, Branch::Leaf)
    }

    /// Sets the mode; inclusion and exclusion cannot be mixed.
    fn take_mode(&mut self, mode: Mode, name: &str) -> Result<()> {
        match (self.mode, mode) {
            (Some(Mode::Exclude), Mode::Include) => {
                fault(31253, format!("Cannot do inclusion on field {name} in exclusion projection"))
            }
            (Some(Mode::Include), Mode::Exclude) => {
                fault(31254, format!("Cannot do exclusion on field {name} in inclusion projection"))
            }
            _ => {
                self.mode = Some(mode);
                Ok(())
            }
        }
    }

    fn document(&mut self, path: &str, inner: RawDoc<'_>, depth: usize) -> Result<()> {
        let Some(first) = inner.iter().next() else {
            let name = path.rsplit('.').next().unwrap_or(path);
            return fault(51270, format!("Invalid empty sub-projection: {name}"));
        };
        if !first.name_bytes().starts_with(b"$") {
            return inner.iter().try_for_each(|element| {
                self.field(path, element.name(), element.value(), depth + 1)
            });
        }
        // With other fields in the document, an operator counts as the name of a field.
        if inner.iter().nth(1).is_some() {
            check_field_path(first.name())?;
        }
        match (first.name(), self.kind) {
            ("$slice", ProjectionKind::Find) => self.slice(path, inner, first.value()),
            ("$elemMatch", ProjectionKind::Find) => self.elem_match(path, inner),
            ("$elemMatch", _) => {
                let text = "Cannot use $elemMatch in this context";
                Err(Error::new(ErrorCode::InvalidPipelineOperator, text))
            }
            ("$meta", _) => self.meta(path, inner),
            _ => self.expression(path, inner),
        }
    }

    fn slice(&mut self, path: &str, inner: RawDoc<'_>, operand: RawValue<'_>) -> Result<()> {
        let as_find = match Slice::parse(operand) {
            Ok(slice) => match self.insert(path, Branch::Slice(slice)) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            },
            Err(error) => error,
        };
        self.expression(path, inner).map_err(|error| {
            error.in_context(format!(
                "Invalid $slice syntax. The given syntax {} did not match the find() syntax because :: {}: {} :: \
                 The given syntax did not match the expression $slice syntax.",
                Shell(inner),
                as_find.code().name(),
                as_find.message(),
            ))
        })
    }

    fn elem_match(&mut self, path: &str, inner: RawDoc<'_>) -> Result<()> {
        let condition = ElementMatch::parse(inner, self.scope);
        // The type of the operand is checked first, the condition itself last.
        if let Err(error) = &condition
            && error.code() == ErrorCode(31274)
        {
            return Err(error.clone());
        }
        if self.positional {
            return fault(31255, "Cannot specify positional operator and $elemMatch.");
        }
        if path.contains('.') {
            return fault(31275, "Cannot use $elemMatch projection on a nested field.");
        }
        self.elem_match = true;
        self.insert(path, Branch::ElemMatch(condition?))
    }

    fn expression(&mut self, path: &str, operator: RawDoc<'_>) -> Result<()> {
        let name = operator.iter().next().map_or("", |first| first.name());
        if mayfly_expr::op::find(name).is_none() {
            return fault(31325, format!("Unknown expression {name}"));
        }
        if self.mode == Some(Mode::Exclude) {
            let text = "Cannot use expression other than $meta in exclusion projection";
            return fault(31252, text);
        }
        let parsed = Expression::parse_in(RawValue::Document(operator), self.scope)?;
        self.mode = Some(Mode::Include);
        self.insert(path, Branch::Expression(parsed))
    }

    /// Metadata is allowed in inclusions and exclusions.
    fn meta(&mut self, path: &str, operator: RawDoc<'_>) -> Result<()> {
        let parsed = Expression::parse_in(RawValue::Document(operator), self.scope)?;
        self.meta = true;
        self.insert(path, Branch::Expression(parsed))
    }

    fn literal(&mut self, path: &str, name: &str, value: RawValue<'_>) -> Result<()> {
        let parsed = Expression::parse_in(value, self.scope)?;
        if self.mode == Some(Mode::Exclude) {
            let shown = ShellValue(value);
            let text =
                format!("Cannot use an expression {name}: {shown} in an exclusion projection");
            return fault(31310, text);
        }
        self.mode = Some(Mode::Include);
        self.insert(path, Branch::Expression(parsed))
    }

    fn positional(&mut self, parent: &str, name: &str, value: RawValue<'_>) -> Result<()> {
        if self.kind == ProjectionKind::Stage {
            return fault(31324, "Cannot use positional projection in aggregation projection");
        }
        let before = name.strip_suffix(".$").unwrap_or(name);
        if before.is_empty() {
            return fault(5_392_900, format!("Projection on field {name} is invalid"));
        }
        check_name(before)?;
        match value {
            RawValue::Document(_) => {
                let text = "positional projection cannot be used with an expression or sub object";
                return fault(31271, text);
            }
            RawValue::Bool(true) => {}
            RawValue::Bool(false) => {
                return fault(31395, "positional projection cannot be used with exclusion");
            }
            value => match Number::from_value(value) {
                None => return fault(31308, "positional projection cannot be used with a literal"),
                Some(number) if number.compare(Number::Int32(0)).is_eq() => {
                    return fault(31395, "positional projection cannot be used with exclusion");
                }
                Some(_) => {}
            },
        }
        if self.positional {
            let text = "Cannot specify more than one positional projection per query.";
            return fault(31276, text);
        }
        if self.elem_match {
            return fault(31256, "Cannot specify positional operator and $elemMatch.");
        }
        self.positional = true;
        self.take_mode(Mode::Include, name)?;
        self.insert(&joined(parent, before)?, Branch::Positional)
    }

    fn insert(&mut self, path: &str, branch: Branch) -> Result<()> {
        if self.id.is_some() && (path == "_id" || path.starts_with("_id.")) {
            return match path.split_once('.') {
                Some((_, rest)) => collision(path, Some(rest)),
                None => collision(path, None),
            };
        }
        self.made += usize::from(matches!(branch, Branch::Expression(_) | Branch::ElemMatch(_)));
        insert(&mut self.root, path, branch)
    }
}

fn mode_of(kept: bool) -> Mode {
    if kept { Mode::Include } else { Mode::Exclude }
}

fn joined(parent: &str, name: &str) -> Result<String> {
    let path = if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") };
    if path.split('.').count() > MAX_PATH_PARTS {
        let text = format!("FieldPath is too long: more than {MAX_PATH_PARTS} parts");
        return Err(Error::bad_value(text));
    }
    Ok(path)
}

fn check_name(name: &str) -> Result<()> {
    if name.contains(".$.") {
        return fault(
            31394,
            "As of 4.4, it's illegal to specify positional operator in the middle of a path.\
             Positional projection may only be used at the end, for example: a.b.$. If the query previously used a form \
             like a.b.$.d, remove the parts following the '$' and the results will be equivalent.",
        );
    }
    check_field_path(name)
}

fn collision(path: &str, remaining: Option<&str>) -> Result<()> {
    match remaining {
        Some(rest) => fault(31249, format!("Path collision at {path} remaining portion {rest}")),
        None => fault(31250, format!("Path collision at {path}")),
    }
}

fn insert(root: &mut Level, path: &str, branch: Branch) -> Result<()> {
    let makes = matches!(branch, Branch::Expression(_) | Branch::ElemMatch(_));
    let positional = matches!(branch, Branch::Positional);
    let mut level = root;
    let mut rest = path;
    loop {
        level.makes |= makes;
        level.positional |= positional;
        let (name, deeper) = match rest.split_once('.') {
            Some((name, deeper)) => (name, Some(deeper)),
            None => (rest, None),
        };
        let at = match (level.fields.position(name), deeper) {
            (Some(at), _) => at,
            (None, Some(_)) => level.fields.push(name, Branch::Level(Level::default())),
            (None, None) => {
                level.fields.push(name, branch);
                return Ok(());
            }
        };
        match (level.fields.value_mut(at), deeper) {
            (Branch::Level(inner), Some(deeper)) => {
                level = inner;
                rest = deeper;
            }
            (_, Some(deeper)) => return collision(path, Some(deeper)),
            (_, None) => return collision(path, None),
        }
    }
}
