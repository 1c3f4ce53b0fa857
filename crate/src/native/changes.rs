//! What happened since a cursor: changes by key, transactions as they come, and marks that keep them.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use crate::error::Damage;
use crate::schema::Malformed;

use super::history::{LogStep, OwnedRecord};
use super::{ChangeKind, Error, Log, LogRange, LogRecord, LogTransaction, Store};

/// A mark moves at least once in this many transactions.
const ITEMS_PER_MARK: u32 = 256;

/// What is different since a cursor, by [`Store::changes`]: each key that was set or deleted once, as it is now.
#[derive(Debug)]
pub struct Changes<'s> {
    log: Log<'s>,
    since: u64,
    collection: Option<String>,
    /// Keyspaces whose clear was given.
    cleared: BTreeSet<u32>,
    /// Deletions, by keyspace and key. The last one of a key counts, which the walk shows last.
    deleted: BTreeMap<(u32, Vec<u8>), OwnedRecord>,
    /// What comes before the walk goes on, the next one last.
    waiting: Vec<OwnedRecord>,
    current: OwnedRecord,
    is_over: bool,
}

impl<'s> Changes<'s> {
    pub(super) fn of(
        store: &'s mut Store,
        since: u64,
        collection: Option<&str>,
    ) -> Result<Self, Error> {
        if store.engine.look().depth() == 0 {
            // So that the log shows the deletions of all that has expired.
            let deleted = store.engine.lock().delete_due_now();
            store.with_loss_reason(deleted)?;
        }
        store.commit()?;
        let known = store.known_since(since)?;
        if !known.changes_are_known {
            return Err(crate::error::Error::CursorExpired.into());
        }
        let (mut waiting, mut cleared) = (Vec::new(), BTreeSet::new());
        // Only where something is gone may a clear follow what was set after it, because it was moved.
        if !known.is_whole {
            let mut ahead = Log::of_store(store, LogRange::all().since(since));
            while ahead.step_record()? {
                let record = ahead.peeked();
                if record.kind == ChangeKind::Clear
                    && record.version > since
                    && ahead.is_in(record.keyspace, collection)
                    && !cleared.contains(&record.keyspace)
                    && ahead.is_current()?
                {
                    cleared.insert(record.keyspace);
                    waiting.push(record);
                }
                ahead.skip_record();
            }
        }
        Ok(Changes {
            log: Log::of_store(store, LogRange::all().since(since)),
            since,
            collection: collection.map(str::to_string),
            cleared,
            deleted: BTreeMap::new(),
            waiting,
            current: OwnedRecord::default(),
            is_over: false,
        })
    }

    /// The next change; none at the end. Its value is the current one.
    ///
    /// # Errors
    /// Damage, or an error of the file.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<LogRecord<'_, 's>>, Error> {
        loop {
            if let Some(next) = self.waiting.pop() {
                self.current = next;
                return Ok(Some(self.log.shown(&self.current)));
            }
            if self.is_over {
                return Ok(None);
            }
            if !self.log.step_record()? {
                self.is_over = true;
                self.waiting = mem::take(&mut self.deleted).into_values().collect();
                self.waiting.sort_by_key(|record| std::cmp::Reverse(record.version));
                continue;
            }
            let record = self.log.peeked();
            let is_wanted = record.version > self.since
                && self.log.is_in(record.keyspace, self.collection.as_deref());
            if !is_wanted || !self.log.is_current()? {
                self.log.skip_record();
                continue;
            }
            match record.kind {
                ChangeKind::Set => return self.log.next_record(),
                ChangeKind::Clear => {
                    self.log.skip_record();
                    if self.cleared.insert(record.keyspace) {
                        self.waiting.push(record);
                    }
                }
                ChangeKind::Delete => {
                    self.log.skip_record();
                    let key = (record.keyspace, record.key.clone());
                    let last = self.deleted.entry(key).or_default();
                    if last.version < record.version {
                        *last = record;
                    }
                }
            }
        }
    }
}

/// Follows the transactions of a store, by [`Store::follow`]: the past first, then what is committed from poll to poll, each
/// transaction once.
///
/// It is polled and does not block: only the program that has the store open can write to it, so a loop that waited with the
/// store borrowed would wait for ever. Poll it after a commit, or in the turns of an event loop.
#[derive(Debug)]
pub struct Follower {
    cursor: u64,
    mark: Option<String>,
    /// How many transactions were handled since the mark moved.
    handled: u32,
}

