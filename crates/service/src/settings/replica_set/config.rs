//! The configuration of the set, as in `replSetGetConfig` and `local.system.replset`, and its
//! changeable parts.

use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawValue};

use super::ReplicaSet;

/// A field of the stored document: the address was set and not taken from a connection.
const ADDRESS_SET: &str = "mayflydbAddressSet";

/// The changeable parts of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct SetConfig {
    /// Incremented by each change.
    pub version: i64,
    /// The member's address; unset for the one by which a client knows it.
    pub host: Option<String>,
    /// The member's priority. The only member is elected with any priority.
    pub priority: f64,
    /// The member's tags.
    pub tags: DocBuf,
    /// The `settings` that were given; others have their defaults. Only `getLastErrorModes`
    /// affects a set of one member.
    pub settings: DocBuf,
}

impl Default for SetConfig {
    fn default() -> SetConfig {
        SetConfig {
            version: 1,
            host: None,
            priority: 1.0,
            tags: DocBuf::empty(),
            settings: DocBuf::empty(),
        }
    }
}

/// Numeric settings and their defaults.
pub const NUMBERS: &[(&str, i32)] = &[
    ("heartbeatIntervalMillis", 2000),
    ("heartbeatTimeoutSecs", 10),
    ("electionTimeoutMillis", 10_000),
    ("catchUpTimeoutMillis", -1),
    ("catchUpTakeoverDelayMillis", 30_000),
];

impl SetConfig {
    /// Appends the configuration's fields.
    pub fn append_to(&self, set: &ReplicaSet, me: &str, doc: &mut DocBuilder) {
        doc.append("_id", set.name.as_str()).append("version", whole(self.version));
        doc.append("term", set.term()).start_array("members");
        for (id, address) in (0_i32..).zip(set.addresses(me)) {
            doc.push_document().append("_id", id).append("host", address.as_str());
            doc.append("arbiterOnly", false).append("buildIndexes", true).append("hidden", false);
            doc.append("priority", self.priority).append("tags", &self.tags);
            doc.append("secondaryDelaySecs", 0_i64).append("votes", 1).end();
        }
        doc.end();
        doc.append("protocolVersion", 1_i64).append("writeConcernMajorityJournalDefault", true);
        let given = self.settings.as_doc();
        doc.start_document("settings");
        let chaining = given.get("chainingAllowed").unwrap_or(RawValue::Bool(true));
        doc.append("chainingAllowed", chaining);
        for (name, default) in NUMBERS {
            doc.append(name, given.get(name).unwrap_or(RawValue::Int32(*default)));
        }
        match given.get_element("getLastErrorModes") {
            Some(modes) => doc.append_element(modes),
            None => doc.start_document("getLastErrorModes").end(),
        };
        match given.get_element("getLastErrorDefaults") {
            Some(defaults) => doc.append_element(defaults),
            None => {
                doc.start_document("getLastErrorDefaults").append("w", 1).append("wtimeout", 0);
                doc.end()
            }
        };
        doc.append("replicaSetId", RawValue::ObjectId(set.id())).end();
    }

    /// Whether the only member meets the write concern mode of this name; `None` if the settings
    /// define no such mode.
    pub fn meets_mode(&self, name: &str) -> Option<bool> {
        let modes = self.settings.as_doc().get("getLastErrorModes")?.as_document()?;
        self.meets_tags(modes.get(name)?.as_document()?)
    }

    /// Whether the only member is enough for each tag, whose value is the number of members with
    /// different values of it; `None` if the member does not have one of the tags.
    pub fn meets_tags(&self, counts: RawDoc<'_>) -> Option<bool> {
        let mut met = true;
        for tag in counts {
            self.tags.as_doc().get(tag.name())?;
            let count = Number::from_value(tag.value());
            met &= count.is_some_and(|count| count.to_f64() <= 1.0);
        }
        Some(met)
    }

    /// Builds the document of `local.system.replset`.
    pub(crate) fn stored(&self, set: &ReplicaSet, host: &str) -> DocBuf {
        let mut doc = DocBuilder::new();
        self.append_to(set, &set.address(None, host), &mut doc);
        if self.host.is_some() {
            doc.append(ADDRESS_SET, true);
        }
        doc.finish()
    }

    /// Reads the document of `local.system.replset`.
    pub(crate) fn from_stored(document: RawDoc<'_>) -> SetConfig {
        let default = SetConfig::default();
        let number = |value: Option<RawValue<'_>>| value.and_then(Number::from_value);
        let members = document.get("members").and_then(RawValue::as_array);
        let member = members.and_then(|members| members.iter().next()?.value().as_document());
        let member = member.unwrap_or(RawDoc::EMPTY);
        let is_set = document.get(ADDRESS_SET) == Some(RawValue::Bool(true));
        let part = |document: RawDoc<'_>, name: &str| {
            let part = document.get(name).and_then(RawValue::as_document);
            part.map_or_else(DocBuf::empty, RawDoc::to_owned)
        };
        SetConfig {
            version: number(document.get("version"))
                .and_then(Number::to_i64_exact)
                .unwrap_or(default.version),
            host: member
                .get("host")
                .and_then(RawValue::as_str)
                .filter(|_| is_set)
                .map(str::to_owned),
            priority: number(member.get("priority")).map_or(default.priority, Number::to_f64),
            tags: part(member, "tags"),
            settings: part(document, "settings"),
        }
    }
}

/// A version as in the reference: an int32 if it fits.
fn whole(version: i64) -> RawValue<'static> {
    i32::try_from(version).map_or(RawValue::Int64(version), RawValue::Int32)
}
