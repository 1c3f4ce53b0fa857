//! The engine of an open database in a browser, which its store shares with the tasks that run between the turns of the
//! program: the commit at the end of each turn, flushes, witnesses, and maintenance. See `js/session/commit-scheduler.ts`.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell, UnsafeCell};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::rc::{Rc, Weak};

use wasm_bindgen_futures::spawn_local;

use crate::error::Error;
use crate::store::{Store as Engine, ViewCallbacks};

use super::js::sleep;
use super::opfs_file::OpfsFile;

/// What is written survives power loss after this time.
const FLUSH_MS: i32 = 1_000;
/// The witness of a flush follows after this time.
const WITNESS_MS: i32 = 80;
/// Maintenance that found no space is tried again after this time.
const FULL_DISK_MS: i32 = 1_000;

thread_local! {
    /// Whether a task between two turns runs, while the program may still have values in use that it read before.
    static IN_TASK: Cell<bool> = const { Cell::new(false) };
}

/// Called by the engine before it uses memory again that values may lie in.
pub(super) fn views() -> ViewCallbacks {
    ViewCallbacks { are_held: || IN_TASK.get(), ..ViewCallbacks::default() }
}

/// Called with the errors of commits and flushes that the program did not call.
type Listener = Box<dyn FnMut(&crate::native::Error)>;

/// The engine of an open database.
///
/// A store has exactly one of these. It gives the engine to the store's methods, and values that these return borrow the
/// store. The tasks between turns use the engine too. They run when no function of this program does, so that no call of
/// the engine is interrupted by them; but an `async` function that waits may have a value in use. Such values are shared
/// slices of the engine's memory. As long as a task runs, `are_held` says that they do, and the engine leaves memory that values lie in
/// as it is, until [`end_turn`](Engine::end_turn), which only calls of the store make: a store that can be called is not
/// borrowed, so no value is in use then.
pub(crate) struct OpenEngine(Rc<Shared>);

struct Shared {
    engine: UnsafeCell<Engine<OpfsFile>>,
    /// Whether the end of this turn is scheduled.
    is_scheduled: Cell<bool>,
    /// Whether a turn has ended since the last call of the store.
    has_ended: Cell<bool>,
    /// Whether a flush, a witness, or maintenance is scheduled.
    will_flush: Cell<bool>,
    will_witness: Cell<bool>,
    will_maintain: Cell<bool>,
    /// Why a task has failed. The next call that writes returns it.
    failure: RefCell<Option<Error>>,
    listener: RefCell<Option<Listener>>,
}

impl fmt::Debug for OpenEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenEngine").field(&**self).finish()
    }
}

impl OpenEngine {
    pub(super) fn new(engine: Engine<OpfsFile>) -> Self {
        OpenEngine(Rc::new(Shared {
            engine: UnsafeCell::new(engine),
            is_scheduled: Cell::new(false),
            has_ended: Cell::new(false),
            will_flush: Cell::new(false),
            will_witness: Cell::new(false),
            will_maintain: Cell::new(false),
            failure: RefCell::new(None),
            listener: RefCell::new(None),
        }))
    }

    /// Schedules the end of this turn, which commits what was written in it: as a microtask, so that nothing else runs
    /// before it.
    pub(super) fn commit_later(&self) {
        if !self.0.is_scheduled.replace(true) {
            let shared = Rc::downgrade(&self.0);
            spawn_local(async move {
                if let Some(shared) = shared.upgrade() {
                    shared.end_turn();
                }
            });
        }
    }

    pub(super) fn has_turn_ended(&self) -> bool {
        self.0.has_ended.take()
    }

    pub(super) fn take_failure(&self) -> Option<Error> {
        self.0.failure.take()
    }

    pub(super) fn set_listener(&self, listener: Listener) {
        *self.0.listener.borrow_mut() = Some(listener);
    }
}

impl Deref for OpenEngine {
    type Target = Engine<OpfsFile>;

    #[inline]
    fn deref(&self) -> &Engine<OpfsFile> {
        // SAFETY: a task that changes the engine runs only when no function of this program does. Of the fields that
        // methods give out references to, none is changed after opening.
        unsafe { &*self.0.engine.get() }
    }
}

impl DerefMut for OpenEngine {
    #[inline]
    fn deref_mut(&mut self) -> &mut Engine<OpfsFile> {
        // SAFETY: the store has the only `OpenEngine` of this engine, and tasks run only when no function of this program
        // does. What outlives this reference are shared slices of values, whose bytes no task changes or frees.
        unsafe { &mut *self.0.engine.get() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.engine.get_mut().file().close();
    }
}

impl Shared {
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
            engine.commit()
        });
        self.schedule_tasks();
    }

    /// Runs a task between two turns, unless one has failed and the program does not know yet.
    fn run<T>(&self, task: impl FnOnce(&mut Engine<OpfsFile>) -> Result<T, Error>) -> Option<T> {
        if self.failure.borrow().is_some() {
            return None;
        }
        // SAFETY: tasks begin when no function of this program runs, so that no other reference to the engine is in use:
        // between calls, a store has only this cell, and its values are slices of memory that is left as it is.
        let engine = unsafe { &mut *self.engine.get() };
        if engine.stats().poisoned {
            return None;
        }
        self.has_ended.set(true);
        IN_TASK.set(true);
        let done = task(engine);
        IN_TASK.set(false);
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
        // SAFETY: as in `run`.
        let engine = unsafe { &*self.engine.get() };
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
                    // Nothing is lost by a disk that is full, or by values in use: it is tried again.
                    Err(Error::Quota | Error::Full | Error::ViewsHeld) => Ok(None),
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
