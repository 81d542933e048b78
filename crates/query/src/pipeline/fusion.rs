//! `$rankFusion`, `$scoreFusion` and `$score`: several pipelines over the same collection, whose
//! results are combined by their ranks or scores. They are rewritten to other stages.
//!
//! ```text
//! pipelines: { a: [A ...], b: [B ...] }
//!
//! A ...                           the documents of `a`, best first
//! $_internalFused                 -> { _id, d: document, n: "a", r: rank, x: score }
//! $unionWith: [B ..., as above]   the same for each other pipeline
//! $group by _id                   -> { _id, d, s: combined score, p: [{ n, r, x, v }, ...] }
//! $sort: { s: -1, _id: 1 }
//! $_internalScored                -> d, with the metadata `score` and `scoreDetails`
//! ```

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::arguments::error::wrong_type;
use mayfly_value::arguments::{Argument, Fields};
use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawValue};

use super::row::StageRow;
use crate::language::metadata::GEO_NEAR_DISTANCE;
use crate::stage::fused::{FUSED, SCORED};
use crate::stage::{PipelineContext, written};

/// The rank constant of reciprocal rank fusion.
const RANK_CONSTANT: f64 = 60.0;

pub(super) const RANK_FUSION: &[Argument] = &[
    Argument::fields("input", &[Argument::document("pipelines").required()]).required(),
    Argument::fields("combination", &[Argument::document("weights")]),
    Argument::bool("scoreDetails"),
];

const NORMALIZATIONS: &[&str] = &["none", "sigmoid", "minMaxScaler"];

pub(super) const SCORE_FUSION: &[Argument] = &[
    Argument::fields(
        "input",
        &[
            Argument::document("pipelines").required(),
            Argument::choice("normalization", NORMALIZATIONS).required(),
        ],
    )
    .required(),
    Argument::fields(
        "combination",
        &[
            Argument::document("weights"),
            Argument::choice("method", &["avg", "expression"]),
            Argument::any("expression"),
        ],
    ),
    Argument::bool("scoreDetails"),
];

pub(super) const SCORE: &[Argument] = &[
    Argument::any("score").required(),
    Argument::choice("normalization", NORMALIZATIONS),
    Argument::number("weight"),
    Argument::bool("scoreDetails"),
];

fn fault(code: i32, text: impl Into<String>) -> Error {
    Error::new(ErrorCode(code), text)
}

/// One of the pipelines.
struct Input<'a> {
    name: &'a str,
    stages: RawDoc<'a>,
    weight: f64,
}

/// The rules of a kind of fusion for its pipelines.
struct Rules {
    name: &'static str,
    /// The code for a pipeline without stages.
    empty: i32,
    /// The code for a second pipeline with the same name.
    repeated: i32,
    /// The code for a pipeline that begins with a fusion.
    nested: i32,
    /// Whether the results of a pipeline can be fused.
    fits: fn(RawDoc<'_>) -> bool,
    /// The error for a pipeline that does not fit.
    unfit: (i32, &'static str),
    /// The code for a stage that does more than selecting.
    not_selecting: i32,
}

/// Parses the pipelines and their weights.
fn inputs<'a>(
    pipelines: RawDoc<'a>,
    weights: Option<RawDoc<'a>>,
    rules: &Rules,
) -> Result<Vec<Input<'a>>> {
    let mut found = Vec::new();
    for pipeline in pipelines {
        let name = pipeline.name();
        let path = || format!("{}.input.pipelines.{name}", rules.name);
        let Some(stages) = pipeline.value().as_array() else {
            return Err(wrong_type(path(), pipeline.value(), "array"));
        };
        let mut specs = Vec::new();
        for stage in stages {
            let Some(spec) = stage.value().as_document() else {
                return Err(wrong_type(path(), stage.value(), "object"));
            };
            specs.push(spec);
        }
        if specs.is_empty() {
            return Err(fault(
                rules.empty,
                format!("{} needs stages in each pipeline", rules.name),
            ));
        }
        specs.iter().enumerate().try_for_each(|(at, spec)| check_nested(at, *spec, rules))?;
        if !(rules.fits)(stages) {
            return Err(fault(rules.unfit.0, rules.unfit.1));
        }
        specs.iter().try_for_each(|spec| check_stage(*spec, rules))?;
        specs.iter().enumerate().try_for_each(|(at, spec)| check_place(at, *spec))?;
        check_name(name)?;
        if found.iter().any(|input: &Input<'_>| input.name == name) {
            let text = format!("{} has two pipelines with the name '{name}'", rules.name);
            return Err(fault(rules.repeated, text));
        }
        found.push(Input { name, stages, weight: 1.0 });
    }
    if found.is_empty() {
        return Err(Error::bad_value(format!("{} requires at least one pipeline", rules.name)));
    }
    weigh(&mut found, weights.unwrap_or(RawDoc::EMPTY), rules)?;
    Ok(found)
}

