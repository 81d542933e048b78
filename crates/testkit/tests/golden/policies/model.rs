//! The model: documents in a map, and one function that decides whether a policy makes a document
//! due.
//!
//! It has no indexes, entries, units or passes. If a document is due by several policies, it is not
//! specified which of them deletes it; an archive may or may not have it then ([`Archived`]).

use std::collections::BTreeMap;
use std::fmt::Write;

/// A value at the path of a policy; dates in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Dates {
    Missing,
    Null,
    Text,
    Number,
    One(i64),
    /// An array; `None` is an item that is no date.
    Array(Vec<Option<i64>>),
    /// An array in an array has no keys that are dates.
    Nested(i64),
}

impl Dates {
    /// Converts offsets in seconds to dates.
    pub(super) fn from(&self, now: i64) -> Dates {
        let at = |secs: i64| now + secs * 1000;
        match self {
            Dates::One(secs) => Dates::One(at(*secs)),
            Dates::Nested(secs) => Dates::Nested(at(*secs)),
            Dates::Array(items) => Dates::Array(items.iter().map(|item| item.map(&at)).collect()),
            other => other.clone(),
        }
    }

    fn earliest(&self) -> Option<i64> {
        match self {
            Dates::One(date) => Some(*date),
            Dates::Array(items) => items.iter().flatten().min().copied(),
            _ => None,
        }
    }

    /// In the shell dialect; `None` if the field is missing.
    pub(super) fn show(&self) -> Option<String> {
        let date = |date: &i64| format!("Date({date})");
        Some(match self {
            Dates::Missing => return None,
            Dates::Null => "null".into(),
            Dates::Text => "'2027-01-15T08:00:00Z'".into(),
            Dates::Number => "0".into(),
            Dates::One(at) => date(at),
            Dates::Nested(at) => format!("[[{}]]", date(at)),
            Dates::Array(items) => {
                let items: Vec<String> =
                    items.iter().map(|item| item.as_ref().map_or("'x'".into(), date)).collect();
                format!("[{}]", items.join(", "))
            }
        })
    }
}

/// A value of a document's `ttl`: its text, and the seconds that it means (-1: never).
pub(super) type Own = (&'static str, Option<i64>);

/// Values of all kinds.
pub(super) const OWN: &[Own] = &[
    ("", None),
    ("5", Some(5)),
    ("NumberLong(12)", Some(12)),
    ("20.0", Some(20)),
    ("-1", Some(-1)),
    ("NumberLong(-1)", Some(-1)),
    ("20.5", None),
    ("0", None),
    ("-5", None),
    ("'5'", None),
    ("null", None),
    ("[5]", None),
    ("NumberLong(2147483649)", None),
    ("NumberDecimal('5')", None),
];

/// A value of `legal.hold`, and whether it holds the document.
pub(super) type Held = (&'static str, bool);

/// Values of all kinds.
pub(super) const HELD: &[Held] = &[
    ("", false),
    ("{hold: true}", true),
    ("{hold: false}", false),
    ("{hold: 1}", false),
    ("[{hold: 1}, {hold: true}]", true),
    ("true", false),
];

/// The fields of a document except `_id`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fields {
    pub d: Dates,
    pub e: Dates,
    /// The document's own `_ts`, if it has one.
    pub stamp: Option<i64>,
    pub own: Own,
    pub held: Held,
    /// `p`, the field in the filters of partial indexes.
    pub partial: bool,
    /// `u`, under a unique sparse index.
    pub unique: Option<u8>,
    /// `n`, different in every write.
    pub number: i64,
}

impl Fields {
    /// Converts offsets to dates.
    pub(super) fn from(&self, now: i64) -> Fields {
        let stamp = self.stamp.map(|secs| now + secs * 1000);
        Fields { d: self.d.from(now), e: self.e.from(now), stamp, ..self.clone() }
    }

    /// In the shell dialect, after an `_id`.
    pub(super) fn show(&self) -> String {
        let mut out = format!(", n: {}, p: {}", self.number, self.partial);
        for (name, dates) in [("d", &self.d), ("e", &self.e)] {
            if let Some(value) = dates.show() {
                write!(out, ", {name}: {value}").unwrap();
            }
        }
        for (name, value) in [("ttl", self.own.0), ("legal", self.held.0)] {
            if !value.is_empty() {
                write!(out, ", {name}: {value}").unwrap();
            }
        }
        if let Some(stamp) = self.stamp {
            write!(out, ", _ts: Date({stamp})").unwrap();
        }
        if let Some(unique) = self.unique {
            write!(out, ", u: {unique}").unwrap();
        }
        out
    }
}

/// The document `ttl` of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Options {
    pub hide: bool,
    pub paused: bool,
    pub hold: bool,
    pub archive: bool,
}

