/** `varve stat` */

import { Database } from "../database/database.js";
import type { Recovery } from "../index.js";
import { layoutOf } from "../struct/layout-string.js";
import type { Call } from "./args.js";
import { type CollectionInfo, collectionOf } from "./collections.js";
import { counted, duration, escapeControls, number, size, table } from "./format.js";
import { inspectFile } from "./open-file.js";
import { EXIT, type ExitCode, type Output } from "./output.js";

export async function stat(call: Call, output: Output): Promise<ExitCode> {
  const { positionals, flags } = call;
  const [path = ""] = positionals;
  const start = performance.now();
  return inspectFile(path, { ordered: false }, async (db) => {
    const openedMs = performance.now() - start;
    const { collection } = call.texts;
    if (collection !== undefined) return statOf(db, collectionOf(db, collection), call, output);
    const { keys, records, indexEntries, liveBytes, fileBytes, segments } = db.stats();
    const { recovery } = db;
    if (flags.has("json")) {
      const document = {
        file: path,
        keys,
        records,
        indexEntries,
        liveBytes,
        fileBytes,
        segments,
        openedMs: Math.round(openedMs * 10) / 10,
        recovery,
      };
      await output.print(`${JSON.stringify(document)}\n`);
      return EXIT.ok;
    }
    const share = fileBytes > 0 ? Math.round((100 * liveBytes) / fileBytes) : 0;
    const rows = [
      ["keys", number(keys)],
      ...(records === keys ? [] : [["collections", inAll(records - keys, indexEntries)] as const]),
      ["live", `${size(liveBytes)}, ${share} % of the file`],
      ["file", size(fileBytes)],
      ["last frame", number(recovery.lastSequence)],
      ["closed", closed(recovery)],
      ["opened", `in ${duration(openedMs)}, from ${read(recovery)}`],
    ] as const;
    await output.print(table(rows));
    return EXIT.ok;
  });
}

function inAll(records: number, indexEntries: number): string {
  const entries = counted(indexEntries, "entry", "entries");
  return `${counted(records, "record")}, and ${entries} of their indexes; varve schema names them`;
}

/** The lines about one collection. */
async function statOf(
  db: Database,
  { name, keyspace, key, value, indexes }: CollectionInfo,
  { positionals, flags }: Call,
  output: Output,
): Promise<ExitCode> {
  const { engine } = Database.sessionOf(db);
  const records = engine.count(keyspace);
  const entries = indexes.map((index) => [index.name, engine.count(index.keyspace)] as const);
  if (flags.has("json")) {
    const [file] = positionals;
    const described = { key, value: value ?? null, indexes: Object.fromEntries(entries) };
    const document = { file, collection: name, records, ...described };
    await output.print(`${JSON.stringify(document)}\n`);
    return EXIT.ok;
  }
  const rows = [
    ["records", number(records)],
    ["keys", typeof key === "string" ? key : JSON.stringify(key)],
    [
      "values",
      value?.kind === "struct" ? layoutOf(value) : (value?.kind ?? "unknown to this version"),
    ],
    ...entries.map(
      ([index, count]) => ["index", `${index}: ${counted(count, "entry", "entries")}`] as const,
    ),
  ] as const;
  await output.print(escapeControls(table(rows)));
  return EXIT.ok;
}

function closed({ wasClean, tornBytes, droppedFrames }: Recovery): string {
  if (wasClean) return "cleanly";
  if (tornBytes === 0) return "not cleanly, but nothing is missing";
  const frames = droppedFrames > 0 ? ` with ${counted(droppedFrames, "whole frame")}` : "";
  return (
    `not cleanly: ${counted(tornBytes, "byte")}${frames} at the end were never flushed, and are ` +
    "ignored"
  );
}

function read({ fromCheckpoint, replayedFrames }: Recovery): string {
  const frames = counted(replayedFrames, "frame");
  return fromCheckpoint ? `a checkpoint and ${frames}` : `all ${frames}`;
}
