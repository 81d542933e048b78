//! The contents of a certificate: the name of its subject as a user name, its expiry, and the roles
//! that it grants.
//!
//! A subject is written as in RFC 2253: the most specific part first, `CN=ann,OU=shop,O=Example`.
//! That text is the name of a user in the database `$external`.

use anyhow::{Context, anyhow, bail};
use mayfly_auth::RoleName;
use mayfly_service::{ClientCertificate, ServerCertificate};
use x509_parser::der_parser::asn1_rs::{Any, FromDer, Tag};
use x509_parser::prelude::X509Certificate;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// The extension that lists roles on databases. Manual, "x.509 Membership and Authorization",
/// `mongoRolesOID`.
const ROLES: &str = "1.3.6.1.4.1.34601.2.1.1";

/// The names of attributes. RFC 4514, section 3, and additions of OpenSSL.
const SHORT_NAMES: &[(&str, &str)] = &[
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.42", "GN"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

fn parse(der: &[u8]) -> anyhow::Result<X509Certificate<'_>> {
    let (_, certificate) =
        X509Certificate::from_der(der).map_err(|error| anyhow!("cannot be read: {error}"))?;
    Ok(certificate)
}

/// Describes the server's certificate, without a certificate authority.
pub(super) fn describe(der: &[u8]) -> anyhow::Result<ServerCertificate> {
    let certificate = parse(der)?;
    Ok(ServerCertificate {
        has_authority: false,
        subject: name(certificate.subject())?,
        expires_ms: certificate.validity().not_after.timestamp().saturating_mul(1000),
    })
}

/// The user name and roles in a client's verified certificate.
pub(super) fn client(der: &[u8]) -> anyhow::Result<ClientCertificate> {
    let certificate = parse(der)?;
    let subject = name(certificate.subject())?;
    if subject.is_empty() {
        bail!("it names no subject");
    }
    let mut extensions = certificate.extensions().iter();
    let roles = extensions
        .find(|extension| extension.oid.to_id_string() == ROLES)
        .map(|extension| roles(extension.value).context("its extension for roles"))
        .transpose()?;
    Ok(ClientCertificate { subject, roles })
}

/// The subject's name, with its parts in reverse order, as in RFC 2253.
fn name(name: &X509Name<'_>) -> anyhow::Result<String> {
    let mut parts = Vec::new();
    for part in name.iter_rdn() {
        let attributes: Result<Vec<String>, _> = part.iter().map(attribute).collect();
        parts.push(attributes?.join("+"));
    }
    parts.reverse();
    Ok(parts.join(","))
}

fn attribute(attribute: &AttributeTypeAndValue<'_>) -> anyhow::Result<String> {
    let oid = attribute.attr_type().to_id_string();
    let short = SHORT_NAMES.iter().find(|known| known.0 == oid).map_or(oid.as_str(), |it| it.1);
    let value = text(attribute.attr_value()).with_context(|| format!("the subject's {short}"))?;
    if value.contains('\0') {
        // Libraries that treat it as the end of a text would read another name.
        bail!("the subject's {short} contains a null byte");
    }
    Ok(format!("{short}={}", escaped(&value)))
}

fn text(value: &Any<'_>) -> anyhow::Result<String> {
    let latin = |bytes: &[u8]| bytes.iter().map(|byte| char::from(*byte)).collect();
    Ok(match value.tag() {
        Tag::Utf8String => String::from_utf8(value.data.to_vec())?,
        Tag::PrintableString | Tag::Ia5String | Tag::NumericString if value.data.is_ascii() => {
            latin(value.data)
        }
        Tag::T61String => latin(value.data),
        Tag::BmpString => {
            let words = value.data.chunks(2).map(|word| match word {
                [high, low] => Ok(u16::from_be_bytes([*high, *low])),
                _ => Err(anyhow!("has an odd length")),
            });
            String::from_utf16(&words.collect::<Result<Vec<_>, _>>()?)?
        }
        _ => bail!("is not a text"),
    })
}

