//! Development tasks: `compat` writes COMPATIBILITY.md from the tables, `tidy` checks what no compiler checks, `ceilings` lowers counts
//! that may only go down to what is there.

mod compat;
mod tidy;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("compat") => {
            let path = root().join("COMPATIBILITY.md");
            std::fs::write(&path, compat::page()).with_context(|| path.display().to_string())
        }
        Some("tidy") => {
            let problems = tidy::check(&root())?;
            for problem in &problems {
                eprintln!("{problem}");
            }
            if problems.is_empty() { Ok(()) } else { bail!("{} problems", problems.len()) }
        }
        Some("ceilings") => tidy::lower_ceilings(&root()),
        _ => bail!("usage: xtask compat | tidy | ceilings"),
    }
}

/// The workspace's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new(".")).to_owned()
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
    fn the_compatibility_page_is_current() {
        let found = std::fs::read_to_string(root().join("COMPATIBILITY.md")).unwrap();
        assert!(found == compat::page(), "run `cargo run -p mayfly-xtask -- compat`");
    }
}