impl Follower {
    pub(super) fn new(cursor: u64, mark: Option<String>) -> Self {
        Follower { cursor, mark, handled: 0 }
    }

    /// The last transaction that was handled: where to go on after a restart.
    #[must_use]
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// The transactions that were committed since the last poll. What was not asked for comes with the next one.
    ///
    /// # Errors
    /// [`crate::error::Error::CursorExpired`] if a part of what followed the cursor is gone;
    /// [`crate::error::Error::CursorInFuture`] if it is of another store.
    pub fn poll<'f, 's>(&'f mut self, store: &'s mut Store) -> Result<News<'f, 's>, Error> {
        store.begin();
        let seen = store.last_commit();
        if !store.known_since(self.cursor)?.is_whole {
            return Err(crate::error::Error::CursorExpired.into());
        }
        if self.mark.is_some() && self.handled > 0 {
            self.move_mark(store)?;
        }
        let range = LogRange::all().since(self.cursor);
        Ok(News { log: Log::of_store(store, range), follower: self, seen, given: None })
    }

    fn move_mark(&mut self, store: &mut Store) -> Result<(), Error> {
        if let Some(mark) = &self.mark {
            store.retain(mark, Some(self.cursor))?;
        }
        self.handled = 0;
        Ok(())
    }
}

/// The transactions of one [`Follower::poll`].
#[derive(Debug)]
pub struct News<'f, 's> {
    log: Log<'s>,
    follower: &'f mut Follower,
    /// The newest commit when the walk began.
    seen: u64,
    /// The transaction that was given last.
    given: Option<u64>,
}

impl<'s> News<'_, 's> {
    /// The next transaction; none if there is none yet. The one before counts as handled now.
    ///
    /// # Errors
    /// Damage; [`crate::error::Error::CursorExpired`]; an error of the file.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<LogTransaction<'_, 's>>, Error> {
        if let Some(number) = self.given.take() {
            self.follower.cursor = number;
            self.follower.handled += 1;
            if self.follower.handled >= ITEMS_PER_MARK
                && let Some(store) = self.log.store()
            {
                self.follower.move_mark(store)?;
            }
        }
        loop {
            match self.log.next_step()? {
                None => {
                    self.follower.cursor = self.follower.cursor.max(self.seen);
                    if self.follower.handled > 0
                        && let Some(store) = self.log.store()
                    {
                        self.follower.move_mark(store)?;
                    }
                    return Ok(None);
                }
                Some(LogStep::Gap) => return Err(crate::error::Error::CursorExpired.into()),
                Some(LogStep::Damage(damage)) => {
                    let damage = Damage { position: damage.position, ..Damage::default() };
                    return Err(crate::error::Error::from(damage).into());
                }
                Some(LogStep::Transaction(info)) if info.moved => {}
                Some(LogStep::Transaction(info)) => {
                    self.given = Some(info.number);
                    return Ok(Some(LogTransaction::new(info, &mut self.log)));
                }
            }
        }
    }
}

/// Where [`Store::follow`] begins, and whether it keeps what follows.
///
/// ```
/// use varve::FollowFrom;
///
/// let from = FollowFrom::cursor(4_711).retain("replica");
/// # drop(from);
/// ```
#[derive(Clone, Debug, Default)]
pub struct FollowFrom {
    pub(super) cursor: Option<u64>,
    pub(super) mark: Option<String>,
}

impl FollowFrom {
    /// At the mark, if one is given that there is; otherwise with the next commit.
    #[must_use]
    pub fn now() -> Self {
        FollowFrom::default()
    }

    /// After this transaction: the number of the last one that was handled. 0 for all.
    #[must_use]
    pub fn cursor(cursor: u64) -> Self {
        FollowFrom { cursor: Some(cursor), mark: None }
    }

    /// Keeps a mark of this name at what was handled, so that compaction takes nothing that was not.
    #[must_use]
    pub fn retain(mut self, mark: &str) -> Self {
        self.mark = Some(mark.to_string());
        self
    }
}

pub(super) fn checked_mark(name: &str) -> Result<&[u8], Error> {
    if (1..=crate::store::MAX_MARK_NAME).contains(&name.len()) {
        return Ok(name.as_bytes());
    }
    let reason = "the name of a mark must be text of 1 to 255 bytes";
    Err(Error::BadArgument(Malformed::new("", reason)))
}
