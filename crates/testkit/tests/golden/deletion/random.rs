//! Random documents, filters and steps. A seed determines the whole case.

use mayfly_testkit::START_MS;
use mayfly_value::RawValue;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::filter::{Bits, Comparison, Filter, Item, PATTERNS, Schema, TYPES, Test};
use super::value::{Class, Fields, SCALARS, Value};
use super::{Case, Options, Policy, Pull, Step};

const PATHS: &[&str] = &["a", "b", "c", "a.b", "a.b.d", "b.d"];
/// Indexes that only make queries fast. `c` is never an array, so it can be combined with any other
/// field.
const INDEXES: &[&str] = &[
    "{key: {a: 1}, name: 'a'}",
    "{key: {b: -1}, name: 'b'}",
    "{key: {c: 1}, name: 'c'}",
    "{key: {'a.b': 1}, name: 'ab'}",
    "{key: {a: 1, c: -1}, name: 'ac'}",
    "{key: {c: 1, 'b.d': 1}, name: 'cbd'}",
    "{key: {b: 1}, name: 'sparse', sparse: true}",
    "{key: {'$**': 1}, name: 'all'}",
    "{key: {'a.$**': 1}, name: 'below'}",
    "{key: {c: 'hashed'}, name: 'hashed'}",
    "{key: {a: 1}, name: 'partial', partialFilterExpression: {b: {$exists: true}}}",
    "{key: {c: 1}, name: 'partly', partialFilterExpression: {a: {$gte: 1}}}",
    "{key: {b: 1, c: 1}, name: 'typed', partialFilterExpression: {c: {$type: 'string'}}}",
];

pub(super) fn case(seed: u64) -> Case {
    let mut random = Random { numbers: StdRng::seed_from_u64(seed), stored: Vec::new() };
    let mut case = Case {
        documents: Vec::new(),
        indexes: Vec::new(),
        policy: random.policy(),
        steps: Vec::new(),
    };
    for id in 0..random.up_to(7) {
        let document = random.document(id);
        let plain = document.iter().filter(|(name, _)| !matches!(*name, "_id" | "g"));
        plain.for_each(|(_, value)| random.note(value));
        case.documents.push(document);
    }
    for _ in 0..random.up_to(3) {
        let index = random.one(INDEXES);
        if !case.indexes.contains(&index) {
            case.indexes.push(index);
        }
    }
    for at in 0..=random.up_to(3) {
        let step = random.step(at);
        case.steps.push(step);
    }
    case
}

struct Random {
    numbers: StdRng,
    /// All values of the documents except `_id` and points, so that filters often compare with
    /// stored values.
    stored: Vec<Value>,
}

impl Random {
    fn up_to(&mut self, most: i32) -> i32 {
        self.numbers.random_range(0..=most)
    }

    fn percent(&mut self, percent: u32) -> bool {
        self.numbers.random_ratio(percent, 100)
    }

