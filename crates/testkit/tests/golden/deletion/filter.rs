//! Filters, their BSON form, and the documents that they select according to the manual. The oracle
//! uses no plans, no keys and no code of the server: it evaluates small trees. Manual: "Query and
//! Projection Operators" and the pages of the operators.

use std::cmp::Ordering;

use mayfly_value::{DocBuf, DocBuilder, RawValue};

use super::value::{Class, Fields, Value, field};

/// A filter.
#[derive(Clone, Debug)]
pub(super) enum Filter {
    /// A path and a value, without an operator.
    Is(&'static str, Value),
    /// A path and tests of its values.
    Field(&'static str, Vec<Test>),
    And(Vec<Filter>),
    Or(Vec<Filter>),
    Nor(Vec<Filter>),
    /// `$expr` that compares a field at the top with a constant.
    Expr(Comparison, &'static str, Value),
    /// `$jsonSchema`.
    Schema(Schema),
    /// `$where`: the field is this string.
    Script(&'static str, &'static str),
    /// `$alwaysTrue`, `$alwaysFalse`, `$sampleRate` with 1 or 0.
    Constant(&'static str, bool),
    Comment,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The test of one operator.
#[derive(Clone, Debug)]
pub(super) enum Test {
    Compare(Comparison, Value),
    In(Vec<Item>),
    NotIn(Vec<Item>),
    Exists(bool),
    /// Numbers of types, `None` for "number".
    Type(Vec<Option<i32>>),
    Mod(i64, i64),
    Regex(usize),
    Size(usize),
    All(Vec<Value>),
    ElemMatch(Vec<Test>),
    ElemMatchDocument(Box<Filter>),
    Bits(Bits, Vec<u8>),
    /// `$geoWithin` with a `$box` from the origin to (n, n).
    Box(i32),
    Not(Box<Test>),
}

/// A member of the list of `$in`.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Value(Value),
    Regex(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Bits {
    AllSet,
    AnySet,
    AllClear,
    AnyClear,
}

#[derive(Clone, Debug)]
pub(super) enum Schema {
    Required(&'static str),
    BsonType(&'static str, Option<i32>),
    Minimum(&'static str, i32),
    NotRequired(&'static str),
}

/// A pattern, its options, and the texts that it matches.
pub(super) struct Pattern {
    pub pattern: &'static str,
    pub options: &'static str,
    matches: fn(&str) -> bool,
}

/// Patterns with an obvious meaning. For some, engines that backtrack take exponential time.
pub(super) static PATTERNS: &[Pattern] = &[
    Pattern { pattern: "^a", options: "", matches: |text| text.starts_with('a') },
    Pattern { pattern: "^a", options: "i", matches: |text| text.starts_with(['a', 'A']) },
    Pattern { pattern: "b", options: "", matches: |text| text.contains('b') },
    Pattern { pattern: "c$", options: "", matches: |text| text.ends_with('c') },
    Pattern { pattern: "", options: "", matches: |_| true },
    Pattern { pattern: "^$", options: "", matches: str::is_empty },
    Pattern {
        pattern: "^(a+)+$|c$",
        options: "",
        matches: |text| {
            text.ends_with('c') || (!text.is_empty() && text.bytes().all(|byte| byte == b'a'))
        },
    },
    Pattern {
        pattern: "^(a|a)*b",
        options: "",
        matches: |text| text.trim_start_matches('a').starts_with('b'),
    },
    Pattern {
        pattern: "é|^.$",
        options: "s",
        matches: |text| text.contains('é') || text.chars().count() == 1,
    },
];

impl Comparison {
    pub(super) const ALL: [Comparison; 6] = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ];

    fn name(self) -> &'static str {
        match self {
            Comparison::Equal => "$eq",
            Comparison::NotEqual => "$ne",
            Comparison::Less => "$lt",
            Comparison::LessOrEqual => "$lte",
            Comparison::Greater => "$gt",
            Comparison::GreaterOrEqual => "$gte",
        }
    }

    fn holds(self, order: Ordering) -> bool {
        match self {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
        }
    }

    fn or_equal(self) -> bool {
        use Comparison::{Equal, GreaterOrEqual, LessOrEqual};
        matches!(self, Equal | LessOrEqual | GreaterOrEqual)
    }

    /// Whether a comparison of a filter is true for a value, or for a missing field.
    fn of(self, found: Option<&Value>, operand: &Value) -> bool {
        let Some(found) = found else {
            // A missing field compares as null. Every value is above MinKey and below MaxKey.
            return match operand.class() {
                Class::Null => self.or_equal(),
                Class::MinKey => matches!(self, Comparison::Greater | Comparison::GreaterOrEqual),
                Class::MaxKey => matches!(self, Comparison::Less | Comparison::LessOrEqual),
                _ => false,
            };
        };
        if found.class() != operand.class() {
            return match operand.class() {
                Class::MinKey => matches!(self, Comparison::Greater | Comparison::GreaterOrEqual),
                Class::MaxKey => matches!(self, Comparison::Less | Comparison::LessOrEqual),
                _ => false,
            };
        }
        if found.is_nan() || operand.is_nan() {
            return self.or_equal() && found.is_nan() && operand.is_nan();
        }
        self.holds(found.compare(operand))
    }
}

/// The values that a path reaches; `expand` adds the items of an array at its end. `None` is a
/// missing field.
fn hits<'f>(fields: &'f Fields, path: &str, expand: bool, out: &mut Vec<Option<&'f Value>>) {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    let found = field(fields, name);
    match (found, rest) {
        (Some(Value::Document(inner)), Some(rest)) => hits(inner, rest, expand, out),
        (Some(Value::Array(items)), Some(rest)) => {
            for item in items {
                if let Value::Document(inner) = item {
                    hits(inner, rest, expand, out);
                }
            }
        }
        (_, Some(_)) => out.push(None),
        (Some(Value::Array(items)), None) if expand => {
            out.extend(items.iter().map(Some));
            out.push(found);
        }
        (found, None) => out.push(found),
    }
}

impl Filter {
    /// Whether the filter selects the document.
    pub(super) fn selects(&self, fields: &Fields) -> bool {
        match self {
            Filter::Is(path, value) => {
                Test::Compare(Comparison::Equal, value.clone()).holds_at(fields, path)
            }
            Filter::Field(path, tests) => tests.iter().all(|test| test.holds_at(fields, path)),
            Filter::And(all) => all.iter().all(|filter| filter.selects(fields)),
            Filter::Or(any) => any.iter().any(|filter| filter.selects(fields)),
            Filter::Nor(none) => !none.iter().any(|filter| filter.selects(fields)),
            Filter::Expr(comparison, name, operand) => {
                // Expressions compare whole values of all types; a missing one comes before all but
                // MinKey.
                let order = match field(fields, name) {
                    Some(found) => found.compare(operand),
                    None if operand.class() == Class::MinKey => Ordering::Greater,
                    None => Ordering::Less,
                };
                comparison.holds(order)
            }
            Filter::Schema(schema) => schema.accepts(fields),
            Filter::Script(name, text) => {
                field(fields, name).and_then(Value::raw) == Some(RawValue::String(text))
            }
            Filter::Constant(_, answer) => *answer,
            Filter::Comment => true,
        }
    }

    pub(super) fn show(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        self.write(&mut out);
        out.finish()
    }

    fn write(&self, out: &mut DocBuilder) {
        let mut list = |name: &str, filters: &[Filter]| {
            out.start_array(name);
            for filter in filters {
                out.push(RawValue::Document(filter.show().as_doc()));
            }
            out.end();
        };
        match self {
            Filter::And(filters) => list("$and", filters),
            Filter::Or(filters) => list("$or", filters),
            Filter::Nor(filters) => list("$nor", filters),
            Filter::Is(path, value) => value.append(path, out),
            Filter::Field(path, tests) => {
                out.start_document(path);
                tests.iter().for_each(|test| test.write(out));
                out.end();
            }
            Filter::Expr(comparison, name, value) => {
                out.start_document("$expr")
                    .start_array(comparison.name())
                    .push(format!("${name}").as_str());
                out.push_document();
                value.append("$literal", out);
                out.end().end().end();
            }
            Filter::Schema(schema) => schema.write(out),
            Filter::Script(name, text) => {
                out.append("$where", format!("return this.{name} === '{text}'").as_str());
            }
            Filter::Constant("$sampleRate", answer) => {
                out.append("$sampleRate", f64::from(u8::from(*answer)));
            }
            Filter::Constant(name, _) => drop(out.append(name, 1)),
            Filter::Comment => drop(out.append("$comment", "why")),
        }
    }
}

impl Schema {
    fn accepts(&self, fields: &Fields) -> bool {
        match self {
            Schema::Required(name) => field(fields, name).is_some(),
            Schema::NotRequired(name) => field(fields, name).is_none(),
            Schema::BsonType(name, code) => {
                field(fields, name).is_none_or(|value| has_type(value, *code))
            }
            Schema::Minimum(name, least) => field(fields, name).is_none_or(|value| {
                let least = Value::scalar(RawValue::Int32(*least));
                value.class() != Class::Number || Comparison::GreaterOrEqual.of(Some(value), &least)
            }),
        }
    }

    fn write(&self, out: &mut DocBuilder) {
        out.start_document("$jsonSchema");
        match self {
            Schema::Required(name) => drop(out.start_array("required").push(*name).end()),
            Schema::NotRequired(name) => {
                out.start_document("not").start_array("required").push(*name).end().end();
            }
            Schema::BsonType(name, code) => {
                out.start_document("properties").start_document(name);
                out.append("bsonType", type_alias(*code)).end().end();
            }
            Schema::Minimum(name, least) => {
                out.start_document("properties").start_document(name).append("minimum", *least);
                out.end().end();
            }
        }
        out.end();
    }
}

/// The names of types in schemas.
fn type_alias(code: Option<i32>) -> &'static str {
    match code {
        None => "number",
        Some(1) => "double",
        Some(2) => "string",
        Some(3) => "object",
        Some(4) => "array",
        Some(5) => "binData",
        Some(7) => "objectId",
        Some(8) => "bool",
        Some(9) => "date",
        Some(10) => "null",
        Some(11) => "regex",
        Some(14) => "symbol",
        Some(16) => "int",
        Some(17) => "timestamp",
        Some(18) => "long",
        Some(19) => "decimal",
        Some(-1) => "minKey",
        Some(127) => "maxKey",
        other => panic!("no alias for {other:?}"),
    }
}

/// The types in `$type` tests.
pub(super) const TYPES: &[Option<i32>] = &[
    None,
    Some(1),
    Some(2),
    Some(3),
    Some(4),
    Some(5),
    Some(7),
    Some(8),
    Some(9),
    Some(10),
    Some(11),
    Some(14),
    Some(16),
    Some(17),
    Some(18),
    Some(19),
    Some(-1),
    Some(127),
];

fn has_type(value: &Value, code: Option<i32>) -> bool {
    match code {
        None => value.class() == Class::Number,
        Some(code) => value.type_code() == code,
    }
}

impl Test {
    /// Whether the values at a path satisfy the test.
    pub(super) fn holds_at(&self, fields: &Fields, path: &str) -> bool {
        let at = |expand| {
            let mut found = Vec::new();
            hits(fields, path, expand, &mut found);
            found
        };
        match self {
            Test::Compare(Comparison::NotEqual, value) => {
                !Test::Compare(Comparison::Equal, value.clone()).holds_at(fields, path)
            }
            Test::NotIn(items) => !Test::In(items.clone()).holds_at(fields, path),
            Test::Not(test) => !test.holds_at(fields, path),
            Test::Exists(exists) => at(false).iter().any(Option::is_some) == *exists,
            Test::All(values) => {
                let has = |value: &Value| {
                    Test::Compare(Comparison::Equal, value.clone()).holds_at(fields, path)
                };
                !values.is_empty() && values.iter().all(has)
            }
            Test::Size(_) | Test::ElemMatch(_) | Test::ElemMatchDocument(_) | Test::Box(_) => {
                at(false).into_iter().any(|found| self.holds(found))
            }
            _ => at(true).into_iter().any(|found| self.holds(found)),
        }
    }

    /// Whether one value satisfies the test; items of arrays are not tested.
    fn holds(&self, found: Option<&Value>) -> bool {
        match self {
            Test::Compare(Comparison::NotEqual, value) => !Comparison::Equal.of(found, value),
            Test::Compare(comparison, value) => comparison.of(found, value),
            Test::In(items) => items.iter().any(|item| item.holds(found)),
            Test::NotIn(items) => !items.iter().any(|item| item.holds(found)),
            Test::Not(test) => !test.holds(found),
            Test::Exists(exists) => found.is_some() == *exists,
            Test::Type(codes) => {
                found.is_some_and(|value| codes.iter().any(|code| has_type(value, *code)))
            }
            Test::Mod(divisor, remainder) => found
                .and_then(Value::truncated)
                .is_some_and(|number| number.wrapping_rem(*divisor) == *remainder),
            Test::Regex(pattern) => Item::Regex(*pattern).holds(found),
            Test::Size(size) => matches!(found, Some(Value::Array(items)) if items.len() == *size),
            // Only reached inside `$elemMatch`, where the generator makes none.
            Test::All(_) => false,
            Test::ElemMatch(tests) => match found {
                Some(Value::Array(items)) => {
                    items.iter().any(|item| tests.iter().all(|test| test.holds(Some(item))))
                }
                _ => false,
            },
            Test::ElemMatchDocument(filter) => match found {
                Some(Value::Array(items)) => items.iter().any(|item| match item {
                    Value::Document(fields) => filter.selects(fields),
                    // An array is a document whose fields are numbers: none that a filter names
                    // here.
                    Value::Array(_) => filter.selects(&Vec::new()),
                    Value::Scalar(_) | Value::Integer(_) => false,
                }),
                _ => false,
            },
            Test::Bits(kind, positions) => found.is_some_and(|value| kind.hold(value, positions)),
            Test::Box(side) => match found {
                Some(Value::Array(point)) => {
                    let inside = |at: &Value| {
                        at.whole().is_some_and(|at| (0..=i64::from(*side)).contains(&at))
                    };
                    point.len() == 2 && point.iter().all(inside)
                }
                _ => false,
            },
        }
    }

    pub(super) fn show(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        self.write(&mut out);
        out.finish()
    }

    fn write(&self, out: &mut DocBuilder) {
        match self {
            Test::Compare(comparison, value) => value.append(comparison.name(), out),
            Test::In(items) => Item::write(items, "$in", out),
            Test::NotIn(items) => Item::write(items, "$nin", out),
            Test::Exists(exists) => drop(out.append("$exists", *exists)),
            Test::Type(codes) => {
                out.start_array("$type");
                for code in codes {
                    match code {
                        Some(code) => drop(out.push(*code)),
                        None => drop(out.push("number")),
                    }
                }
                out.end();
            }
            Test::Mod(divisor, remainder) => {
                out.start_array("$mod").push(*divisor).push(*remainder).end();
            }
            Test::Regex(at) => {
                let Pattern { pattern, options, .. } = &PATTERNS[*at];
                out.append("$regex", *pattern).append("$options", *options);
            }
            Test::Size(size) => drop(out.append("$size", *size as i64)),
            Test::All(values) => {
                out.start_array("$all");
                values.iter().for_each(|value| value.push(out));
                out.end();
            }
            Test::ElemMatch(tests) => {
                out.start_document("$elemMatch");
                tests.iter().for_each(|test| test.write(out));
                out.end();
            }
            Test::ElemMatchDocument(filter) => {
                out.append("$elemMatch", RawValue::Document(filter.show().as_doc()));
            }
            Test::Bits(kind, positions) => {
                out.start_array(kind.name());
                positions.iter().for_each(|position| {
                    out.push(i32::from(*position));
                });
                out.end();
            }
            Test::Box(side) => {
                out.start_document("$geoWithin").start_array("$box");
                out.push_array().push(0).push(0).end().push_array().push(*side).push(*side).end();
                out.end().end();
            }
            Test::Not(test) => {
                out.start_document("$not");
                test.write(out);
                out.end();
            }
        }
    }
}

impl Item {
    fn holds(&self, found: Option<&Value>) -> bool {
        match self {
            Item::Value(value) => Comparison::Equal.of(found, value),
            Item::Regex(at) => found.is_some_and(|value| {
                let Pattern { pattern, options, matches } = &PATTERNS[*at];
                let same = RawValue::Regex { pattern, options };
                value.text().is_some_and(matches) || value.raw() == Some(same)
            }),
        }
    }

    fn write(items: &[Item], name: &str, out: &mut DocBuilder) {
        out.start_array(name);
        for item in items {
            match item {
                Item::Value(value) => value.push(out),
                Item::Regex(at) => {
                    let Pattern { pattern, options, .. } = &PATTERNS[*at];
                    out.push(RawValue::Regex { pattern, options });
                }
            }
        }
        out.end();
    }
}

impl Bits {
    fn name(self) -> &'static str {
        match self {
            Bits::AllSet => "$bitsAllSet",
            Bits::AnySet => "$bitsAnySet",
            Bits::AllClear => "$bitsAllClear",
            Bits::AnyClear => "$bitsAnyClear",
        }
    }

    fn hold(self, value: &Value, positions: &[u8]) -> bool {
        let set = |position: u8| match value.raw()? {
            RawValue::Binary { bytes, .. } => {
                let byte = bytes.get(usize::from(position / 8)).copied().unwrap_or(0);
                Some(byte >> (position % 8) & 1 == 1)
            }
            // Bits beyond the width of a negative number are ones.
            _ => value.whole().map(|number| number >> position.min(63) & 1 == 1),
        };
        let bits: Option<Vec<bool>> = positions.iter().map(|position| set(*position)).collect();
        let Some(bits) = bits else { return false };
        match self {
            Bits::AllSet => bits.iter().all(|bit| *bit),
            Bits::AnySet => bits.iter().any(|bit| *bit),
            Bits::AllClear => bits.iter().all(|bit| !*bit),
            Bits::AnyClear => bits.iter().any(|bit| !*bit),
        }
    }
}
