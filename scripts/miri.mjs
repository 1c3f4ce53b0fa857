// Miri over the engine's tests that finish in a few minutes: it interprets, a thousand times slower than the
// machine, and finds undefined behavior in unsafe code. That is in crate/src/aligned_buf.rs, in the wasm's
// allocator, and in the code that reads headers in place.

import { ask, entry, must, Problem } from "./lib.mjs";

/**
 * Too long for an interpreter: these try every bit, or thousands of keys in purely safe code, where Miri has
 * nothing to find.
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

/** Each of these covers writing, reading back, reopening, and callbacks that fail. */
const WHOLE_LIFECYCLES = [
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
  await must("cargo", [...miri, "--test", "engine", "--", ...WHOLE_LIFECYCLES]);
});
