/**
 * The exports of the wasm module: the only list of them in TypeScript. Integers are passed as arguments; the other side
 * of the boundary is `crate/src/wasm`.
 */

import { noMemoryToOpen } from "./error-codes.js";
import { Host } from "./wasm-imports.js";

/** See the functions of the same names in `crate/src/wasm` for their arguments and answers. */
export interface Exports {
  readonly memory: WebAssembly.Memory;
  scratch(): number;
  result(): number;
  open(
    segmentLog2: number,
    flags: number,
    memory: number,
    factor: number,
    ...entropy: number[]
  ): number;
  find(keyspace: number, keyLength: number): number;
  expect_at(position: number): void;
  find_many(keyspace: number, count: number): void;
  reserve(memory: number): void;
  set(keyspace: number, keyLength: number, length: number): number;
  set_queued(length: number): number;
  queue_capacity(): number;
  set_begin(keyspace: number, keyLength: number, capacity: number): number;
  remove(keyspace: number, keyLength: number): number;
  count(keyspace: number): number;
  set_now(seconds: number): number;
  delete_due(): number;
  expires(): number;
  expire_next(seconds: number): void;
  touch(keyspace: number, keyLength: number, seconds: number): number;
  sort_part(): number;
  count_range(keyspace: number, lower: number, upper: number, flags: number): number;
  clear(keyspace: number, lower: number, upper: number, flags: number, limit: number): number;
  scan(keyspace: number, lower: number, upper: number, flags: number, maxKeys: number): number;
  version(keyspace: number, keyLength: number): number;
  pin(keyspace: number, keyLength: number): number;
  pinned(handle: number): number;
  unpin(handle: number): void;
  snapshot(): number;
  at(cursor: number, before: number): number;
  end_snapshot(number: number): void;
  update_begin(keyspace: number, keyLength: number): number;
  update_resize(capacity: number): number;
  finish(length: number): number;
  abort(): void;
  savepoint(): number;
  release(): number;
  rollback(): void;
  commit(): number;
  flush(): number;
  witness(): number;
  close(): number;
  end_turn(): number;
  maintain(all: number): number;
  pending(): number;
  unflushed(): number;
  unwitnessed(): number;
  verify(unit: number, part: number): number;
  note(client: number, timeMs: number, length: number): number;
  walk_begin(since: number, until: number, back: number): number;
  walk_next(handle: number): number;
  walk_value(handle: number, at: number): number;
  walk_end(handle: number): void;
  walk_current(handle: number, at: number): number;
  last_commit(): number;
  since(cursor: number): number;
  retain(length: number, cursor: number): number;
  retained_bytes(): number;
  pack(cursor: number): number;
  packing(end: number): number;
  stats(): void;
  recovery(): void;
  error_report(): void;
}

/** A wasm instance that has no file yet. */
export interface BlankInstance {
  readonly host: Host;
  readonly wasm: Exports;
}

/** @throws OutOfMemoryError if there is no memory or address space for one more database */
export async function instantiate(
  name: string,
  module: WebAssembly.Module,
): Promise<BlankInstance> {
  const host = new Host();
  const instance = await WebAssembly.instantiate(module, { host: host.imports() }).catch(
    (cause) => {
      throw cause instanceof RangeError ? noMemoryToOpen(name, cause) : cause;
    },
  );
  const wasm = instance.exports as unknown as Exports;
  host.memory = wasm.memory;
  return { host, wasm };
}
