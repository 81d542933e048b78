//! A stage in a pipeline, with its representation in explain.

use std::any::Any;

use mayfly_mql::Matcher;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::filter::Match;
use super::{Running, Stage};

/// A stage in a pipeline.
#[derive(Debug)]
pub(crate) struct Step {
    stage: Box<dyn Stage>,
    /// The specification that explain shows; `None` for helper stages.
    written: Option<DocBuf>,
}

/// The document `{ name: operand }`.
pub(crate) fn written<'v>(name: &str, operand: impl Into<RawValue<'v>>) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append(name, operand);
    out.finish()
}

impl Step {
    /// A stage with the specification that the client sent.
    pub(crate) fn sent(stage: Box<dyn Stage>, spec: RawDoc<'_>) -> Step {
        Step { stage, written: Some(spec.to_owned()) }
    }

    /// A stage that the optimiser made, with the specification to show.
    pub(crate) fn made(stage: impl Stage, written: DocBuf) -> Step {
        Step { stage: Box::new(stage), written: Some(written) }
    }

    /// A helper stage that explain does not show.
    pub(crate) fn hidden(stage: impl Stage) -> Step {
        Step { stage: Box::new(stage), written: None }
    }

    /// A `$match` stage.
    pub(crate) fn filter(matcher: Matcher) -> Step {
        let shown = written("$match", &matcher.root().to_document());
        Step::made(Match(matcher), shown)
    }

    /// The stage.
    pub(crate) fn stage(&self) -> &dyn Stage {
        &*self.stage
    }

    /// The specification that explain shows; `None` for helper stages.
    pub(crate) fn written(&self) -> Option<RawDoc<'_>> {
        self.written.as_ref().map(DocBuf::as_doc)
    }

    /// Replaces the specification that explain shows.
    pub(crate) fn set_written(&mut self, written: DocBuf) {
        self.written = Some(written);
    }

    /// The stage as this type, if it is one.
    pub(crate) fn get<S: Stage>(&self) -> Option<&S> {
        let stage: &dyn Any = &*self.stage;
        stage.downcast_ref()
    }

    /// The stage as this type, mutable.
    pub(crate) fn get_mut<S: Stage>(&mut self) -> Option<&mut S> {
        let stage: &mut dyn Any = &mut *self.stage;
        stage.downcast_mut()
    }

    /// Whether the stage is of this type.
    pub(crate) fn is<S: Stage>(&self) -> bool {
        self.get::<S>().is_some()
    }

    /// Extracts the stage as this type, if it is one.
    pub(crate) fn take<S: Stage>(self) -> Option<Box<S>> {
        let stage: Box<dyn Any> = self.stage;
        stage.downcast().ok()
    }

    /// Creates the running stage.
    pub(crate) fn start(self) -> Box<dyn Running> {
        self.stage.start()
    }
}
