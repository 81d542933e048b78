//! The shapes of stages: names of fields, collections and operators are part of the shape, values
//! are replaced by their types.

use mayfly_value::{DocBuilder, RawDoc, RawElement, RawValue};

use super::query_shape::{ShapePosition, append_expression, append_projection, filter, type_of};

/// How the operand of a stage becomes a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageShape {
    /// The operand is a filter.
    Filter,
    /// The operand is replaced by its type.
    Type,
    /// The operand is kept unchanged, because it contains no values.
    Verbatim,
    /// The operand is the order of a sort. It is kept unchanged.
    Order,
    /// The operand is a projection.
    Projection,
    /// The operand is an expression, or a document of expressions.
    Expression,
    /// The operand is a document of pipelines.
    Pipelines,
    /// The operand is a document of options.
    Options,
}

/// Returns the shape of the stage with a name. The table of stages is in a higher layer.
pub(crate) type ShapeOf = fn(&str) -> StageShape;

/// Appends the stages of a pipeline.
pub(super) fn append_pipeline(
    name: &str,
    stages: RawDoc<'_>,
    shape_of: ShapeOf,
    out: &mut DocBuilder,
) {
    out.start_array(name);
    for stage in stages.iter().filter_map(|stage| stage.value().as_document()) {
        out.push_document();
        stage.iter().for_each(|field| append_stage(field, shape_of, out));
        out.end();
    }
    out.end();
}

fn append_stage(field: RawElement<'_>, shape_of: ShapeOf, out: &mut DocBuilder) {
    let name = field.name();
    match (shape_of(name), field.value()) {
        (StageShape::Filter, RawValue::Document(conditions)) => {
            out.append(name, &filter(conditions));
        }
        (StageShape::Type, value) => {
            out.append(name, type_of(value).as_str());
        }
        (StageShape::Verbatim | StageShape::Order, value) => {
            out.append(name, value);
        }
        (StageShape::Projection, RawValue::Document(fields)) => {
            append_projection(name, fields, out);
        }
        (StageShape::Expression, value) => {
            append_expression(ShapePosition::Field(name), value, out)
        }
        (StageShape::Pipelines, RawValue::Document(facets)) => {
            out.start_document(name);
            for facet in facets {
                if let RawValue::Array(stages) = facet.value() {
                    append_pipeline(facet.name(), stages, shape_of, out);
                }
            }
            out.end();
        }
        (_, value) => append_option(name, value, shape_of, out),
    }
}

/// Appends an option of a stage: strings are names, and some options have the same meaning in all
/// stages.
fn append_option(name: &str, value: RawValue<'_>, shape_of: ShapeOf, out: &mut DocBuilder) {
    match (name, value) {
        ("pipeline" | "whenMatched", RawValue::Array(stages)) => {
            append_pipeline(name, stages, shape_of, out);
        }
        ("query" | "restrictSearchWithMatch", RawValue::Document(conditions)) => {
            out.append(name, &filter(conditions));
        }
        ("sortBy" | "fields" | "partitionByFields" | "on", value) => {
            out.append(name, value);
        }
        ("let" | "startWith" | "groupBy" | "partitionBy", value) => {
            append_expression(ShapePosition::Field(name), value, out);
        }
        // Strings in the bounds of a window are keywords; in other computed options they are
        // values.
        ("window", RawValue::Document(window)) => {
            out.start_document(name);
            for bounds in window {
                match bounds.value() {
                    RawValue::Array(bounds_of) => {
                        out.start_array(bounds.name());
                        for bound in bounds_of {
                            match bound.value() {
                                RawValue::String(word) => {
                                    out.push(word);
                                }
                                value => {
                                    out.push(type_of(value).as_str());
                                }
                            }
                        }
                        out.end();
                    }
                    value => {
                        out.append(bounds.name(), value);
                    }
                }
            }
            out.end();
        }
        ("near" | "default" | "boundaries", value) => {
            out.append(name, type_of(value).as_str());
        }
        (_, RawValue::Document(options)) => {
            out.start_document(name);
            for option in options {
                append_option(option.name(), option.value(), shape_of, out);
            }
            out.end();
        }
        (_, value @ (RawValue::String(_) | RawValue::Bool(_))) => {
            out.append(name, value);
        }
        (operator, value @ RawValue::Array(_)) if operator.starts_with('$') => {
            append_expression(ShapePosition::Field(name), value, out);
        }
        (_, value) => {
            out.append(name, type_of(value).as_str());
        }
    }
}
