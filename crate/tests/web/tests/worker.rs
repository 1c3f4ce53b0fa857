//! In a dedicated worker.
#![cfg(target_arch = "wasm32")]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use js_sys::{Function, Promise};
use musli_zerocopy::{Ref, ZeroCopy};
use varve::schema::Record;
use varve::web::{
    Batch, ChangeKind, CollectionOptions, Error, Expiry, IndexBy, KeyRange, Loss, OpenOptions,
    Reader, SetOptions, Store, load,
};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};
use web_sys::{
    FileSystemDirectoryHandle, FileSystemFileHandle, FileSystemGetFileOptions,
    FileSystemSyncAccessHandle, WorkerGlobalScope,
};

wasm_bindgen_test_configure!(run_in_dedicated_worker);

const READ_ONLY: fn() -> OpenOptions = || OpenOptions { read_only: true, ..OpenOptions::default() };

/// Lets microtasks run, and nothing else.
async fn microtask() {
    JsFuture::from(Promise::resolve(&JsValue::NULL)).await.expect("it is resolved");
}

async fn sleep(ms: u32) {
    let wait =
        Function::new_no_args(&format!("return new Promise((done) => setTimeout(done, {ms}))"));
    let waiting: Promise = wait.call0(&JsValue::NULL).expect("it runs").unchecked_into();
    JsFuture::from(waiting).await.expect("it is resolved");
}

async fn root() -> FileSystemDirectoryHandle {
    let scope: WorkerGlobalScope = js_sys::global().unchecked_into();
    let root = JsFuture::from(scope.navigator().storage().get_directory()).await;
    root.expect("there is storage").unchecked_into()
}

async fn file_handle(file: &str, create: bool) -> Result<FileSystemFileHandle, JsValue> {
    let options = FileSystemGetFileOptions::new();
    options.set_create(create);
    let found = root().await.get_file_handle_with_options(file, &options);
    Ok(JsFuture::from(found).await?.unchecked_into())
}

async fn access(file: &str) -> FileSystemSyncAccessHandle {
    let entry = file_handle(file, true).await.expect("it can be created");
    let opened = JsFuture::from(entry.create_sync_access_handle()).await;
    opened.expect("no one has it open").unchecked_into()
}

async fn write_file(file: &str, bytes: &[u8]) {
    let handle = access(file).await;
    handle.truncate_with_u32(0).expect("it is open");
    handle.write_with_u8_array(bytes).expect("there is space");
    handle.close();
}

async fn read_file(file: &str) -> Vec<u8> {
    let handle = access(file).await;
    let mut bytes = vec![0; handle.get_size().expect("it is open") as usize];
    handle.read_with_u8_array(&mut bytes).expect("it is open");
    handle.close();
    bytes
}

/// The value of a key in the file, while a store may have it open.
async fn committed(name: &str, key: &str) -> Result<Option<Vec<u8>>, Error> {
    let bytes = load(name).await?.expect("it is there");
    Ok(Reader::from_bytes(&bytes)?.get(key).map(<[u8]>::to_vec))
}

/// Replaces a method of a class in this realm until it is dropped.
struct Replaced {
    restore: Function,
}

impl Replaced {
    fn new(class: &str, method: &str, body: &str) -> Self {
        let replace = Function::new_no_args(&format!(
            "const prototype = {class}.prototype; const original = prototype.{method};
            prototype.{method} = function () {{ {body} }};
            return () => {{ prototype.{method} = original; }};"
        ));
        Replaced { restore: replace.call0(&JsValue::NULL).expect("it runs").unchecked_into() }
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        self.restore.call0(&JsValue::NULL).expect("it runs");
    }
}

#[wasm_bindgen_test]
async fn what_was_set_is_there_after_closing_and_opening() -> Result<(), Error> {
    let mut store = Store::open("first").await?;
    store.set("greeting", "hello")?;
    assert_eq!(store.get("greeting")?, Some(&b"hello"[..]));
    store.close().await?;
    let mut store = Store::open("first").await?;
    assert_eq!(store.get("greeting")?, Some(&b"hello"[..]));
    store.close().await
}

