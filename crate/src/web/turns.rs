//! The engine of an open database in a browser, which its store shares with the tasks that run between the turns of the
//! program: the commit at the end of each turn, flushes, witnesses, and maintenance. See `js/session/commit-scheduler.ts`.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::fmt;
use std::rc::{Rc, Weak};

use wasm_bindgen_futures::spawn_local;

use crate::aligned_buf::{AlignedBytes, copy_value};
use crate::error::Error;
use crate::format::record::RecordHeader;
use crate::index::Position;
use crate::native::Versioned;
use crate::store::{Recovery, Store as Engine};

use super::js::sleep;
use super::opfs_file::OpfsFile;

/// What is written survives power loss after this time.
const FLUSH_MS: i32 = 1_000;
/// The witness of a flush follows after this time.
const WITNESS_MS: i32 = 80;
/// Maintenance that found no space is tried again after this time.
const FULL_DISK_MS: i32 = 1_000;

/// A larger value has a buffer of its own, which the next value frees.
const SMALL_VALUE: usize = 4_096;

const ABORTED: &str =
    "a panic has ended an earlier call of this database: open it again in a new worker";

/// Called with the errors of commits and flushes that the program did not call.
type Listener = Box<dyn FnMut(&crate::native::Error)>;

/// The engine of an open database. A store has exactly one of these.
///
/// The tasks between turns use the engine too, while an `async` function of the program waits that may have a value in use.
/// Therefore values are given to the program as copies, in a buffer that only calls of its store change: it borrows nothing
/// of the engine after a call, and no function of its own runs during one.
pub(crate) struct OpenEngine {
    shared: Rc<Shared>,
    recovery: Recovery,
    value: ValueCopy,
}

/// The engine during a call.
pub(crate) type InUse<'a> = RefMut<'a, Engine<OpfsFile>>;

struct Shared {
    engine: RefCell<Engine<OpfsFile>>,
    /// Whether the end of this turn is scheduled.
    is_scheduled: Cell<bool>,
    /// Whether a flush, a witness, or maintenance is scheduled.
    will_flush: Cell<bool>,
    will_witness: Cell<bool>,
    will_maintain: Cell<bool>,
    /// Why a task has failed. The next call that writes returns it.
    failure: RefCell<Option<Error>>,
    listener: RefCell<Option<Listener>>,
}

/// A copy of the value that was read last, aligned as in the file.
struct ValueCopy(AlignedBytes);

impl ValueCopy {
    fn of(&mut self, value: &[u8]) -> &mut [u8] {
        let space = value.len().max(SMALL_VALUE);
        if self.0.len() < value.len() || self.0.len() > space.next_multiple_of(8) {
            self.0 = AlignedBytes::uninitialized(space);
        }
        let copy = &mut self.0[..value.len()];
        copy_value(copy, value);
        copy
    }
}

impl fmt::Debug for OpenEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenEngine").field(&self.shared.engine).finish()
    }
}

impl OpenEngine {
    pub(super) fn new(engine: Engine<OpfsFile>) -> Self {
        let recovery = *engine.recovery();
        let shared = Rc::new(Shared {
            engine: RefCell::new(engine),
            is_scheduled: Cell::new(false),
            will_flush: Cell::new(false),
            will_witness: Cell::new(false),
            will_maintain: Cell::new(false),
            failure: RefCell::new(None),
            listener: RefCell::new(None),
        });
        OpenEngine { shared, recovery, value: ValueCopy(AlignedBytes::zeroed(0)) }
    }

    /// The engine, for one call.
    ///
    /// # Panics
    /// After a panic in the engine.
    #[inline]
    pub(crate) fn lock(&mut self) -> InUse<'_> {
        self.shared.lock()
    }

    /// The engine, to look at.
    ///
    /// # Panics
    /// As [`lock`](OpenEngine::lock).
    #[inline]
    pub(crate) fn look(&self) -> Ref<'_, Engine<OpfsFile>> {
        self.shared.engine.try_borrow().expect(ABORTED)
    }

    /// The result of opening.
    pub(crate) fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The value of a key, for the program.
    #[inline]
    pub(crate) fn get(&mut self, keyspace: u32, key: &[u8]) -> Result<Option<&[u8]>, Error> {
        Ok(self.copy(keyspace, key)?.map(|copy| &*copy))
    }

    fn copy(&mut self, keyspace: u32, key: &[u8]) -> Result<Option<&mut [u8]>, Error> {
        let mut engine = self.shared.lock();
        Ok(engine.get(keyspace, key)?.map(|value| self.value.of(value)))
    }

    /// The value of a key that a walk has found, whose record was at a position.
    #[inline]
    pub(crate) fn walked(
        &mut self,
        keyspace: u32,
        key: &[u8],
        position: Position,
    ) -> Result<Option<&[u8]>, Error> {
        let mut engine = self.shared.lock();
        engine.expect_at(position);
        Ok(engine.read(keyspace, key)?.map(|value| &*self.value.of(value)))
    }

    /// The same with its version and its expiry.
    pub(crate) fn get_entry(
        &mut self,
        keyspace: u32,
        key: &[u8],
    ) -> Result<Option<Versioned<&[u8]>>, Error> {
        let mut engine = self.shared.lock();
        let entry = Versioned::of(&mut engine, keyspace, key)?;
        Ok(entry.map(|Versioned { value, version, uncertain, expires }| {
            let value = &*self.value.of(value);
            Versioned { value, version, uncertain, expires }
        }))
    }

    /// A value of the log that lies outside of its record, for the program.
    pub(crate) fn walked_value(
        &mut self,
        header: &RecordHeader,
        key: &[u8],
        described: &[u8],
    ) -> Result<Option<&[u8]>, Error> {
        let mut engine = self.shared.lock();
        let value = engine.walked_value(header, key, described)?;
        Ok(value.map(|value| &*self.value.of(value)))
    }

    /// Has the program change a value, if its `predicate` holds. It changes a copy: a panic in wasm ends the call as it is,
    /// and must leave the value and the engine as they were.
    pub(crate) fn update_if(
        &mut self,
        keyspace: u32,
        key: &[u8],
        predicate: impl FnOnce(&[u8]) -> bool,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<bool, Error> {
        let Some(copy) = self.copy(keyspace, key)? else { return Ok(false) };
        if !predicate(copy) {
            return Ok(false);
        }
        change(copy);
        let length = copy.len();
        let changed = &self.value.0[..length];
        let change = |value: &mut [u8]| {
            copy_value(value, changed);
            Ok(None)
        };
        self.shared.lock().update_if(keyspace, key, |_| true, change)
    }

    /// Schedules the end of this turn, which commits what was written in it: as a microtask, so that nothing else runs
    /// before it.
    pub(crate) fn commit_later(&self) {
        if !self.shared.is_scheduled.replace(true) {
            let shared = Rc::downgrade(&self.shared);
            spawn_local(async move {
                if let Some(shared) = shared.upgrade() {
                    shared.end_turn();
                }
            });
        }
    }

    /// Why a commit or a flush failed that the program did not call. It is returned once.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.shared.failure.take()
    }

    pub(super) fn set_listener(&self, listener: Listener) {
        *self.shared.listener.borrow_mut() = Some(listener);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.engine.get_mut().file().close();
    }
}

