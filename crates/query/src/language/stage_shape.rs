//! The shapes of stages: names of fields, collections and operators stay, values become their types.

use mayfly_value::{DocBuilder, RawDoc, RawValue};

use super::query_shape::{Place, append_expression, append_projection, filter, type_of};

/// Appends the stages of a pipeline.
pub(super) fn append_pipeline(name: &str, stages: RawDoc<'_>, out: &mut DocBuilder) {
    out.start_array(name);
    for stage in stages.iter().filter_map(|stage| stage.value().as_document()) {
        out.push_document();
        stage.iter().for_each(|field| append_stage(field.name(), field.value(), out));
        out.end();
    }
    out.end();
}

fn append_stage(name: &str, value: RawValue<'_>, out: &mut DocBuilder) {
    match (name, value) {
        ("$match", RawValue::Document(conditions)) => {
            out.append(name, &filter(conditions));
        }
        ("$limit" | "$skip" | "$documents", value) => {
            out.append(name, type_of(value).as_str());
        }
        ("$sort" | "$unset" | "$unwind" | "$count" | "$out", value) => {
            out.append(name, value);
        }
        ("$project", RawValue::Document(fields)) => append_projection(name, fields, out),
        (
            "$group" | "$addFields" | "$set" | "$sortByCount" | "$redact" | "$replaceRoot"
            | "$replaceWith",
            value,
        ) => append_expression(Place::Field(name), value, out),
        ("$facet", RawValue::Document(facets)) => {
            out.start_document(name);
            for facet in facets {
                if let RawValue::Array(stages) = facet.value() {
                    append_pipeline(facet.name(), stages, out);
                }
            }
            out.end();
        }
        (_, value) => append_option(name, value, out),
    }
}

/// Arguments of other stages: texts are names, some arguments have a meaning in all of them.
fn append_option(name: &str, value: RawValue<'_>, out: &mut DocBuilder) {
    match (name, value) {
        ("pipeline" | "whenMatched", RawValue::Array(stages)) => append_pipeline(name, stages, out),
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
            options.iter().for_each(|option| append_option(option.name(), option.value(), out));
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
