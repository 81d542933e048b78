//! Values of all BSON types, and their order as a table taken from the manual. It does not use the
//! comparison of the server. Manual: "Comparison/Sort Order".

use std::cmp::Ordering;
use std::sync::LazyLock;

use mayfly_value::decimal::Decimal;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, ValueBuf};

/// A value; scalars are rows of [`SCALARS`].
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Scalar(usize),
    /// A small number that is compared with others of its kind alone: an `_id`, a coordinate.
    Integer(i32),
    Array(Vec<Value>),
    Document(Fields),
}

/// Fields in their order.
pub(super) type Fields = Vec<(&'static str, Value)>;

/// Classes of types that compare with each other, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    MinKey,
    Undefined,
    Null,
    Number,
    Text,
    Document,
    Array,
    Binary,
    ObjectId,
    Bool,
    Date,
    Timestamp,
    Regex,
    DbPointer,
    Code,
    CodeWithScope,
    MaxKey,
}

/// A row of the table.
pub(super) struct Scalar {
    pub value: ValueBuf,
    pub class: Class,
    /// Values of one class that compare as equal have the same rank.
    pub rank: usize,
    /// The whole number that it is, if 64 bits hold it.
    whole: Option<i64>,
    /// The number without its fraction, if 64 bits hold it.
    truncated: Option<i64>,
}

/// Every scalar, by class and rank.
pub(super) static SCALARS: LazyLock<Vec<Scalar>> = LazyLock::new(table);

/// The number of the type, as in `$type`.
pub(super) fn type_code(value: RawValue<'_>) -> i32 {
    match value {
        RawValue::MinKey => -1,
        RawValue::MaxKey => 127,
        other => i32::from(other.type_byte()),
    }
}

