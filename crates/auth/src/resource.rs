//! Resources, which privileges apply to, and targets, which commands act on. Manual: "Resource
//! Document".

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::arguments::{Argument, Fields};
use mayfly_value::{DocBuilder, RawDoc, RawValue};

/// Prefix of the collections with the buckets of time series.
pub(crate) const BUCKETS_PREFIX: &str = "system.buckets.";

/// The fields of a resource.
const FIELDS: &[Argument] = &[
    Argument::flag("cluster"),
    Argument::flag("anyResource"),
    Argument::string("db"),
    Argument::string("collection"),
    Argument::string("system_buckets"),
];

/// The resource of a privilege. An empty name is a wildcard: in `db` for every database, in
/// `collection` for every collection except system collections, in `system_buckets` for every
/// collection of buckets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// `{ anyResource: true }`
    Any,
    /// `{ cluster: true }`
    Cluster,
    /// `{ db, collection }`
    Namespace {
        /// The database; empty for every database, except system collections and, without a
        /// collection, `local` and `config`.
        db: String,
        /// The collection; empty for every collection that is not a system collection.
        collection: String,
    },
    /// `{ db, system_buckets }`
    SystemBuckets {
        /// The database; empty or absent for every database.
        db: String,
        /// The name of the time series; empty for every one.
        series: String,
    },
}

impl Resource {
    /// The resource `{ db, collection }`.
    pub fn namespace(db: impl Into<String>, collection: impl Into<String>) -> Resource {
        Resource::Namespace { db: db.into(), collection: collection.into() }
    }

    /// Whether it covers anything outside a database.
    pub fn is_beyond(&self, database: &str) -> bool {
        match self {
            Resource::Any | Resource::Cluster => true,
            Resource::Namespace { db, .. } | Resource::SystemBuckets { db, .. } => db != database,
        }
    }

    /// The database whose administrators may grant privileges on it: its own, else `admin`.
    pub fn owner(&self) -> &str {
        match self {
            Resource::Namespace { db, .. } | Resource::SystemBuckets { db, .. }
                if !db.is_empty() =>
            {
                db
            }
            _ => "admin",
        }
    }

    /// Parses a resource document.
    ///
    /// # Errors
    /// 9 FailedToParse unless it has exactly one of the known forms.
    pub fn parse(document: RawDoc<'_>) -> Result<Resource> {
        let fault = |text: &str| Err(Error::new(ErrorCode::FailedToParse, text));
        let (mut db, mut collection, mut buckets) = (None, None, None);
        let (mut any, mut cluster) = (false, false);
        let fields = Fields::read_lenient(document, "privileges.resource", FIELDS)?;
        for field in document {
            let text = match (field.name(), field.value()) {
                (_, RawValue::Null | RawValue::Undefined) => continue,
                ("db" | "collection" | "system_buckets", RawValue::String(text)) => text,
                (name @ ("cluster" | "anyResource"), _) if fields.bool(name)? == Some(true) => "",
                ("cluster" | "anyResource", _) => {
                    return fault("'cluster' and 'anyResource' must be true where they are given");
                }
                _ => continue,
            };
            let again = match field.name() {
                "db" => db.replace(text).is_some(),
                "collection" => collection.replace(text).is_some(),
                "system_buckets" => buckets.replace(text).is_some(),
                "cluster" => std::mem::replace(&mut cluster, true),
                _ => std::mem::replace(&mut any, true),
            };
            if again {
                return fault("a resource has the same field twice");
            }
        }
        match (any, cluster, db, collection, buckets) {
            (true, false, None, None, None) => Ok(Resource::Any),
            (false, true, None, None, None) => Ok(Resource::Cluster),
            (false, false, Some(db), Some(collection), None) => {
                Ok(Resource::namespace(db, collection))
            }
            (false, false, db, None, Some(series)) => Ok(Resource::SystemBuckets {
                db: db.unwrap_or_default().to_owned(),
                series: series.to_owned(),
            }),
            _ => fault(
                "resource must have 'db' and 'collection', or 'cluster', or 'anyResource', or 'system_buckets'",
            ),
        }
    }

    /// Appends its fields to an open document.
    pub fn append_to(&self, out: &mut DocBuilder) {
        match self {
            Resource::Any => out.append("anyResource", true),
            Resource::Cluster => out.append("cluster", true),
            Resource::Namespace { db, collection } => {
                out.append("db", db.as_str()).append("collection", collection.as_str())
            }
            Resource::SystemBuckets { db, series } if db.is_empty() => {
                out.append("system_buckets", series.as_str())
            }
            Resource::SystemBuckets { db, series } => {
                out.append("db", db.as_str()).append("system_buckets", series.as_str())
            }
        };
    }
}

/// The object that a command acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// The server as a whole.
    Cluster,
    /// Everything: only privileges on any resource cover it.
    Everything,
    /// All non-system collections of all databases.
    AllNormal,
    /// A whole database with all its non-system collections.
    Database(&'a str),
    /// A collection: its database and its name.
    Collection(&'a str, &'a str),
}

/// Whether a collection is a system collection, which privileges on databases do not cover.
pub(crate) fn is_system(db: &str, collection: &str) -> bool {
    collection.starts_with("system.") || (db == "local" && collection.starts_with("replset."))
}

/// Databases that wildcards do not include.
pub(crate) fn is_internal(db: &str) -> bool {
    matches!(db, "local" | "config")
}
