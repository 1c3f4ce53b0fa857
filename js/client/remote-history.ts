/**
 * What happened in a remote database since a commit. These are functions and no methods of the client, so that a page that
 * uses none of them does not load them.
 */

import type { ChangesOptions, FollowedTransaction } from "../database/changes.js";
import type { PackOptions } from "../database/pack.js";
import type { UndoOptions } from "../database/undo.js";
import { badCall } from "../errors/index.js";
import { checkedOptions, MAX_TIMEOUT_MS } from "../session/checked-options.js";
import { setTimeout } from "../util/clock.js";
import { endable } from "../util/loops.js";
import type { Caller, CallOptions } from "./connection/caller.js";
import { CALL_NAME, split } from "./protocol/call-options.js";
import { cloneArgs } from "./protocol/clone.js";
import { type ChangesPage, type FollowPage, HISTORY, UNDO } from "./protocol/history-pages.js";
import type { RemoteLogRecord } from "./protocol/log-pages.js";

/** A client, as `connect` returns it. */
export interface AnyClient {
  close(): Promise<void>;
}

/** The options of `changes` of a client. `timeout` applies to each request that it makes. */
export interface RemoteChangesOptions extends ChangesOptions, CallOptions {}

/** The options of `follow` of a client. `timeout` applies to each request that it makes. */
export interface RemoteFollowOptions extends CallOptions {
  /** Begins after this commit: the `number` of the last transaction that was handled. Without it, with the next commit. */
  since?: number | undefined;
  /**
   * Only records of this collection, and transactions that have some. After 256 others comes one without records, so that
   * the `number` goes on.
   */
  collection?: string | undefined;
}

/** The options of `undo` of a client. */
export interface RemoteUndoOptions extends UndoOptions, CallOptions {}

/** The options of `pack` of a client. `timeout` is one hour by default. */
export interface RemotePackOptions extends Pick<PackOptions, "before">, CallOptions {}

/** The pause before a request is repeated that no owner has answered. */
const RETRY_MS = 250;

/** How a client sends calls. */
export function callerOf(client: AnyClient): Caller {
  const { link } = Object(client) as { link?: Caller };
  if (link !== undefined) return link;
  throw badCall("The first argument must be a client, as connect() returns it.");
}

/** Asks the owner for something about the past. */
export function ask(
  caller: Caller,
  args: readonly unknown[],
  options?: CallOptions,
): Promise<unknown> {
  const named = { ...options, [CALL_NAME]: String(args[0]) };
  return caller.request(HISTORY, () => cloneArgs(args), false, named);
}

/** The number of an iteration or a snapshot. */
export function randomId(): number {
  return Math.floor(Math.random() * Number.MAX_SAFE_INTEGER);
}

/**
 * Resolves to the number of the newest commit: a cursor for `changes` and `follow`. What was requested before is
 * committed.
 *
 * @throws (rejects) OwnerUnavailableError in a service worker while no tab has the file
 */
export async function lastCommit(client: AnyClient, options?: CallOptions): Promise<number> {
  return (await ask(callerOf(client), ["lastCommit"], options)) as number;
}

/** Versions that were met. One bit each, as they lie close together. */
class Versions {
  private readonly bits = new Map<number, number>();

  /** Adds a version. Returns whether it is new. */
  add(version: number): boolean {
    const [block, bit] = [Math.floor(version / 32), 1 << (version % 32)];
    const known = this.bits.get(block) ?? 0;
    this.bits.set(block, known | bit);
    return (known & bit) === 0;
  }
}

/**
 * What is different since a commit, as `Database.changes`: each key once, as it is now, deletions included. Everything is a
 * copy. Nothing is requested before a loop, and each loop starts again.
 *
 * ```ts
 * const cursor = await lastCommit(shop);
 * for await (const { type, collection, key, value } of changes(shop, { since: last })) { … }
 * last = cursor;
 * ```
 *
 * It shows what was committed when the loop began. A key that changes again meanwhile may be left out: it is a change after
 * that. The owner sends at most 256 KiB at a time beside a single value that is larger. If another tab becomes the owner,
 * it begins again, and what was given is left out.
 *
 * @throws (in the loop) CursorExpiredError if compaction has removed a deletion since; TypeError for a bad option or a
 * cursor above `lastCommit`; OwnerUnavailableError in a service worker while no tab has the file
 */
export function changes(
  client: AnyClient,
  options: RemoteChangesOptions,
): AsyncIterable<RemoteLogRecord, undefined> {
  const caller = callerOf(client);
  const [given, callOptions] = split(options);
  return { [Symbol.asyncIterator]: () => changedRecords(caller, given, callOptions) };
}

async function* changedRecords(
  caller: Caller,
  given: unknown,
  callOptions: CallOptions,
): AsyncGenerator<RemoteLogRecord, undefined> {
  const id = randomId();
  const seen = new Versions();
  let options = given;
  let goesOn = true;
  try {
    for (let page = 0; goesOn; page += 1) {
      const args = ["changes", id, page, options];
      const answer = (await ask(caller, args, callOptions)) as ChangesPage;
      for (const item of answer.items) if (seen.add(item.version)) yield item;
      options = { ...(given as object), until: answer.until };
      goesOn = answer.goesOn;
    }
  } finally {
    // Frees the memory of a loop that was left. Without an answer, the owner forgets it by itself.
    if (goesOn) ask(caller, ["end", id]).catch(() => {});
  }
  return undefined;
}

