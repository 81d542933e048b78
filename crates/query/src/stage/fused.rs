//! The stages that `$rankFusion`, `$scoreFusion` and `$score` are rewritten to: one wraps the
//! documents of a pipeline with their rank or score, the other returns them with metadata.

use mayfly_base::{Error, Result};
use mayfly_mql::SortPattern;
use mayfly_value::arguments::error::mistyped;
use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawValue};

use super::{Effect, Next, PipelineContext, Running, Stage, StageContext, one_for_one};
use crate::exec::Flow;
use crate::language::metadata::{
    GEO_NEAR_DISTANCE, Metadata, SEARCH_SCORE, TEXT_SCORE, VECTOR_SEARCH_SCORE,
};

/// Wraps documents: `{ name, rank: sort pattern }` or `{ name, score: metadata }`.
pub(crate) const FUSED: &str = "$_internalFused";
/// Returns documents with a score.
pub(crate) const SCORED: &str = "$_internalScored";
/// The metadata of [`SCORED`].
pub(crate) const SCORE: &str = "score";
const SCORE_DETAILS: &str = "scoreDetails";

/// What a document is wrapped with.
#[derive(Debug)]
enum Measure {
    /// Its place by this pattern, which is the order of the input.
    Rank(SortPattern),
    /// The metadata of this name.
    Score(Box<str>),
}

#[derive(Debug)]
struct Fused {
    name: Box<str>,
    measure: Measure,
}

pub(crate) fn parse(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    let spec = value.as_document().unwrap_or(RawDoc::EMPTY);
    let name = spec.get("name").and_then(RawValue::as_str).unwrap_or_default().into();
    let scope = [GEO_NEAR_DISTANCE, TEXT_SCORE, SEARCH_SCORE, VECTOR_SEARCH_SCORE, SCORE]
        .iter()
        .fold(context.scope.clone(), |scope, name| scope.with_metadata(name));
    let measure = match (spec.get("rank"), spec.get("score")) {
        (Some(RawValue::Document(pattern)), _) => {
            let pattern = SortPattern::parse_in(pattern, &scope)?;
            Measure::Rank(pattern.collated(scope.collation().cloned()))
        }
        (_, Some(RawValue::String(name))) => Measure::Score(name.into()),
        _ => return Err(Error::bad_value(format!("{FUSED} needs a rank or a score"))),
    };
    Ok(Box::new(Fused { name, measure }))
}

impl Stage for Fused {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        let (mut count, mut rank, mut last, mut key) = (0i64, 0i64, None, Vec::new());
        one_for_one(move |frame| {
            let document = frame.root();
            let mut out = DocBuilder::new();
            out.append("_id", document.get("_id").unwrap_or(RawValue::Null));
            out.append("d", document).append("n", &*self.name);
            match &self.measure {
                Measure::Rank(pattern) => {
                    key.clear();
                    pattern.append_sort_key(frame, &mut key);
                    count += 1;
                    if last.as_ref() != Some(&key) {
                        rank = count;
                        last = Some(key.clone());
                    }
                    out.append("r", rank);
                }
                Measure::Score(name) => {
                    let score = frame.metadata().and_then(|metadata| metadata.get(name));
                    out.append("x", score.unwrap_or(RawValue::Double(0.0)));
                }
            }
            Ok(out.finish())
        })
    }

    fn effect(&self) -> Effect {
        Effect::Unknown
    }
}

/// The stage that returns documents with a score. Its operand is that of the rewriting stage.
#[derive(Debug)]
struct Scored {
    spec: DocBuf,
    has_details: bool,
}

pub(crate) fn parse_scored(value: RawValue<'_>, _: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    let spec = value.as_document().unwrap_or(RawDoc::EMPTY).to_owned();
    let has_details = spec.as_doc().get("details") == Some(RawValue::Bool(true));
    Ok(Box::new(Scored { spec, has_details }))
}