#[wasm_bindgen_test]
async fn a_dropped_store_has_committed_and_released_its_file() -> Result<(), Error> {
    let mut store = Store::open("dropped").await?;
    store.set("a", "1")?;
    drop(store);
    let mut store = Store::open("dropped").await?;
    assert_eq!(store.get("a")?, Some(&b"1"[..]));
    assert!(store.recovery().clean, "it was closed");
    store.close().await
}

#[wasm_bindgen_test]
async fn the_writes_of_a_turn_are_one_commit_at_its_end() -> Result<(), Error> {
    let mut store = Store::open("turns").await?;
    let before = store.stats().next_frame;
    for key in ["a", "b", "c"] {
        store.set(key, "1")?;
    }
    assert!(store.stats().pending_bytes > 0, "the turn goes on");
    microtask().await;
    assert_eq!(store.stats().pending_bytes, 0);
    assert_eq!(store.stats().next_frame, before + 1);
    // The file has it, although the store is open and has closed nothing.
    let bytes = load("turns").await?.expect("it is there");
    let reader = Reader::from_bytes(&bytes)?;
    assert_eq!((reader.get("c"), reader.count()), (Some(&b"1"[..]), 3));
    store.close().await
}

#[wasm_bindgen_test]
async fn what_was_committed_is_flushed_and_witnessed_within_two_seconds() -> Result<(), Error> {
    let mut store = Store::open("flushes").await?;
    store.set("a", "1")?;
    microtask().await;
    let committed = store.stats().next_frame;
    sleep(2_000).await;
    // The witness of a flush is a frame of its own.
    assert_eq!(store.stats().next_frame, committed + 1);
    store.close().await
}

#[wasm_bindgen_test]
async fn a_value_stays_as_it_is_while_its_turn_is_committed_and_flushed() -> Result<(), Error> {
    let options = OpenOptions { memory: 4 << 20, ..OpenOptions::default() };
    let mut store = Store::open_with("in-use", options).await?;
    let value = vec![7; 300_000];
    for at in 0..40_u32 {
        store.set(at.to_le_bytes(), &value)?;
    }
    let last = store.get(3_u32.to_le_bytes())?.expect("it was set");
    sleep(1_300).await;
    assert!(last == value, "it was changed");
    store.clear(KeyRange::all())?;
    store.close().await
}

#[wasm_bindgen_test]
async fn what_is_borrowed_across_an_await_stays_and_the_writes_of_its_turn_are_committed()
-> Result<(), Error> {
    let mut store = Store::open("borrowed").await?;
    store.set("a", "1")?;
    store.set("b", "1")?;
    let value = store.get("a")?.expect("it was set");
    microtask().await;
    assert_eq!(committed("borrowed", "b").await?, Some(b"1".to_vec()));
    assert_eq!(value, b"1");

    store.set("a", "2")?;
    let mut entries = store.entries(KeyRange::all())?;
    let first = entries.next_pair()?.expect("there are two");
    microtask().await;
    assert_eq!(committed("borrowed", "a").await?, Some(b"2".to_vec()));
    assert_eq!(first, (&b"a"[..], &b"2"[..]));
    assert_eq!(entries.next_pair()?, Some((&b"b"[..], &b"1"[..])));
    assert_eq!(entries.next_pair()?, None);

    let mut products = store.collection::<Product>("products")?;
    products.set("yeezy", |parts| Product { stock: 7, name: parts.str("Yeezy") })?;
    let yeezy = products.get("yeezy")?.expect("it was set");
    microtask().await;
    let recorded = load("borrowed").await?.expect("it is there");
    let found = Reader::from_bytes(&recorded)?.collection::<Product>("products")?.is_some();
    assert!(found, "the collection is not committed");
    assert_eq!((yeezy.stock, yeezy.load(yeezy.name)?), (7, "Yeezy"));

    store.set("a", "3")?;
    let recovery = store.recovery();
    microtask().await;
    assert_eq!(committed("borrowed", "a").await?, Some(b"3".to_vec()));
    assert!(recovery.clean, "it was new");
    store.close().await
}

