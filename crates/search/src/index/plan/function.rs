//! Scores that are computed from the score of a query and from numbers of the document.

use std::sync::Arc;

use mayfly_base::Result;
use tantivy::index::SegmentReader;
use tantivy::query::{EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::{DocId, DocSet, Score, TERMINATED};

use super::{Planner, number_in};
use crate::fields::FieldKind;
use crate::index::best::{BestKey, NO_PLACE};
use crate::index::segment::Segment;
use crate::query::{Expression, Gauss, NumberKind, PathValue};
use crate::watch::Watch;

/// The steps of [`Watch::take`] to compute a score.
const STEPS: usize = 16;

/// The numbers of a segment's documents at a path. Of several numbers the least counts.
#[derive(Clone)]
pub(in crate::index) struct Numbers {
    segment: Arc<Segment>,
    field: Option<u16>,
    /// The place of each document's key; empty: no document has one.
    places: Arc<Vec<u32>>,
    undefined: f64,
}

impl Numbers {
    pub(in crate::index) fn of(&self, document: DocId) -> f64 {
        let number = || {
            let place = *self.places.get(document as usize)?;
            if place == NO_PLACE {
                return None;
            }
            let column = self.segment.column(usize::from(self.field?))?;
            number_in(column.key(place as usize), NumberKind::Number)
        };
        number().unwrap_or(self.undefined)
    }
}

/// An expression with the numbers of a segment.
#[derive(Clone)]
pub(super) enum Function {
    Relevance,
    Constant(f64),
    Numbers(Numbers),
    Add(Vec<Function>),
    Multiply(Vec<Function>),
    Log(Box<Function>),
    Log1p(Box<Function>),
    Gauss(Numbers, Gauss),
}

impl Function {
    fn of(&self, document: DocId, score: f64) -> f64 {
        match self {
            Function::Relevance => score,
            Function::Constant(number) => *number,
            Function::Numbers(numbers) => numbers.of(document),
            Function::Add(parts) => parts.iter().map(|part| part.of(document, score)).sum(),
            Function::Multiply(parts) => {
                parts.iter().map(|part| part.of(document, score)).product()
            }
            Function::Log(inner) => inner.of(document, score).log10(),
            Function::Log1p(inner) => (inner.of(document, score) + 1.0).log10(),
            Function::Gauss(numbers, gauss) => gauss.of(numbers.of(document)),
        }
    }

    /// The score of a document. Negative and undefined results are 0, as in Lucene.
    fn score(&self, document: DocId, score: f32) -> f32 {
        let result = self.of(document, f64::from(score));
        if result >= 0.0 { result as f32 } else { 0.0 }
    }
}

impl Planner<'_> {
    /// The numbers of a segment's documents.
    pub(in crate::index) fn numbers(
        &self,
        path: &PathValue,
        segment: &Arc<Segment>,
    ) -> Result<Numbers> {
        let field = self.table.find(FieldKind::Values, &path.path, "");
        let places = match field {
            Some(field) => segment.best_places(field, BestKey::LeastNumber, self.control)?,
            None => Arc::default(),
        };
        Ok(Numbers { segment: segment.clone(), field, places, undefined: path.undefined })
    }

    pub(super) fn function(
        &self,
        expression: &Expression,
        segment: &Arc<Segment>,
    ) -> Result<Function> {
        let all = |parts: &[Expression]| {
            parts.iter().map(|part| self.function(part, segment)).collect::<Result<Vec<_>>>()
        };
        let boxed = |part: &Expression| self.function(part, segment).map(Box::new);
        Ok(match expression {
            Expression::Relevance => Function::Relevance,
            Expression::Constant(number) => Function::Constant(*number),
            Expression::Path(path) => Function::Numbers(self.numbers(path, segment)?),
            Expression::Add(parts) => Function::Add(all(parts)?),
            Expression::Multiply(parts) => Function::Multiply(all(parts)?),
            Expression::Log(inner) => Function::Log(boxed(inner)?),
            Expression::Log1p(inner) => Function::Log1p(boxed(inner)?),
            Expression::Gauss(gauss) => {
                Function::Gauss(self.numbers(&gauss.path, segment)?, gauss.clone())
            }
        })
    }
}

/// A query whose scores are computed by a function.
pub(super) struct FunctionQuery {
    inner: Box<dyn Query>,
    function: Arc<Function>,
    watch: Arc<Watch>,
}

impl FunctionQuery {
    pub(super) fn new(
        inner: Box<dyn Query>,
        function: Function,
        watch: &Arc<Watch>,
    ) -> FunctionQuery {
        FunctionQuery { inner, function: Arc::new(function), watch: watch.clone() }
    }

    pub(super) fn path_boost(
        inner: Box<dyn Query>,
        numbers: Numbers,
        watch: &Arc<Watch>,
    ) -> FunctionQuery {
        let parts = vec![Function::Relevance, Function::Numbers(numbers)];
        FunctionQuery::new(inner, Function::Multiply(parts), watch)
    }
}

impl Clone for FunctionQuery {
    fn clone(&self) -> FunctionQuery {
        FunctionQuery {
            inner: self.inner.box_clone(),
            function: self.function.clone(),
            watch: self.watch.clone(),
        }
    }
}

impl std::fmt::Debug for FunctionQuery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FunctionQuery").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Query for FunctionQuery {
    fn weight(&self, scoring: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        let inner = self.inner.weight(scoring)?;
        let (function, watch) = (self.function.clone(), self.watch.clone());
        Ok(Box::new(FunctionWeight { inner, function, watch }))
    }
}

struct FunctionWeight {
    inner: Box<dyn Weight>,
    function: Arc<Function>,
    watch: Arc<Watch>,
}

impl Weight for FunctionWeight {
    fn scorer(&self, reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        let inner = self.inner.scorer(reader, 1.0)?;
        let (function, watch) = (self.function.clone(), self.watch.clone());
        Ok(Box::new(FunctionScorer { inner, function, watch, boost }))
    }

    fn explain(&self, _reader: &SegmentReader, _document: DocId) -> tantivy::Result<Explanation> {
        Ok(Explanation::new("a function", 1.0))
    }
}

struct FunctionScorer {
    inner: Box<dyn Scorer>,
    function: Arc<Function>,
    watch: Arc<Watch>,
    boost: Score,
}

impl DocSet for FunctionScorer {
    fn advance(&mut self) -> DocId {
        if self.watch.take(STEPS) { TERMINATED } else { self.inner.advance() }
    }

    fn seek(&mut self, target: DocId) -> DocId {
        if self.watch.take(STEPS) { TERMINATED } else { self.inner.seek(target) }
    }

    fn doc(&self) -> DocId {
        if self.watch.has_ended() { TERMINATED } else { self.inner.doc() }
    }

    fn size_hint(&self) -> u32 {
        self.inner.size_hint()
    }
}

impl Scorer for FunctionScorer {
    fn score(&mut self) -> Score {
        let score = self.inner.score();
        self.function.score(self.inner.doc(), score) * self.boost
    }
}