fn table() -> Vec<Scalar> {
    let double = |value: f64| RawValue::Double(value).to_owned();
    let int = |value: i32| RawValue::Int32(value).to_owned();
    let long = |value: i64| RawValue::Int64(value).to_owned();
    let decimal = |text: &str| {
        RawValue::Decimal128(Decimal::parse(text).expect("a decimal").to_bytes()).to_owned()
    };
    let plain = |value: RawValue<'_>| vec![value.to_owned()];
    let whole = |number: i64| (Some(number), Some(number));
    let fraction = |truncated: i64| (None, Some(truncated));
    const BEYOND: (Option<i64>, Option<i64>) = (None, None);
    let numbers = vec![
        (BEYOND, vec![double(f64::NAN), decimal("NaN")]),
        (BEYOND, vec![double(f64::NEG_INFINITY), decimal("-Infinity")]),
        (BEYOND, vec![decimal("-9.9E6000")]),
        (BEYOND, vec![double(f64::MIN)]),
        (whole(i64::MIN), vec![long(i64::MIN), double(-9_223_372_036_854_775_808.0)]),
        (whole(-9_007_199_254_740_993), vec![long(-9_007_199_254_740_993)]),
        (whole(-9_007_199_254_740_992), vec![double(-9_007_199_254_740_992.0)]),
        (fraction(-1), vec![double(-1.5), decimal("-1.5"), decimal("-1.50")]),
        (whole(-1), vec![int(-1), long(-1), double(-1.0), decimal("-1")]),
        (fraction(0), vec![double(-0.5)]),
        (
            whole(0),
            vec![int(0), long(0), double(0.0), double(-0.0), decimal("0"), decimal("-0E+3")],
        ),
        (fraction(0), vec![decimal("1E-6000")]),
        (fraction(0), vec![double(5e-324)]),
        (fraction(0), vec![decimal("0.1")]),
        (fraction(0), vec![double(0.1)]),
        (fraction(0), vec![double(0.5), decimal("0.5")]),
        (whole(1), vec![int(1), long(1), double(1.0), decimal("1"), decimal("1.000")]),
        (whole(2), vec![int(2), double(2.0)]),
        (whole(3), vec![int(3), decimal("3")]),
        (whole(2_147_483_647), vec![int(i32::MAX), double(2_147_483_647.0)]),
        (whole(2_147_483_648), vec![long(2_147_483_648), double(2_147_483_648.0)]),
        (whole(9_007_199_254_740_992), vec![double(9_007_199_254_740_992.0)]),
        (
            whole(9_007_199_254_740_993),
            vec![long(9_007_199_254_740_993), decimal("9007199254740993")],
        ),
        (whole(i64::MAX), vec![long(i64::MAX), decimal("9223372036854775807")]),
        (BEYOND, vec![double(9_223_372_036_854_775_808.0), decimal("9223372036854775808")]),
        (BEYOND, vec![double(f64::MAX)]),
        (BEYOND, vec![decimal("9.9E6000")]),
        (BEYOND, vec![double(f64::INFINITY), decimal("Infinity")]),
    ];
    let text = |value| RawValue::String(value).to_owned();
    let texts = vec![
        vec![text("")],
        vec![text("A")],
        vec![text("a"), RawValue::Symbol("a").to_owned()],
        vec![text("a\0b")],
        vec![text("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac")],
        vec![text("ab")],
        vec![text("b")],
        vec![text("é")],
        vec![text("\u{10FFFF}")],
    ];
    let binary = |subtype, bytes| plain(RawValue::Binary { subtype, bytes });
    let regex = |pattern, options| plain(RawValue::Regex { pattern, options });
    let pointer = |ns, last| {
        let mut id = [0; 12];
        id[11] = last;
        plain(RawValue::DbPointer { ns, id })
    };
    let scope =
        |code, scope: DocBuf| plain(RawValue::CodeWithScope { code, scope: scope.as_doc() });
    let timestamp =
        |seconds: u64, increment: u64| plain(RawValue::Timestamp(seconds << 32 | increment));
    let id = |last| {
        let mut id = [7; 12];
        id[11] = last;
        plain(RawValue::ObjectId(id))
    };
    let classes = vec![
        (Class::MinKey, vec![plain(RawValue::MinKey)]),
        (Class::Undefined, vec![plain(RawValue::Undefined)]),
        (Class::Null, vec![plain(RawValue::Null)]),
        (Class::Text, texts),
        (
            Class::Binary,
            vec![
                binary(0, &[]),
                binary(0, &[1]),
                binary(0, &[2]),
                binary(5, &[0]),
                binary(0, &[0, 128]),
            ],
        ),
        (Class::ObjectId, vec![id(0), id(255)]),
        (Class::Bool, vec![plain(RawValue::Bool(false)), plain(RawValue::Bool(true))]),
        (
            Class::Date,
            [i64::MIN, -1, 0, 1_800_000_000_000, i64::MAX]
                .map(|at| plain(RawValue::Date(at)))
                .to_vec(),
        ),
        (
            Class::Timestamp,
            vec![
                timestamp(0, 1),
                timestamp(1, 0),
                timestamp(1, 1),
                timestamp(0xFFFF_FFFF, 0xFFFF_FFFF),
            ],
        ),
        (Class::Regex, vec![regex("^a", ""), regex("^a", "i"), regex("b", "")]),
        (Class::DbPointer, vec![pointer("a", 0), pointer("a", 1)]),
        (Class::Code, vec![plain(RawValue::Code("")), plain(RawValue::Code("x"))]),
        (Class::CodeWithScope, vec![scope("", DocBuf::empty()), scope("x", DocBuf::empty())]),
        (Class::MaxKey, vec![plain(RawValue::MaxKey)]),
    ];
    let mut rows = Vec::new();
    let mut add = |class, rank, values: Vec<ValueBuf>, (whole, truncated)| {
        rows.extend(values.into_iter().map(|value| Scalar {
            value,
            class,
            rank,
            whole,
            truncated,
        }));
    };
    for (class, ranks) in classes {
        for (rank, values) in ranks.into_iter().enumerate() {
            add(class, rank, values, BEYOND);
        }
    }
    for (rank, (parts, values)) in numbers.into_iter().enumerate() {
        add(Class::Number, rank, values, parts);
    }
    rows
}

impl Value {
    /// The row that is equal to this value in type and bytes.
    pub(super) fn scalar(value: RawValue<'_>) -> Value {
        let value = value.to_owned();
        match SCALARS.iter().position(|row| row.value == value) {
            Some(row) => Value::Scalar(row),
            None => panic!("{value:?} is not in the table"),
        }
    }

