//! The bytes of a simulated disk, in copy-on-write pages: the tests mostly copy disks with few
//! changes.

use std::rc::Rc;

const PAGE: usize = 4096;

/// The bytes of a disk. Clones are cheap.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    /// Invariant: as many pages as `len` needs, with zeros after `len`.
    pages: Vec<Rc<[u8; PAGE]>>,
    len: usize,
}

impl Pages {
    pub fn len(&self) -> usize {
        self.len
    }

    /// The byte at an offset, if it exists.
    pub fn get(&self, at: usize) -> Option<u8> {
        (at < self.len).then(|| self.pages[at / PAGE][at % PAGE])
    }

    /// Copies the bytes from `at` on; returns how many there were.
    pub fn read(&self, to: &mut [u8], at: usize) -> usize {
        let count = self.len.saturating_sub(at).min(to.len());
        let mut done = 0;
        while done < count {
            let (page, from) = ((at + done) / PAGE, (at + done) % PAGE);
            let next = (count - done).min(PAGE - from);
            to[done..done + next].copy_from_slice(&self.pages[page][from..from + next]);
            done += next;
        }
        count
    }

    /// Writes like a file: bytes between its end and `at` become zeros.
    pub fn write(&mut self, bytes: &[u8], at: u64) {
        let at = usize::try_from(at).expect("test files are small");
        if self.len < at + bytes.len() {
            self.resize(at + bytes.len());
        }
        let mut done = 0;
        while done < bytes.len() {
            let (page, from) = ((at + done) / PAGE, (at + done) % PAGE);
            let next = (bytes.len() - done).min(PAGE - from);
            let page = Rc::make_mut(&mut self.pages[page]);
            page[from..from + next].copy_from_slice(&bytes[done..done + next]);
            done += next;
        }
    }

    /// Flips bits of a byte.
    pub fn flip(&mut self, at: usize, flips: u8) {
        assert!(at < self.len, "the byte exists");
        Rc::make_mut(&mut self.pages[at / PAGE])[at % PAGE] ^= flips;
    }

    /// Truncates it, or extends it with zeros.
    pub fn resize(&mut self, len: usize) {
        let count = len.div_ceil(PAGE);
        if count > self.pages.len() {
            self.pages.resize(count, Rc::new([0; PAGE]));
        }
        self.pages.truncate(count);
        if len < self.len && !len.is_multiple_of(PAGE) {
            Rc::make_mut(&mut self.pages[len / PAGE])[len % PAGE..].fill(0);
        }
        self.len = len;
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = Vec::with_capacity(self.pages.len() * PAGE);
        self.pages.iter().for_each(|page| bytes.extend_from_slice(&page[..]));
        bytes.truncate(self.len);
        bytes
    }
}

impl From<&[u8]> for Pages {
    fn from(bytes: &[u8]) -> Self {
        let mut pages = Pages::default();
        for bytes in bytes.chunks(PAGE) {
            let mut page = [0; PAGE];
            page[..bytes.len()].copy_from_slice(bytes);
            pages.pages.push(Rc::new(page));
        }
        pages.len = bytes.len();
        pages
    }
}

impl From<Vec<u8>> for Pages {
    fn from(bytes: Vec<u8>) -> Self {
        Pages::from(bytes.as_slice())
    }
}
