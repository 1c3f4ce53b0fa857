//! Options of a write, and what is known of a key beside its value.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::file::File;
use crate::format::KEYSPACE_RAW;
use crate::schema::Malformed;
use crate::store::Store as Engine;

use super::read_errors::read;
use super::{Error, Store, system};

/// When a record expires. From that time on it is absent for every call.
///
/// The file has whole seconds. Times are rounded up: a record is never absent earlier than asked for, and at most a
/// second later. The latest time is in the year 2106.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expiry {
    /// It does not expire.
    #[default]
    Never,
    /// After this time, which is above 0, from now on.
    In(Duration),
    /// At this time. If it is past, the record is absent at once.
    At(SystemTime),
}

impl From<Duration> for Expiry {
    fn from(after: Duration) -> Self {
        Expiry::In(after)
    }
}

impl From<SystemTime> for Expiry {
    fn from(at: SystemTime) -> Self {
        Expiry::At(at)
    }
}

impl Expiry {
    /// Seconds since 1970, or 0 for never. The store's own time may be later than the clock's.
    pub(super) fn seconds(self, store_now: u32) -> Result<u32, Error> {
        let refused = |reason: &str| Error::BadArgument(Malformed::new("", reason));
        let since_1970 = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = match self {
            Expiry::Never => return Ok(0),
            Expiry::In(Duration::ZERO) => {
                return Err(refused("a record must expire after a time above 0, or at a time"));
            }
            Expiry::In(after) => {
                let now = since_1970(system::now());
                now.max(Duration::from_secs(store_now.into())).saturating_add(after)
            }
            Expiry::At(at) => since_1970(at),
        };
        let seconds = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0)).max(1);
        u32::try_from(seconds).map_err(|_| {
            refused("the file cannot hold an expiry after the year 2106: leave it out for never")
        })
    }
}

/// The options of [`Store::set_with`](super::Store::set_with) and
/// [`Collection::set_with`](super::Collection::set_with).
///
/// ```
/// use std::time::Duration;
/// use varve::SetOptions;
///
/// let only_if_missing = SetOptions::new().if_version(0).expire_in(Duration::from_secs(1_800));
/// # drop(only_if_missing);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SetOptions {
    pub(super) expiry: Option<Expiry>,
    pub(super) if_version: Option<u64>,
}

impl SetOptions {
    /// None: the record does not expire, or does as its collection's default says.
    #[must_use]
    pub fn new() -> Self {
        SetOptions::default()
    }

    /// The record expires after this time, which is above 0.
    #[must_use]
    pub fn expire_in(self, after: Duration) -> Self {
        self.expire(Expiry::In(after))
    }

    /// The record expires at this time. If it is past, the key is absent at once.
    #[must_use]
    pub fn expire_at(self, at: SystemTime) -> Self {
        self.expire(Expiry::At(at))
    }

    /// The record expires as given. [`Expiry::Never`] overrules a collection's default.
    #[must_use]
    pub fn expire(mut self, expiry: Expiry) -> Self {
        self.expiry = Some(expiry);
        self
    }

    /// Writes only if the key has this version, which `get_entry` returns, or if it is missing and this is 0. Otherwise
    /// the call fails with [`Error::Conflict`].
    #[must_use]
    pub fn if_version(mut self, version: u64) -> Self {
        self.if_version = Some(version);
        self
    }
}

/// A value and what is known of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Versioned<V> {
    /// The value: valid until the next call.
    pub value: V,
    /// Its version, which grows with every change.
    pub version: u64,
    /// Whether the version is uncertain: salvaged from a damaged file whose lost part may have changed the key.
    pub uncertain: bool,
    /// From when on the key is absent; none if it does not expire.
    pub expires: Option<SystemTime>,
}

impl<'a> Versioned<&'a [u8]> {
    pub(crate) fn of<F: File>(
        engine: &'a mut Engine<F>,
        keyspace: u32,
        key: &[u8],
    ) -> Result<Option<Self>, crate::error::Error> {
        let Some((version, uncertain)) = engine.version_and_certainty(keyspace, key)? else {
            return Ok(None);
        };
        let expiry = engine.expiry(keyspace, key)?.filter(|&seconds| seconds != 0);
        let expires = expiry.and_then(|at| UNIX_EPOCH.checked_add(Duration::from_secs(at.into())));
        let value = engine.get(keyspace, key)?;
        Ok(value.map(|value| Versioned { value, version, uncertain, expires }))
    }

