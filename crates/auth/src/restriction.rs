//! Network addresses from which a user may log in: `authenticationRestrictions` of users and roles.
//!
//! A user has a list of restrictions, one of which must be met; so has each of the user's roles,
//! and all these lists must be met. A restriction is met when the client's address is in
//! `clientSource` and the server's in `serverAddress`, if present.

use std::net::IpAddr;

use mayfly_base::{Error, Result};
use mayfly_value::arguments::error::wrong_type;
use mayfly_value::arguments::{Argument, Fields};
use mayfly_value::{DocBuilder, RawDoc, RawElement, RawValue};

/// The path of a restriction in errors.
const PATH: &str = "authenticationRestrictions";

/// The fields of a restriction.
const FIELDS: &[Argument] = &[Argument::array("clientSource"), Argument::array("serverAddress")];

/// The addresses of both ends of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The client's address; `None` if unknown.
    pub client: Option<IpAddr>,
    /// The server's address, which the client connected to.
    pub server: Option<IpAddr>,
}

/// Addresses to which a login is restricted. A list that is not given restricts nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restriction {
    client_source: Option<Vec<Range>>,
    server_address: Option<Vec<Range>>,
}

/// An IP address, or a CIDR range.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    address: IpAddr,
    prefix: u8,
    /// The original text.
    text: String,
}

impl Range {
    fn parse(text: &str) -> Option<Range> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse::<u8>().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(most);
        (prefix <= most).then(|| Range { address, prefix, text: text.to_owned() })
    }

    fn contains(&self, other: IpAddr) -> bool {
        match (self.address, other.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let shift = 32 - u32::from(self.prefix);
                own.to_bits().checked_shr(shift) == other.to_bits().checked_shr(shift)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let shift = 128 - u32::from(self.prefix);
                own.to_bits().checked_shr(shift) == other.to_bits().checked_shr(shift)
            }
            _ => false,
        }
    }
}

impl Restriction {
    /// Parses an array of restrictions.
    ///
    /// # Errors
    /// 2 BadValue, 14 TypeMismatch and 40415 unless all values are lists of addresses and ranges
    /// (`10.0.0.0/8`).
    pub fn parse_all(array: RawDoc<'_>) -> Result<Vec<Restriction>> {
        let one = |value: RawValue<'_>| match value {
            RawValue::Document(document) => Some(Restriction::parse(document)),
            RawValue::Null | RawValue::Undefined => None,
            other => Some(Err(wrong_type(PATH, other, "object"))),
        };
        array.iter().filter_map(|element| one(element.value())).collect()
    }

    fn parse(document: RawDoc<'_>) -> Result<Restriction> {
        let fields = Fields::read(document, PATH, FIELDS)?;
        let restriction = Restriction {
            client_source: ranges(&fields, "clientSource")?,
            server_address: ranges(&fields, "serverAddress")?,
        };
        match restriction == Restriction::default() {
            true => Err(Error::bad_value("an authentication restriction must not be empty")),
            false => Ok(restriction),
        }
    }

    /// Appends its fields to an open document.
    pub fn append_to(&self, out: &mut DocBuilder) {
        let lists =
            [("clientSource", &self.client_source), ("serverAddress", &self.server_address)];
        for (name, ranges) in lists {
            let Some(ranges) = ranges else { continue };
            out.start_array(name);
            for range in ranges {
                out.push(range.text.as_str());
            }
            out.end();
        }
    }

    /// Appends restrictions as an array with this name.
    pub fn append_all(restrictions: &[Restriction], name: &str, out: &mut DocBuilder) {
        out.start_array(name);
        for restriction in restrictions {
            restriction.append_to(out.push_document());
            out.end();
        }
        out.end();
    }

    /// Appends lists of restrictions as an array of arrays with this name.
    pub fn append_lists<'r>(
        lists: impl IntoIterator<Item = &'r [Restriction]>,
        name: &str,
        out: &mut DocBuilder,
    ) {
        out.start_array(name);
        for list in lists {
            out.push_array();
            for restriction in list {
                restriction.append_to(out.push_document());
                out.end();
            }
            out.end();
        }
        out.end();
    }

    /// Whether a list of restrictions admits these addresses: it is empty, or one of them is met.
    pub fn admits(restrictions: &[Restriction], addresses: Addresses) -> bool {
        restrictions.is_empty() || restrictions.iter().any(|one| one.is_met(addresses))
    }

    fn is_met(&self, addresses: Addresses) -> bool {
        let within = |ranges: &Option<Vec<Range>>, address: Option<IpAddr>| match ranges {
            None => true,
            Some(ranges) => address.is_some_and(|it| ranges.iter().any(|range| range.contains(it))),
        };
        within(&self.client_source, addresses.client)
            && within(&self.server_address, addresses.server)
    }
}

