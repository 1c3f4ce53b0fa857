//! GrausDB for the sizes benchmark: `graus-sizes DIRECTORY` reads requests from stdin, one after the other,
//! and times them itself, so that the transfer is not counted.
//!
//! A request is a letter, the number of keys as u32, the keys (16 bytes each) and, for `s`, as many values
//! (100 bytes each). The answer is the time in nanoseconds and a sum, both f64; for `p` it is, for each key,
//! a byte that is 1 if the key exists, and then its value, or zeros.

use std::error::Error;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::time::Instant;

use graus_db::GrausDb;

const KEY: usize = 16;
const VALUE: usize = 100;
const COUNTER: usize = 4;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What a read sums up: the value's first byte and its last.
fn looked(value: &[u8]) -> u64 {
    u64::from(value[0]) + u64::from(value[VALUE - 1])
}

fn increase(value: &mut [u8]) {
    let counter: [u8; 4] = value[COUNTER..COUNTER + 4].try_into().expect("four bytes");
    let next = u32::from_le_bytes(counter).wrapping_add(1);
    value[COUNTER..COUNTER + 4].copy_from_slice(&next.to_le_bytes());
}

fn gets(store: &GrausDb, keys: &[u8]) -> Outcome<u64> {
    let mut sum = 0;
    for key in keys.chunks_exact(KEY) {
        sum += looked(&store.get(key)?.ok_or("a key is missing")?);
    }
    Ok(sum)
}

fn sets(store: &GrausDb, keys: &[u8], values: &[u8]) -> Outcome<u64> {
    for (key, value) in keys.chunks_exact(KEY).zip(values.chunks_exact(VALUE)) {
        store.set(key.to_vec(), value)?;
    }
    Ok(0)
}

fn updates(store: &GrausDb, keys: &[u8]) -> Outcome<u64> {
    for key in keys.chunks_exact(KEY) {
        let none = None::<fn(&[u8]) -> bool>;
        store.update_if(key.to_vec(), |value| increase(value), None, none)?;
    }
    Ok(0)
}

fn removes(store: &GrausDb, keys: &[u8]) -> Outcome<u64> {
    for key in keys.chunks_exact(KEY) {
        store.remove(key)?;
    }
    Ok(0)
}

fn pairs(store: &GrausDb, keys: &[u8], output: &mut impl Write) -> Outcome<()> {
    for key in keys.chunks_exact(KEY) {
        match store.get(key)? {
            Some(value) => {
                output.write_all(&[1])?;
                output.write_all(&value)?;
            }
            None => output.write_all(&[0; 1 + VALUE])?,
        }
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let directory = std::env::args().nth(1).ok_or("the directory is missing")?;
    let store = GrausDb::open(directory)?;
    let mut input = BufReader::new(io::stdin().lock());
    let mut output = BufWriter::new(io::stdout().lock());
    let mut head = [0; 5];
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    // The process ends at the end of its input.
    while input.read_exact(&mut head).is_ok() {
        let count = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        keys.resize(count * KEY, 0);
        input.read_exact(&mut keys)?;
        values.resize(if head[0] == b's' { count * VALUE } else { 0 }, 0);
        input.read_exact(&mut values)?;
        let start = Instant::now();
        let sum = match head[0] {
            b'g' => gets(&store, &keys)?,
            b's' => sets(&store, &keys, &values)?,
            b'u' => updates(&store, &keys)?,
            b'd' => removes(&store, &keys)?,
            b'p' => {
                pairs(&store, &keys, &mut output)?;
                output.flush()?;
                continue;
            }
            other => return Err(format!("unknown request {other}").into()),
        };
        let ns = start.elapsed().as_secs_f64() * 1e9;
        output.write_all(&ns.to_le_bytes())?;
        output.write_all(&(sum as f64).to_le_bytes())?;
        output.flush()?;
    }
    Ok(())
}
