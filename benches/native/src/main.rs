//! `native-bench FOLDER KEYS ROUNDS` runs varve, redb and fjall in turn, JSON beside serde_json, and owned slices beside
//! vectors, and prints one line of JSON: of each measure the times of all rounds, in ns (of opening in µs).

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use musli_zerocopy::{Ref, ZeroCopy};
use redb::{ReadableDatabase, ReadableTable};
use serde::{Deserialize, Serialize};
use varve::schema::json::Json;
use varve::schema::{Parts, Record};
use varve::{OpenOptions, Slice, Store};

type Done<T> = Result<T, Box<dyn Error>>;

const TABLE: redb::TableDefinition<'_, &[u8], &[u8]> = redb::TableDefinition::new("rows");
/// Bytes of memory that each store may use.
const MEMORY: usize = 512 << 20;
/// Keys that are read in an order of their own.
const READS: usize = 100_000;
const BATCH: usize = 1_000;

/// The times of each measure and subject.
#[derive(Default)]
struct Times(BTreeMap<(String, String), Vec<f64>>);

impl Times {
    fn add(&mut self, work: &str, of: &str, started: Instant, count: usize) {
        let ns = started.elapsed().as_nanos() as f64 / count as f64;
        self.0.entry((work.to_string(), of.to_string())).or_default().push(ns);
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn keys(count: usize) -> Vec<String> {
    let mut random = Random(88_172_645_463_325_252);
    (0..count)
        .map(|at| format!("user/{:07}{:05}", random.next() % 10_000_000, at % 100_000))
        .collect()
}

fn value(at: usize) -> [u8; 64] {
    [at as u8; 64]
}

fn order(count: usize) -> Vec<usize> {
    let mut random = Random(7);
    (0..READS).map(|_| random.next() as usize % count).collect()
}

/// What each store reads: so that all are seen to have read the same.
fn add_up(sum: &mut u64, key: &[u8], value: &[u8]) {
    *sum += key.len() as u64 + u64::from(value[0]) + u64::from(value[63]);
}

fn run_varve(path: &Path, keys: &[String], times: &mut Times) -> Done<u64> {
    let of = "varve";
    let options = OpenOptions { memory: MEMORY, ..OpenOptions::default() };
    let mut store = Store::open_with(path, options)?;
    let started = Instant::now();
    for (from, batch) in keys.chunks(BATCH).enumerate() {
        for (at, key) in batch.iter().enumerate() {
            store.set(key, value(from * BATCH + at))?;
        }
        store.commit()?;
    }
    store.flush()?;
    times.add("set", of, started, keys.len());
    store.close()?;
    let started = Instant::now();
    let mut store = Store::open_with(path, options)?;
    let first = store.get(&keys[0])?.map(<[u8]>::len);
    times.add("open and get (µs)", of, started, 1_000);
    assert_eq!(first, Some(64));
    let mut sum = 0;
    for round in 0..2 {
        let started = Instant::now();
        for at in order(keys.len()) {
            let found = store.get(&keys[at])?.ok_or("a key is missing")?;
            add_up(&mut sum, keys[at].as_bytes(), found);
        }
        // The first time loads the index and the records.
        times.add(if round == 0 { "get, just opened" } else { "get" }, of, started, READS);
    }
    for _ in 0..2 {
        let started = Instant::now();
        let mut entries = store.entries(..)?;
        while let Some((key, value)) = entries.next_pair()? {
            add_up(&mut sum, key, value);
        }
        times.add("range, a step", of, started, keys.len());
    }
    let started = Instant::now();
    for entry in store.entries(..)? {
        let (key, value) = entry?;
        add_up(&mut sum, &key, &value);
    }
    times.add("range, a step", "varve, owned", started, keys.len());
    Ok(sum)
}

fn run_redb(path: &Path, keys: &[String], times: &mut Times) -> Done<u64> {
    let of = "redb";
    let open = || redb::Builder::new().set_cache_size(MEMORY).create(path);
    let db = open()?;
    let started = Instant::now();
    for (from, batch) in keys.chunks(BATCH).enumerate() {
        let mut writing = db.begin_write()?;
        let is_last = (from + 1) * BATCH >= keys.len();
        writing.set_durability(if is_last {
            redb::Durability::Immediate
        } else {
            redb::Durability::None
        })?;
        {
            let mut table = writing.open_table(TABLE)?;
            for (at, key) in batch.iter().enumerate() {
                table.insert(key.as_bytes(), &value(from * BATCH + at)[..])?;
            }
        }
        writing.commit()?;
    }
    times.add("set", of, started, keys.len());
    drop(db);
    let started = Instant::now();
    let db = open()?;
    let table = db.begin_read()?.open_table(TABLE)?;
    let first = table.get(keys[0].as_bytes())?.map(|value| value.value().len());
    times.add("open and get (µs)", of, started, 1_000);
    assert_eq!(first, Some(64));
    let mut sum = 0;
    for round in 0..2 {
        let started = Instant::now();
        for at in order(keys.len()) {
            let found = table.get(keys[at].as_bytes())?.ok_or("a key is missing")?;
            add_up(&mut sum, keys[at].as_bytes(), found.value());
        }
        times.add(if round == 0 { "get, just opened" } else { "get" }, of, started, READS);
    }
    for _ in 0..3 {
        let started = Instant::now();
        for entry in table.iter()? {
            let (key, value) = entry?;
            add_up(&mut sum, key.value(), value.value());
        }
        times.add("range, a step", of, started, keys.len());
    }
    Ok(sum)
}

fn run_fjall(path: &Path, keys: &[String], times: &mut Times) -> Done<u64> {
    let of = "fjall";
    let open = || -> fjall::Result<_> {
        let keyspace = fjall::Config::new(path).cache_size(MEMORY as u64).open()?;
        let rows = keyspace.open_partition("rows", fjall::PartitionCreateOptions::default())?;
        Ok((keyspace, rows))
    };
    let (keyspace, rows) = open()?;
    let started = Instant::now();
    for (from, some) in keys.chunks(BATCH).enumerate() {
        let mut batch = keyspace.batch();
        for (at, key) in some.iter().enumerate() {
            batch.insert(&rows, key.as_bytes(), value(from * BATCH + at));
        }
        batch.commit()?;
    }
    keyspace.persist(fjall::PersistMode::SyncAll)?;
    times.add("set", of, started, keys.len());
    drop((rows, keyspace));
    let started = Instant::now();
    let (_keyspace, rows) = open()?;
    let first = rows.get(&keys[0])?.map(|value| value.len());
    times.add("open and get (µs)", of, started, 1_000);
    assert_eq!(first, Some(64));
    let mut sum = 0;
    for round in 0..2 {
        let started = Instant::now();
        for at in order(keys.len()) {
            let found = rows.get(&keys[at])?.ok_or("a key is missing")?;
            add_up(&mut sum, keys[at].as_bytes(), &found);
        }
        times.add(if round == 0 { "get, just opened" } else { "get" }, of, started, READS);
    }
    for _ in 0..3 {
        let started = Instant::now();
        for entry in rows.iter() {
            let (key, value) = entry?;
            add_up(&mut sum, &key, &value);
        }
        times.add("range, a step", of, started, keys.len());
    }
    Ok(sum)
}

/// The first 100,000 keys as they are, to be copied, sorted and searched.
fn run_slices(keys: &[String], length: usize, times: &mut Times) {
    let keys: Vec<Vec<u8>> = keys
        .iter()
        .take(READS)
        .map(|key| key.as_bytes().iter().copied().cycle().skip(5).take(length).collect())
        .collect();
    fn measure<K: Ord + Clone>(
        keys: &[Vec<u8>],
        of: &str,
        length: usize,
        times: &mut Times,
        make: fn(&[u8]) -> K,
    ) {
        let started = Instant::now();
        let made: Vec<K> = keys.iter().map(|key| make(key)).collect();
        times.add(&format!("{length} bytes, make"), of, started, keys.len());
        let started = Instant::now();
        let mut copies = made.clone();
        times.add(&format!("{length} bytes, clone"), of, started, keys.len());
        let started = Instant::now();
        copies.sort_unstable();
        times.add(&format!("{length} bytes, sort"), of, started, keys.len());
        let started = Instant::now();
        let found = made.iter().filter(|key| copies.binary_search(key).is_ok()).count();
        times.add(&format!("{length} bytes, search"), of, started, keys.len());
        assert_eq!(found, keys.len());
        let started = Instant::now();
        drop(black_box((made, copies)));
        times.add(&format!("{length} bytes, drop one"), of, started, 2 * keys.len());
    }
    measure(&keys, "Slice", length, times, Slice::new);
    measure(&keys, "Vec<u8>", length, times, <[u8]>::to_vec);
}

#[derive(Clone, Copy, ZeroCopy, Record)]
#[repr(C)]
struct Product {
    id: u32,
    price: f64,
    stock: i32,
    name: Ref<str>,
    about: Ref<str>,
    sizes: Ref<[u16]>,
}

#[derive(Deserialize, Serialize)]
struct PlainProduct {
    id: u32,
    price: f64,
    stock: i32,
    name: String,
    about: String,
    sizes: Vec<u16>,
}

fn run_json(times: &mut Times) -> Done<()> {
    const COUNT: u32 = 20_000;
    let json = Json::<Product>::new();
    let plain: Vec<PlainProduct> = (0..COUNT)
        .map(|id| PlainProduct {
            id,
            price: f64::from(id) / 8.0,
            stock: -7,
            name: format!("Product number {id}"),
            about: "A text of \"some\" length,\nin two lines, as they are. ".repeat(3),
            sizes: (0..8).map(|size| size * 5).collect(),
        })
        .collect();
    let records: Vec<varve::AlignedBytes> = plain
        .iter()
        .map(|from| {
            let mut parts = Parts::of::<Product>();
            let root = Product {
                id: from.id,
                price: from.price,
                stock: from.stock,
                name: parts.str(&from.name),
                about: parts.str(&from.about),
                sizes: parts.slice(&from.sizes),
            };
            let bytes = parts.finish(root)?;
            let mut aligned = varve::AlignedBytes::zeroed(bytes.len());
            aligned[..bytes.len()].copy_from_slice(&bytes);
            Ok(aligned)
        })
        .collect::<Done<_>>()?;
    let texts: Vec<String> = plain.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    assert_eq!(json.write(&records[9])?, texts[9]);
    let mut out = Vec::new();
    let started = Instant::now();
    for record in &records {
        out.clear();
        json.write_to(record, &mut out)?;
        black_box(&out);
    }
    times.add("JSON, write", "varve", started, COUNT as usize);
    let started = Instant::now();
    for one in &plain {
        out.clear();
        serde_json::to_writer(&mut out, one)?;
        black_box(&out);
    }
    times.add("JSON, write", "serde_json", started, COUNT as usize);
    let started = Instant::now();
    for text in &texts {
        json.read_into(text, &mut out)?;
        black_box(&out);
    }
    times.add("JSON, read", "varve", started, COUNT as usize);
    let started = Instant::now();
    for text in &texts {
        black_box(serde_json::from_str::<PlainProduct>(text)?);
    }
    times.add("JSON, read", "serde_json", started, COUNT as usize);
    Ok(())
}

fn main() -> Done<()> {
    let words: Vec<String> = std::env::args().collect();
    let [_, folder, count, rounds] = &words[..] else {
        return Err("native-bench FOLDER KEYS ROUNDS".into());
    };
    let (count, rounds): (usize, usize) = (count.parse()?, rounds.parse()?);
    let keys = keys(count);
    let mut times = Times::default();
    for round in 0..rounds {
        let folder = Path::new(folder).join(format!("native-bench-{}-{round}", std::process::id()));
        fs::create_dir_all(&folder)?;
        // They take turns in coming first.
        let mut sums = [0; 3];
        for at in 0..3 {
            match (round + at) % 3 {
                0 => sums[0] = run_varve(&folder.join("a.varve"), &keys, &mut times)?,
                1 => sums[1] = run_redb(&folder.join("a.redb"), &keys, &mut times)?,
                _ => sums[2] = run_fjall(&folder.join("fjall"), &keys, &mut times)?,
            }
        }
        fs::remove_dir_all(&folder)?;
        if sums[0] != sums[1] || sums[1] != sums[2] {
            return Err(format!("the stores did not read the same: {sums:?}").into());
        }
        for length in [8, 16, 32] {
            run_slices(&keys, length, &mut times);
        }
        run_json(&mut times)?;
    }
    let mut out = String::new();
    for ((work, of), times) in &times.0 {
        let times: Vec<String> = times.iter().map(|time| format!("{time:.2}")).collect();
        let comma = if out.is_empty() { "" } else { "," };
        write!(
            out,
            "{comma}{{\"work\":\"{work}\",\"of\":\"{of}\",\"times\":[{}]}}",
            times.join(",")
        )?;
    }
    println!("[{out}]");
    Ok(())
}
