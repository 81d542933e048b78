//! The tree of a filter.

use std::collections::BTreeSet;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_value::{Collation, DocBuf, RawValue, ValueBuf, canonical_type, compare_values_in, ty};

use super::evaluate::any;
use super::{BitTest, DocumentTest, GeoTest, Regex};
use crate::FieldPath;

/// A condition on a document.
#[derive(Clone, Debug)]
pub enum Expr {
    /// All of them; an empty one holds for every document.
    And(Vec<Expr>),
    /// At least one of them.
    Or(Vec<Expr>),
    /// None of them.
    Nor(Vec<Expr>),
    /// A condition on what a path reaches.
    Path {
        /// Where.
        path: FieldPath,
        /// What.
        predicate: Predicate,
    },
    /// A condition on the document as a whole.
    Document(DocumentTest),
    /// Holds for every document, or for none.
    Always(bool),
}

impl Expr {
    /// All of them, without a level that adds nothing.
    pub fn and(mut parts: Vec<Expr>) -> Expr {
        match parts.pop() {
            Some(only) if parts.is_empty() => only,
            Some(last) => {
                parts.push(last);
                Expr::And(parts)
            }
            None => Expr::And(parts),
        }
    }
}

/// What a condition looks at, when it gives the same wherever that is the same.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    /// Dotted paths.
    pub paths: BTreeSet<String>,
    /// An expression looks at some of them, so that they have no other names.
    pub computed: bool,
}

impl Expr {
    /// The conditions that all have to hold.
    pub fn conjuncts(&self) -> Vec<&Expr> {
        match self {
            Expr::And(parts) => parts.iter().flat_map(Expr::conjuncts).collect(),
            Expr::Always(true) => Vec::new(),
            other => vec![other],
        }
    }

    /// What it looks at; nothing when that may be anything, or when it differs each time.
    pub fn reads(&self) -> Option<Reads> {
        let mut reads = Reads::default();
        self.read(&mut reads).then_some(reads)
    }

    fn read(&self, reads: &mut Reads) -> bool {
        match self {
            Expr::And(parts) | Expr::Or(parts) | Expr::Nor(parts) => {
                parts.iter().all(|part| part.read(reads))
            }
            Expr::Path { path, predicate } => {
                reads.paths.insert(path.as_str().to_owned());
                predicate.is_plain()
            }
            Expr::Document(test) => match test.reads() {
                Some(found) if found.is_plain() => {
                    reads.paths.extend(found.paths);
                    reads.computed = true;
                    true
                }
                _ => false,
            },
            Expr::Always(_) => true,
        }
    }

    /// The same with one field in the place of another, `from` and what lies in it; an empty `to` takes the level away. Nothing
    /// for what has no paths of its own, and for paths that become too long.
    pub fn renamed(&self, from: &str, to: &str) -> Option<Expr> {
        let all = |parts: &[Expr]| -> Option<Vec<Expr>> {
            parts.iter().map(|part| part.renamed(from, to)).collect()
        };
        Some(match self {
            Expr::And(parts) => Expr::And(all(parts)?),
            Expr::Or(parts) => Expr::Or(all(parts)?),
            Expr::Nor(parts) => Expr::Nor(all(parts)?),
            Expr::Path { path, predicate } => {
                let path = match path.as_str().strip_prefix(from) {
                    Some("") => FieldPath::new(to),
                    Some(rest) if rest.starts_with('.') && to.is_empty() => {
                        FieldPath::new(&rest[1..])
                    }
                    Some(rest) if rest.starts_with('.') => FieldPath::new(&format!("{to}{rest}")),
                    _ => Ok(path.clone()),
                };
                Expr::Path { path: path.ok()?, predicate: predicate.clone() }
            }
            Expr::Document(_) => return None,
            Expr::Always(holds) => Expr::Always(*holds),
        })
    }
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the operators' own names")]
pub enum CmpOp {
    Eq,
    Lt,
    Lte,
    Gt,
    Gte,
}

/// Operators as they were written, `{ $op: operand }`, where what they were read into does not say it.
pub type Written = Arc<DocBuf>;

/// A condition on the values that a path reaches.
#[derive(Clone, Debug)]
pub enum Predicate {
    /// Some value compares so with this one, within its canonical type.
    Cmp {
        /// How.
        op: CmpOp,
        /// With what.
        value: ValueBuf,
        /// How strings compare; nothing where the value has none.
        collation: Option<Arc<Collation>>,
    },
    /// Some value is in the list.
    In(InList),
    /// The path reaches something, null included.
    Exists,
    /// Some value, the array itself included, has one of the types.
    Type(TypeSet, Written),
    /// Some value's integer part leaves this remainder.
    Mod {
        /// Not zero.
        divisor: i64,
        /// With the sign of the dividend.
        remainder: i64,
    },
    /// Some string matches.
    Regex(Regex),
    /// Some number or binary value has bits as asked.
    Bits(BitTest, Written),
    /// Some geometry lies as asked.
    Geo(Arc<GeoTest>, Written),
    /// Some array has exactly so many items.
    Size(i64),
    /// Some array has a document (or array) item that satisfies the filter.
    ElemMatchDocument(Box<Expr>),
    /// Some array has an item that satisfies all conditions at once.
    ElemMatchValue(Vec<Predicate>),
    /// The condition as a whole does not hold.
    Not(Box<Predicate>),
    /// All conditions hold, each for itself.
    All(Vec<Predicate>),
}

impl Predicate {
    /// A comparison under the collation of its filter.
    pub fn cmp(op: CmpOp, value: RawValue<'_>, collation: Option<&Arc<Collation>>) -> Predicate {
        let collation = collation.filter(|_| Collation::concerns(value)).cloned();
        Predicate::Cmp { op, value: value.to_owned(), collation }
    }

