//! A stage where it stands in a pipeline.

use std::any::Any;

use mayfly_mql::Matcher;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::filter::Match;
use super::{Running, Stage};

/// A stage of a pipeline, with the way in which it is shown.
#[derive(Debug)]
pub(crate) struct Step {
    stage: Box<dyn Stage>,
    /// As it stands in a pipeline; nothing for what is not shown.
    written: Option<DocBuf>,
}

/// `{ name: operand }`.
pub(crate) fn written<'v>(name: &str, operand: impl Into<RawValue<'v>>) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append(name, operand);
    out.finish()
}

impl Step {
    /// A stage as it was sent.
    pub(crate) fn sent(stage: Box<dyn Stage>, spec: RawDoc<'_>) -> Step {
        Step { stage, written: Some(spec.to_owned()) }
    }

    /// A stage that nobody sent, and how it is shown.
    pub(crate) fn made(stage: impl Stage, written: DocBuf) -> Step {
        Step { stage: Box::new(stage), written: Some(written) }
    }

    /// A stage that is not shown: it helps another one.
    pub(crate) fn hidden(stage: impl Stage) -> Step {
        Step { stage: Box::new(stage), written: None }
    }

    /// A `$match`.
    pub(crate) fn filter(matcher: Matcher) -> Step {
        let shown = written("$match", &matcher.root().to_document());
        Step::made(Match(matcher), shown)
    }

    /// The stage.
    pub(crate) fn stage(&self) -> &dyn Stage {
        &*self.stage
    }

    /// As it stands in a pipeline; nothing for what is not shown.
    pub(crate) fn written(&self) -> Option<RawDoc<'_>> {
        self.written.as_ref().map(DocBuf::as_doc)
    }

    /// From now on it is shown so.
    pub(crate) fn show_as(&mut self, written: DocBuf) {
        self.written = Some(written);
    }

    /// The stage, if it is of this type.
    pub(crate) fn get<S: Stage>(&self) -> Option<&S> {
        let stage: &dyn Any = &*self.stage;
        stage.downcast_ref()
    }

    /// The same to be changed.
    pub(crate) fn get_mut<S: Stage>(&mut self) -> Option<&mut S> {
        let stage: &mut dyn Any = &mut *self.stage;
        stage.downcast_mut()
    }

    /// Whether the stage is of this type.
    pub(crate) fn is<S: Stage>(&self) -> bool {
        self.get::<S>().is_some()
    }

    /// Its stage, if it is of this type.
    pub(crate) fn take<S: Stage>(self) -> Option<Box<S>> {
        let stage: Box<dyn Any> = self.stage;
        stage.downcast().ok()
    }

    /// Its running form.
    pub(crate) fn start(self) -> Box<dyn Running> {
        self.stage.start()
    }
}
