//! The golden files in `tests/vectors/golden`: the encoder reproduces them byte for byte, and the
//! engine opens each of them with the described result.
//!
//! They are built from `varve::engine::format` and the hash of keys alone. `UPDATE_GOLDEN=1 cargo test
//! --test golden` writes them; a change of a committed file is a change of the format.

mod checkpointed;
mod chunked_values;
mod cleared;
mod content;
mod golden_file;
mod image;
mod recovered;
mod refused;
mod specification;
mod time;

use std::fs;
use std::path::PathBuf;

use golden_file::{Content, Expect, Golden};
use image::LOG2;
use varve::engine::format::checksum::checksum;
use varve::engine::format::superblock::{self, SLOT_STRIDE, Slot};
use varve::engine::{Damage, Error, MemoryFile, Options, Recovery, Store};

fn all() -> Vec<Golden> {
    let all = [content::all(), chunked_values::all(), cleared::all(), checkpointed::all()];
    all.into_iter().chain([recovered::all(), refused::all()]).flatten().collect()
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors/golden")
}

/// Compares the bytes with the committed file, or writes it if that was requested.
fn compare_or_update(name: &str, bytes: &[u8]) {
    let path = folder().join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(folder()).expect("the folder can be made");
        fs::write(&path, bytes).expect("the file can be written");
        return;
    }
    let committed = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let same = committed.iter().zip(bytes).take_while(|(a, b)| a == b).count();
    assert!(committed == bytes, "{name} differs from what is committed, first at byte {same}");
}

#[test]
fn encoder_reproduces_golden_files_byte_for_byte() {
    for golden in all() {
        compare_or_update(&format!("{}.varve", golden.name), &golden.bytes);
        compare_or_update(&format!("{}.json", golden.name), golden.json().as_bytes());
    }
}

#[test]
fn every_committed_golden_file_is_generated() {
    let known: Vec<&str> = all().iter().map(|golden| golden.name).collect();
    for entry in fs::read_dir(folder()).expect("there are golden files") {
        let path = entry.expect("the folder can be read").path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        assert!(known.contains(&&*stem) || stem == "checksums", "{stem} is not built here");
    }
}

/// XXH3-64 at the lengths where its algorithm changes, for readers with their own implementation.
#[test]
fn checksum_vectors_match_this_implementation() {
    let data: Vec<u8> = (0..5000_u32).map(|i| (i * 131 + 7) as u8).collect();
    let lengths = [0, 1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 512, 1024, 1025, 4096, 5000];
    let seeds = [0, 1, 0x9E37_79B9_7F4A_7C15, u64::MAX];
    let lines: Vec<String> = lengths
        .into_iter()
        .flat_map(|length| seeds.map(|seed| (length, seed, checksum(&data[..length], seed))))
        .map(|(length, seed, check)| {
            format!("  {{ \"length\": {length}, \"seed\": \"{seed:016x}\", \"check\": \"{check:016x}\" }}")
        })
        .collect();
    compare_or_update("checksums.json", format!("[\n{}\n]\n", lines.join(",\n")).as_bytes());
}

fn open(bytes: &[u8]) -> Result<Store<MemoryFile>, (MemoryFile, Error)> {
    let file = MemoryFile { bytes: bytes.to_vec() };
    let segment_log2 = image::LOG2;
    let options = Options { segment_log2, ..Options::default() };
    Store::open_or_return(file, options)
}

/// The number of keys other than the engine's own.
fn user_keys(content: &Content) -> u64 {
    let live = content.live.iter().map(|live| live.keyspace);
    let unreadable = content.unreadable.iter().map(|&(keyspace, _)| keyspace);
    live.chain(unreadable).filter(|&keyspace| keyspace != 1).count() as u64
}

/// All differences between a store and its expected content.
fn differences(store: &mut Store<MemoryFile>, content: &Content) -> Vec<String> {
    let mut wrong = Vec::new();
    for live in &content.live {
        let key = String::from_utf8_lossy(&live.key).into_owned();
        if store.get(live.keyspace, &live.key).unwrap() != Some(&live.value[..]) {
            wrong.push(format!("the value of {key}"));
        }
        if store.version(live.keyspace, &live.key).unwrap() != Some(live.version) {
            wrong.push(format!("the version of {key}"));
        }
        if content.unreadable.is_empty() && !store.keys(live.keyspace).unwrap().contains(&live.key)
        {
            wrong.push(format!("{key} in the order of keys"));
        }
    }
    for &(keyspace, key) in &content.unreadable {
        if !matches!(store.get(keyspace, key.as_bytes()), Err(Error::Corruption(_))) {
            wrong.push(format!("{key} is not reported as damaged"));
        }
    }
    wrong
}

