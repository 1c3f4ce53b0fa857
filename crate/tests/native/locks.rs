//! The lock file, which Node respects too.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use std::os::unix::fs::symlink;

use varve::{Error, Loss, OpenOptions, Store};

use crate::temp_folder::Folder;

#[test]
fn second_open_is_refused_naming_the_holder() {
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
#[cfg(unix)]
fn file_with_two_names_is_refused_for_writing_and_can_be_read() {
    let folder = Folder::new();
    let path = folder.file("shop.varve");
    Store::open(&path).unwrap().close().unwrap();
    let other = folder.file("other.varve");
    fs::hard_link(&path, &other).unwrap();
    for path in [&path, &other] {
        let refused = Store::open(path).expect_err("it has two names");
        assert_eq!(refused.code(), "VARVE_STORAGE_UNAVAILABLE");
        assert!(refused.to_string().contains("2 names"), "{refused}");
        let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
        Store::open_with(path, read_only).expect("it can be read");
    }
    fs::remove_file(&other).unwrap();
    Store::open(&path).expect("it has one name again");
}

#[test]
fn lock_content_matches_the_one_of_node() {
    let folder = Folder::new();
    let path = folder.file("shop.varve");
    let store = Store::open(&path).unwrap();
    let lock = fs::read_to_string(folder.file("shop.varve.lock")).unwrap();
    let fields: Vec<&str> = lock.strip_suffix('\n').expect("it is a line").split(' ').collect();
    // Token, process, its start, thread, boot, pid namespace, host fingerprint, and host name.
    assert_eq!((fields.len(), fields[0].len(), fields[3]), (8, 8, "-"));
    assert_eq!(fields[1], std::process::id().to_string());
    assert_eq!(fields[6], fingerprint(fields[7]));
    drop(store);
}

/// 32-bit FNV-1a in six letters.
fn fingerprint(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let left = hash % 36_u32.pow(6);
    let letters = (0..6).map(|n| char::from_digit(left / 36_u32.pow(5 - n) % 36, 36).unwrap());
    letters.collect::<String>().trim_start_matches('0').to_string()
}

/// The lock that such a process would have left.
fn lock_left_by(pid: u32, started: &str) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let [started, boot, space, host] = [
        started,
        &read("/proc/sys/kernel/random/boot_id"),
        &space.to_string_lossy(),
        &read("/proc/sys/kernel/hostname"),
    ]
    .map(fingerprint);
    format!("01234567 {pid} {started} - {boot} {space} {host}")
}

#[test]
#[cfg(target_os = "linux")]
fn only_the_lock_of_a_dead_process_is_broken() {
    let folder = Folder::new();
    let path = folder.file("shop.varve");
    let lock = folder.file("shop.varve.lock");
    let mut other = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", other.id())).unwrap();
    let started = stat.rsplit(')').next().unwrap().split(' ').nth(20).unwrap();
    fs::write(&lock, lock_left_by(other.id(), started) + " here\n").unwrap();
    let busy = Store::open(&path).expect_err("the process is alive");
    assert!(matches!(busy, Error::Busy { pid: Some(pid), .. } if pid == other.id()));
    fs::write(&lock, lock_left_by(other.id(), "1")).unwrap();
    Store::open(&path).expect("it is another one under the same number").close().unwrap();
    // On a full disk it is a symlink with the same content.
    symlink(lock_left_by(other.id(), started), &lock).unwrap();
    let busy = Store::open(&path).expect_err("the process is still alive");
    assert!(matches!(busy, Error::Busy { pid: Some(pid), .. } if pid == other.id()));
    other.kill().unwrap();
    other.wait().unwrap();
    Store::open(&path).expect("it is dead").close().unwrap();
    assert_eq!(folder.names(), ["shop.varve"]);
}

#[test]
fn malformed_lock_is_broken_after_a_timeout() {
    let folder = Folder::new();
    let lock = folder.file("shop.varve.lock");
    for (ruin, least) in [("", 1_500), ("garbage", 7_900)] {
        fs::write(&lock, ruin).unwrap();
        let start = Instant::now();
        Store::open(folder.file("shop.varve")).expect("it is none").close().unwrap();
        assert!(
            start.elapsed() >= Duration::from_millis(least),
            "{ruin:?} might belong to a process"
        );
    }
}