    /// Whether it looks at nothing but the values of its path, and gives the same each time.
    fn is_plain(&self) -> bool {
        match self {
            Predicate::Cmp { .. }
            | Predicate::In(_)
            | Predicate::Exists
            | Predicate::Type(..)
            | Predicate::Mod { .. }
            | Predicate::Regex(_)
            | Predicate::Bits(..)
            | Predicate::Size(_) => true,
            Predicate::Geo(test, _) => !matches!(**test, GeoTest::Near(_)),
            Predicate::ElemMatchDocument(inner) => inner.reads().is_some(),
            Predicate::Not(inner) => inner.is_plain(),
            Predicate::ElemMatchValue(parts) | Predicate::All(parts) => {
                parts.iter().all(Predicate::is_plain)
            }
        }
    }

    /// The negation.
    pub fn negated(self) -> Predicate {
        Predicate::Not(Box::new(self))
    }
}

/// The operand of `$in`.
#[derive(Clone, Debug, Default)]
pub struct InList {
    values: Vec<ValueBuf>,
    regexes: Vec<Regex>,
    has_null: bool,
    /// How strings compare; nothing where the list has none.
    collation: Option<Arc<Collation>>,
}

impl InList {
    /// Sorts the values and drops those that compare as equal to another.
    pub fn new(
        mut values: Vec<ValueBuf>,
        regexes: Vec<Regex>,
        collation: Option<&Arc<Collation>>,
    ) -> InList {
        let concerned = values.iter().any(|value| Collation::concerns(value.as_raw()));
        let collation = collation.filter(|_| concerned).cloned();
        let strings = collation.as_deref();
        values.sort_by(|a, b| compare_values_in(a.as_raw(), b.as_raw(), strings));
        values.dedup_by(|a, b| compare_values_in(a.as_raw(), b.as_raw(), strings).is_eq());
        let has_null = values.iter().any(|value| value.type_byte() == ty::NULL);
        InList { values, regexes, has_null, collation }
    }

    /// In comparison order, without duplicates.
    pub fn values(&self) -> &[ValueBuf] {
        &self.values
    }

    /// How strings compare; nothing where the list has none.
    pub fn collation(&self) -> Option<&Arc<Collation>> {
        self.collation.as_ref()
    }

    /// Patterns among the operands.
    pub fn regexes(&self) -> &[Regex] {
        &self.regexes
    }

    /// Whether null is in the list, and so a missing field matches.
    pub fn has_null(&self) -> bool {
        self.has_null
    }

    /// Whether a value is in the list or matches one of its patterns.
    ///
    /// # Errors
    /// Those of a pattern.
    pub fn contains(&self, value: RawValue<'_>) -> Result<bool> {
        let strings = self.collation.as_deref();
        let order = |have: &ValueBuf| compare_values_in(have.as_raw(), value, strings);
        let found = self.values.binary_search_by(order);
        Ok(found.is_ok() || any(&self.regexes, |regex| regex.matches_value(value))?)
    }
}

/// A set of BSON types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeSet(u32);

impl TypeSet {
    /// Adds a type byte.
    pub fn insert(&mut self, type_byte: u8) {
        self.0 |= TypeSet::bit(type_byte);
    }

    /// Adds int, long, double and decimal.
    pub fn insert_numbers(&mut self) {
        for number in [ty::INT32, ty::INT64, ty::DOUBLE, ty::DECIMAL] {
            self.insert(number);
        }
    }

    /// Whether a type byte is in it.
    pub fn contains(self, type_byte: u8) -> bool {
        self.0 & TypeSet::bit(type_byte) != 0
    }

    /// Whether the other set has all of its types.
    pub fn is_within(self, other: TypeSet) -> bool {
        self.0 & !other.0 == 0
    }

    /// Whether it has no type.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// MinKey and MaxKey take two bits that no other type byte reaches.
    fn bit(type_byte: u8) -> u32 {
        match canonical_type(type_byte) {
            -1 => 1 << 31,
            127 => 1 << 30,
            _ => 1 << (type_byte & 31),
        }
    }
}