/// The addresses and ranges of a field.
fn ranges(fields: &Fields<'_>, name: &str) -> Result<Option<Vec<Range>>> {
    let Some(list) = fields.array(name)? else { return Ok(None) };
    let one = |element: RawElement<'_>| match element.value() {
        RawValue::String(text) => Some(Range::parse(text).ok_or_else(|| {
            let fault = "an address restriction must be an array of IP addresses and CIDR ranges";
            Error::bad_value(fault)
        })),
        RawValue::Null | RawValue::Undefined => None,
        other => Some(Err(fields.wrong(&format!("{name}.{}", element.name()), other, "string"))),
    };
    list.iter().filter_map(one).collect::<Result<_>>().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_value::DocBuf;
    use mayfly_value::bson::doc;

    fn parse(list: mayfly_value::bson::Array) -> Result<Vec<Restriction>> {
        let document = DocBuf::from_bson(&doc! { "r": list });
        Restriction::parse_all(document.as_doc().get("r").unwrap().as_array().unwrap())
    }

    fn admits(list: &[Restriction], client: &str, server: &str) -> bool {
        let addresses = Addresses { client: client.parse().ok(), server: server.parse().ok() };
        Restriction::admits(list, addresses)
    }

    #[test]
    fn one_restriction_of_a_list_must_be_met_completely() {
        let list = parse(vec![
            doc! { "clientSource": ["10.0.0.0/8", "::1"], "serverAddress": ["127.0.0.1"] }.into(),
            doc! { "clientSource": ["192.168.1.7"] }.into(),
        ])
        .unwrap();
        assert!(admits(&list, "10.1.2.3", "127.0.0.1"));
        assert!(admits(&list, "::ffff:10.1.2.3", "127.0.0.1"), "mapped addresses are IPv4");
        assert!(admits(&list, "::1", "127.0.0.1"));
        assert!(!admits(&list, "10.1.2.3", "127.0.0.2"));
        assert!(admits(&list, "192.168.1.7", "127.0.0.2"));
        assert!(!admits(&list, "192.168.1.8", "127.0.0.1"));
        assert!(!admits(&list, "unknown", "127.0.0.1"), "who is not known is not let in");
        assert!(admits(&[], "unknown", "unknown"));
    }

    #[test]
    fn prefixes_of_all_lengths() {
        let all = parse(vec![doc! { "clientSource": ["0.0.0.0/0", "::/0"] }.into()]).unwrap();
        assert!(admits(&all, "255.1.2.3", "") && admits(&all, "fe80::1", ""));
        let one = parse(vec![doc! { "clientSource": ["1.2.3.4/31"] }.into()]).unwrap();
        assert!(admits(&one, "1.2.3.5", "") && !admits(&one, "1.2.3.6", ""));
    }

    #[test]
    fn invalid_restrictions_are_refused() {
        for wrong in [
            doc! {},
            doc! { "clientSource": ["10.0.0.0/33"] },
            doc! { "clientSource": ["localhost"] },
            doc! { "clientSource": 5 },
            doc! { "clientSource": [5] },
            doc! { "from": ["10.0.0.1"] },
        ] {
            assert!(parse(vec![wrong.clone().into()]).is_err(), "{wrong}");
        }
        assert!(parse(vec!["10.0.0.1".into()]).is_err());
    }
}