/// A program that cannot write files opens an existing database, as on a full disk. The program is
/// this test, started again.
#[test]
#[cfg(target_os = "linux")]
fn symlink_lock_is_used_and_touched_on_a_full_disk() {
    const HERE: &str = "VARVE_TEST_FULL";
    const NAME: &str = "locks::symlink_lock_is_used_and_touched_on_a_full_disk";
    if let Ok(path) = std::env::var(HERE) {
        let mut store = Store::open(path).expect("its lock needs no space");
        assert_eq!(store.get("a").unwrap(), Some(&b"1"[..]));
        store.set("a", "2").ok();
        assert_eq!(store.flush().expect_err("no space").code(), "VARVE_QUOTA_EXCEEDED");
        std::thread::sleep(Duration::from_secs(600));
    }
    let folder = Folder::new();
    let (path, lock) = (folder.file("shop.varve"), folder.file("shop.varve.lock"));
    let mut store = Store::open(&path).unwrap();
    store.set("a", "1").unwrap();
    store.close().unwrap();
    let mut other = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", NAME])
        .env(HERE, &path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let mut first = None;
    loop {
        assert!(start.elapsed() < Duration::from_secs(60), "it was never touched");
        assert!(other.try_wait().unwrap().is_none(), "it ended");
        if let Ok(found) = lock.symlink_metadata() {
            assert!(found.is_symlink());
            let touched = found.modified().unwrap();
            if *first.get_or_insert(touched) != touched {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let busy = Store::open(&path).expect_err("the process is alive");
    assert!(matches!(busy, Error::Busy { pid: Some(pid), .. } if pid == other.id()));
    other.kill().unwrap();
    other.wait().unwrap();
    let mut store = Store::open(&path).expect("it is dead");
    assert_eq!(store.get("a").unwrap(), Some(&b"1"[..]));
    store.close().unwrap();
    assert_eq!(folder.names(), ["shop.varve"]);
}

#[test]
fn writer_that_lost_its_lock_stops_writing() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("shop.varve")).unwrap();
    store.set("a", "1").unwrap();
    store.flush().unwrap();
    fs::remove_file(folder.file("shop.varve.lock")).unwrap();
    let start = Instant::now();
    let lost = loop {
        store.set("a", "2").ok();
        match store.flush() {
            Err(error) => break error,
            Ok(()) => assert!(start.elapsed() < Duration::from_secs(30), "it never found out"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(lost.code(), "VARVE_FILE_LOST");
    assert!(matches!(lost, Error::FileLost { reason: Loss::TakenOver, .. }));
}

/// A way to lose a file.
type LossCase = (fn(&Folder), Loss);

#[test]
#[cfg(unix)]
fn lost_file_fails_the_next_flush_and_stays_readable() {
    let cases: [LossCase; 5] = [
        (|folder| fs::remove_file(folder.file("data/shop.varve")).unwrap(), Loss::Removed),
        (|folder| fs::remove_dir_all(folder.file("data")).unwrap(), Loss::Removed),
        (|folder| fs::rename(folder.file("data"), folder.file("moved")).unwrap(), Loss::Removed),
        (
            |folder| {
                fs::copy(folder.file("data/shop.varve"), folder.file("backup")).unwrap();
                fs::rename(folder.file("backup"), folder.file("data/shop.varve")).unwrap();
            },
            Loss::Replaced,
        ),
        (|folder| fs::remove_file(folder.file("data/shop.varve.lock")).unwrap(), Loss::TakenOver),
    ];
    for (lose, expected) in cases {
        let folder = Folder::new();
        let path = folder.file("data/shop.varve");
        let mut store = Store::open(&path).unwrap();
        store.set("a", "1").unwrap();
        store.flush().unwrap();
        lose(&folder);
        let is_named = |error: Error| {
            assert_eq!(error.code(), "VARVE_FILE_LOST");
            assert!(
                matches!(&error, Error::FileLost { path: message, reason } if *message == path && *reason == expected),
                "{error} for {expected:?}"
            );
        };
        is_named(store.flush().expect_err("the flushed data is lost"));
        store.set("b", "2").ok();
        is_named(store.flush().expect_err("it is lost"));
        is_named(store.set("b", "2").expect_err("nothing more is written"));
        is_named(store.delete("a").expect_err("nothing more is written"));
        let records = store.collection::<u32>("records").err().map(|error| error.code());
        assert_eq!(records, Some("VARVE_FILE_LOST"));
        assert_eq!(store.get("a").unwrap(), Some(&b"1"[..]));
        is_named(store.close().expect_err("it is lost"));
        let mut again = Store::open(&path).expect("the lock was released");
        assert_eq!(again.get("a").unwrap().is_some(), expected != Loss::Removed);
    }
}

/// Makes a lock look held, by changing its modification time while `work` runs.
fn with_heartbeats<T>(lock: &std::path::Path, work: impl FnOnce() -> T) -> T {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for heartbeats in 1.. {
                let time = filetime::FileTime::from_unix_time(heartbeats, 0);
                filetime::set_file_mtime(lock, time).unwrap();
                if stopped.recv_timeout(Duration::from_secs(2)).is_ok() {
                    break;
                }
            }
        });
        let done = work();
        stop.send(()).unwrap();
        done
    })
}

#[test]
fn unverifiable_holder_is_respected_while_its_lock_changes() {
    let own = lock_left_by(999_999, "1");
    let fields: Vec<&str> = own.split(' ').collect();
    let [boot, space] = [fields[4], fields[5]];
    for lock in [
        own.replace(boot, "0"),
        own.replace(space, "0"),
        own.replace(space, "-"),
        own.replace(boot, "-").replace(space, "-"),
    ] {
        let folder = Folder::new();
        let path = folder.file("shop.varve.lock");
        fs::write(&path, lock + " here\n").unwrap();
        let busy = with_heartbeats(&path, || Store::open(folder.file("shop.varve")));
        assert_eq!(busy.expect_err("it may be alive").code(), "VARVE_DATABASE_BUSY");
    }
}

#[test]
#[cfg(unix)]
fn lock_held_through_the_system_is_never_broken() {
    let folder = Folder::new();
    let path = folder.file("shop.varve");
    let mut store = Store::open(&path).unwrap();
    store.set("a", "1").unwrap();
    store.flush().unwrap();
    let lock = folder.file("shop.varve.lock");
    let held = fs::read_to_string(&lock).unwrap();
    for left in [lock_left_by(999_999, "1"), String::new(), held] {
        fs::write(&lock, &left).unwrap();
        assert!(matches!(Store::open(&path), Err(Error::Busy { .. })));
        assert_eq!(fs::read_to_string(&lock).unwrap(), left);
    }
    store.close().expect("it was its own all along");
    Store::open(&path).expect("the lock was released").close().unwrap();
}

#[test]
#[cfg(unix)]
fn two_paths_to_one_file_share_its_lock() {
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
