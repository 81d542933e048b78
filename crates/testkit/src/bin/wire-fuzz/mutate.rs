//! Mutations of commands: values, types, names, order, nesting, parts of other commands. And
//! commands that are generated from the tables of operators.

use std::str::FromStr;

use mayfly_base::limits::MAX_USER_DOCUMENT_BYTES;
use mayfly_value::bson::Decimal128;
use mayfly_value::{DocBuf, RawValue, ValueBuf};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

use crate::corpus::Corpus;
use crate::tree::Node;

/// The largest number of nodes of a command.
const MOST_NODES: usize = 40_000;
/// The deepest nesting of a command; deeper messages are refused before they are parsed.
const MOST_DEPTH: usize = 190;

const NUMBERS: &[i64] = &[
    0,
    1,
    -1,
    2,
    3,
    10,
    63,
    64,
    100,
    255,
    1000,
    65_536,
    i32::MAX as i64,
    i32::MIN as i64,
    1 << 31,
    1 << 32,
    (1 << 53) + 1,
    i64::MAX,
    i64::MIN,
    i64::MAX - 1,
    253_402_300_800_000,
    -62_135_596_800_001,
    1_800_000_000_000,
];

const DOUBLES: &[f64] = &[
    0.0,
    -0.0,
    0.5,
    -1.5,
    1e-320,
    1e308,
    -1e308,
    9.223_372_036_854_775e18,
    2_147_483_648.0,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
];

const DECIMALS: &[&str] = &[
    "0",
    "-0",
    "0E-6176",
    "1E+6144",
    "NaN",
    "Infinity",
    "-Infinity",
    "1.5",
    "9.999999999999999999999999999999999E+6144",
    "9223372036854775808",
];

const TEXTS: &[&str] = &[
    "",
    "a",
    "b",
    "_id",
    "$a",
    "$_id",
    "$$ROOT",
    "$$CURRENT.a",
    "$$NOW",
    "$$CLUSTER_TIME",
    "$$REMOVE",
    "$",
    "$$",
    ".",
    "a.b",
    "a.0",
    "a.0.b",
    "a.$",
    "a.$[]",
    "a.$[x]",
    "a..b",
    ".a",
    "a.",
    "$**",
    "c",
    "UTC",
    "Europe/Berlin",
    "+25:00",
    "%Y-%m-%dT%H:%M:%S.%LZ",
    "%",
    "%j%G%V%u",
    "(a+)+$",
    "[",
    "\\",
    "^a",
    "(?i)a",
    "ä\u{308}ß",
    "\u{10ffff}",
    "\u{0}",
    "a\u{0}b",
    "0",
    "-1",
    "1e400",
    "0x10",
    "2024-02-30T25:61:00Z",
    "system.buckets.c",
    "system.indexes",
    "c.$x",
    "random",
    "hashed",
    "2dsphere",
    "text",
    "_id_",
    "month",
    "simple",
    "en",
    "majority",
    "snapshot",
    "function() { return this.a }",
    "1",
    "while (true) {}",
    "object",
    "int",
];

