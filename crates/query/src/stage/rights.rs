//! The rights that a pipeline needs, recorded while its stages are parsed.
//!
//! The row of a stage declares what every use of it needs ([`Needs`]). The parser of the stage
//! records what depends on options as it reads them: the collections that they name
//! ([`PipelineContext::collection`]), the target that the stage writes to, the users that it lists.
//! A stage cannot obtain a namespace from its options without recording the right to use it, and
//! nested pipelines add to the same list. The check therefore covers exactly what was parsed.
//!
//! If parsing fails, the rights recorded so far are checked before the error is returned, because
//! the error may contain information about collections that the client must not read.

use std::cell::RefCell;

use mayfly_auth::{Action, Target};
use mayfly_base::Namespace;
use mayfly_value::RawValue;

use super::{PipelineContext, PipelineOwner};

/// The rights that every use of a stage needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Reading the input, which for a first stage is the collection of the command.
    Input,
    /// Reading the input, and rights that depend on options.
    InputAndOptions,
    /// Rights that depend on options. The stage does not read the collection of the command.
    Options,
    /// No rights. The stage does not read the collection of the command.
    Nothing,
    /// This action on the collection of the command, whose documents the stage does not read.
    Collection(Action),
    /// This action on the cluster. The stage does not read the collection of the command.
    Cluster(Action),
}

/// The resource of a recorded right.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    /// The collection of the command, or its database if it names no collection.
    Input,
    Collection(Namespace),
    Cluster,
    AllNormal,
    Everything,
}

/// The rights that a pipeline needs.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    reads_input: bool,
    needed: Vec<(Subject, Action)>,
}

/// Rights that are being recorded.
pub(crate) type RecordedRights = RefCell<Rights>;

impl Needs {
    /// Whether a first stage reads documents of the collection of the command.
    pub(crate) fn read_input(self) -> bool {
        match self {
            Needs::Input | Needs::InputAndOptions => true,
            Needs::Options | Needs::Nothing | Needs::Collection(_) | Needs::Cluster(_) => false,
        }
    }

    /// Whether the rights depend on the options.
    pub(crate) fn depend_on_options(self) -> bool {
        matches!(self, Needs::InputAndOptions | Needs::Options)
    }
}

impl Rights {
    /// Whether `allows` grants all rights for a pipeline over this collection of the database, or
    /// over no collection.
    pub fn are_granted(
        &self,
        (db, collection): (&str, Option<&str>),
        allows: &dyn Fn(Target<'_>, Action) -> bool,
    ) -> bool {
        let reads = || match collection {
            Some(collection) => allows(Target::Collection(db, collection), Action::Find),
            None => allows(Target::Everything, Action::Find),
        };
        let is_met = |(subject, action): &(Subject, Action)| {
            let target = match (subject, collection) {
                (Subject::Input, Some(collection)) => Target::Collection(db, collection),
                (Subject::Input, None) => Target::Database(db),
                (Subject::Collection(ns), _) => Target::Collection(ns.db(), ns.collection()),
                (Subject::Cluster, _) => Target::Cluster,
                (Subject::AllNormal, _) => Target::AllNormal,
                (Subject::Everything, _) => Target::Everything,
            };
            allows(target, *action)
        };
        (!self.reads_input || reads()) && self.needed.iter().all(is_met)
    }
}

/// Recording of rights by the parsers of stages. When a pipeline is parsed again to run, after its
/// rights were checked, nothing is recorded.
impl PipelineContext<'_> {
    fn note(&self, subject: Subject, action: Action) {
        if let Some(noted) = self.rights {
            noted.borrow_mut().needed.push((subject, action));
        }
    }

    /// Records that the pipeline reads its input, if that is the collection of the command.
    pub(crate) fn reads_input(&self) {
        let own = matches!(self.inside, PipelineOwner::Command | PipelineOwner::View);
        if let Some(noted) = self.rights.filter(|_| own) {
            noted.borrow_mut().reads_input = true;
        }
    }

    /// Records what every use of a stage needs.
    pub(crate) fn needs(&self, needs: Needs) {
        match needs {
            Needs::Input | Needs::InputAndOptions | Needs::Options | Needs::Nothing => {}
            Needs::Collection(action) => self.needs_on_input(action),
            Needs::Cluster(action) => self.needs_on_cluster(action),
        }
    }

    /// Records an action on the collection of the command.
    pub(crate) fn needs_on_input(&self, action: Action) {
        match self.inside {
            PipelineOwner::Command | PipelineOwner::View => self.note(Subject::Input, action),
            // In these pipelines the input is another collection of the database.
            PipelineOwner::Lookup | PipelineOwner::UnionWith => {
                let input = self.collection.and_then(|name| Namespace::new(self.db, name).ok());
                match input {
                    Some(input) => self.needs_on(&input, action),
                    None => self.needs_everything(),
                }
            }
            // No stage with such rights is allowed here.
            PipelineOwner::Facet => self.needs_everything(),
        }
    }

    /// Records an action on a collection.
    pub(crate) fn needs_on(&self, ns: &Namespace, action: Action) {
        self.note(Subject::Collection(ns.clone()), action);
    }

    /// Records the right to read a collection that an operand names with its database. Stages
    /// refuse such operands, but the refusal must not reveal anything about the collection.
    pub(crate) fn needs_named(&self, value: RawValue<'_>) {
        let Some(name) = value.as_document() else { return };
        let part = |part: &str| name.get(part).and_then(RawValue::as_str);
        if let Some(collection) = part("coll")
            && let Ok(ns) = Namespace::new(part("db").unwrap_or(self.db), collection)
        {
            self.needs_on(&ns, Action::Find);
        }
    }

    /// Records an action on the cluster.
    pub(crate) fn needs_on_cluster(&self, action: Action) {
        self.note(Subject::Cluster, action);
    }

    /// Records an action on all collections except system collections.
    pub(crate) fn needs_on_all(&self, action: Action) {
        self.note(Subject::AllNormal, action);
    }

    /// Records every action on everything, where the needed rights are unknown.
    pub(crate) fn needs_everything(&self) {
        self.note(Subject::Everything, Action::AnyAction);
    }
}
