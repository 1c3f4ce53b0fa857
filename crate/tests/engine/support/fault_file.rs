//! A file that fails on purpose and records everything that was done to it.
//!
//! [`FaultFile`] is a handle: clones share one disk, so a test keeps one while the store owns
//! another. The disk keeps its initial image and every write, truncate and flush since, from which
//! [`images`](super::images) reconstructs what a crash at any moment could have left.

use std::cell::RefCell;
use std::rc::Rc;

use varve::engine::{File, IoError};

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
    /// Added by the test: what was acknowledged so far.
    Mark(Mark),
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureMode {
    /// The operation does nothing and fails. `IoError::Quota` on a write is Chromium's full disk.
    Fail(IoError),
    /// A write writes nothing and returns that count without an error: Firefox's full disk.
    TakeNothing,
    /// A write writes this many 256ths of its bytes and returns that count.
    TakePart(u8),
    /// A write writes this many 256ths of its bytes and then fails.
    TearAndFail(u8, IoError),
    /// A write writes this many bytes and the process dies: every later call fails.
    Die(usize),
}

impl FailureMode {
    /// Whether calls after the first failed one fail too: a full disk can still be read.
    fn lasts_for(self, op: Op<'_>) -> bool {
        let is_full = match self {
            FailureMode::Fail(error) | FailureMode::TearAndFail(_, error) => {
                error == IoError::Quota
            }
            FailureMode::TakeNothing | FailureMode::TakePart(_) => true,
            FailureMode::Die(_) => false,
        };
        !is_full || matches!(op, Op::Write(..))
    }
}

/// From which call on (counted from 0 over all five methods) calls fail.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub nth: u64,
    pub lasting: bool,
    pub failure: FailureMode,
}

#[derive(Default)]
struct Disk {
    base: Pages,
    now: Pages,
    events: Vec<Event>,
    /// The phase of each event, and the phase of each failed call.
    phases: Vec<Phase>,
    failed_calls: Vec<Phase>,
    stage: Stage,
    fault: Option<Fault>,
    struck: bool,
    dead: bool,
    paused: bool,
    calls: u64,
    short_reads: Option<Rng>,
    /// The size limit of the file, and how writes beyond it fail.
    limit: Option<(u64, FailureMode)>,
}

enum Call {
    Proceed,
    FailureMode(FailureMode),
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
            Some(f) if call == f.nth || (f.lasting && call > f.nth && f.failure.lasts_for(op)) => {
                self.struck = true;
                self.failed_calls.push(phase_of(self.stage, op));
                Ok(Call::FailureMode(f.failure))
            }
            _ => Ok(Call::Proceed),
        }
    }

    /// For the four methods that write no bytes: torn writes become plain failures.
    fn enter_plain(&mut self, op: Op<'_>) -> Result<(), IoError> {
        match self.enter(op)? {
            Call::Proceed => Ok(()),
            Call::FailureMode(FailureMode::Fail(error) | FailureMode::TearAndFail(_, error)) => {
                Err(error)
            }
            Call::FailureMode(FailureMode::TakeNothing | FailureMode::TakePart(_)) => {
                Err(IoError::Other)
            }
            Call::FailureMode(FailureMode::Die(_)) => {
                self.dead = true;
                Err(IoError::Lost)
            }
        }
    }

    fn put(&mut self, bytes: &[u8], at: u64) {
        if !bytes.is_empty() {
            self.now.write(bytes, at);
            let phase = phase_of(self.stage, Op::Write(at, bytes));
            self.record(Event::Write { at, bytes: bytes.to_vec() }, phase);
        }
    }

    fn record(&mut self, event: Event, phase: Phase) {
        self.events.push(event);
        self.phases.push(phase);
    }
}

/// The handle. See the module documentation.
#[derive(Clone, Default)]
pub struct FaultFile(Rc<RefCell<Disk>>);

impl FaultFile {
    /// A disk with the durable content `image`.
    pub fn new(image: impl Into<Pages>) -> Self {
        let image = image.into();
        let disk = Disk { base: image.clone(), now: image, ..Disk::default() };
        FaultFile(Rc::new(RefCell::new(disk)))
    }

