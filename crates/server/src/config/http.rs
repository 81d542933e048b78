//! The configuration of the status page and the metrics.

use std::path::PathBuf;

use super::{Layers, list};

/// The address if the flag has none.
pub(super) const DEFAULT_ADDRESS: &str = "127.0.0.1:27018";
/// The port if an address has none.
const DEFAULT_PORT: u16 = 27018;

/// Where the status page and the metrics are served, and to which requests.
#[derive(Clone, Debug, Default)]
pub struct HttpOptions {
    /// The addresses to listen on: a name or an IP address, and a port. Empty if nothing is served.
    pub addresses: Vec<(String, u16)>,
    /// Further names by which clients may call this server.
    pub hosts: Vec<String>,
    /// Whether the page has no actions.
    pub read_only: bool,
    /// The file with the token that gives access to the metrics.
    pub token_file: Option<PathBuf>,
}

/// Reads the keys.
///
/// # Errors
/// An address without a valid port.
pub(super) fn settings(layers: &Layers) -> anyhow::Result<HttpOptions> {
    let addresses = list(&layers.text("net.http.address")?);
    Ok(HttpOptions {
        addresses: addresses.iter().map(|text| address(text)).collect::<anyhow::Result<_>>()?,
        hosts: list(&layers.text("net.http.hosts")?.to_ascii_lowercase()),
        read_only: layers.bool("net.http.readOnly")?,
        token_file: Some(layers.text("net.http.tokenFile")?)
            .filter(|text| !text.is_empty())
            .map(PathBuf::from),
    })
}

/// Splits `host:port`, `[address]:port`, or either without a port.
fn address(text: &str) -> anyhow::Result<(String, u16)> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        // More than one colon is an IPv6 address without a port.
        None if text.matches(':').count() > 1 => (text, None),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        Some(port) => port.parse().map_err(|_| mistake(text))?,
        None => DEFAULT_PORT,
    };
    match host {
        "" => Err(mistake(text)),
        host => Ok((host.to_owned(), port)),
    }
}

fn mistake(text: &str) -> anyhow::Error {
    let failure = crate::failure::Failure::new(
        crate::failure::FailureKind::Options,
        "cannot use the configuration",
        "correct net.http.address or --http",
    );
    anyhow::anyhow!("'{text}' is not an address with a port, such as {DEFAULT_ADDRESS}")
        .context(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_lack_the_port() {
        let split = |text: &str| address(text).ok();
        let is = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(split("127.0.0.1:1"), is("127.0.0.1", 1));
        assert_eq!(split("localhost"), is("localhost", DEFAULT_PORT));
        assert_eq!(split("[::1]:5"), is("::1", 5));
        assert_eq!(split("[::1]"), is("::1", DEFAULT_PORT));
        assert_eq!(split("::1"), is("::1", DEFAULT_PORT));
        for wrong in ["", ":1", "a:b", "a:70000", "[]:1", "[::1]:"] {
            assert_eq!(split(wrong), None, "{wrong}");
        }
    }
}