#[wasm_bindgen_test]
async fn a_transaction_that_fails_writes_nothing() -> Result<(), Error> {
    let mut store = Store::open("transactions").await?;
    store.set("stock", "5")?;
    let failed: Result<(), Error> = store.transaction(|store| {
        store.set("stock", "4")?;
        store.delete("missing")?;
        Err(Error::SnapshotClosed)
    });
    assert!(matches!(failed, Err(Error::SnapshotClosed)));
    assert_eq!(store.get("stock")?, Some(&b"5"[..]));
    let sold: Result<bool, Error> = store
        .transaction(|store| store.update_if("stock", |old| old == b"5", |value| value[0] -= 1));
    assert!(sold?);
    assert_eq!(store.get("stock")?, Some(&b"4"[..]));
    store.close().await
}

#[derive(Clone, Copy, ZeroCopy, Record)]
#[repr(C)]
struct Product {
    stock: u16,
    name: Ref<str>,
}

#[wasm_bindgen_test]
async fn records_are_changed_in_their_collection_and_found_in_order() -> Result<(), Error> {
    let mut store = Store::open("records").await?;
    let mut products = store.collection::<Product>("products")?;
    for (key, stock) in [("yeezy", 20_000), ("air", 7)] {
        products.set(key, |parts| Product { stock, name: parts.str(key) })?;
    }
    assert!(products.update_if(
        "yeezy",
        |product| product.stock > 0,
        |product| product.stock -= 1
    )?);
    store.close().await?;

    let mut store = Store::open("records").await?;
    let mut products = store.collection::<Product>("products")?;
    let found = products.get("yeezy")?.expect("it was set");
    assert_eq!((found.stock, found.load(found.name)?), (19_999, "yeezy"));
    let mut found = Vec::new();
    let mut entries = products.entries(KeyRange::all())?;
    while let Some(entry) = entries.next_entry()? {
        found.push(entry.value.stock);
    }
    assert_eq!(found, [7, 19_999]);
    store.close().await
}

#[wasm_bindgen_test]
async fn iterators_give_bytes_and_records_of_the_programs_own_from_both_ends() -> Result<(), Error>
{
    let mut store = Store::open("iterators").await?;
    let name = |n: u32| format!("{n:04}, and more than fits into a short slice");
    for n in 0..300 {
        store.set(name(n), n.to_le_bytes())?;
    }
    let mut entries = store.entries("0010".."0290")?;
    let (first, value) = entries.next().expect("there are many")?;
    let (last, _) = entries.next_back().expect("there are many")?;
    microtask().await;
    assert_eq!(entries.count(), 278);
    store.clear(..)?;
    assert_eq!(
        (first, last, value),
        (name(10).into(), name(289).into(), 10_u32.to_le_bytes().into())
    );
    assert_eq!(store.count(..)?, 0);
    store.set("a", "1")?;
    let kept = store.get_slice("a")?;
    store.set("a", "2")?;
    assert_eq!(kept.expect("it was set"), "1");
    assert_eq!(store.keys(..="a")?.collect::<Result<Vec<_>, _>>()?, ["a"]);

    let mut products = store.collection::<Product>("products")?;
    for (key, stock) in [("a", 1), ("b", 2), ("c", 3)] {
        products.set(key, |parts| Product { stock, name: parts.str(key) })?;
    }
    let entries: Vec<_> = products.entries("b"..)?.rev().collect::<Result<_, _>>()?;
    products.clear(..)?;
    assert_eq!(entries[0].key::<String>()?, "c");
    let view = entries[1].value.view();
    assert_eq!((view.stock, view.load(view.name)?), (2, "b"));
    store.close().await
}

