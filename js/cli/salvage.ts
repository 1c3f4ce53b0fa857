/** `varve salvage` */

import { setImmediate } from "node:timers/promises";
import { Database } from "../database/database.js";
import type { Engine } from "../engine/engine.js";
import { SYSTEM_KEYSPACE } from "../engine/wasm-memory.js";
import { type Loss, open } from "../index.js";
import { fileAt } from "../storage/node/index.js";
import type { Call } from "./args.js";
import {
  type CollectionInfo,
  collectionsOf,
  entriesOf,
  type Indexing,
  indexingOf,
} from "./collections.js";
import { counted, escapeControls, field, size } from "./format.js";
import { inspectFile, refuseSpecialFile } from "./open-file.js";
import { EXIT, type ExitCode, Failure, type Output, Progress } from "./output.js";
import { into, refuseExisting } from "./output-file.js";

const RAW = 0;
const LAST_KEYSPACE = 65_535;

/** After this many bytes the copy is committed, and signals are handled. */
const STEP = 4_194_304;

/** Counts of what was copied. */
interface Copied {
  keys: number;
  collections: number;
  records: number;
  bytes: number;
  uncertain: number;
  /** Index entries that could not be made. */
  missing: number;
}

export async function salvage(call: Call, output: Output): Promise<ExitCode> {
  const [path = "", target = ""] = call.positionals;
  refuseSpecialFile(path);
  refuseExisting(call, target);
  const inJson = call.flags.has("json");
  return inspectFile(path, { ordered: true, recovery: "salvage" }, async (source) => {
    if (inJson)
      await output.print(
        `${JSON.stringify({ file: path, newFile: target }).slice(0, -1)},"uncertain":[`,
      );
    const { lost } = source.recovery;
    let first = true;
    const reportUncertain = async (key: Uint8Array, collection?: string) => {
      if (!inJson) return;
      const named = { ...(collection === undefined ? {} : { collection }), ...field("key", key) };
      await output.print(`${first ? "" : ","}${JSON.stringify(named)}`);
      first = false;
    };
    const copied = await into(target, () => copyTo(target, source, reportUncertain));
    if (inJson) {
      const { keys, collections, records, bytes, missing } = copied;
      const sums = { keys, collections, records, bytes, missing, lost: lost ?? null };
      await output.print(`],${JSON.stringify(sums).slice(1)}\n`);
    } else {
      await output.print(described(target, copied, lost));
    }
    return lost === undefined && copied.uncertain === 0 ? EXIT.ok : EXIT.negative;
  });
}

/** Copies the file into a new database at this path. */
async function copyTo(
  target: string,
  source: Database,
  reportUncertain: (key: Uint8Array, collection?: string) => Promise<void>,
): Promise<Copied> {
  const options = { durability: "buffered", ordered: false } as const;
  const copy = await open(target, { storage: fileAt(target), ...options });
  try {
    const copied = await copyAll(source, copy, reportUncertain);
    copy.flush();
    return copied;
  } finally {
    await copy.close().catch(() => undefined);
  }
}

/** Copies keyspace after keyspace: keys outside of collections, and collections with their descriptors. */
async function copyAll(
  source: Database,
  copy: Database,
  reportUncertain: (key: Uint8Array, collection?: string) => Promise<void>,
): Promise<Copied> {
  const { engine } = Database.sessionOf(source);
  const collections = collectionsOf(source);
  const copied = {
    keys: 0,
    collections: collections.length,
    records: 0,
    bytes: 0,
    uncertain: 0,
    missing: 0,
  };
  const total = source.stats().records + source.stats().indexEntries;
  const anyUncertain = (source.recovery.lost?.uncertainKeys ?? 0) > 0;
  const interruption = handleSignals();
  const progress = new Progress(process.stderr);
  const target = Database.sessionOf(copy);
  let since = 0;
  try {
    for (const { keyspace, name, counts, index } of keyspacesToCopy(source, collections)) {
      for (const [key, value] of entriesOf(source, keyspace)) {
        if (keyspace === SYSTEM_KEYSPACE && !isCopied(key)) continue;
        const expiry = engine.expiring ? engine.expiryOf(engine.encodeKey(key), keyspace) : 0;
        target.engine.setExpiring(key, value, expiry, keyspace);
        copied.missing += index?.(target.engine, key, value, expiry) ?? 0;
        if (!target.commits.queued) target.commits.queue();
        since += key.length + value.length;
        if (counts !== undefined) {
          copied[counts] += 1;
          copied.bytes += value.length;
          if (anyUncertain && isUncertain(engine, key, keyspace)) {
            copied.uncertain += 1;
            await reportUncertain(key, name);
          }
        }
        if (since < STEP) continue;
        since = 0;
        copy.commit();
        progress.print("copying", copied.keys + copied.records, total);
        await setImmediate();
        if (interruption.wasReceived)
          throw new Failure(EXIT.unreadable, "Interrupted; nothing was created.");
      }
    }
  } finally {
    progress.end();
    interruption.end();
  }
  return copied;
}