    pub(super) fn map<V, E>(
        self,
        view: impl FnOnce(&'a [u8]) -> Result<V, E>,
    ) -> Result<Versioned<V>, E> {
        let Versioned { value, version, uncertain, expires } = self;
        Ok(Versioned { value: view(value)?, version, uncertain, expires })
    }
}

impl Store {
    /// Returns the value of a key with its version and its expiry.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("varve-doc-entry-{}", std::process::id()));
    /// # let mut store = varve::Store::open(folder.join("shop.varve"))?;
    /// use varve::SetOptions;
    ///
    /// store.set("price", "12")?;
    /// let found = store.get_entry("price")?.expect("it was set");
    /// assert_eq!((found.value, found.expires), (&b"12"[..], None));
    /// let unchanged = SetOptions::new().if_version(found.version);
    /// store.set_with("price", "13", unchanged)?;
    /// let error = store.set_with("price", "14", unchanged).unwrap_err();
    /// assert_eq!(error.code(), "VARVE_CONFLICT");
    /// # store.close()?;
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`get`](Store::get).
    pub fn get_entry(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Versioned<&[u8]>>, Error> {
        self.begin();
        let entry = self.engine.get_entry(KEYSPACE_RAW, key.as_ref());
        read(self.found.as_ref(), entry)
    }

    /// As [`set`](Store::set), with options: when the record expires, and which version the key must have. A key that
    /// expires may have up to 65,522 bytes.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("varve-doc-expiry-{}", std::process::id()));
    /// # let mut store = varve::Store::open(folder.join("shop.varve"))?;
    /// use std::time::{Duration, SystemTime};
    /// use varve::{Expiry, SetOptions};
    ///
    /// let half_an_hour = Duration::from_secs(1_800);
    /// store.set_with("session/7", "ann", SetOptions::new().expire_in(half_an_hour))?;
    /// assert!(store.touch("session/7", half_an_hour)?); // another time, the same value
    /// assert!(store.touch("session/7", Expiry::Never)?);
    /// store.set_with("offer", "-20 %", SetOptions::new().expire_at(SystemTime::UNIX_EPOCH))?;
    /// assert_eq!(store.get("offer")?, None);
    /// # store.close()?;
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`set`](Store::set); [`Error::Conflict`]; [`Error::BadArgument`] for an expiry that the file cannot hold.
    pub fn set_with(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: SetOptions,
    ) -> Result<u64, Error> {
        self.begin_write()?;
        let SetOptions { expiry, if_version } = options;
        let expiry = self.seconds(expiry.unwrap_or_default())?;
        let (key, value) = (key.as_ref(), value.as_ref());
        check_version(&mut self.engine.lock(), KEYSPACE_RAW, key, if_version)?;
        let done = self.engine.lock().set_with_expiry(KEYSPACE_RAW, key, value, expiry);
        self.with_loss_reason(done)
    }

    /// Changes when a record expires; its value stays. Returns whether the key exists. The record is written again, with
    /// a new version.
    ///
    /// # Errors
    /// As for [`set_with`](Store::set_with).
    pub fn touch(
        &mut self,
        key: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<bool, Error> {
        self.begin_write()?;
        let expiry = self.seconds(expiry.into())?;
        let key = key.as_ref();
        let done = self.engine.lock().touch(KEYSPACE_RAW, key, expiry);
        self.with_loss_reason(done)
    }

    /// Seconds since 1970, or 0 for never.
    pub(super) fn seconds(&mut self, expiry: Expiry) -> Result<u32, Error> {
        if expiry != Expiry::Never && !self.engine.look().expires() {
            // Nothing has expired in this store yet, so it does not know the time.
            self.update_clock();
        }
        expiry.seconds(self.engine.look().now())
    }
}

/// The time by the clock, in seconds since 1970.
pub(super) fn seconds_now() -> u32 {
    let now = system::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(now.as_secs()).unwrap_or(u32::MAX)
}

/// Fails unless a key has the version that a write expects.
pub(super) fn check_version<F: File>(
    engine: &mut Engine<F>,
    keyspace: u32,
    key: &[u8],
    expected: Option<u64>,
) -> Result<(), Error> {
    let Some(expected) = expected else { return Ok(()) };
    let found = engine.version(keyspace, key)?.unwrap_or(0);
    if found == expected { Ok(()) } else { Err(Error::Conflict { expected, found }) }
}
