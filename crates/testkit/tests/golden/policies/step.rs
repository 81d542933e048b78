//! The steps of a case: each one is applied to the server and to the model.

use mayfly_testkit::{Fixture, dialect};
use mayfly_value::RawValue;
use proptest::prelude::*;
use proptest::sample::select;

use super::model::{Dates, Fields, HELD, Held, Id, Kind, Model, OWN, Options, Own, Policy};

/// The initial time.
const START: i64 = mayfly_testkit::START_MS;
/// More than the limit of a clock jump, and more than the time of a case.
const JUMP_MS: i64 = 100_000_000;
/// Greater than the number of any step.
const MANY: i64 = 1_000_000;

/// A collection and the steps of a case.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub policies: Vec<Policy>,
    /// Documents in a unit, documents in a visit.
    pub pieces: (i32, i32),
    pub steps: Vec<Step>,
}

/// A change of one field; dates are offsets in seconds.
#[derive(Clone, Debug)]
pub(super) enum Change {
    D(Dates),
    E(Dates),
    Own(Own),
    Held(Held),
    Partial(bool),
    /// Of `n` only.
    Nothing,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Insert {
        id: usize,
        fields: Fields,
    },
    Replace {
        id: usize,
        fields: Fields,
    },
    Change {
        id: usize,
        change: Change,
    },
    /// An update that sets the present values.
    NoChange {
        id: usize,
    },
    ChangeMany {
        partial: bool,
    },
    Delete {
        id: usize,
    },
    DeleteMany {
        unique: u8,
    },
    Advance {
        secs: i64,
    },
    SetSeconds {
        policy: usize,
        secs: i64,
    },
    SwitchOff {
        policy: usize,
    },
    SetOptions {
        policy: usize,
        options: Options,
    },
    MakeAnew {
        policy: usize,
    },
    LastModified {
        on: bool,
    },
    /// The wall clock jumps beyond the limit.
    Jump {
        ahead: bool,
    },
    /// It jumps back.
    JumpBack,
    /// Expiry is resumed by command.
    Resume,
    Pass,
    Restart,
    Crash,
}

pub(super) fn seconds(own_only: bool) -> BoxedStrategy<i64> {
    match own_only {
        true => prop_oneof![Just(-1), 1..25i64].boxed(),
        false => (0..25i64).boxed(),
    }
}

pub(super) fn options() -> impl Strategy<Value = Options> {
    let rare = prop::bool::weighted(0.2);
    let often = prop::bool::weighted(0.4);
    (often, rare, often, often).prop_map(|(hide, paused, hold, archive)| Options {
        hide,
        paused,
        hold,
        archive,
    })
}

fn dates() -> impl Strategy<Value = Dates> {
    let offset = || -30..30i64;
    let items = prop::collection::vec(prop::option::weighted(0.8, offset()), 0..3);
    prop_oneof![
        6 => offset().prop_map(Dates::One),
        3 => items.prop_map(Dates::Array),
        1 => offset().prop_map(Dates::Nested),
        3 => select(vec![Dates::Missing, Dates::Null, Dates::Text, Dates::Number]),
    ]
}