impl Shared {
    #[inline]
    fn lock(&self) -> InUse<'_> {
        self.engine.try_borrow_mut().expect(ABORTED)
    }

    /// Commits what was written in the turn.
    fn end_turn(self: &Rc<Self>) {
        self.is_scheduled.set(false);
        self.run(|engine| {
            // A panic aborts a function in wasm without dropping what it has, so that a transaction may still be open.
            // Nothing of it is committed.
            while engine.depth() > 0 {
                engine.rollback_last();
            }
            engine.abort();
            engine.commit()?;
            engine.end_turn();
            Ok(())
        });
        self.schedule_tasks();
    }

    /// Runs a task between two turns, unless one has failed and the program does not know yet.
    fn run<T>(&self, task: impl FnOnce(&mut Engine<OpfsFile>) -> Result<T, Error>) -> Option<T> {
        if self.failure.borrow().is_some() {
            return None;
        }
        // No call is running now. One that ended by a panic in the engine may still have it.
        let Ok(mut engine) = self.engine.try_borrow_mut() else {
            self.fail(Error::Poisoned);
            return None;
        };
        if engine.stats().poisoned {
            return None;
        }
        let done = task(&mut engine);
        drop(engine);
        done.map_err(|error| self.fail(error)).ok()
    }

    fn fail(&self, error: Error) {
        let shown = crate::native::Error::from(error.clone());
        *self.failure.borrow_mut() = Some(error);
        // Taken out meanwhile, so that a listener may set another one.
        let listener = self.listener.take();
        match listener {
            Some(mut listener) => {
                listener(&shown);
                self.listener.borrow_mut().get_or_insert(listener);
            }
            None => web_sys::console::error_1(&format!("varve: {shown}").into()),
        }
    }

    /// Schedules what is outstanding.
    fn schedule_tasks(self: &Rc<Self>) {
        let Ok(engine) = self.engine.try_borrow() else { return };
        if engine.is_unflushed() && !self.will_flush.replace(true) {
            self.after(FLUSH_MS, |shared| {
                shared.will_flush.set(false);
                shared.run(Engine::flush);
            });
        }
        if engine.is_unwitnessed() && !self.will_witness.replace(true) {
            self.after(WITNESS_MS, |shared| {
                shared.will_witness.set(false);
                shared.run(Engine::witness);
            });
        }
        if engine.wants_maintenance() {
            self.maintain_after(0);
        }
    }

    fn maintain_after(self: &Rc<Self>, ms: i32) {
        if self.will_maintain.replace(true) {
            return;
        }
        self.after(ms, |shared| {
            shared.will_maintain.set(false);
            // A slice begins with a commit, because a failure of the slice itself must lose no writes.
            let done = shared.run(|engine| {
                engine.commit()?;
                match engine.maintain(false) {
                    // Nothing is lost by a disk that is full: it is tried again.
                    Err(Error::Quota | Error::Full) => Ok(None),
                    done => done.map(Some),
                }
            });
            match done {
                Some(Some(true)) => shared.maintain_after(0),
                Some(None) => shared.maintain_after(FULL_DISK_MS),
                _ => {}
            }
        });
    }

    /// Runs a task after some milliseconds, if the database is still open, and then schedules what is outstanding.
    fn after(self: &Rc<Self>, ms: i32, task: fn(&Rc<Shared>)) {
        let shared: Weak<Shared> = Rc::downgrade(self);
        spawn_local(async move {
            sleep(ms).await;
            if let Some(shared) = shared.upgrade() {
                task(&shared);
                shared.schedule_tasks();
            }
        });
    }
}
