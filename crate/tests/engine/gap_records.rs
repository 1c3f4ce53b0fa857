//! Gap records: they let the log be replayed without a checkpoint.

use varve::engine::{Options, Store};

use crate::support::crash_programs::without_checkpoints;
use crate::support::fault_file::FaultFile;
use crate::support::oracle::state_of;
use crate::support::pages::Pages;

fn opened(image: Pages, options: Options) -> Store<FaultFile> {
    Store::open(FaultFile::new(image), options).expect("opens")
}

/// Checks that the log of an image has the same content with its checkpoint and without.
fn assert_log_replays_alone(image: Pages, options: Options, context: &str) {
    let bare = without_checkpoints(&image);
    let seen = state_of(&mut opened(image, options));
    match Store::open(FaultFile::new(bare), options) {
        Ok(mut store) => assert!(state_of(&mut store) == seen, "{context}"),
        Err(error) => panic!("{context}: {error}"),
    }
}

#[test]
fn crash_during_maintenance_replays_without_checkpoint() {
    let options = Options { segment_log2: 12, ..Options::default() };
    // A segment that only the next checkpoint would have made unnecessary comes before a gap whose
    // record was deleted. The torture test found this with seed 669512676248079.
    let image = include_bytes!("images/died-between-gaps-and-checkpoint.bin");
    let image = Pages::from(&image[..]);
    assert_log_replays_alone(image.clone(), options, "as the crash left it");
    let file = FaultFile::new(image);
    let mut store = Store::open(file.clone(), options).expect("opens");
    let mut steps = 0;
    while store.maintain(steps == 0).expect("maintained") {
        steps += 1;
        assert_log_replays_alone(file.pages(), options, &format!("after step {steps}"));
    }
    assert!(steps > 3, "{steps} slices");
}
