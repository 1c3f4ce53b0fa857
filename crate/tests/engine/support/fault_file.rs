//! A file that fails on purpose and remembers everything that was done to it.
//!
//! [`FaultFile`] is a handle: clones share one disk, so a test keeps one while the store owns
//! another. The disk keeps the image it began with and every write, truncate and flush since, from
//! which [`images`](super::images) rebuilds what any crash at any moment could have left.

use std::cell::RefCell;
use std::rc::Rc;

use varve::{File, IoError};

use super::oracle::Mark;
use super::pages::Pages;
use super::phases::{Op, Phase, Stage, phase_of};
use super::rng::Rng;

/// One thing that happened to the disk, in order.
#[derive(Clone, Debug)]
pub enum Event {
    Write {
        at: u64,
        bytes: Vec<u8>,
    },
    Truncate(u64),
    Flush,
    /// Said by the test: what was acknowledged so far.
    Mark(Mark),
}

/// What goes wrong when a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// The operation does nothing and fails. `IoError::Quota` on a write is Chromium's full disk.
    Fail(IoError),
    /// A write takes nothing and says so without an error: Firefox's full disk.
    TakeNothing,
    /// A write takes this many 256ths of its bytes and says so.
    TakePart(u8),
    /// A write takes this many 256ths of its bytes and then fails.
    TearAndFail(u8, IoError),
    /// A write takes this many bytes and the process is gone: every later call fails.
    Die(usize),
}

impl Harm {
    /// Whether it is done to a call after the first blow: a full disk can still be read.
    fn lasts_for(self, op: Op<'_>) -> bool {
        let is_full = match self {
            Harm::Fail(error) | Harm::TearAndFail(_, error) => error == IoError::Quota,
            Harm::TakeNothing | Harm::TakePart(_) => true,
            Harm::Die(_) => false,
        };
        !is_full || matches!(op, Op::Write(..))
    }
}

/// From which call on (counted from 0, all five methods alike) the harm is done.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub nth: u64,
    pub lasting: bool,
    pub harm: Harm,
}

#[derive(Default)]
struct Disk {
    base: Pages,
    now: Pages,
    events: Vec<Event>,
    /// What each event belongs to, and what each blow of a fault met.
    phases: Vec<Phase>,
    blows: Vec<Phase>,
    stage: Stage,
    fault: Option<Fault>,
    struck: bool,
    dead: bool,
    paused: bool,
    calls: u64,
    short_reads: Option<Rng>,
    /// How long the file may become, and what a write is told that would make it longer.
    limit: Option<(u64, Harm)>,
}

enum Call {
    Proceed,
    Harm(Harm),
}

impl Disk {
    fn enter(&mut self, op: Op<'_>) -> Result<Call, IoError> {
        if self.paused {
            return Ok(Call::Proceed);
        }
        if self.dead {
            return Err(IoError::Lost);
        }
        let call = self.calls;
        self.calls += 1;
        match self.fault {
            Some(f) if call == f.nth || (f.lasting && call > f.nth && f.harm.lasts_for(op)) => {
                self.struck = true;
                self.blows.push(phase_of(self.stage, op));
                Ok(Call::Harm(f.harm))
            }
            _ => Ok(Call::Proceed),
        }
    }

    /// For the four calls that write no bytes: harms that tear mean a plain failure there.
    fn enter_plain(&mut self, op: Op<'_>) -> Result<(), IoError> {
        match self.enter(op)? {
            Call::Proceed => Ok(()),
            Call::Harm(Harm::Fail(error) | Harm::TearAndFail(_, error)) => Err(error),
            Call::Harm(Harm::TakeNothing | Harm::TakePart(_)) => Err(IoError::Other),
            Call::Harm(Harm::Die(_)) => {
                self.dead = true;
                Err(IoError::Lost)
            }
        }
    }

    fn put(&mut self, bytes: &[u8], at: u64) {
        if !bytes.is_empty() {
            self.now.write(bytes, at);
            let phase = phase_of(self.stage, Op::Write(at, bytes));
            self.note(Event::Write { at, bytes: bytes.to_vec() }, phase);
        }
    }

    fn note(&mut self, event: Event, phase: Phase) {
        self.events.push(event);
        self.phases.push(phase);
    }
}

/// The handle. See the module's comment.
#[derive(Clone, Default)]
pub struct FaultFile(Rc<RefCell<Disk>>);

impl FaultFile {
    /// A disk whose durable content is `image`.
    pub fn new(image: impl Into<Pages>) -> Self {
        let image = image.into();
        let disk = Disk { base: image.clone(), now: image, ..Disk::default() };
        FaultFile(Rc::new(RefCell::new(disk)))
    }

    /// Answers most reads with fewer bytes than asked for, which is legal.
    pub fn with_short_reads(self, seed: u64) -> Self {
        self.0.borrow_mut().short_reads = Some(Rng::new(seed));
        self
    }

    /// Sets the fault to come and counts calls from 0 again.
    pub fn arm(&self, fault: Fault) {
        let mut disk = self.0.borrow_mut();
        (disk.fault, disk.struck, disk.calls) = (Some(fault), false, 0);
    }

