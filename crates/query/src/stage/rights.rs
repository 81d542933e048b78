//! The rights that a pipeline needs, noted while its stages are parsed.
//!
//! The row of a stage says what every use of it needs ([`Needs`]). What depends on its options, its parser notes as it reads them:
//! the collections that it names ([`Around::collection`]), the target that it writes to, users that it asks about. A stage cannot
//! get a namespace from its options without noting the right to use it, and pipelines inside stages note into the same list. So what
//! is checked is what was parsed, and nothing reads the options a second time.
//!
//! A pipeline that cannot be parsed has noted what was parsed of it until then. It does not run, but its error may say something
//! about collections that the client must not read, so that the rights are checked before the error is shown.

use std::cell::RefCell;

use mayfly_auth::{Action, Target};
use mayfly_base::Namespace;
use mayfly_value::RawValue;

use super::{Around, Inside};

/// The rights that every use of a stage needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Reading its input, which is the collection of the command where the stage is the first one.
    Input,
    /// Reading its input, and what its options name.
    InputAndOptions,
    /// What its options ask for: it does not read the collection of the command.
    Options,
    /// Nothing: it does not read the collection of the command.
    Nothing,
    /// This action on the collection of the command, which it describes and does not read.
    Collection(Action),
    /// This action on the cluster: it does not read the collection of the command.
    Cluster(Action),
}

/// What a noted right is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    /// The collection of the command, or its database where it names none.
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

/// Rights while they are being noted.
pub(crate) type Noted = RefCell<Rights>;

impl Needs {
    /// Whether the stage reads documents of the collection of the command where it is the first one.
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
    /// Whether a client has all of them who may do what `allows` says, for a pipeline over this collection of the database, or over
    /// none.
    pub fn are_met(
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

/// What parsers of stages note. A pipeline that is parsed again to run, after its rights were checked, notes nothing.
impl Around<'_> {
    fn note(&self, subject: Subject, action: Action) {
        if let Some(noted) = self.rights {
            noted.borrow_mut().needed.push((subject, action));
        }
    }

    /// The pipeline reads what it runs over: the collection of the command, where it is the command's own.
    pub(crate) fn reads_input(&self) {
        let own = matches!(self.inside, Inside::Command | Inside::View);
        if let Some(noted) = self.rights.filter(|_| own) {
            noted.borrow_mut().reads_input = true;
        }
    }

    /// Notes what every use of a stage needs.
    pub(crate) fn needs(&self, needs: Needs) {
        match needs {
            Needs::Input | Needs::InputAndOptions | Needs::Options | Needs::Nothing => {}
            Needs::Collection(action) => self.needs_on_input(action),
            Needs::Cluster(action) => self.needs_on_cluster(action),
        }
    }

    /// An action on the collection of the command.
    pub(crate) fn needs_on_input(&self, action: Action) {
        match self.inside {
            Inside::Command | Inside::View => self.note(Subject::Input, action),
            // The input there is something else, and no stage describes it.
            Inside::Facet | Inside::Lookup | Inside::UnionWith => self.needs_everything(),
        }
    }

    /// An action on a collection.
    pub(crate) fn needs_on(&self, ns: &Namespace, action: Action) {
        self.note(Subject::Collection(ns.clone()), action);
    }

    /// Reading a collection that an operand names by its database, too; no stage reads it, but its refusal tells nothing about it
    /// either.
    pub(crate) fn needs_named(&self, value: RawValue<'_>) {
        let Some(name) = value.as_document() else { return };
        let part = |part: &str| name.get(part).and_then(RawValue::as_str);
        if let Some(collection) = part("coll")
            && let Ok(ns) = Namespace::new(part("db").unwrap_or(self.db), collection)
        {
            self.needs_on(&ns, Action::Find);
        }
    }

    /// An action on the cluster.
    pub(crate) fn needs_on_cluster(&self, action: Action) {
        self.note(Subject::Cluster, action);
    }

    /// An action on all collections that are not the system's.
    pub(crate) fn needs_on_all(&self, action: Action) {
        self.note(Subject::AllNormal, action);
    }

    /// Every action on everything: what is needed is not known.
    pub(crate) fn needs_everything(&self) {
        self.note(Subject::Everything, Action::AnyAction);
    }
}
