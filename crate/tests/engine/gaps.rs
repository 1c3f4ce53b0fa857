//! The records of gaps in the numbers of frames: with them the log tells everything by itself.

use varve::{Options, Store};

use crate::support::crashes::without_checkpoints;
use crate::support::fault_file::FaultFile;
use crate::support::oracle::state_of;
use crate::support::pages::Pages;

fn opened(image: Pages, options: Options) -> Store<FaultFile> {
    Store::open(FaultFile::new(image), options).expect("opens")
}

/// Whether the log of an image tells the same with its checkpoint and without.
fn assert_log_replays_alone(image: Pages, options: Options, place: &str) {
    let bare = without_checkpoints(&image);
    let seen = state_of(&mut opened(image, options));
    match Store::open(FaultFile::new(bare), options) {
        Ok(mut store) => assert!(state_of(&mut store) == seen, "{place}"),
        Err(error) => panic!("{place}: {error}"),
    }
}

#[test]
fn crash_during_maintenance_replays_without_checkpoint() {
    let options = Options { segment_log2: 12, ..Options::default() };
    // A segment that only the checkpoint to come would have done without stands in front of a gap, the record of
    // which has been deleted; torture came by it, with seed 669512676248079.
    let image = include_bytes!("images/died-between-gaps-and-checkpoint.bin");
    let image = Pages::from(&image[..]);
    assert_log_replays_alone(image.clone(), options, "as it died");
    let file = FaultFile::new(image);
    let mut store = Store::open(file.clone(), options).expect("opens");
    let mut slices = 0;
    while store.maintain(slices == 0).expect("maintained") {
        slices += 1;
        assert_log_replays_alone(file.pages(), options, &format!("behind slice {slices}"));
    }
    assert!(slices > 3, "{slices} slices");
}
