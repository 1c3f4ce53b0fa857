import {
  type Checkpoint,
  DATA_START,
  filePosition,
  HEADER,
  RUN,
  type Run,
  viewOf,
} from "./layout.js";
import type { SegmentReader } from "./segments.js";

/** What a block says of a key: that it was deleted, where its record was, or where a block is. */
type Entry = { key: Uint8Array; kind: number; position: number };

/** Section 8b: the keys of each keyspace in order, as of the checkpoint; `undefined` if a run is damaged. */
export async function readOrderedKeys(
  reader: SegmentReader,
  checkpoint: Checkpoint,
): Promise<Map<number, string[]> | undefined> {
  const merged = new Map<string, boolean>();
  for (const run of checkpoint.runs) {
    const entries = await readRun(reader, run);
    if (entries === undefined) return undefined;
    for (const { key, kind } of entries) {
      const keyspace = viewOf(key).getUint16(0);
      if (run.sequence < (checkpoint.firstRuns.get(keyspace) ?? 0)) continue;
      merged.set(hexOf(key), kind === 1);
    }
  }
  const keys = new Map<number, string[]>();
  for (const [key] of [...merged].filter(([, exists]) => exists).sort()) {
    const keyspace = Number.parseInt(key.slice(0, 4), 16);
    keys.set(keyspace, [...(keys.get(keyspace) ?? []), key.slice(4)]);
  }
  return keys;
}

/** All entries of the leaf blocks of a run. */
async function readRun(reader: SegmentReader, run: Run): Promise<Entry[] | undefined> {
  const root = await readBlock(reader, run, run.root, run.length);
  let level: Entry[] | undefined = root;
  for (let depth = 0; depth < 2; depth += 1) {
    const next: Entry[] = [];
    for (const { kind, position } of level ?? []) {
      const block = kind > 1 ? await readBlock(reader, run, position, 8 * kind) : undefined;
      if (block === undefined) return undefined;
      next.push(...block);
    }
    level = level && next;
  }
  const isOrdered = level?.every((entry, i) => {
    const before = level?.[i - 1];
    return before === undefined || hexOf(before.key) < hexOf(entry.key);
  });
  return isOrdered && level?.length === run.entries ? level : undefined;
}

/** The entries of a block; `undefined` if there is no valid one. */
async function readBlock(
  reader: SegmentReader,
  run: Run,
  position: number,
  length: number,
): Promise<Entry[] | undefined> {
  const slot = Math.floor((position - DATA_START) / 2 ** reader.superblock.segmentLog2);
  const segment = reader.bySlot.get(slot);
  const isOwn = run.segments.some(
    (own) => own.slot === slot && own.sequence === segment?.sequence && segment.kind === RUN,
  );
  if (segment === undefined || !isOwn || position < segment.start + HEADER) return undefined;
  if (!(await reader.hasChecksum(position, length, segment.salt))) return undefined;
  const bytes = reader.file.subarray(position, position + length);
  const view = viewOf(bytes);
  let at = 16;
  const number = () => {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = bytes[at] ?? 0;
      at += 1;
      value += (byte & 127) * 2 ** shift;
      if (byte < 128) return value;
    }
  };
  const entries: Entry[] = [];
  for (let left = view.getUint32(12, true); left > 0; left -= 1) {
    const [shared, own, kind] = [number(), number(), number()];
    const target = kind === 0 ? 0 : filePosition(view.getUint32(at, true));
    at += kind === 0 ? 0 : 4;
    const before = entries.at(-1)?.key.subarray(0, shared) ?? [];
    const key = Uint8Array.from([...before, ...bytes.subarray(at, at + own)]);
    at += own;
    entries.push({ key, kind, position: target });
  }
  return entries;
}

function hexOf(bytes: Uint8Array): string {
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