fn check_content(store: &mut Store<MemoryFile>, content: &Content) -> Vec<String> {
    let mut wrong = differences(store, content);
    let found = *store.recovery();
    let expected = Recovery {
        torn_bytes: content.torn_bytes,
        dropped_frames: content.dropped_frames,
        last_frame: content.last_frame,
        replayed_frames: content.replayed(),
        clean: content.clean,
        created: content.created,
        checkpoint: content.checkpoint,
        ..Recovery::default()
    };
    if found != expected {
        wrong.push(format!("recovery {found:?}, expected {expected:?}"));
    }
    if store.stats().count != user_keys(content) {
        wrong.push(format!("there are {} keys", store.stats().count));
    }
    wrong
}

fn check(golden: &Golden) -> Vec<String> {
    match (open(&golden.bytes), &golden.expect) {
        (Ok(mut store), Expect::Opens(content)) => {
            let mut wrong = check_content(&mut store, content);
            if !content.created && store.into_file().bytes != golden.bytes {
                wrong.push("opening wrote to it".into());
            }
            wrong
        }
        (Err((file, error)), Expect::Refused(expected)) => {
            let mut wrong = Vec::new();
            // The keys of the commits before the damage are not part of the format.
            let described = match error {
                Error::Corruption(damage) => {
                    Error::from(Damage { is_prefix_whole: false, keys: 0, version: 0, ..*damage })
                }
                other => other,
            };
            if described != *expected {
                let error = described;
                wrong.push(format!("{error:?}, expected {expected:?}"));
            }
            if file.bytes != golden.bytes {
                wrong.push("refusing wrote to it".into());
            }
            wrong
        }
        (Ok(_), Expect::Refused(expected)) => vec![format!("opens, expected {expected:?}")],
        (Err((_, error)), Expect::Opens(_)) => vec![format!("{error:?}")],
    }
}

#[test]
fn golden_files_open_with_their_content_or_error() {
    let wrong: Vec<String> = all()
        .iter()
        .flat_map(|golden| check(golden).into_iter().map(|what| format!("{}: {what}", golden.name)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Writes a key to an opened golden file, closes it, and opens it again.
/// Whether ranges use the runs of a file, and do not sort its keys.
#[test]
fn runs_of_golden_files_are_used_unless_they_are_damaged() {
    for (name, is_used) in [("checkpoint-with-runs", true), ("run-damaged", false)] {
        let golden = all().into_iter().find(|golden| golden.name == name).expect("it exists");
        let mut store = open(&golden.bytes).map_err(|(_, error)| error).expect("it opens");
        // One segment of the checkpoint and two for each run.
        assert_eq!(store.stats().index_file_bytes, 5 << LOG2);
        assert_eq!(store.keys(0).expect("keys").len(), 5);
        while store.maintain(false).expect("maintain") {}
        let after = store.stats().index_file_bytes;
        assert_eq!(after == 5 << LOG2, is_used, "{name}: {after} bytes after maintenance");
    }
}

fn write_and_reopen(golden: &Golden, content: &Content) -> Result<Vec<String>, Error> {
    let mut store = open(&golden.bytes).map_err(|(_, error)| error)?;
    let version = store.set(0, b"written later", b"yes")?;
    let file = store.close().map_err(|(_, error)| error)?;
    let mut store = open(&file.bytes).map_err(|(_, error)| error)?;
    let mut wrong = differences(&mut store, content);
    // Maintenance may have removed more segments and accounted for them.
    wrong.retain(|what| !what.contains("gap/"));
    if content.live.iter().any(|live| live.version >= version) {
        wrong.push(format!("version {version} was assigned before"));
    }
    if store.version(0, b"written later").unwrap() != Some(version) {
        wrong.push("the new key is missing".into());
    }
    if store.stats().count != user_keys(content) + 1 {
        wrong.push(format!("there are {} keys", store.stats().count));
    }
    if !store.recovery().clean {
        wrong.push(format!("{:?}", store.recovery()));
    }
    Ok(wrong)
}

#[test]
fn golden_files_can_be_written_and_reopened() {
    let mut wrong = Vec::new();
    for golden in all() {
        if let Expect::Opens(content) = &golden.expect {
            let found = write_and_reopen(&golden, content)
                .unwrap_or_else(|error| vec![format!("{error:?}")]);
            wrong.extend(found.into_iter().map(|what| format!("{}: {what}", golden.name)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn unknown_superblock_bytes_of_later_minor_versions_survive_a_session() {
    let all = all();
    let golden =
        all.iter().find(|golden| golden.name == "compatible-bit").expect("the golden file exists");
    let mut store = open(&golden.bytes).map_err(|(_, error)| error).expect("it opens");
    store.set(0, b"written", b"by an older version").expect("it can be written");
    let bytes = store.close().map_err(|(_, error)| error).expect("it closes").bytes;
    assert!(bytes[..superblock::SIZE] != golden.bytes[..superblock::SIZE]);
    for slot in 0..2 {
        let at = (slot * SLOT_STRIDE) as usize;
        let Slot::Valid(superblock) = superblock::Superblock::decode(&bytes[at..], slot) else {
            panic!("slot {slot} is not valid");
        };
        assert_eq!(superblock.compatible, 1 << 40);
        assert_eq!(superblock.minor, varve::engine::format::MINOR + 9);
        assert_eq!(superblock.reserved[9], 7);
    }
}
