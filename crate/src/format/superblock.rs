//! The two superblock slots: the identity of the file, and the last known end of its log.

use alloc::boxed::Box;

use musli_zerocopy::ZeroCopy;

use super::checksum::{checksum, seed_at};

/// The first eight bytes of every database file.
pub const MAGIC: [u8; 8] = *b"varve\r\n\x1a";
/// Distance between the starts of the two slots.
pub const SLOT_STRIDE: u64 = 4096;
/// Bytes of a superblock; it fits in one 512-byte sector.
pub const SIZE: usize = 256;

/// Mode bit, fixed at creation: the log is history, and nothing is merged or compacted.
pub const MODE_KEEP_HISTORY: u8 = 1;
/// Flag: the file was closed properly; the log ends at `end_position`.
pub const FLAG_CLEAN: u16 = 1;
/// Incompatible feature: there may be chunked values.
pub const INCOMPATIBLE_CHUNKS: u64 = 1;
/// Compatible feature: the log has said from the beginning what maintenance moved, and the record of what was forgotten
/// (section 8 of FORMAT.md) has been kept.
pub const COMPATIBLE_HISTORY: u64 = 1;
/// Incompatible features that this build understands.
pub const KNOWN_INCOMPATIBLE: u64 = INCOMPATIBLE_CHUNKS;

/// A superblock as stored in its slot.
#[derive(ZeroCopy, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Superblock {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// XXH3-64 of bytes 16..256, seeded with the magic and the slot's position.
    pub check: u64,
    /// Format version; another major version is refused.
    pub major: u16,
    /// Compatible additions.
    pub minor: u16,
    /// Size of a segment, as a power of two.
    pub segment_log2: u8,
    /// Mode bits, fixed at creation.
    pub mode: u8,
    /// [`FLAG_CLEAN`].
    pub flags: u16,
    /// Feature bits; a file with an unknown one is refused.
    pub incompatible: u64,
    /// Feature bits; unknown ones are ignored.
    pub compatible: u64,
    /// Random identity of the database.
    pub file_id: [u64; 2],
    /// Random seed of the hash index. It is secret, so that an attacker cannot flood the table.
    pub hash_seed: [u64; 2],
    /// The valid superblock with the larger generation is the current one.
    pub generation: u64,
    /// Creation time in milliseconds since 1970; 0 if unknown.
    pub created_ms: u64,
    /// No version at or above this had been used when this was written.
    pub next_version: u64,
    /// Frames below this number were flushed when this was written.
    pub next_frame: u64,
    /// Sequence of the segment in which the log ended.
    pub end_sequence: u64,
    /// File position of that end.
    pub end_position: u64,
    /// The next segment sequence to assign.
    pub next_sequence: u64,
    /// The lowest segment sequence that the log still needs.
    pub first_sequence: u64,
    /// The number of the first frame that the log still needs.
    pub first_frame: u64,
    /// Sequence of the first checkpoint segment, 0 for none.
    pub checkpoint_sequence: u64,
    /// The checkpoint contains the index as of just before this frame.
    pub checkpoint_frame: u64,
    /// Records with versions below this were salvaged from a damaged file, and lost frames may have
    /// changed or deleted their keys.
    pub uncertain_below: u64,
    /// The first slot of the checkpoint, if there is one.
    pub checkpoint_slot: u64,
    /// Zero; reserved for compatible additions.
    pub reserved: [u64; 10],
}

const _: () = assert!(size_of::<Superblock>() == SIZE);
const _: () = assert!(SIZE <= 512);

/// The content of a superblock slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    /// A superblock with a correct checksum.
    Valid(Box<Superblock>),
    /// The magic, but a wrong checksum.
    Damaged,
    /// Only zeros.
    Empty,
    /// The beginning of the magic, followed by zeros: an interrupted creation.
    Unfinished,
    /// Something else.
    Foreign,
}

fn slot_seed(slot: u64) -> u64 {
    seed_at(u64::from_le_bytes(MAGIC), slot * SLOT_STRIDE)
}

impl Superblock {
    /// The bytes for slot 0 or 1, including their checksum.
    #[must_use]
    pub fn encode(mut self, slot: u64) -> [u8; SIZE] {
        self.magic = MAGIC;
        self.check = checksum(&self.to_bytes()[16..], slot_seed(slot));
        let mut out = [0; SIZE];
        out.copy_from_slice(self.to_bytes());
        out
    }

