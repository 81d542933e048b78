//! Connection strings: `mongodb://user:password@host:port/database?option=value`, with one host.

use anyhow::{Context, bail};
use secrecy::SecretString;
use url::Url;

const DEFAULT_PORT: u16 = 27017;

/// A server, and how to log in there.
#[derive(Debug)]
pub(crate) struct Uri {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: Option<UriUser>,
    pub(crate) tls: bool,
    /// The PEM file with the authorities of the server's certificate.
    pub(crate) ca_file: Option<String>,
}

/// A user with a password.
#[derive(Clone, Debug)]
pub(crate) struct UriUser {
    pub(crate) name: String,
    pub(crate) password: SecretString,
    /// The database of the user.
    pub(crate) source: String,
}

impl Uri {
    /// The server at a port of this machine, without a login.
    pub(crate) fn local(port: u16) -> Uri {
        Uri { host: "127.0.0.1".to_owned(), port, user: None, tls: false, ca_file: None }
    }

    /// Parses a connection string. Errors do not contain it, because it may have a password.
    ///
    /// # Errors
    /// A string of another form, or options that this client does not have.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Uri> {
        if text.starts_with("mongodb+srv://") {
            bail!("mongodb+srv:// is not supported; name the server with mongodb://host:port");
        }
        if !text.starts_with("mongodb://") {
            bail!("the URI must begin with mongodb://");
        }
        let url = Url::parse(text).context("the URI must be of the form mongodb://host:port")?;
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = decoded(host.context("the URI names no host")?)?;
        let mut uri = Uri {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port().unwrap_or(DEFAULT_PORT),
            user: None,
            tls: false,
            ca_file: None,
        };
        let mut source = match url.path().trim_matches('/') {
            "" => "admin".to_owned(),
            database => decoded(database)?,
        };
        for (name, value) in url.query_pairs() {
            match name.to_ascii_lowercase().as_str() {
                "tls" | "ssl" => uri.tls = value == "true",
                "tlscafile" => uri.ca_file = Some(value.into_owned()),
                "authsource" => source = value.into_owned(),
                "authmechanism" if value != "SCRAM-SHA-256" => {
                    bail!("only the mechanism SCRAM-SHA-256 is supported")
                }
                "tlscertificatekeyfile"
                | "tlsinsecure"
                | "tlsallowinvalidcertificates"
                | "tlsallowinvalidhostnames"
                | "proxyhost" => {
                    bail!("the option '{name}' of the URI is not supported")
                }
                // Options of pools and timeouts have no meaning for one command.
                _ => {}
            }
        }
        if !url.username().is_empty() {
            let password = url.password().context("the URI has a user but no password")?;
            let (name, password) = (decoded(url.username())?, decoded(password)?.into());
            uri.user = Some(UriUser { name, password, source });
        }
        Ok(uri)
    }
}

/// Decodes `%40` and the like.
fn decoded(text: &str) -> anyhow::Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        (rest, _) = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digits = [*high, *low];
                let mut byte = [0];
                hex::decode_to_slice(digits, &mut byte).context("the URI has an invalid %")?;
                (after, bytes.push(byte[0]))
            }
            _ => (after, bytes.push(*first)),
        };
    }
    String::from_utf8(bytes).context("the URI is not UTF-8")
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn connection_strings_are_parsed() {
        let uri = Uri::parse("mongodb://127.0.0.1").unwrap();
        assert_eq!((uri.host.as_str(), uri.port, uri.tls), ("127.0.0.1", 27017, false));
        assert!(uri.user.is_none());
        let text = "mongodb://a%40b:p%3Aw%2F@db.example:1/app?tls=true&tlsCAFile=%2Fca.pem&x=y";
        let uri = Uri::parse(text).unwrap();
        let user = uri.user.unwrap();
        assert_eq!((uri.host.as_str(), uri.port, uri.tls), ("db.example", 1, true));
        assert_eq!(uri.ca_file.as_deref(), Some("/ca.pem"));
        assert_eq!((user.name.as_str(), user.source.as_str()), ("a@b", "app"));
        assert_eq!(user.password.expose_secret(), "p:w/");
        let uri = Uri::parse("mongodb://u:p@[::1]:5/?authSource=x").unwrap();
        assert_eq!((uri.host.as_str(), uri.port), ("::1", 5));
        assert_eq!(uri.user.unwrap().source, "x");
    }

    #[test]
    fn what_this_client_cannot_do_is_refused_without_the_password() {
        for text in [
            "",
            "mongodb://",
            "http://x",
            "mongodb+srv://x",
            "mongodb://u@x",
            "mongodb://a:1,b:2",
            "mongodb://u:secret@x:99999",
            "mongodb://u:secret%zz@x",
            "mongodb://u:secret%ff@x",
            "mongodb://u:secret@x/?authMechanism=PLAIN",
            "mongodb://u:secret@x/?tlsInsecure=true",
        ] {
            let error = format!("{:#}", Uri::parse(text).unwrap_err());
            assert!(!error.contains("secret"), "{text}: {error}");
        }
    }
}
