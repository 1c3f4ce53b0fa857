//! The definition of a golden file: its bytes, and the result of opening it.

use std::fmt::Write as _;

use varve::engine::error::{Damage, Error};

/// A golden file.
pub struct Golden {
    pub name: &'static str,
    /// Its purpose, for readers of its description.
    pub about: &'static str,
    pub bytes: Vec<u8>,
    pub expect: Expect,
}

/// The result of opening it.
pub enum Expect {
    Opens(Content),
    Refused(Error),
}

/// The content of an opened database.
#[derive(Default)]
pub struct Content {
    pub torn_bytes: u64,
    pub dropped_frames: u64,
    pub last_frame: u64,
    /// Frames that were removed, or that a checkpoint replaces.
    pub skipped_frames: u64,
    pub clean: bool,
    pub created: bool,
    /// Whether the index came from a checkpoint.
    pub checkpoint: bool,
    /// Keys with damaged records before the checkpoint, and their keyspaces.
    pub unreadable: Vec<(u32, &'static str)>,
    pub live: Vec<Live>,
    pub transactions: Vec<TransactionRecord>,
}

/// An existing key.
pub struct Live {
    pub keyspace: u32,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub version: u64,
    pub expiry: u32,
}

/// A transaction record of the log.
pub struct TransactionRecord {
    pub number: u64,
    pub time_ms: u64,
    pub client: u64,
    pub request: u64,
    pub note: &'static str,
}

impl Content {
    /// A log of frames 1 to `last_frame` that ends without a clean close.
    pub fn up_to(last_frame: u64) -> Self {
        Content { last_frame, ..Default::default() }
    }

    /// The same after a clean close, with the witness in frame `last_frame`.
    pub fn closed_at(last_frame: u64) -> Self {
        Content { last_frame, clean: true, ..Default::default() }
    }

    /// Sets the first frame that is needed.
    pub fn from(mut self, first: u64) -> Self {
        self.skipped_frames = first - 1;
        self
    }

    /// Sets the number of removed frames.
    pub fn without(mut self, frames: u64) -> Self {
        self.skipped_frames += frames;
        self
    }

    /// The index comes from a checkpoint as of just before a frame.
    pub fn checkpoint(mut self, frame: u64) -> Self {
        self.checkpoint = true;
        self.from(frame)
    }

    pub fn unreadable(mut self, keyspace: u32, key: &'static str) -> Self {
        self.unreadable.push((keyspace, key));
        self
    }

    /// The number of replayed frames.
    pub fn replayed(&self) -> u64 {
        self.last_frame - self.skipped_frames
    }

    pub fn torn(mut self, bytes: u64, frames: u64) -> Self {
        self.torn_bytes = bytes;
        self.dropped_frames = frames;
        self
    }

    pub fn live(self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, version: u64) -> Self {
        self.live_in(0, key, value, version)
    }

    pub fn live_in(
        mut self,
        keyspace: u32,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        version: u64,
    ) -> Self {
        self.live.push(Live {
            keyspace,
            key: key.as_ref().to_vec(),
            value: value.as_ref().to_vec(),
            version,
            expiry: 0,
        });
        self
    }

    /// Sets the expiry of the last key.
    pub fn expiring(mut self, expiry: u32) -> Self {
        self.live.last_mut().expect("a key comes first").expiry = expiry;
        self
    }

    pub fn transaction_record(mut self, transaction_record: TransactionRecord) -> Self {
        self.transactions.push(transaction_record);
        self
    }
}

impl Golden {
    /// The description that is committed beside the file.
    pub fn json(&self) -> String {
        let mut out = String::from("{\n");
        let (name, about, size) = (self.name, self.about, self.bytes.len());
        let _ = writeln!(
            out,
            "  \"name\": \"{name}\",\n  \"about\": \"{about}\",\n  \"size\": {size},"
        );
        match &self.expect {
            Expect::Opens(content) => content.describe(&mut out),
            Expect::Refused(error) => describe_error(error, &mut out),
        }
        out.push_str("}\n");
        out
    }
}

impl Content {
    fn describe(&self, out: &mut String) {
        let Content { torn_bytes, dropped_frames, last_frame, clean, created, .. } = self;
        let checkpoint = if self.checkpoint { ", \"checkpoint\": true" } else { "" };
        let _ = writeln!(
            out,
            "  \"recovery\": {{ \"tornBytes\": {torn_bytes}, \"droppedFrames\": {dropped_frames}, \
             \"lastFrame\": {last_frame}, \"replayedFrames\": {}, \"clean\": {clean}, \"created\": {created}{checkpoint} }},",
            self.replayed()
        );
        let transactions = self.transactions.iter().map(|t| {
            let TransactionRecord { number, time_ms, client, request, note } = t;
            format!(
                "{{ \"number\": {number}, \"timeMs\": {time_ms}, \"client\": {client}, \
                 \"request\": {request}, \"note\": \"{note}\" }}"
            )
        });
        list(out, "transactions", transactions, ",");
        if !self.unreadable.is_empty() {
            let _ = writeln!(out, "  \"unreadable\": {},", self.unreadable.len());
        }
        let live = self.live.iter().map(|l| {
            let (key, value) = (hex(&l.key), hex(&l.value));
            let Live { keyspace, version, expiry, .. } = l;
            format!(
                "{{ \"keyspace\": {keyspace}, \"version\": {version}, \"expiry\": {expiry}, \
                 \"key\": \"{key}\", \"value\": \"{value}\" }}"
            )
        });
        list(out, "live", live, "");
    }
}

fn describe_error(error: &Error, out: &mut String) {
    let code = error.code();
    let _ = writeln!(out, "  \"error\": {{");
    match error {
        Error::Corruption(damage) => {
            let Damage {
                position,
                expected_frame,
                flushed_frames,
                intact_frames,
                intact_bytes,
                ..
            } = **damage;
            let _ = writeln!(
                out,
                "    \"code\": {code},\n    \"position\": {position},\n    \
                 \"expectedFrame\": {expected_frame},\n    \"flushedFrames\": {flushed_frames},\n    \
                 \"intactFrames\": {intact_frames},\n    \"intactBytes\": {intact_bytes}"
            );
        }
        Error::UnsupportedFormat { major, features } => {
            let _ = writeln!(
                out,
                "    \"code\": {code},\n    \"major\": {major},\n    \"features\": {features}"
            );
        }
        _ => {
            let _ = writeln!(out, "    \"code\": {code}");
        }
    }
    let _ = writeln!(out, "  }}");
}

fn list(out: &mut String, name: &str, items: impl Iterator<Item = String>, comma: &str) {
    let items: Vec<String> = items.map(|item| format!("    {item}")).collect();
    if items.is_empty() {
        let _ = writeln!(out, "  \"{name}\": []{comma}");
    } else {
        let _ = writeln!(out, "  \"{name}\": [\n{}\n  ]{comma}", items.join(",\n"));
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
