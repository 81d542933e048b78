//! A validated `database.collection`.

use std::fmt;
use std::sync::Arc;

use crate::{Error, ErrorCode, Result, limits};

/// Longest database name, in bytes.
const MAX_DATABASE_NAME_BYTES: usize = 63;

/// A validated `database.collection`. Cheap to clone; orders and hashes by the full text.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace {
    full: Arc<str>,
    db_len: usize,
}

impl Namespace {
    /// Checks both names by the rules of the reference.
    ///
    /// # Errors
    /// 73 InvalidNamespace.
    pub fn new(db: &str, collection: &str) -> Result<Namespace> {
        check_database_name(db)?;
        let invalid = |why: &str| {
            let text = format!("Invalid namespace specified '{db}.{collection}'{why}");
            Err(Error::new(ErrorCode::InvalidNamespace, text))
        };
        if collection.is_empty() {
            return invalid("");
        }
        if collection.starts_with('.') {
            return invalid(": collection names cannot begin with '.'");
        }
        if collection.contains('\0')
            || (collection.contains('$') && !special_dollar_name(collection))
        {
            return invalid(": collection names cannot contain '$' or the null character");
        }
        if db.len() + 1 + collection.len() > limits::MAX_NAMESPACE_BYTES {
            return invalid(": the fully qualified namespace is longer than 255 bytes");
        }
        // Every command makes one: `format!` costs 400 instructions more, and a `String` another
        // allocation.
        let mut full = [0; limits::MAX_NAMESPACE_BYTES];
        let (db_len, start) = (db.len(), db.len() + 1);
        let end = start + collection.len();
        full[..db_len].copy_from_slice(db.as_bytes());
        full[db_len] = b'.';
        full[start..end].copy_from_slice(collection.as_bytes());
        match std::str::from_utf8(&full[..end]) {
            Ok(full) => Ok(Namespace { full: full.into(), db_len }),
            Err(_) => unreachable!("two texts and a dot are a text"),
        }
    }

    /// Splits `db.coll` at the first dot and checks both parts.
    ///
    /// # Errors
    /// 73 InvalidNamespace.
    pub fn parse(full: &str) -> Result<Namespace> {
        match full.split_once('.') {
            Some((db, collection)) => Namespace::new(db, collection),
            None => Err(Error::new(
                ErrorCode::InvalidNamespace,
                format!("Invalid namespace specified '{full}'"),
            )),
        }
    }

    /// The database name.
    pub fn db(&self) -> &str {
        &self.full[..self.db_len]
    }

    /// The collection name, which may contain dots.
    pub fn collection(&self) -> &str {
        &self.full[self.db_len + 1..]
    }

    /// The full name, `db.collection`.
    pub fn as_str(&self) -> &str {
        &self.full
    }
}

/// Checks a database name: not empty, at most 63 bytes, none of `/\. "$*<>:|?` or NUL.
///
/// # Errors
/// 73 InvalidNamespace.
pub(crate) fn check_database_name(db: &str) -> Result<()> {
    let bad = |c: char| matches!(c, '/' | '\\' | '.' | ' ' | '"' | '$' | '\0');
    let external = db == "$external";
    if db.is_empty() || db.len() > MAX_DATABASE_NAME_BYTES || (db.contains(bad) && !external) {
        return Err(Error::new(
            ErrorCode::InvalidNamespace,
            format!("Invalid database name: '{db}'"),
        ));
    }
    Ok(())
}

/// Names with a dollar sign that the reference itself returns.
fn special_dollar_name(collection: &str) -> bool {
    collection == "$cmd" || collection.starts_with("$cmd.")
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_and_rejects() {
        let ns = Namespace::parse("db.a.b").unwrap();
        assert_eq!((ns.db(), ns.collection(), ns.as_str()), ("db", "a.b", "db.a.b"));
        for bad in ["", "db", "db.", ".c", "d b.c", "db..c", "db.a$b", "d\0.c", "d/e.c"] {
            assert_eq!(
                Namespace::parse(bad).unwrap_err().code(),
                ErrorCode::InvalidNamespace,
                "{bad:?}"
            );
        }
        assert_eq!(Namespace::parse("db.c.").unwrap().collection(), "c.");
        assert!(Namespace::new("d", &"c".repeat(253)).is_ok());
        assert!(Namespace::new("d", &"c".repeat(254)).is_err());
    }
}