/// Escapes special characters of a name. RFC 2253, section 2.4.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (at, char) in value.chars().enumerate() {
        let is_special = match char {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => true,
            '#' => at == 0,
            ' ' => at == 0 || at == last,
            _ => false,
        };
        if is_special {
            out.push('\\');
        }
        out.push(char);
    }
    out
}

/// Parses the roles of the extension: a set of sequences of two texts, role and database.
fn roles(der: &[u8]) -> anyhow::Result<Vec<RoleName>> {
    let (rest, set) = Any::from_der(der).map_err(unreadable)?;
    if set.tag() != Tag::Set || !rest.is_empty() {
        bail!("is not a set");
    }
    let mut roles = Vec::new();
    let mut left = set.data;
    while !left.is_empty() {
        let (rest, role) = Any::from_der(left).map_err(unreadable)?;
        left = rest;
        if role.tag() != Tag::Sequence {
            bail!("contains an element that is not a sequence");
        }
        let (rest_of_role, name) = Any::from_der(role.data).map_err(unreadable)?;
        let (rest_of_role, database) = Any::from_der(rest_of_role).map_err(unreadable)?;
        if !rest_of_role.is_empty() {
            bail!("contains a role with more than a name and a database");
        }
        roles.push(RoleName::new(text(&name)?, text(&database)?));
    }
    Ok(roles)
}

fn unreadable(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot be read: {error}")
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CustomExtension, DnType, DnValue, KeyPair};

    use super::*;

    fn certificate(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn subject(names: &[(DnType, &str)]) -> anyhow::Result<String> {
        let der = certificate(|params| {
            for (kind, value) in names {
                let value = DnValue::Utf8String((*value).to_owned());
                params.distinguished_name.push(kind.clone(), value);
            }
        });
        Ok(client(&der)?.subject)
    }

    #[test]
    fn subjects_are_written_as_rfc_2253_has_them() {
        let organization = (DnType::OrganizationName, "Example, Inc.");
        let unit = (DnType::OrganizationalUnitName, " a+b ");
        let common = (DnType::CommonName, "#ann \"q\" é");
        let written = subject(&[organization, unit, common]).unwrap();
        assert_eq!(written, r#"CN=\#ann \"q\" é,OU=\ a\+b\ ,O=Example\, Inc."#);
        let other = DnType::CustomDnType(vec![1, 2, 3, 4]);
        let mail = DnType::CustomDnType(vec![1, 2, 840, 113549, 1, 9, 1]);
        let written = subject(&[(other, "x"), (mail, "a@b")]).unwrap();
        assert_eq!(written, "emailAddress=a@b,1.2.3.4=x");
    }

    #[test]
    fn a_certificate_without_a_usable_subject_is_an_error() {
        assert!(subject(&[]).is_err());
        assert!(subject(&[(DnType::CommonName, "admin\0.example")]).is_err());
        assert!(client(b"nonsense").is_err());
    }

    #[test]
    fn roles_are_read_or_the_certificate_is_useless() {
        let read = |der: &[u8]| {
            let der = certificate(|params| {
                params.distinguished_name.push(DnType::CommonName, "ann");
                let oid = [1, 3, 6, 1, 4, 1, 34601, 2, 1, 1];
                let extension = CustomExtension::from_oid_content(&oid, der.to_vec());
                params.custom_extensions.push(extension);
            });
            client(&der).map(|client| client.roles)
        };
        let both = b"\x31\x1a\x30\x0b\x0c\x04read\x0c\x03shp\x30\x0b\x0c\x04root\x0c\x03adm";
        let expected = vec![RoleName::new("read", "shp"), RoleName::new("root", "adm")];
        assert_eq!(read(both).unwrap(), Some(expected));
        assert_eq!(read(b"\x31\x00").unwrap(), Some(Vec::new()));
        for damaged in [
            &both[..20],
            b"\x30\x00",
            b"\x31\x00\x00",
            b"\x31\x03\x30\x01\x0c",
            b"\x31\x02\x0c\x00",
            b"\x31\x08\x30\x06\x02\x01\x05\x02\x01\x05",
        ] {
            assert!(read(damaged).is_err(), "{damaged:?}");
        }
    }
}