    /// Reads the slot that starts at `bytes`, which may be shorter than a superblock.
    #[must_use]
    pub fn decode(bytes: &[u8], slot: u64) -> Slot {
        let magic = &bytes[..bytes.len().min(8)];
        if bytes.iter().all(|&b| b == 0) {
            return Slot::Empty;
        }
        if magic != MAGIC {
            let same = magic.iter().zip(MAGIC).take_while(|&(&a, b)| a == b).count();
            let torn = same > 0 && magic[same..].iter().all(|&b| b == 0);
            return if torn { Slot::Unfinished } else { Slot::Foreign };
        }
        // A copy on the stack, because the caller's bytes may be unaligned.
        let mut aligned = Aligned([0; SIZE]);
        let Some(bytes) = bytes.get(..SIZE) else {
            return Slot::Damaged;
        };
        aligned.0.copy_from_slice(bytes);
        match Superblock::from_bytes(&aligned.0) {
            Ok(sb) if sb.check == checksum(&aligned.0[16..], slot_seed(slot)) => {
                Slot::Valid(Box::new(*sb))
            }
            _ => Slot::Damaged,
        }
    }
}

/// Whether the bytes of an invalid slot may be the result of a crash while a superblock was being
/// written next to `other`: the beginning of the new one and the end of the old content, or
/// anything.
#[must_use]
pub fn may_be_torn(bytes: &[u8; SIZE], slot: u64, other: &Superblock) -> bool {
    let (generation, other) = (other.generation, other.to_bytes());
    // A single wrong byte in an old superblock is later damage, unless it belongs to the checksum
    // of a new one, or is the first one, with which a write begins that may have ended there.
    for at in 0..SIZE {
        let mut repaired = *bytes;
        for byte in 0..=u8::MAX {
            repaired[at] = byte;
            if let Slot::Valid(it) = Superblock::decode(&repaired, slot) {
                return it.generation > generation || at == 0 || (8..16).contains(&at);
            }
        }
    }
    // Identity and hash seed never change; where they are missing, there is no superblock. The
    // magic is ignored because a new file writes it after the rest.
    let words = [40, 48, 56, 64].into_iter().filter(|&at| other[at..at + 8] != [0; 8]);
    let mut missing = words.skip_while(|&at| bytes[at..at + 8] == other[at..at + 8]);
    missing.all(|at| bytes[at..at + 8] != other[at..at + 8])
}

#[repr(C, align(8))]
struct Aligned([u8; SIZE]);

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        let mut aligned = Aligned([0; SIZE]);
        aligned.0[72] = 9;
        *Superblock::from_bytes(&aligned.0).expect("zeros are a superblock's bytes")
    }

    #[test]
    fn superblock_round_trips_and_checks_its_slot() {
        let bytes = sample().encode(1);
        let Slot::Valid(back) = Superblock::decode(&bytes, 1) else { panic!("not valid") };
        assert_eq!(back.generation, 9);
        assert_eq!(Superblock::decode(&bytes, 0), Slot::Damaged);
    }

    #[test]
    fn superblock_detects_every_bit_flip() {
        let bytes = sample().encode(0);
        for bit in 0..SIZE * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(Superblock::decode(&flipped, 0), Slot::Valid(_)), "bit {bit}");
        }
    }

    #[test]
    fn torn_superblock_is_distinguished_from_a_damaged_one() {
        let superblock = |generation: u64| Superblock {
            file_id: [0x5EED, 0x1D],
            hash_seed: [7, 0xFEED],
            generation,
            next_version: 300 * generation,
            next_frame: 30 * generation,
            flags: (generation % 2) as u16,
            ..sample()
        };
        let (old, other, new) = (superblock(7), superblock(8), superblock(9));
        let (old, new) = (old.encode(0), new.encode(0));
        for before in [old, [0; SIZE], core::array::from_fn(|i| (i * i + 37) as u8)] {
            for end in 0..SIZE {
                let mut torn = before;
                torn[..end].copy_from_slice(&new[..end]);
                let is_valid = matches!(Superblock::decode(&torn, 0), Slot::Valid(_));
                assert!(is_valid || may_be_torn(&torn, 0, &other), "{end} bytes were written");
            }
        }
        // A write of a single byte, torn itself.
        let mut torn = old;
        torn[0] = b'I';
        assert!(may_be_torn(&torn, 0, &other), "the first byte was being written");
        for at in (1..8).chain(16..SIZE) {
            let mut damaged = old;
            damaged[at] ^= 4;
            assert!(!may_be_torn(&damaged, 0, &other), "byte {at} was damaged");
        }
        let mut damaged = old;
        damaged[40..48].fill(0xAA);
        assert!(!may_be_torn(&damaged, 0, &other), "the identity was damaged");
    }

    #[test]
    fn torn_magic_is_unfinished_creation_and_other_bytes_are_foreign() {
        assert_eq!(Superblock::decode(b"var", 0), Slot::Unfinished);
        assert_eq!(Superblock::decode(&[0; 300], 0), Slot::Empty);
        assert_eq!(Superblock::decode(b"", 0), Slot::Empty);
        assert_eq!(Superblock::decode(b"vacuum cleaner", 0), Slot::Foreign);
        assert_eq!(Superblock::decode(b"SQLite format 3", 0), Slot::Foreign);
    }
}
