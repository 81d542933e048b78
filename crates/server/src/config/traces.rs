//! The configuration of traces.

use anyhow::{Context, anyhow, bail};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::{Layers, list};
use crate::failure::{Failure, FailureKind};

/// The path of traces at a collector (OTLP/HTTP).
const PATH: &str = "v1/traces";
/// Variables of OpenTelemetry that are read, and the keys that they set.
pub(super) const VARIABLES: [(&str, &str); 2] = [
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "traces.endpoint"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "traces.headers"),
];

/// The collector that gets traces, and the commands that are traced.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// The address to which traces are posted.
    pub url: Url,
    /// Headers of each request.
    pub headers: Vec<(String, SecretString)>,
    /// The share of commands without a parent that are traced.
    pub share: f64,
}

/// Reads the keys; `None` without a collector.
///
/// # Errors
/// An address that is no URL of HTTP, or a header without a value.
pub(super) fn settings(layers: &Layers) -> anyhow::Result<Option<TraceOptions>> {
    let text = layers.text("traces.endpoint")?;
    if text.is_empty() {
        return Ok(None);
    }
    let mistake = |advice: &'static str| {
        Failure::new(FailureKind::Options, "cannot send traces to a collector", advice)
    };
    let url = address(&text).with_context(|| {
        mistake("correct traces.endpoint, --otlpEndpoint or OTEL_EXPORTER_OTLP_ENDPOINT")
    })?;
    let headers = SecretString::from(layers.text("traces.headers")?);
    let headers = list(headers.expose_secret()).into_iter().map(header);
    let headers = headers.collect::<anyhow::Result<_>>().with_context(|| {
        mistake("correct traces.headers, --otlpHeaders or OTEL_EXPORTER_OTLP_HEADERS")
    })?;
    Ok(Some(TraceOptions { url, headers, share: layers.number("traces.share")? }))
}

/// The address of traces at a collector.
fn address(text: &str) -> anyhow::Result<Url> {
    let mut url = Url::parse(text).map_err(|error| anyhow!("'{text}': {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        bail!("'{text}' is not an address such as http://127.0.0.1:4318");
    }
    if !url.path().ends_with(PATH) {
        let path = format!("{}/{PATH}", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    Ok(url)
}

/// A header `name=value`.
fn header(text: String) -> anyhow::Result<(String, SecretString)> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| anyhow!("a header is not name=value"))?;
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_".contains(&it))
    };
    if !is_name(name.trim()) {
        bail!("the name of a header has other characters than letters, digits, '-' and '_'");
    }
    Ok((name.trim().to_owned(), value.trim().to_owned().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_added_to_an_address() {
        for (given, url) in [
            ("http://localhost:4318", "http://localhost:4318/v1/traces"),
            ("https://a.test/otlp/", "https://a.test/otlp/v1/traces"),
            ("http://[::1]:4318/v1/traces", "http://[::1]:4318/v1/traces"),
        ] {
            assert_eq!(address(given).unwrap().as_str(), url);
        }
        for wrong in ["", "localhost:4318", "grpc://a:1", "http://", "unix:/a"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn headers_have_names_and_values() {
        let read = |text: &str| header(text.to_owned()).map(|(name, _)| name).ok();
        assert_eq!(read("Authorization=Basic a=="), Some("Authorization".to_owned()));
        for wrong in ["a", "=b", "a b=c", "a\nb=c"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
