//! `$lookup`: joins with another collection or view.
//!
//! 1. For each document the values at `localField` become a filter on `foreignField`, and the
//!    variables of `let` get values.
//! 2. If an index serves the filter, it is used for each document, until a table would have been
//!    cheaper ([`super::join`]).
//! 3. Otherwise the other collection is read once into a table by value, if that fits memory or
//!    files may be used. The filter is applied to the documents of the table as well, so that both
//!    ways give the same results.
//! 4. A pipeline that depends on neither runs once and its results are cached. The results of
//!    leading stages that refer to no variable are cached as well, if they fit memory.
//!
//! Caches last for one batch. The next batch sees later changes, and no documents that have expired
//! meanwhile.

mod joined;
mod parse;
mod run;

use mayfly_base::Namespace;
use mayfly_expr::{Dependencies, Expression};
use mayfly_mql::matcher::{Expr, joined};
use mayfly_value::{DocBuf, DocBuilder, RawDoc};

use super::sub::SubPipeline;
use super::unwind::Unwind;
use super::{Effect, Reads, Running, Stage, WantedDescription};
pub(crate) use parse::{ARGUMENTS, parse};

/// A parsed `$lookup`.
#[derive(Debug)]
pub(crate) struct Lookup {
    sub: SubPipeline,
    fields: Option<JoinFields>,
    variables: Vec<(String, Expression)>,
    result: Vec<String>,
    /// A `$unwind` of the result that follows; the result array is then never built.
    unwind: Option<Unwind>,
    /// Conditions of a later `$match` on the joined documents.
    matching: Option<DocBuf>,
    /// The operand as the client sent it, for explain.
    sent: DocBuf,
}

impl Lookup {
    /// Absorbs the following `$unwind`; false if it unwinds something else.
    pub(crate) fn fold(&mut self, unwind: &Unwind) -> bool {
        let same = self.unwind.is_none() && unwind.path == self.result;
        if same {
            self.unwind = Some(unwind.clone());
        }
        same
    }

    /// Absorbs the conditions of a filter after the `$unwind` that concern joined documents.
    /// Returns true if the filter has no others.
    pub(crate) fn absorb(&mut self, filter: &Expr) -> bool {
        let all = |unwind: &Unwind| unwind.keep_empty || unwind.index.is_some();
        if self.unwind.as_ref().is_none_or(all) || self.fields.is_none() || !self.sub.is_empty() {
            return false;
        }
        let (inside, whole) = below(filter, &self.result.join("."));
        let mut conditions: Vec<DocBuf> = inside.iter().flat_map(Expr::conditions).collect();
        conditions.extend(self.matching.take());
        self.matching = (!conditions.is_empty()).then(|| joined(&conditions));
        whole
    }

    /// The stage as explain shows it, with the stages that it absorbed. Manual: "Aggregation
    /// Pipeline Optimization", "$lookup, $unwind, and $match Coalescence".
    pub(crate) fn written(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.start_document("$lookup");
        for option in self.sent.as_doc() {
            // A stage that absorbed a filter has no pipeline of its own.
            if self.matching.is_none() || !matches!(option.name(), "let" | "pipeline") {
                out.append_element(option);
            }
        }
        if let Some(matching) = &self.matching {
            out.append("let", RawDoc::EMPTY).start_array("pipeline");
            out.push_document().append("$match", matching).end().end();
        }
        if let Some(unwind) = &self.unwind {
            unwind.append_options(out.start_document("unwinding"));
            out.end();
        }
        out.end();
        out.finish()
    }
}

/// Splits a filter on documents with joined documents in `field`: returns the conditions on the
/// joined ones, and whether there are no others.
fn below(filter: &Expr, field: &str) -> (Vec<Expr>, bool) {
    let (mut inside, mut whole) = (Vec::new(), true);
    let is_below =
        |path: &String| path.strip_prefix(field).and_then(|rest| rest.strip_prefix('.')).is_some();
    for condition in filter.conjuncts() {
        let reads = condition.reads();
        let fits = reads.is_some_and(|reads| !reads.computed && reads.paths.iter().all(is_below));
        match condition.renamed(field, "").filter(|_| fits) {
            Some(renamed) => inside.push(renamed),
            None => whole = false,
        }
    }
    (inside, whole)
}

/// The options `localField` and `foreignField`.
#[derive(Debug)]
struct JoinFields {
    local: Vec<String>,
    foreign: String,
}

impl Stage for Lookup {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        run::start(*self)
    }

    fn reads(&self) -> Reads {
        let mut read = Dependencies::default();
        self.variables.iter().for_each(|(_, value)| read.add(value));
        let local = self.fields.as_ref().map(|fields| fields.local.join("."));
        Reads::some_of(read, local.into_iter().chain(self.result.first().cloned()))
    }

    fn effect(&self) -> Effect {
        Effect::changes(self.result.first().cloned())
    }

    fn is_one_for_one(&self) -> bool {
        self.unwind.is_none()
    }

    fn collections(&self) -> Vec<Namespace> {
        self.sub.collections()
    }

    fn descriptions(&self) -> Vec<WantedDescription> {
        self.sub.descriptions().to_vec()
    }
}
