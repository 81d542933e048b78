//! The files of the page. They are part of the binary.

use std::sync::{Arc, LazyLock};

use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};

use super::peer::Peer;
use super::site::Site;

/// A file of the page: its name, type, and contents.
type Asset = (&'static str, &'static str, &'static str);

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

const INDEX: &str = include_str!("page/index.html");
const LOGIN: &str = include_str!("page/login.html");
const ICON: &str = include_str!("page/icon.svg");
const FILES: &[Asset] = &[
    ("page.css", CSS, include_str!("page/page.css")),
    ("uplot.css", CSS, include_str!("page/uplot.css")),
    ("uplot.js", SCRIPT, include_str!("page/uplot.js")),
    ("format.js", SCRIPT, include_str!("page/format.js")),
    ("plots.js", SCRIPT, include_str!("page/plots.js")),
    ("panels.js", SCRIPT, include_str!("page/panels.js")),
    ("page.js", SCRIPT, include_str!("page/page.js")),
    ("login.js", SCRIPT, include_str!("page/login.js")),
    ("icon.svg", SVG, ICON),
];

/// The files as they are sent: without the indentation and the comments of lines, a tenth of them.
static SENT: LazyLock<Vec<(&'static str, &'static str, String)>> = LazyLock::new(|| {
    FILES.iter().map(|(name, kind, contents)| (*name, *kind, shortened(name, contents))).collect()
});

fn shortened(name: &str, contents: &str) -> String {
    // The library is sent as it was published.
    if name.starts_with("uplot") {
        return contents.to_owned();
    }
    let lines =
        contents.lines().map(str::trim).filter(|it| !it.is_empty() && !it.starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// `GET /`: the page, or the form of the login.
pub(super) async fn index(
    State(site): State<Arc<Site>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Response {
    match site.identify(&peer, &headers) {
        Ok(()) => sent(HTML, INDEX),
        Err(_) => Redirect::to("/login").into_response(),
    }
}

/// `GET /login`.
pub(super) async fn login() -> Response {
    sent(HTML, LOGIN)
}

/// `GET /page/{name}`.
pub(super) async fn file(Path(name): Path<String>) -> Response {
    match SENT.iter().find(|(known, _, _)| *known == name) {
        Some((_, kind, contents)) => sent(kind, contents),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// `GET /favicon.ico`.
pub(super) async fn icon() -> Response {
    sent(SVG, ICON)
}

/// `GET /robots.txt`.
pub(super) async fn robots() -> &'static str {
    "User-agent: *\nDisallow: /\n"
}

fn sent(kind: &'static str, contents: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], contents).into_response()
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    /// The files of uPlot 1.6.32 in the package `uplot` of the npm registry.
    #[test]
    fn uplot_is_unchanged() {
        let hash = |name: &str| {
            let (_, _, contents) = FILES.iter().find(|(known, _, _)| *known == name).unwrap();
            hex::encode(Sha256::digest(contents))
        };
        let script = "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f";
        let style = "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04";
        assert_eq!((hash("uplot.js").as_str(), hash("uplot.css").as_str()), (script, style));
        let license = include_str!("page/uplot.LICENSE");
        assert!(license.contains("MIT License"));
    }

    #[test]
    fn the_page_is_small_and_has_no_inline_scripts_or_styles() {
        let all: usize = SENT.iter().map(|(_, _, contents)| contents.len()).sum();
        assert!(all + INDEX.len() + LOGIN.len() < 120_000, "{all}");
        for html in [INDEX, LOGIN] {
            for script in html.split("<script").skip(1) {
                assert!(script.trim_start().starts_with("src=") && script.contains("></script>"));
            }
            assert!(
                !html.contains("<style") && !html.contains(" style=") && !html.contains("onclick")
            );
        }
        // Names come from clients: they are set as text, never as markup.
        let own = FILES.iter().filter(|(name, _, _)| name.ends_with(".js") && *name != "uplot.js");
        for (name, _, contents) in own {
            for markup in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!contents.contains(markup), "{name} has {markup}");
            }
        }
    }
}
