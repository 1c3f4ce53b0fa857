/**
 * The ids that `push` gives out: never one that was in use before. The highest key of a collection tells
 * where to go on, until it is deleted. Before that happens, a record in the engine's own keyspace is
 * raised to it, in the same commit; FORMAT.md section 8. Ordinary pushes and deletions write nothing for
 * it: one that deletes the oldest of a queue raises the record up to the newest, once for all of them.
 */

import type { Engine } from "../engine/engine.js";
import type { Session } from "../session/session.js";
import { type CollectionContext, type CollectionSpace, SYSTEM_KEYSPACE } from "./catalog.js";
import type { Keys } from "./keys.js";

type AnyForm<K> = CollectionContext<K, unknown, unknown, never, never>;

/** Everything, from the last key on. */
const BACKWARDS = {
  lower: undefined,
  lowerExcluded: false,
  upper: undefined,
  upperIncluded: false,
  reverse: true,
};

/** The key of the record of a collection. */
export function idsKeyOf(name: string): string {
  return `ids/${name}`;
}

/** Up to which id none may be given out again. */
export function usedUpTo(
  session: Session,
  { space, keys }: Pick<CollectionContext<number, unknown, unknown, never>, "space" | "keys">,
): number {
  const { engine } = session;
  const { upTo } = stored(engine, space);
  return Math.max(highestKey(engine, space, keys) ?? 0, Number(upTo));
}

/** After a push: from now on every deletion looks, also by a program that declares these keys as u53. */
export function noteIds(session: Session, space: CollectionSpace): void {
  if (!stored(session.engine, space).isStored) raise(session, space, 0n);
}

/** To be called before a key is deleted. */
export function keepId<K>(
  session: Session,
  { space, keys }: CollectionContext<unknown, unknown, unknown, never, K>,
  key: K,
): void {
  const { engine } = session;
  const { upTo, isStored } = stored(engine, space);
  if (!keys.isAuto && !isStored) return;
  // What is no number is refused where it is encoded.
  if ((typeof key !== "number" && typeof key !== "bigint") || key <= upTo) return;
  if (engine.find(keys.encode(engine, key), space.keyspace) === 0) return;
  const { pushed } = space;
  const given = pushed.undone === engine.rollbacks ? BigInt(pushed.key) : 0n;
  const id = BigInt(key);
  raise(session, space, id > given ? id : given);
}

/** To be called before several keys are deleted. */
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
  const { rollbacks: undone } = engine;
  if (space.used.undone !== undone) {
    const bytes = engine.get(idsKeyOf(space.name), SYSTEM_KEYSPACE);
    const isStored = bytes !== undefined && bytes.length >= 8;
    const upTo = isStored
      ? new DataView(bytes.buffer, bytes.byteOffset, 8).getBigUint64(0, true)
      : 0n;
    space.used = { upTo, isStored, undone };
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
  space.used = { upTo, isStored: true, undone: engine.rollbacks };
  if (!session.queued) session.queue();
}
