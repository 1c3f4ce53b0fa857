//! The lock beside the file, which Node heeds too.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use varve::native::{Error, OpenOptions, Store};

use crate::folder::Folder;

#[test]
fn a_database_is_open_once_and_who_has_it_is_told() {
    let folder = Folder::new();
    let path = folder.file("shop.varve");
    let store = Store::open(&path).unwrap();
    let busy = Store::open(&path).expect_err("it is open");
    assert_eq!(busy.code(), "VARVE_DATABASE_BUSY");
    assert!(matches!(busy, Error::Busy { pid: Some(pid), .. } if pid == std::process::id()));
    drop(store);
    Store::open(&path).expect("it was closed").close().unwrap();
    assert_eq!(folder.names(), ["shop.varve"]);
}

#[test]
fn the_lock_says_what_a_lock_of_node_says() {
    let folder = Folder::new();
    let path = folder.file("shop.varve");
    let store = Store::open(&path).unwrap();
    let lock = fs::read_to_string(folder.file("shop.varve.lock")).unwrap();
    let said: serde_json::Value = serde_json::from_str(&lock).expect("it is JSON");
    assert_eq!(said["pid"], std::process::id());
    assert_eq!(said["token"].as_str().map(str::len), Some(16));
    assert!(lock.ends_with("}\n"));
    let mut names: Vec<&String> = said.as_object().unwrap().keys().collect();
    names.sort();
    assert_eq!(names, ["boot", "host", "pid", "space", "started", "thread", "token"]);
    drop(store);
}

/// A lock as a process of this kind would have left it.
fn left_by(pid: u32, started: &str) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    serde_json::json!({
        "pid": pid,
        "started": started,
        "thread": null,
        "boot": read("/proc/sys/kernel/random/boot_id"),
        "space": space.to_string_lossy(),
        "host": read("/proc/sys/kernel/hostname"),
        "token": "0123456789abcdef",
    })
    .to_string()
}

#[test]
#[cfg(target_os = "linux")]
fn the_lock_of_a_dead_process_is_broken_and_that_of_a_living_one_is_not() {
    let folder = Folder::new();
    let path = folder.file("shop.varve");
    let lock = folder.file("shop.varve.lock");
    let mut other = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", other.id())).unwrap();
    let started = stat.rsplit(')').next().unwrap().split(' ').nth(20).unwrap();
    fs::write(&lock, left_by(other.id(), started)).unwrap();
    let busy = Store::open(&path).expect_err("it lives");
    assert!(matches!(busy, Error::Busy { pid: Some(pid), .. } if pid == other.id()));
    fs::write(&lock, left_by(other.id(), "1")).unwrap();
    Store::open(&path).expect("it is another one under the same number").close().unwrap();
    fs::write(&lock, left_by(other.id(), started)).unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
    Store::open(&path).expect("it is dead").close().unwrap();
    assert_eq!(folder.names(), ["shop.varve"]);
}

#[test]
fn a_ruin_of_a_lock_is_broken_after_a_while() {
    let folder = Folder::new();
    let lock = folder.file("shop.varve.lock");
    fs::write(&lock, "{\"pid\":").unwrap();
    let start = Instant::now();
    Store::open(folder.file("shop.varve")).expect("it is none").close().unwrap();
    assert!(start.elapsed() >= Duration::from_millis(1500), "it might have been being written");
}

#[test]
fn who_lost_its_lock_writes_no_more() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("shop.varve")).unwrap();
    store.set("a", "1").unwrap();
    store.flush().unwrap();
    fs::remove_file(folder.file("shop.varve.lock")).unwrap();
    // The holder finds out at its next beat.
    let start = Instant::now();
    let lost = loop {
        store.set("a", "2").ok();
        match store.flush() {
            Err(error) => break error,
            Ok(()) => assert!(start.elapsed() < Duration::from_secs(30), "it never found out"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(lost.code(), "VARVE_STORAGE");
}

#[test]
#[cfg(unix)]
fn two_ways_to_the_same_file_are_one_database() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    let (path, link) = (folder.file("shop.varve"), elsewhere.file("shop.varve"));
    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for nowhere in [Store::open(&link), Store::open_with(&link, read_only)] {
        assert!(nowhere.is_err(), "it leads nowhere yet");
    }
    let store = Store::open(&path).unwrap();
    for busy in [Store::open(&link), Store::open_with(&link, read_only)] {
        assert_eq!(busy.expect_err("it is open").code(), "VARVE_DATABASE_BUSY");
    }
    drop(store);
    let store = Store::open(&link).expect("it was closed");
    assert!(matches!(Store::open(&path), Err(Error::Busy { .. })));
    assert_eq!(folder.names(), ["shop.varve", "shop.varve.lock"]);
    store.close().unwrap();
    assert_eq!(elsewhere.names(), ["shop.varve"]);
}
