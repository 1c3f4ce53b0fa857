//! Missing, damaged and modified chunks.

use varve::engine::format::KEYSPACE_ENGINE;
use varve::engine::format::system_records::ChunksRef;
use varve::engine::{Error, OnDamage, Options, Store};

use super::{Shared, close, open, options, store_with_chunked_value};
use crate::support::oracle::{check_chunks, chunked_values, state_of};
use crate::support::rng::bytes_of;

/// The key of a chunk of the value that was written first.
fn chunk_key(store: &mut Store<Shared>, chunk: u32) -> [u8; 16] {
    let id = *chunked_values(store).keys().next().expect("a chunk exists");
    ChunksRef { id, ..ChunksRef::default() }.key(chunk)
}

#[test]
fn value_with_missing_or_resized_chunk_is_damaged() {
    type Damage<'a> = &'a dyn Fn(&mut Store<Shared>, &[u8]);
    let damages: [(&str, Damage<'_>); 5] = [
        ("gone", &|store, key| assert_eq!(store.delete(KEYSPACE_ENGINE, key), Ok(true))),
        ("shorter", &|store, key| drop(store.set(KEYSPACE_ENGINE, key, &[1; 8]))),
        ("empty", &|store, key| drop(store.set(KEYSPACE_ENGINE, key, b""))),
        ("longer", &|store, key| drop(store.set(KEYSPACE_ENGINE, key, &[1; 900]))),
        ("another chunked value", &|store, key| drop(store.set(KEYSPACE_ENGINE, key, &[1; 1_100]))),
    ];
    for (what, damage) in damages {
        for chunk in 0..4 {
            let file = Shared::default();
            let mut store = store_with_chunked_value(&file, options(12));
            // Values in memory would not show the change.
            store = open(
                &Shared::of({
                    close(store);
                    file.image()
                }),
                options(12),
            );
            let key = chunk_key(&mut store, chunk);
            damage(&mut store, &key);
            store.commit().expect("commit");
            let is_damaged = |store: &mut Store<Shared>| {
                assert!(
                    matches!(store.get(0, b"large"), Err(Error::Corruption(_))),
                    "{what}, {chunk}"
                );
                let update = store.update_if(0, b"large", |_| true, |_| Ok(None));
                assert!(matches!(update, Err(Error::Corruption(_))), "{what}, {chunk}");
                assert!(
                    matches!(store.pin(0, b"large"), Err(Error::Corruption(_))),
                    "{what}, {chunk}"
                );
                assert_eq!(store.has(0, b"large"), Ok(true));
                assert_eq!(
                    store.get(0, b"other"),
                    Ok(Some(&*bytes_of(8, 2_100))),
                    "{what}, {chunk}"
                );
            };
            is_damaged(&mut store);
            let damaged = Shared::of(store.into_file().image());
            is_damaged(&mut open(&damaged, options(12)));
            // It can be replaced and deleted, and leaves nothing behind.
            for deletes in [false, true] {
                let file = Shared::of(damaged.image());
                let mut store = open(&file, options(12));
                match deletes {
                    true => assert_eq!(store.delete(0, b"large"), Ok(true), "{what}, {chunk}"),
                    false => drop(store.set(0, b"large", &bytes_of(9, 1_200)).expect("set")),
                }
                let expected = (!deletes).then(|| bytes_of(9, 1_200));
                close(store);
                let mut store = open(&file, options(12));
                assert!(store.get(0, b"large") == Ok(expected.as_deref()), "{what}, {chunk}");
                let state = state_of(&mut store);
                if what != "another chunked value" {
                    check_chunks(&mut store, &state);
                }
            }
            // A salvage counts the key as lost, and removes the rest of the value.
            let mut store = open(&damaged, Options { on_damage: OnDamage::Salvage, ..options(12) });
            assert!(store.recovery().damaged && store.recovery().lost_keys == 1, "{what}, {chunk}");
            assert_eq!(store.get(0, b"large"), Ok(None));
            let state = state_of(&mut store);
            assert_eq!(state.len(), 2, "{what}, {chunk}");
            check_chunks(&mut store, &state);
        }
    }
}

#[test]
fn bit_flip_in_a_chunk_is_reported_for_its_value_only() {
    let file = Shared::default();
    let mut store = store_with_chunked_value(&file, options(12));
    close(store);
    store = open(&file, options(12));
    // The following is before the checkpoint, and after another segment.
    for i in 0..40_u8 {
        store.set(0, &[i], &bytes_of(i.into(), 300)).expect("set");
        store.commit().expect("commit");
    }
    close(store);
    let image = file.image();
    let value = bytes_of(7, 1_500);
    let mut reported = 0;
    for from in (0..1_500).step_by(50) {
        let part = &value[from..from + 16];
        let at = image.windows(16).position(|bytes| bytes == part);
        // The header of the second chunk is between the two chunks.
        let Some(at) = at else { continue };
        let mut damaged = image.clone();
        damaged[at + 5] ^= 4;
        let mut store = open(&Shared::of(damaged.clone()), options(12));
        assert!(store.recovery().checkpoint);
        assert!(matches!(store.get(0, b"large"), Err(Error::Corruption(_))), "byte {from}");
        assert!(store.get(0, b"other") == Ok(Some(&bytes_of(8, 2_100))), "byte {from}");
        let salvaged = Shared::of(damaged);
        let salvage = Options { on_damage: OnDamage::Salvage, ..options(12) };
        drop(open(&salvaged, salvage).into_file());
        let mut store = open(&salvaged, options(12));
        assert_eq!(store.get(0, b"large"), Ok(None), "byte {from}");
        assert_eq!(store.count(0), 42, "byte {from}");
        let state = state_of(&mut store);
        check_chunks(&mut store, &state);
        reported += 1;
    }
    assert!(reported > 20, "{reported} flips reported");
}
