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
  "every_flipped_bit",
  "it_agrees_with",
  "keys_that_differ_little",
  "the_table_agrees",
  "what_was_collected_and_appended",
  "the_keys_agree_with",
  "keys_that_come_in_order",
  "keys_that_are_added_together",
  "numbers_are_sorted",
  "what_changed_is_taken_back",
];

/** Each goes through all of it: writing, reading back, reopening, callbacks that fail. */
const STORIES = [
  "graus::a_callback_that_fails_leaves_everything_as_it_was",
  "graus::a_callback_that_panics_leaves_everything_as_it_was",
  "graus::an_overwritten_value_and_a_deleted_key_never_come_back",
  "crash::what_a_close_wrote_is_flushed",
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
