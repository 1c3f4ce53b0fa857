/** The environments in which programs run: a storage, and how it is opened. */

import { file, memory, type OpenOptions, open, opfs, type Storage } from "varve";
import { FaultyStorage } from "./faulty.js";
import type { Environment } from "./machine.js";
import type { Abilities } from "./program.js";

export type PlaceName = "memory" | "file" | "faulty" | "opfs";

/** The abilities of a place, which programs may use. */
export function abilitiesOf(place: PlaceName): Abilities {
  return { fails: place === "faulty", slowFlush: place === "file" || place === "opfs" };
}

/** Makes isolated environments in a place. */
export function environmentsIn(
  place: PlaceName,
  { directory, wasm }: { directory?: string | undefined; wasm?: WebAssembly.Module | undefined },
): () => Environment {
  const options: OpenOptions = wasm === undefined ? {} : { wasm };
  const shared = storageFor(place, directory);
  return () => ({
    storage: shared ?? new FaultyStorage(),
    open: (name, more) => open(name, { ...options, ...more }),
  });
}

function storageFor(place: PlaceName, directory: string | undefined): Storage | undefined {
  if (place === "memory") return memory();
  if (place === "file") return file(directory);
  return place === "opfs" ? opfs("model") : undefined;
}

/** The command that repeats the program of a seed. */
export function commandFor(seed: number, place: PlaceName, build: string, length?: number): string {
  // Where there are no commands, the program runs in memory, with mostly the same results.
  const where = place === "opfs" ? "memory" : place;
  const some = length === undefined ? "" : ` --length ${length}`;
  return `node tests/model/soak.mjs --seed ${seed} --place ${where} --build ${build}${some}`;
}