    /// Returns fewer bytes than requested for most reads, which is legal.
    pub fn with_short_reads(self, seed: u64) -> Self {
        self.0.borrow_mut().short_reads = Some(Rng::new(seed));
        self
    }

    /// Sets the fault and restarts the count of calls at 0.
    pub fn arm(&self, fault: Fault) {
        let mut disk = self.0.borrow_mut();
        (disk.fault, disk.struck, disk.calls) = (Some(fault), false, 0);
    }

    /// Makes the disk work again, even after its death.
    pub fn heal(&self) {
        let mut disk = self.0.borrow_mut();
        (disk.fault, disk.dead) = (None, false);
    }

    /// Runs `check` without counting calls or failures, for checks by the test itself.
    pub fn paused<T>(&self, check: impl FnOnce() -> T) -> T {
        self.0.borrow_mut().paused = true;
        let seen = check();
        self.0.borrow_mut().paused = false;
        seen
    }

    /// Flips bits of the image while it may be open.
    pub fn damage(&self, at: usize, flips: u8) {
        self.0.borrow_mut().now.flip(at, flips);
    }

    /// Limits the size of the file, so that writes beyond it fail in this way; or removes the
    /// limit.
    pub fn limit(&self, limit: Option<(u64, FailureMode)>) {
        self.0.borrow_mut().limit = limit;
    }

    pub fn is_limited(&self) -> bool {
        self.0.borrow().limit.is_some()
    }

    /// Whether the fault has occurred.
    pub fn struck(&self) -> bool {
        self.0.borrow().struck
    }

    pub fn is_dead(&self) -> bool {
        self.0.borrow().dead
    }

    /// The number of calls so far.
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

    /// Adds a mark of the test to the events.
    pub fn mark(&self, mark: Mark) {
        self.0.borrow_mut().record(Event::Mark(mark), Phase::Between);
    }

    /// Sets the stage that the following calls belong to.
    pub fn enter(&self, stage: Stage) {
        self.0.borrow_mut().stage = stage;
    }

    /// The phase of each event.
    pub fn phases(&self) -> Vec<Phase> {
        self.0.borrow().phases.clone()
    }

    /// The phase of each failed call.
    pub fn failed_calls(&self) -> Vec<Phase> {
        self.0.borrow().failed_calls.clone()
    }

    /// The number of events so far.
    pub fn event_count(&self) -> usize {
        self.0.borrow().events.len()
    }

    /// The initial image of the disk, and all events since.
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
        let written =
            match disk.limit.filter(|&(limit, _)| is_beyond(limit)).map(|(_, failure)| failure) {
                Some(failure) if matches!(call, Call::Proceed) => Call::FailureMode(failure),
                _ => call,
            };
        let written = match written {
            Call::Proceed => bytes.len(),
            Call::FailureMode(FailureMode::Fail(error)) => return Err(error),
            Call::FailureMode(FailureMode::TakeNothing) => 0,
            Call::FailureMode(FailureMode::TakePart(of256)) => part(of256),
            Call::FailureMode(FailureMode::TearAndFail(of256, error)) => {
                disk.put(&bytes[..part(of256)], at);
                return Err(error);
            }
            Call::FailureMode(FailureMode::Die(n)) => {
                disk.put(&bytes[..n.min(bytes.len())], at);
                disk.dead = true;
                return Err(IoError::Lost);
            }
        };
        disk.put(&bytes[..written], at);
        Ok(written)
    }

    fn truncate(&mut self, size: u64) -> Result<(), IoError> {
        let mut disk = self.0.borrow_mut();
        disk.enter_plain(Op::Truncate)?;
        disk.now.resize(usize::try_from(size).map_err(|_| IoError::Quota)?);
        let phase = phase_of(disk.stage, Op::Truncate);
        disk.record(Event::Truncate(size), phase);
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
        disk.record(Event::Flush, phase);
        Ok(())
    }
}
