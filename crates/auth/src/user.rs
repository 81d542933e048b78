//! Users as documents of `admin.system.users`.
//!
//! ```text
//! { _id: "db.user", userId: UUID, user, db, credentials: { "SCRAM-SHA-1": {..}, "SCRAM-SHA-256": {..} },
//!   roles: [ { role, db } ], customData?, authenticationRestrictions? }
//! ```

use std::fmt;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::scram::Credential;
use crate::{Mechanism, Restriction, RoleName};

/// A user's name, unique across databases.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserName {
    /// The name within the database.
    pub user: String,
    /// The authentication database, where the user was created.
    pub db: String,
}

impl UserName {
    /// The name of a user in a database.
    pub fn new(user: impl Into<String>, db: impl Into<String>) -> UserName {
        UserName { user: user.into(), db: db.into() }
    }

    /// `_id` of the user's document: `db.user`.
    pub fn id(&self) -> String {
        format!("{}.{}", self.db, self.user)
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.user, self.db)
    }
}

/// A user's credentials, by mechanism.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    of: [Option<Credential>; Mechanism::ALL.len()],
    /// The password is verified externally: users of the database `$external`.
    pub external: bool,
}

impl Credentials {
    /// The credentials of externally authenticated users.
    pub fn external() -> Credentials {
        Credentials { external: true, ..Credentials::default() }
    }

    /// Adds or replaces the credential of a mechanism.
    pub fn set(&mut self, mechanism: Mechanism, credential: Credential) {
        self.of[mechanism as usize] = Some(credential);
    }

    /// The credential of a mechanism.
    pub fn get(&self, mechanism: Mechanism) -> Option<&Credential> {
        self.of[mechanism as usize].as_ref()
    }

    /// Removes the credentials of all other mechanisms.
    pub fn keep_only(&mut self, mechanisms: &[Mechanism]) {
        for mechanism in Mechanism::ALL {
            if !mechanisms.contains(&mechanism) {
                self.of[mechanism as usize] = None;
            }
        }
    }

    /// The names of the mechanisms that the user can log in with.
    pub fn mechanisms(&self) -> impl Iterator<Item = &'static str> {
        let own = Mechanism::ALL.into_iter().filter(|one| self.get(*one).is_some());
        let external = self.external.then_some("external");
        own.map(Mechanism::name).chain(external)
    }

    fn parse(document: RawDoc<'_>) -> Result<Credentials> {
        let mut credentials = Credentials::default();
        for field in document {
            match (field.name(), Mechanism::by_name(field.name()), field.value()) {
                (_, Some(mechanism), RawValue::Document(stored)) => {
                    credentials.set(mechanism, Credential::parse(mechanism, stored)?);
                }
                ("external", _, RawValue::Bool(external)) => credentials.external = external,
                (other, ..) => return Err(damaged(format!("credential '{other}'"))),
            }
        }
        Ok(credentials)
    }

    fn append_to(&self, out: &mut DocBuilder) {
        for mechanism in Mechanism::ALL {
            if let Some(credential) = self.get(mechanism) {
                credential.append_to(out.start_document(mechanism.name()));
                out.end();
            }
        }
        if self.external {
            out.append("external", true);
        }
    }
}

/// A user account.
#[derive(Clone, Debug)]
pub struct User {
    /// Name and authentication database.
    pub name: UserName,
    /// `userId`; `None` for users of old dumps.
    pub id: Option<[u8; 16]>,
    /// The credentials to log in with.
    pub credentials: Credentials,
    /// The granted roles.
    pub roles: Vec<RoleName>,
    /// `customData`, which the server does not interpret.
    pub custom_data: Option<DocBuf>,
    /// The addresses from which the user may log in.
    pub restrictions: Vec<Restriction>,
}

/// The error for a document that this server cannot have written.
fn damaged(what: String) -> Error {
    Error::new(
        ErrorCode::UnsupportedFormat,
        format!("a document of admin.system.users has a bad {what}"),
    )
}

impl User {
    /// Parses a user's document.
    ///
    /// # Errors
    /// 12 UnsupportedFormat for a missing or unknown field or a wrong type: such a user cannot log
    /// in.
    pub fn parse(document: RawDoc<'_>) -> Result<User> {
        let text = |name: &str| match document.get(name) {
            Some(RawValue::String(text)) if !text.is_empty() => Ok(text),
            _ => Err(damaged(format!("'{name}'"))),
        };
        let name = UserName::new(text("user")?, text("db")?);
        if text("_id")? != name.id() {
            return Err(damaged("'_id'".to_owned()));
        }
        let id = match document.get("userId") {
            None => None,
            Some(RawValue::Binary { subtype: 4, bytes }) => {
                Some(<[u8; 16]>::try_from(bytes).map_err(|_| damaged("'userId'".to_owned()))?)
            }
            Some(_) => return Err(damaged("'userId'".to_owned())),
        };
        let credentials = match document.get("credentials") {
            Some(RawValue::Document(credentials)) => Credentials::parse(credentials)?,
            _ => return Err(damaged("'credentials'".to_owned())),
        };
        let roles = match document.get("roles") {
            Some(RawValue::Array(roles)) => {
                RoleName::parse_stored(roles).ok_or_else(|| damaged("'roles'".to_owned()))?
            }
            _ => return Err(damaged("'roles'".to_owned())),
        };
        let custom_data = match document.get("customData") {
            None => None,
            Some(RawValue::Document(data)) => Some(data.to_owned()),
            Some(_) => return Err(damaged("'customData'".to_owned())),
        };
        let restrictions = match document.get("authenticationRestrictions") {
            None => Vec::new(),
            Some(RawValue::Array(list)) => Restriction::parse_all(list)
                .map_err(|_| damaged("'authenticationRestrictions'".to_owned()))?,
            Some(_) => return Err(damaged("'authenticationRestrictions'".to_owned())),
        };
        Ok(User { name, id, credentials, roles, custom_data, restrictions })
    }

