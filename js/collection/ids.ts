/**
 * The ids that `push` assigns: never one that was in use before. The next id follows the highest key of the
 * collection. Before that key is deleted, a record in the engine's own keyspace is raised to it, in the same commit
 * (FORMAT.md, section 8). Ordinary pushes and deletions do not write it: deleting the oldest of a queue raises the
 * record to the newest id, once for all of them.
 */

import type { Engine } from "../engine/engine.js";
import { SYSTEM_KEYSPACE } from "../engine/wasm-memory.js";
import type { Session } from "../session/session.js";
import type { CollectionContext, CollectionSpace } from "./catalog.js";
import type { Keys } from "./keys.js";

type AnyForm<K> = CollectionContext<K, unknown, unknown, never, never>;

/** The range of all keys, from the last one on. */
const BACKWARDS = {
  lower: undefined,
  lowerExcluded: false,
  upper: undefined,
  upperIncluded: false,
  reverse: true,
};

/** The key of a collection's id record. */
export function idsKeyOf(name: string): string {
  return `ids/${name}`;
}

/** The highest id that was ever in use. */
export function usedUpTo(
  session: Session,
  { space, keys }: Pick<CollectionContext<number, unknown, unknown, never>, "space" | "keys">,
): number {
  const { engine } = session;
  const { upTo } = stored(engine, space);
  return Math.max(highestKey(engine, space, keys) ?? 0, Number(upTo));
}

/** Writes the id record after a push, so that every deletion checks it, even if the keys are declared as u53. */
export function noteIds(session: Session, space: CollectionSpace): void {
  if (!stored(session.engine, space).isStored) raise(session, space, 0n);
}

/** Raises the id record if needed. Has to be called before a key is deleted. */
export function keepId<K>(
  session: Session,
  { space, keys }: CollectionContext<unknown, unknown, unknown, never, K>,
  key: K,
): void {
  const { engine } = session;
  const { upTo, isStored } = stored(engine, space);
  if (!keys.isAuto && !isStored) return;
  // Other types are refused when the key is encoded.
  if ((typeof key !== "number" && typeof key !== "bigint") || key <= upTo) return;
  if (engine.find(keys.encode(engine, key), space.keyspace) === 0) return;
  const { pushed } = space;
  const given = pushed.rollbacks === engine.rollbacks ? BigInt(pushed.key) : 0n;
  const id = BigInt(key);
  raise(session, space, id > given ? id : given);
}

/** Raises the id record to the key of a record that expires, because the engine deletes it later by itself. */
export function keepExpiringId<K>(
  session: Session,
  { space, keys }: CollectionContext<unknown, unknown, unknown, never, K>,
  key: K,
): void {
  const { upTo, isStored } = stored(session.engine, space);
  if (!keys.isAuto && !isStored) return;
  // Other types are refused when the key is encoded.
  if ((typeof key !== "number" && typeof key !== "bigint") || !(key > upTo)) return;
  keys.encode(session.engine, key);
  raise(session, space, BigInt(key));
}

/** Raises the id record if needed. Has to be called before several keys are deleted. */
export function keepAllIds(
  session: Session,
  { space, keys }: Pick<AnyForm<unknown>, "space" | "keys">,
): void {
  const { engine } = session;
  const { upTo, isStored } = stored(engine, space);
  if (!keys.isAuto && !isStored) return;
  const highest = highestKey(engine, space, keys) as number | bigint | undefined;
  if (highest !== undefined && highest > upTo) raise(session, space, BigInt(highest));
}

function highestKey<K>(
  engine: Engine,
  space: CollectionSpace,
  keys: Keys<K, never>,
): K | undefined {
  const { bytes, count } = engine.scan(BACKWARDS, 1, false, space.keyspace);
  return count === 0 ? undefined : keys.decode(bytes);
}

function stored(engine: Engine, space: CollectionSpace): CollectionSpace["used"] {
  const { rollbacks } = engine;
  if (space.used.rollbacks !== rollbacks) {
    const bytes = engine.get(idsKeyOf(space.name), SYSTEM_KEYSPACE);
    const isStored = bytes !== undefined && bytes.length >= 8;
    const upTo = isStored
      ? new DataView(bytes.buffer, bytes.byteOffset, 8).getBigUint64(0, true)
      : 0n;
    space.used = { upTo, isStored, rollbacks };
  }
  return space.used;
}

function raise(session: Session, space: CollectionSpace, upTo: bigint): void {
  const { engine } = session;
  engine.set(
    idsKeyOf(space.name),
    new Uint8Array(new BigUint64Array([upTo]).buffer),
    SYSTEM_KEYSPACE,
  );
  space.used = { upTo, isStored: true, rollbacks: engine.rollbacks };
  if (!session.commits.queued) session.commits.queue();
}