/**
 * The transactions since a commit, and then each that is committed, whichever tab wrote it, as `Database.follow`: each once
 * and none left out, also if other tabs become the owner. Everything is a copy.
 *
 * ```ts
 * for await (const { number, note, records } of follow(shop, { since: cursor })) {
 *   for (const { type, key, value } of records) console.log(number, note, type, key, value);
 *   cursor = number; // where to go on after a reload
 * }
 * ```
 *
 * Without `since` it begins with the next commit after this call. While no owner answers it waits; `client.status` says why.
 * `signal` ends the loop, which throws its reason. Closing the client ends it without an error.
 *
 * @throws (in the loop) CursorExpiredError if compaction has removed a part of what followed the cursor: keep a mark, by
 * `db.retain` in a procedure; TypeError for a bad option or a cursor above `lastCommit`; CorruptionError
 */
export function follow(
  client: AnyClient,
  options?: RemoteFollowOptions,
): AsyncGenerator<FollowedTransaction, void, undefined> {
  const caller = callerOf(client);
  const [given, callOptions] = split(options);
  const { since, ...wanted } = (given ?? {}) as RemoteFollowOptions;
  const begin = since === undefined ? newest(caller, callOptions) : Promise.resolve(since);
  // The loop throws it, or asks again.
  begin.catch(() => {});
  const ending = new AbortController();
  const stop = () => ending.abort(CLOSED);
  return endable(followed(caller, begin, wanted, callOptions, ending, stop), stop);
}

/** The last commit before the message with this request. */
function newest(caller: Caller, options: CallOptions): Promise<number> {
  return caller.request("lastCommit", () => [], false, options) as Promise<number>;
}

async function* followed(
  caller: Caller,
  begin: Promise<number>,
  wanted: unknown,
  { signal, timeout }: CallOptions,
  ending: AbortController,
  stop: () => void,
): AsyncGenerator<FollowedTransaction, void, undefined> {
  const id = randomId();
  const options = { signal: ending.signal, timeout };
  const onAbort = () => ending.abort(signal?.reason);
  signal?.addEventListener("abort", onAbort);
  caller.closers.add(stop);
  try {
    signal?.throwIfAborted();
    let cursor: number | undefined;
    for (let first: Promise<number> | undefined = begin; ; first = undefined) {
      let page: FollowPage | undefined;
      try {
        cursor ??= await (first ?? newest(caller, options));
        page = (await ask(caller, ["follow", id, cursor, wanted], options)) as FollowPage;
      } catch (error) {
        if ((error as { code?: unknown }).code !== "VARVE_OWNER_UNAVAILABLE") throw error;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
        continue;
      }
      for (const item of page.items) {
        yield item;
        ending.signal.throwIfAborted();
      }
      cursor = page.cursor;
    }
  } catch (error) {
    if (ending.signal.reason !== CLOSED) throw error;
  } finally {
    signal?.removeEventListener("abort", onAbort);
    caller.closers.delete(stop);
    ask(caller, ["end", id]).catch(() => {});
  }
}

/** The reason with which a loop ends without an error: its client was closed, or it was left. */
const CLOSED: unique symbol = /* @__PURE__ */ Symbol();

/**
 * Takes back a transaction, given by its number in `client.log`, as `Database.undo`: a new one gives each key that it wrote
 * the value that it had before, with its expiry. For databases that keep their history. It is done exactly once, also if its
 * owner ends before it has answered. What was requested in one task is one transaction, unless it has a note.
 *
 * ```ts
 * await undo(shop, number, { note: "wrong price" });
 * ```
 *
 * @throws (rejects) ConflictError if a later transaction has changed any of these keys, which it names, or a collection of
 * theirs was migrated since: nothing was changed
 * @throws (rejects) UniqueViolationError if another record has the values now that would come back: nothing was changed
 * @throws (rejects) TypeError for a bad number or option, if there is no such transaction, and if the database does not keep
 * its history; CursorExpiredError if `pack` has forgotten what was before it; and as `client.set`
 */
export async function undo(
  client: AnyClient,
  number: number,
  options?: RemoteUndoOptions,
): Promise<void> {
  const [given, callOptions] = split(options);
  await callerOf(client).request(UNDO, () => cloneArgs([number, given]), true, callOptions);
}

/**
 * Forgets the history before a commit, as `Database.pack`, while the owner goes on with everything else. Resolves to the
 * number of the first commit that can be shown then. `status.progress` reports the progress. `signal` ends it: earlier
 * commits cannot be shown any more, and the next call frees the rest of their space. If the owner changes, the next owner
 * goes on with it.
 *
 * ```ts
 * await pack(shop, { before: new Date(Date.now() - 30 * 86_400_000) });
 * ```
 *
 * @throws (rejects) TypeError as `at`; ReentrancyError while another `pack` runs; QuotaExceededError, StorageError,
 * ReadOnlyError as `client.compact`; OwnerUnavailableError in a service worker while no tab has the file
 */
export async function pack(client: AnyClient, options: RemotePackOptions): Promise<number> {
  const caller = callerOf(client);
  const known = ["before", "signal", "timeout"];
  const { before, signal, timeout = MAX_TIMEOUT_MS } = checkedOptions("pack()", options, known);
  const callOptions = { signal, timeout };
  const number = await ask(caller, ["pack", before], callOptions);
  return (await caller.request("pack", () => [number], false, callOptions)) as number;
}