/// A single value.
pub(crate) fn leaf(random: &mut SmallRng) -> ValueBuf {
    let whole = |random: &mut SmallRng| NUMBERS.choose(random).copied().unwrap_or(0);
    let text = |random: &mut SmallRng| TEXTS.choose(random).copied().unwrap_or("");
    match random.random_range(0..32) {
        0..5 => RawValue::Int32(whole(random) as i32).to_owned(),
        5..8 => RawValue::Int64(whole(random)).to_owned(),
        8..11 => RawValue::Double(DOUBLES.choose(random).copied().unwrap_or(0.0)).to_owned(),
        11..13 => {
            let text = DECIMALS.choose(random).copied().unwrap_or("0");
            let bytes = Decimal128::from_str(text).map(|it| it.bytes()).unwrap_or_default();
            RawValue::Decimal128(bytes).to_owned()
        }
        13..18 => RawValue::String(text(random)).to_owned(),
        18 => {
            let long = "xy".repeat(1 << random.random_range(4..12));
            RawValue::String(&long).to_owned()
        }
        19 => RawValue::Null.to_owned(),
        20 => RawValue::Undefined.to_owned(),
        21 => RawValue::Bool(random.random_bool(0.5)).to_owned(),
        22 | 23 => RawValue::Date(whole(random)).to_owned(),
        24 => RawValue::Timestamp(whole(random) as u64).to_owned(),
        25 => {
            let pattern = text(random).replace('\0', "");
            let options = ["", "i", "x", "ms", "imsx", "q"].choose(random).copied().unwrap_or("");
            RawValue::Regex { pattern: &pattern, options }.to_owned()
        }
        26 => RawValue::ObjectId([random.random_range(0..3); 12]).to_owned(),
        27 => {
            let subtypes = [0, 2, 3, 4, 5, 6, 8, 9, 0x80, 0xff];
            let subtype = subtypes.choose(random).copied().unwrap_or(0);
            let bytes = vec![random.random(); [0, 1, 4, 8, 16, 17, 100][random.random_range(0..7)]];
            RawValue::Binary { subtype, bytes: &bytes }.to_owned()
        }
        28 => match random.random_bool(0.5) {
            true => RawValue::MinKey.to_owned(),
            false => RawValue::MaxKey.to_owned(),
        },
        29 => RawValue::Code(text(random)).to_owned(),
        30 => match random.random_bool(0.5) {
            true => RawValue::Symbol(text(random)).to_owned(),
            false => RawValue::DbPointer { ns: "test.c", id: [1; 12] }.to_owned(),
        },
        _ => {
            let scope = DocBuf::empty();
            RawValue::CodeWithScope { code: text(random), scope: scope.as_doc() }.to_owned()
        }
    }
}

/// A small value of any kind.
pub(crate) fn value(corpus: &Corpus, random: &mut SmallRng, depth: u32) -> Node {
    match random.random_range(0..10) {
        0..5 => Node::Leaf(leaf(random)),
        5 | 6 => corpus.value("", random),
        7 if depth > 0 => {
            let items = random.random_range(0..4);
            Node::Array((0..items).map(|_| value(corpus, random, depth - 1)).collect())
        }
        8 if depth > 0 => {
            let fields = random.random_range(0..4);
            let field = |random: &mut SmallRng| {
                let name = match random.random_bool(0.7) {
                    true => TEXTS.choose(random).copied().unwrap_or("a").to_owned(),
                    false => corpus.name(random).to_owned(),
                };
                (name, value(corpus, random, depth - 1))
            };
            Node::Document((0..fields).map(|_| field(random)).collect())
        }
        9 if depth > 0 => expression(corpus, random, depth - 1),
        _ => Node::Leaf(leaf(random)),
    }
}

/// An expression, an accumulator or a window function with arbitrary arguments.
fn expression(corpus: &Corpus, random: &mut SmallRng, depth: u32) -> Node {
    let operators: Vec<&str> = match random.random_range(0..8) {
        0 => mayfly_expr::accum::ROWS.iter().map(|row| row.name).collect(),
        _ => mayfly_expr::op::rows().map(|row| row.name).collect(),
    };
    let name = operators.choose(random).copied().unwrap_or("$add");
    operator(name, corpus, random, depth)
}

fn operator(name: &str, corpus: &Corpus, random: &mut SmallRng, depth: u32) -> Node {
    let arguments = match random.random_range(0..10) {
        0..4 => {
            let mut known = corpus.value(name, random);
            mutate_once(&mut known, corpus, random, 0);
            known
        }
        4..7 => {
            let count = random.random_range(0..4);
            Node::Array((0..count).map(|_| value(corpus, random, depth)).collect())
        }
        _ => value(corpus, random, depth),
    };
    Node::one(name, arguments)
}

