//! The shapes of stages: names of fields, collections and operators stay, values become their types.

use mayfly_value::{DocBuilder, RawDoc, RawElement, RawValue};

use super::query_shape::{Place, append_expression, append_projection, filter, type_of};

/// What stays of the operand of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageShape {
    /// The operand is a filter.
    Filter,
    /// The type of the operand.
    Type,
    /// The operand as it is: it has no values.
    Verbatim,
    /// The operand is a projection.
    Projection,
    /// The operand is an expression, or a document of expressions.
    Expression,
    /// The operand is a document of pipelines.
    Pipelines,
    /// The operand is a document of options.
    Options,
}

/// Tells the shape of the stage with a name. The table of stages stands above this floor.
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
        (StageShape::Verbatim, value) => {
            out.append(name, value);
        }
        (StageShape::Projection, RawValue::Document(fields)) => {
            append_projection(name, fields, out);
        }
        (StageShape::Expression, value) => append_expression(Place::Field(name), value, out),
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

/// Arguments of other stages: texts are names, some arguments have a meaning in all of them.
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
            append_expression(Place::Field(name), value, out);
        }
        // Of windows a text is a word, of everything else that is calculated a value.
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
            append_expression(Place::Field(name), value, out);
        }
        (_, value) => {
            out.append(name, type_of(value).as_str());
        }
    }
}