impl Options {
    pub(super) fn show(self) -> String {
        let mut out = Vec::new();
        let members = [
            (self.hide, "hideExpired: true"),
            (self.paused, "paused: true"),
            (self.hold, "holdField: 'legal.hold'"),
            (self.archive, "archive: {collection: 'test.archive'}"),
        ];
        out.extend(members.iter().filter(|(set, _)| *set).map(|(_, text)| *text));
        format!("{{{}}}", out.join(", "))
    }
}

/// The documents that an index contains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Coverage {
    All,
    Sparse,
    /// Those with `p: true`.
    Partial,
}

/// The source of the dates of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// `d`.
    D(Coverage),
    /// `e`.
    E(Coverage),
    /// The last modification.
    Modified,
    /// The date in `_id`.
    Clustered,
}

/// A policy; one that was switched off has no seconds.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub kind: Kind,
    pub descending: bool,
    pub seconds: Option<i64>,
    pub options: Options,
}

impl Policy {
    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            Kind::D(_) => "d",
            Kind::E(_) => "e",
            Kind::Modified => "_ts",
            Kind::Clustered => "_id_",
        }
    }

    /// The definition for `createIndexes`.
    pub(super) fn show(&self) -> String {
        let (name, direction) = (self.name(), if self.descending { -1 } else { 1 });
        let mut out = format!("key: {{{name}: {direction}}}, name: '{name}'");
        if let Some(seconds) = self.seconds {
            write!(out, ", expireAfterSeconds: {seconds}, ttl: {}", self.options.show()).unwrap();
        }
        if let Kind::D(coverage) | Kind::E(coverage) = self.kind {
            out += match coverage {
                Coverage::All => "",
                Coverage::Sparse => ", sparse: true",
                Coverage::Partial => ", partialFilterExpression: {p: true}",
            };
        }
        format!("{{{out}}}")
    }

    fn hides(&self) -> bool {
        let hides = self.options.hide || self.kind == Kind::Modified;
        self.seconds.is_some() && hides && !self.options.paused
    }
}

/// `_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Id {
    Number(i32),
    Date(i64),
}

impl Id {
    pub(super) fn show(self) -> String {
        match self {
            Id::Number(number) => number.to_string(),
            Id::Date(date) => format!("Date({date})"),
        }
    }
}

/// A stored document and when it was written last.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub fields: Fields,
    pub modified: i64,
}

/// The content of the archive for a deleted document.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Archived {
    Must,
    May,
}

/// A collection.
#[derive(Debug)]
pub(super) struct Model {
    pub policies: Vec<Policy>,
    pub documents: BTreeMap<Id, Stored>,
    /// By the numbers of deleted documents.
    pub archive: BTreeMap<i64, Archived>,
    /// The parameter `lastModifiedTTL`: whether last-modified policies are in force.
    pub last_modified: bool,
    /// The jump of the clock while expiry is suspended: no document is deleted or hidden then.
    pub jumped_ms: Option<i64>,
}

impl Model {
    fn is_held(&self, stored: &Stored) -> bool {
        stored.fields.held.1
            && self.policies.iter().any(|policy| policy.options.hold && policy.seconds.is_some())
    }

