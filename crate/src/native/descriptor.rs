//! The stored description of a collection or an index: a head, and JSON.

use musli_zerocopy::ZeroCopy;
use serde_json::Value;

use crate::format::system_records::CollectionDescriptor;

const HEAD: usize = size_of::<CollectionDescriptor>();

/// The parts of a stored descriptor.
pub(super) struct Descriptor {
    pub head: CollectionDescriptor,
    pub json: Value,
}

impl Descriptor {
    pub(super) fn decode(bytes: &[u8]) -> Option<Descriptor> {
        let word = |at: usize| {
            let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
            Some(u32::from_le_bytes(bytes))
        };
        let head = CollectionDescriptor {
            fingerprint: u64::from_le_bytes(bytes.first_chunk().copied()?),
            keyspace: word(8)?,
            flags: word(12)?,
            parent: word(16)?,
            json_len: word(20)?,
        };
        let text = bytes.get(HEAD..)?.get(..head.json_len as usize)?;
        Some(Descriptor { head, json: serde_json::from_slice(text).ok()? })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let text = self.json.to_string();
        let head = CollectionDescriptor { json_len: text.len() as u32, ..self.head };
        [head.to_bytes(), text.as_bytes()].concat()
    }
}
