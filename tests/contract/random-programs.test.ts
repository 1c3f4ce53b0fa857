/**
 * Random programs on the database and on its model, a map. A program is determined by its seed. A failing one is
 * shrunk to a few calls. See `tests/model/`; `node tests/model/soak.mjs --help` shows how to run more.
 */

import { assert, describe, test } from "vitest";
import { check } from "../model/check.js";
import { abilitiesOf, commandFor, environmentsIn, type PlaceName } from "../model/environments.js";
import { context } from "../support/context.js";

/** Number of operations of a test, and of tests per storage, in this run. */
interface Share {
  operations: number;
  tests: Readonly<Partial<Record<PlaceName, number>>>;
}

function shareOf(): Share {
  const { runtime, build, thorough, long } = context();
  // A long run has a million operations in all, an everyday one 120,000.
  if (thorough) {
    return { operations: long ? 100_000 : 12_000, tests: { memory: 4, file: 2, faulty: 4 } };
  }
  // The programs of the thorough run, which the engine executes alike in every runtime: they test how it is called.
  const operations = build === "debug" ? 4_000 : 8_000;
  if (runtime === "worker") return { operations, tests: { memory: 1, opfs: 1, faulty: 1 } };
  return { operations, tests: { memory: 1, file: 1, faulty: 1 } };
}

/** Each storage has its own seeds, the same ones in each run. */
const SEEDS: Readonly<Record<PlaceName, number>> = {
  memory: 100_000,
  file: 200_000,
  faulty: 300_000,
  opfs: 400_000,
};

/** Time for shrinking a failing program, in addition to running it. */
const TIMEOUT = 400_000;

describe("a model of random programs", () => {
  const { operations, tests } = shareOf();
  for (const [place, count] of Object.entries(tests) as [PlaceName, number][]) {
    for (let part = 0; part < count; part++) {
      const first = SEEDS[place] + part * 1_000;
      const what = place === "faulty" ? "with crashes and failures, " : `on ${place}, `;
      test(`${operations} operations, ${what}agree with a map: seeds from ${first}`, {
        timeout: TIMEOUT,
      }, async () => {
        const { build, wasm, directory } = context();
        const environments = environmentsIn(place, { directory, wasm });
        let done = 0;
        for (let seed = first; done < operations; seed++) {
          const again = commandFor(seed, place, build);
          done += await check(seed, abilitiesOf(place), environments, { again });
        }
        assert(done >= operations);
      });
    }
  }
});
