//! The expression tree of a filter.

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
    /// A conjunction; an empty one is true for every document.
    And(Vec<Expr>),
    /// A disjunction.
    Or(Vec<Expr>),
    /// A negated disjunction.
    Nor(Vec<Expr>),
    /// A predicate on the values of a path.
    Path {
        /// The path.
        path: FieldPath,
        /// The predicate.
        predicate: Predicate,
    },
    /// A condition on the whole document.
    Document(DocumentTest),
    /// True or false for every document.
    Always(bool),
}

impl Expr {
    /// A conjunction, simplified if it has a single part.
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

/// The inputs of a condition that is a function of them.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    /// The dotted paths that the condition reads.
    pub paths: BTreeSet<String>,
    /// An expression reads some of them, so they cannot be renamed.
    pub computed: bool,
}

impl Expr {
    /// The conditions of the outermost conjunction.
    pub fn conjuncts(&self) -> Vec<&Expr> {
        match self {
            Expr::And(parts) => parts.iter().flat_map(Expr::conjuncts).collect(),
            Expr::Always(true) => Vec::new(),
            other => vec![other],
        }
    }

    /// Its inputs; `None` when they are unknown, or when the condition is not deterministic.
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

    /// The same condition with a field, and paths inside it, renamed from `from` to `to`; an empty
    /// `to` removes the level. `None` for conditions without paths of their own, and for paths that
    /// become too long.
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

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the operators' own names")]
pub enum CmpOp {
    Eq,
    Lt,
    Lte,
    Gt,
    Gte,
}

/// The original operators, `{ $op: operand }`, for predicates that cannot be converted back.
pub type OriginalOperator = Arc<DocBuf>;

/// A predicate on the values of a path.
#[derive(Clone, Debug)]
pub enum Predicate {
    /// Some value compares accordingly with this one, within its canonical type.
    Cmp {
        /// The operator.
        op: CmpOp,
        /// The operand.
        value: ValueBuf,
        /// The collation; `None` where the value contains no strings.
        collation: Option<Arc<Collation>>,
    },
    /// Some value is in the list.
    In(InList),
    /// The path has a value, which may be null.
    Exists,
    /// Some value, including the array itself, has one of the types.
    Type(TypeSet, OriginalOperator),
    /// The integer part of some value has this remainder.
    Mod {
        /// The divisor; not zero.
        divisor: i64,
        /// The remainder, with the sign of the dividend.
        remainder: i64,
    },
    /// Some string matches a regular expression.
    Regex(Regex),
    /// Some number or binary value has certain bits.
    Bits(BitTest, OriginalOperator),
    /// Some geometry satisfies a geospatial condition.
    Geo(Arc<GeoTest>, OriginalOperator),
    /// Some array has exactly this many items.
    Size(i64),
    /// Some array has a document (or array) item that satisfies the filter.
    ElemMatchDocument(Box<Expr>),
    /// Some array has an item that satisfies all predicates.
    ElemMatchValue(Vec<Predicate>),
    /// The negation of a predicate on the path.
    Not(Box<Predicate>),
    /// The conjunction of predicates, each possibly satisfied by another value.
    All(Vec<Predicate>),
}

impl Predicate {
    /// A comparison with the collation of its filter.
    pub fn cmp(op: CmpOp, value: RawValue<'_>, collation: Option<&Arc<Collation>>) -> Predicate {
        let collation = collation.filter(|_| Collation::concerns(value)).cloned();
        Predicate::Cmp { op, value: value.to_owned(), collation }
    }

    /// Whether it is a function of the values of its path.
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

    /// The negation of the predicate.
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
    /// The collation; `None` where the list contains no strings.
    collation: Option<Arc<Collation>>,
}

impl InList {
    /// Sorts the values and removes duplicates.
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

    /// The values in comparison order, without duplicates.
    pub fn values(&self) -> &[ValueBuf] {
        &self.values
    }

    /// The collation; `None` where the list contains no strings.
    pub fn collation(&self) -> Option<&Arc<Collation>> {
        self.collation.as_ref()
    }

    /// The regular expressions among the operands.
    pub fn regexes(&self) -> &[Regex] {
        &self.regexes
    }

    /// Whether null is in the list, so that a missing field matches.
    pub fn has_null(&self) -> bool {
        self.has_null
    }

    /// Whether a value is in the list or matches one of its regular expressions.
    ///
    /// # Errors
    /// Errors of regular expressions.
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

    /// Whether the set contains a type byte.
    pub fn contains(self, type_byte: u8) -> bool {
        self.0 & TypeSet::bit(type_byte) != 0
    }

    /// Whether it is a subset of another set.
    pub fn is_within(self, other: TypeSet) -> bool {
        self.0 & !other.0 == 0
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The bit of a type. MinKey and MaxKey have two bits that no other type byte maps to.
    fn bit(type_byte: u8) -> u32 {
        match canonical_type(type_byte) {
            -1 => 1 << 31,
            127 => 1 << 30,
            _ => 1 << (type_byte & 31),
        }
    }
}
