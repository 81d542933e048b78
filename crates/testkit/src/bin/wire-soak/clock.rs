//! A wall clock of the server that can be set: `clock.c`, compiled and preloaded into it.

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The server's clock.
pub(crate) struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// Compiles the library; `None` without a C compiler.
    pub(crate) fn make(folder: &Path) -> Option<Clock> {
        let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
        let file = folder.join("clock");
        std::fs::write(&source, include_str!("clock.c")).ok()?;
        std::fs::write(&file, [0; 8]).ok()?;
        let compiled = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .arg("-ldl")
            .status()
            .ok()?;
        compiled.success().then_some(Clock { library, file })
    }

    /// The environment variables of the server.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.display().to_string();
        vec![
            ("LD_PRELOAD".to_owned(), text(&self.library)),
            ("SOAK_CLOCK".to_owned(), text(&self.file)),
        ]
    }

    /// Sets it to the true time plus an offset in milliseconds.
    pub(crate) fn set(&self, offset_ms: i64) -> Result<(), String> {
        let mut file = OpenOptions::new().write(true).open(&self.file);
        let written = file.as_mut().map_err(|error| error.to_string()).map(|file| {
            file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&offset_ms.to_le_bytes()))
        });
        written?.map_err(|error| error.to_string())
    }
}
