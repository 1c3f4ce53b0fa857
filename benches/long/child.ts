import { readdirSync, readFileSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { type Database, file, open as openVarve, type Storage } from "varve";
import { openLevel } from "../sizes/node/level.js";
import { openLmdb } from "../sizes/node/lmdb.js";
import type { OpenStore } from "../sizes/store.js";
import { type Copies, type Environment, runStep, type Step } from "./steps.js";
import { copyFlushed, costOfTail, lowerBoundOfTail, type Pair, type Read } from "./tail.js";
import { measuredVarve } from "./varve.js";

/** One step of one store, which a process runs. */
export interface Request {
  root: string;
  folder: string;
  store: "varve" | "lmdb" | "level";
  memory: number;
  spaceFactor: number;
  step: Step;
  /** The wasm of benches/tail, for the step that needs it. */
  wasm?: string;
}

const request: Request = JSON.parse(process.argv[2] ?? "");
const { root, folder, store, memory } = request;

/** The disk space that the files in a folder take. */
function diskSpace(path: string): number {
  const entries = readdirSync(path, { withFileTypes: true, recursive: true });
  const files = entries.filter((entry) => entry.isFile());
  return files.reduce((sum, { parentPath, name }) => {
    // A log-structured store may delete a file meanwhile.
    const found = statSync(join(parentPath, name), { throwIfNoEntry: false });
    return sum + (found?.blocks ?? 0) * 512;
  }, 0);
}

/** Bytes that this process has written by system calls. */
function writtenByCalls(): number | undefined {
  try {
    return Number(/^wchar: (\d+)$/m.exec(readFileSync("/proc/self/io", "utf8"))?.[1]);
  } catch {
    return undefined;
  }
}

/**
 * Opens a file read-only, up to the first get. With little memory, because reserving much makes the garbage
 * collector collect what earlier openings left.
 */
async function openToGet(storage: Storage, name: string, key: string): Promise<Database> {
  const db = await openVarve(name, { storage, memory: 4_194_304, readOnly: true });
  db.get(key);
  return db;
}

async function timedOpen(name: string, key: string): Promise<number> {
  const start = performance.now();
  const db = await openToGet(file(folder), name, key);
  const ms = performance.now() - start;
  await db.close();
  return ms;
}

async function readsOf(name: string, key: string): Promise<Read[]> {
  const reads: Read[] = [];
  const inner = file(folder);
  const storage: Storage = {
    ...inner,
    async open(name, mode) {
      const opened = await inner.open(name, mode);
      const read = opened.file.read.bind(opened.file);
      opened.file.read = (buffer, options) => {
        reads.push({ at: options.at, length: buffer.length });
        return read(buffer, options);
      };
      return opened;
    },
  };
  await (await openToGet(storage, name, key)).close();
  return reads;
}

function environment(): Pick<Environment, "open" | "written" | "tails"> {
  if (store === "varve") {
    const { open, counts } = measuredVarve(file(folder), request);
    const path = (name: string) => join(folder, `${name}.varve`);
    const pairOf = ({ closed, crashed, bytes, key }: Copies): Pair => ({
      closed: path(closed),
      crashed: path(crashed),
      bytes,
      timedOpen: (at) => timedOpen(basename(at, ".varve"), key),
      readsOf: (at) => readsOf(basename(at, ".varve"), key),
    });
    return {
      open,
      written: () => counts.written,
      tails: {
        copyFlushed: (from, to) => copyFlushed(path(from), path(to)),
        added: (copies, rounds) => costOfTail(pairOf(copies), rounds),
        least: (copies, of, rounds) =>
          lowerBoundOfTail(pairOf(copies), { ...of, wasm: request.wasm ?? "" }, rounds),
      },
    };
  }
  const rivals = { lmdb: openLmdb, level: openLevel } satisfies Record<
    string,
    (root: string) => OpenStore
  >;
  const open = rivals[store](root);
  return {
    open: (name) => open(join(folder, name), { memory }),
    // lmdb writes through a memory map, which no system call counts.
    written: store === "lmdb" ? () => undefined : writtenByCalls,
  };
}

const result = await runStep(request.step, {
  ...environment(),
  turn: () => setImmediate(),
  wrap: (buffer, offset, length) => Buffer.from(buffer, offset, length),
  diskSpace: async () => diskSpace(folder),
});
process.stdout.write(JSON.stringify(result), () => {
  // Simulates a crash: the process kills itself with the store open.
  if (request.step.step === "tail") process.kill(process.pid, "SIGKILL");
});