/// Takes the weights of the pipelines over. Those without a weight keep theirs.
///
/// # Errors
/// 9460300 for a negative weight; then, for weights of unknown pipelines, 9460301 if there are more
/// weights than pipelines, otherwise 9967500.
fn weigh(inputs: &mut [Input<'_>], weights: RawDoc<'_>, rules: &Rules) -> Result<()> {
    let mut unknown = Vec::new();
    for weight in weights {
        let Some(number) = Number::from_value(weight.value()) else {
            let path = format!("{}.combination.weights.{}", rules.name, weight.name());
            return Err(wrong_type(path, weight.value(), "number"));
        };
        let Some(input) = inputs.iter_mut().find(|input| input.name == weight.name()) else {
            unknown.push(weight.name());
            continue;
        };
        input.weight = number.to_f64();
        if input.weight < 0.0 || input.weight.is_nan() {
            return Err(fault(9460300, format!("the weight of '{}' is negative", input.name)));
        }
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let code = if weights.iter().count() > inputs.len() { 9460301 } else { 9967500 };
    let text =
        format!("there are no pipelines with the names of the weights: {}", unknown.join(", "));
    Err(fault(code, text))
}

/// Checks the name of a pipeline.
fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(fault(15998, "the name of a pipeline must not be empty"));
    }
    if name.starts_with('$') {
        return Err(fault(
            16410,
            format!("the name of a pipeline must not start with '$': {name}"),
        ));
    }
    if name.contains('.') {
        return Err(fault(16412, format!("the name of a pipeline must not contain '.': {name}")));
    }
    Ok(())
}

/// Checks that a stage of one of the pipelines is no fusion.
fn check_nested(at: usize, spec: RawDoc<'_>, rules: &Rules) -> Result<()> {
    let Some(stage) = spec.iter().next() else { return Ok(()) };
    if StageRow::find(stage.name()).is_some_and(|row| row.fuses) {
        let code = if at == 0 { rules.nested } else { 10170100 };
        return Err(fault(code, format!("{} may not contain {}", rules.name, stage.name())));
    }
    Ok(())
}

/// Checks that a stage which must be the first one of its pipeline is.
///
/// # Errors
/// 40602, 40603.
fn check_place(at: usize, spec: RawDoc<'_>) -> Result<()> {
    let row = spec.iter().next().and_then(|field| StageRow::find(field.name()));
    row.map_or(Ok(()), |row| row.check_place(at, usize::MAX))
}

/// Checks that a stage of one of the pipelines only selects and orders documents.
fn check_stage(spec: RawDoc<'_>, rules: &Rules) -> Result<()> {
    let Some(stage) = spec.iter().next() else { return Ok(()) };
    let row = StageRow::find(stage.name());
    if row.is_none_or(|row| !(row.selects)(stage.value())) {
        let text = format!(
            "{} allows only stages that select documents, not {}",
            rules.name,
            stage.name()
        );
        return Err(fault(rules.not_selecting, text));
    }
    Ok(())
}

/// The operand of the last stage with this name.
fn last<'a>(stages: RawDoc<'a>, name: &str) -> Option<RawValue<'a>> {
    let operands = stages.iter().filter_map(|stage| stage.value().as_document()?.get(name));
    operands.last()
}

