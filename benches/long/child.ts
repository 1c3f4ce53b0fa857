import { closeSync, openSync, readdirSync, readFileSync, readSync, statSync } from "node:fs";
import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { file } from "varve";
import { openLevel } from "../sizes/node/level.js";
import { openLmdb } from "../sizes/node/lmdb.js";
import type { OpenStore } from "../sizes/store.js";
import { type Around, runStep, type Step } from "./steps.js";
import { watchedVarve } from "./varve.js";

/** What a process is told: one step of one store's life. */
export interface Request {
  root: string;
  folder: string;
  store: "varve" | "lmdb" | "level";
  memory: number;
  spaceFactor: number;
  step: Step;
}

const MIB = 1_048_576;
const request: Request = JSON.parse(process.argv[2] ?? "");
const { root, folder, store, memory } = request;

/** What the files in a folder take of the disk. */
function room(path: string): number {
  const entries = readdirSync(path, { withFileTypes: true, recursive: true });
  const files = entries.filter((entry) => entry.isFile());
  return files.reduce((sum, { parentPath, name }) => {
    // A file of a log-structured store may go while it is counted.
    const found = statSync(join(parentPath, name), { throwIfNoEntry: false });
    return sum + (found?.blocks ?? 0) * 512;
  }, 0);
}

function rawRead(path: string, bytes: number): number {
  const block = new Uint8Array(MIB);
  const fd = openSync(path, "r");
  const start = performance.now();
  for (let at = 0; at < bytes; at += MIB) readSync(fd, block, 0, Math.min(MIB, bytes - at), at);
  const ms = performance.now() - start;
  closeSync(fd);
  return ms;
}

/** Bytes that this process has handed to the system in calls of write. */
function writtenByCalls(): number | undefined {
  try {
    return Number(/^wchar: (\d+)$/m.exec(readFileSync("/proc/self/io", "utf8"))?.[1]);
  } catch {
    return undefined;
  }
}

function surroundings(): Pick<Around, "open" | "written" | "rawRead"> {
  if (store === "varve") {
    const { open, counts } = watchedVarve(file(folder), request);
    return {
      open,
      written: () => counts.written,
      rawRead: async (name, bytes) => rawRead(join(folder, `${name}.varve`), bytes),
    };
  }
  const rivals = { lmdb: openLmdb, level: openLevel } satisfies Record<
    string,
    (root: string) => OpenStore
  >;
  const open = rivals[store](root);
  return {
    open: (name) => open(join(folder, name), { memory }),
    // What lmdb writes it writes through its map, which no call tells of.
    written: store === "lmdb" ? () => undefined : writtenByCalls,
  };
}

const result = await runStep(request.step, {
  ...surroundings(),
  turn: () => setImmediate(),
  wrap: (buffer, offset, length) => Buffer.from(buffer, offset, length),
  room: async () => room(folder),
});
process.stdout.write(JSON.stringify(result), () => {
  // The worst that can happen to a program.
  if (request.step.step === "tail") process.kill(process.pid, "SIGKILL");
});
