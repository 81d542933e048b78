//! A pipeline that a client sent, between parsing and running: the rights that it needs are known, and whether the client has them is
//! not.
//!
//! Outside of this crate there is no other way to a [`Pipeline`] than [`UncheckedPipeline::check`], and only a [`Pipeline`] can be
//! started. So no command can run stages whose rights it did not check.

use std::cell::RefCell;

use mayfly_auth::{Action, Target};
use mayfly_base::{Error, Namespace, Result};
use mayfly_expr::Scope;
use mayfly_scripts::ScriptLimits;
use mayfly_value::RawDoc;

use super::Pipeline;
use crate::stage::{Around, Inside, Noted, Rights};

/// Stages that were parsed, right or wrong, with the rights that they need.
pub struct UncheckedPipeline {
    parsed: Result<Pipeline>,
    rights: Rights,
}

/// Who wants to run a pipeline, and over what.
pub struct Client<'a> {
    /// The database of the command.
    pub db: &'a str,
    /// The collection of the command, if it names one.
    pub collection: Option<&'a str>,
    /// What the client may do.
    pub allows: &'a dyn Fn(Target<'_>, Action) -> bool,
    /// What the client is told that may not run the pipeline.
    pub refusal: &'a dyn Fn() -> Error,
    /// Whether stages that write pass by the rules of their target, which needs a right of its own.
    pub validation: Validation,
}

/// Whether documents that stages write follow the rules of their collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validation {
    /// They do.
    Kept,
    /// They need not: `bypassDocumentValidation`.
    Bypassed,
}

impl UncheckedPipeline {
    /// Parses and checks all stages; strings compare by the collation of the scope. An error is kept until the rights are checked.
    pub fn parse(stages: RawDoc<'_>, around: &Around<'_>) -> UncheckedPipeline {
        let noted: Noted = RefCell::default();
        let parsed = Pipeline::parse(stages, &around.noting(&noted));
        UncheckedPipeline { parsed, rights: noted.into_inner() }
    }

    /// The same without what a command says about it: variables, a collation, the time.
    pub fn parse_alone(stages: RawDoc<'_>, db: &str, inside: Inside) -> UncheckedPipeline {
        let scope = Scope::default().with_script_limits(ScriptLimits::default());
        let around = Around::command(db, &scope).at_depth(0, inside);
        UncheckedPipeline::parse(stages, &around)
    }

    /// What is wrong with it, whoever wants to run it.
    ///
    /// # Errors
    /// Those of the stages.
    pub fn validate(self) -> Result<()> {
        self.parsed.map(|_| ())
    }

    /// The rights that it needs.
    pub fn rights(&self) -> &Rights {
        &self.rights
    }

    /// The pipeline, which the client may run.
    ///
    /// # Errors
    /// The refusal where the client may not; otherwise those of parsing.
    pub fn check(self, client: &Client<'_>) -> Result<Pipeline> {
        let Client { db, collection, allows, refusal, validation } = *client;
        if !self.rights.are_met((db, collection), allows) {
            return Err(refusal());
        }
        let pipeline = self.parsed?;
        let bypasses = |ns: &Namespace| {
            let target = Target::Collection(ns.db(), ns.collection());
            allows(target, Action::BypassDocumentValidation)
        };
        match (validation, pipeline.writes_to()) {
            (Validation::Bypassed, Some(ns)) if !bypasses(ns) => Err(refusal()),
            (Validation::Bypassed | Validation::Kept, _) => Ok(pipeline),
        }
    }
}