    /// The user's document.
    pub fn to_document(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append("_id", self.name.id().as_str());
        self.append_identity(&mut out);
        self.credentials.append_to(out.start_document("credentials"));
        out.end();
        RoleName::append_all(&self.roles, "roles", &mut out);
        if let Some(data) = &self.custom_data {
            out.append("customData", data);
        }
        if !self.restrictions.is_empty() {
            Restriction::append_all(&self.restrictions, "authenticationRestrictions", &mut out);
        }
        out.finish()
    }

    /// Appends `userId`, `user` and `db`, for documents and `usersInfo`.
    pub fn append_identity(&self, out: &mut DocBuilder) {
        if let Some(id) = &self.id {
            out.append("userId", RawValue::uuid(id));
        }
        out.append("user", self.name.user.as_str()).append("db", self.name.db.as_str());
    }

    /// Appends the credentials as an embedded document, for `usersInfo` with `showCredentials`.
    pub fn append_credentials(&self, out: &mut DocBuilder) {
        self.credentials.append_to(out.start_document("credentials"));
        out.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scram::Iterations;
    use mayfly_value::bson::{Bson, Document, doc};

    fn user() -> User {
        let mut credentials = Credentials::default();
        for mechanism in Mechanism::ALL {
            let (salt, few) = (vec![1; mechanism.salt_bytes()], Iterations::new(4096).unwrap());
            let credential = Credential::derive(mechanism, "ann", "p", &salt, few).unwrap();
            credentials.set(mechanism, credential);
        }
        User {
            name: UserName::new("ann", "shop"),
            id: Some([5; 16]),
            credentials,
            roles: vec![RoleName::new("read", "shop")],
            custom_data: Some(DocBuf::from_bson(&doc! { "x": 1 })),
            restrictions: Vec::new(),
        }
    }

    #[test]
    fn users_are_read_as_they_are_written() {
        let document = user().to_document();
        let read = User::parse(document.as_doc()).unwrap();
        assert_eq!(read.to_document().as_bytes(), document.as_bytes());
        assert_eq!(read.name.to_string(), "ann@shop");
        assert_eq!(
            read.credentials.mechanisms().collect::<Vec<_>>(),
            ["SCRAM-SHA-1", "SCRAM-SHA-256"]
        );
        let mut less = read.credentials;
        less.keep_only(&[Mechanism::ScramSha256]);
        assert_eq!(less.mechanisms().collect::<Vec<_>>(), ["SCRAM-SHA-256"]);
    }

    #[test]
    fn damaged_users_are_errors() {
        let document = user().to_document();
        let good = Document::from_reader(document.as_bytes()).unwrap();
        let parse = |document: &Document| User::parse(DocBuf::from_bson(document).as_doc());
        assert!(parse(&good).is_ok());
        let stored = |change: &dyn Fn(&mut Document)| {
            let mut credentials = good.get_document("credentials").unwrap().clone();
            change(credentials.get_document_mut("SCRAM-SHA-256").unwrap());
            Bson::from(credentials)
        };
        for (field, value) in [
            ("_id", Bson::from("shop.bob")),
            ("_id", 5.into()),
            ("user", "".into()),
            ("db", Bson::Null),
            ("userId", "x".into()),
            ("credentials", Bson::Null),
            ("credentials", doc! { "PLAIN": "secret" }.into()),
            ("credentials", stored(&|of| drop(of.insert("iterationCount", 1)))),
            ("credentials", stored(&|of| drop(of.insert("salt", "AAAA")))),
            ("credentials", stored(&|of| drop(of.insert("storedKey", "")))),
            ("credentials", stored(&|of| drop(of.remove("serverKey")))),
            ("roles", "root".into()),
            ("roles", vec!["root"].into()),
            ("customData", 1.into()),
            // An unreadable restriction must not count as none.
            ("authenticationRestrictions", Bson::Null),
            ("authenticationRestrictions", vec![doc! { "clientSource": ["x"] }].into()),
        ] {
            let mut damaged = good.clone();
            damaged.insert(field, value);
            let error = parse(&damaged).unwrap_err();
            assert_eq!(error.code(), ErrorCode::UnsupportedFormat, "{damaged}");
            assert!(!error.message().contains("secret"));
        }
    }
}
