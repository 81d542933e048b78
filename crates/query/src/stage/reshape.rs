//! `$set`, `$addFields`, `$unset`, `$replaceRoot`, `$replaceWith`: stages with one output for each
//! input, which updates by a pipeline support as well.

use mayfly_base::Result;
use mayfly_expr::{Dependencies, Scope};
use mayfly_mql::update::pipeline::{DocumentChange, DocumentStage};
use mayfly_value::RawValue;

use super::project::projected_reads;
use super::{Effect, Reads, Running, Stage, one_for_one};

pub(crate) fn parse(name: &str, value: RawValue<'_>, scope: &Scope) -> Result<Box<dyn Stage>> {
    Ok(Box::new(Reshape(DocumentStage::parse(name, value, scope)?)))
}

/// A parsed stage.
#[derive(Debug)]
struct Reshape(DocumentStage);

impl Stage for Reshape {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        one_for_one(move |frame| self.0.run(frame))
    }

    fn reads(&self) -> Reads {
        let mut read = Dependencies::default();
        match self.0.change() {
            DocumentChange::Set(fields) => {
                fields.iter().for_each(|(_, value)| read.add(value));
                // Setting a path reads the documents on it.
                Reads::some_of(read, fields.into_iter().map(|(path, _)| path))
            }
            DocumentChange::Project(projection) => projected_reads(&projection.fields()),
            DocumentChange::Replace(with) => {
                read.add(with);
                Reads::only_of(read, [])
            }
        }
    }

    fn effect(&self) -> Effect {
        match self.0.change() {
            DocumentChange::Set(fields) => Effect::setting(&fields),
            DocumentChange::Project(projection) => Effect::projecting(&projection.fields()),
            DocumentChange::Replace(with) => Effect::replacing(with),
        }
    }

    fn is_one_for_one(&self) -> bool {
        // A new root that is missing is an error.
        !matches!(self.0.change(), DocumentChange::Replace(_))
    }
}