    /// Whether a document is due by a policy.
    pub(super) fn is_due(&self, policy: &Policy, id: Id, stored: &Stored, now: i64) -> bool {
        let Some(seconds) = policy.seconds else { return false };
        if self.is_held(stored) {
            return false;
        }
        let fields = &stored.fields;
        let by_dates = |dates: &Dates, coverage| {
            (coverage != Coverage::Partial || fields.partial)
                && dates.earliest().is_some_and(|date| date + seconds * 1000 <= now)
        };
        match policy.kind {
            Kind::D(coverage) => by_dates(&fields.d, coverage),
            Kind::E(coverage) => by_dates(&fields.e, coverage),
            Kind::Clustered => match id {
                Id::Date(date) => date >= 0 && date + seconds * 1000 <= now,
                Id::Number(_) => false,
            },
            Kind::Modified if self.last_modified => {
                let base = fields.stamp.unwrap_or(stored.modified);
                let seconds = fields.own.1.unwrap_or(seconds);
                seconds != -1 && base + seconds * 1000 <= now
            }
            Kind::Modified => {
                seconds != -1 && fields.stamp.is_some_and(|date| date + seconds * 1000 <= now)
            }
        }
    }

    pub(super) fn is_visible(&self, id: Id, now: i64) -> bool {
        self.documents.get(&id).is_some_and(|stored| {
            let hidden = |p: &Policy| p.hides() && self.is_due(p, id, stored, now);
            self.jumped_ms.is_some() || !self.policies.iter().any(hidden)
        })
    }

    /// `_id` and number of the visible documents.
    pub(super) fn visible(&self, now: i64) -> BTreeMap<Id, i64> {
        let visible = self.documents.iter().filter(|(id, _)| self.is_visible(**id, now));
        visible.map(|(id, stored)| (*id, stored.fields.number)).collect()
    }

    /// A visible document that has this value of `u`, if it is not this one.
    pub(super) fn in_the_way(&self, id: Id, unique: Option<u8>, now: i64) -> bool {
        unique.is_some()
            && self.documents.iter().any(|(other, stored)| {
                *other != id && stored.fields.unique == unique && self.is_visible(*other, now)
            })
    }

    /// Writes a document that conflicts with no visible one; a hidden document with its `_id` is
    /// deleted by its policy.
    pub(super) fn put(&mut self, id: Id, fields: Fields, now: i64) {
        let mut gone: Vec<Id> = self
            .documents
            .keys()
            .copied()
            .filter(|other| {
                let same = fields.unique.is_some()
                    && self.documents.get(other).is_some_and(|s| s.fields.unique == fields.unique);
                (*other == id || same) && !self.is_visible(*other, now)
            })
            .collect();
        while let Some(other) = gone.pop() {
            self.remove(other, now, Policy::hides);
        }
        self.documents.insert(id, Stored { fields, modified: now });
    }

    /// Removes a document if it is due by one of these policies.
    fn remove(&mut self, id: Id, now: i64, among: impl Fn(&Policy) -> bool) {
        let Some(stored) = self.documents.get(&id) else { return };
        let due: Vec<bool> = self
            .policies
            .iter()
            .filter(|policy| among(policy) && self.is_due(policy, id, stored, now))
            .map(|policy| policy.options.archive)
            .collect();
        if due.is_empty() {
            return;
        }
        let number = stored.fields.number;
        match (due.iter().all(|archives| *archives), due.iter().any(|archives| *archives)) {
            (true, _) => drop(self.archive.insert(number, Archived::Must)),
            (_, true) => drop(self.archive.insert(number, Archived::May)),
            _ => {}
        }
        self.documents.remove(&id);
    }

    pub(super) fn pass(&mut self, now: i64) {
        if self.jumped_ms.is_some() {
            return;
        }
        for id in self.documents.keys().copied().collect::<Vec<_>>() {
            self.remove(id, now, |policy| !policy.options.paused);
        }
    }
}
