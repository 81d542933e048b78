//! The allocators of the process, and the default size of the cache.

use std::process::Command;

use crate::common::Server;

#[test]
#[cfg(target_os = "linux")]
fn what_is_not_rust_allocates_from_jemalloc() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let tasks = format!("/proc/{}/task", server.child.id());
    let names: Vec<String> = std::fs::read_dir(tasks)
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok())
        .collect();
    // The thread of jemalloc that returns free pages exists if jemalloc is linked, with our
    // options.
    assert!(names.iter().any(|name| name.starts_with("jemalloc_bg")), "{names:?}");
}

#[test]
fn the_size_of_the_cache_says_where_it_comes_from() {
    let shown = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_mayflydb"))
            .args(arguments)
            .arg("--print-config")
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find(|line| line.starts_with("storage.cacheSizeGB: ")).unwrap();
        line.to_owned()
    };
    let by_flag = shown(&["--cacheSizeGB", "0.5"]);
    assert_eq!(by_flag, "storage.cacheSizeGB: 0.5  # flag --cacheSizeGB");
    let chosen = shown(&[]);
    assert!(chosen.contains("  # default: "), "{chosen}");
}
