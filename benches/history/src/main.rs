//! Walks over the log of a file, nested or flat, and prints the milliseconds and what it found:
//! `history-bench FILE nested|flat|content`. Of each value the length and the first byte are read, for `content` all.

use std::error::Error;
use std::time::Instant;

use varve::{ChangeKind, LogItem, LogRange, LogRecord, OpenOptions, Store};

#[derive(Default)]
struct Found {
    transactions: u64,
    records: u64,
    bytes: u64,
    firsts: u64,
    /// CRC-32 of all keys and values in order, if it is wanted.
    crc: Option<u32>,
    table: Vec<u32>,
}

impl Found {
    fn add(&mut self, mut record: LogRecord<'_, '_>) -> Result<(), Box<dyn Error>> {
        if record.kind != ChangeKind::Set {
            return Err("a record that was not written".into());
        }
        let key = record.key;
        let value = record.value()?.unwrap_or_default();
        self.records += 1;
        self.bytes += value.len() as u64;
        self.firsts += u64::from(value.first().copied().unwrap_or(0));
        if let Some(crc) = &mut self.crc {
            for byte in key.iter().chain(value) {
                *crc = self.table[((*crc ^ u32::from(*byte)) & 0xFF) as usize] ^ (*crc >> 8);
            }
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let [_, path, how] = &words[..] else { return Err("history-bench FILE HOW".into()) };
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let mut store = Store::open_with(path, options)?;
    let mut found = Found::default();
    if how == "content" {
        found.crc = Some(u32::MAX);
        found.table = (0..256_u32)
            .map(|byte| {
                (0..8).fold(byte, |bits, _| (bits >> 1) ^ (0xEDB8_8320 & (bits & 1).wrapping_neg()))
            })
            .collect();
    }
    let started = Instant::now();
    if how == "flat" {
        let mut log = store.log(LogRange::all()).flat();
        while let Some(item) = log.next()? {
            match item {
                LogItem::Transaction(_) => found.transactions += 1,
                LogItem::Record(record) => found.add(record)?,
                other => return Err(format!("{other:?}").into()),
            }
        }
    } else {
        let mut log = store.log(LogRange::all());
        while let Some(mut transaction) = log.next()? {
            found.transactions += 1;
            while let Some(record) = transaction.next()? {
                found.add(record)?;
            }
        }
    }
    let ms = started.elapsed().as_secs_f64() * 1e3;
    let Found { transactions, records, bytes, firsts, crc, .. } = found;
    let crc = crc.map_or(0, |crc| !crc);
    println!(
        r#"{{"ms":{ms},"transactions":{transactions},"records":{records},"bytes":{bytes},"firsts":{firsts},"crc":{crc}}}"#
    );
    Ok(())
}
