/** The program that `soak.mjs` runs. */

import { check } from "./check.js";
import { abilitiesOf, commandFor, environmentsIn, type PlaceName } from "./environments.js";

/** The programs to run, and the place. */
export interface Order {
  seed: number;
  count: number;
  length?: number;
  place: PlaceName;
  build: string;
  wasm?: WebAssembly.Module;
  directory: string;
  say: (line: string) => void;
}

/** Runs programs one after the other. Returns the number of failures. */
export async function soak(order: Order): Promise<number> {
  const { seed, count, length, place, build, say } = order;
  const environments = environmentsIn(place, order);
  const start = performance.now();
  let operations = 0;
  let failed = 0;
  for (let one = seed; one < seed + count; one++) {
    const again = commandFor(one, place, build, length);
    try {
      const options = length === undefined ? { again } : { again, length };
      operations += await check(one, abilitiesOf(place), environments, options);
    } catch (error) {
      failed += 1;
      say((error as Error).message);
      say(String(((error as Error).cause as Error | undefined)?.stack));
    }
  }
  const seconds = (performance.now() - start) / 1_000;
  say(`${count} programs, ${operations} operations, ${failed} failed, ${seconds.toFixed(1)} s`);
  return failed;
}
