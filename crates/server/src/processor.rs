//! Checks that the processor has the features for which this binary was compiled, so that an old
//! one causes an error message instead of an illegal instruction. The list is that of
//! `.cargo/config.toml`.

use std::io::Read;

use anyhow::anyhow;

use crate::failure::{Failure, FailureKind};

/// The flags by the kernel's names.
const NEEDED: &[&str] = match cfg!(target_arch = "x86_64") {
    true => &["sse4_2", "popcnt", "pclmulqdq"],
    false => &[],
};

/// Contains the flags of the first processor.
const MAX_READ: u64 = 8 * 1024;

/// Checks the processor.
///
/// # Errors
/// The missing features. If the kernel does not report features, the check succeeds.
pub fn check() -> anyhow::Result<()> {
    let mut text = Vec::new();
    let read = std::fs::File::open("/proc/cpuinfo")
        .and_then(|file| file.take(MAX_READ).read_to_end(&mut text));
    match read {
        Ok(_) => check_flags(&String::from_utf8_lossy(&text)),
        Err(_) => Ok(()),
    }
}

fn check_flags(cpuinfo: &str) -> anyhow::Result<()> {
    let Some(flags) = cpuinfo.lines().find(|line| line.starts_with("flags")) else {
        return Ok(());
    };
    let missing: Vec<_> =
        NEEDED.iter().filter(|needed| !flags.split_whitespace().any(|f| f == **needed)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(anyhow!("it lacks {missing:?}").context(Failure::new(
        FailureKind::General,
        "cannot run on this processor",
        "use another machine, or compile the binary without these features",
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        assert!(check().is_ok());
        assert!(check_flags("processor : 0\nflags : fpu sse4_2 popcnt pclmulqdq\n").is_ok());
        assert!(check_flags("processor : 0\n").is_ok());
        let refused = check_flags("flags : fpu sse4_2\n");
        assert_eq!(refused.is_err(), cfg!(target_arch = "x86_64"));
    }
}