#[wasm_bindgen_test]
async fn batches_updates_indexes_and_json_lines_are_those_of_native_programs() -> Result<(), Error>
{
    let mut store = Store::open("parity").await?;
    let mut batch = Batch::new();
    batch.set("a", "1").set("b", "2").delete("a");
    store.write(&batch)?;
    assert!(store.replace_if("b", |_| true, |b| [b, b"345"].concat())?);
    assert!(store.upsert_if("c", [1], |_| true, |c| c[0] += 1)?);
    microtask().await;
    assert_eq!(committed("parity", "b").await?, Some(b"2345".to_vec()));
    assert_eq!(committed("parity", "c").await?, Some(vec![2]));
    let options = CollectionOptions::new().index("byStock", IndexBy::desc("stock"));
    let mut products = store.collection_with::<Product>("products", &options)?;
    let lines = "{\"key\":\"a\",\"value\":{\"stock\":1,\"name\":\"A\"}}\n\
                 {\"key\":\"b\",\"value\":{\"stock\":2,\"name\":\"B\"}}\n";
    let mut reader = products.read_json_lines();
    reader.push(lines.as_bytes())?;
    assert_eq!(reader.finish()?, 2);
    assert_eq!(products.json_lines(..)?.collect::<Result<String, _>>()?, lines);
    let first = products.entries_by("byStock", ..)?.next().expect("there are two")?;
    assert_eq!(first.key::<String>()?, "b");
    store.close().await
}

#[wasm_bindgen_test]
async fn the_clock_of_the_browser_ends_records_that_expire() -> Result<(), Error> {
    let mut store = Store::open("expiry").await?;
    let a_second = SetOptions::new().expire_in(Duration::from_secs(1));
    store.set_with("session", "ann", a_second)?;
    store.set_with("token", "x", SetOptions::new().expire_in(Duration::from_secs(3_600)))?;
    assert_eq!(store.get("session")?, Some(&b"ann"[..]));
    sleep(2_100).await;
    assert_eq!(store.get("session")?, None);
    assert_eq!(store.get("token")?, Some(&b"x"[..]));
    assert!(store.touch("token", Expiry::Never)?);
    store.close().await
}

#[wasm_bindgen_test]
async fn snapshots_notes_and_changes_are_those_of_native_programs() -> Result<(), Error> {
    let mut store = Store::open("history").await?;
    store.set("price", "12")?;
    let snapshot = store.snapshot()?;
    let cursor = store.last_commit();
    let noted: Result<(), Error> =
        store.transaction_with_note("price rise", |store| store.set("price", "13").map(drop));
    noted?;
    store.commit()?;
    assert_eq!(store.at(&snapshot)?.get("price")?, Some(&b"12"[..]));
    drop(snapshot);
    let mut changes = store.changes(cursor, None)?;
    let change = changes.next()?.expect("the price has changed");
    assert_eq!((change.key, change.kind), (&b"price"[..], ChangeKind::Set));
    assert!(changes.next()?.is_none());
    let mut log = store.log(varve::LogRange::all());
    let mut notes = Vec::new();
    while let Some(transaction) = log.next()? {
        notes.push((transaction.note.clone(), transaction.time.is_some()));
    }
    assert!(notes.contains(&(Some("price rise".into()), true)), "{notes:?}");
    store.close().await
}

#[wasm_bindgen_test]
async fn a_database_that_is_open_is_busy() -> Result<(), Error> {
    let store = Store::open("busy").await?;
    let error = Store::open("busy").await.expect_err("it is open");
    assert_eq!(error.code(), "VARVE_DATABASE_BUSY");
    assert!(error.to_string().contains("open in another worker or tab"), "{error}");
    store.close().await?;
    Store::open("busy").await?.close().await
}

#[wasm_bindgen_test]
async fn reading_only_changes_and_creates_nothing() -> Result<(), Error> {
    let error = Store::open_with("read", READ_ONLY()).await.expect_err("it is missing");
    assert_eq!(error.code(), "VARVE_DATABASE_NOT_FOUND");
    assert!(file_handle("read.varve", false).await.is_err(), "it was created");
    let mut store = Store::open("read").await?;
    store.set("a", "1")?;
    store.close().await?;
    let before = read_file("read.varve").await;
    let mut store = Store::open_with("read", READ_ONLY()).await?;
    assert_eq!(store.get("a")?, Some(&b"1"[..]));
    assert_eq!(store.set("a", "2").expect_err("it is read-only").code(), "VARVE_READ_ONLY");
    store.close().await?;
    assert!(read_file("read.varve").await == before, "it was changed");
    Ok(())
}

