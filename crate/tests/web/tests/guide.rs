//! The programs of docs/rust-web.md, in a dedicated worker.
#![cfg(target_arch = "wasm32")]

use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_dedicated_worker);

const GUIDE: &str = include_str!("../../../../docs/rust-web.md");

mod visits {
    include!("../guide/visits.rs");
}

mod page {
    include!("../guide/page.rs");
}

#[wasm_bindgen_test]
async fn the_programs_of_the_guide_count_visits() -> Result<(), varve::Error> {
    for program in [include_str!("../guide/visits.rs"), include_str!("../guide/page.rs")] {
        assert!(GUIDE.contains(program), "docs/rust-web.md has another program than:\n{program}");
    }
    assert_eq!(page::visits_so_far().await?, 0);
    assert_eq!(visits::count_visit().await?, 1);
    assert_eq!(visits::count_visit().await?, 2);
    assert_eq!(page::visits_so_far().await?, 2);
    Ok(())
}
