//! `$bucket`: rewritten to a `$group` by the lower boundary of each value's bucket, and a `$sort`
//! by that boundary.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::{Expression, Frame};
use mayfly_value::shell::ShellValue;
use mayfly_value::{
    DocBuf, DocBuilder, RawDoc, RawValue, ValueBuf, canonical_type, compare_values_in,
};

use super::{PipelineContext, written};

fn fault(code: i32, text: impl Into<String>) -> Error {
    Error::new(ErrorCode(code), text)
}

struct Options<'a> {
    group_by: RawValue<'a>,
    boundaries: Vec<ValueBuf>,
    default: Option<ValueBuf>,
    output: Option<RawDoc<'a>>,
}

pub(crate) fn parse(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Vec<DocBuf>> {
    let options = Options::parse(value, context)?;
    let mut order = DocBuilder::new();
    order.append("_id", 1);
    Ok(vec![written("$group", &options.group()), written("$sort", &order.finish())])
}

/// Whether the value is a path or an expression.
pub(super) fn is_expression(value: RawValue<'_>) -> bool {
    match value {
        RawValue::String(path) => path.starts_with('$'),
        RawValue::Document(document) => {
            document.iter().next().is_some_and(|first| first.name().starts_with('$'))
        }
        _ => false,
    }
}

fn constant(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Option<ValueBuf>> {
    // The times are no constants, although the command has their values already.
    let scope = context.scope.clone().without_time();
    let Ok(expression) = Expression::parse_in(value, &scope) else {
        Expression::parse_in(value, context.scope)?;
        return Ok(None);
    };
    if !expression.dependencies().is_empty() {
        return Ok(None);
    }
    Ok(expression.evaluate(Frame::new(RawDoc::EMPTY))?.into_owned())
}

impl<'a> Options<'a> {
    fn parse(value: RawValue<'a>, context: &PipelineContext<'_>) -> Result<Options<'a>> {
        let RawValue::Document(spec) = value else {
            let kind = value.type_name();
            let text =
                format!("Argument to $bucket stage must be an object, but found type: {kind}.");
            return Err(fault(40201, text));
        };
        let (mut group_by, mut boundaries, mut default, mut output) = (None, None, None, None);
        for option in spec {
            match (option.name(), option.value()) {
                ("groupBy", value) if is_expression(value) => group_by = Some(value),
                ("groupBy", other) => {
                    let shown = ShellValue(other);
                    let text = format!(
                        "The $bucket 'groupBy' field must be defined as a $-prefixed path or an expression, but found: \
                         {shown}."
                    );
                    return Err(fault(40202, text));
                }
                ("boundaries", value) => boundaries = Some(self::boundaries(value, context)?),
                ("default", value) => match constant(value, context)? {
                    Some(value) => default = Some(value),
                    None => {
                        let text = "The $bucket 'default' field must be a constant expression, but found another";
                        return Err(fault(40195, text));
                    }
                },
                ("output", RawValue::Document(fields)) => output = Some(fields),
                ("output", other) => {
                    let kind = other.type_name();
                    let text = format!(
                        "The $bucket 'output' field must be an object, but found type: {kind}."
                    );
                    return Err(fault(40196, text));
                }
                (other, _) => {
                    return Err(fault(40197, format!("Unrecognized option to $bucket: {other}.")));
                }
            }
        }
        let (Some(group_by), Some(boundaries)) = (group_by, boundaries) else {
            let text = "$bucket requires 'groupBy' and 'boundaries' to be specified.";
            return Err(fault(40198, text));
        };
        let options = Options { group_by, boundaries, default, output };
        options.check_default(context)?;
        Ok(options)
    }

    /// Checks that the default is not a value of a bucket.
    fn check_default(&self, context: &PipelineContext<'_>) -> Result<()> {
        let (Some(default), Some(low), Some(high)) =
            (&self.default, self.boundaries.first(), self.boundaries.last())
        else {
            return Ok(());
        };
        let collation = context.scope.collation().map(|it| &**it);
        let compare =
            |other: &ValueBuf| compare_values_in(default.as_raw(), other.as_raw(), collation);
        let same_type = canonical_type(default.type_byte()) == canonical_type(low.type_byte());
        if same_type && compare(low).is_ge() && compare(high).is_lt() {
            let text = "The $bucket 'default' field must be less than the lowest boundary or greater than or equal to the \
                        highest boundary.";
            return Err(fault(40199, text));
        }
        Ok(())
    }

    /// The document `{ _id: { $switch: ... }, count: ... }`.
    fn group(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.start_document("_id").start_document("$switch").start_array("branches");
        for pair in self.boundaries.windows(2) {
            out.push_document().start_document("case").start_array("$and");
            for (operator, boundary) in [("$gte", &pair[0]), ("$lt", &pair[1])] {
                out.push_document().start_array(operator).push(self.group_by);
                out.push_document().append("$literal", boundary).end().end().end();
            }
            out.end().end();
            out.start_document("then").append("$literal", &pair[0]).end().end();
        }
        out.end();
        if let Some(default) = &self.default {
            out.start_document("default").append("$literal", default).end();
        }
        out.end().end();
        match self.output {
            Some(output) => out.append_all(output),
            None => out.start_document("count").append("$sum", 1).end(),
        };
        out.finish()
    }
}

fn boundaries(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Vec<ValueBuf>> {
    let RawValue::Array(items) = value else {
        let kind = value.type_name();
        let text =
            format!("The $bucket 'boundaries' field must be an array, but found type: {kind}.");
        return Err(fault(40200, text));
    };
    let mut boundaries: Vec<ValueBuf> = Vec::new();
    for item in items {
        let Some(boundary) = constant(item.value(), context)? else {
            let text = "The $bucket 'boundaries' field must be an array of constant values, but found a value that is not \
                        constant";
            return Err(fault(40191, text));
        };
        boundaries.push(boundary);
    }
    if boundaries.len() < 2 {
        let text = format!(
            "The $bucket 'boundaries' field must have at least 2 values, but found {} value(s).",
            boundaries.len()
        );
        return Err(fault(40192, text));
    }
    let collation = context.scope.collation().map(|it| &**it);
    for (at, pair) in boundaries.windows(2).enumerate() {
        let (low, high) = (pair[0].as_raw(), pair[1].as_raw());
        if canonical_type(low.type_byte()) != canonical_type(high.type_byte()) {
            let text = format!(
                "All values in the the 'boundaries' option to $bucket must have the same type. Found conflicting types {} \
                 and {}.",
                low.type_name(),
                high.type_name()
            );
            return Err(fault(40193, text));
        }
        if compare_values_in(low, high, collation).is_ge() {
            let text = format!(
                "The 'boundaries' option to $bucket must be sorted, but elements {at} and {} are not in ascending order \
                 ({} is not less than {}).",
                at + 1,
                ShellValue(low),
                ShellValue(high)
            );
            return Err(fault(40194, text));
        }
    }
    Ok(boundaries)
}