/// A command with one operator of the tables.
pub(crate) fn made(collection: &str, corpus: &Corpus, random: &mut SmallRng) -> Node {
    let fields = |fields: Vec<(&str, Node)>| {
        Node::Document(fields.into_iter().map(|(name, it)| (name.to_owned(), it)).collect())
    };
    let aggregate = |stages: Vec<Node>| {
        fields(vec![
            ("aggregate", Node::leaf(collection)),
            ("pipeline", Node::Array(stages)),
            ("cursor", fields(vec![])),
        ])
    };
    match random.random_range(0..10) {
        0..3 => {
            let it = expression(corpus, random, 3);
            aggregate(vec![Node::one("$project", Node::one("x", it))])
        }
        3 => {
            let rows = mayfly_expr::accum::ROWS;
            let name = rows.choose(random).map_or("$sum", |row| row.name);
            let it = operator(name, corpus, random, 2);
            let id = value(corpus, random, 1);
            aggregate(vec![Node::one("$group", fields(vec![("_id", id), ("x", it)]))])
        }
        4 => {
            let rows = mayfly_expr::window::ROWS;
            let name = rows.choose(random).map_or("$rank", |row| row.name);
            let mut it = operator(name, corpus, random, 2);
            if let Node::Document(fields) = &mut it {
                fields.push(("window".to_owned(), corpus.value("window", random)));
            }
            let parts = fields(vec![
                ("sortBy", corpus.value("sortBy", random)),
                ("output", fields(vec![("x", it)])),
            ]);
            aggregate(vec![Node::one("$setWindowFields", parts)])
        }
        5 => {
            let mut stages = Vec::new();
            for _ in 0..random.random_range(1..4) {
                let name = mayfly_query::STAGES.choose(random).map_or("$match", |row| row.name);
                stages.push(operator(name, corpus, random, 2));
            }
            aggregate(stages)
        }
        6 | 7 => {
            let rows = mayfly_mql::matcher::op::ROWS;
            let name = rows.choose(random).map_or("$eq", |row| row.name);
            let it = operator(name, corpus, random, 2);
            let path = TEXTS.choose(random).copied().unwrap_or("a");
            let filter = if random.random_bool(0.3) { it } else { Node::one(path, it) };
            fields(vec![("find", Node::leaf(collection)), ("filter", filter)])
        }
        _ => {
            let rows = mayfly_mql::update::op::ROWS;
            let name = rows.choose(random).map_or("$set", |row| row.name);
            let path = TEXTS.choose(random).copied().unwrap_or("a");
            let change = match random.random_bool(0.5) {
                true => operator(name, corpus, random, 2),
                false => Node::one(name, Node::one(path, value(corpus, random, 2))),
            };
            let one = fields(vec![
                ("q", corpus.value("q", random)),
                ("u", change),
                ("multi", Node::leaf(random.random_bool(0.5))),
                ("upsert", Node::leaf(random.random_bool(0.3))),
            ]);
            fields(vec![("update", Node::leaf(collection)), ("updates", Node::Array(vec![one]))])
        }
    }
}

/// Mutates a command after its name.
pub(crate) fn mutate(command: &mut Node, corpus: &Corpus, random: &mut SmallRng) {
    let changes = [1, 1, 1, 2, 3, 6].choose(random).copied().unwrap_or(1);
    for _ in 0..changes {
        let before = command.clone();
        mutate_once(command, corpus, random, 1);
        let is_large = command.size() > MOST_NODES || command.bytes() > MAX_USER_DOCUMENT_BYTES;
        if is_large || command.depth() > MOST_DEPTH {
            *command = before;
        }
    }
}

fn mutate_once(root: &mut Node, corpus: &Corpus, random: &mut SmallRng, first: usize) {
    let size = root.size();
    if first >= size {
        return;
    }
    let number = match random.random_bool(0.15) {
        true => 0,
        false => random.random_range(first..size),
    };
    // The node is the command itself: its name is kept.
    let is_command = number == 0 && first > 0;
    let Some(node) = root.at(number) else { return };
    match node {
        Node::Document(fields) if is_command || random.random_bool(0.7) => {
            change_fields(fields, corpus, random, usize::from(is_command));
        }
        Node::Array(items) if random.random_bool(0.7) => change_items(items, corpus, random),
        Node::Leaf(leaf) if random.random_bool(0.4) => change_leaf(leaf, random),
        node => match random.random_range(0..8) {
            0..5 => *node = value(corpus, random, 2),
            5 => {
                let inner = std::mem::replace(node, Node::Array(Vec::new()));
                *node = nested(inner, corpus, random);
            }
            _ => {
                let name = corpus.name(random).to_owned();
                *node = operator(&name, corpus, random, 2);
            }
        },
    }
}

fn nested(mut inner: Node, corpus: &Corpus, random: &mut SmallRng) -> Node {
    let levels = [1, 1, 1, 2, 10, 100].choose(random).copied().unwrap_or(1);
    let name = corpus.name(random).to_owned();
    let kind = random.random_range(0..4);
    for _ in 0..levels {
        inner = match kind {
            0 => Node::Array(vec![inner]),
            1 => Node::one("a", inner),
            2 => Node::one(&name, inner),
            _ => Node::one(&name, Node::Array(vec![inner])),
        };
    }
    inner
}

