import { open } from "varve";
import type { Amounts, LargeResult, Line, Platform } from "./platform.js";
import { type Call, recordedStorage } from "./recorded-storage.js";

const KIB = 1_024;
const SIZES = [64 * KIB, 4 * KIB * KIB];
const NAME = "values";
const RAW = "values.raw";
const SAME = "values.same";
/** Bytes that one of the two writes before the other one does. */
const TURN = KIB * KIB;
/** Samples whose values fit in memory: the reads then are memory reads. */
const MEMORY_SAMPLES = 3;

const sizeName = (size: number) =>
  size < KIB * KIB ? `${size / KIB} KiB` : `${size / KIB / KIB} MiB`;

/** Checks the value's mark, in its first byte and its last. */
function check(view: Uint8Array | undefined, size: number, mark: number): void {
  if (view?.length !== size || view[0] !== mark || view[size - 1] !== mark) {
    throw new Error(`a value of ${size} bytes shows ${view?.length} of ${view?.[0]}`);
  }
}

async function ofSize(platform: Platform, amounts: Amounts, size: number): Promise<Line[]> {
  const count = amounts.valueBytes / size;
  const keysOf = (name: string) =>
    Array.from({ length: count }, (_, i) => `value:${name}:${String(i).padStart(10, "0")}`);
  const inTurn = Math.max(1, TURN / size);
  const value = new Uint8Array(size);
  /** A write of the database is at most a value and two segments long. */
  const buffer = new Uint8Array(size + 2 * TURN);
  const times = {
    set: [] as number[],
    over: [] as number[],
    write: [] as number[],
    same: [] as number[],
    first: [] as number[],
    view: [] as number[],
    copy: [] as number[],
  };
  const memory = MEMORY_SAMPLES * amounts.valueBytes;
  const writes: Call[] = [];
  const storage = recordedStorage(platform.storage, { writes: writes });
  const db = await open(NAME, { storage, memory });
  const raw = await platform.raw(RAW);
  const same = await platform.raw(SAME);
  let at = 0;
  const over = keysOf("over");
  // Warms up until memory is full and values are evicted.
  const warmup = MEMORY_SAMPLES + 2;
  for (let round = 0; round < warmup + amounts.samples; round++) {
    platform.progress(`values of ${sizeName(size)}: round ${round + 1}`);
    const mark = 1 + (round % 200);
    value.fill(mark);
    const timed = async (work: () => void) => {
      await platform.turn();
      const start = performance.now();
      work();
      return ((performance.now() - start) * 1e3) / count;
    };
    const keys = keysOf(String(round));
    const ours = (names: readonly string[]) => {
      for (const key of names) {
        db.set(key, value);
        db.commit();
      }
    };
    const bare = (values: number) => {
      for (let i = 0; i < values; i++) {
        if (raw.write(value, at) !== size) throw new Error("the disk is full");
        at += size;
      }
    };
    // Repeats the database's writes, at the same offsets: each has a frame header and a record header besides
    // the value, and so is not aligned to the system's pages.
    const repeat = (calls: readonly Call[]) => {
      for (const { at, length } of calls) {
        if (same.write(buffer.subarray(0, length), at) !== length)
          throw new Error("the disk is full");
      }
    };
    // Both write in turn, and each is first as often, so that the system's write-back affects both. Earlier
    // writes have been flushed by then.
    let [set, write, repeated] = [0, 0, 0];
    for (let from = 0, ourTurn = round % 2 === 0; from < count; from += inTurn) {
      const names = keys.slice(from, from + inTurn);
      for (const first of [true, false]) {
        if (first === ourTurn) {
          set += await timed(() => {
            writes.length = 0;
            ours(names);
          });
          const calls = writes.slice();
          repeated += await timed(() => repeat(calls));
        } else write += await timed(() => bare(names.length));
      }
      ourTurn = !ourTurn;
    }
    db.flush();
    raw.flush();
    same.flush();
    const readAll = () => {
      for (const key of keys) check(db.get(key), size, mark);
    };
    const first = await timed(readAll);
    const view = await timed(readAll);
    const copy = await timed(() => {
      for (const key of keys) check(db.get(key)?.slice(), size, mark);
    });
    const overwritten = await timed(() => ours(over));
    db.flush();
    if (round < warmup) continue;
    times.set.push(set);
    times.over.push(overwritten);
    times.write.push(write);
    times.same.push(repeated);
    times.first.push(first);
    times.view.push(view);
    times.copy.push(copy);
  }
  raw.close();
  same.close();
  await db.close();
  const again = await open(NAME, { storage: platform.storage, memory });
  for (let round = 0; round < warmup + amounts.samples; round++) {
    for (const key of keysOf(String(round))) check(again.get(key), size, 1 + (round % 200));
    await platform.turn();
  }
  for (const key of over) check(again.get(key), size, value[0]!);
  await again.close();
  await platform.remove(NAME);
  await platform.remove(RAW);
  await platform.remove(SAME);

  const group = `Values of ${sizeName(size)}`;
  const written = "survives the process, not a power loss";
  const unit = "µs" as const;
  const line = (
    id: string,
    work: string,
    store: string,
    durability: string,
    samples: number[],
  ) => ({
    id: `${id}${size}`,
    group,
    work,
    store,
    durability,
    unit,
    samples,
  });
  return [
    line("set", "written, a commit each", "varve", written, times.set),
    line("write", "written, a commit each", "write of the same bytes", written, times.write),
    line("same", "written, a commit each", "the same calls of write", written, times.same),
    line("over", "written over itself, a commit each", "varve", written, times.over),
    line("first", "read as a view, the first time", "varve", "reads", times.first),
    line("view", "read as a view, again", "varve", "reads", times.view),
    line("copy", "read and copied", "varve", "reads", times.copy),
  ];
}

/** Large values, each with a commit, next to the bare calls, and reads with and without a copy. */
export async function largeValues(platform: Platform, amounts: Amounts): Promise<LargeResult> {
  const lines: Line[] = [];
  for (const size of SIZES) lines.push(...(await ofSize(platform, amounts, size)));
  const total = amounts.valueBytes / KIB / KIB;
  return {
    lines,
    notes: [
      `Large values: ${total} MiB a sample, with memory ${MEMORY_SAMPLES * total} MiB, on new keys, so that all files grow by the same bytes; the files take turns after a MiB or a value. "The same calls" write as many bytes at the same offsets as the database, which has headers between values. A system may take a multiple of 64 KiB at such an offset as one page, or search long for a page of 2 MiB. All files are flushed after each sample, outside of its time. "Over itself" are the same keys in every sample: the space of the old values has to be freed, which costs flushes and zeroing within the sample, since no turn ends. All values are checked after closing and opening. Of a view and of a copy, the first and the last byte are read.`,
    ],
  };
}