    /// The disk works again, also after its death.
    pub fn heal(&self) {
        let mut disk = self.0.borrow_mut();
        (disk.fault, disk.dead) = (None, false);
    }

    /// While `look` runs, calls are not counted and nothing fails: the test itself wants to know.
    pub fn paused<T>(&self, look: impl FnOnce() -> T) -> T {
        self.0.borrow_mut().paused = true;
        let seen = look();
        self.0.borrow_mut().paused = false;
        seen
    }

    /// Flips bits of the image behind the back of whoever has it open.
    pub fn damage(&self, at: usize, flips: u8) {
        self.0.borrow_mut().now.flip(at, flips);
    }

    /// From now on there is room for so many bytes, and a write beyond them meets the harm; or there is
    /// room without end.
    pub fn limit(&self, limit: Option<(u64, Harm)>) {
        self.0.borrow_mut().limit = limit;
    }

    pub fn is_limited(&self) -> bool {
        self.0.borrow().limit.is_some()
    }

    /// Whether the armed fault has been met.
    pub fn struck(&self) -> bool {
        self.0.borrow().struck
    }

    pub fn is_dead(&self) -> bool {
        self.0.borrow().dead
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.0.borrow().calls
    }

    /// The image that a reader sees now.
    pub fn image(&self) -> Vec<u8> {
        self.0.borrow().now.to_vec()
    }

    /// The same, shared.
    pub fn pages(&self) -> Pages {
        self.0.borrow().now.clone()
    }

    /// Writes a remark of the test between the events.
    pub fn mark(&self, mark: Mark) {
        self.0.borrow_mut().note(Event::Mark(mark), Phase::Between);
    }

    /// What the test is about to have done.
    pub fn enter(&self, stage: Stage) {
        self.0.borrow_mut().stage = stage;
    }

    /// What each event of the history belongs to.
    pub fn phases(&self) -> Vec<Phase> {
        self.0.borrow().phases.clone()
    }

    /// What was under way at each blow of a fault.
    pub fn blows(&self) -> Vec<Phase> {
        self.0.borrow().blows.clone()
    }

    /// The number of events so far.
    pub fn event_count(&self) -> usize {
        self.0.borrow().events.len()
    }

    /// The image that the disk began with, and all that happened since.
    pub fn history(&self) -> (Pages, Vec<Event>) {
        let disk = self.0.borrow();
        (disk.base.clone(), disk.events.clone())
    }
}

impl File for FaultFile {
    fn read(&mut self, buf: &mut [u8], at: u64) -> Result<usize, IoError> {
        let mut disk = self.0.borrow_mut();
        disk.enter_plain(Op::Read)?;
        let at = usize::try_from(at).map_err(|_| IoError::Other)?;
        let mut n = disk.now.len().saturating_sub(at).min(buf.len());
        if let Some(rng) = disk.short_reads.as_mut().filter(|_| n > 1) {
            n = rng.within(1..n + 1);
        }
        Ok(disk.now.read(&mut buf[..n], at))
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<usize, IoError> {
        let mut disk = self.0.borrow_mut();
        let part = |of256: u8| bytes.len() * usize::from(of256) / 256;
        let call = disk.enter(Op::Write(at, bytes))?;
        let end = disk.now.len() as u64;
        let is_beyond = |limit: u64| at + bytes.len() as u64 > limit.max(end);
        let taken = match disk.limit.filter(|&(limit, _)| is_beyond(limit)).map(|(_, harm)| harm) {
            Some(harm) if matches!(call, Call::Proceed) => Call::Harm(harm),
            _ => call,
        };
        let taken = match taken {
            Call::Proceed => bytes.len(),
            Call::Harm(Harm::Fail(error)) => return Err(error),
            Call::Harm(Harm::TakeNothing) => 0,
            Call::Harm(Harm::TakePart(of256)) => part(of256),
            Call::Harm(Harm::TearAndFail(of256, error)) => {
                disk.put(&bytes[..part(of256)], at);
                return Err(error);
            }
            Call::Harm(Harm::Die(n)) => {
                disk.put(&bytes[..n.min(bytes.len())], at);
                disk.dead = true;
                return Err(IoError::Lost);
            }
        };
        disk.put(&bytes[..taken], at);
        Ok(taken)
    }

    fn truncate(&mut self, size: u64) -> Result<(), IoError> {
        let mut disk = self.0.borrow_mut();
        disk.enter_plain(Op::Truncate)?;
        disk.now.resize(usize::try_from(size).map_err(|_| IoError::Quota)?);
        let phase = phase_of(disk.stage, Op::Truncate);
        disk.note(Event::Truncate(size), phase);
        Ok(())
    }

    fn size(&mut self) -> Result<u64, IoError> {
        let mut disk = self.0.borrow_mut();
        disk.enter_plain(Op::Read)?;
        Ok(disk.now.len() as u64)
    }

    fn flush(&mut self) -> Result<(), IoError> {
        let mut disk = self.0.borrow_mut();
        disk.enter_plain(Op::Flush)?;
        let phase = phase_of(disk.stage, Op::Flush);
        disk.note(Event::Flush, phase);
        Ok(())
    }
}