fn change_fields(
    fields: &mut Vec<(String, Node)>,
    corpus: &Corpus,
    random: &mut SmallRng,
    first: usize,
) {
    let index = (first < fields.len()).then(|| random.random_range(first..fields.len()));
    match (random.random_range(0..10), index) {
        (0, Some(index)) => {
            fields.remove(index);
        }
        (1, Some(index)) => {
            let copy = fields[index].clone();
            fields.push(copy);
        }
        (2 | 3, Some(index)) => {
            let name = fields[index].0.clone();
            fields[index].1 = corpus.value(&name, random);
        }
        (4, Some(index)) => fields[index].0 = corpus.name(random).to_owned(),
        (5, Some(index)) => {
            fields[index].0 = TEXTS.choose(random).copied().unwrap_or("a").to_owned();
        }
        (6, Some(index)) => {
            let other = random.random_range(first..fields.len());
            fields.swap(index, other);
        }
        _ => {
            let name = corpus.name(random).to_owned();
            let value = corpus.value(&name, random);
            let place = index.unwrap_or(fields.len());
            fields.insert(place, (name, value));
        }
    }
}

fn change_items(items: &mut Vec<Node>, corpus: &Corpus, random: &mut SmallRng) {
    let index = (!items.is_empty()).then(|| random.random_range(0..items.len()));
    match (random.random_range(0..6), index) {
        (0, Some(index)) => {
            items.remove(index);
        }
        (1, Some(index)) => {
            let times = [1, 1, 2, 10, 300].choose(random).copied().unwrap_or(1);
            let copy = items[index].clone();
            let room = MAX_USER_DOCUMENT_BYTES / copy.bytes().max(1);
            let times = times.min(1 + room.min(MOST_NODES / copy.size() / 2));
            items.extend(std::iter::repeat_n(copy, times));
        }
        (2, Some(index)) => {
            let other = random.random_range(0..items.len());
            items.swap(index, other);
        }
        (3, Some(_)) => items.clear(),
        (_, index) => {
            let place = index.unwrap_or(0);
            items.insert(place, value(corpus, random, 2));
        }
    }
}

/// Changes a value slightly: to a neighbour, another type, or a part of it.
fn change_leaf(leaf: &mut ValueBuf, random: &mut SmallRng) {
    let changed = match leaf.as_raw() {
        RawValue::Int32(number) => number_like(i64::from(number), random),
        RawValue::Int64(number) => number_like(number, random),
        RawValue::Double(number) => number_like(number as i64, random),
        RawValue::Date(number) => RawValue::Date(number.wrapping_mul(-1)).to_owned(),
        RawValue::String(text) => text_like(text, random),
        _ => self::leaf(random),
    };
    *leaf = changed;
}

fn number_like(number: i64, random: &mut SmallRng) -> ValueBuf {
    let number = match random.random_range(0..5) {
        0 => number.wrapping_add(1),
        1 => number.wrapping_sub(1),
        2 => number.wrapping_neg(),
        3 => number.wrapping_mul(1 << random.random_range(0..40)),
        _ => number,
    };
    match random.random_range(0..6) {
        0 => RawValue::Int32(number as i32).to_owned(),
        1 => RawValue::Int64(number).to_owned(),
        2 => RawValue::Double(number as f64).to_owned(),
        3 => RawValue::Double(number as f64 + 0.5).to_owned(),
        4 => RawValue::Date(number).to_owned(),
        _ => {
            let bytes = Decimal128::from_str(&number.to_string()).map(|it| it.bytes());
            RawValue::Decimal128(bytes.unwrap_or_default()).to_owned()
        }
    }
}

fn text_like(text: &str, random: &mut SmallRng) -> ValueBuf {
    let other = TEXTS.choose(random).copied().unwrap_or("");
    let at = text.char_indices().map(|(at, _)| at).collect::<Vec<_>>();
    let at = at.choose(random).copied().unwrap_or(0);
    let (head, tail) = text.split_at(at);
    let changed = match random.random_range(0..6) {
        0 => format!("{head}{other}{tail}"),
        1 => head.to_owned(),
        2 => tail.to_owned(),
        3 => format!("${text}"),
        4 => text.repeat(2),
        _ => format!("{text}.{other}"),
    };
    RawValue::String(&changed).to_owned()
}
