// Miri over the tests of the engine that it can run in a few minutes: it interprets, a thousand times
// slower than the machine, and finds what unsafe code does wrong. There are two such blocks in what
// runs natively (crate/src/aligned_buf.rs), those of the wasm's allocator, which its tests run, and those of
// what reads headers where they lie.

import { ask, entry, must, Problem } from "./lib.mjs";

/**
 * Too long for an interpreter: they try every bit, or thousands of keys in what is safe code down to its
 * last line, where Miri has nothing to find.
 */
const LONG = [
  "superblock_detects_every_bit_flip",
  "sorted_vec_map_matches",
  "similar_keys_hash",
  "table_matches_map",
  "bulk_appended_entries",
  "ordered_index_matches",
  "ascending_inserts_fill",
  "bulk_added_keys",
  "radix_sort_is_stable",
  "rollback_restores_overwritten_keys",
];

/** Each goes through all of it: writing, reading back, reopening, callbacks that fail. */
const STORIES = [
  "grausdb_regressions::failing_callback_changes_nothing",
  "grausdb_regressions::panicking_callback_changes_nothing",
  "grausdb_regressions::overwritten_and_deleted_values_never_reappear",
  "crash::close_flushes_its_writes",
];

entry(async () => {
  if (ask("cargo", ["+nightly", "miri", "--version"]) === undefined) {
    throw new Problem(
      "Miri is a part of nightly toolchains: rustup toolchain install nightly --component miri,rust-src",
    );
  }
  const miri = ["+nightly", "miri", "test", "--quiet", "-p", "varve"];
  await must("cargo", [...miri, "--lib", "--", ...LONG.flatMap((name) => ["--skip", name])]);
  await must("cargo", [...miri, "--test", "engine", "--", ...STORIES]);
});