#[wasm_bindgen_test]
async fn files_have_the_names_that_the_package_gives_them() -> Result<(), Error> {
    let names = [
        ("shop", "shop.varve"),
        ("Shop 1", "%53hop%201.varve"),
        ("größe", "gr%C3%B6%C3%9Fe.varve"),
        (".a.b", "%2Ea.b.varve"),
        ("%2E%2Fdata%2Fshop.varve", "%2E%2Fdata%2Fshop.varve"),
    ];
    for (name, file) in names {
        assert!(file_handle(file, false).await.is_err(), "{file} is there");
        Store::open(name).await?.close().await?;
        assert!(file_handle(file, false).await.is_ok(), "{file} is missing");
    }
    for name in ["", "a/b", "a\\b", "..", "shop.VARVE", "%2e.varve", &"ö".repeat(34)] {
        let error = Store::open(name).await.expect_err(name);
        assert_eq!(error.code(), "VARVE_BAD_ARGUMENT", "{name}");
    }
    Ok(())
}

#[wasm_bindgen_test]
async fn folders_are_those_of_the_package() -> Result<(), Error> {
    let mut store = Store::open_in("Stores/eu", "shop", OpenOptions::default()).await?;
    store.set("a", "1")?;
    store.close().await?;
    let folder: FileSystemDirectoryHandle =
        JsFuture::from(root().await.get_directory_handle("%53tores"))
            .await
            .unwrap()
            .unchecked_into();
    let folder: FileSystemDirectoryHandle =
        JsFuture::from(folder.get_directory_handle("eu")).await.unwrap().unchecked_into();
    assert!(JsFuture::from(folder.get_file_handle("shop.varve")).await.is_ok());
    for wrong in ["/", "a/", "../a", "a//b"] {
        let opened = Store::open_in(wrong, "shop", OpenOptions::default()).await;
        assert_eq!(opened.expect_err(wrong).code(), "VARVE_BAD_ARGUMENT");
    }
    Ok(())
}

#[wasm_bindgen_test]
async fn files_that_are_no_database_are_refused_and_stay_as_they_are() {
    let cases: [(&[u8], &str, &str); 3] = [
        (&[1; 20_000], "VARVE_UNSUPPORTED_FORMAT", "not a varve database"),
        (b"filling varve\r\n\x1a", "VARVE_STORAGE_UNAVAILABLE", "was being filled"),
        (b"changes varve\r\n\x1a", "VARVE_STORAGE_UNAVAILABLE", "was being replaced"),
    ];
    for (bytes, code, text) in cases {
        write_file("junk.varve", bytes).await;
        let error = Store::open("junk").await.expect_err(text);
        assert_eq!(error.code(), code);
        assert!(error.to_string().contains(text), "{error}");
        assert!(read_file("junk.varve").await == bytes, "it was changed");
    }
}

#[wasm_bindgen_test]
async fn what_a_crash_left_of_a_replacement_is_removed() -> Result<(), Error> {
    write_file("left.varve.next", b"something").await;
    Store::open("left").await?.close().await?;
    assert!(file_handle("left.varve.next", false).await.is_err(), "it is still there");
    Ok(())
}

#[wasm_bindgen_test]
async fn the_error_of_a_commit_that_no_call_made_is_reported_and_returned() -> Result<(), Error> {
    let mut store = Store::open("full").await?;
    store.set("a", "1")?;
    microtask().await;
    let reported = Rc::new(RefCell::new(Vec::new()));
    let list = Rc::clone(&reported);
    store.on_error(move |error| list.borrow_mut().push(error.code()));
    {
        let full = "throw new DOMException('full', 'QuotaExceededError')";
        let _full = Replaced::new("FileSystemSyncAccessHandle", "write", full);
        store.set("b", "1")?;
        microtask().await;
        assert_eq!(*reported.borrow(), ["VARVE_QUOTA_EXCEEDED"]);
    }
    assert_eq!(store.get("b")?, None, "its commit has failed");
    let error = store.set("c", "1").expect_err("the program does not know yet");
    assert_eq!(error.code(), "VARVE_QUOTA_EXCEEDED");
    store.set("d", "1")?;
    microtask().await;
    assert_eq!(reported.borrow().len(), 1);
    store.close().await?;
    let mut store = Store::open("full").await?;
    let found: Vec<bool> =
        ["a", "b", "c", "d"].map(|key| store.has(key)).into_iter().collect::<Result<_, _>>()?;
    assert_eq!(found, [true, false, false, true]);
    store.close().await
}