impl Stage for Scored {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        self
    }

    fn gives_metadata(&self) -> &'static [&'static str] {
        if self.has_details { &[SCORE, SCORE_DETAILS] } else { &[SCORE] }
    }
}

impl Running for Scored {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        let score = document.get("s").and_then(Number::from_value);
        let Some(score) = score.map(Number::to_f64) else {
            let text = "the score of a document is not a number";
            return Err(mistyped(text));
        };
        let mut metadata = DocBuilder::new();
        metadata.append(SCORE, score);
        if self.has_details {
            self.append_details(document, score, metadata.start_document(SCORE_DETAILS));
            metadata.end();
        }
        context.metadata.set(&Metadata::new(metadata.finish()));
        next(document.get("d").and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY))
    }
}

impl Scored {
    fn append_details(&self, document: RawDoc<'_>, score: f64, out: &mut DocBuilder) {
        let spec = self.spec.as_doc();
        let copy = |out: &mut DocBuilder, to: &str, name: &str| {
            if let Some(value) = spec.get(name) {
                out.append(to, value);
            }
        };
        out.append("value", score);
        match spec.get("kind").and_then(RawValue::as_str) {
            Some("rank") => {
                out.append("description", "value output by reciprocal rank fusion algorithm, computed as sum of (weight * (1 / (60 + rank))) across input pipelines from which this document is output, from:");
                self.append_inputs(document, out, append_rank);
            }
            Some("score") => {
                out.append("description", "the value calculated by combining the scores across input pipelines from which this document is output from:");
                copy(out, "normalization", "normalization");
                out.start_document("combination");
                copy(out, "method", "method");
                copy(out, "expression", "expression");
                out.end();
                self.append_inputs(document, out, append_score);
            }
            _ => {
                out.append("description", "the score calculated from multiplying a weight in the range [0,1] with either a normalized or nonnormalized value:");
                out.append("rawScore", document.get("x").unwrap_or(RawValue::Null));
                copy(out, "normalization", "normalization");
                copy(out, "weight", "weight");
                copy(out, "expression", "expression");
                out.start_array("details").end();
            }
        }
    }

    /// Appends `details`, with an entry for each pipeline.
    fn append_inputs(
        &self,
        document: RawDoc<'_>,
        out: &mut DocBuilder,
        append: fn(&mut DocBuilder, Option<RawDoc<'_>>, f64),
    ) {
        let found = document.get("p").and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY);
        let inputs = self.spec.as_doc().get("inputs").and_then(RawValue::as_array);
        out.start_array("details");
        for input in inputs.unwrap_or(RawDoc::EMPTY).iter() {
            let Some(input) = input.value().as_document() else { continue };
            let name = input.get("name").unwrap_or(RawValue::Null);
            let weight = input.get("weight").and_then(Number::from_value);
            let own = found.iter().filter_map(|entry| entry.value().as_document());
            let own = own.into_iter().find(|entry| entry.get("n") == Some(name));
            out.push_document().append("inputPipelineName", name);
            append(out, own, weight.map_or(1.0, Number::to_f64));
            out.end();
        }
        out.end();
    }
}

fn append_rank(out: &mut DocBuilder, entry: Option<RawDoc<'_>>, weight: f64) {
    match entry.and_then(|entry| entry.get("r")) {
        Some(rank) => {
            out.append("rank", rank).append("weight", weight).start_array("details").end();
        }
        None => {
            out.append("rank", "NA");
        }
    }
}

fn append_score(out: &mut DocBuilder, entry: Option<RawDoc<'_>>, weight: f64) {
    let part = |name: &str| entry.and_then(|entry| entry.get(name));
    out.append("inputPipelineRawScore", part("x").unwrap_or(RawValue::Double(0.0)));
    out.append("weight", weight).append("value", part("v").unwrap_or(RawValue::Double(0.0)));
    out.start_array("details").end();
}
