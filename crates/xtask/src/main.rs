//! Development tasks: `pages` writes the pages that come from tables (docs/compatibility.md,
//! docs/metrics.md, the keys and parameters in docs/configuration.md), `tidy` runs checks that the
//! compiler does not do, `ceilings` lowers the recorded limits of counts that may only decrease.

mod compat;
mod keys;
mod metrics;
mod parameters;
mod tidy;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("pages") => pages()?.into_iter().try_for_each(|(name, text)| {
            std::fs::write(root().join(name), text).with_context(|| name.to_owned())
        }),
        Some("tidy") => {
            let problems = tidy::check(&root())?;
            for problem in &problems {
                eprintln!("{problem}");
            }
            if problems.is_empty() { Ok(()) } else { bail!("{} problems", problems.len()) }
        }
        Some("ceilings") => tidy::lower_ceilings(&root()),
        _ => bail!("usage: xtask pages | tidy | ceilings"),
    }
}

/// The pages that come from tables, each with its text.
fn pages() -> Result<Vec<(&'static str, String)>> {
    let configuration = "docs/configuration.md";
    let text = std::fs::read_to_string(root().join(configuration)).context(configuration)?;
    Ok(vec![
        ("docs/compatibility.md", compat::page()),
        ("docs/metrics.md", metrics::page()),
        (configuration, keys::replaced(&root(), &parameters::replaced(&text)?)?),
    ])
}

/// The workspace's folder, by the variable that cargo sets when it runs this program: another clone
/// may have compiled it.
fn root() -> PathBuf {
    let own = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    own.ancestors().nth(2).unwrap_or(Path::new(".")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let problems = tidy::check(&root()).unwrap();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    #[test]
    fn generated_pages_are_current() {
        for (name, text) in pages().unwrap() {
            let found = std::fs::read_to_string(root().join(name)).unwrap_or_default();
            assert!(found == text, "{name}: run `cargo run -p mayfly-xtask -- pages`");
        }
    }
}
