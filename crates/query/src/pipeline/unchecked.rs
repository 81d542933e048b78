//! A client's pipeline between parsing and running: the rights that it needs are known, but not yet
//! checked.
//!
//! Outside of this crate [`UncheckedPipeline::check`] is the only way to a [`Pipeline`], and only a
//! [`Pipeline`] can be started. No command can therefore run stages without checking their rights.

use std::cell::RefCell;

use mayfly_auth::{Action, Target};
use mayfly_base::{Error, Namespace, Result};
use mayfly_expr::{OperationTime, Scope};
use mayfly_scripts::ScriptLimits;
use mayfly_value::RawDoc;

use super::Pipeline;
use crate::stage::{PipelineContext, PipelineOwner, RecordedRights, Rights};

/// The result of parsing stages, with the rights that they need.
pub struct UncheckedPipeline {
    parsed: Result<Pipeline>,
    rights: Rights,
}

/// The client that wants to run a pipeline, and the input.
pub struct Client<'a> {
    /// The database of the command.
    pub db: &'a str,
    /// The collection of the command, if it names one.
    pub collection: Option<&'a str>,
    /// Whether the client has a right.
    pub allows: &'a dyn Fn(Target<'_>, Action) -> bool,
    /// The error for a client that lacks a right.
    pub refusal: &'a dyn Fn() -> Error,
    /// Whether writing stages bypass document validation, which needs an additional right.
    pub validation: Validation,
}

/// Whether writing stages validate documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validation {
    /// Documents are validated.
    Enforced,
    /// Documents are not validated: `bypassDocumentValidation`.
    Bypassed,
}

impl UncheckedPipeline {
    /// Parses and checks all stages. Strings compare by the collation of the scope. An error is
    /// kept until the rights are checked.
    pub fn parse(stages: RawDoc<'_>, context: &PipelineContext<'_>) -> UncheckedPipeline {
        let noted: RecordedRights = RefCell::default();
        let parsed = Pipeline::parse(stages, &context.noting(&noted));
        UncheckedPipeline { parsed, rights: noted.into_inner() }
    }

    /// Parses a pipeline without the variables, collation and time of a command.
    pub fn parse_alone(stages: RawDoc<'_>, db: &str, inside: PipelineOwner) -> UncheckedPipeline {
        let scope = Scope::at(OperationTime::ANY).with_script_limits(ScriptLimits::default());
        let context = PipelineContext::command(db, &scope).at_depth(0, inside);
        UncheckedPipeline::parse(stages, &context)
    }

    /// Returns the error of parsing, without a check of rights.
    ///
    /// # Errors
    /// Errors of the stages.
    pub fn validate(self) -> Result<()> {
        self.parsed.map(|_| ())
    }

    /// The rights that the pipeline needs.
    pub fn rights(&self) -> &Rights {
        &self.rights
    }