    pub(super) fn class(&self) -> Class {
        match self {
            Value::Scalar(row) => SCALARS[*row].class,
            Value::Integer(_) => Class::Number,
            Value::Array(_) => Class::Array,
            Value::Document(_) => Class::Document,
        }
    }

    /// A scalar's value.
    pub(super) fn raw(&self) -> Option<RawValue<'static>> {
        match self {
            Value::Scalar(row) => Some(SCALARS[*row].value.as_raw()),
            Value::Integer(number) => Some(RawValue::Int32(*number)),
            _ => None,
        }
    }

    pub(super) fn type_code(&self) -> i32 {
        match self {
            Value::Scalar(row) => type_code(SCALARS[*row].value.as_raw()),
            Value::Integer(_) => 16,
            Value::Array(_) => 4,
            Value::Document(_) => 3,
        }
    }

    /// A string's text; a symbol's, too.
    pub(super) fn text(&self) -> Option<&'static str> {
        match self.raw() {
            Some(RawValue::String(text) | RawValue::Symbol(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn is_nan(&self) -> bool {
        matches!(self, Value::Scalar(row) if SCALARS[*row].class == Class::Number && SCALARS[*row].rank == 0)
    }

    /// The order of all values.
    pub(super) fn compare(&self, other: &Value) -> Ordering {
        let by_class = self.class().cmp(&other.class());
        by_class.then_with(|| match (self, other) {
            (Value::Scalar(a), Value::Scalar(b)) => SCALARS[*a].rank.cmp(&SCALARS[*b].rank),
            (Value::Integer(a), Value::Integer(b)) => a.cmp(b),
            (Value::Array(a), Value::Array(b)) => {
                let items = a.iter().zip(b).map(|(a, b)| a.compare(b));
                items.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
            }
            (Value::Document(a), Value::Document(b)) => {
                let fields = a.iter().zip(b).map(|((a_name, a), (b_name, b))| {
                    a.class().cmp(&b.class()).then(a_name.cmp(b_name)).then_with(|| a.compare(b))
                });
                fields.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
            }
            _ => Ordering::Equal,
        })
    }

    /// The whole number that it is, if it is one that 64 bits hold.
    pub(super) fn whole(&self) -> Option<i64> {
        match self {
            Value::Scalar(row) => SCALARS[*row].whole,
            Value::Integer(number) => Some(i64::from(*number)),
            _ => None,
        }
    }

    /// The number without its fraction, if 64 bits hold it.
    pub(super) fn truncated(&self) -> Option<i64> {
        match self {
            Value::Scalar(row) => SCALARS[*row].truncated,
            _ => None,
        }
    }

    pub(super) fn append(&self, name: &str, out: &mut DocBuilder) {
        match self {
            Value::Scalar(row) => drop(out.append(name, &SCALARS[*row].value)),
            Value::Integer(number) => drop(out.append(name, *number)),
            Value::Array(items) => {
                out.start_array(name);
                items.iter().for_each(|item| item.push(out));
                out.end();
            }
            Value::Document(fields) => {
                out.start_document(name);
                fields.iter().for_each(|(name, value)| value.append(name, out));
                out.end();
            }
        }
    }

    pub(super) fn push(&self, out: &mut DocBuilder) {
        match self {
            Value::Scalar(row) => drop(out.push(&SCALARS[*row].value)),
            Value::Integer(number) => drop(out.push(*number)),
            Value::Array(items) => {
                out.push_array();
                items.iter().for_each(|item| item.push(out));
                out.end();
            }
            Value::Document(fields) => {
                out.push_document();
                fields.iter().for_each(|(name, value)| value.append(name, out));
                out.end();
            }
        }
    }
}

/// The document with these fields.
pub(super) fn document(fields: &Fields) -> DocBuf {
    let mut out = DocBuilder::new();
    fields.iter().for_each(|(name, value)| value.append(name, &mut out));
    out.finish()
}

/// A field of a document of the oracle.
pub(super) fn field<'f>(fields: &'f Fields, name: &str) -> Option<&'f Value> {
    fields.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
}

/// The number in a field of a reply.
pub(super) fn number(document: RawDoc<'_>, name: &str) -> i64 {
    match document.get(name) {
        Some(RawValue::Int32(number)) => i64::from(number),
        Some(RawValue::Int64(number)) => number,
        other => panic!("{name} is {other:?}"),
    }
}