/// The stages of all pipelines, one after the other. `finish` adds stages to each of them.
fn all_documents(
    inputs: &[Input<'_>],
    context: &PipelineContext<'_>,
    mut finish: impl FnMut(&Input<'_>) -> Result<Vec<DocBuf>>,
) -> Result<Vec<DocBuf>> {
    let mut out = Vec::new();
    for (at, input) in inputs.iter().enumerate() {
        let own = finish(input)?;
        let stages = input.stages.iter().filter_map(|stage| stage.value().as_document());
        if at == 0 {
            out.extend(stages.map(RawDoc::to_owned));
            out.extend(own);
            continue;
        }
        let Some(collection) = context.collection else {
            return Err(Error::not_implemented("the fusion of pipelines without a collection"));
        };
        let mut union = DocBuilder::new();
        union.start_document("$unionWith").append("coll", collection).start_array("pipeline");
        for stage in stages {
            union.push(stage);
        }
        for stage in &own {
            union.push(stage);
        }
        union.end().end();
        out.push(union.finish());
    }
    Ok(out)
}

/// The order of the result, and the stage that returns the documents.
fn results(
    kind: &str,
    inputs: &[Input<'_>],
    has_details: bool,
    more: impl FnOnce(&mut DocBuilder),
) -> [DocBuf; 2] {
    let mut order = DocBuilder::new();
    order.append("s", -1).append("_id", 1);
    let mut scored = DocBuilder::new();
    scored.append("kind", kind).append("details", has_details).start_array("inputs");
    for input in inputs {
        scored.push_document().append("name", input.name).append("weight", input.weight).end();
    }
    scored.end();
    more(&mut scored);
    [written("$sort", &order.finish()), written(SCORED, &scored.finish())]
}

/// Parses `$rankFusion`.
pub(crate) fn rank(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Vec<DocBuf>> {
    const RULES: Rules = Rules {
        name: "$rankFusion",
        empty: 9834300,
        repeated: 9921000,
        nested: 10473002,
        fits: |stages| last(stages, "$sort").is_some() || ranked_by(stages).is_some(),
        unfit: (
            9191100,
            "$rankFusion requires pipelines that begin with a ranked stage or contain a $sort",
        ),
        not_selecting: 9191103,
    };
    let RawValue::Document(spec) = value else {
        return Err(wrong_type(RULES.name, value, "object"));
    };
    let fields = Fields::read(spec, RULES.name, RANK_FUSION)?;
    let part = |name: &str, inner: &str| spec.get(name)?.as_document()?.get(inner);
    let weights = part("combination", "weights").and_then(RawValue::as_document);
    let pipelines = part("input", "pipelines").and_then(RawValue::as_document);
    let inputs = inputs(pipelines.unwrap_or(RawDoc::EMPTY), weights, &RULES)?;
    let has_details = fields.bool("scoreDetails")?.unwrap_or(false);
    let mut stages = all_documents(&inputs, context, |input| {
        let mut fused = DocBuilder::new();
        fused.append("name", input.name);
        if let Some(sort) = last(input.stages, "$sort") {
            fused.append("rank", sort);
        } else {
            let metadata = ranked_by(input.stages).unwrap_or(GEO_NEAR_DISTANCE);
            fused.start_document("rank").start_document("d");
            fused.append("$meta", metadata).end().end();
        }
        let mut score = DocBuilder::new();
        score.start_document("s").start_array("$divide").push(input.weight);
        score.push_document().start_array("$add").push(RANK_CONSTANT).push("$r").end().end();
        score.end().end();
        Ok(vec![written(FUSED, &fused.finish()), written("$set", &score.finish())])
    })?;
    let mut group = DocBuilder::new();
    group.append("_id", "$_id").start_document("d").append("$first", "$d").end();
    group.start_document("s").append("$sum", "$s").end();
    if has_details {
        group.start_document("p").start_document("$push").append("n", "$n").append("r", "$r");
        group.end().end();
    }
    stages.push(written("$group", &group.finish()));
    stages.extend(results("rank", &inputs, has_details, |_| {}));
    Ok(stages)
}

/// The stages that normalize the field `x` to `y`.
fn normalized(normalization: &str) -> DocBuf {
    let mut out = DocBuilder::new();
    match normalization {
        "minMaxScaler" => {
            out.start_document("$setWindowFields").start_document("output").start_document("y");
            out.start_document("$minMaxScaler").append("input", "$x").end().end().end().end();
        }
        "sigmoid" => {
            out.start_document("$set").start_document("y").append("$sigmoid", "$x").end().end();
        }
        _ => {
            out.start_document("$set").append("y", "$x").end();
        }
    }
    out.finish()
}

/// The stage that multiplies the field `y` by a weight to the field `to`.
fn weighted(to: &str, weight: f64) -> DocBuf {
    let mut out = DocBuilder::new();
    out.start_document("$set").start_document(to).start_array("$multiply");
    out.push("$y").push(weight).end().end().end();
    out.finish()
}

/// Parses `$scoreFusion`.
pub(crate) fn score_fusion(
    value: RawValue<'_>,
    context: &PipelineContext<'_>,
) -> Result<Vec<DocBuf>> {
    const RULES: Rules = Rules {
        name: "$scoreFusion",
        empty: 9402503,
        repeated: 9402203,
        nested: 10473003,
        fits: |stages| last(stages, "$score").is_some() || scored_by(stages).is_some(),
        unfit: (9402500, "$scoreFusion requires pipelines whose documents have a score"),
        not_selecting: 9402502,
    };
    let RawValue::Document(spec) = value else {
        let text = format!(
            "The {} stage specification must be an object, found {}",
            RULES.name,
            value.type_name()
        );
        return Err(Error::failed_to_parse(text));
    };
    let fields = Fields::read(spec, RULES.name, SCORE_FUSION)?;
    let part = |name: &str, inner: &str| spec.get(name)?.as_document()?.get(inner);
    let weights = part("combination", "weights").and_then(RawValue::as_document);
    let pipelines = part("input", "pipelines").and_then(RawValue::as_document);
    let normalization = part("input", "normalization").and_then(RawValue::as_str).unwrap_or("none");
    let method = part("combination", "method").and_then(RawValue::as_str).unwrap_or("avg");
    let expression = part("combination", "expression");
    if (method == "expression") != expression.is_some() {
        let text = "combination.expression is needed with, and only with, the method 'expression'";
        return Err(fault(10017300, text));
    }
    if expression.is_some() && weights.is_some() {
        let text = "combination.expression and combination.weights exclude each other";
        return Err(fault(10017301, text));
    }
    let inputs = inputs(pipelines.unwrap_or(RawDoc::EMPTY), weights, &RULES)?;
    let has_details = fields.bool("scoreDetails")?.unwrap_or(false);
    let mut stages = all_documents(&inputs, context, |input| {
        let score = match last(input.stages, "$score") {
            Some(_) => "score",
            None => scored_by(input.stages).unwrap_or("textScore"),
        };
        let mut fused = DocBuilder::new();
        fused.append("name", input.name).append("score", score);
        let fused = written(FUSED, &fused.finish());
        Ok(vec![fused, normalized(normalization), weighted("v", input.weight)])
    })?;
    let mut group = DocBuilder::new();
    group.append("_id", "$_id").start_document("d").append("$first", "$d").end();
    group.start_document("p").start_document("$push");
    group.append("n", "$n").append("x", "$x").append("v", "$v").end().end();
    stages.push(written("$group", &group.finish()));
    stages.push(combined(&inputs, expression));
    stages.extend(results("score", &inputs, has_details, |scored| {
        scored.append("normalization", normalization);
        scored.append("method", if method == "avg" { "average" } else { "custom expression" });
        if let Some(expression) = expression {
            scored.append("expression", expression);
        }
    }));
    Ok(stages)
}

/// The metadata by which a pipeline's first stage orders its documents.
fn ranked_by(stages: RawDoc<'_>) -> Option<&'static str> {
    StageRow::first_of(stages)?.ranked_by
}

/// The score that a pipeline's first stage gives its documents.
fn scored_by(stages: RawDoc<'_>) -> Option<&'static str> {
    let first = stages.iter().next()?.value().as_document()?;
    let filter = first.get("$match").and_then(RawValue::as_document);
    match filter.is_some_and(|filter| filter.get("$text").is_some()) {
        true => Some("textScore"),
        false => ranked_by(stages).filter(|metadata| *metadata != GEO_NEAR_DISTANCE),
    }
}

/// The stage that combines the scores of the pipelines: their average, or an expression whose
/// variables have the names of the pipelines. The score of a missing document is 0.
fn combined(inputs: &[Input<'_>], expression: Option<RawValue<'_>>) -> DocBuf {
    let score = |out: &mut DocBuilder, name: &str| {
        out.start_document("$reduce").append("input", "$p").append("initialValue", 0);
        out.start_document("in").start_array("$cond").push_document().start_array("$eq");
        out.push("$$this.n").push_document().append("$literal", name).end().end().end();
        out.push("$$this.v").push("$$value").end().end().end();
    };
    let mut out = DocBuilder::new();
    out.start_document("$set").start_document("s");
    match expression {
        None => {
            out.start_array("$avg");
            for input in inputs {
                score(out.push_document(), input.name);
                out.end();
            }
            out.end();
        }
        Some(expression) => {
            out.start_document("$let").start_document("vars");
            for input in inputs {
                score(out.start_document(input.name), input.name);
                out.end();
            }
            out.end().append("in", expression).end();
        }
    }
    out.end().end();
    out.finish()
}

/// Parses `$score`.
pub(crate) fn score(value: RawValue<'_>, _: &PipelineContext<'_>) -> Result<Vec<DocBuf>> {
    const NAME: &str = "$score";
    let RawValue::Document(spec) = value else { return Err(wrong_type(NAME, value, "object")) };
    let fields = Fields::read(spec, NAME, SCORE)?;
    let weight = fields.get("weight").and_then(Number::from_value).map_or(1.0, Number::to_f64);
    if !(0.0..=1.0).contains(&weight) {
        return Err(Error::bad_value(format!(
            "the weight of $score must be between 0 and 1: {weight}"
        )));
    }
    let normalization = fields.string("normalization")?.unwrap_or("none");
    let has_details = fields.bool("scoreDetails")?.unwrap_or(false);
    let mut begun = DocBuilder::new();
    begun.append("d", "$$ROOT").append("x", fields.required("score")?);
    let mut scored = DocBuilder::new();
    scored.append("kind", "own").append("details", has_details);
    scored.append("normalization", normalization).append("weight", weight);
    scored.append("expression", fields.required("score")?);
    Ok(vec![
        written("$replaceWith", &begun.finish()),
        normalized(normalization),
        weighted("s", weight),
        written(SCORED, &scored.finish()),
    ])
}