    /// Returns the pipeline if the client may run it.
    ///
    /// # Errors
    /// The refusal if the client may not; otherwise errors of parsing.
    pub fn check(self, client: &Client<'_>) -> Result<Pipeline> {
        let Client { db, collection, allows, refusal, validation } = *client;
        if !self.rights.are_granted((db, collection), allows) {
            return Err(refusal());
        }
        let pipeline = self.parsed?;
        let bypasses = |ns: &Namespace| {
            let target = Target::Collection(ns.db(), ns.collection());
            allows(target, Action::BypassDocumentValidation)
        };
        match (validation, pipeline.writes_to()) {
            (Validation::Bypassed, Some(ns)) if !bypasses(ns) => Err(refusal()),
            (Validation::Bypassed | Validation::Enforced, _) => Ok(pipeline),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_value::RawValue;
    use mayfly_value::extjson::parse_document;

    use crate::pipeline::StageRow;
    use crate::pipeline::rows::STAGES;
    use crate::stage::Needs;

    /// The rights that a pipeline over `db.c` needs, as `action target`, in the order in which they
    /// are checked.
    fn needed(stages: &str) -> Vec<String> {
        let text = format!("{{p: {stages}}}");
        let document = parse_document(&text).unwrap();
        let stages = document.as_doc().get("p").and_then(RawValue::as_array).unwrap();
        let unchecked = UncheckedPipeline::parse_alone(stages, "db", PipelineOwner::Command);
        let asked = RefCell::new(Vec::new());
        let allows = |target: Target<'_>, action: Action| {
            let target = match target {
                Target::Cluster => "cluster".to_owned(),
                Target::Everything => "everything".to_owned(),
                Target::AllNormal => "all".to_owned(),
                Target::Database(db) => db.to_owned(),
                Target::Collection(db, name) => format!("{db}.{name}"),
            };
            asked.borrow_mut().push(format!("{action:?} {target}"));
            true
        };
        assert!(unchecked.rights().are_granted(("db", Some("c")), &allows));
        asked.into_inner()
    }

    #[track_caller]
    fn check(stages: &str, expected: &[&str]) {
        assert_eq!(needed(stages), expected, "{stages}");
    }

    #[test]
    fn stages_note_the_rights_that_they_need() {
        let find = "Find db.c";
        check("[]", &[find]);
        check("[{$match: {a: 1}}, {$sortByCount: '$a'}]", &[find]);
        check("[{$geoNear: {near: [0, 0], distanceField: 'd'}}]", &[find]);
        check("[{$documents: [{a: 1}]}]", &[]);
        check("[{$out: 'o'}]", &[find, "Insert db.o", "Remove db.o"]);
        check("[{$out: {db: 'x', coll: 'o'}}]", &[find, "Insert x.o", "Remove x.o"]);
        check("[{$merge: 'o'}]", &[find, "Insert db.o", "Update db.o"]);
        check("[{$merge: {into: 'o', whenMatched: 'fail'}}]", &[find, "Insert db.o"]);
        check("[{$merge: {into: 'o', whenNotMatched: 'discard'}}]", &[find, "Update db.o"]);
        check("[{$unionWith: 'o'}]", &[find, "Find db.o"]);
        check(
            "[{$graphLookup: {from: 'o', startWith: 1, connectFromField: 'a', connectToField: 'a', as: 'b'}}]",
            &[find, "Find db.o"],
        );
        check(
            "[{$lookup: {from: 'o', localField: 'a', foreignField: 'a', as: 'b'}}]",
            &[find, "Find db.o"],
        );
        check("[{$changeStream: {}}]", &["ChangeStream db.c", "Find db.c"]);
        check("[{$changeStream: {allChangesForCluster: true}}]", &["ChangeStream all", "Find all"]);
        check("[{$currentOp: {}}]", &[]);
        check("[{$currentOp: {allUsers: true}}]", &["Inprog cluster"]);
        for stage in ["$listSessions", "$listLocalSessions"] {
            check(&format!("[{{{stage}: {{}}}}]"), &[]);
            check(&format!("[{{{stage}: {{allUsers: true}}}}]"), &["ListSessions cluster"]);
        }
        check("[{$collStats: {}}]", &["CollStats db.c"]);
        check("[{$planCacheStats: {}}]", &["PlanCacheRead db.c"]);
        check("[{$indexStats: {}}]", &["IndexStats db.c"]);
        check("[{$querySettings: {}}]", &["QuerySettings cluster"]);
        check("[{$ttlStats: {}}]", &["ServerStatus cluster"]);
        check("[{$shardedDataDistribution: {}}]", &["ShardedDataDistribution cluster"]);
    }

    #[test]
    fn pipelines_inside_of_stages_note_theirs() {
        let inner =
            |stages: &str| format!("[{{$lookup: {{from: 'o', pipeline: {stages}, as: 'b'}}}}]");
        let find = ["Find db.c", "Find db.o", "Find db.p"];
        check(&inner("[{$unionWith: 'p'}]"), &find);
        check(&inner("[{$facet: {a: [{$match: {}}], b: [{$unionWith: 'p'}]}}]"), &find);
        check(
            "[{$unionWith: {coll: 'o', pipeline: [{$lookup: {from: 'p', pipeline: [], as: 'b'}}]}}]",
            &find,
        );
        check(
            &inner("[{$collStats: {}}, {$unionWith: 'p'}]"),
            &["Find db.c", "Find db.o", "CollStats db.o", "Find db.p"],
        );
        check(
            "[{$lookup: {pipeline: [{$documents: []}, {$unionWith: 'p'}], as: 'b'}}]",
            &["Find db.c", "Find db.p"],
        );
    }

    /// `$range` of a variable without a value fails, because it is a constant while the stage is
    /// checked. The stage and those after it are therefore parsed only when the variable has a
    /// value, long after the check of rights.
    #[test]
    fn what_cannot_be_parsed_without_values_of_variables_notes_its_rights() {
        let within = |stages: &str| {
            format!("[{{$lookup: {{from: 'o', let: {{x: '$x'}}, pipeline: {stages}, as: 'b'}}}}]")
        };
        let fails = "{$set: {r: {$range: [0, '$$x']}}}";
        let find = ["Find db.c", "Find db.o", "Find db.p"];
        check(&within(&format!("[{fails}, {{$unionWith: 'p'}}]")), &find);
        check(&within(&format!("[{{$facet: {{a: [{fails}], b: [{{$unionWith: 'p'}}]}}}}]")), &find);
        let nested = format!("[{{$lookup: {{from: 'p', pipeline: [{fails}], as: 'b'}}}}]");
        check(&within(&nested), &["Find db.c", "Find db.o", "Find db.p", "Find db.p"]);
        // The stage cannot be parsed without the point in the variable, but its rights are known.
        let near = "{$geoNear: {near: '$$x', distanceField: 'd'}}";
        check(&within(&format!("[{near}, {{$unionWith: 'p'}}]")), &find);
        // The options of a facet are unknown if one of its pipelines cannot be parsed.
        let facet = "[{$facet: {a: [{$limit: '$$x'}], b: [{$unionWith: 'p'}]}}]";
        let asked = needed(&within(facet));
        assert!(asked.contains(&"AnyAction everything".to_owned()), "{asked:?}");
    }

    #[test]
    fn what_is_refused_has_noted_what_it_names() {
        check(
            "[{$lookup: {from: {db: 'x', coll: 'o'}, pipeline: [], as: 'b'}}]",
            &["Find db.c", "Find x.o"],
        );
        check("[{$nothing: 1}, {$unionWith: 'o'}]", &["Find db.c"]);
    }

    #[test]
    fn no_validation_and_no_rights_are_refused() {
        let stages = parse_document("{p: [{$out: 'o'}]}").unwrap();
        let stages = stages.as_doc().get("p").and_then(RawValue::as_array).unwrap();
        for (refused, validation, expected) in [
            (None, Validation::Bypassed, true),
            (Some(Action::BypassDocumentValidation), Validation::Enforced, true),
            (Some(Action::BypassDocumentValidation), Validation::Bypassed, false),
            (Some(Action::Remove), Validation::Enforced, false),
        ] {
            let client = Client {
                db: "db",
                collection: Some("c"),
                allows: &|_, action| Some(action) != refused,
                refusal: &|| Error::internal("refused"),
                validation,
            };
            let unchecked = UncheckedPipeline::parse_alone(stages, "db", PipelineOwner::Command);
            assert_eq!(unchecked.check(&client).is_ok(), expected, "{refused:?} {validation:?}");
        }
    }

    /// Only these stages have rights that depend on options; add a new one here, with a case above.
    #[test]
    fn stages_whose_rights_depend_on_options_are_tested() {
        let by_options: Vec<_> =
            STAGES.iter().filter(|row| row.needs.depend_on_options()).collect();
        assert_eq!(by_options.len(), 10);
        let reads = |row: &&&StageRow| row.needs == Needs::InputAndOptions;
        assert_eq!(by_options.iter().filter(reads).count(), 6);
    }
}