    fn one<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.numbers.random_range(0..list.len())]
    }

    fn several<T>(&mut self, least: i32, most: i32, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = least + self.up_to(most - least);
        (0..count).map(|_| one(self)).collect()
    }

    fn scalar(&mut self) -> Value {
        let row = self.numbers.random_range(0..SCALARS.len());
        // Most filters compare strings, numbers and null.
        match SCALARS[row].class {
            Class::Number | Class::Text | Class::Null => Value::Scalar(row),
            _ if self.percent(50) => self.scalar(),
            _ => Value::Scalar(row),
        }
    }

    fn value(&mut self, depth: u32) -> Value {
        match self.numbers.random_range(0..10) {
            0 | 1 if depth > 0 => {
                Value::Array(self.several(0, 3, |random| random.value(depth - 1)))
            }
            2 | 3 if depth > 0 => Value::Document(self.fields(depth - 1)),
            _ => self.scalar(),
        }
    }

    fn fields(&mut self, depth: u32) -> Fields {
        let mut fields = Fields::new();
        for name in ["b", "d"] {
            if self.percent(60) {
                fields.push((name, self.value(depth)));
            }
        }
        fields
    }

    fn document(&mut self, id: i32) -> Fields {
        let mut fields = vec![("_id", int(id))];
        for (name, percent) in [("a", 90), ("b", 70)] {
            if self.percent(percent) {
                fields.push((name, self.value(3)));
            }
        }
        if self.percent(70) {
            fields.push(("c", self.scalar()));
        }
        if self.percent(25) {
            let point = [int(self.up_to(3)), int(self.up_to(3))];
            fields.push(("g", Value::Array(point.into())));
        }
        if self.percent(60) {
            let at = match self.up_to(4) {
                0 => self.scalar(),
                1 => Value::Array(self.several(0, 3, Random::date)),
                _ => self.date(),
            };
            fields.push(("at", at));
        }
        if self.percent(20) {
            let held = self.one(&[RawValue::Bool(true), RawValue::Bool(false), RawValue::Int32(1)]);
            fields.push(("held", Value::scalar(held)));
        }
        fields
    }

    fn date(&mut self) -> Value {
        let dates = [i64::MIN, -1, 0, START_MS, i64::MAX];
        Value::scalar(RawValue::Date(self.one(&dates)))
    }

    fn options(&mut self) -> Options {
        Options {
            hide: self.percent(50),
            paused: self.percent(30),
            hold: self.percent(40),
            archive: self.percent(40),
        }
    }

    fn policy(&mut self) -> Option<Policy> {
        let seconds = i64::from(self.up_to(10));
        let options = self.options();
        self.percent(40).then_some(Policy { seconds, options })
    }

    fn step(&mut self, at: i32) -> Step {
        match self.numbers.random_range(0..20) {
            0 => Step::Insert(self.document(10 + at)),
            1..=2 => Step::Advance(i64::from(self.up_to(8))),
            3..=4 => Step::Pass,
            5 => Step::SetOptions(self.options()),
            6 if self.percent(70) => Step::Rename,
            6 => Step::RenameOverArchive,
            7..=8 => Step::Pull(self.pull()),
            9..=11 => Step::Remove { filter: self.filter(2), last: self.percent(50) },
            12..=13 => Step::DeleteOne(self.filter(2)),
            _ => Step::DeleteMany(self.filter(2)),
        }
    }

    fn note(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.note(item)),
            Value::Document(fields) => fields.iter().for_each(|(_, value)| self.note(value)),
            Value::Scalar(_) | Value::Integer(_) => {}
        }
        self.stored.push(value.clone());
    }

    /// A value that a filter may compare with, often one that is stored.
    fn operand(&mut self) -> Value {
        loop {
            let value = match self.stored.len() {
                1.. if self.percent(60) => {
                    let at = self.numbers.random_range(0..self.stored.len());
                    self.stored[at].clone()
                }
                _ => self.value(2),
            };
            if !matches!(value.class(), Class::Regex | Class::Undefined) {
                return value;
            }
        }
    }

    fn filter(&mut self, depth: u32) -> Filter {
        let inner = |random: &mut Random| random.several(1, 3, |random| random.filter(depth - 1));
        match self.numbers.random_range(0..100) {
            0..10 if depth > 0 => Filter::And(inner(self)),
            10..20 if depth > 0 => Filter::Or(inner(self)),
            20..30 if depth > 0 => Filter::Nor(inner(self)),
            30..36 => {
                let comparison = self.one(&Comparison::ALL);
                Filter::Expr(comparison, self.one(&["a", "b", "c"]), self.operand())
            }
            36..41 => Filter::Schema(self.schema()),
            41 => Filter::Script(self.one(&["a", "b", "c"]), self.one(&["", "ab", "b"])),
            42..44 => match self.up_to(2) {
                0 => Filter::Constant("$alwaysTrue", true),
                1 => Filter::Constant("$alwaysFalse", false),
                _ => Filter::Constant("$sampleRate", self.percent(50)),
            },
            44 => Filter::Comment,
            45..52 => Filter::Is(self.one(PATHS), self.operand()),
            52..55 => Filter::Field("g", vec![Test::Box(self.up_to(3))]),
            55..58 => {
                let comparison = self.one(&Comparison::ALL);
                Filter::Field("_id", vec![Test::Compare(comparison, int(self.up_to(2)))])
            }
            _ => Filter::Field(self.one(PATHS), self.tests()),
        }
    }

    fn schema(&mut self) -> Schema {
        let name = self.one(&["a", "b", "c"]);
        match self.up_to(3) {
            0 => Schema::Required(name),
            1 => Schema::NotRequired(name),
            2 => Schema::Minimum(name, self.up_to(3)),
            _ => Schema::BsonType(name, self.one(TYPES)),
        }
    }

    fn tests(&mut self) -> Vec<Test> {
        let first = self.test(true);
        let second = self.test(true);
        let differ = std::mem::discriminant(&first) != std::mem::discriminant(&second);
        if differ && self.percent(25) { vec![first, second] } else { vec![first] }
    }

    /// A test; `whole` allows tests of arrays.
    fn test(&mut self, whole: bool) -> Test {
        match self.numbers.random_range(0..34) {
            0..10 => Test::Compare(self.one(&Comparison::ALL), self.operand()),
            10..13 => Test::In(self.several(0, 3, Random::item)),
            13..16 => Test::NotIn(self.several(0, 3, Random::item)),
            16..18 => Test::Exists(self.percent(50)),
            18..20 => Test::Type(self.several(1, 2, |random| random.one(TYPES))),
            20..22 => Test::Mod(self.one(&[2, 3, -2, 5]), self.one(&[0, 1, -1])),
            22..24 => Test::Regex(self.numbers.random_range(0..PATTERNS.len())),
            24 => Test::Size(self.one(&[0, 1, 2, 3])),
            25..27 => {
                let kind = self.one(&[Bits::AllSet, Bits::AnySet, Bits::AllClear, Bits::AnyClear]);
                Test::Bits(kind, self.several(1, 3, |random| random.one(&[0, 1, 2, 8, 15, 52, 70])))
            }
            27..29 if whole => Test::All(self.several(0, 2, Random::operand)),
            29..31 if whole => {
                let tests = self.several(1, 1, |random| random.test(false));
                Test::ElemMatch(tests)
            }
            31..32 if whole => {
                let path = self.one(&["b", "d", "b.d"]);
                let filter = Filter::Field(path, vec![self.test(false)]);
                Test::ElemMatchDocument(Box::new(filter))
            }
            27..34 => match self.test(false) {
                Test::Not(test) => *test,
                test => Test::Not(Box::new(test)),
            },
            _ => Test::Exists(true),
        }
    }

    fn item(&mut self) -> Item {
        match self.percent(15) {
            true => Item::Regex(self.numbers.random_range(0..PATTERNS.len())),
            false => Item::Value(self.operand()),
        }
    }

    fn pull(&mut self) -> Pull {
        match self.up_to(2) {
            0 => loop {
                let value = self.operand();
                if value.class() != Class::Document {
                    return Pull::Equal(value);
                }
            },
            1 => {
                let path = self.one(&["b", "d", "b.d"]);
                Pull::Documents(Filter::Field(path, vec![self.test(true)]))
            }
            _ => {
                // A condition of `$pull` must not begin with `$not`.
                let mut test = self.test(true);
                while let Test::Not(inner) = test {
                    test = *inner;
                }
                Pull::Items(test)
            }
        }
    }
}

fn int(number: i32) -> Value {
    Value::Integer(number)
}