fn fields() -> impl Strategy<Value = Fields> {
    let stamp = prop::option::weighted(0.2, -30..30i64);
    let own = prop_oneof![2 => Just(OWN[0]), 1 => select(OWN.to_vec())];
    let held = prop_oneof![2 => Just(HELD[0]), 1 => select(HELD.to_vec())];
    let unique = prop::option::weighted(0.4, 0..4u8);
    (dates(), dates(), stamp, own, held, any::<bool>(), unique).prop_map(
        |(d, e, stamp, own, held, partial, unique)| Fields {
            d,
            e,
            stamp,
            own,
            held,
            partial,
            unique,
            number: 0,
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        dates().prop_map(Change::D),
        dates().prop_map(Change::E),
        select(OWN.to_vec()).prop_map(Change::Own),
        select(HELD.to_vec()).prop_map(Change::Held),
        any::<bool>().prop_map(Change::Partial),
        Just(Change::Nothing),
    ]
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let (id, policy) = (0..12usize, 0..4usize);
    prop_oneof![
        5 => (id.clone(), fields()).prop_map(|(id, fields)| Step::Insert { id, fields }),
        5 => (id.clone(), fields()).prop_map(|(id, fields)| Step::Replace { id, fields }),
        5 => (id.clone(), change()).prop_map(|(id, change)| Step::Change { id, change }),
        2 => id.clone().prop_map(|id| Step::NoChange { id }),
        1 => any::<bool>().prop_map(|partial| Step::ChangeMany { partial }),
        1 => id.prop_map(|id| Step::Delete { id }),
        1 => (0..4u8).prop_map(|unique| Step::DeleteMany { unique }),
        5 => (0..15i64).prop_map(|secs| Step::Advance { secs }),
        1 => (policy.clone(), seconds(true))
            .prop_map(|(policy, secs)| Step::SetSeconds { policy, secs }),
        1 => policy.clone().prop_map(|policy| Step::SwitchOff { policy }),
        2 => (policy.clone(), options())
            .prop_map(|(policy, options)| Step::SetOptions { policy, options }),
        1 => policy.prop_map(|policy| Step::MakeAnew { policy }),
        1 => any::<bool>().prop_map(|on| Step::LastModified { on }),
        1 => any::<bool>().prop_map(|ahead| Step::Jump { ahead }),
        2 => select(vec![Step::JumpBack, Step::Resume]),
        5 => Just(Step::Pass),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ]
}

/// The `_id` with this number: in clustered collections some are dates, two of them before 1970.
fn id_in(model: &Model, id: usize) -> Id {
    let clustered = model.policies.iter().any(|policy| policy.kind == Kind::Clustered);
    let number = i32::try_from(id).unwrap_or(0);
    match (clustered, number) {
        (true, 0..=7) => Id::Date(START + i64::from(number - 4) * 7000),
        (true, 8..=9) => Id::Date(i64::from(number - 10) * 1000),
        _ => Id::Number(number),
    }
}

/// Runs a write. Returns true if it succeeded, and false for a duplicate key.
fn write(fixture: &Fixture, command: &str) -> bool {
    let reply = fixture.run("test", command);
    let reply = reply.as_doc();
    let Some(errors) = reply.get("writeErrors").and_then(RawValue::as_array) else {
        assert_eq!(reply.get("ok"), Some(RawValue::Double(1.0)), "{}", dialect::show(reply));
        return true;
    };
    let error = errors.iter().next().and_then(|element| element.value().as_document()).unwrap();
    assert_eq!(error.get("code"), Some(RawValue::Int32(11000)), "{command}");
    false
}

impl Step {
    pub(super) fn run(
        &self,
        fixture: &mut Fixture,
        model: &mut Model,
        at: i64,
    ) -> Result<(), TestCaseError> {
        let now = fixture.env().now_ms;
        match self {
            Step::Insert { id, fields } => {
                let (id, fields) = (id_in(model, *id), Fields { number: at, ..fields.from(now) });
                let document = format!("{{_id: {}{}}}", id.show(), fields.show());
                let free = !model.is_visible(id, now) && !model.in_the_way(id, fields.unique, now);
                let done = write(fixture, &format!("{{insert: 'c', documents: [{document}]}}"));
                prop_assert_eq!(done, free, "insert {}", document);
                if done {
                    model.put(id, fields, now);
                }
            }
            Step::Replace { id, fields } => {
                let (id, fields) = (id_in(model, *id), Fields { number: at, ..fields.from(now) });
                let document = format!("{{_id: {}{}}}", id.show(), fields.show());
                let update = format!("{{q: {{_id: {}}}, u: {document}, upsert: true}}", id.show());
                let free = !model.in_the_way(id, fields.unique, now);
                let done = write(fixture, &format!("{{update: 'c', updates: [{update}]}}"));
                prop_assert_eq!(done, free, "replace {}", document);
                if done {
                    model.put(id, fields, now);
                }
            }
            Step::Change { id, change } => change.run(fixture, model, id_in(model, *id), at),
            Step::NoChange { id } => {
                let id = id_in(model, *id);
                let Some(number) = model.visible(now).get(&id).copied() else { return Ok(()) };
                let update = format!("{{q: {{_id: {}}}, u: {{$set: {{n: {number}}}}}}}", id.show());
                fixture.ok("test", &format!("{{update: 'c', updates: [{update}]}}"));
            }
            Step::Delete { id } => {
                let id = id_in(model, *id);
                let delete = format!("{{q: {{_id: {}}}, limit: 1}}", id.show());
                fixture.ok("test", &format!("{{delete: 'c', deletes: [{delete}]}}"));
                if model.is_visible(id, now) {
                    model.documents.remove(&id);
                }
            }
            Step::ChangeMany { partial } => change_many(fixture, model, *partial, at),
            Step::DeleteMany { unique } => {
                let delete = format!("{{q: {{u: {unique}}}, limit: 0}}");
                fixture.ok("test", &format!("{{delete: 'c', deletes: [{delete}]}}"));
                let visible = model.visible(now);
                model.documents.retain(|id, stored| {
                    stored.fields.unique != Some(*unique) || !visible.contains_key(id)
                });
            }
            Step::Advance { secs } => fixture.clock.advance_ms(secs * 1000),
            Step::Pass => {
                fixture.ttl_pass();
                model.pass(now);
            }
            Step::Jump { ahead } => {
                if model.jumped_ms.is_none() {
                    let by = if *ahead { JUMP_MS } else { -JUMP_MS };
                    fixture.clock.set_wall_ms(now + by);
                    model.jumped_ms = Some(by);
                }
            }
            Step::JumpBack => {
                if let Some(by) = model.jumped_ms.take() {
                    fixture.clock.set_wall_ms(now - by);
                    // A start reads the time of the last write.
                    fixture.ok("test", "{insert: 'other', documents: [{}]}");
                }
            }
            Step::Resume => {
                fixture.ok("admin", "{ttlResume: 1}");
                model.jumped_ms = None;
            }
            Step::Restart | Step::Crash => {
                if model.jumped_ms.is_some() {
                    // A pass records the suspension, which must survive a crash.
                    fixture.ttl_pass();
                }
                match self {
                    Step::Restart => fixture.restart(),
                    _ => fixture.crash(),
                }
                // Parameters that were set at run time are forgotten.
                model.last_modified = true;
            }
            Step::LastModified { on } => {
                fixture.ok("admin", &format!("{{setParameter: 1, lastModifiedTTL: {on}}}"));
                model.last_modified = *on;
            }
            Step::SetSeconds { policy, .. }
            | Step::SwitchOff { policy }
            | Step::SetOptions { policy, .. }
            | Step::MakeAnew { policy } => {
                if *policy < model.policies.len() {
                    self.change_policy(fixture, model, *policy);
                }
            }
        }
        Ok(())
    }

    fn change_policy(&self, fixture: &Fixture, model: &mut Model, policy: usize) {
        let modified = model.policies[policy].kind == Kind::Modified;
        let clustered = model.policies[policy].kind == Kind::Clustered;
        let policy = &mut model.policies[policy];
        let name = policy.name();
        let is_policy = policy.seconds.is_some();
        let change = match self {
            Step::SetSeconds { secs, .. } if is_policy || !modified => {
                let secs = match (modified, *secs) {
                    (true, 0) => 1,
                    (true, secs) => secs,
                    (false, secs) => secs.max(0),
                };
                policy.seconds = Some(secs);
                format!("expireAfterSeconds: {secs}")
            }
            Step::SwitchOff { .. } => {
                policy.seconds = None;
                policy.options = Options::default();
                if modified {
                    // It cannot become a plain index.
                    if is_policy {
                        fixture.ok("test", "{dropIndexes: 'c', index: '_ts'}");
                    }
                    return;
                }
                "expireAfterSeconds: 'off'".to_owned()
            }
            Step::SetOptions { options, .. } if is_policy => {
                policy.options = *options;
                format!("ttl: {}", options.show())
            }
            Step::MakeAnew { .. } if !clustered => {
                if modified {
                    fixture.ok("admin", "{setParameter: 1, lastModifiedTTL: true}");
                    model.last_modified = true;
                    policy.seconds.get_or_insert(5);
                }
                if is_policy || !modified {
                    fixture.ok("test", &format!("{{dropIndexes: 'c', index: '{name}'}}"));
                }
                let index = policy.show();
                fixture.ok("test", &format!("{{createIndexes: 'c', indexes: [{index}]}}"));
                return;
            }
            _ => return,
        };
        match clustered {
            true => fixture.ok("test", &format!("{{collMod: 'c', {change}}}")),
            false => {
                let index = format!("{{name: '{name}', {change}}}");
                fixture.ok("test", &format!("{{collMod: 'c', index: {index}}}"))
            }
        };
    }
}

fn change_many(fixture: &Fixture, model: &mut Model, partial: bool, at: i64) {
    let now = fixture.env().now_ms;
    // Every document must get a number of its own.
    let more = MANY * (at + 1);
    let number = format!("[{{$set: {{n: {{$add: ['$n', {more}]}}}}}}]");
    let update = format!("{{q: {{p: {partial}}}, u: {number}, multi: true}}");
    fixture.ok("test", &format!("{{update: 'c', updates: [{update}]}}"));
    for id in model.visible(now).into_keys() {
        if let Some(stored) = model.documents.get_mut(&id)
            && stored.fields.partial == partial
        {
            stored.fields.number += more;
            stored.modified = now;
        }
    }
}

impl Change {
    fn run(&self, fixture: &Fixture, model: &mut Model, id: Id, at: i64) {
        let now = fixture.env().now_ms;
        let (name, value) = match self {
            Change::D(dates) => ("d", dates.from(now).show().unwrap_or_default()),
            Change::E(dates) => ("e", dates.from(now).show().unwrap_or_default()),
            Change::Own(own) => ("ttl", own.0.to_owned()),
            Change::Held(held) => ("legal", held.0.to_owned()),
            Change::Partial(partial) => ("p", partial.to_string()),
            Change::Nothing => ("n", at.to_string()),
        };
        let change = match (name, value.as_str()) {
            ("n", _) => format!("$set: {{n: {at}}}"),
            (name, "") => format!("$set: {{n: {at}}}, $unset: {{{name}: 1}}"),
            (name, value) => format!("$set: {{n: {at}, {name}: {value}}}"),
        };
        let update = format!("{{q: {{_id: {}}}, u: {{{change}}}}}", id.show());
        fixture.ok("test", &format!("{{update: 'c', updates: [{update}]}}"));
        if !model.is_visible(id, now) {
            return;
        }
        let Some(stored) = model.documents.get_mut(&id) else { return };
        stored.modified = now;
        let fields = &mut stored.fields;
        fields.number = at;
        match self {
            Change::D(dates) => fields.d = dates.from(now),
            Change::E(dates) => fields.e = dates.from(now),
            Change::Own(own) => fields.own = *own,
            Change::Held(held) => fields.held = *held,
            Change::Partial(partial) => fields.partial = *partial,
            Change::Nothing => {}
        }
    }
}