#[wasm_bindgen_test]
async fn a_file_that_the_browser_has_removed_is_lost() -> Result<(), Error> {
    let mut store = Store::open("lost").await?;
    store.set("a", "1")?;
    store.flushed().await?;
    let removed = "return Promise.reject(new DOMException('removed', 'NotFoundError'))";
    let removed = Replaced::new("FileSystemFileHandle", "getFile", removed);
    store.set("a", "2")?;
    let error = store.flushed().await.expect_err("it was removed");
    assert!(matches!(error, Error::FileLost { reason: Loss::Removed, .. }), "{error}");
    store.set("a", "3")?;
    assert_eq!(store.commit().expect_err("it is lost").code(), "VARVE_FILE_LOST");
    assert_eq!(store.get("a")?, Some(&b"2"[..]), "what is in memory can still be read");
    assert_eq!(store.close().await.expect_err("it is lost").code(), "VARVE_FILE_LOST");
    drop(removed);
    Ok(())
}

#[wasm_bindgen_test]
async fn a_damaged_record_is_no_value() -> Result<(), Error> {
    let mut store = Store::open("damage").await?;
    for at in 0..3_000_u32 {
        store.set(at.to_le_bytes(), [9; 1_000])?;
    }
    store.close().await?;
    let mut bytes = read_file("damage.varve").await;
    for byte in &mut bytes[1_500_000..1_600_000] {
        *byte ^= 0x55;
    }
    write_file("damage.varve", &bytes).await;
    let mut store = Store::open("damage").await?;
    // The records were not needed for opening.
    let read = (0..3_000_u32).try_for_each(|at| store.get(at.to_le_bytes()).map(drop));
    assert_eq!(read.expect_err("some are damaged").code(), "VARVE_CORRUPTION");
    store.close().await
}

/// Runs a function that throws an exception. That leaves Rust functions without dropping what they have, as a panic in
/// wasm does.
fn abort(task: impl FnOnce() + 'static) {
    let task: Function = Closure::once_into_js(task).unchecked_into();
    task.call0(&JsValue::NULL).expect_err("it throws");
}

#[wasm_bindgen_test]
async fn of_a_transaction_that_was_aborted_without_cleaning_up_nothing_is_committed()
-> Result<(), Error> {
    let mut store = Store::open("aborted").await?;
    store.set("a", "1")?;
    microtask().await;
    abort(move || {
        store.set("b", "1").expect("it is open");
        let ended: Result<(), Error> = store.transaction(|store| {
            store.set("a", "2")?;
            wasm_bindgen::throw_str("stop")
        });
        drop(ended);
    });
    microtask().await;
    assert_eq!(committed("aborted", "a").await?, Some(b"1".to_vec()));
    assert_eq!(committed("aborted", "b").await?, Some(b"1".to_vec()));
    Ok(())
}

#[wasm_bindgen_test]
async fn a_change_that_was_aborted_half_way_is_not_made_and_writes_before_it_are_committed()
-> Result<(), Error> {
    let mut store = Store::open("half-changed").await?;
    store.set("stock", [5; 100])?;
    microtask().await;
    abort(move || {
        store.set("a", "1").expect("it is open");
        let change = |value: &mut [u8]| {
            value[..50].fill(4);
            wasm_bindgen::throw_str("stop")
        };
        drop(store.update_if("stock", |_| true, change));
    });
    microtask().await;
    assert_eq!(committed("half-changed", "a").await?, Some(b"1".to_vec()));
    assert_eq!(committed("half-changed", "stock").await?, Some(vec![5; 100]));
    Ok(())
}