function isUncertain(engine: Engine, key: Uint8Array, keyspace: number): boolean {
  engine.version(engine.encodeKey(key), keyspace);
  return engine.isUncertain();
}

/** A keyspace to copy, and the counts for it. */
interface KeyspaceToCopy {
  readonly keyspace: number;
  readonly counts?: "keys" | "records";
  /** The counts of the collection. */
  readonly name?: string;
  /** Makes the index entries of a record. */
  readonly index?: Indexing | undefined;
}

/** The keyspaces of a file, in the order in which they are copied. */
function* keyspacesToCopy(
  source: Database,
  collections: readonly CollectionInfo[],
): Generator<KeyspaceToCopy> {
  yield { keyspace: RAW, counts: "keys" };
  yield { keyspace: SYSTEM_KEYSPACE };
  const { engine } = Database.sessionOf(source);
  // After a loss, index entries are rebuilt, because those in the file may not match the salvaged records.
  const rebuilt = source.recovery.lost === undefined ? [] : collections;
  const skipped = new Set<number>();
  const indexing = new Map<number, Indexing>();
  for (const described of rebuilt) {
    const index = indexingOf(described);
    if (index === undefined) continue;
    indexing.set(described.keyspace, index);
    for (const { keyspace } of described.indexes) skipped.add(keyspace);
  }
  const names = new Map(collections.map(({ keyspace, name }) => [keyspace, name]));
  for (let keyspace = SYSTEM_KEYSPACE + 1; keyspace <= LAST_KEYSPACE; keyspace += 1) {
    if (engine.count(keyspace) === 0 || skipped.has(keyspace)) continue;
    const name = names.get(keyspace);
    const index = indexing.get(keyspace);
    // An index, or a keyspace without a descriptor, whose bytes may still be useful to the user.
    yield name === undefined ? { keyspace } : { keyspace, name, counts: "records", index };
  }
}

/**
 * The beginnings of keys of the engine's own that are not copied. Those about frames and clears are valid only in the old
 * file. The chunks of large values (`piece/`) are written with the values, under numbers of the new file: those of the old
 * one would replace them. What is kept for records that expire is written with these, and not for records that are lost.
 * `store/salvage.rs` leaves out the same.
 */
const NOT_COPIED = ["gap/", "history", "marks", "packed", "clear/", "piece/", "expiry"].map(
  (start) => new TextEncoder().encode(start),
);

/** Whether a key of the engine's own is copied. */
function isCopied(key: Uint8Array): boolean {
  return !NOT_COPIED.some((start) => start.every((byte, at) => key[at] === byte));
}

/** Handles signals, so that the command can remove its partial copy before it ends. */
function handleSignals(): { wasReceived: boolean; end(): void } {
  const state = { wasReceived: false, end: () => undefined as undefined };
  const onSignal = () => {
    state.wasReceived = true;
  };
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  for (const signal of signals) process.on(signal, onSignal);
  state.end = () => {
    for (const signal of signals) process.off(signal, onSignal);
  };
  return state;
}

function described(target: string, copied: Copied, lost: Loss | undefined): string {
  const { keys, collections, records, bytes, uncertain, missing } = copied;
  const beside =
    collections === 0
      ? ""
      : ` and ${counted(collections, "collection")} with ${counted(records, "record")}`;
  const lines = [
    `copied ${counted(keys, "key")}${beside} (${size(bytes)} of values) to ${escapeControls(target)}`,
    lost === undefined ? "nothing was lost" : lossOf(lost),
  ];
  if (uncertain > 0) {
    lines.push(
      `uncertain: ${counted(uncertain, "key")}, which lost writes may have changed or deleted ` +
        "(--json names them)",
    );
  }
  if (missing > 0) {
    lines.push(
      `${counted(missing, "index entry", "index entries")} could not be created: rebuild with ` +
        "db.migrate()",
    );
  }
  return lines.map((line) => `${line}\n`).join("");
}

function lossOf({ frames, bytes, keys }: Loss): string {
  const parts = [
    frames > 0 ? counted(frames, "flushed frame") : "",
    bytes > 0 ? size(bytes) : "",
    keys > 0 ? `the values of ${counted(keys, "key")}` : "",
  ].filter((part) => part !== "");
  return parts.length === 0
    ? "the file was damaged; nothing is known to be lost"
    : `lost: ${parts.join(", ")}`;
}
